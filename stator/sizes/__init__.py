"""Symbolic sizes: integer expressions over sizes that are known only at run time. Front door of the package; no
torch."""

from stator.sizes.derived import Derived, in_told
from stator.sizes.environment import Environment, Recorded
from stator.sizes.holding import held
from stator.sizes.size import (
    OPERATIONS,
    Condition,
    Extent,
    Size,
    Symbol,
    load,
    maximum,
    minimum,
    prove,
    quotient_of,
    remainder_of,
    substitute,
)
from stator.sizes.writing import dump, evaluate, fold, hint, postfix, python, symbols

__all__ = [
    "OPERATIONS",
    "Condition",
    "Derived",
    "Environment",
    "Extent",
    "Recorded",
    "Size",
    "Symbol",
    "dump",
    "evaluate",
    "fold",
    "held",
    "hint",
    "in_told",
    "load",
    "maximum",
    "minimum",
    "postfix",
    "prove",
    "python",
    "quotient_of",
    "remainder_of",
    "substitute",
    "symbols",
]
