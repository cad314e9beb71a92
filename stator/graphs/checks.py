"""Checks of data as operators of a graph: they compute nothing, and raise where eager's kernels raise.

    stator::check_positions(x, low, high)    every element of x lies in low … high-1
    stator::check_divisor(x)                 no element of x is zero
    stator::check_probabilities(x)           every element of x lies in 0 … 1

A call without results does something whoever reads what (`calls.acts`), so no pass and no partition drops it.
Neighbours: `aot/checks.py` says which operators need one; `passes/checks.py` drops those that kernels make anyway;
`lowering/checks.py` has the loops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stator.fake.execute import RULES
from stator.fake.overloads import overload

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("check_positions(Tensor x, SymInt low, SymInt high) -> ()")
_LIBRARY.define("check_divisor(Tensor x) -> ()")
_LIBRARY.define("check_probabilities(Tensor x) -> ()")

CHECK_POSITIONS = torch.ops.stator.check_positions.default
CHECK_DIVISOR = torch.ops.stator.check_divisor.default
CHECK_PROBABILITIES = torch.ops.stator.check_probabilities.default

#: Those of ours.
CHECKS = frozenset({CHECK_POSITIONS, CHECK_DIVISOR, CHECK_PROBABILITIES})

#: ATen's own check of what the factorisations of linear algebra report.
LINALG_ERRORS = overload("_linalg_check_errors")

#: What a check says.
OUT_OF_RANGE, DIVISION = "index out of range for a dim of size {}", "ZeroDivisionError"
PROBABILITIES = "all elements should be between 0 and 1"


def _check_positions(x: Tensor, low: int, high: int) -> None:
    if x.numel() and not bool(((x >= low) & (x < high)).all()):
        raise IndexError(OUT_OF_RANGE.format(high))


def _check_divisor(x: Tensor) -> None:
    if not bool(x.all()):
        raise RuntimeError(DIVISION)


def _check_probabilities(x: Tensor) -> None:
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise RuntimeError(PROBABILITIES)


_LIBRARY.impl("check_positions", _check_positions, "CompositeExplicitAutograd")
_LIBRARY.impl("check_divisor", _check_divisor, "CompositeExplicitAutograd")
_LIBRARY.impl("check_probabilities", _check_probabilities, "CompositeExplicitAutograd")


@RULES.register(*CHECKS)
def _nothing(*args: object) -> None:
    """They have no results."""
