"""The names of the language where some kernels import them from: `triton.language.core`.

Nothing is defined here, and the language itself imports nothing from here.
Neighbours: `language/__init__.py`, which has the same names and says where each is defined.
"""

from __future__ import annotations

from stator.tile.language import *  # noqa: F403
from stator.tile.language.aggregates import aggregate as _aggregate
from stator.tile.language.static import base_type, base_value
from stator.tile.language.static import unwrap as _unwrap_if_constexpr
from stator.tile.language.types import get_int_dtype

__all__ = ["_aggregate", "_unwrap_if_constexpr", "base_type", "base_value", "get_int_dtype"]
