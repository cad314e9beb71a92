"""Operators and their gradients at NaN, infinities, zeros, denormals, the largest numbers and knots, against eager.

Eager is asked twice, for one element and for many: where its vector instructions and the rest behind them disagree,
either answer is right. What differs by decision is in the table of `docs/numerics.md`, and nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
#: Operator → what of it differs by decision.
DECIDED = {
    name: set(re.findall("value|gradient", differs))
    for name, differs in re.findall(
        r"^\| `([^`]+)` \| ((?:value|gradient)[a-z, ]*) \|", PAGE.read_text(encoding="utf-8"), re.M
    )
}
#: What is wrong, and not decided: the quotient by an infinity is not rounded down.
OPEN = {"remainder": {"gradient"}}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
#: Eager's kernels work on so many elements and fewer at once.
MANY = 64

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *(
                "abs",
                "acos",
                "acosh",
                "asin",
                "asinh",
                "atan",
                "atanh",
                "ceil",
                "cos",
                "cosh",
                "deg2rad",
                "erf",
                "erfc",
            ),
            *("exp", "exp2", "expm1", "floor", "frac", "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg"),
            *(
                "reciprocal",
                "relu",
                "round",
                "rsqrt",
                "sgn",
                "sigmoid",
                "sign",
                "sin",
                "sinc",
                "sinh",
                "sqrt",
                "square",
            ),
            *("tan", "tanh", "trunc", "lgamma", "erfinv", "digamma", "i0"),
        )
    },
    **{
        name: getattr(F, name)
        for name in (
            *("relu6", "hardtanh", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "hardswish"),
            *("hardsigmoid", "leaky_relu", "logsigmoid", "tanhshrink", "softshrink", "hardshrink"),
        )
    },
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "x ** 2": lambda x: x**2,
    "x ** 0.5": lambda x: x**0.5,
    "x ** -1": lambda x: x**-1,
    "x ** 3": lambda x: x**3,
    "2 ** x": lambda x: 2**x,
    "1 / x": lambda x: 1 / x,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "hypot", "copysign", "atan2")
    },
    "where": lambda x, y: torch.where(x > y, x, y),
    "l1_loss": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "xlogy": torch.xlogy,
    "amax": lambda x, y: torch.stack([x, y]).amax(0),
}


def points(dtype: torch.dtype) -> Tensor:
    """The edges of a dtype, and the knots of the operators."""
    limits = torch.finfo(dtype)
    sides = [
        torch.inf,
        0.0,
        limits.tiny,
        limits.tiny / 4,
        limits.max,
        0.25,
        0.5,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        6.0,
        20.0,
        89.0,
    ]
    return torch.tensor([torch.nan, *sides, *[-side for side in sides]], dtype=dtype)


def observed(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The value, and the gradient of each operand."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    if not value.requires_grad:
        return [value]
    return [value.detach(), *torch.autograd.grad(value, leaves, torch.ones_like(value), materialize_grads=True)]


def eager_answers(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """What eager gives for each element by itself, and for many at once."""
    alone = [observed(function, [x[i : i + 1] for x in inputs]) for i in range(len(inputs[0]))]
    many = observed(function, [x.repeat_interleave(MANY) for x in inputs])
    singles = [torch.cat(parts) for parts in zip(*alone, strict=True)]
    return [singles, [part[::MANY] for part in many]]


def agrees(mine: Tensor, theirs: Tensor, terms: float) -> Tensor:
    """Where two answers are the same up to a few roundings, of terms of some size; denormals count as zeros."""
    limits = torch.finfo(mine.dtype)
    a, b = mine.double(), theirs.double()
    same = (a == b) | (a.isnan() & b.isnan())
    close = (a - b).abs() <= limits.eps * (32 * b.abs() + 4 * terms) + 4 * limits.tiny
    return same | (close & a.isfinite() & b.isfinite())


def wrong(function: Callable[..., Any], inputs: Sequence[Tensor]) -> dict[str, list[str]]:
    """What differs from all of eager's answers, and where."""
    stator.reset()
    mine = observed(stator.compile(function, options={"cache": False}), inputs)
    answers = eager_answers(function, inputs)
    found: dict[str, list[str]] = {}
    for number, part in enumerate(mine):
        bad = ~torch.stack([agrees(part, answer[number], terms=float(number > 0)) for answer in answers]).any(0)
        for at in bad.nonzero().flatten().tolist()[:3]:
            at_point = ", ".join(str(x[at].item()) for x in inputs)
            told = f"at {at_point}: {part[at].item()}, eager {answers[0][number][at].item()}"
            found.setdefault("gradient" if number else "value", []).append(told)
    return found


def check(name: str, function: Callable[..., Any], inputs: Sequence[Tensor]) -> None:
    found = wrong(function, inputs)
    undecided = {
        what: where for what, where in found.items() if what not in DECIDED.get(name, set()) | OPEN.get(name, set())
    }
    assert not undecided


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: torch.dtype) -> None:
    check(name, UNARY[name], [points(dtype)])


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    ours = points(torch.float32)[::2]
    check(name, BINARY[name], [x.flatten() for x in torch.meshgrid(ours, ours, indexing="ij")])


def test_zeros_have_no_sign_that_eager_does_not_give() -> None:
    zeros = torch.tensor([-0.0, 0.0])
    for function in (torch.sign, torch.sgn):
        compiled = stator.compile(function, options={"cache": False})
        assert torch.equal(torch.signbit(compiled(zeros)), torch.signbit(function(zeros)))


def test_every_decision_is_about_a_tested_operator() -> None:
    assert DECIDED.keys() <= UNARY.keys() | BINARY.keys()
