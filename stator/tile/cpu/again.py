"""Launches that are like one before: the machine code is found by a key that costs little, and runs at once.

The key of an argument says no less than `arguments` finds of it: of a tensor its dtype and whether 16 divides its
address, of an integer what is specialised, of what is known while compiling the value. A launch with anything else
among its arguments, or with a default of a parameter that is passed, has no key and goes the long way.
Neighbours: `stator.tile.jit` asks before it looks at arguments, and tells what came of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from stator.tile.arguments import Parameter

_SWITCHES = ("STATOR_TILE_INTERPRET", "TRITON_INTERPRET", "TRITON_DEBUG", "STATOR_TILE_CODE", "STATOR_TILE_STRICT")
_ALIGNMENT = 16
#: Stands for what a name in a dict is that is not there.
ABSENT = object()
#: Parameters that a launcher in C can have.
_MOST = 64
_PLAIN = (int, bool, str, type(None))


@dataclass(frozen=True, slots=True)
class Given:
    """What a launch passes: its key, and the numbers of the parameters in order."""

    key: tuple[Any, ...]
    numbers: list[bool | int | float]
    device: int | None = None


class Launches:
    """The launches of one kernel so far; those on a GPU are also known to a launcher in C."""

    def __init__(self, params: Sequence[Parameter], defaults: Mapping[str, Any], hooks: list[Any]) -> None:
        self.defaults, self.hooks = dict(defaults), hooks
        self.launcher: Any = None
        self.params = list(params)
        self.by_name = {param.name: param for param in params}
        #: The compiled kernels, by key, as long as the kernel's own cache (or a program) has them.
        self.known: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()

    def given(self, args: Sequence[Any], named: Mapping[str, Any]) -> Given | None:
        """The key and the numbers of a launch, or None if it has no key."""
        torch = sys.modules.get("torch")
        if torch is None or len(args) > len(self.params):
            return None
        tensors = (torch.Tensor, torch.nn.Parameter)
        key: list[Any] = [tuple(named), *map(os.environ.get, _SWITCHES)]
        numbers: list[tuple[int, bool | int | float]] = []
        for param, value in zip(self.params, args, strict=False):
            if not _look(param, value, tensors, key, numbers):
                return None
        for name, value in named.items():
            if not _look(self.by_name.get(name), value, tensors, key, numbers):
                return None
        numbers.sort()
        devices = {part[2] for part in key if type(part) is tuple and len(part) == 4}
        if len(devices) > 1:
            return None
        return Given(tuple(key), [number for _, number in numbers], next(iter(devices), None))


def launcher_of(launches: Launches) -> Any:
    """What launches in C, made when a kernel is first launched on a GPU."""
    if launches.launcher is None and len(launches.params) <= _MOST:
        import torch  # which has made the tensors of the launch

        from stator._native import TileLauncher

        flags = [
            param.is_constexpr * 1 | param.do_not_specialize * 2 | (param.dtype is not None) * 4
            for param in launches.params
        ]
        launches.launcher = TileLauncher(
            names=tuple(launches.by_name), flags=tuple(flags), defaults=launches.defaults,
            positions={name: i for i, name in enumerate(launches.by_name)}, hooks=launches.hooks,
            types=(torch.Tensor, torch.nn.Parameter), switches=tuple([name.encode() for name in _SWITCHES]),
            absent=ABSENT,
        )  # fmt: skip
    return launches.launcher


def places_of(captured: Mapping[Any, Any]) -> tuple[tuple[Any, str, Any], ...] | None:
    """Where the names are that a kernel's text has seen: (dict or cell, name, value) each; None if not all are."""
    found: list[tuple[Any, str, Any]] = []
    for source, name in captured:
        places = source.places(name)
        if places is None:
            return None
        found += [(where, name, ABSENT) for where in places[:-1]]
        found.append((places[-1], name, source.captured(name)))
    return tuple(found)


def _look(
    param: Parameter | None, value: Any, tensors: tuple[type, type], key: list[Any], numbers: list[tuple[int, Any]]
) -> bool:
    """Adds what is to be known of an argument (or of an option, which has no parameter); False for what has no key."""
    kind = type(value)
    if param is None or param.is_constexpr:
        key.append((kind, value if kind is not float else repr(value)))
        return kind is float or kind in _PLAIN
    if kind in tensors:
        address = value.data_ptr()
        device = value.get_device() if value.is_cuda else None
        key.append((value.dtype, address % _ALIGNMENT == 0, device, "tensor"))
        numbers.append((param.num, address))
        return device is not None or bool(value.is_cpu)
    if kind is int:
        one = value == 1 and not param.do_not_specialize
        size = 32 if -(1 << 31) <= value < 1 << 31 else 64 if -(1 << 63) <= value < 1 << 63 else 65
        key.append((one, value % _ALIGNMENT == 0, size))
        if not one:
            numbers.append((param.num, value))
        return True
    if kind is float or kind is bool:
        key.append(kind)
        numbers.append((param.num, value))
        return True
    key.append((kind, value) if kind in _PLAIN else None)
    return kind in _PLAIN
