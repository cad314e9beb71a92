"""Operators whose kernels keep something for their backward only where gradients are recorded.

A compiled graph runs where nothing is recorded: autograd sees it as one function. So whoever calls such an operator
for a graph turns recording on around the kernel alone, and asks for no layout of what is kept: only the kernel knows
its size. One table, by the names that graphs and wrappers have for overloads.
Neighbours: `runtime/extern.py` and `aot/reference.py` call them; `fake/rules_layers.py` has their shapes.
"""

from __future__ import annotations

from typing import Final

#: Overload → which of its results is kept for its backward, and read by nothing else.
WORKSPACES: Final[dict[str, int]] = {"aten.mkldnn_rnn_layer.default": 3}
