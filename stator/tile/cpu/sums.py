"""Tiles that a loop only adds to, and that are summed up behind it, become sums that the loop adds to.

    s = for_(…, zeros)                                    t = for_(…, 0)
    def body(i, c):                                       def body(i, d):
        yield_(add(c, v))                          →          yield_(add(d, reduce(v, axis=0)))
    t = reduce(s, axis=0)

The order in which numbers are added is another, as it may be: that of a `reduce` is nobody's promise. What is kept from
turn to turn is as small as the sum, and what is added need not lie in memory.
Neighbours: `prepare` calls this for the copy that it has made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stator.tile.ir.core import Block, Operation, Value
from stator.tile.ir.types import DType, Type


@dataclass(frozen=True, slots=True)
class _Sum:
    """A carried tile that becomes a sum: where it is carried, what adds to it in the body, and what sums it up."""

    position: int
    addition: Operation
    added: Value
    total: Operation


def carry_sums(block: Block) -> None:
    """Rewrites the loops of a block and of the regions in it."""
    uses = Counter(operand for operation in block.walk() for operand in operation.operands)
    made = {result: operation for operation in block.walk() for result in operation.results}
    _rewrite(block, uses, made)


def _rewrite(block: Block, uses: Counter[Value], made: dict[Value, Operation]) -> None:
    for operation in list(block.operations):
        for region in operation.regions if operation.op in ("if", "for", "while") else ():
            _rewrite(region, uses, made)
        if operation.op != "for":
            continue
        for position in range(len(operation.results)):
            found = _sum(block, operation, position, uses, made)
            if found is not None:
                _apply(block, operation, found)


def _sum(
    block: Block, loop: Operation, position: int, uses: Counter[Value], made: dict[Value, Operation]
) -> _Sum | None:
    (body,) = loop.regions
    result, arg, given = loop.results[position], body.args[position + 1], body.operations[-1].operands[position]
    addition = made.get(given)
    once = uses[result] == uses[arg] == uses[given] == 1
    if not once or addition is None or addition not in body.operations or not _adds(addition, arg):
        return None
    if not _is_zero(loop.operands[position + 3], made):
        return None
    total = next((o for o in block.operations if result in o.operands), None)
    if total is None or total.op != "reduce" or not _is_sum(total):
        return None
    first, second = addition.operands
    return _Sum(position, addition, second if first is arg else first, total)


def _adds(operation: Operation, arg: Value) -> bool:
    element = arg.type.element
    wide = isinstance(element, DType) and element.bits >= 32
    return operation.op == "add" and wide and not arg.type.is_scalar and operation.operands.count(arg) == 1


def _is_sum(total: Operation) -> bool:
    (region,) = total.regions
    combine = region.operations[0]
    plain = len(region.operations) == 2 and combine.op == "add" and set(combine.operands) == set(region.args)
    return plain and len(region.args) == 2 and region.operations[1].operands == combine.results


def _is_zero(value: Value, made: dict[Value, Operation]) -> bool:
    operation = made.get(value)
    while operation is not None and operation.op in ("splat", "broadcast"):
        operation = made.get(operation.operands[0])
    return operation is not None and operation.op == "constant" and operation.attrs["value"] == 0


def _apply(block: Block, loop: Operation, found: _Sum) -> None:
    (body,), total = loop.regions, found.total.result
    type_: Type = total.type
    number = 0.0 if getattr(type_.element, "is_float", False) else 0
    start = Value(f"{total.name}_start", type_)
    zero = Operation("constant", (), {"value": number, "type": type_}, (start,), (), loop.location)
    block.operations.insert(block.operations.index(loop), zero)
    carried, part, after = (Value(f"{total.name}_{name}", type_) for name in ("sum", "part", "next"))
    partial = Operation(
        "reduce", (found.added,), dict(found.total.attrs), (part,), found.total.regions, found.total.location
    )
    addition = Operation("add", (carried, part), {}, (after,), (), found.addition.location)
    body.operations.remove(found.addition)
    body.operations[-1:-1] = [partial, addition]
    at = found.position
    last = body.operations[-1]
    last.operands = (*last.operands[:at], after, *last.operands[at + 1 :])
    body.args = (*body.args[: at + 1], carried, *body.args[at + 2 :])
    loop.operands = (*loop.operands[: at + 3], start, *loop.operands[at + 4 :])
    loop.results = (*loop.results[:at], total, *loop.results[at + 1 :])
    block.operations.remove(found.total)
