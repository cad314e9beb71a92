"""The closed set of primitives and the decompositions that reduce ATen to it.

Front door: `PRIMITIVES`, `DECOMPOSITIONS`, `RANDOM_OPERATORS`, `verify`. Importing this package registers
`stator::random`, `stator::special`, `stator::fma` and fills the tables. Neighbours: `stator.aot` (reads the tables
while tracing), `stator.lowering` (a lowering per primitive).
"""

from __future__ import annotations

from stator.prims import checks as checks
from stator.prims import decompositions as decompositions
from stator.prims.random import RANDOM_OPERATORS
from stator.prims.set import PRIMITIVES, Primitive
from stator.prims.table import DECOMPOSITIONS, decompose
from stator.prims.verify import TypeMismatch, verify

__all__ = ["DECOMPOSITIONS", "PRIMITIVES", "RANDOM_OPERATORS", "Primitive", "TypeMismatch", "decompose", "verify"]
