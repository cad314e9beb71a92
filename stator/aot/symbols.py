"""The symbols of a graph: where a call finds the value of each among its inputs.

A symbol is read from the first input that shows it plainly: a number, or a size, stride or offset of a tensor. So
whoever is handed the inputs of a graph can tell every size in it.
Neighbours: `trace.py` describes the flat inputs so, `runtime.py` reads them, `reference.py` runs symbolic graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from stator.aot.metadata import Metadata, Origin
from stator.fake.symbolic import SizeNode
from stator.sizes import Condition, Extent, Size, Symbol, substitute
from stator.sizes.real import symbol_of


def origins(inputs: Sequence[Any]) -> tuple[Origin, ...]:
    """One origin for each symbol that the inputs (fakes and numbers) show plainly, in the order of appearance."""
    found: dict[Symbol, Origin] = {}
    for number, value in enumerate(inputs):
        for kind, dim, extent in _extents(value):
            symbol = plain(extent)
            if symbol is not None and symbol not in found:
                found[symbol] = Origin(symbol, number, kind, dim)
    return tuple(found.values())


def read(places: Sequence[Origin], inputs: Sequence[Any]) -> tuple[int, ...]:
    """The values of the symbols in one call."""
    return tuple([shown(place, inputs[place.input]) for place in places])


def shown(place: Origin, value: Any) -> Any:
    """What an input shows at a place: a number, or a symbolic one for a fake."""
    match place.kind:
        case "size":
            return value.size(place.dim)
        case "stride":
            return value.stride(place.dim)
        case "offset":
            return value.storage_offset()
    return value


def plain(extent: Extent) -> Symbol | None:
    """The symbol that an extent consists of."""
    if not isinstance(extent, Size):
        return None
    found = next(iter(extent.symbols))
    return found if found.size is extent else None


def _extents(value: Any) -> Iterator[tuple[str, int, Extent]]:
    if isinstance(value, torch.Tensor):
        yield from (("size", dim, extent_of(extent)) for dim, extent in enumerate(value.shape))
        yield from (("stride", dim, extent_of(step)) for dim, step in enumerate(value.stride()))
        yield "offset", 0, extent_of(value.storage_offset())
    elif isinstance(value, torch.SymInt | torch.SymFloat):
        yield "number", 0, extent_of(value)


def extent_of(value: int | torch.SymInt | torch.SymFloat) -> Extent:
    """The extent as it was described, although what was assumed since may fix it; of a float the one of its bits."""
    if isinstance(value, torch.SymFloat):
        return symbol_of(value.node.value).size
    return value.node.size if isinstance(value, torch.SymInt) and isinstance(value.node, SizeNode) else int(value)


def adopt(gm: fx.GraphModule, metadata: Metadata) -> bool:
    """Whether what was compiled before is right for the sizes of `gm` as they are now.

    If so, the conditions it was compiled under are from here on assumed of the sizes of `gm`.
    """
    environment = gm.meta.get("sizes")
    if environment is None or not metadata.symbols:
        return not metadata.symbols
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    given = [place for place in metadata.symbols if place.input - metadata.attributes < len(values)]
    now = {place.symbol: extent_of(shown(place, values[place.input - metadata.attributes])) for place in given}
    conditions = [Condition(op, substitute(a, now), substitute(b, now)) for op, a, b in metadata.conditions]
    if not all(condition.evaluate({s: s.hint for s in condition.symbols}) for condition in conditions):
        return False
    for condition in conditions:
        environment.decide(condition, "the graph was compiled for it")
    return True
