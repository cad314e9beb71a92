"""The text of the zeta function and of incomplete gamma functions, which targets in C and C++ share.

The constants come from `loop/special_functions.py`, which defines what the functions compute; `gamma.h` has the steps.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from stator.loop import special_functions


@cache
def text() -> str:
    """The functions of `gamma.h`, with the constants of `loop/special_functions.py` before them."""
    lines = [
        f"static const double special_epsilon = {special_functions.EPSILON!r};",
        f"enum {{ special_steps = {special_functions.STEPS} }};",
    ]
    for name, values in (("euler", special_functions.EULER), ("temme", special_functions.TEMME)):
        lines.append(f"static const double special_{name}[] = {{{', '.join(map(repr, values))}}};")
    return "\n".join([*lines, (resources.files(__package__) / "gamma.h").read_text(encoding="utf-8")])
