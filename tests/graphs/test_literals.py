"""Tensors made of numbers that change: what eager gives, by one graph for all values."""

import math

import pytest
import torch

import stator
from stator.base import log

PROGRAMS = {
    "whole": (lambda x, k: x + torch.tensor(k), int),
    "in a list": (lambda x, k: x[:2] * torch.tensor([k, 1]), int),
    "beside floats": (lambda x, k: x[:2] * torch.tensor([k, 0.5]), int),
    "nested": (lambda x, k: torch.tensor([[k, k + 1, 2], [3, k, 1]]) + x[:3], int),
    "as float32": (lambda x, k: torch.tensor([k], dtype=torch.float32) / 3, int),
    "as bfloat16": (lambda x, k: torch.tensor(k / 7, dtype=torch.bfloat16) * x, int),
    "as int32": (lambda x, k: torch.tensor([k], dtype=torch.int32) + x.int(), int),
    "a rate": (lambda x, r: x * torch.tensor(r), float),
    "rates": (lambda x, r: x[:3] * torch.tensor([r, 1, -r]), float),
    "a rate in double": (lambda x, r: x * torch.tensor([r], dtype=torch.float64), float),
    "as_tensor": (lambda x, r: x * torch.as_tensor(r), float),
    "like another": (lambda x, r: x.new_tensor([r, 2]), float),
    "a position": (lambda x, k: x.index_copy(0, torch.tensor([k]), torch.zeros(1)), int),
    "a size": (lambda x, k: torch.tensor(x.shape[0]) * x + torch.tensor([*x.shape, k]).sum(), int),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_numbers(name: str) -> None:
    program, kind = PROGRAMS[name]
    compiled = stator.compile(program, fullgraph=True)
    with log.collect() as recorder:
        for number in (3, 4, 5, 7, 11):
            x = torch.randn(12)
            value = number if kind is int else math.sqrt(number)
            found, expected = compiled(x, value), program(x, value)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
            assert found.dtype is expected.dtype and found.stride() == expected.stride()
    fixed = name == "as int32"  # a number may be too large for it, which eager says
    assert len(recorder.of(log.GRAPH)) == (5 if fixed else 2)


@pytest.mark.parametrize("value", [2**31, 2**53 + 1, -(2**62)])
def test_large_numbers_are_rounded_as_by_eager(value: int) -> None:
    def program(x: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        return torch.tensor(k), torch.tensor(k, dtype=torch.float32), torch.tensor([k, 0.0], dtype=torch.float64), x + 1

    compiled = stator.compile(program, fullgraph=True)
    for number in (3, 4, value):
        for found, expected in zip(compiled(torch.ones(1), number), program(torch.ones(1), number), strict=True):
            assert torch.equal(found, expected) and found.dtype is expected.dtype


def test_what_eager_refuses_is_refused() -> None:
    program = lambda x, r: x + torch.tensor(r, dtype=torch.int64)  # noqa: E731
    compiled = stator.compile(program)
    for rate in (1.5, 2.5, -3.5):
        assert torch.equal(compiled(torch.zeros(2), rate), program(torch.zeros(2), rate))
    with pytest.raises(RuntimeError, match="overflow"):
        compiled(torch.zeros(2), math.nan)


ASKING = {
    "an item": lambda x, k: x * torch.tensor(k).item(),
    "a position": lambda x, k: x[torch.tensor(k)] * 2,
    "an int of a sum": lambda x, k: x * int(torch.tensor(k) + 1),
    "a slice": lambda x, k: x[: torch.tensor(k)] * 2,
    "a branch": lambda x, k: x * 2 if torch.tensor(k) > 2 else x,
    "a list": lambda x, k: x * torch.tensor([k, 1]).tolist()[0],
}


@pytest.mark.parametrize("name", ASKING)
def test_where_the_data_are_asked_for_the_numbers_are_known(name: str) -> None:
    program = ASKING[name]
    compiled = stator.compile(program, fullgraph=True)
    for number in (3, 4, 5):
        x = torch.randn(8)
        assert torch.equal(compiled(x, number), program(x, number))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_other_data_do_not_fix_the_numbers() -> None:
    def program(x: torch.Tensor, k: int) -> torch.Tensor:
        y = x * torch.tensor([k])
        return y / y.abs().max().item()

    compiled = stator.compile(program)
    with log.collect() as recorder:
        for number in (3, 4, 5, 6, 7):
            x = torch.randn(8)
            torch.testing.assert_close(compiled(x, number), program(x, number))
    assert len(recorder.of(log.GRAPH)) <= 4
