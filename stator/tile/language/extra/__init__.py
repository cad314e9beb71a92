"""Functions beside the language: those of libdevice, and those of one vendor's devices."""

from __future__ import annotations

from stator.tile.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
