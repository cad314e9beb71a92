"""Writes through strided views that have no elements, one element, or elements that their operand does not hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stator
from stator.base.errors import CaptureError
from stator.coverage.compare import Seen, Spread, differences, observe_on

Function = Callable[[torch.Tensor], torch.Tensor]

OPERANDS: dict[str, Function] = {
    "nothing": lambda x: 3 - x[:-1, :, None],
    "a part": lambda x: x[:1, :1] * 2,
    "transposed": lambda x: (x * 2).transpose(0, 1),
    "a part of nothing": lambda x: (x * 2)[:, :0, None].transpose(0, 2),
}
VIEWS: dict[str, Function] = {
    "flattened": lambda v: v.flatten()[1:],
    "no rows": lambda v: v.as_strided((0, 3), (0, 0)),
    "rows of nothing": lambda v: v.as_strided((1, min(v.numel(), 1)), (0, 1)),
    "a diagonal beside it": lambda v: v.diagonal(2),
    "an empty part": lambda v: v[..., :0].reshape(-1),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("operand", OPERANDS)
def test_writes_of_nothing(operand: str, view: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = OPERANDS[operand](x)
        VIEWS[view](whole).add_(1)
        return whole, whole.sum(), VIEWS[view](whole) * 2

    def seen(called: Callable[..., object]) -> Seen:
        x = torch.ones(1, 1, 1, requires_grad=True)
        return observe_on(called, [x], [x])

    want = seen(function)
    assert want.failed is None
    compiled = stator.compile(function, backend="aot_eager", fullgraph=True, options={"strict": True})
    assert not differences(seen(compiled), Spread(want, []))


@pytest.mark.parametrize("size", [(), (1,), (1, 1)])
def test_a_write_to_what_the_operand_does_not_hold_is_refused(size: tuple[int, ...]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        part = (x * 2)[:0]
        part.as_strided(size, (0,) * len(size)).add_(1)
        return part

    compiled = stator.compile(function, backend="aot_eager", fullgraph=True, options={"strict": True})
    with pytest.raises(CaptureError, match="outside of its operand"):
        compiled(torch.ones(3))
