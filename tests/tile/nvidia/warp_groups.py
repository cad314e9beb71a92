"""Hopper's products by warp groups: descriptors, results that are there some time later, and the proxy they read by.

Results that nobody has waited for are NaNs whose bits say which they are. What is read has to have a fence and then a
barrier behind its write, and is not written before the product has been waited for, by all threads.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.tile.nvidia.numbers import SHARED_BASE, MachineError

Array = Any
_GROUP, _ROWS = 128, 64
#: Bits of a quiet NaN, and those that number results.
_NAN, _NUMBER = 0x7FC00000, 0x3FFFFF
_SEEN, _UNFENCED, _FENCED = range(3)
#: How a descriptor names a row → its bytes, and how many bits of an address are exchanged.
_SWIZZLES = {1: (128, 7), 2: (64, 3), 3: (32, 1)}
_DECODE = {
    "f16": lambda words: words.view(np.float16).astype(np.float64),
    "bf16": lambda words: (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64),
}


class WarpGroups:
    """Of one program."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        size = len(machine.shared)
        self.proxy = np.zeros(size, np.int8)
        self.reading = np.zeros(size, np.int64)
        self.begun: dict[int, Array] = {}  # the number of a result → what it will be
        self.numbers = 0
        self.pending: list[
            list[Array]
        ] = []  # of each group of products that has been committed the bytes that it reads
        self.open: list[Array] = []
        self.last: list[int] = []  # of each of those groups the number of its last result
        self.ended = 0
        self.is_fenced = False

    # ---- memory

    def barrier(self) -> None:
        self.proxy[self.proxy == _FENCED] = _SEEN

    def check_write(self, index: Array) -> None:
        if self.reading[index].any():
            raise MachineError("a write to what a warp group may be reading")
        self.proxy[index] = _UNFENCED

    def check_copy(self, address: Array, nbytes: int, mask: Array) -> None:
        """A copy begins, which may write at once."""
        which = np.nonzero(mask)[0]
        index = (address[which].astype(np.int64) - SHARED_BASE)[:, None] + np.arange(nbytes)
        reader = self.machine.reader[index]
        if ((reader >= 0) & (reader != which[:, None])).any():
            raise MachineError("a copy to what another thread reads, with no barrier between")
        self.check_write(index)

    def read(self, index: Array) -> Array:
        """Words of 16 bits."""
        both = index[..., None] + np.arange(2)
        if both.max() >= len(self.machine.shared):
            raise MachineError("a warp group reads behind the end of shared memory")
        if (self.proxy[both] != _SEEN).any():
            raise MachineError("a warp group reads what has no fence and barrier behind it")
        self.open.append(both.reshape(-1))
        return np.ascontiguousarray(self.machine.shared[both]).view(np.uint16)[..., 0]

    # ---- statements

    def statement(self, name: str, rest: str, registers: dict[int, Any]) -> None:
        if not self.machine.mask.all():
            raise MachineError("an instruction of warp groups that not all threads meet")
        match name.split(".")[1]:
            case "proxy":
                self.proxy[self.proxy == _UNFENCED] = _FENCED
            case "fence":
                self.is_fenced = True
            case "mma_async":
                if not self.is_fenced:
                    raise MachineError("a product of registers that no fence is behind")
                self.multiply(name, rest, registers)
            case "commit_group":
                self.pending.append(self.open)
                self.last.append(self.numbers)
                self.open, self.is_fenced = [], False
                for places in self.pending[-1]:
                    np.add.at(self.reading, places, 1)
            case "wait_group":
                self.wait(int(rest), registers)
            case other:
                raise NotImplementedError(other)

    def wait(self, count: int, registers: dict[int, Any]) -> None:
        while len(self.pending) > count:
            for places in self.pending.pop(0):
                np.subtract.at(self.reading, places, 1)
                self.machine.reader[places] = self.machine.threads  # who no thread is
            self.ended = self.last.pop(0)
        for number, value in list(registers.items()):
            token = self.token(value)
            if token is not None and token < self.ended:
                registers[number] = self.begun[token]

    def token(self, value: Array) -> int | None:
        """The number of a result that nobody has yet."""
        bits = np.asarray(value).view(np.uint32) if np.asarray(value).dtype == np.float32 else None
        if bits is None or not (bits == bits[0]).all() or bits[0] & ~np.uint32(_NUMBER) != _NAN:
            return None
        token = int(bits[0] & _NUMBER)
        return token if token in self.begun else None

    def known(self, value: Array) -> Array:
        token = self.token(value)
        return np.asarray(value) if token is None else self.begun[token]

    def multiply(self, name: str, rest: str, registers: dict[int, Any]) -> None:
        match = re.match(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(\w+)\.\2$", name)
        assert match is not None, name
        columns, decode = int(match.group(1)), _DECODE[match.group(2)]
        results, a, b, scale, flags = self.operands(rest)
        assert len(results) == columns // 2 and flags[:2] == [1, 1]
        sums = (
            [registers[n] for n in results]
            if registers[scale].all()
            else [np.zeros(self.machine.threads)] * len(results)
        )
        sums = [self.known(each) for each in sums]
        found = [np.zeros(self.machine.threads, np.float32) for _ in results]
        for group in range(self.machine.threads // _GROUP):
            left = decode(self.left(a, flags, registers, group))
            right = decode(self.matrix(registers[b[0]], flags[-1], columns, group)).T
            self.spread(left @ right, sums, found, group)
        for number, value in zip(results, found, strict=True):
            self.begun[self.numbers] = value
            bits = np.full(self.machine.threads, _NAN | self.numbers, np.uint32)
            registers[number] = bits.view(np.float32)
            self.numbers += 1
        assert self.numbers < _NUMBER

    @staticmethod
    def operands(rest: str) -> tuple[list[int], list[int], list[int], int, list[int]]:
        """Results, the left operand, the right one, whether sums count, and numbers."""
        match = re.match(r"\{(.*?)\}, (\{.*?\}|\$\d+), \$(\d+), \$(\d+), (.*)$", rest)
        assert match is not None, rest
        results, a = ([int(n) for n in re.findall(r"\$(\d+)", match.group(i))] for i in (1, 2))
        return results, a, [int(match.group(3))], int(match.group(4)), [int(n) for n in match.group(5).split(", ")]

    def spread(self, product: Array, sums: list[Array], found: list[Array], group: int) -> None:
        """To the threads of a group."""
        thread = np.arange(_GROUP)
        warp, lane = thread >> 5, thread & 31
        for place, total in enumerate(sums):
            row = 16 * warp + (lane >> 2) + 8 * (place >> 1 & 1)
            column = 8 * (place >> 2) + 2 * (lane & 3) + (place & 1)
            where = group * _GROUP + thread
            found[place][where] = product[row, column] + total[where].astype(np.float64)

    def left(self, numbers: list[int], flags: list[int], registers: dict[int, Any], group: int) -> Array:
        """Words of 16 bits of 64 by 16: from memory, or four words of 32 bits of each thread."""
        if len(numbers) == 1:
            return self.matrix(registers[numbers[0]], flags[2], _ROWS, group)
        found = np.zeros((_ROWS, 16), np.uint16)
        thread = np.arange(_GROUP)
        warp, lane = thread >> 5, thread & 31
        for place, number in enumerate(numbers):
            words = np.ascontiguousarray(registers[number][group * _GROUP :][:_GROUP]).view(np.uint16).reshape(-1, 2)
            for half in range(2):
                row = 16 * warp + (lane >> 2) + 8 * (place & 1)
                found[row, 2 * (lane & 3) + half + 8 * (place >> 1)] = words[:, half]
        return found

    def matrix(self, descriptors: Array, turned: int, outer: int, group: int) -> Array:
        """Words of `outer` by 16, where the descriptor of a group says."""
        own = descriptors[group * _GROUP :][:_GROUP]
        if (own != own[0]).any():
            raise MachineError("threads of a warp group have different descriptors")
        descriptor = int(own[0])
        address, column, atom = (((descriptor >> at) & 0x3FFF) << 4 for at in (0, 16, 32))
        row, exchanged = _SWIZZLES[descriptor >> 62 & 3]
        o, k = np.arange(outer)[:, None], np.arange(16)[None, :]
        if turned:
            inside = row // 2
            place = address + (k // 8) * atom + (k % 8) * row + (o // inside) * column + (o % inside) * 2
        else:
            place = address + (o // 8) * atom + (o % 8) * row + k * 2
        place = place ^ ((place >> 7 & exchanged) << 4)
        return self.read(place - (SHARED_BASE & 0x3FFFF))
