"""Pieces of Markdown tables: what the tables of models, on the CPU and on a GPU, are printed with."""

from __future__ import annotations

import math
from collections.abc import Sequence


def head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table whose first column has names and the others figures."""
    return [line(names), "|---|" + "---:|" * (len(names) - 1)]


def line(cells: Sequence[str]) -> str:
    """One row."""
    return f"| {' | '.join(cells)} |"


def figure(value: float, digits: int) -> str:
    """A figure with so many digits behind the point; nothing for NaN, which is what was not measured."""
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def power(value: float) -> str:
    """A figure as a power of ten."""
    return "" if math.isnan(value) else f"{value:.1e}"
