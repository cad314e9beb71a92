"""The printed form of functions: see the grammar in `ir`.

The text depends on nothing but the function, and `parse` makes the same function of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from keyword import iskeyword

from stator.kernel.ir import (
    Assign,
    Block,
    Declare,
    Function,
    Let,
    Load,
    Loop,
    Operand,
    Position,
    Statement,
    Store,
    Value,
    Within,
)
from stator.loop.index import Index
from stator.loop.kernel import Param
from stator.sizes import Symbol

#: The role of a parameter → how its memory is called.
ROLES = {"in": "In", "out": "Out", "inout": "InOut"}


def function_text(function: Function) -> str:
    """The whole function."""
    parameters = [_param(param) for param in function.params] + [_symbol(symbol) for symbol in function.symbols]
    lines = ["    " + line for line in _block(function.body)] or ["    pass"]
    return "\n".join([f"def {function.name}({', '.join(parameters)}):", *lines]) + "\n"


def operand_text(operand: Operand, expected: str = "") -> str:
    """A name, or a number; one of another dtype than is expected says so."""
    if isinstance(operand, Value):
        return operand.name
    number = operand.number
    if isinstance(number, float) and not math.isfinite(number):
        text = "nan" if number != number else "inf" if number > 0 else "-inf"
    else:
        text = repr(number)
    return text if operand.dtype == expected else f"{operand.dtype}({text})"


def index_text(index: Index) -> str:
    """A position, what it loads by name."""
    return index.render(str)


def _param(param: Param) -> str:
    return f"{param.name}: {ROLES[param.role]}[{param.dtype}, {param.numel}]"


def _symbol(symbol: Symbol) -> str:
    return f"{symbol.name}: Size[{symbol.low}, {symbol.high}, {symbol.hint}]"


def _block(block: Block) -> Iterator[str]:
    for statement in block:
        yield statement_text(statement)
        if isinstance(statement, Loop):
            yield from ("    " + line for line in _block(statement.body))


def statement_text(statement: Statement) -> str:
    """One line; the head of a loop."""
    match statement:
        case Let(target, op, args):
            return f"{target.name}: {target.dtype} = {_call(op, args, target.dtype)}"
        case Position(target, index):
            return f"{target.name}: {target.dtype} = index({index_text(index)})"
        case Load(target, memory, index, mask):
            guard = f" if {operand_text(mask, 'bool')} else 0" if mask is not None else ""
            return f"{target.name}: {target.dtype} = {memory}[{index_text(index)}]{guard}"
        case Within(target, value, bound, number, mask):
            parts = [operand_text(value, target.dtype), str(bound)] + [str(number)] * (number > 0)
            parts += [operand_text(mask, "bool")] if mask is not None else []
            return f"{target.name}: {target.dtype} = within({', '.join(parts)})"
        case Declare(target, start):
            return f"{target.name}: Var[{target.dtype}] = {operand_text(start, target.dtype)}"
        case Assign(target, op, args):
            given = operand_text(args[0], target.dtype) if op == "copy" else _call(op, args, target.dtype)
            return f"{target.name} = {given}"
        case Store(memory, index, value, mode):
            place, written = f"{memory}[{index_text(index)}]", operand_text(value)
            return f"{place} = {written}" if mode == "store" else f"{mode}({place}, {written})"
        case Loop(axis, kind, _, piece):
            if piece is None:
                return f"for {axis.name} in {kind}({axis.size}):"
            begin = f"{piece.step}*{piece.axis.name}"
            return f"for {axis.name} in {kind}({begin}, min({begin} + {piece.step}, {axis.size})):"


def _call(op: str, args: tuple[Operand, ...], dtype: str) -> str:
    name = f"{op}_" if iskeyword(op) else op
    return f"{name}({', '.join([operand_text(arg, dtype) for arg in args])})"
