"""Builders: how operations come to be. The language's functions talk to `Builder` and to nothing else of the IR.

`IRBuilder` appends operations to a block once the operator's rule has accepted them; the builder of
`stator.tile.interpret.eager` computes them at once instead. So what a function of the language means is written once.
What both refuse is a `TypeRule`, which the front end turns into an error with the kernel's line.
Neighbours: `operators` has the rules; `verify` applies them again to what passes have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from stator.tile.ir.core import Block, Function, Location, Module, Operation, Value
from stator.tile.ir.operators import OPERATORS, Operator, Operators
from stator.tile.ir.rules import TypeRule, combines
from stator.tile.ir.types import Type


class Typed(Protocol):
    """What an operation gives: a `Value`, or a cell that holds numbers."""

    @property
    def type(self) -> Type: ...


class Builder(Protocol):
    """Makes operations."""

    #: Where operations come from that say no place of their own.
    location: Location | None

    def emit(
        self,
        op: str,
        operands: Sequence[Any] = (),
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Any] = (),
        location: Location | None = None,
    ) -> list[Any]:
        """The results of an operation; TypeRule where its operator does not take what is given."""

    def region(self, types: Sequence[Type], body: Callable[..., Sequence[Any]]) -> Any:
        """A region that combines: `body` takes values of these types and gives what the region yields."""


def find(op: str, operators: Operators = OPERATORS) -> Operator:
    """The row of an operator."""
    if op not in operators:
        raise TypeRule(f"there is no operator {op}")
    return operators[op]


def infer(
    op: str,
    types: Sequence[Type],
    attrs: Mapping[str, Any],
    regions: Sequence[Block],
    operators: Operators = OPERATORS,
) -> tuple[Type, ...]:
    """What an operation gives whose attributes are complete; TypeRule, with the operator's name, where it is wrong."""
    operator = find(op, operators)
    try:
        if len(regions) != len(operator.regions):
            raise TypeRule(f"has {len(operator.regions)} regions, not {len(regions)}")
        results = operator.rule(types, attrs, regions)
        if operator.regions == ("combine",):
            combines(types, regions)
        return results
    except TypeRule as error:
        raise TypeRule(f"{op}: {error}") from error


def complete(op: str, attrs: Mapping[str, Any], operators: Operators = OPERATORS) -> dict[str, Any]:
    """All attributes of an operation; TypeRule, with the operator's name, where one is wrong."""
    try:
        return find(op, operators).complete(attrs)
    except TypeRule as error:
        raise TypeRule(f"{op}: {error}") from error


class IRBuilder:
    """Appends to a block of a function, and gives values names that are unique in it.

    `operators` is the table of what there is: tile IR's, or that with layouts (`stator.tile.gpu.operators`).
    """

    def __init__(self, function: Function, block: Block | None = None, operators: Operators = OPERATORS) -> None:
        self.function, self.operators = function, operators
        self.block = function.body if block is None else block
        self.location: Location | None = None
        self._names = {value.name for value in _values(function)}
        self._next = 0

    def emit(
        self,
        op: str,
        operands: Sequence[Value] = (),
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
        location: Location | None = None,
    ) -> list[Value]:
        last = self.block.terminator
        if last is not None and self.operators[last.op].is_terminator:
            raise TypeRule(f"{op}: the block has ended with {last.op}")
        full = complete(op, attrs or {}, self.operators)
        types = infer(op, [operand.type for operand in operands], full, regions, self.operators)
        results = tuple([self.value(type_) for type_ in types])
        place = location or self.location
        self.block.operations.append(Operation(op, tuple(operands), full, results, tuple(regions), place))
        return list(results)

    def value(self, type_: Type, name: str = "") -> Value:
        """A value with a name of its own, near to the one that is asked for."""
        return Value(self._unique(name), type_)

    def rename(self, value: Value, name: str) -> None:
        """Calls a value what the kernel calls it, as far as that is free."""
        self._names.discard(value.name)
        value.name = self._unique(name)

    def _unique(self, name: str) -> str:
        found = name
        while not found or found in self._names:
            found = f"{name}_{self._next}" if name else f"v{self._next}"
            self._next += 1
        self._names.add(found)
        return found

    def block_of(self, types: Sequence[Type], names: Sequence[str] = ()) -> Block:
        """An empty block for a region, with arguments of these types."""
        names = names or [""] * len(types)
        return Block(tuple([self.value(type_, name) for type_, name in zip(types, names, strict=True)]))

    @contextmanager
    def inside(self, block: Block) -> Iterator[Block]:
        """Operations go to the end of this block."""
        around, self.block = self.block, block
        try:
            yield block
        finally:
            self.block = around

    def region(self, types: Sequence[Type], body: Callable[..., Sequence[Value]]) -> Block:
        with self.inside(self.block_of(types)) as block:
            self.emit("yield", body(*block.args))
        return block


def _values(function: Function) -> Iterator[Value]:
    yield from function.params
    for operation in function.body.walk():
        yield from operation.results
        for region in operation.regions:
            yield from region.args


def new_function(
    module: Module,
    name: str,
    params: Mapping[str, Type],
    results: Sequence[Type] = (),
    location: Location | None = None,
    noinline: bool = False,
    operators: Operators = OPERATORS,
) -> tuple[Function, IRBuilder]:
    """An empty function of a module, and the builder of its body."""
    values = tuple([Value(param, type_) for param, type_ in params.items()])
    function = Function(name, values, tuple(results), location=location, noinline=noinline)
    return module.add(function), IRBuilder(function, operators=operators)
