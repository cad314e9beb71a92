"""The options of a launch: how many warps, stages and blocks of a cluster a kernel is compiled for.

They are accepted as Triton's are, checked, and kept with the module, where a target of generated code finds them; in
the interpreter none changes a result.
Neighbours: `jit.py`, whose launches take them; `autotune.py`, whose configurations set them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from stator.base.errors import nearest
from stator.tile.errors import LaunchError
from stator.tile.language.static import unwrap


@dataclass(frozen=True, slots=True)
class Options:
    """What a launch asks of the compiler."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    debug: bool = False
    sanitize_overflow: bool = True  # under debug

    def given(self) -> dict[str, Any]:
        """What differs from its default."""
        plain = Options()
        return {name: value for name, value in asdict(self).items() if value != getattr(plain, name)}


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "num_warps": ("a power of 2", lambda value: isinstance(value, int) and value > 0 and not value & (value - 1)),
    "num_stages": ("an int of at least 0", lambda value: isinstance(value, int) and value >= 0),
    "num_ctas": ("an int of at least 1", lambda value: isinstance(value, int) and value >= 1),
    "maxnreg": ("an int, or None", lambda value: value is None or (isinstance(value, int) and value > 0)),
}
NAMES = tuple(field.name for field in fields(Options))


def split_options(kernel: str, named: Mapping[str, Any], parameters: Sequence[str]) -> tuple[dict[str, Any], Options]:
    """The keywords of a launch that are arguments, and those that are options; a parameter's name comes first."""
    arguments = {name: value for name, value in named.items() if name in parameters}
    options = {name: unwrap(value) for name, value in named.items() if name not in parameters}
    for name, value in options.items():
        if name not in NAMES:
            hint = nearest(name, [*parameters, *NAMES])
            raise LaunchError(f"{kernel} has no parameter or option {name!r}", hint)
        what, accepts = _CHECKS.get(name, ("True or False", lambda value: isinstance(value, bool)))
        if not accepts(value):
            raise LaunchError(f"the option {name} is {what}, not {value!r}")
    return arguments, Options(**options)
