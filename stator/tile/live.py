"""Memory of tensors that are no arguments, for kernels that make pointers of integers (a grouped product's addresses).

Such a kernel reads addresses from memory, and nothing says of which tensors they are. When it touches what no argument
covers, the tensors that are alive in the process are looked for there; what lies in none of them is a fault as ever.
Other kernels are not given this: it would hide that they miss their arguments.
Neighbours: `launch.py` chooses the memory; `stator.tile.interpret.memory` has the checks.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np

from stator.tile.interpret.compute import Fault
from stator.tile.interpret.memory import Allocation, Memory


class LiveMemory(Memory):
    """The memory of arguments, and of tensors of the process once they are touched."""

    def find(self, addresses: Any, itemsize: int, what: str) -> Allocation | Any:
        try:
            return super().find(addresses, itemsize, what)
        except Fault:
            if not self._add_touched(np.unique(addresses)):
                raise
            return super().find(addresses, itemsize, what)

    def _add_touched(self, addresses: Any) -> bool:
        """Adds the tensors in which some addresses lie; whether there are any."""
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        found = False
        for item in gc.get_objects():
            # Subclasses (fake tensors, wrappers) and sparse layouts have no memory of their own to compare with.
            if type(item) not in (torch.Tensor, torch.nn.Parameter):
                continue
            if item.layout != torch.strided or item.device.type != "cpu":
                continue
            storage = item.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            place = np.searchsorted(addresses, start)
            if size and place < len(addresses) and addresses[place] < start + size:
                self.add(start, size, "a tensor that is no argument")
                found = True
        return found
