"""Operands that are no tensors, hold nothing or do not fit: results and errors are eager's; nothing fails inside."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator

DTYPES = (torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64)


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex numbers that lose their imaginary part
            return fn(*[arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args])
    except Exception as error:
        return type(error)


def check(fn: Callable[..., Any], *args: Any) -> None:
    want, got = outcome(fn, *args), outcome(stator.compile(fn, options={"strict": True}), *args)
    if isinstance(want, torch.Tensor):
        assert (got.dtype, got.stride()) == (want.dtype, want.stride())
        torch.testing.assert_close(got, want, equal_nan=True)
    else:
        assert got is want


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", [-1, 300, 2.7, True, 1j])
def test_a_number_is_copied(dtype: torch.dtype, number: complex) -> None:
    check(lambda x: x.t().copy_(number), torch.zeros(2, 3).to(dtype))


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (1.5, 2.5, 3.5)])
def test_numbers_that_change_are_copied(numbers: tuple[float, ...]) -> None:
    compiled = stator.compile(lambda x, k: x.copy_(k), options={"strict": True})
    for k in numbers:
        assert torch.equal(compiled(torch.zeros(2), k), torch.full((2,), float(k)))


HALF, DOUBLE = torch.bfloat16, torch.float64
EMPTY: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "conv1d": (F.conv1d, (torch.randn(0, 3, 8), torch.randn(4, 3, 3))),
    "conv2d": (F.conv2d, (torch.randn(0, 3, 8, 8), torch.randn(4, 3, 3, 3))),
    "double @ long": (torch.matmul, (torch.randn(0, 3, dtype=DOUBLE), torch.zeros(3, 4, dtype=torch.long))),
    "inner dims": (torch.matmul, (torch.randn(2, 0, dtype=DOUBLE), torch.zeros(0, 4, dtype=torch.long))),
    "mse_loss": (F.mse_loss, (torch.randn(0, 3, dtype=HALF), torch.randn(0, 3, dtype=HALF))),
    "softmax": (lambda x: x.softmax(-1), (torch.randn(3, 0),)),
    "mean": (lambda x: x.mean(1), (torch.randn(3, 0),)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_tensors(name: str) -> None:
    check(*(EMPTY[name][0], *EMPTY[name][1]))


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "mse_loss", "softmax", "mean"])
def test_gradients_of_empty_tensors(name: str) -> None:
    function, operands = EMPTY[name]

    def gradients(*given: torch.Tensor) -> torch.Tensor:
        given = tuple(tensor.detach().requires_grad_() for tensor in given)
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(function(*given).sum(), given)])

    def outside(*given: torch.Tensor) -> torch.Tensor:
        given = tuple(tensor.detach().requires_grad_() for tensor in given)
        compiled = stator.compile(function, options={"strict": True})
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(compiled(*given).sum(), given)])

    check(gradients, *operands)
    torch.testing.assert_close(outside(*operands), gradients(*operands))


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a word that gelu does not know": lambda x: F.gelu(x, approximate="fast"),
    "a mask of another size": lambda x: x.masked_fill(torch.ones(2, dtype=torch.bool), 1),
    "positions of other dims": lambda x: x.gather(0, torch.zeros(2, 2, dtype=torch.long)),
    "a dim too far": lambda x: x.roll(1, 5),
    "too few dims": lambda x: x.tril(),
    "a negative size": lambda x: torch.eye(-1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_raises_as_eager(name: str) -> None:
    check(REFUSED[name], torch.randn(3))
