"""The checks of data among the primitives: operators without results, which raise.

`stator/graphs/checks.py` defines them and says what they mean; `lowering/checks.py` makes loops of them. Importing this
file enters them into the set.
"""

from __future__ import annotations

from stator.graphs.checks import CHECK_DIVISOR, CHECK_POSITIONS, CHECK_PROBABILITIES, LINALG_ERRORS
from stator.prims.set import PRIMITIVES, Primitive

PRIMITIVES[CHECK_POSITIONS] = Primitive("check", (), "raise where a position is out of range")
PRIMITIVES[CHECK_DIVISOR] = Primitive("check", (), "raise where a divisor is zero")
PRIMITIVES[CHECK_PROBABILITIES] = Primitive("check", (), "raise where a number is no probability")
if LINALG_ERRORS is not None:
    PRIMITIVES[LINALG_ERRORS] = Primitive("check", (), "raise where a factorisation has failed")
