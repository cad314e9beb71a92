"""What the processor is: its maker, its model and its instruction set extensions, as Linux names them.

Read once, from one file; empty where it cannot be read. Neighbours: `codegen/cpp/target.py` chooses the vector width
by it, `lowering/product.py` the library for matrix products; compiled code is filed under `identity()`.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import NamedTuple


class Processor(NamedTuple):
    """`maker` is "GenuineIntel", "AuthenticAMD", …"""

    maker: str
    flags: frozenset[str]


@cache
def processor() -> Processor:
    """This machine's."""
    maker, flags = "", frozenset[str]()
    for line in _description():
        name, _, value = line.partition(":")
        match name.strip():
            case "vendor_id":
                maker = value.strip()
            case "flags" | "Features":
                return Processor(maker, frozenset(value.split()))
    return Processor(maker, flags)


@cache
def identity() -> str:
    """Architecture, model and extensions as text: all that `-march=native` depends on."""
    wanted = {line.strip() for line in _description() if line.startswith(("model", "flags", "Features", "CPU part"))}
    return f"{platform.machine()} {' '.join(sorted(wanted))}"


@cache
def _description() -> tuple[str, ...]:
    """The lines of the system's description of its processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return tuple(lines)
    except OSError:
        return ()
