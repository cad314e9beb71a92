"""What the judge takes for right under fast numerics: each element as eager, or as wide types give it; and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.differential import __main__ as differential
from tests.differential.inputs import Input
from tests.differential.near import wanted_if_near
from tests.differential.programs import Program

#: Elements that overflow in float16, some of which a second product makes small again; and positions of extremes.
PROGRAM = Program(
    (Input((6, 7), torch.float16, values="edges", seed=5),),
    ("v0 = x0 * 3", "v1 = v0 * 0.125", "v2 = v1.cumsum(1)"),
    ("v1", "v2"),
)
ROUNDED = Program(
    (Input((4, 9), torch.float16, seed=3),), ("v0 = F.rms_norm(x0, [9])", "v1 = torch.floor(v0 * 3)"), ("v1",)
)


def wide(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounded at the end."""
    v1 = x.float() * 3 * 0.125
    return v1.half(), v1.cumsum(1).half()


def mixed(x: Tensor) -> tuple[Tensor, Tensor]:
    """Every second element as eager has it."""
    v1 = x * 3 * 0.125
    found = wide(x)
    even = torch.arange(x.numel()).view(x.shape) % 2 == 0
    return torch.where(even, found[0], v1), torch.where(even, found[1], v1.cumsum(1))


def off(x: Tensor) -> tuple[Tensor, Tensor]:
    """One element is a half too large."""
    found, sums = wide(x)
    found = found.clone()
    found[2, 3] += 0.5
    return found, sums


def normal(x: Tensor) -> tuple[Tensor]:
    """The norm is rounded before it is multiplied, and that is not rounded before the floor."""
    return (torch.floor(F.rms_norm(x, [9]).float() * 3).half(),)


def above(x: Tensor) -> tuple[Tensor]:
    return (torch.ceil(F.rms_norm(x, [9]) * 3),)


SINGLE = Program((Input((4, 9), seed=3),), ("v0 = x0 * 3",), ("v0",))


def coarse(x: Tensor) -> tuple[Tensor]:
    """Rounded to a type that the program does not name."""
    return ((x * 3).bfloat16().float(),)


#: Two terms that overflow in float16, and cancel; and a norm that takes no operands of two types.
CANCELLING = Program(
    (Input((6, 7), torch.float16, values="edges", seed=5),),
    (
        "v0 = (x0 * 3).to(torch.float16)",
        "v1 = x0 * -2.5",
        "v2 = v0 + v1",
        "v3 = F.layer_norm(v0, [7], x0[0], x0[1])",
    ),
    ("v2",),
)


def one_overflows(x: Tensor) -> tuple[Tensor]:
    """The other term is not rounded: an infinity, where two of them come to no number."""
    return ((x * 3 - x.float() * 2.5).half(),)


def overflows_alone(x: Tensor) -> tuple[Tensor]:
    """What is in range in eager, too."""
    found = x * 3 + x * -2.5
    return (torch.where(found == found[0, 0], math.inf, found),)


RIGHT = [(PROGRAM, wide), (PROGRAM, mixed), (ROUNDED, normal), (CANCELLING, one_overflows)]
WRONG = [
    (CANCELLING, overflows_alone),
    (replace(PROGRAM, inputs=(Input((6, 7), torch.float16, seed=5),)), off),
    (ROUNDED, above),
    (SINGLE, coarse),
]


@pytest.mark.parametrize(
    ("given", "verdict"), [*[(pair, "right") for pair in RIGHT], *[(pair, "wrong") for pair in WRONG]]
)
def test_a_verdict(given: tuple[Program, Callable[..., Any]], verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = given
    monkeypatch.setattr(differential, "_compiled", lambda program, way: made)
    found, why = differential.judge(program, "fast")
    assert found == verdict, why


def test_overflow_of_one_term_is_overflow() -> None:
    """Eager has no number where infinities of both signs meet; of a program that is right one of them may be left."""
    nothing, huge = torch.tensor([math.nan] * 4).half(), torch.tensor([1.0, 60000.0, -2.0, 1e6]).half()
    found = torch.tensor([-math.inf, math.inf, 3.0, -math.inf]).half()
    judged = wanted_if_near(found, [huge, huge], nothing)
    assert judged.isnan().tolist() == [True, True, False, True]
    assert torch.equal(wanted_if_near(found, [nothing, nothing], nothing), found)
    finite = wanted_if_near(found, [huge, huge], huge)
    assert torch.equal(finite, found)


def test_complex_numbers_are_near_by_their_parts() -> None:
    """Eager has no number there, and wide types the one that was found, or another one."""
    nothing, near = torch.tensor([complex(math.nan, math.nan)] * 2), torch.tensor([0.7 + 0.7j, 0.7 + 9j])
    judged = wanted_if_near(near, [torch.tensor([0.7 + 0.7j, 0.7 + 0.7j])], nothing)
    assert torch.view_as_real(judged).isnan().tolist() == [[True, True], [True, False]]
