"""The printed form of tile IR: see the grammar in `core`.

The text depends on nothing but the IR, and `parse` makes the same IR of it. Attributes at their default are left out.
Where operations come from is printed on demand, as an attribute `at`. Neighbours: `parse`, `verify`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import Any

from stator.tile.ir.core import Block, Function, Location, Module, Operation
from stator.tile.ir.operators import HINTS, OPERATORS


def module_text(module: Module, locations: bool = False) -> str:
    """All functions, in their order."""
    return "\n\n".join([function_text(function, locations) for function in module.functions.values()])


def function_text(function: Function, locations: bool = False) -> str:
    """One function, its attributes in a decorator."""
    attrs = {**({"noinline": True} if function.noinline else {}), **function.attrs}
    described = [*_attributes(attrs), *_at(function.location, locations)]
    head = [f"@function({', '.join(described)})"] if described else []
    params = ", ".join([_param(value.name, str(value.type), function.hints) for value in function.params])
    results = [str(result) for result in function.results]
    gives = "" if not results else f" -> {results[0]}" if len(results) == 1 else f" -> ({', '.join(results)})"
    lines = [*head, f"def {function.name}({params}){gives}:", *_indented(_block(function.body, locations))]
    return "\n".join(lines) + "\n"


def operation_text(operation: Operation, locations: bool = False) -> str:
    """One line; regions follow it."""
    operands = [operand.name for operand in operation.operands]
    defaults = {name: a.default for name, a in OPERATORS[operation.op].attributes.items() if not a.required}
    shown = {
        name: value
        for name, value in operation.attrs.items()
        if name in HINTS or name not in defaults or _differs(value, defaults[name])
    }
    inside = ", ".join([*operands, *_attributes(shown), *_at(operation.location, locations)])
    call = f"{spelled(operation.op)}({inside})"
    match operation.results:
        case ():
            return call
        case (result,):
            return f"{result.name}: {result.type} = {call}"
        case results:
            return f"{', '.join([result.name for result in results])} = {call}"


def spelled(op: str) -> str:
    """An operator's name; one that is a word of Python's has an underscore behind it."""
    return f"{op}_" if iskeyword(op) else op


def value_text(value: Any) -> str:
    """The value of an attribute."""
    match value:
        case tuple():
            items = [value_text(item) for item in value]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        case bool() | None | str():
            return repr(value)
        case int():
            return str(int(value))
        case float() if not math.isfinite(value):
            return "nan" if value != value else "inf" if value > 0 else "-inf"
        case float():
            return repr(float(value))
    return str(value)


def _differs(value: Any, default: Any) -> bool:
    return type(value) is not type(default) or value != default


def _attributes(attrs: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value_text(value)}" for name, value in attrs.items()]


def _at(location: Location | None, wanted: bool) -> list[str]:
    return [f"at={str(location)!r}"] if wanted and location is not None else []


def _param(name: str, type_: str, hints: Mapping[str, Mapping[str, Any]]) -> str:
    known = f"({', '.join(_attributes(hints[name]))})" if hints.get(name) else ""
    return f"{name}: {type_}{known}"


def _block(block: Block, locations: bool) -> Iterator[str]:
    if not block.operations:
        yield "pass"
    for operation in block.operations:
        yield operation_text(operation, locations)
        for name, region in zip(OPERATORS[operation.op].regions, operation.regions, strict=True):
            yield f"def {name}({', '.join([f'{arg.name}: {arg.type}' for arg in region.args])}):"
            yield from _indented(_block(region, locations))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return ("    " + line for line in lines)
