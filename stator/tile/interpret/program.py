"""One program of a grid: what every operator without control flow means to it, in one place.

The tables of `compute`, `tiles`, `products` and `access` are put together here with what only the program knows: where
in the grid it is, its memory, and where it prints. Neighbours: `run` goes through functions of tile IR with it, `eager`
through a kernel's Python text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from stator.tile.interpret.access import ACCESS
from stator.tile.interpret.casts import Data
from stator.tile.interpret.compute import COMPUTE, Fault, Given
from stator.tile.interpret.libdevice import call
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.products import PRODUCTS
from stator.tile.interpret.tiles import TILES, Combine, reduce, scan, split
from stator.tile.ir.types import Pointer, Type

Results: TypeAlias = Sequence[Data]
_PLAIN = COMPUTE | TILES | PRODUCTS


class Program:
    """A program, which may be moved to another place of the grid by setting `place`."""

    def __init__(
        self, memory: Memory, grid: tuple[int, int, int] = (1, 1, 1), place: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        self.memory, self.grid, self.place = memory, grid, place

    def compute(
        self,
        op: str,
        types: Sequence[Type],
        attrs: Mapping[str, Any],
        results: Sequence[Type],
        data: Sequence[Data],
        combine: Combine | None = None,
    ) -> Results:
        """The data of an operation's results. Fault where it has none."""
        given = Given(types, attrs, results)
        if op in _PLAIN:
            return [np.asarray(_PLAIN[op](given, *data))]
        if op in ACCESS:
            found = ACCESS[op](self.memory, given, *data)
            return [] if found is None else [np.asarray(found)]
        return OTHERS[op](self, given, *([] if combine is None else [combine]), *data)

    # ---- rows that need the program, or give several results

    def program_id(self, given: Given) -> Results:
        return [np.asarray(self.place[given.attrs["axis"]], np.int32)]

    def num_programs(self, given: Given) -> Results:
        return [np.asarray(self.grid[given.attrs["axis"]], np.int32)]

    def split(self, given: Given, data: Data) -> Results:
        return split(given, data)

    def reduce(self, given: Given, combine: Combine, *data: Data) -> Results:
        return reduce(given, combine, *data)

    def scan(self, given: Given, combine: Combine, *data: Data) -> Results:
        return scan(given, combine, *data)

    def extern(self, given: Given, *data: Data) -> Results:
        return [call(given.attrs["symbol"], given.types, given.results[0], *data)]

    def inline_asm(self, given: Given, *data: Data) -> Results:
        raise Fault("inline assembly has no meaning without the target's own instructions, so it cannot be interpreted")

    def holds(self, given: Given, data: Data) -> Results:
        """`assert` and `assume`."""
        if not data.all():
            place = tuple(int(i) for i in np.argwhere(~data)[0])
            where = f" at {place}" if place else ""
            message = given.attrs.get("message")
            raise Fault(
                f"an assumption does not hold{where}" if message is None else f"assertion failed{where}: {message}"
            )
        return []

    def print(self, given: Given, *data: Data) -> Results:
        place = ", ".join(map(str, self.place))
        for type_, item in zip(given.types, data, strict=True):
            print(f"pid ({place}) {given.attrs['prefix']}{printed(type_, item, given.attrs['hex'])}")
        if not data:
            print(f"pid ({place}) {given.attrs['prefix']}")
        return []

    def nothing(self, given: Given) -> Results:
        """`barrier`: a program is one thread here."""
        return []


def printed(type_: Type, data: Data, hexadecimal: bool = False) -> str:
    """Numbers as text."""
    element = type_.element
    if not hexadecimal and not isinstance(element, Pointer):
        return str(data.astype(np.float32) if element.is_float and element.bits < 32 else data)
    bits = np.dtype(f"uint{8 * element.itemsize}")
    digits = 2 * element.itemsize
    words = np.ascontiguousarray(data).view(bits).reshape(data.shape)
    return np.array2string(words, formatter={"int": lambda word: f"{int(word):#0{digits + 2}x}"})


OTHERS: dict[str, Callable[..., Results]] = {
    "program_id": Program.program_id, "num_programs": Program.num_programs, "split": Program.split,
    "reduce": Program.reduce, "scan": Program.scan, "extern": Program.extern, "inline_asm": Program.inline_asm,
    "assert": Program.holds, "assume": Program.holds, "print": Program.print, "barrier": Program.nothing,
}  # fmt: skip
