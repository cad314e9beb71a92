"""The memory that a kernel may touch: allocations by their address. What lies outside of them is a fault, not a crash.

Pointers are addresses of the process. Before anything is read or written, every place whose mask holds is checked to
lie inside of one allocation and at a multiple of its size. Elements are read and written through numpy views of the
allocations' bytes, so that tensors see at once what a kernel writes.
Neighbours: `access` has the operators; who launches a kernel adds the storage of its tensors.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.interpret.casts import Data
from stator.tile.interpret.compute import Fault


@dataclass(slots=True)
class Allocation:
    """Bytes from an address on, and whose they are."""

    address: int
    size: int
    names: list[str]
    _views: dict[np.dtype[Any], Data] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.address + self.size

    def view(self, dtype: np.dtype[Any]) -> Data:
        """Its elements of a dtype; the first one is at the first address that is a multiple of their size."""
        if dtype not in self._views:
            whole = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address))
            aligned = whole[-self.address % dtype.itemsize :]
            self._views[dtype] = aligned[: len(aligned) // dtype.itemsize * dtype.itemsize].view(dtype)
        return self._views[dtype]

    def positions(self, addresses: Data, itemsize: int) -> Data:
        """Where in the view of elements of a size they lie."""
        return (addresses - (self.address + -self.address % itemsize)) // itemsize


class Memory:
    """Allocations, none of which overlap."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._starts = np.zeros(0, np.int64)

    def add(self, address: int, size: int, name: str) -> None:
        """So many bytes from an address on, which kernels may touch. One that overlaps others becomes one with them."""
        if size <= 0:
            return
        joined = [a for a in self.allocations if a.address < address + size and address < a.end]
        if len(joined) == 1 and joined[0].address <= address and address + size <= joined[0].end:
            joined[0].names += [name] * (name not in joined[0].names)
            return
        start = min([address, *[a.address for a in joined]])
        end = max([address + size, *[a.end for a in joined]])
        names = list(dict.fromkeys([name for a in joined for name in a.names] + [name]))
        self.allocations = [a for a in self.allocations if a not in joined]
        where = bisect_right([a.address for a in self.allocations], start)
        self.allocations.insert(where, Allocation(start, end - start, names))
        self._starts = np.array([a.address for a in self.allocations], np.int64)

    def add_array(self, array: Data, name: str) -> int:
        """The memory of a numpy array, which must be contiguous; gives its address."""
        address = array.__array_interface__["data"][0]
        self.add(address, array.nbytes, name)
        return address

    def find(self, addresses: Data, itemsize: int, what: str) -> Allocation | Data:
        """The allocation in which elements lie, or the number of it for each; Fault where one lies nowhere."""
        low, high = int(addresses.min()), int(addresses.max())
        number = int(np.searchsorted(self._starts, low, "right")) - 1
        inside = number >= 0 and high <= self.allocations[number].end - itemsize
        found = self.allocations[number] if inside else np.searchsorted(self._starts, addresses, "right") - 1
        if not isinstance(found, Allocation):
            self._check_ends(addresses, found, itemsize, what)
        if (addresses & (itemsize - 1)).any():
            first = int(addresses[addresses & (itemsize - 1) != 0].flat[0])
            raise Fault(f"{what} of {itemsize} bytes at {self.describe(first)}: no multiple of {itemsize}")
        return found

    def _check_ends(self, addresses: Data, numbers: Data, itemsize: int, what: str) -> None:
        ends = np.array([*[a.end for a in self.allocations], 0], np.int64)
        outside = (numbers < 0) | (addresses > ends[numbers] - itemsize)
        if outside.any():
            first = int(addresses[outside].flat[0])
            others = f" (one of {int(outside.sum())} such places)" if outside.sum() > 1 else ""
            raise Fault(
                f"{what} of {itemsize} bytes outside of the memory of all arguments, {self.describe(first)}{others}"
            )

    def describe(self, address: int) -> str:
        """Where an address is, in words."""
        near = min(self.allocations, key=lambda a: max(a.address - address, address - a.end + 1, 0), default=None)
        if near is None:
            return f"at address {address:#x}; the kernel was given no memory"
        names, offset = " and ".join(near.names), address - near.address
        if offset < 0:
            return f"{-offset} bytes before {names}"
        if offset >= near.size:
            return f"{offset - near.size} bytes behind {names}, which has {near.size}"
        return f"byte {offset} of {names}"

    def read(self, addresses: Data, dtype: np.dtype[Any], what: str = "load") -> Data:
        """The elements at some addresses."""
        if not addresses.size:
            return np.zeros(addresses.shape, dtype)
        found = self.find(addresses, dtype.itemsize, what)
        if isinstance(found, Allocation):
            return np.asarray(found.view(dtype)[found.positions(addresses, dtype.itemsize)])
        result = np.zeros(addresses.shape, dtype)
        for number in np.unique(found):
            here = found == number
            allocation = self.allocations[number]
            result[here] = allocation.view(dtype)[allocation.positions(addresses[here], dtype.itemsize)]
        return result

    def write(self, addresses: Data, values: Data, what: str = "store") -> None:
        """Elements to some addresses; where two go to one place, the last one stays."""
        if not addresses.size:
            return
        found = self.find(addresses, values.dtype.itemsize, what)
        if isinstance(found, Allocation):
            found.view(values.dtype)[found.positions(addresses, values.dtype.itemsize)] = values
            return
        for number in np.unique(found):
            here = found == number
            allocation = self.allocations[number]
            allocation.view(values.dtype)[allocation.positions(addresses[here], values.dtype.itemsize)] = values[here]
