"""NumPy's functions of plain numbers: run at capture, like `math`'s.

`np.sqrt(width)` in a model is a number of its configuration. A ufunc is called for real when all arguments are
constants and scalars come back; what would warn or raise in NumPy is left to the uncaptured function. NumPy is never
imported here: its objects are known by the names of their classes. Neighbours: `pure.py`, `constant.py`.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.values import watch
from stator.capture.values.fold import all_constant
from stator.capture.values.python.constant import ConstantValue
from stator.capture.values.registry import SPECIAL, fresh
from stator.sizes.real import bits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value

#: What a ufunc may be given: numbers, not what NumPy would make an array of.
NUMBERS = (bool, int, float)


@value_class
class UfuncValue(ConstantValue):
    """`numpy.sqrt` and the like."""

    kind = "a NumPy function"

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or not all_constant(args) or any(value.is_symbolic() for value in args):
            raise self.refuse("a call with more than known numbers")
        plain = [value.constant() for value in args]
        if not all(isinstance(number, NUMBERS) or is_scalar(number) for number in plain):
            raise self.refuse("a call with more than known numbers")
        try:
            with warnings.catch_warnings(), sys.modules["numpy"].errstate(all="raise"):
                warnings.simplefilter("error")
                made = self.value(*plain)
        except (ArithmeticError, TypeError, ValueError, Warning) as error:
            raise self.refuse(f"what NumPy says of {plain}: {error}") from error
        if not is_scalar(made):
            raise self.refuse("a result that is no number")
        return fresh(made)


@value_class
class ScalarValue(ConstantValue):
    """A number of NumPy's from outside, known by its value."""

    kind = "a NumPy number"

    def is_pinned(self) -> bool:
        return False


def is_ufunc(obj: Any) -> bool:
    """Whether it is a function of NumPy that is computed element by element."""
    kind = type(obj)
    return kind.__name__ == "ufunc" and kind.__module__ == "numpy"


def is_scalar(obj: Any) -> bool:
    """Whether it is a number of NumPy's double precision, which is a Python float as well."""
    kind = type(obj)
    return kind.__name__ == "float64" and kind.__module__ == "numpy"


def build_ufunc(tx: Machine, obj: Any, source: Source) -> Value:
    """A ufunc is guarded by identity."""
    watch.identity(tx, source, obj)
    return UfuncValue(obj, source=source)


def build_scalar(tx: Machine, obj: Any, source: Source) -> Value:
    """A number that was there before: by its value, since each computation makes another object."""
    watch.type_of(tx, source, type(obj))
    tx.guard("CALL", source, (bits_of, bits_of(obj)))
    return ScalarValue(obj, source=source)


SPECIAL += [(is_ufunc, build_ufunc), (is_scalar, build_scalar)]
