"""Under deterministic algorithms a device with atomics leaves to ATen what depends on the order of writes that meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import stator
from stator.loop.nest import Extern, Program
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace

PLACES = torch.tensor([3, 1, 3, 0])
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_add": lambda x, v: x.index_add(0, PLACES.to(x.device), v),
    "index_put": lambda x, v: x.index_put((PLACES.to(x.device),), v),
    "accumulate": lambda x, v: x.index_put((PLACES.to(x.device),), v, accumulate=True),
}


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def lowered(name: str, dtype: torch.dtype, device: str) -> Program:
    x, v = torch.zeros(5, 8, dtype=dtype), torch.zeros(4, 8, dtype=dtype)
    return lower(trace(PROGRAMS[name], (x, v), DECOMPOSITIONS)[0], "program", typical(device))


def calls(program: Program) -> list[str]:
    targets = [node.target for node in program.nodes if isinstance(node, Extern)]
    return [target for target in targets if "_to_copy" not in target]


@pytest.mark.parametrize("name", PROGRAMS)
def test_writes_that_meet_are_atens(name: str, deterministic: None) -> None:
    assert calls(lowered(name, torch.float32, "cuda")) and not calls(lowered(name, torch.float32, "cpu"))
    torch.use_deterministic_algorithms(False)
    assert not calls(lowered(name, torch.float32, "cuda"))


def test_sums_of_whole_numbers_have_no_order(deterministic: None) -> None:
    assert not calls(lowered("index_add", torch.int64, "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["index_add", "accumulate"])
def test_a_gpu_gives_the_same_bits_every_time(name: str, deterministic: None) -> None:
    torch.manual_seed(0)
    x, v = torch.randn(5, 4096, device="cuda"), torch.randn(4, 4096, device="cuda")
    call = stator.compile(PROGRAMS[name])
    first = call(x, v)
    torch.testing.assert_close(first, PROGRAMS[name](x, v))
    assert all(torch.equal(first, call(x, v)) for _ in range(5))
