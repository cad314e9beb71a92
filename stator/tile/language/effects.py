"""What kernels ask, promise, print and check: the place in the grid, hints, prints, assertions, barriers, assembly.

A hint is an operation that gives its operand back with what is known of it. `static_…` happens while the kernel is
compiled, `device_…` when it runs; device assertions are there only under `debug`.
Neighbours: `context.py`; `stator.tile.ir.operators` says what each operation does.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.arithmetic import logical_not, logical_or
from stator.tile.language.context import active, emit, emit_all
from stator.tile.language.promotion import broadcast_all, broadcast_to, cast_to, to_tensor
from stator.tile.language.static import unwrap
from stator.tile.language.types import as_dtype, int1, int32
from stator.tile.language.values import sequence, shape_of, tensor, tuple


class StaticAssertion(InvalidUse):
    """A `static_assert` does not hold; the front end says where."""


def _axis(axis: Any) -> int:
    place = unwrap(axis)
    if place not in (0, 1, 2):
        raise InvalidUse(f"a grid has the axes 0, 1 and 2, and not {place!r}")
    return int(place)


def program_id(axis: Any) -> tensor:
    """Where in the grid this program is, along an axis."""
    return emit("program_id", axis=_axis(axis), type=int32)


def num_programs(axis: Any) -> tensor:
    """How many programs the grid has along an axis."""
    return emit("num_programs", axis=_axis(axis), type=int32)


# ---- hints


def _hint(name: str, input: Any, values: Any) -> Any:
    if not isinstance(input, tensor):
        return input  # a number that is known while compiling needs no hint
    numbers = shape_of(values)
    if len(numbers) != max(len(input.type.shape), 1):
        raise InvalidUse(f"{len(numbers)} numbers, and {input.type} has {len(input.type.shape)} dims")
    hint = {name: builtins.tuple(numbers)}
    return emit("bitcast", input, dtype=input.type.scalar.ir, type=input.type, **hint)


def multiple_of(input: Any, values: Any) -> Any:
    """Promises that along each dim the first of each group of equal steps is a multiple of a number."""
    return _hint("divisibility", input, values)


def max_contiguous(input: Any, values: Any) -> Any:
    """Promises that along each dim so many values follow one another."""
    return _hint("contiguity", input, values)


def max_constancy(input: Any, values: Any) -> Any:
    """Promises that along each dim so many values are equal."""
    return _hint("constancy", input, values)


def assume(cond: Any) -> None:
    """Promises that a condition holds."""
    if not isinstance(cond, tensor):
        if not unwrap(cond):
            raise InvalidUse("assume was promised something that is known to be false")
        return
    emit_all("assume", [cast_to(cond, int1)])


def debug_barrier() -> None:
    """The threads of a program wait for one another."""
    emit_all("barrier", [])


# ---- while compiling


def static_print(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
    """Prints while the kernel is compiled."""
    if not active().discarded:
        plain = [unwrap(value) for value in values]
        print(*plain, sep=unwrap(sep), end=unwrap(end), file=unwrap(file), flush=bool(unwrap(flush)))


def static_assert(cond: Any, msg: Any = "") -> None:
    """Compilation fails unless a condition that is known while compiling holds."""
    if isinstance(cond, tensor):
        raise InvalidUse("static_assert takes what is known while compiling, not a tensor", "use tl.device_assert")
    if not unwrap(cond):
        raise StaticAssertion(str(unwrap(msg)) or "a static_assert does not hold")


# ---- when it runs


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Prints tensors behind a text, for each program."""
    text = unwrap(prefix)
    if not isinstance(text, str) or not text.isascii() or not text.isprintable():
        raise InvalidUse(f"the first argument of device_print is printable ASCII text, not {text!r}")
    emit_all("print", [to_tensor(item) for item in args], prefix=text, hex=bool(unwrap(hex)))


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Under `debug`, the program fails unless a condition holds for all elements that the mask takes."""
    if not active().checks.assertions:
        return
    holds = cast_to(to_tensor(cond), int1)
    if unwrap(mask) is not None:
        given, holds = broadcast_all([cast_to(to_tensor(mask), int1), holds])
        holds = logical_or(logical_not(given), holds)
    emit_all("assert", [holds], message=str(unwrap(msg)))


def inline_asm_elementwise(asm: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any) -> Any:
    """Instructions of the target, for so many elements at a time."""
    operands = broadcast_all([to_tensor(item) for item in sequence(args)]) if sequence(args) else []
    several = isinstance(unwrap(dtype), tuple | builtins.tuple | list)
    results = [as_dtype(item) for item in sequence(dtype)]
    shape = operands[0].type.shape if operands else ()
    handles = emit_all(
        "inline_asm", operands, asm=str(unwrap(asm)), constraints=str(unwrap(constraints)), pack=int(unwrap(pack)),
        dtypes=builtins.tuple([item.ir for item in results]), is_pure=bool(unwrap(is_pure)),
    )  # fmt: skip
    like = broadcast_to(operands[0], shape).type if operands else int32
    found = [tensor(handle, like.with_element_ty(item)) for handle, item in zip(handles, results, strict=True)]
    return tuple(found) if several else found[0]


def map_elementwise(scalar_fn: Callable[..., Any], *args: Any, pack: Any = 1) -> Any:
    """Refused: a function with control flow of its own for each element."""
    raise InvalidUse(
        "map_elementwise is not supported: the tile IR has no operation that runs a function for each element",
        "write the function for whole blocks, and choose between results with tl.where",
    )
