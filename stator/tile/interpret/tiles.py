"""What the operators mean that move elements of tiles or combine them along an axis.

`reduce` combines neighbours in pairs until one is left, an odd one waiting for the next round; `scan` goes from one
element to the next. Both keep the order of the elements, so that a combination only has to be associative.
Neighbours: `compute` has what happens to each element, `program` gives `combine` its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from stator.tile.interpret.casts import Data, widen
from stator.tile.interpret.compute import Fault, Given, Row
from stator.tile.ir.rules import dtype_of

#: Two elements of each operand, or arrays of such, as one of each.
Combine: TypeAlias = Callable[[Sequence[Data], Sequence[Data]], Sequence[Data]]


def _arange(given: Given) -> Data:
    return np.arange(given.attrs["start"], given.attrs["end"], dtype=np.int32)


def _shaped(given: Given, data: Data) -> Data:
    return data.reshape(given.results[0].shape)


def _spread(given: Given, data: Data) -> Data:
    return np.broadcast_to(data, given.results[0].shape)


def _gather(given: Given, source: Data, index: Data) -> Data:
    axis = given.attrs["axis"]
    outside = (index < 0) | (index >= source.shape[axis])
    if outside.any():
        first = index[outside].flat[0]
        raise Fault(f"gather takes position {first} of an axis of {source.shape[axis]}")
    return np.take_along_axis(source, index.astype(np.int64), axis)


def _histogram(given: Given, data: Data, mask: Data | None = None) -> Data:
    bins = given.attrs["bins"]
    counted = (data >= 0) & (data < bins)
    if mask is not None:
        counted &= mask
    return np.bincount(data[counted].astype(np.int64), minlength=bins).astype(np.int32)


def _sort(given: Given, data: Data) -> Data:
    axis, dtype = given.attrs["axis"], dtype_of(given.types[0])
    order = np.argsort(widen(data, dtype) if dtype.is_float else data, axis=axis, kind="stable")
    found = np.take_along_axis(data, order, axis)
    return np.flip(found, axis) if given.attrs["descending"] else found


def split(given: Given, data: Data) -> tuple[Data, Data]:
    return data[..., 0], data[..., 1]


def reduce(given: Given, combine: Combine, *data: Data) -> list[Data]:
    rest = [np.moveaxis(item, given.attrs["axis"], 0) for item in data]
    while (size := len(rest[0])) > 1:
        pairs = size // 2 * 2
        combined = combine([item[0:pairs:2] for item in rest], [item[1:pairs:2] for item in rest])
        rest = [np.concatenate([new, old[pairs:]]) for new, old in zip(combined, rest, strict=True)]
    return [item[0] for item in rest]


def scan(given: Given, combine: Combine, *data: Data) -> list[Data]:
    step = -1 if given.attrs["reverse"] else 1
    rows = [np.moveaxis(item, given.attrs["axis"], 0)[::step] for item in data]
    found = [[item[0] for item in rows]]
    for place in range(1, len(rows[0])):
        found.append(list(combine(found[-1], [item[place] for item in rows])))
    stacked = [np.stack(column)[::step] for column in zip(*found, strict=True)]
    return [np.moveaxis(item, 0, given.attrs["axis"]) for item in stacked]


TILES: dict[str, Row] = {
    "arange": _arange,
    "splat": _spread, "broadcast": _spread, "reshape": _shaped, "expand_dims": _shaped,
    "permute": lambda given, data: np.transpose(data, given.attrs["order"]),
    "join": lambda given, a, b: np.stack([a, b], axis=-1),
    "cat": lambda given, a, b: np.concatenate([a, b]),
    "gather": _gather, "histogram": _histogram, "sort": _sort,
}  # fmt: skip
