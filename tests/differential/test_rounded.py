"""Eager in wide types, in which what jumps has operands as a half type holds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.differential.rounded import BeforeJumps, SomeInHalf, SomeRounded, rounded_in_forward

#: Each is another number in bfloat16: 1, 3 and 2.
X = torch.tensor([1.001, 2.999, 2.003])

JUMPING: dict[str, Callable[[Tensor], Tensor]] = {
    "a comparison": lambda x: x > 1,
    "with another": lambda x: x[1:2] >= 3,
    "floor": lambda x: x.floor(),
    "a division that rounds": lambda x: torch.floor_divide(x, 1) + torch.div(x, 1, rounding_mode="floor"),
    "what remains": lambda x: torch.remainder(x, 1.0),
    "an integer": lambda x: x.long(),
    "a position": lambda x: torch.stack([x[0].new_ones(()), x[0]]).argmax(),
    "an extreme and where it is": lambda x: torch.cat([x[:1] * 0 + 1, x[:1]]).max(0)[1],
}


@pytest.mark.parametrize("name", JUMPING)
def test_what_jumps_reads_rounded_numbers(name: str) -> None:
    run = JUMPING[name]
    with BeforeJumps(torch.bfloat16):
        found = run(X)
    assert found.equal(run(X.bfloat16().float())) and not found.equal(run(X))


def test_what_does_not_jump_reads_numbers_as_they_are() -> None:
    with BeforeJumps(torch.bfloat16):
        found = (
            (X * 3 - X.exp()).sum() + X.max() + torch.where(torch.tensor([True, False, True]), X, -X).sqrt().nansum()
        )
    assert found.equal(
        (X * 3 - X.exp()).sum() + X.max() + torch.where(torch.tensor([True, False, True]), X, -X).sqrt().nansum()
    )


def test_integers_stay_as_they_are() -> None:
    whole = torch.tensor([2**24 + 1, 3])
    with BeforeJumps(torch.bfloat16):
        assert (whole > 2**24).tolist() == [True, False] and (whole // 1).equal(whole)


def test_some_results_are_rounded() -> None:
    """Of two operators all four ways are drawn; the same ones by the same seed."""
    last = [first * 1.7 for first in (X * 1.37, (X * 1.37).bfloat16().float())]
    ways = {tuple(value.tolist()) for wide in last for value in (wide, wide.bfloat16().float())}
    found = []
    for seed in (*range(40), 0):
        with SomeRounded(torch.bfloat16, seed):
            found.append(tuple((X * 1.37 * 1.7).tolist()))
    assert set(found) == ways and len(ways) == 4 and found[0] == found[-1]


def test_all_results_of_forward_are_rounded_and_some_of_backward() -> None:
    x = X.clone().requires_grad_()
    cotangent = torch.full_like(X, 1.1)
    last = [step * 1.37 for step in (cotangent * 1.7, (cotangent * 1.7).bfloat16().float())]
    ways = {tuple(value.tolist()) for wide in last for value in (wide, wide.bfloat16().float())}
    found = set()
    for seed in range(40):
        both = rounded_in_forward(torch.bfloat16, seed, 0.5)
        with both:
            y = x * 1.37 * 1.7
        assert y.equal(((X * 1.37).bfloat16().float() * 1.7).bfloat16().float())
        with both:
            found.add(tuple(torch.autograd.grad(y, x, cotangent)[0].tolist()))
    assert found == ways and len(ways) > 2


def test_some_operators_are_computed_in_half_types() -> None:
    """By what they take besides tensors as well: float16 has no 1e-12, which the loss keeps its divisor above."""
    x = torch.tensor([1.0, 0.25], requires_grad=True)
    found = []
    for part in (0.0, 1.0):
        with SomeInHalf(torch.float16, 0, part):
            loss = F.binary_cross_entropy(x, x.detach(), reduction="sum")
            found.append(torch.autograd.grad(loss, x)[0])
            added = x.detach() + 1e-4
            pairs = torch.view_as_complex(added.clone())  # of no half type that it takes
        assert loss.dtype is torch.float32 and added.tolist() == (x + 1e-4 if part == 0 else x).tolist()
        assert pairs.dtype is torch.complex64
    assert found[0].tolist() == [0.0, 0.0] and found[1].isnan().tolist() == [True, False]
