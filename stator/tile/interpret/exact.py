"""Arithmetic that is rounded once, in a direction, from the exact value: what `_rn`, `_rz`, `_rd` and `_ru` mean.

Numbers are taken as fractions, one by one. An infinity, a NaN or a division by zero has no exact value: there the
operator gives what it gives in every rounding. Neighbours: `libdevice` has the functions that are made of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np

from stator.tile.interpret.casts import Data, greatest
from stator.tile.ir.types import DType

#: How a magnitude that lies between two numbers goes: whether to the greater one, by (sign, beyond half, odd).
_UP: dict[str, Callable[[bool, int, bool], bool]] = {
    "rn": lambda negative, half, odd: half > 0 or (half == 0 and odd),
    "rz": lambda negative, half, odd: False,
    "rd": lambda negative, half, odd: negative,
    "ru": lambda negative, half, odd: not negative,
}


def rounded(number: Fraction, dtype: DType, way: str) -> float:
    """A fraction that is not 0 in a dtype of floats."""
    magnitude = abs(number)
    exponent = _exponent(magnitude, dtype)
    steps = magnitude / Fraction(2) ** exponent
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    return _finish(number < 0, whole, rest, exponent, dtype, way)


def _exponent(magnitude: Fraction, dtype: DType) -> int:
    """That of the last bit which the dtype keeps of a number."""
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** guess:
        guess -= 1
    return max(guess, 1 - dtype.bias) - dtype.mantissa


def _finish(negative: bool, whole: int, rest: Fraction, exponent: int, dtype: DType, way: str) -> float:
    half = (2 * rest > 1) - (2 * rest < 1)
    if rest and _UP[way](negative, half, whole % 2 == 1):
        whole += 1
    limit = greatest(dtype)
    try:
        found = math.ldexp(whole, exponent)
    except OverflowError:
        found = math.inf
    if found > limit:
        grows = way == "rn" or _UP[way](negative, 1, True)
        found = math.inf if grows else limit
    return -found if negative else found


def root(number: Fraction, dtype: DType, way: str) -> float:
    """The square root of a fraction that is greater than 0."""
    exponent = _exponent(Fraction(math.isqrt(max(int(number), 1))) if number >= 1 else _small_root(number), dtype)
    squared = number / Fraction(4) ** exponent
    whole = isqrt(squared.numerator // squared.denominator)
    exact = Fraction(whole * whole) == squared
    beyond = squared > (whole + Fraction(1, 2)) ** 2  # never equal: such a square has more bits than a number
    rest = Fraction(0) if exact else Fraction(3, 4) if beyond else Fraction(1, 4)
    return _finish(False, whole, rest, exponent, dtype, way)


def _small_root(number: Fraction) -> Fraction:
    """The root of a number below 1, rounded down to so many bits that its exponent is right."""
    scale = number.denominator.bit_length() + 8
    return Fraction(isqrt(number.numerator * 4**scale // number.denominator), 2**scale)


def directed(
    dtype: DType, way: str, exactly: Callable[..., Fraction], plainly: Callable[..., Data], *data: Data
) -> Data:
    """An operator on arrays, rounded in a direction; `plainly` where there is no exact value, or it is 0."""
    arrays = np.broadcast_arrays(*data)
    found = np.array(plainly(*data))
    for place in np.ndindex(found.shape):
        numbers = [float(array[place]) for array in arrays]
        if all(map(math.isfinite, numbers)):
            try:
                value = exactly(*[Fraction(number) for number in numbers])
            except ZeroDivisionError:
                continue
            if value:
                found[place] = rounded(value, dtype, way)
    return found


def directed_root(dtype: DType, way: str, data: Data) -> Data:
    """Square roots, rounded in a direction."""
    found = np.sqrt(data)
    found = np.array(found)
    for place in np.ndindex(found.shape):
        number = float(data[place])
        if 0 < number < math.inf:
            found[place] = root(Fraction(number), dtype, way)
    return found


def directed_integers(data: Data, dtype: DType, way: str) -> Data:
    """Integers as floats."""
    found = np.zeros(data.shape, dtype.numpy)
    for place in np.ndindex(found.shape):
        number = int(data[place])
        found[place] = rounded(Fraction(number), dtype, way) if number else 0.0
    return found
