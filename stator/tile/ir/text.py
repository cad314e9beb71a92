"""The printed form of tile IR: see the grammar in `core`.

The text depends on nothing but the IR, and `parse` makes the same IR of it. Attributes at their default are left out.
Where operations come from is printed on demand, as an attribute `at`. Neighbours: `parse`, `verify`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from stator.tile.ir.core import Block, Function, Location, Module, Operation, Value
from stator.tile.ir.operators import HINTS, OPERATORS, Operators
from stator.tile.ir.types import Type
from stator.tile.layouts.linear import Layout
from stator.tile.layouts.memory import Shared
from stator.tile.layouts.text import AnyLayout


@dataclass(frozen=True)
class Style:
    """How text is printed: whether with locations, of which operators, and what layouts are called."""

    locations: bool = False
    operators: Operators = field(default_factory=lambda: OPERATORS)
    names: Mapping[AnyLayout, str] = field(default_factory=dict)


def module_text(module: Module, locations: bool = False, operators: Operators = OPERATORS) -> str:
    """The layouts by name, then all functions in their order."""
    style = Style(locations, operators, _layout_names(module))
    head = "".join([f'{name} = "{layout}"\n' for layout, name in style.names.items()])
    functions = [_function(function, style) for function in module.functions.values()]
    return "\n\n".join([head, *functions] if head else functions)


def function_text(function: Function, locations: bool = False) -> str:
    """One function, its attributes in a decorator."""
    return _function(function, Style(locations))


def _function(function: Function, style: Style) -> str:
    attrs = {**({"noinline": True} if function.noinline else {}), **function.attrs}
    described = [*_attributes(attrs, style), *_at(function.location, style.locations)]
    head = [f"@function({', '.join(described)})"] if described else []
    params = ", ".join([_param(value.name, value.type.text(style.names), function.hints) for value in function.params])
    results = [result.text(style.names) for result in function.results]
    gives = "" if not results else f" -> {results[0]}" if len(results) == 1 else f" -> ({', '.join(results)})"
    lines = [*head, f"def {function.name}({params}){gives}:", *_indented(_block(function.body, style))]
    return "\n".join(lines) + "\n"


def operation_text(operation: Operation, style: Style | None = None) -> str:
    """One line; regions follow it."""
    style = style or Style()
    operands = [operand.name for operand in operation.operands]
    defaults = {name: a.default for name, a in style.operators[operation.op].attributes.items() if not a.required}
    shown = {
        name: value
        for name, value in operation.attrs.items()
        if name in HINTS or name not in defaults or _differs(value, defaults[name])
    }
    inside = ", ".join([*operands, *_attributes(shown, style), *_at(operation.location, style.locations)])
    call = f"{spelled(operation.op)}({inside})"
    match operation.results:
        case ():
            return call
        case (result,):
            return f"{result.name}: {result.type.text(style.names)} = {call}"
        case results:
            return f"{', '.join([result.name for result in results])} = {call}"


def _layout_names(module: Module) -> dict[AnyLayout, str]:
    """Layouts in the order in which the text comes to them: L0, L1, … of threads, S0, S1, … of shared memory."""
    found: dict[AnyLayout, str] = {}
    counts = {Layout: 0, Shared: 0}
    for layout in _layouts(module):
        if layout not in found:
            letter = "L" if isinstance(layout, Layout) else "S"
            found[layout] = f"{letter}{counts[type(layout)]}"
            counts[type(layout)] += 1
    return found


def _layouts(module: Module) -> Iterator[AnyLayout]:
    for function in module.functions.values():
        yield from _layouts_of(function.params)
        yield from _layouts_of(function.results)
        for operation in function.body.walk():
            yield from _layouts_of(operation.results)
            yield from _layouts_of(tuple(operation.attrs.values()))
            for region in operation.regions:
                yield from _layouts_of(region.args)


def _layouts_of(values: tuple[Any, ...]) -> Iterator[AnyLayout]:
    for value in values:
        match value:
            case Layout() | Shared():
                yield value
            case Type(layout=Layout() | Shared() as layout):
                yield layout
            case Value():
                yield from _layouts_of((value.type,))
            case tuple():
                yield from _layouts_of(value)


def spelled(op: str) -> str:
    """An operator's name; one that is a word of Python's has an underscore behind it."""
    return f"{op}_" if iskeyword(op) else op


def value_text(value: Any, names: Mapping[AnyLayout, str] | None = None) -> str:
    """The value of an attribute."""
    names = names or {}
    match value:
        case Type():
            return value.text(names)
        case Layout() | Shared():
            return names.get(value) or f'"{value}"'
        case tuple():
            items = [value_text(item, names) for item in value]
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


def _attributes(attrs: Mapping[str, Any], style: Style) -> list[str]:
    return [f"{name}={value_text(value, style.names)}" for name, value in attrs.items()]


def _at(location: Location | None, wanted: bool) -> list[str]:
    return [f"at={str(location)!r}"] if wanted and location is not None else []


def _param(name: str, type_: str, hints: Mapping[str, Mapping[str, Any]]) -> str:
    known = f"({', '.join(_attributes(hints[name], Style()))})" if hints.get(name) else ""
    return f"{name}: {type_}{known}"


def _block(block: Block, style: Style) -> Iterator[str]:
    if not block.operations:
        yield "pass"
    for operation in block.operations:
        yield operation_text(operation, style)
        for name, region in zip(style.operators[operation.op].regions, operation.regions, strict=True):
            yield f"def {name}({', '.join([f'{arg.name}: {arg.type.text(style.names)}' for arg in region.args])}):"
            yield from _indented(_block(region, style))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return ("    " + line for line in lines)
