"""Complex numbers inside of programs whose inputs and results are real, so that every stage runs and compares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.cases.model import F32, F64, Case, Recipe, normal

aten = torch.ops.aten


def case(name: str, fn: Callable[..., Any], *recipes: Recipe) -> Case:
    return Case(f"complex_{name}", fn, recipes, (F32, F64))


def below(fn: Callable[..., Any]) -> Callable[..., Any]:
    """In inference mode composite operators reach the tracer whole."""

    def run(*inputs: Any) -> Any:
        with torch.inference_mode():
            return fn(*inputs)

    return run


def pair(x: Tensor, y: Tensor) -> Tensor:
    return torch.complex(x, y)


def rotary(x: Tensor, angles: Tensor) -> Tensor:
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2).to(torch.bfloat16)


def state_space(x: Tensor, y: Tensor) -> Tensor:
    """A kernel of a diagonal state-space model: powers of complex numbers, summed over the states."""
    times = torch.arange(6, device=x.device)
    powers = (pair(-x.abs(), y).unsqueeze(-1) * times).exp()
    return 2 * (pair(y, x).unsqueeze(-1) * powers).sum(0).real


def places(x: Tensor, y: Tensor) -> Tensor:
    """Movement: joined, turned, bordered, chosen, replaced."""
    z = pair(x, y)
    wide = torch.cat([z, x * 2, z.flip(0)], 1)
    wide = torch.nn.functional.pad(wide, (1, 2))
    wide = wide.roll(1, 0)[:, [0, 3, 2]].index_select(0, torch.tensor([1, 0], device=x.device))
    wide = wide.select_scatter(z[0] * 2j, 0, 1).slice_scatter(z[:, :1], 1, 2, 3)
    return torch.view_as_real(wide.t())


CASES = [
    case("rotary", rotary, normal(2, 5, 16), normal(5, 8)),
    case("state_space", state_space, normal(4, 5), normal(4, 5)),
    case("product", lambda x, y: torch.view_as_real(pair(x, y) * pair(y, y) + 2j * x), normal(7, 9), normal(7, 9)),
    case("quotient", lambda x, y: torch.view_as_real(pair(x, y) / pair(y, x) - 1 / pair(x, x)), normal(6), normal(6)),
    case("parts", lambda x, y: pair(x, y).abs() + pair(y, x).angle() + (-pair(x, y)).conj().imag, normal(9), normal(9)),
    case("direction", lambda x, y: torch.view_as_real(pair(x, y).sgn()).t(), normal(9), normal(9)),
    case(
        "choice",
        lambda x, y: torch.where(x > 0, pair(x, y), 1j).imag + (pair(x, y) == x).to(x.dtype),
        normal(9),
        normal(9),
    ),
    case(
        "tests", lambda x, y: pair(x, y / 0).isnan() | pair(x, y / 0).isinf() | (pair(x, x) != y), normal(9), normal(9)
    ),
    case(
        "means",
        lambda x, y: torch.view_as_real(pair(x, y).mean(1)) + pair(x, y).sum().abs(),
        normal(4, 5),
        normal(4, 5),
    ),
    case("places", places, normal(2, 3), normal(2, 3)),
    case("laid_out", lambda x, y: torch.view_as_real(pair(x.t(), y.t()).reciprocal()), normal(2, 3), normal(2, 3)),
    case(
        "casts",
        lambda x, y: pair(x, y).to(torch.complex128).real + (x.to(torch.complex64) * 1j).imag,
        normal(5),
        normal(5),
    ),
    case("norm", lambda x, y: torch.linalg.vector_norm(pair(x, y), dim=0), normal(4, 5), normal(4, 5)),
    case(
        "copies",
        below(
            lambda x, y: (
                aten.view_as_real_copy(aten.view_as_complex_copy(torch.stack([x, y], -1))),
                aten.view_as_real_copy(aten.conj_physical(pair(x, y)) + aten._conj_physical(pair(y, x))),
            )
        ),
        normal(4, 5),
        normal(4, 5),
    ),
]
