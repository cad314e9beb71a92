"""Runs functions of tile IR: the programs of a grid one after the other, operation by operation.

A fault ends the launch with an `InterpreterError` that names the kernel's line and the program. A region that combines
and has none but elementwise operations is computed for all places at once, any other one for each place alone.
Neighbours: `program` says what single operations mean; `eager` does the same for a kernel's Python text.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from stator.tile.errors import InterpreterError, Place
from stator.tile.interpret.casts import Data
from stator.tile.interpret.compute import Fault, Given, constant
from stator.tile.interpret.eager import one_by_one, spread
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.program import Program
from stator.tile.interpret.tiles import Combine
from stator.tile.ir.core import Block, Function, Module, Operation, Value
from stator.tile.ir.operators import OPERATORS, Operators

Environment: TypeAlias = dict[Value, Data]
#: Calls deeper than this are taken to have no end.
DEPTH = 200


def run(
    module: Module,
    name: str,
    arguments: Sequence[bool | int | float],
    memory: Memory,
    grid: Sequence[int] = (1, 1, 1),
) -> None:
    """A function for every program of a grid. Pointers among the arguments are addresses of `memory`."""
    function = module.functions[name]
    if len(arguments) != len(function.params):
        raise ValueError(f"{name} takes {len(function.params)} arguments, not {len(arguments)}")
    x, y, z = (*grid, 1, 1, 1)[:3]
    given = [
        constant(Given((), {"value": value}, (param.type,)))
        for value, param in zip(arguments, function.params, strict=True)
    ]
    machine = Machine(module, Program(memory, (x, y, z)))
    with np.errstate(all="ignore"):
        for k, j, i in itertools.product(range(z), range(y), range(x)):
            machine.program.place = (i, j, k)
            machine.call(function, given)


class Machine:
    """One program: the values of a function's names at a time."""

    #: What there is; another level of the IR has other operators.
    operators: Operators = OPERATORS

    def __init__(self, module: Module, program: Program) -> None:
        self.module, self.program = module, program
        self.functions: list[Function] = []

    def call(self, function: Function, arguments: Sequence[Data]) -> list[Data]:
        """What a function gives."""
        if len(self.functions) == DEPTH:
            raise Fault(f"{function.name} calls itself without end")
        self.functions.append(function)
        found = self.block(function.body, dict(zip(function.params, arguments, strict=True)))
        self.functions.pop()
        return found

    def block(self, block: Block, known: Environment) -> list[Data]:
        """The operands of the terminator, after all before it."""
        for operation in block.operations:
            operands = [known[operand] for operand in operation.operands]
            if self.operators[operation.op].is_terminator:
                return operands
            try:
                found = self.operation(operation, operands, known)
            except Fault as fault:
                raise self.located(operation, fault) from fault
            known.update(zip(operation.results, found, strict=True))
        raise AssertionError("a block ends in a terminator")

    def operation(self, operation: Operation, operands: list[Data], known: Environment) -> Sequence[Data]:
        match operation.op:
            case "if":
                return self.block(operation.regions[0 if operands[0] else 1], known)
            case "for":
                return self.for_(operation, operands, known)
            case "while":
                return self.while_(operation, operands, known)
            case "call":
                return self.call(self.module.functions[operation.attrs["callee"]], operands)
        types = [operand.type for operand in operation.operands]
        results = [result.type for result in operation.results]
        combine = self.combination(operation.regions[0], known) if operation.regions else None
        return self.program.compute(operation.op, types, operation.attrs, results, operands, combine)

    def for_(self, operation: Operation, operands: list[Data], known: Environment) -> list[Data]:
        (body,) = operation.regions
        lower, upper, step = (int(operand) for operand in operands[:3])
        if step == 0:
            raise Fault("the step of a loop is 0")
        carried, dtype = operands[3:], operands[0].dtype
        for i in range(lower, upper, step):
            known.update(zip(body.args, [np.asarray(i, dtype), *carried], strict=True))
            carried = self.block(body, known)
        return carried

    def while_(self, operation: Operation, operands: list[Data], known: Environment) -> list[Data]:
        test, body = operation.regions
        while True:
            known.update(zip(test.args, operands, strict=True))
            goes_on, *values = self.block(test, known)
            if not goes_on:
                return values
            known.update(zip(body.args, values, strict=True))
            operands = self.block(body, known)

    def combination(self, region: Block, known: Environment) -> Combine:
        """A region that combines, as a function of arrays."""

        def call(data: Sequence[Data]) -> list[Data]:
            known.update(zip(region.args, data, strict=True))
            return self.block(region, known)

        def batch(left: Sequence[Data], right: Sequence[Data]) -> list[Data]:
            return [spread(item, left[0].shape) for item in call([*left, *right])]

        each = [self.operators[operation.op] for operation in region.operations[:-1]]
        alike = all(operator.elementwise or operator.name == "constant" for operator in each)
        return batch if alike else one_by_one(call)

    def located(self, operation: Operation, fault: Fault) -> InterpreterError:
        """The fault with the kernel's line and the program."""
        place, at = None, operation.location
        if at is not None:
            text = linecache.getline(at.file, at.line).rstrip("\n")
            place = Place(at.file, at.line, at.column, text, self.functions[-1].name)
        return InterpreterError(f"{fault}, in program {self.program.place}", place)
