"""The functions of libdevice by the names that kernels call them.

Each is an operation `extern` with the function's name; the IR's table says what it takes and gives, and of several
signatures the first one fits that the tensors among the arguments have. Numbers take the types that it asks for.
Neighbours: `stator.tile.ir.externs` has the signatures, `stator.tile.interpret.libdevice` says what each computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.ir.externs import EXTERNS
from stator.tile.language.arithmetic import compare
from stator.tile.language.context import emit
from stator.tile.language.promotion import broadcast_all, cast_to, is_number, to_tensor, typed_constant
from stator.tile.language.static import unwrap
from stator.tile.language.types import BY_IR_NAME, dtype, float32, float64
from stator.tile.language.values import tensor

#: Functions that say yes or no: int32 in libdevice, int1 in kernels.
QUESTIONS = ("finitef", "isfinited", "isinf", "isnan")


def _signatures(name: str) -> Iterator[list[dtype]]:
    """The types of arguments that a function takes, one list for each signature and width of floats."""
    for signature in EXTERNS[name].split(" | "):
        letters = signature.split("->")[0].split()
        for floating in (float32, float64) if "F" in letters else (float32,):
            yield [floating if letter == "F" else BY_IR_NAME[letter] for letter in letters]


def _fits(given: Any, type: dtype) -> bool:
    if isinstance(given, tensor):
        return given.dtype == type
    return type.is_floating() or not isinstance(unwrap(given), float)


def _types(name: str, args: Sequence[Any]) -> list[dtype]:
    """What the arguments are taken as: as they are, or mixed floats as the wider one."""
    found = [types for types in _signatures(name) if len(types) == len(args)]
    if not found:
        raise InvalidUse(f"libdevice.{name} takes {EXTERNS[name]}, not {len(args)} arguments")
    for types in found:
        if all(map(_fits, args, types)):
            return types
    floats = [arg.dtype for arg in args if isinstance(arg, tensor) and arg.dtype in (float32, float64)]
    for types in found:
        widened = [cast_to(arg, float64) if float64 in floats and _is_float32(arg) else arg for arg in args]
        if all(map(_fits, widened, types)):
            return types
    given = ", ".join(str(arg.dtype) if isinstance(arg, tensor) else repr(unwrap(arg)) for arg in args)
    raise InvalidUse(f"libdevice.{name} takes {EXTERNS[name]}, not {given}", "cast them, for instance to tl.float32")


def _is_float32(value: Any) -> bool:
    return isinstance(value, tensor) and value.dtype == float32


def _function(name: str) -> Callable[..., tensor]:
    def call(*args: Any) -> tensor:
        args = tuple([arg if is_number(arg) else to_tensor(arg) for arg in args])
        types = _types(name, args)
        values = [
            typed_constant(arg, type) if is_number(arg) else cast_to(arg, type)
            for arg, type in zip(args, types, strict=True)
        ]
        result = emit("extern", *broadcast_all(values), symbol=name)
        return compare("ne", result, 0) if name in QUESTIONS else result

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__doc__ = f"libdevice's {name}: {EXTERNS[name]}."
    return call


for _name in EXTERNS:
    globals()[_name] = _function(_name)
