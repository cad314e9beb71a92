"""The text of kernels of half types for a GPU, and the machine code that Triton makes of it, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.codegen import triton
from stator.targets import typical
from tests.codegen import hopper, tiled

X = torch.randn(64, 256).bfloat16()
GPU = typical("cuda")


def text_of(function: Callable[..., object], *given: Tensor, rounds: bool = True) -> str:
    """The functions of its kernels, without what stands before them."""
    made, _ = tiled.scheduled(function, *given)
    text = triton.emit(made.kernels, GPU, made.names, True, rounds=rounds)
    return text[text.index(f"def {made.names[0]}(") : text.index("LAUNCHES")]


def test_a_half_that_is_widened_again_is_rounded_two_at_a_time() -> None:
    text = text_of(lambda x: (x * 1.1).exp() - x, X)
    assert text.count("_bf16(") == 2 and text.count(".to(tl.bfloat16)") == 1, "the last is stored and no more"


def test_sums_and_products_of_two_halves_have_instructions_of_their_own() -> None:
    assert "_bf16(" not in text_of(lambda x, y: (x + y) * y, X, X.roll(1))


def test_one_number_is_rounded_alone() -> None:
    """For there is no other to go with it."""
    assert "_bf16(" not in text_of(lambda x: (x.sum() * 1.1).exp(), X)


def test_what_is_chosen_of_halves_is_not_rounded() -> None:
    text = text_of(lambda x: x.abs().round().clamp(-3, 5).amax(-1).float(), X)
    assert "bf16" not in text and "bfloat16" not in text.replace(".to(tl.float32)", ""), text


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (lambda x: x / (x.abs() + 1), False),
        (lambda x: x / 3, False),
        (lambda x: x.softmax(-1), False),
        (lambda x: x.reciprocal() + x.sqrt(), False),
        (lambda x: x.float() / 3, True),
        (lambda x: x.float().sqrt() + x.float().reciprocal(), True),
        (lambda x: (x.float() / 3 + 1).bfloat16(), True),
    ],
)
def test_quotients_and_roots_that_become_halves(function: Callable[[Tensor], Tensor], exact: bool) -> None:
    assert bool(re.search("div_rn|sqrt_rn", text_of(function, X))) == exact


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (lambda x: (x.float() / x.abs().float() * 1.1).bfloat16(), False),
        (lambda x: (-(x.float().sqrt() * x.float())).bfloat16(), False),
        (lambda x: (x.float() / 3 * x.float() + 1).bfloat16(), True),
        (lambda x: x.float() / 3 * x.float(), True),
    ],
)
def test_factors_of_what_becomes_a_half(function: Callable[[Tensor], Tensor], exact: bool) -> None:
    """Where rounding is not eager's: a part of a factor is as large a part of the product, but not of a sum."""
    assert bool(re.search("div_rn|sqrt_rn", text_of(function, X, rounds=False))) == exact
    assert re.search("div_rn|sqrt_rn", text_of(function, X)), "to the bit, where it is"


@pytest.mark.parametrize(
    ("function", "dtype", "rounds", "taken"),
    [
        (F.silu, torch.bfloat16, True, True),
        (lambda x: F.silu(x) * x, torch.bfloat16, True, True),
        (F.silu, torch.float16, True, False),
        (F.silu, torch.float32, True, False),
        (lambda x: F.silu(x.float() + 1).bfloat16(), torch.bfloat16, True, False),
        (lambda x: x / ((-x).exp() + 1), torch.bfloat16, True, False),
        (lambda x: F.silu(x.float()).half(), torch.bfloat16, True, False),
        (F.silu, torch.float16, False, True),
        (lambda x: F.silu(x * 3) * x, torch.bfloat16, False, True),
        (lambda x: F.silu(x.float()), torch.bfloat16, False, False),
    ],
)
def test_silu_of_bfloat16_is_one_operator(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype, rounds: bool, taken: bool
) -> None:
    """Of all that eager rounds; of every half, and of what is not rounded before, where results need not be eager's."""
    text = text_of(function, X.to(dtype), rounds=rounds)
    assert ("_rough_silu(" in text) == taken and ("exp(" in text) != taken, text


def test_what_silu_is_made_of_stays_where_others_use_it() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        power = (-x.float()).exp()
        return (x.float() / (power + 1)).bfloat16(), power

    text = text_of(function, X)
    assert text.count("_rough_silu(") == 1 == text.count("exp("), text
    assert "+ 1.0" not in text and " / " not in text, text


def test_the_machine_converts_two_at_a_time() -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made, _ = tiled.scheduled(lambda x: ((x * 1.1).exp() - x) / (x.abs() + 2), X)
    (stages,) = hopper.built(made.kernels)
    assert "cvt.rn.bf16x2.f32" in stages["ptx"] and "cvt.rn.bf16.f32" not in stages["ptx"]
    assert "div.full.f32" in stages["ptx"] and "div.rn.f32" not in stages["ptx"]


@pytest.mark.parametrize("function", [torch.tanh, torch.erf])
def test_what_has_no_branch(function: Callable[[Tensor], Tensor]) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made, _ = tiled.scheduled(function, X)
    (stages,) = hopper.built(made.kernels)
    assert "bra" not in re.sub(r"//.*", "", stages["ptx"])


def test_a_masked_load_needs_no_choice_behind_it() -> None:
    text = text_of(lambda x: torch.nn.functional.avg_pool2d(x[None], 3, 1, 1), X)
    assert "tl.where" not in text and "other=0" in text, text
