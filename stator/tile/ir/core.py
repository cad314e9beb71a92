"""Tile IR in memory: modules of functions, functions of operations, operations with regions.

    module    = NAME = "layout" … function …            layouts that types name
    function  = @function(noinline=…, attribute=…)     only if there are any
                def NAME(parameter, …) -> type:         `-> (type, type)` for several results, none for no result
    parameter = x: type | x: type(divisibility=16)      with what is known of it
    operation = v: type = op(operand, …, attribute=value, …)      one result
              | v, w = op(operand, …)                              several
              | op(operand, …)                                     none
                def region(argument: type, …):                     its regions, one after the other
    type      = f32 | f32[16, 32] | ptr[f32] | ptr[f32, shared] | ptr[f32][16] | f32[16, NAME] | f32[16, "layout"]
    value     = number | True | None | "text" | type | NAME | (value, …)

Control flow is structured, and each of its operations has regions:

    v, … = if_(condition)                        def then(): …           def otherwise(): …
    v, … = for_(lower, upper, step, start, …)    def body(i, carried, …): …
    v, … = while_(start, …)                      def test(carried, …): …   def body(carried, …): …

A region ends in `yield_(value, …)`, that of a test in `condition(i1, value, …)`, a function in `return_(value, …)`.
What a region yields are the results of an `if_`, and what is carried to the next turn of a loop; when the test of a
`while_` fails, its values are the results. The region of `reduce` and `scan` combines two elements of each operand.

A value is defined once, by an operation, a region or a function, and is known behind its definition in its block and
the regions therein. Names are unique in a function. The text is a subset of Python's grammar; words of Python's have an
underscore behind them. Neighbours: `operators` is the table of operations, `build` makes them, `text` prints them,
`parse` reads that again, `verify` checks them; `stator.tile.interpret` says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stator.tile.ir.types import Type


class Location(NamedTuple):
    """A place in the text of a kernel; columns count from 0."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(eq=False, slots=True)
class Value:
    """A result of an operation, or an argument of a region or function. It is equal to itself alone."""

    name: str
    type: Type

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(eq=False, slots=True)
class Operation:
    """One operation. `attrs` has every attribute of its operator, those at their default too, and hints."""

    op: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    results: tuple[Value, ...] = ()
    regions: tuple[Block, ...] = ()
    location: Location | None = None

    @property
    def result(self) -> Value:
        """The only one."""
        (result,) = self.results
        return result


@dataclass(eq=False, slots=True)
class Block:
    """Operations in order. The last one is a terminator once the block is complete."""

    args: tuple[Value, ...] = ()
    operations: list[Operation] = field(default_factory=list)

    @property
    def terminator(self) -> Operation | None:
        return self.operations[-1] if self.operations else None

    def walk(self) -> Iterator[Operation]:
        """Every operation, those in regions behind the one that has them."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclass(eq=False, slots=True)
class Function:
    """A kernel, or a function that one calls. `hints` has what is known of parameters, by name and attribute."""

    name: str
    params: tuple[Value, ...]
    results: tuple[Type, ...] = ()
    body: Block = field(default_factory=Block)
    attrs: dict[str, Any] = field(default_factory=dict)
    location: Location | None = None
    noinline: bool = False
    hints: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Module:
    """Functions by name."""

    functions: dict[str, Function] = field(default_factory=dict)

    def add(self, function: Function) -> Function:
        if function.name in self.functions:
            raise ValueError(f"there is a function {function.name} already")
        self.functions[function.name] = function
        return function
