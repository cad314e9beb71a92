"""What `for` goes over in kernels: `range`, `static_range`, and the `condition` of a `while` with options.

To the front end these are records. While a kernel's text is run directly Python's own `for` goes over them, and a
`range` gives tensors, as the compiled loop does.
Neighbours: the front end's loops, which read the options; `promotion.py` for the type of what is counted.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.promotion import integer_type, number_type, to_tensor, typed_constant
from stator.tile.language.static import base_value, unwrap
from stator.tile.language.types import dtype, int32
from stator.tile.language.values import tensor

#: An option of `range` → the attribute of the IR's loop, and its type.
LOOP_OPTIONS: dict[str, tuple[str, type]] = {
    "num_stages": ("stages", int),
    "loop_unroll_factor": ("unroll", int),
    "disallow_acc_multi_buffer": ("single_acc", bool),
    "flatten": ("flatten", bool),
    "warp_specialize": ("warp_specialize", bool),
    "disable_licm": ("no_licm", bool),
}


class range(base_value):
    """A loop's numbers, with options for how it is compiled."""

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:
        given = locals()
        self.start: Any = 0 if unwrap(arg2) is None else arg1
        self.end: Any = arg1 if unwrap(arg2) is None else arg2
        self.step: Any = 1 if unwrap(step) is None else step
        for bound in (self.start, self.end, self.step):
            _check_bound(bound)
        if not isinstance(self.step, tensor) and unwrap(self.step) == 0:
            raise InvalidUse("a loop's step is not 0")
        options = {name: unwrap(given[name]) for name in LOOP_OPTIONS}
        self.attrs = {LOOP_OPTIONS[name][0]: LOOP_OPTIONS[name][1](value) for name, value in options.items() if value}

    def count_type(self) -> dtype:
        """The type of what is counted: the one that the bounds have in common, at least int32."""
        found = int32
        for bound in (self.start, self.end, self.step):
            found = integer_type(found, bound.dtype if isinstance(bound, tensor) else number_type(unwrap(bound)))
        return found

    def __iter__(self) -> Iterator[tensor]:
        type = self.count_type()
        numbers = builtins.range(*[int(unwrap(bound)) for bound in (self.start, self.end, self.step)])
        for number in numbers:
            yield typed_constant(number, type)


def _check_bound(bound: Any) -> None:
    if isinstance(bound, tensor):
        if bound.type.shape or not bound.dtype.is_int() or bound.dtype.is_bool():
            raise InvalidUse(f"a loop's bounds and step are integers, not {bound.type}")
    elif isinstance(unwrap(bound), bool) or not isinstance(unwrap(bound), int):
        raise InvalidUse(f"a loop's bounds and step are integers, not {to_tensor(bound).type}")


class static_range(base_value):
    """Numbers that are known while compiling: the loop is written out, and each is a constexpr."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        start, end = (0, arg1) if unwrap(arg2) is None else (arg1, arg2)
        bounds = [start, end, 1 if unwrap(step) is None else step]
        for bound in bounds:
            if isinstance(bound, tensor) or not isinstance(unwrap(bound), int):
                raise InvalidUse(
                    "the bounds of static_range are known while compiling",
                    "use `range`, or declare the parameter that they come from as `tl.constexpr`",
                )
        self.start, self.end, self.step = [int(unwrap(bound)) for bound in bounds]

    def __iter__(self) -> Iterator[int]:
        return iter(builtins.range(self.start, self.end, self.step))


class condition(base_value):
    """The condition of a `while`, with options for how it is compiled."""

    def __init__(self, arg1: Any, disable_licm: Any = False) -> None:
        self.condition = arg1
        self.disable_licm = bool(unwrap(disable_licm))

    def __bool__(self) -> bool:
        return bool(self.condition)
