"""From fx graphs of ATen overloads to loop programs.

Front door: `lower(gm, name, device)`. Importing this package fills the table with the families.
"""

from __future__ import annotations

from stator.lowering import (
    attention,
    checks,
    complex,
    convolution,
    creation,
    indexing,
    opaque,
    pairs,
    pointwise,
    pooling,
    product,
    random,
    reduction,
    scan,
    scatter,
    special_functions,
    view,
)
from stator.lowering.engine import lower
from stator.lowering.table import LOWERINGS, lowers

#: The files that fill the table.
FAMILIES = (
    attention,
    checks,
    complex,
    convolution,
    creation,
    indexing,
    opaque,
    pairs,
    pointwise,
    pooling,
    product,
    random,
    reduction,
    scan,
    scatter,
    special_functions,
    view,
)

__all__ = ["FAMILIES", "LOWERINGS", "lower", "lowers"]
