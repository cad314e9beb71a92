"""What externs take: the layouts of their operands beside those that they were traced with.

An operator that is not in `DEMANDS` takes and gives what was traced. One that is says of a call how its results lie
then, and how much longer it takes than in the layout that it likes best, in bytes that kernels could move meanwhile.
Neighbours: who lowers an extern may enter it (`lowering/convolution.py`); `layout` and `channels` decide by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from stator.base.device import Device
from stator.loop.digits import Layouts
from stator.loop.nest import Argument, Extern, View
from stator.sizes.strides import Shape


class Taken(NamedTuple):
    """How the results of a call lie, and its cost."""

    strides: tuple[Shape, ...]
    cost: float = 0.0


#: What a call is like with the operands that it has; None if it demands what was traced.
Demand: TypeAlias = Callable[[Extern, Device], "Taken | None"]
#: By target.
DEMANDS: dict[str, Demand] = {}


def relaid(extern: Extern, layouts: Layouts) -> Extern | None:
    """The call with operands and results in these layouts; None where strides cannot say where they lie."""
    possible = True

    def argument(value: Argument) -> Argument:
        nonlocal possible
        if isinstance(value, tuple):
            return tuple([argument(item) for item in value])
        if not isinstance(value, View) or value.buffer not in layouts:
            return value
        found = layouts[value.buffer].view(value.size, value.stride, value.offset)
        possible = possible and found is not None
        return value if found is None else replace(value, stride=found[0], offset=found[1])

    args, kwargs = argument(extern.args), tuple([(key, argument(value)) for key, value in extern.kwargs])
    outputs = tuple([layouts[b.name].buffer(b) if b.name in layouts else b for b in extern.outputs])
    if not possible or [b.size for b in outputs] != [b.size for b in extern.outputs]:
        return None
    return replace(extern, args=args, kwargs=kwargs, outputs=outputs)


def taken(extern: Extern, layouts: Layouts, device: Device) -> Taken | None:
    """What the call is like with operands and results in these layouts; None where it does not take them."""
    demand = DEMANDS.get(extern.target)
    called = relaid(extern, layouts) if demand is not None else None
    return demand(called, device) if demand is not None and called is not None else None
