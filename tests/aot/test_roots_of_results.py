"""What results are views of in autograd: one tensor where it is one in eager, also where it is no view there itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

Program = Callable[[Tensor], Sequence[Tensor]]

#: What is no view of `t` in autograd, or is one, though it lies in its memory.
MIDDLES: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "view(dtype)": lambda t: t.view(torch.int32),
    "of a view": lambda t: t[1:].detach(),
    "twice": lambda t: t.detach().detach(),
    "view_as_real": lambda t: torch.view_as_complex(t.detach()),
    "slice": lambda t: t[:, :1],
}
CUTS: dict[str, Callable[[Tensor, Tensor], Sequence[Tensor]]] = {
    "two views": lambda t, middle: (middle[1:], middle[:1]),
    "with it": lambda t, middle: (middle[1:], middle, middle[:2]),
    "with what it lies in": lambda t, middle: (t, middle[1:], middle[:1], t[1:]),
    "of two": lambda t, middle: (middle[1:], middle[:1], t.detach()[1:], t.detach()[:1]),
    "written to": lambda t, middle: (middle[1:].zero_(), middle[:1], middle[2:].unsqueeze(0)),
    "one alone": lambda t, middle: (middle[1:], t[1:]),
}


def relations(function: Program, x: Tensor) -> list[Any]:
    x = x.clone()
    found = [x, *function(x)]
    places = [(t.data_ptr() - found[1].data_ptr() if i else 0, t.dtype, t.stride()) for i, t in enumerate(found)]
    bases = [next((i for i, other in enumerate(found) if other._base is t._base), None) for t in found]
    own = [[i for i, other in enumerate(found) if t._base is other] for t in found]
    return [places, bases, own, [t._version for t in found], [t.tolist() for t in found]]


def programs(middle: Callable[[Tensor], Tensor], cut: Callable[[Tensor, Tensor], Sequence[Tensor]]) -> list[Program]:
    """Results that lie in an input, and in what the program computes."""

    def of_a_value(x: Tensor) -> Sequence[Tensor]:
        x = x * 2
        return cut(x, middle(x))

    return [lambda x: cut(x, middle(x)), of_a_value]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("middle", MIDDLES)
def test_views_hang_on_one_tensor(middle: str, dynamic: bool) -> None:
    x = torch.randn(4, 2)
    for name, cut in CUTS.items():
        for function in programs(MIDDLES[middle], cut):
            stator.reset()
            compiled = stator.compile(function, backend="aot_eager", dynamic=dynamic)
            for _ in range(2):
                assert relations(compiled, x) == relations(function, x), name
