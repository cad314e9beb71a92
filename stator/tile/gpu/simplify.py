"""Clean-ups of functions, with or without layouts: equal operations become one, what does not change leaves loops, and
loops of one turn go.

What has effects stays where it is; what has none, and no region, is moved and joined freely. A loop that has no turn
computes what was moved out of it once for nothing, which no operation minds.
Neighbours: `pipeline` says when each runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import Operators, effects_of

_LOOPS = frozenset(["for", "while"])


def is_free(operation: Operation, operators: Operators) -> bool:
    """Whether an operation only computes, and so may stand anywhere behind its operands."""
    return not operation.regions and not effects_of(operation, operators)


def replace_operands(block: Block, names: dict[Value, Value]) -> None:
    """Values by others, in a block and its regions."""
    for operation in block.walk():
        if any(operand in names for operand in operation.operands):
            operation.operands = tuple([names.get(operand, operand) for operand in operation.operands])


# ---- equal operations


def join_equal(function: Function, operators: Operators) -> None:
    """An operation that computes what one before it in the block, or around it, has computed is left out."""
    names: dict[Value, Value] = {}
    _join(function.body, [{}], names, operators)


def _join(block: Block, scopes: list[dict[Any, Operation]], names: dict[Value, Value], operators: Operators) -> None:
    kept = []
    for operation in block.operations:
        operation.operands = tuple([names.get(operand, operand) for operand in operation.operands])
        for region in operation.regions:
            _join(region, [*scopes, {}], names, operators)
        if is_free(operation, operators):
            key = _key(operation)
            before = next((scope[key] for scope in scopes if key in scope), None)
            if before is not None:
                names.update(zip(operation.results, before.results, strict=True))
                continue
            scopes[-1][key] = operation
        kept.append(operation)
    block.operations[:] = kept


#: Types whose equal values may differ, or have values in them that do.
_WRITTEN = frozenset([float, tuple])


def _key(operation: Operation) -> Any:
    """Equal for operations that compute the same; 0.0 and -0.0, 1 and True are not."""
    attrs = tuple(
        [
            (name, type(value), repr(value) if type(value) in _WRITTEN else value)
            for name, value in operation.attrs.items()
        ]
    )
    types = tuple([result.type for result in operation.results])
    return operation.op, tuple(map(id, operation.operands)), attrs, types


# ---- loops


def leave_loops(function: Function, operators: Operators) -> None:
    """What a loop computes in each turn of values from outside of it is computed before it."""
    _leave(function.body, operators)


def _leave(block: Block, operators: Operators) -> None:
    operations = []
    for operation in block.operations:
        for region in operation.regions:
            _leave(region, operators)
        if operation.op in _LOOPS:
            operations += _taken_out(operation, operators)
        operations.append(operation)
    block.operations[:] = operations


def _taken_out(loop: Operation, operators: Operators) -> list[Operation]:
    inside = {arg for region in loop.regions for arg in region.args}
    inside |= {result for region in loop.regions for operation in region.walk() for result in operation.results}
    inside |= {arg for region in loop.regions for o in region.walk() for inner in o.regions for arg in inner.args}
    taken = []
    for region in loop.regions:
        kept = []
        for operation in region.operations:
            depends = any(operand in inside for operand in operation.operands)
            if depends or not is_free(operation, operators):
                kept.append(operation)
            else:
                taken.append(operation)
                inside -= set(operation.results)
        region.operations[:] = kept
    return taken


def turns_of(loop: Operation, made: Mapping[Value, Operation]) -> int | None:
    """How many turns a `for` has, if that is known: its bounds and step are constants."""
    found = [made.get(operand) for operand in loop.operands[:3]]
    if any(each is None or each.op != "constant" for each in found):
        return None
    lower, upper, step = (each.attrs["value"] for each in found if each is not None)
    return len(range(lower, upper, step)) if step else None


def write_out_single_turns(function: Function) -> None:
    """A loop of one turn is what it does in that.

    y = for_(c0, c64, c64, x)
    def body(i, x_1):                →    z = add(x, c0)
        z = add(x_1, i)
        yield_(z)                         … z in place of y
    """
    made = {result: operation for operation in function.body.walk() for result in operation.results}
    names: dict[Value, Value] = {}
    _write_out(function.body, made, names)
    replace_operands(function.body, {value: _last(value, names) for value in names})


def _last(value: Value, names: Mapping[Value, Value]) -> Value:
    while value in names:
        value = names[value]
    return value


def _write_out(block: Block, made: Mapping[Value, Operation], names: dict[Value, Value]) -> None:
    operations = []
    for operation in block.operations:
        for region in operation.regions:
            _write_out(region, made, names)
        if operation.op != "for" or turns_of(operation, made) != 1:
            operations.append(operation)
            continue
        (body,) = operation.regions
        names.update(zip(body.args, (operation.operands[0], *operation.operands[3:]), strict=True))
        names.update(zip(operation.results, body.operations[-1].operands, strict=True))
        operations += body.operations[:-1]
    block.operations[:] = operations


# ---- what nobody uses


def remove_unused(function: Function, operators: Operators) -> None:
    """Leaves out what has no effect but reading and whose results nobody uses, and buffers that nobody reads."""
    uses = Counter(operand for operation in function.body.walk() for operand in operation.operands)
    _remove(function.body, uses, operators)


def _remove(block: Block, uses: Counter[Value], operators: Operators) -> None:
    kept = []
    for operation in reversed(block.operations):
        effects = effects_of(operation, operators) - {"reads"}
        if operation.op == "local_alloc":
            effects = frozenset()
        if not effects and not any(uses[result] for result in operation.results):
            for each in (operation, *[inner for region in operation.regions for inner in region.walk()]):
                uses.subtract(each.operands)
            continue
        kept.append(operation)
        for region in operation.regions:
            _remove(region, uses, operators)
    block.operations[:] = reversed(kept)
