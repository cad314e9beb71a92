"""How long a product of bfloat16 takes: by blocks of tiles of the processor in a kernel of ours, and by oneDNN.

A block of rows and columns needs all terms of both. So a core that goes through columns first has its rows in its cache
all along and reads each part of the weight once, and one that goes through rows first has the weight; a factor that its
cache does not hold comes again for each block. What oneDNN takes was fitted to 16 shapes of 64 to 394 rows, most to
within a tenth (Xeon with AMX, two threads, torch 2.11).
Neighbours: `pairs.py` has how a weight lies; `passes/pairs.py` chooses between the two, `kernel/pairs.py` the order.
"""

from __future__ import annotations

from math import ceil, prod
from typing import NamedTuple

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE

#: Rows and columns of a block: two tiles each way, whose sums fill half of the eight that a core has.
ROWS, COLUMNS = 32, 32
#: Rows, columns and terms of what one instruction multiplies, and the nanoseconds that it takes with what it loads.
_TILE, _STEP, _LIBRARY_STEP = (16, 16, 32), 12.3, 9.3
#: Nanoseconds of a call of the library, beside multiplying.
_CALL = 33_000
#: Bytes in a nanosecond that a thread gets from behind its cache, and that one of the library's takes of each factor.
_RATE, _LIBRARY_X_RATE, _LIBRARY_WEIGHT_RATE = 50.0, 6.0, 18.0
#: What part of a core's cache a factor may fill and still be there for the next block.
_PART = 2
#: A line that columns first writes is far from the one before, which counts twice.
_FAR = 2


class Product(NamedTuple):
    """The sizes of a product: rows and columns of its result, terms of each sum."""

    rows: int
    columns: int
    terms: int

    def by_columns(self, device: Device) -> bool:
        """Whether a thread goes through all rows before it goes on to other columns: it moves less so."""
        return self._moved(device, True) < self._moved(device, False)

    def time(self, device: Device) -> float:
        """Nanoseconds that a kernel of ours takes."""
        moved = min(self._moved(device, by_columns) for by_columns in (True, False))
        return _STEP * self._steps / device.cores + moved / _RATE

    def library_time(self, device: Device) -> float:
        """Nanoseconds that oneDNN takes, by a weight in its order, with the pass over results that follows."""
        moved = self._x / _LIBRARY_X_RATE + self._weight / _LIBRARY_WEIGHT_RATE + self._result / _RATE
        return _CALL + (_LIBRARY_STEP * self._steps + moved) / device.cores

    def _moved(self, device: Device, by_columns: bool) -> float:
        """Bytes that come to a thread from behind its cache, or leave it."""
        if by_columns:
            kept, once, blocks = self._x, self._weight + _FAR * self._result, ceil(self.columns / COLUMNS)
        else:
            kept, once, blocks = self._weight, self._x + self._result, ceil(self.rows / ROWS)
        times = 1.0 if _PART * kept <= device.cache_bytes else max(blocks / device.cores, 1.0)
        return kept * times + once / device.cores

    @property
    def _steps(self) -> int:
        """Instructions that multiply tiles, some of which are not full."""
        return prod([ceil(size / tile) for size, tile in zip(self, _TILE, strict=True)])

    @property
    def _x(self) -> int:
        return ITEMSIZE["bf16"] * self.rows * self.terms

    @property
    def _weight(self) -> int:
        return ITEMSIZE["bf16"] * self.columns * self.terms

    @property
    def _result(self) -> int:
        return ITEMSIZE["bf16"] * self.rows * self.columns
