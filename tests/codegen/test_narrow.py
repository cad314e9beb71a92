"""Narrow kinds: how vectors of them are widened where they are loaded, and narrowed where they are stored.

Half types that nothing but a store takes need neither their lower bits cleared nor a second rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.codegen import cpp
from stator.targets import typical
from tests.codegen import tiled

HALVES = [torch.bfloat16, torch.float16]
#: How a half is stored → the function.
STORES: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "in vectors": lambda x, half: x.to(half),
    "backwards": lambda x, half: x.to(half).flip(0),
    "in pairs": lambda x, half: torch.stack([x.to(half), (x * 3).to(half)], -1),
    "turned": lambda x, half: x[:36].view(4, 9).to(half).t().contiguous(),
    "apart": lambda x, half: torch.zeros(2 * x.numel(), dtype=half).index_copy(0, torch.arange(len(x)) * 2, x.to(half)),
    "one": lambda x, half: x.amax().to(half),
}


def floats(count: int) -> Tensor:
    """Random bits: NaNs of both signs, numbers beyond half types and below them; and ties, with neighbours."""
    generator = torch.Generator().manual_seed(count)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator, dtype=torch.int64)
    for lower in (0, 1, -1):
        for tie in (0x8000, 0x1000):
            bits[torch.randint(0, count, (count // 8,), generator=generator)] &= ~(2 * tie - 1)
            bits[torch.randint(0, count, (count // 8,), generator=generator)] |= tie + lower
    return bits.to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("stored", STORES)
@pytest.mark.parametrize("count", [37, 5000])
def test_bits_are_eagers(half: torch.dtype, stored: str, count: int) -> None:
    def function(x: Tensor) -> Tensor:
        return STORES[stored](x, half)

    x = floats(count)
    found, wanted = stator.compile(function, fullgraph=True, options={"strict": True})(x), function(x)
    assert torch.equal(found.isnan(), wanted.isnan())
    there = ~wanted.isnan()
    assert torch.equal(found[there].view(torch.int16), wanted[there].view(torch.int16))


@pytest.mark.parametrize(("half", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "f16")])
def test_only_what_is_stored_alone_keeps_lower_bits(half: torch.dtype, name: str) -> None:
    def text(function: Callable[[Tensor], object]) -> str:
        made, _ = tiled.scheduled(function, torch.randn(64))
        return cpp.emit(made.kernels, typical("cpu")).partition("---- the kernels")[2]

    assert f"stored_{name}(" in text(lambda x: x.to(half))
    read = text(lambda x: (x.to(half), x.to(half).float() + 1))
    assert f"stored_{name}(" not in read and f"round_{name}(" in read


INTEGERS = [torch.int8, torch.uint8, torch.int16]
#: What reads and writes narrow integers → the function.
MOVES: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "narrowed": lambda x, dtype: x.to(dtype),
    "widened": lambda x, dtype: x.to(dtype).clone().int(),
    "as floats": lambda x, dtype: x.to(dtype).float(),
    "wrapped": lambda x, dtype: x.to(dtype) * 3 + 100,
    "backwards": lambda x, dtype: x.to(dtype).flip(0),
    "in pairs": lambda x, dtype: torch.stack([x.to(dtype), (x + 1).to(dtype)], -1),
    "summed": lambda x, dtype: x.to(dtype).view(-1, 37).sum(-1),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("moved", MOVES)
@pytest.mark.parametrize("count", [37, 37 * 150])
def test_narrow_integers_are_eagers(dtype: torch.dtype, moved: str, count: int) -> None:
    def narrowing(x: Tensor) -> Tensor:
        return MOVES[moved](x, dtype)

    def reading(x: Tensor) -> Tensor:
        return MOVES[moved](x, torch.int32 if moved == "narrowed" else dtype)

    wide = torch.randint(-(2**31), 2**31 - 1, (count,), generator=torch.Generator().manual_seed(count)).int()
    for function, x in ((narrowing, wide), (reading, wide.to(dtype))):
        found = stator.compile(function, fullgraph=True, options={"strict": True})(x)
        assert torch.equal(found, function(x))


@pytest.mark.parametrize("count", [37, 5000])
def test_truth_values_are_eagers(count: int) -> None:
    def function(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        return x > 0, x.isnan() | m, (~m).flip(0), m.float(), torch.where(m, x, 1.0), torch.stack([m, x < 0], -1)

    x = floats(count)
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    for found, wanted in zip(compiled(x, x > 1), function(x, x > 1), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
