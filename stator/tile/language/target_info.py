"""What a kernel may ask of the device that it is compiled for, while it is compiled.

Kernels run in the interpreter: there is no GPU, and every question for one is answered with no.
Neighbours: `language/__init__.py`; a target of generated code will answer for its device.
"""

from __future__ import annotations

from stator.tile.language.static import constexpr

__all__ = ["cuda_capability_geq", "current_target", "is_cuda", "is_hip", "is_hip_cdna3", "is_hip_cdna4"]


def current_target() -> None:
    """The device: none."""
    return None


def is_cuda() -> constexpr:
    """Whether it is one of NVIDIA's."""
    return constexpr(False)


def cuda_capability_geq(major: object, minor: object = 0) -> constexpr:
    """Whether it is one of NVIDIA's of at least a compute capability."""
    return constexpr(False)


def is_hip() -> constexpr:
    """Whether it is one of AMD's."""
    return constexpr(False)


def is_hip_cdna3() -> constexpr:
    """Whether it is one of AMD's of the third CDNA generation."""
    return constexpr(False)


def is_hip_cdna4() -> constexpr:
    """Whether it is one of AMD's of the fourth CDNA generation."""
    return constexpr(False)
