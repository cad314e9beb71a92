"""The rules of tile IR, as checks. Each raises `GrammarError` with the function's name and the operation.

Checked: names are unique; a value is known where it is used, as the same object; every operator gives the types that
its rule says, and has all its attributes; a block ends in a terminator, and has none before; what a function returns is
of its types; calls fit what they call, which never leads back; and a region that combines only computes.
Neighbours: `core` has the grammar, `rules` what operators take; passes are checked by this after they ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from stator.tile.ir.build import complete, infer
from stator.tile.ir.core import Block, Function, Module, Operation, Value
from stator.tile.ir.operators import OPERATORS, Operators, effects_of
from stator.tile.ir.rules import TypeRule, listed
from stator.tile.ir.text import Style, operation_text

#: Effects that a region which combines may not have: it runs as often, and in the order, that suits the target.
_IMPURE = {"reads", "writes", "prints", "syncs"}


class GrammarError(ValueError):
    """IR that is none."""


def verify(module: Module, operators: Operators = OPERATORS) -> None:
    """Raise GrammarError unless all functions are well formed."""
    for name, function in module.functions.items():
        if name != function.name:
            raise GrammarError(f"{function.name}: the module calls it {name}")
        _Checker(module, function, operators).run()
    for function in module.functions.values():
        _without_return(module, function, ())


def _callees(function: Function) -> Iterator[str]:
    return (operation.attrs["callee"] for operation in function.body.walk() if operation.op == "call")


def _without_return(module: Module, function: Function, callers: tuple[str, ...]) -> None:
    if function.name in callers:
        raise GrammarError(f"{function.name}: calls itself, by {' → '.join([*callers, function.name])}")
    for callee in dict.fromkeys(_callees(function)):
        _without_return(module, module.functions[callee], (*callers, function.name))


class _Checker:
    """Walks a function with the values that are known at each place."""

    def __init__(self, module: Module, function: Function, operators: Operators) -> None:
        self.module, self.function, self.operators = module, function, operators
        self.names: set[str] = set()
        self.known: set[Value] = set()
        self.operation: Operation | None = None

    def require(self, condition: object, message: str) -> None:
        if not condition:
            self.refuse(message)

    def refuse(self, message: str) -> NoReturn:
        place = "" if self.operation is None else f": `{self._described(self.operation)}`"
        raise GrammarError(f"{self.function.name}{place}: {message}")

    def _described(self, operation: Operation) -> str:
        return (
            operation_text(operation, Style(operators=self.operators))
            if operation.op in self.operators
            else operation.op
        )

    def run(self) -> None:
        function = self.function
        self.require(function.name.isidentifier(), "its name is no name")
        self.define(function.params)
        unknown = set(function.hints) - {param.name for param in function.params}
        self.require(not unknown, f"has hints of {', '.join(sorted(unknown))}, which is no parameter")
        self.block(function.body)
        last = function.body.terminator
        self.require(last is not None and last.op == "return", "its body does not end in return")
        given = [operand.type for operand in last.operands] if last is not None else []
        self.require(given == list(function.results), f"returns {listed(given)}, not {listed(function.results)}")

    def block(self, block: Block) -> None:
        around = set(self.known)
        self.define(block.args)
        for number, operation in enumerate(block.operations):
            self.check(operation, is_last=number == len(block.operations) - 1)
            self.define(operation.results)
        self.operation = None
        self.known = around

    def check(self, operation: Operation, is_last: bool) -> None:
        self.operation = operation
        operator = self.operators.get(operation.op)
        if operator is None:
            self.refuse("an unknown operator")
        for operand in operation.operands:
            if operand not in self.known:
                self.refuse(f"{operand.name} is not known here")
        self.require(operator.is_terminator == is_last, "a block ends in one terminator, and has none before its end")
        for region in operation.regions:
            self.block(region)
            self.operation = operation
        types = [operand.type for operand in operation.operands]
        try:
            attrs = complete(operation.op, operation.attrs, self.operators)
            results = infer(operation.op, types, operation.attrs, operation.regions, self.operators)
        except TypeRule as error:
            self.refuse(str(error))
        self.require(attrs.keys() == operation.attrs.keys(), "an attribute is missing")
        given = [result.type for result in operation.results]
        if given != list(results):
            self.refuse(f"gives {listed(results)}, not {listed(given)}")
        if operator.regions == ("combine",):
            self.only_computes(operation.regions[0])
        if operation.op == "call":
            self.call(operation)

    def only_computes(self, region: Block) -> None:
        for inner in region.walk():
            impure = effects_of(inner, self.operators) & _IMPURE
            self.require(not impure, f"{inner.op} is more than a combination")

    def call(self, operation: Operation) -> None:
        callee = self.module.functions.get(operation.attrs["callee"])
        if callee is None:
            self.refuse(f"there is no function {operation.attrs['callee']}")
        taken = [param.type for param in callee.params]
        given = [operand.type for operand in operation.operands]
        self.require(given == taken, f"{callee.name} takes {listed(taken)}, not {listed(given)}")
        results = operation.attrs["types"]
        self.require(results == callee.results, f"{callee.name} gives {listed(callee.results)}, not {listed(results)}")

    def define(self, values: tuple[Value, ...]) -> None:
        for value in values:
            if not value.name.isidentifier():
                self.refuse(f"{value.name!r} is no name")
            if value.name in self.names:
                self.refuse(f"{value.name} is defined already")
            self.names.add(value.name)
            self.known.add(value)
