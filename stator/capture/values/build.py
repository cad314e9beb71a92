"""The front door of the values: how the machine makes them (the `Builder` protocol of `value.py`).

Importing it fills the tables of `registry.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.capture.values.autograd import checkpointing, flexible, gradients, inference, views, vmap
from stator.capture.values.autograd import function as autograd_function
from stator.capture.values.python import operators
from stator.capture.values.python.constant import SliceValue
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.mapping import dict_of
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.library import (
    builtin_types,
    context_variable,
    copying,
    functional,
    numpy_scalars,
    pure,
    sharing,
    warning,
)
from stator.capture.values.python.objects import class_statement
from stator.capture.values.python.objects import module as python_module
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.python.objects.function import CellValue, FunctionValue
from stator.capture.values.registry import fresh, wrap
from stator.capture.values.stator import compiled, markers
from stator.capture.values.torch import (
    autocast,
    default_device,
    distributions,
    functions,
    nn_module,
    optimizer,
    profiler,
    random_generator,
    read_float,
    state,
    switches,
    tensor_methods,
)

if TYPE_CHECKING:
    from types import CellType, CodeType

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value

__all__ = [
    "const", "make_cell", "make_dict", "make_exception", "make_function", "make_list", "make_set", "make_slice",
    "make_tuple", "operators", "wrap",
]  # fmt: skip

#: The files that register what they know.
FILES = (
    builtin_types, class_statement, context_variable, copying, functional, numpy_scalars, pure, python_module, sharing,
    warning,
    autocast, default_device, distributions, functions, nn_module, optimizer, profiler, random_generator, read_float,
    state, switches, tensor_methods,
    autograd_function, checkpointing, flexible, gradients, inference, views, vmap,
    compiled, markers,
)  # fmt: skip

const = fresh


def make_tuple(items: list[Value]) -> Value:
    """A tuple display."""
    return TupleValue(items)


def make_list(items: list[Value]) -> Value:
    """A list display."""
    return ListValue(items)


def make_set(tx: Machine, items: list[Value]) -> Value:
    """A set display."""
    return SetValue.of(tx, items)


def make_dict(tx: Machine, pairs: list[tuple[Value, Value]]) -> Value:
    """A dict display."""
    return dict_of(tx, pairs)


def make_slice(start: Value, stop: Value, step: Value) -> Value:
    """A slice."""
    return SliceValue((start, stop, step))


def make_function(
    tx: Machine,
    code: CodeType,
    qualname: str,
    closure: list[Value],
    defaults: list[Value],
    keyword_defaults: dict[str, Value],
    annotations: Value | None,
) -> Value:
    """`def` or `lambda`."""
    return FunctionValue(code, tx.globals, qualname, closure, defaults, keyword_defaults, annotations)


def make_cell(
    content: Value | None, cell: CellType | None = None, source: Source | None = None, contents: Source | None = None
) -> Value:
    """A closure cell."""
    return CellValue(content, cell, source=source, contents=contents)


def make_exception(tx: Machine, cls: type[BaseException], args: list[Value]) -> Value:
    """An exception instance, without running a Python `__init__`."""
    return ExceptionValue(cls, list(args))
