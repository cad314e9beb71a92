"""Symbolic sizes: integer expressions over sizes that are known only at run time. Front door of the package; no
torch."""

from stator.sizes.environment import Environment, Recorded
from stator.sizes.size import (
    OPERATIONS,
    Condition,
    Extent,
    Size,
    Symbol,
    known,
    load,
    maximum,
    minimum,
    substitute,
)
from stator.sizes.writing import dump, evaluate, fold, hint, postfix, python, symbols

__all__ = [
    "OPERATIONS",
    "Condition",
    "Environment",
    "Extent",
    "Recorded",
    "Size",
    "Symbol",
    "dump",
    "evaluate",
    "fold",
    "hint",
    "known",
    "load",
    "maximum",
    "minimum",
    "postfix",
    "python",
    "substitute",
    "symbols",
]
