"""What torch's Python functions read when they run as one call of the graph.

Such a function is not interpreted, so that nothing else would see that somebody has replaced a function that it calls:
its code, its defaults, and what its names stand for in torch's modules and on tensors are guarded here.
Neighbours: `functions.py` (which functions these are), `tensor_class.py`.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from stator.capture.source import ConstSource, FunctionDefaultSource, InstanceDictSource, ItemSource
from stator.capture.values import watch
from stator.capture.values.lookup import look_up
from stator.capture.values.torch.tensor_class import OWN, is_torchs, own_method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stator.capture.machine import Machine


class Reads(NamedTuple):
    """What a function reads, and those that it calls: (module, name) and names of tensor methods."""

    functions: tuple[types.FunctionType, ...]
    globals: tuple[tuple[types.ModuleType, str, Any], ...]
    methods: tuple[str, ...]


def names_of(code: types.CodeType) -> Iterator[str]:
    """The names that a code object uses, with those of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)


@functools.lru_cache(maxsize=4096)
def reads_of(function: types.FunctionType, modules: frozenset[str]) -> Reads:
    """What a function of these modules reads, and those of these modules that it calls."""
    functions: dict[types.FunctionType, None] = {function: None}
    places: dict[tuple[types.ModuleType, str], Any] = {}
    methods: dict[str, None] = {}
    pending = [function]
    while pending:
        current = pending.pop()
        for module, name, found in globals_of(current):
            places[module, name] = found
            if isinstance(found, types.FunctionType) and found.__module__ in modules and found not in functions:
                functions[found] = None
                pending.append(found)
        methods.update(dict.fromkeys(name for name in names_of(current.__code__) if name in OWN[torch.Tensor]))
    return Reads(tuple(functions), tuple((*place, found) for place, found in places.items()), tuple(methods))


def globals_of(function: types.FunctionType) -> Iterator[tuple[types.ModuleType, str, Any]]:
    """The names of a function in its own module, and in torch's modules that it names."""
    own = sys.modules.get(function.__module__)
    if own is None or vars(own) is not function.__globals__:
        return
    names = dict.fromkeys(names_of(function.__code__))
    for name in names:
        found = vars(own).get(name)
        if name in vars(own):
            yield own, name, found
        if isinstance(found, types.ModuleType) and found.__name__.partition(".")[0] == "torch":
            yield from ((found, attribute, vars(found)[attribute]) for attribute in names if attribute in vars(found))


def is_whole(function: types.FunctionType, modules: frozenset[str]) -> bool:
    """Whether all that a leaf reads is torch's own."""
    reads = reads_of(function, modules)
    if any(vars(module).get(name) is not found for module, name, found in reads.globals):
        reads_of.cache_clear()
        reads = reads_of(function, modules)
    if any(own_method(name) is not None for name in reads.methods):
        return False
    return all(is_torchs(found) for _, _, found in reads.globals if callable(found))


def guard_reads(tx: Machine, function: types.FunctionType, modules: frozenset[str]) -> None:
    """The function does what it does now."""
    reads = reads_of(function, modules)
    for each in reads.functions:
        watch.code(tx, ConstSource(each), each)
        for index, default in enumerate(each.__defaults__ or ()):
            watch.identity(tx, FunctionDefaultSource(ConstSource(each), index), default)
    for module, name, found in reads.globals:
        watch.identity(tx, ItemSource(InstanceDictSource(ConstSource(module)), name), found)
    for name in reads.methods:
        look_up(tx, torch.Tensor, name)
