"""What loads, stores and atomics mean. Elements go in row-major order; an atomic sees what those before it did.

Where a mask does not hold nothing is touched: a load gives `other` there, or 0, an atomic gives 0.
Neighbours: `memory` checks and touches; `program` calls these with the memory of the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from stator.tile.interpret.casts import Data, bitcast
from stator.tile.interpret.compute import COMPUTE, Given
from stator.tile.interpret.memory import Memory
from stator.tile.ir.rules import pointee
from stator.tile.ir.types import Type

Access: TypeAlias = Callable[..., Data | None]


def _load(memory: Memory, given: Given, pointer: Data, mask: Data | None = None, other: Data | None = None) -> Data:
    dtype = pointee(given.types[0]).element.numpy
    if mask is None:
        return memory.read(pointer, dtype)
    result = np.zeros(pointer.shape, dtype) if other is None else np.array(other)
    result[mask] = memory.read(pointer[mask], dtype)
    return result


def _store(memory: Memory, given: Given, pointer: Data, value: Data, mask: Data | None = None) -> None:
    if mask is None:
        memory.write(pointer, value)
    else:
        memory.write(pointer[mask], value[mask])


#: A kind of `atomic_rmw` → the operator that it does; "xchg" does none.
_KINDS = {"add": "add", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


def _atomic_rmw(memory: Memory, given: Given, pointer: Data, value: Data, mask: Data | None = None) -> Data:
    element = Type(pointee(given.types[0]).element)
    kind = given.attrs["kind"]
    inner = Given([element, element], {"nan": "number"}, [element])

    def change(old: Data, new: Data) -> Data:
        return new if kind == "xchg" else COMPUTE[_KINDS[kind]](inner, old, new)

    return _in_order(memory, f"atomic {kind}", change, pointer, mask, value)


def _atomic_cas(memory: Memory, given: Given, pointer: Data, expected: Data, value: Data) -> Data:
    bits = np.dtype(f"uint{8 * expected.dtype.itemsize}")

    def change(old: Data, expected: Data, new: Data) -> Data:
        return np.where(bitcast(old, bits) == bitcast(expected, bits), new, old)

    return _in_order(memory, "atomic cas", change, pointer, None, expected, value)


def _in_order(
    memory: Memory, what: str, change: Callable[..., Data], pointer: Data, mask: Data | None, *values: Data
) -> Data:
    """What was at each place; places that differ are changed all at once, for nobody sees the order."""
    active = np.ones(pointer.shape, np.bool_) if mask is None else mask
    addresses, operands = pointer[active], [value[active] for value in values]
    dtype = values[0].dtype
    old = memory.read(addresses, dtype, what)
    if len(np.unique(addresses)) == addresses.size:
        memory.write(addresses, np.asarray(change(old, *operands)), what)
    else:
        for place in range(addresses.size):
            one = slice(place, place + 1)
            old[one] = memory.read(addresses[one], dtype, what)
            memory.write(addresses[one], np.asarray(change(old[one], *[operand[one] for operand in operands])), what)
    result = np.zeros(pointer.shape, dtype)
    result[active] = old
    return result


ACCESS: dict[str, Access] = {
    "load": _load, "store": _store, "atomic_rmw": _atomic_rmw, "atomic_cas": _atomic_cas,
}  # fmt: skip
