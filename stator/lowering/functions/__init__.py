"""Special functions as formulas of the loop IR, one set of coefficients for every target."""

from __future__ import annotations

from stator.lowering.functions import bessel, error, gamma
from stator.lowering.functions.formula import Formula

__all__ = ["Formula", "bessel", "error", "gamma"]
