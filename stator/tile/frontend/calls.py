"""Calls in kernels: of jit functions, of the language, of Python's builtins, and of what is known while compiling.

A jit function's text becomes part of the caller's, with its arguments as names; one that is `noinline` becomes a
function of the module, once for each list of argument types, and a `call`.
Neighbours: `names.py` gives what names mean; `stator.tile.jit` has the class of jit functions.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.expressions import spread
from stator.tile.frontend.generator import (
    Generator,
    Session,
    expression,
    ir_name,
    is_known,
    lift,
    plain,
)
from stator.tile.frontend.names import BUILTINS
from stator.tile.frontend.source import Source
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.language import arithmetic, effects, ranges
from stator.tile.language.aggregates import aggregate_value, bound_method, jit_callable
from stator.tile.language.context import emit_operation
from stator.tile.language.promotion import is_number
from stator.tile.language.static import base_type, base_value, constexpr
from stator.tile.language.types import tuple_type
from stator.tile.language.values import sequence, tensor, tuple, type_of

#: So many functions inside one another are taken for calls without end.
DEPTH = 64
_LANGUAGE = "stator.tile.language"


@expression(ast.Call)
def visit_call(g: Generator, node: ast.Call) -> Any:
    function = g.evaluate(node.func)
    args = spread(g, node.args)
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise g.unsupported(keyword, "** in a call", "name the arguments")
        named[keyword.arg] = g.evaluate(keyword.value)
    return lift(call(g, function, args, named))


def call(g: Generator, function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The value of a call."""
    if isinstance(function, constexpr):
        function = function.value
    match function:
        case bound_method():
            return call(g, function.function, [function.instance, *args], named)
        case jit_callable():
            return _call_jit(g, function, args, named)
        case type() if issubclass(function, aggregate_value):
            return function(*args, **named)
        case type() if issubclass(function, builtins.tuple) and hasattr(function, "_fields"):
            return _named_tuple(function, args, named)
    if function in PLAIN:
        return PLAIN[function](*args, **named)
    if _is_language(function):
        return function(*args, **named)
    return _call_python(function, args, named)


def _is_language(function: Any) -> bool:
    """Whether something is a function, class or method of the language."""
    if isinstance(function, MethodType):
        return isinstance(function.__self__, base_value)
    return str(getattr(function, "__module__", "")).startswith(_LANGUAGE)


def _named_tuple(made_by: type, args: Sequence[Any], named: Mapping[str, Any]) -> tuple:
    fields: Any = made_by._fields  # type: ignore[attr-defined]
    bound = inspect.signature(made_by).bind(*args, **named)
    bound.apply_defaults()
    items = [lift(bound.arguments[field]) for field in fields]
    return tuple(items, tuple_type([type_of(item) for item in items], fields, made_by))


def _call_python(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """A function of Python's, for values that are known: it is called now."""
    name = getattr(function, "__name__", str(function))
    if not callable(function):
        raise InvalidUse(f"{name} cannot be called")
    if getattr(function, "__constexpr_function__", False) or _is_library(function):
        unknown = [item for item in [*args, *named.values()] if not is_known(item)]
        if unknown:
            raise InvalidUse(
                f"{name} is called while the kernel is compiled, and {unknown[0]} is not known then",
                "use a function of tl",
            )
        return function(*map(plain, args), **{key: plain(item) for key, item in named.items()})
    raise InvalidUse(
        f"{name} is a Python function, which kernels cannot call",
        "decorate it with @triton.jit, or with @triton.constexpr_function if it computes what is known while compiling",
    )


def _is_library(function: Any) -> bool:
    """Functions without state that modules of Python's own have, methods of known values, and exceptions to neither."""
    if isinstance(function, BuiltinFunctionType):
        return function.__self__ is None or not callable(function.__self__)
    if isinstance(function, MethodType):
        return not isinstance(function.__self__, base_value)
    return isinstance(function, FunctionType) and function.__module__ in ("math", "operator")


# ---- jit functions


def bind(source: Source, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of parameters, with defaults."""
    signature = inspect.signature(source.function)
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        raise InvalidUse(f"{source.name}: {error}", f"it is {source.name}{signature}") from error
    bound.apply_defaults()
    return {name: lift(value) for name, value in bound.arguments.items()}


def _scope(source: Source, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a function begins with."""
    parameters = source.tree.args
    scope = {}
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        # What is annotated as constexpr may be a tensor here: only a launch needs to tell them apart.
        scope[parameter.arg] = arguments[parameter.arg]
    if parameters.vararg is not None:
        scope[parameters.vararg.arg] = lift(arguments[parameters.vararg.arg])
    if parameters.kwarg is not None:
        raise InvalidUse(f"{source.name} collects keywords, and a jit function cannot", "name its parameters")
    return scope


def _call_jit(g: Generator, function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    source: Source = function.source
    arguments = _scope(source, bind(source, args, named))
    if len(g.session.generators) >= DEPTH:
        raise InvalidUse(f"{source.name} calls itself without end", "kernels have no recursion: write a loop")
    if function.noinline:
        return _call_noinline(g, source, arguments)
    return generate(g.session, source, g.builder, arguments)


def generate(session: Session, source: Source, builder: IRBuilder, arguments: dict[str, Any]) -> Any:
    """A function's text at the end of a block; what it returns."""
    inner = Generator(session, source, builder, arguments)
    session.generators.append(inner)
    around = session.context.builder
    session.context.builder = builder
    try:
        returned = inner.run(source.tree.body)
    finally:
        session.context.builder = around
        session.generators.pop()
    return None if returned is None else returned.value


def _call_noinline(g: Generator, source: Source, arguments: dict[str, Any]) -> Any:
    """A call of a function that stays one."""
    types = {name: _argument_type(value) for name, value in arguments.items()}
    key = (source.function, builtins.tuple(types.items()))
    if key in g.session.open:
        raise InvalidUse(f"{source.name} calls itself", "kernels have no recursion: write a loop")
    if key not in g.session.functions:
        g.session.open.add(key)
        g.session.functions[key] = _make_function(g.session, source, types)
        g.session.open.discard(key)
    name, result = g.session.functions[key]
    operands = [handle for item in arguments.values() if isinstance(item, base_value) for handle in item.handles()]
    given = builtins.tuple(result.handle_types())
    return result.assemble(iter(emit_operation("call", operands, callee=name, types=given)))


def _argument_type(value: Any) -> base_type:
    found: base_type = type_of(value)
    return found


def parameter_names(types: Mapping[str, base_type]) -> list[str]:
    """A name for each handle of parameters of some types."""
    found: list[str] = []
    for name, type in types.items():
        for position, _ in enumerate(type.handle_types()):
            wanted = ir_name(name if position == 0 else f"{name}_{position}")
            while wanted in found:
                wanted += "_"
            found.append(wanted)
    return found


def _make_function(session: Session, source: Source, types: Mapping[str, base_type]) -> Any:
    """A function of the module for arguments of some types: its name, and the type of what it returns."""
    given = [each for type in types.values() for each in type.handle_types()]
    parameters = dict(zip(parameter_names(types), given, strict=True))
    name, count = ir_name(source.name), 1
    while name in session.module.functions:
        name, count = f"{ir_name(source.name)}_{count}", count + 1
    made, builder = new_function(session.module, name, parameters, (), source.location(source.tree), noinline=True)
    handles = iter(made.params)
    scope = {parameter: type.assemble(handles) for parameter, type in types.items()}
    value = generate(session, source, builder, scope)
    result = _argument_type(value)
    operands = value.handles() if isinstance(value, base_value) else []
    made.results = builtins.tuple(operand.type for operand in operands)
    builder.emit("return", operands)
    return name, result


def combine(session: Session) -> Callable[[Any, Sequence[Any]], Any]:
    """How the language's functions call functions of the program, in the block that is being built."""

    def apply(function: Any, args: Sequence[Any]) -> Any:
        return lift(call(session.generators[-1], lift(function), args, {}))

    return apply


# ---- builtins


def _extreme(op: Callable[[Any, Any], Any], choose: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        items = sequence(args[0]) if len(args) == 1 else list(args)
        if all(map(is_known, items)):
            return choose(map(plain, items))
        result = items[0]
        for item in items[1:]:
            result = op(result, item)
        return result

    return apply


def _length(value: Any) -> int:
    if isinstance(value, tensor):
        if not value.type.shape:
            raise InvalidUse("a number has no length")
        return int(value.type.shape[0])
    return len(value)


def _is_instance(value: Any, kinds: Any) -> bool:
    wanted = builtins.tuple(BACKWARD.get(plain(kind), plain(kind)) for kind in sequence(kinds))
    if isinstance(value, constexpr) and constexpr not in wanted:
        value = value.value
    return isinstance(value, wanted)


def _convert(kind: type) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        if is_number(value) or isinstance(plain(value), str):
            return kind(plain(value))
        raise InvalidUse(
            f"{kind.__name__}() takes what is known while compiling, not {value}", "cast a tensor with `.to`"
        )

    return apply


def _absolute(value: Any) -> Any:
    return abs(plain(value)) if is_known(value) else abs(value)


def _zip(*values: Any) -> list[Any]:
    return [tuple(list(items)) for items in zip(*[sequence(value) for value in values], strict=False)]


def _all(values: Any) -> Any:
    return all(plain(item) for item in sequence(values))


def _any(values: Any) -> Any:
    return any(plain(item) for item in sequence(values))


def _print(*values: Any, sep: Any = " ", end: Any = "\n") -> None:
    """Known values are the text, and the tensors behind it are printed when the kernel runs."""
    texts = [str(plain(value)) for value in values if is_known(value)]
    effects.device_print(" ".join(texts), *[value for value in values if not is_known(value)])


#: A builtin → what it does in kernels.
PLAIN: dict[Any, Callable[..., Any]] = {
    max: _extreme(arithmetic.maximum, max),
    min: _extreme(arithmetic.minimum, min),
    len: _length,
    isinstance: _is_instance,
    int: _convert(int),
    float: _convert(float),
    bool: _convert(bool),
    str: lambda value: str(plain(value)),
    abs: _absolute,
    zip: _zip,
    all: _all,
    any: _any,
    print: _print,
    list: lambda value=(): tuple(sequence(value)),
    builtins.tuple: lambda value=(): tuple(sequence(value)),
    getattr: lambda value, name, *default: getattr(value, plain(name), *default),
    hasattr: lambda value, name: hasattr(value, plain(name)),
    type: lambda value: type(value.value) if isinstance(value, constexpr) else type_of(value),
    constexpr: lambda value: constexpr(plain(value)) if is_known(value) else _refuse_constexpr(value),
}
BUILTINS[range] = ranges.range
#: A class of the language → the builtin that means it in `isinstance`.
BACKWARD: dict[Any, Any] = {builtins.tuple: tuple, list: tuple}


def _refuse_constexpr(value: Any) -> Any:
    raise InvalidUse(f"{value} is not known while compiling, and cannot be a constexpr")
