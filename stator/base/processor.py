"""What the processor is: its maker and its instruction set extensions, as Linux names them.

Read once, from one file; empty where it cannot be read. Neighbours: `codegen/cpp/target.py` chooses the vector width
by it, `lowering/product.py` the library for matrix products.
"""

from __future__ import annotations

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
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                match name.strip():
                    case "vendor_id":
                        maker = value.strip()
                    case "flags" | "Features":
                        return Processor(maker, frozenset(value.split()))
    except OSError:
        pass
    return Processor(maker, flags)
