"""The type rules of the primitives: what dtype each result has, from the arguments.

`set.py` names a rule for every line of the set, one for each result where there are several. They are a second
statement of what the shape rules (`stator.fake`) derive on their own way, and of what eager does; `verify.py` holds the
graphs that reach lowering against them, and the tests hold them against ATen's kernels.
A rule reads the arguments by the names of the overload's schema; tensors among them may be fakes.
Neighbours: `set.py`, `verify.py`; promotion itself is in `stator.fake.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from stator.fake.layout import is_float, promote

Arguments = Mapping[str, Any]
#: The dtype of one result, from the arguments of an overload; None where the primitive leaves it open.
TypeRule = Callable[[Arguments], torch.dtype | None]

#: The arguments that take part in promotion, by their names in ATen's schemas.
OPERANDS = ("self", "x", "y", "tensors", "other", "exponent", "min", "max", "start", "end", "step", "fill_value")
#: The argument whose dtype others follow: the first of these that the overload has.
LEADERS = ("self", "input", "query", "grad_output", "tensors", "x")
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPLEX = {real: wide for wide, real in _REAL.items()}


def same(given: Arguments) -> torch.dtype:
    """That of the leading argument."""
    leader = next(given[name] for name in LEADERS if name in given)
    dtype: torch.dtype = leader[0].dtype if isinstance(leader, (list, tuple)) else leader.dtype
    return dtype


def promoted(given: Arguments) -> torch.dtype:
    """The one in which all operands meet; numbers are wrapped."""
    found: list[Any] = []
    for name in OPERANDS:
        value = given.get(name)
        found += value if isinstance(value, (list, tuple)) else [value]
    return promote(found)


def floating(given: Arguments) -> torch.dtype:
    """`promoted`, or the default float dtype where that is a whole number or a truth value."""
    dtype = promoted(given)
    return dtype if is_float(dtype) else torch.get_default_dtype()


def quotient(given: Arguments) -> torch.dtype:
    """`floating`, unless the quotient is rounded."""
    return floating(given) if given.get("rounding_mode") is None else promoted(given)


def asked(given: Arguments) -> torch.dtype:
    """The argument `dtype`, else that of the leading argument."""
    return given.get("dtype") or same(given)


def filled(given: Arguments) -> torch.dtype:
    """The argument `dtype`, else that of the numbers."""
    return given.get("dtype") or promoted(given)


def total(given: Arguments) -> torch.dtype:
    """The argument `dtype`, else int64 for whole numbers and truth values, else that of the leading argument."""
    dtype = same(given)
    return given.get("dtype") or (dtype if is_float(dtype) else torch.int64)


def truth(given: Arguments) -> torch.dtype:
    """bool."""
    return torch.bool


def flag(given: Arguments) -> torch.dtype:
    """bool; uint8, which was PyTorch's dtype of truth values once, stays."""
    return torch.uint8 if same(given) is torch.uint8 else torch.bool


def position(given: Arguments) -> torch.dtype:
    """int64, or int32 where that is asked for."""
    return torch.int32 if given.get("out_int32") else torch.int64


def real(given: Arguments) -> torch.dtype:
    """That of the leading argument, or of its real part."""
    dtype = same(given)
    return _REAL.get(dtype, dtype)


def paired(given: Arguments) -> torch.dtype:
    """The complex dtype whose parts are of the leading argument's."""
    return _COMPLEX[same(given)]


def left_open(given: Arguments) -> None:
    """Not stated: bookkeeping of a kernel for its own backward."""


#: By the name that the set gives them.
TYPE_RULES: dict[str, TypeRule] = {
    "same": same, "promoted": promoted, "float": floating, "quotient": quotient, "asked": asked, "filled": filled,
    "total": total, "bool": truth, "flag": flag, "int": position, "real": real, "complex": paired, "open": left_open,
}  # fmt: skip
