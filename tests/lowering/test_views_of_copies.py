"""Views of copies: what a caller gets lies in the copy's memory, not in that of what was copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.coverage.compare import Seen, Spread, differences, observe_on

Function = Callable[[Any], Any]

COPIES: dict[str, Function] = {
    "clone": torch.clone,
    "part": lambda x: x[1:].clone(),
    "to": lambda x: x.to(x.dtype, copy=True),
    "times one": lambda x: x * 1,
    "into new memory": lambda x: torch.empty_like(x).copy_(x),
    "contiguous of a transpose": lambda x: x.transpose(0, 1).contiguous(),
    "twice": lambda x: x.clone().clone(),
    "turned round and back": lambda x: x.flip(0).flip(0),
    "split and joined": lambda x: torch.cat(x.split(1)),
    "joined and taken apart": lambda x: torch.cat([x + 1, x])[len(x) :],
    "stacked and selected": lambda x: torch.stack([x + 1, x])[1],
    "rolled and back": lambda x: x.roll(1, 0).roll(-1, 0),
    "repeated and cut": lambda x: x.repeat(2, 1, 1)[: len(x)],
}
VIEWS: dict[str, Function] = {
    "strided": lambda c: c.as_strided((2, 2), (1, 3), 1),
    "a strided view of a part": lambda c: c[1:].as_strided((2,), (1,), 0),
    "strided twice": lambda c: c.as_strided((3, 3), (1, 1), 2).as_strided((2,), (2,), 1)[None],
    "one more dim": lambda c: c[None],
    "repeated": lambda c: c[:, None].expand(-1, 2, *c.shape[1:]),
    "windows": lambda c: c.unfold(0, 2, 1),
    "parts": lambda c: c.split(1, -1)[1],
    "pairs": lambda c: torch.view_as_real(c) if c.is_complex() else torch.view_as_complex(c),
    "a part of complex numbers": lambda c: c.imag if c.is_complex() else torch.view_as_complex(c).real,
    "bits": lambda c: c.view(torch.int32) if c.dtype is torch.float32 else c.view(torch.float32),
    "the same": lambda c: c.view(c.shape),
}


def uses(copy: Function) -> dict[str, Function]:
    """Views of copies: of one each, of one copy, beside the copy, and before what was copied is written to."""

    def before_a_write(x: Any) -> Any:
        view = VIEWS["strided"](copy(x))
        return view, x.mul_(2), view + 1

    def beside_both(x: Any) -> Any:
        made = copy(x)
        return x[:1], VIEWS["strided"](made), made

    def all_of_one(x: Any) -> Any:
        made = copy(x)
        return [view(made) for view in VIEWS.values()]

    return {
        "each": lambda x: [view(copy(x)) for view in VIEWS.values()],
        "all of one": all_of_one,
        "beside both": beside_both,
        "before a write": before_a_write,
    }


def seen(function: Function, dtype: torch.dtype) -> Seen:
    return observe_on(function, [torch.arange(24.0).view(3, 4, 2).to(dtype)], [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("copy", COPIES)
def test_results_share_memory_as_in_eager(copy: str, backend: str, dtype: torch.dtype) -> None:
    for use, function in uses(COPIES[copy]).items():
        compiled = stator.compile(function, backend=backend, fullgraph=True, options={"strict": True})
        want = seen(function, dtype)
        assert want.failed is None, (use, want.failed)
        found = differences(seen(compiled, dtype), Spread(want, []))
        assert not found, (use, found)
