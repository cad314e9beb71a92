"""The printed form of functions: see the grammar in `ir`.

The text depends on nothing but the function, and `parse` makes the same function of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from keyword import iskeyword

from stator.kernel import ir
from stator.loop.index import Index
from stator.loop.kernel import Param
from stator.sizes import Symbol

#: The role of a parameter → how its memory is called.
ROLES = {"in": "In", "out": "Out", "inout": "InOut"}


def function_text(function: ir.Function) -> str:
    """The whole function."""
    parameters = [_param(param) for param in function.params] + [_symbol(symbol) for symbol in function.symbols]
    named = [f"{_symbol(symbol)} = {extent}" for symbol, extent in function.named]
    lines = ["    " + line for line in [*named, *_block(function.body)]] or ["    pass"]
    threads = f" -> Threads[{function.threads}]" if function.threads != 1 else ""
    return "\n".join([f"def {function.name}({', '.join(parameters)}){threads}:", *lines]) + "\n"


def operand_text(operand: ir.Operand, expected: str = "") -> str:
    """A name, or a number; one of another dtype than is expected says so."""
    if isinstance(operand, ir.Value):
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


def _block(block: ir.Block) -> Iterator[str]:
    for statement in block:
        yield statement_text(statement)
        if isinstance(statement, ir.Loop):
            yield from ("    " + line for line in _block(statement.body))


def statement_text(statement: ir.Statement) -> str:
    """One line; the head of a loop."""
    match statement:
        case ir.Let(target, op, args):
            return f"{target.name}: {target.dtype} = {_call(op, args, target.dtype)}"
        case ir.Position(target, index):
            return f"{target.name}: {target.dtype} = index({index_text(index)})"
        case ir.Load(target, memory, index, mask):
            guard = f" if {operand_text(mask, 'bool')} else 0" if mask is not None else ""
            return f"{target.name}: {target.dtype} = {memory}[{index_text(index)}]{guard}"
        case ir.Within(target, value, bound, number, mask):
            parts = [operand_text(value, target.dtype), str(bound)] + [str(number)] * (number > 0 or mask is not None)
            parts += [operand_text(mask, "bool")] if mask is not None else []
            return f"{target.name}: {target.dtype} = within({', '.join(parts)})"
        case ir.Declare(target, start):
            return f"{target.name}: Var[{target.dtype}] = {operand_text(start, target.dtype)}"
        case ir.Assign(target, op, args):
            given = operand_text(args[0], target.dtype) if op == "copy" else _call(op, args, target.dtype)
            return f"{target.name} = {given}"
        case ir.Flush(target):
            return f"flush({target.name})"
        case ir.Best():
            name, given = "best_in_turn" if statement.in_turn else "best", statement.best.dtype
            parts = [statement.op, operand_text(statement.value, given)]
            parts.append(operand_text(statement.here, statement.position.dtype))
            return f"{statement.best.name}, {statement.position.name} = {name}({', '.join(parts)})"
        case ir.Online(states, op, value):
            return f"{', '.join([state.name for state in states])} = {op}({operand_text(value, states[0].dtype)})"
        case ir.Scan(target, op, state, value):
            return f"{target.name}: {target.dtype} = scan({op}, {state.name}, {operand_text(value, target.dtype)})"
        case ir.Turn(scratch, width, memory, index, rows, columns):
            pieces = ", ".join([f"{axis.name}, {_begin(piece)}, {axis.size}" for axis, piece in (rows, columns)])
            return f"turn({scratch}[{width}], {memory}[{index_text(index)}], {pieces})"
        case ir.Multiply(scratch, width, left, at, right, to, rows, columns, terms, ahead):
            pieces = ", ".join([f"{axis.name}, {_begin(piece)}, {axis.size}" for axis, piece in (rows, columns)])
            factors = f"{left}[{index_text(at)}], {right}[{index_text(to)}]"
            last = ", ahead" if ahead else ""
            return f"multiply({scratch}[{width}], {factors}, {pieces}, {terms.name}, {terms.size}{last})"
        case ir.Scratch(name, dtype, numel):
            return f"{name}: Scratch[{dtype}, {numel}]"
        case ir.Store(memory, index, value, mode, atomic, stream):
            place, written = f"{memory}[{index_text(index)}]", operand_text(value)
            if mode == "store" and not stream:
                return f"{place} = {written}"
            return f"{'stream' if stream else 'atomic_' * atomic + mode}({place}, {written})"
        case ir.Loop():
            return _head(statement)


def _head(loop: ir.Loop) -> str:
    axis, piece = loop.axis, loop.piece
    parts = []
    if loop.lanes:
        parts.append(f"{loop.lanes}*{loop.unroll}" if loop.unroll != 1 else str(loop.lanes))
    if piece is None:
        parts.append(str(axis.size))
    else:
        begin = _begin(piece)
        parts += [begin, f"min({begin} + {piece.step}, {axis.size})"]
    return f"for {axis.name} in {loop.kind}({', '.join(parts)}):"


def _begin(piece: ir.Piece) -> str:
    return f"{piece.step}*{piece.axis.name}"


def _call(op: str, args: tuple[ir.Operand, ...], dtype: str) -> str:
    name = f"{op}_" if iskeyword(op) else op
    return f"{name}({', '.join([operand_text(arg, dtype) for arg in args])})"
