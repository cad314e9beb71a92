"""Results that are the memory of a computed value as elements of another size, or as another dtype of the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import Unsupported


def both(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y[2:6].view(torch.int64), y.view(torch.int8)[3:9]


def beside_a_write(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y[4:12].view(torch.int16).add_(1), y


def of_an_odd_number(x: Tensor) -> tuple[Tensor, ...]:
    y = x[:15] * 2
    return y[2:4].view(torch.int64), y[3:]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "wider": lambda x: (x * 2)[4:12].view(torch.int64),
    "narrower": lambda x: (x * 2)[3:12].view(torch.int16),
    "cut again": lambda x: (x * 2)[3:12].view(torch.int16)[5:],
    "there and back": lambda x: (x * 2)[4:12].view(torch.int16)[2:].view(torch.float32),
    "rows": lambda x: (x * 2).view(4, 4)[1:].view(torch.int64),
    "written to": lambda x: (x * 2)[4:12].view(torch.int64).add_(1),
    "parts of complex numbers": lambda x: torch.complex(x, x)[1:3].view(torch.float64),
    "of no dims": lambda x: (x * 2)[1].view(torch.int32),
    "of one element": lambda x: x.sum().view(1).view(torch.int16)[1:],
    "of nothing": lambda x: (x[:0] * 2).view(0, 2).view(torch.int64),
    "both": both,
    "beside a write": beside_a_write,
    "of an odd number": of_an_odd_number,
}


def seen(results: Any) -> list[Any]:
    """Numbers and places; and what lies around, which is read by absolute offsets."""
    tensors = results if isinstance(results, tuple) else (results,)
    places = [(t.dtype, t.storage_offset(), t.stride(), t.requires_grad) for t in tensors]
    shared = [[t.data_ptr() - other.data_ptr() for other in tensors] for t in tensors]
    around = [t.detach() for t in tensors if t.untyped_storage().nbytes() >= 4 * t.itemsize]
    bits = [t.as_strided((3,), (1,), 1).contiguous().view(torch.uint8).tolist() for t in around]
    return [places, shared, bits, [t.detach().contiguous().view(-1).view(torch.uint8).tolist() for t in tensors]]


@pytest.mark.parametrize("taped", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_lie_where_they_do_in_eager(name: str, dynamic: bool | None, taped: bool) -> None:
    compiled = stator.compile(PROGRAMS[name], dynamic=dynamic, options={"strict": True})
    for seed in range(2):
        x = torch.randn(16, generator=torch.Generator().manual_seed(seed)).requires_grad_(taped)
        assert seen(compiled(x)) == seen(PROGRAMS[name](x))


def test_memory_with_gaps_is_read_so_by_no_view() -> None:
    def gaps(x: Tensor) -> tuple[Tensor, ...]:
        y = (x.view(4, 4) * 2).t()
        return y, y.t()[1:].view(torch.int16)

    x = torch.randn(16)
    assert seen(stator.compile(gaps, options={"strict": True})(x)) == seen(gaps(x))

    def turned(x: Tensor) -> tuple[Tensor, ...]:
        y = x.view(4, 4).t() * 2
        return y, y.t()[1:].view(torch.int16)

    with pytest.raises(Unsupported, match="elements of another size"):
        stator.compile(turned, backend="aot_eager", options={"strict": True})(x)
