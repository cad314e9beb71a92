"""Operands of tensor cores that stay words of 32 bits from where they are loaded to where they are multiplied.

In registers numbers of 16 bits are f32 each, which is what everything else computes with. What only products take is
never computed with, so two neighbours stay the word that `ldmatrix` gives, loops included: LLVM would find that out for
each word, and across loops it does not.
Neighbours: `writer` carries words through loops, `buffers` loads them, `products` takes them.
"""

from __future__ import annotations

from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.types import DType
from stator.tile.layouts.linear import Layout

#: Bytes of the elements that are two in a word.
_HALF = 2


def word_values(function: Function) -> set[Value]:
    """The values whose registers are words: loaded operands, and what loops carry of them, that products alone use."""
    found = {value for operation in function.body.walk() for value in _candidates(operation) if _has_pairs(value)}
    uses: dict[Value, list[tuple[Operation, int, Operation | None]]] = {value: [] for value in found}
    _find_uses(function, uses)
    changed = True
    while changed:
        gone = {value for value in found if not all(_keeps(use, found) for use in uses[value])}
        found -= gone
        changed = bool(gone)
    return found


def _candidates(operation: Operation) -> list[Value]:
    match operation.op:
        case "local_load" | "permute":
            return [*operation.results]
        case "for":
            return [*operation.regions[0].args[1:], *operation.results]
    return []


def _has_pairs(value: Value) -> bool:
    """Whether register 2i and 2i + 1 can be a word."""
    element, layout = value.type.element, value.type.layout
    half = isinstance(element, DType) and element.is_float and element.itemsize == _HALF
    return half and isinstance(layout, Layout) and layout.registers > 1


def _find_uses(function: Function, uses: dict[Value, list[tuple[Operation, int, Operation | None]]]) -> None:
    """Who uses each value as which operand; of a terminator also the operation that it ends a region of."""
    ends = {id(o): around for around in function.body.walk() for r in around.regions for o in r.operations[-1:]}
    for operation in function.body.walk():
        for position, operand in enumerate(operation.operands):
            if operand in uses:
                uses[operand].append((operation, position, ends.get(id(operation))))


def _keeps(use: tuple[Operation, int, Operation | None], words: set[Value]) -> bool:
    """Whether a use takes words."""
    operation, position, around = use
    match operation.op:
        case "mma":
            return position < 2
        case "wgmma":
            return position == 0
        case "permute":
            return operation.result in words
        case "for":
            return position >= 3 and _carries(operation, position - 3, words)
        case "yield":
            return around is not None and around.op == "for" and _carries(around, position, words)
    return False


def _carries(loop: Operation, position: int, words: set[Value]) -> bool:
    """Whether a loop carries words at a position, and gives them."""
    return loop.regions[0].args[1 + position] in words and loop.results[position] in words
