"""Binding call arguments to the slots of a frame, exactly as Python does.

`bind` works on any kind of objects (values while inlining, real objects for the outermost frame): it only moves them.
When a call does not fit, `binding_error` asks the interpreter itself for the TypeError, so its text is CPython's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

from stator.base.errors import InternalError


def parameters(code: CodeType) -> tuple[str, ...]:
    """The names of the first slots, which are the parameters, `*args` and `**kwargs` included."""
    flags = code.co_flags
    stars = bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def bind(
    code: CodeType,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    default: Callable[[int], Any],
    keyword_default: Callable[[str], Any],
    make_tuple: Callable[[list[Any]], Any],
    make_dict: Callable[[dict[str, Any]], Any],
) -> list[Any] | None:
    """The parameters in slot order, or None when the call does not fit the signature.

    `default(position)` and `keyword_default(name)` give None where there is no default.
    """
    flags = code.co_flags
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    given = len(args)
    slots: list[Any] = [None] * len(parameters(code))
    if given > positional:
        if not flags & inspect.CO_VARARGS:
            return None
        slots[:positional] = args[:positional]
    else:
        slots[:given] = args
    named = positional + keyword_only
    if flags & inspect.CO_VARARGS:
        slots[named] = make_tuple(list(args[positional:]))
    if kwargs and not _bind_keywords(code, slots, kwargs, make_dict):
        return None
    if flags & inspect.CO_VARKEYWORDS and slots[-1] is None:
        slots[-1] = make_dict({})
    for position in range(min(given, positional), positional):
        if slots[position] is None and (value := default(position)) is not None:
            slots[position] = value
    for position in range(positional, named):
        if slots[position] is None and (value := keyword_default(code.co_varnames[position])) is not None:
            slots[position] = value
    return None if any(slot is None for slot in slots) else slots


def _bind_keywords(
    code: CodeType, slots: list[Any], kwargs: dict[str, Any], make_dict: Callable[[dict[str, Any]], Any]
) -> bool:
    """Puts keyword arguments into their slots; False when one does not fit."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        position = names.index(name) if name in names else -1
        if position < code.co_posonlyargcount:
            extra[name] = value
        elif slots[position] is not None:
            return False
        else:
            slots[position] = value
    if code.co_flags & inspect.CO_VARKEYWORDS:
        slots[-1] = make_dict(extra)
        return True
    return not extra


def binding_error(
    code: CodeType, qualname: str, count: int, names: Sequence[str], defaults: int, keyword_defaults: Sequence[str]
) -> TypeError:
    """What CPython says to a call with `count` positional and these keyword arguments that does not fit."""
    cells = tuple(CellType() for _ in code.co_freevars)
    function = FunctionType(code, {}, code.co_name, (None,) * defaults, cells)
    function.__qualname__ = qualname
    function.__kwdefaults__ = dict.fromkeys(keyword_defaults)
    try:
        function(*(None,) * count, **dict.fromkeys(names))
    except TypeError as error:
        return error
    raise InternalError("capture", f"binding the arguments of {qualname} failed, but Python accepts them")
