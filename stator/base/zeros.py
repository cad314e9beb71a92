"""Zeros that take next to no memory, of the types of devices that have such: one table, which targets fill.

They are memory that many tensors share, so nobody may write to it, nor get it as something of his own.
Neighbours: `aot/zeros.py` asks, `targets/cuda/zeros.py` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: Type of a device → (number of the device, bytes) → a tensor of at least so many zero bytes, which lives as long as
#: the process; None where the device has none.
SHARED: Final[dict[str, Callable[[int, int], Any]]] = {}
