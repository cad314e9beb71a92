"""Targets: what graphs are compiled for. One is a package that says all about a type of device, in three modules.

`record` knows the machine, `printer` writes kernels for it, `toolchain` compiles, loads and queues them, and a
`recorder`, where there is one, keeps calls for later; `target.py` has what each is asked. The package stands here under
torch's name of the type; one that stands elsewhere is registered. A module is imported when it is first asked for: what
runs needs no printer, and graphs of one device nothing of another. No other package knows the name of a device.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, cast

from stator.base.device import Device, kind_of
from stator.base.errors import Unsupported
from stator.targets.target import Building, Printer, Record, Recorder, Toolchain

__all__ = ["Building", "Recorder", "has", "kinds", "printer", "record", "recorder", "register", "toolchain", "typical"]

#: The types that have their package here.
OURS = frozenset([found.name for found in iter_modules(__path__) if found.ispkg])
#: Type of a device → the package of its target, where that is none of ours.
PACKAGES: dict[str, str] = {}


def register(kind: str, package: str) -> None:
    """Compile for devices of a type by a package of three modules, from now on."""
    PACKAGES[kind] = package


def kinds() -> list[str]:
    """The types of devices that there are targets for."""
    return sorted(OURS | PACKAGES.keys())


def has(kind: str) -> bool:
    """Whether there is a target for a type of device."""
    return kind in OURS or kind in PACKAGES


def record(device: str) -> Record:
    """What knows the machine; a device may have its number."""
    return cast(Record, _module(device, "record"))


def printer(device: str) -> Printer:
    """What writes kernels."""
    return cast(Printer, _module(device, "printer"))


def toolchain(device: str) -> Toolchain:
    """What compiles, loads and queues kernels."""
    return cast(Toolchain, _module(device, "toolchain"))


def recorder(device: str) -> Recorder | None:
    """What records calls; None where the devices of the type record none, or cannot be asked to."""
    kind = kind_of(device)
    package = PACKAGES.get(kind, f"{__name__}.{kind}")
    if not has(kind) or find_spec(f"{package}.recorder") is None:
        return None
    found = cast(Recorder, import_module(f"{package}.recorder"))
    try:
        found.driver()
    except NotImplementedError:
        return None
    return found


def typical(kind: str, cores: int = 0) -> Device:
    """The record of a machine that is the same everywhere."""
    return record(kind).typical(cores)


def _module(device: str, part: str) -> Any:
    kind = kind_of(device)
    if not has(kind):
        raise Unsupported(f"a graph on a device of type {kind}", "there is no target for it")
    return import_module(f"{PACKAGES.get(kind, f'{__name__}.{kind}')}.{part}")
