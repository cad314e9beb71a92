"""Runs the LLVM that is written for a GPU on the CPU: all threads of a program side by side, as numpy arrays.

It knows the instructions that `stator.tile.nvidia` writes and no others, and is strict where a GPU is not: every access
of global memory lies in an array that was given, a barrier or shuffle is met by all threads, and what one thread writes
to shared memory another one reads only behind a barrier.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.nvidia.kernel import Text
from tests.tile.nvidia.assembly import Assembly
from tests.tile.nvidia.instructions import HANDLERS
from tests.tile.nvidia.numbers import (
    CONSTANT_BASE,
    FLOATS,
    LOCAL_BASE,
    SHARED_BASE,
    Array,
    MachineError,
    numpy_of,
    split_list,
    typed,
    vector_type,
)  # fmt: skip
from tests.tile.nvidia.warp_groups import WarpGroups


@dataclass
class Block:
    name: str
    lines: list[str] = field(default_factory=list)


class Machine:
    """One kernel."""

    def __init__(self, text: Text, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.text, self.threads = text, text.threads
        self.assembly = Assembly(self)
        self.ranges = sorted(
            [(a.__array_interface__["data"][0], a.nbytes, np.frombuffer(_bytes(a), np.uint8)) for a in arrays],
            key=lambda each: each[0],
        )
        self.starts = np.array([start for start, _, _ in self.ranges], np.uint64)
        self.params: list[str] = []
        self.blocks: list[Block] = []
        self.globals: dict[str, int] = {"@shared": SHARED_BASE}
        self.constant = np.zeros(0, np.uint8)
        self.printed: list[str] = []
        self._read_module(text.llvm)
        self.number = {block.name: i for i, block in enumerate(self.blocks)}

    def _read_module(self, text: str) -> None:
        inside, data = False, b""
        for line in text.splitlines():
            if line.startswith("define"):
                self.params = re.findall(r"i64 (%a\d+)", line)
                inside = True
            elif line.startswith("@") and "private constant" in line:
                name, rest = line.split(" = ", 1)
                self.globals[name] = CONSTANT_BASE + len(data)
                data += self._constant(rest)
                data += b"\0" * (-len(data) % 64)
            elif inside and line == "}":
                inside = False
            elif inside and line.endswith(":") and not line.startswith(" "):
                self.blocks.append(Block(line[:-1]))
            elif inside and line.strip():
                self.blocks[-1].lines.append(line.strip())
        self.constant = np.frombuffer(data, np.uint8).copy()

    def _constant(self, text: str) -> bytes:
        match = re.match(r"private constant \[(\d+) x (\w+)\] (.*?)(, align \d+)?$", text)
        assert match is not None
        if match.group(3).startswith("c"):
            return bytes(int(pair, 16) for pair in re.findall(r"\\(..)", match.group(3)))
        items = [typed(item)[1] for item in split_list(match.group(3)[1:-1])]
        return np.array([self.literal(match.group(2), item) for item in items], numpy_of(match.group(2))).tobytes()

    # ---- running

    def run(self, numbers: Sequence[int], grid: Sequence[int] = (1, 1, 1)) -> None:
        """All programs; arguments are words of 64 bits."""
        for place in itertools.product(*[range(size) for size in reversed(grid)]):
            self.grid, self.place = tuple(grid), tuple(reversed(place))
            self._program(numbers)

    def _program(self, numbers: Sequence[int]) -> None:
        self.shared = np.zeros(self.text.shared, np.uint8)
        self.writer = np.full(self.text.shared, -1, np.int64)
        self.reader = np.full(self.text.shared, -1, np.int64)
        self.local = np.zeros((self.threads, 0), np.uint8)
        self.assembly.groups = [[]]
        self.groups = WarpGroups(self)
        self.tid = np.arange(self.threads, dtype=np.uint32)
        self.env: dict[str, Any] = {
            name: np.full(self.threads, int(number) & (1 << 64) - 1, np.uint64)
            for name, number in zip(self.params, numbers, strict=True)
        }
        self.came = np.full(self.threads, -1)
        pending = [np.zeros(self.threads, bool) for _ in self.blocks]
        pending[0][:] = True
        steps = 0
        while True:
            index = next((i for i, mask in enumerate(pending) if mask.any()), None)
            if index is None:
                return
            steps += 1
            if steps > 200_000:
                raise MachineError("no end is seen")
            self.mask = pending[index]
            pending[index] = np.zeros(self.threads, bool)
            self._block(index, pending)

    def _block(self, index: int, pending: list[Array]) -> None:
        for line in self.blocks[index].lines:
            if line.startswith("br "):
                self._branch(line, pending)
                break
            if line.startswith("ret"):
                break
            self._line(line)
        self.came = np.where(self.mask, index, self.came)

    def _branch(self, line: str, pending: list[Array]) -> None:
        labels = re.findall(r"label %([\w.]+)", line)
        if len(labels) == 1:
            pending[self.number[labels[0]]] |= self.mask
            return
        match = re.match(r"br i1 ([^,]+),", line)
        assert match is not None
        condition = self.value("i1", match.group(1))
        pending[self.number[labels[0]]] |= self.mask & condition
        pending[self.number[labels[1]]] |= self.mask & ~condition

    def _line(self, line: str) -> None:
        match = re.match(r"(%[\w.]+) = (.*)$", line)
        name, text = match.groups() if match else ("", line)
        op = text.split(" ", 1)[0]
        handler = HANDLERS.get(op)
        if handler is None:
            raise MachineError(f"unknown instruction: {line}")
        with np.errstate(all="ignore"):
            found = handler(self, text[len(op) + 1 :], op)
        if name:
            self._set(name, found)

    def _set(self, name: str, value: Any) -> None:
        if name in self.env and not self.mask.all():
            value = _merge(self.mask, value, self.env[name])
        self.env[name] = value

    # ---- values

    def literal(self, type_: str, text: str) -> Any:
        if type_ in FLOATS:
            if text.startswith("0xH"):
                return np.array(int(text[3:], 16), np.uint16).view(np.float16)[()]
            bits = int(text, 16)
            number = np.array(bits, np.uint64).view(np.float64)
            return number.astype(FLOATS[type_])[()]
        if type_ == "i1":
            return text == "true"
        number = int(text) & ((1 << int(type_[1:])) - 1)
        return number if numpy_of(type_).hasobject else numpy_of(type_).type(number)

    def value(self, type_: str, text: str) -> Any:
        text = text.strip()
        if text in self.env:
            return self.env[text]
        count, each = vector_type(type_)
        if text in ("poison", "undef", "zeroinitializer"):
            zero = np.zeros(self.threads, numpy_of(each))
            return [zero] * count if count else zero
        if text in self.globals:
            return np.full(self.threads, self.globals[text], np.uint64)
        if text.startswith("%"):
            raise MachineError(f"{text} has no value")
        return np.full(self.threads, self.literal(type_, text), numpy_of(type_))

    def argument(self, text: str) -> tuple[str, Any]:
        type_, value = typed(text)
        return type_, self.value(type_, value)

    # ---- memory

    def load(self, address: Array, nbytes: int, mask: Array) -> Array:
        """Bytes of each thread; what no thread reads is 0."""
        found = np.zeros((self.threads, nbytes), np.uint8)
        self._access(address, nbytes, mask, found, None)
        return found

    def store(self, address: Array, data: Array, mask: Array) -> None:
        self._access(address, data.shape[1], mask, None, data)

    def _access(self, address: Array, nbytes: int, mask: Array, into: Array | None, data: Array | None) -> None:
        which = np.nonzero(mask)[0]
        if not len(which):
            return
        at = address[which].astype(object)
        base = int(at[0])
        if any(int(a) % nbytes and nbytes & (nbytes - 1) == 0 for a in at):
            raise MachineError(f"an access of {nbytes} bytes is not aligned")
        if base >= CONSTANT_BASE:
            place = np.array([int(a) - CONSTANT_BASE for a in at])
            assert into is not None
            into[which] = self.constant[place[:, None] + np.arange(nbytes)]
        elif base >= LOCAL_BASE:
            place = np.array([int(a) - LOCAL_BASE for a in at])
            index = (which[:, None], place[:, None] + np.arange(nbytes))
            if into is not None:
                into[which] = self.local[index]
            else:
                self.local[index] = data[which]
        elif base >= SHARED_BASE:
            self._shared(which, np.array([int(a) - SHARED_BASE for a in at]), nbytes, into, data)
        else:
            self._global(which, address[which], nbytes, into, data)

    def _shared(self, which: Array, place: Array, nbytes: int, into: Array | None, data: Array | None) -> None:
        index = place[:, None] + np.arange(nbytes)
        if index.min() < 0 or index.max() >= len(self.shared):
            raise MachineError(f"shared memory ends at {len(self.shared)}, and {index.max()} is accessed")
        by = np.broadcast_to(which[:, None], index.shape)
        if into is not None:
            other = self.writer[index]
            if ((other >= 0) & (other != by)).any():
                raise MachineError("a thread reads what another one writes, with no barrier between")
            self.reader[index] = by
            into[which] = self.shared[index]
            return
        assert data is not None
        self.groups.check_write(index)
        same = self.shared[index] == data[which]
        for others in (self.reader, self.writer):
            other = others[index]
            if ((other >= 0) & (other != by) & ~same).any():
                raise MachineError("a thread writes what another one reads or writes, with no barrier between")
        self.writer[index] = np.where(same & (self.writer[index] < 0), -1, by)
        self.shared[index] = data[which]

    def _global(self, which: Array, at: Array, nbytes: int, into: Array | None, data: Array | None) -> None:
        where = np.searchsorted(self.starts, at, side="right").astype(np.int64) - 1
        for number in set(where.tolist()):
            if number < 0:
                raise MachineError("an access before all arrays")
            start, size, view = self.ranges[number]
            chosen = where == number
            place = at[chosen].astype(np.int64) - start
            if (place + nbytes > size).any():
                raise MachineError(f"an access at {int(place.max())} of an array of {size} bytes")
            index = place[:, None] + np.arange(nbytes)
            if into is not None:
                into[which[chosen]] = view[index]
            else:
                view[index] = data[which[chosen]]

    def barrier(self) -> None:
        if not self.mask.all():
            raise MachineError("a barrier that not all threads meet")
        self.writer[:] = -1
        self.reader[:] = -1
        self.groups.barrier()


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(bytearray(1))


def _merge(mask: Array, new: Any, old: Any) -> Any:
    if isinstance(new, list | tuple):
        return type(new)(_merge(mask, a, b) for a, b in zip(new, old, strict=True))
    return np.where(mask, new, old)
