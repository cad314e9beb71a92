"""Symbolic floats: expressions over floats that are known only at run time, and over sizes.

A float from outside is known by its 64 bits, which are a symbol like any other: `Real("bits", (symbol,))`. So ranges,
guards, places and kernel arguments of floats are those of ints, and no value is ever rounded on its way. Every other
expression names a function of `FUNCTIONS`, which is Python's own: its value is what the program would have computed.
Invariant: an expression is compared by its text (`written`), which tells 0.0 from -0.0.
Neighbours: `fake/symbolic.py` (torch's view), `capture/values/python/real.py` (the program's), `aot/symbols.py`.
"""

from __future__ import annotations

import hashlib
import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from stator.base.errors import Undecided
from stator.base.records import dataclass
from stator.sizes.environment import Environment
from stator.sizes.size import Condition, Extent, Size, Symbol
from stator.sizes.writing import evaluate, python, symbols


class Real(NamedTuple):
    """`FUNCTIONS[op]` of numbers, or the float with these bits."""

    op: str
    args: tuple[Number, ...]


Number: TypeAlias = "float | Extent | Real"

#: What a symbolic float may be computed by, as Python computes it.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "neg": operator.neg, "abs": abs,
    "float": float, "max": max, "min": min, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin,
    "cos": math.cos, "tanh": math.tanh,
}  # fmt: skip

#: Those that raise for some numbers.
PARTIAL: Final = frozenset({"truediv", "floordiv", "mod", "pow", "sqrt", "exp", "log", "sin", "cos"})

#: The bits of the greatest number there is; after it come those that are none.
INFINITY: Final = 0x7FF0_0000_0000_0000
#: Of a negative number the bits are as many more than these as of its opposite than 0.
NEGATIVE: Final = -(2**63)


def bits_of(number: float) -> int:
    """The bits of a float, as a signed int."""
    found: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return found


def from_bits(bits: int) -> float:
    """The float with these bits."""
    found: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return found


def plain(number: Number) -> Symbol | None:
    """The symbol of a float from outside, if `number` is one."""
    if not isinstance(number, Real) or number.op != "bits":
        return None
    return next(iter(symbols(number.args[0])), None)  # type: ignore[arg-type]


def symbol_of(number: Real) -> Symbol:
    """The symbol of a float among the inputs of a graph: its own, or one named by what it is computed by."""
    mark = hashlib.sha256(written(number).encode()).hexdigest()[:8]
    return plain(number) or Symbol(f"f_{mark}", None, None, bits_of(float(now(number))))


def parts(number: Number) -> frozenset[Symbol]:
    """Every symbol that it depends on."""
    match number:
        case Real(_, args):
            return frozenset().union(*map(parts, args))
        case Size():
            return symbols(number)
    return frozenset()


def value(number: Number, values: Mapping[Symbol, int]) -> Any:
    """The number, for values of its symbols; raises what Python raises."""
    match number:
        case Real("bits", (Size() as size,)):
            return from_bits(evaluate(size, values))
        case Real(op, args):
            return FUNCTIONS[op](*[value(arg, values) for arg in args])
        case Size():
            return evaluate(number, values)
    return number


def now(number: Number) -> Any:
    """The number in the call at hand."""
    return value(number, {symbol: symbol.hint for symbol in parts(number)})


def is_computed(number: Number, values: Mapping[Symbol, int]) -> bool:
    """Whether it is a float for these values, and no exception."""
    try:
        return type(value(number, values)) is float
    except (ArithmeticError, ValueError):
        return False


def written(number: Number, names: Mapping[Symbol, str] | None = None, bits: str = "from_bits({})") -> str:
    """A Python expression over the names of `NAMES`; `bits` is how a float is had from the name of its symbol."""
    match number:
        case Real("bits", (Size() as size,)):
            return bits.format(python(size, names))
        case Real(op, args):
            return f"{op}({', '.join([written(arg, names, bits) for arg in args])})"
        case Size():
            return python(number, names)
    return repr(number)


def is_whole(number: Number) -> bool:
    """Whether it is an integer."""
    return number.is_integer() if isinstance(number, float) else not isinstance(number, Real)


def is_real_power(base: Number, exponent: Number) -> bool:
    """Whether the power is a float whatever the symbols are: others are complex, or ints."""
    positive = isinstance(base, float) and base > 0
    return positive or (isinstance(base, Real | float) and is_whole(exponent))


@dataclass(frozen=True, slots=True)
class Bits:
    """A float among the numbers of a compiled graph: the one whose bits are the size."""

    size: Extent

    def __repr__(self) -> str:
        return f"from_bits({python(self.size)})"


#: What the expressions of `written` need.
NAMES: Final[dict[str, Any]] = {**FUNCTIONS, "from_bits": from_bits, "inf": math.inf, "nan": math.nan}


# -- deciding ----------------------------------------------------------------------------------------


def specialise(number: Number, environment: Environment, reason: str) -> Any:
    """The number in the call at hand, which is from now on what it is."""
    for symbol in sorted(parts(number), key=str):
        environment.specialise(symbol.size, reason)
    return now(number)


def compare(op: str, left: Number, right: Number, environment: Environment, reason: str) -> bool:
    """`left op right`. Between a float from outside and a constant it is a range of bits, all else fixes numbers."""
    if isinstance(left, Real) and left.op == "neg" and not isinstance(right, Real | Size):
        return compare(MIRRORED[op], left.args[0], -right, environment, reason)
    symbol = plain(left)
    if symbol is None or isinstance(right, Real | Size) or float(right) != right == right:
        mirrored = plain(right) is not None and not isinstance(left, Real | Size)
        if mirrored:
            return compare(MIRRORED[op], right, left, environment, reason)
        return bool(COMPARE[op](specialise(left, environment, reason), specialise(right, environment, reason)))
    holds = bool(COMPARE[op](from_bits(symbol.hint), right))
    for condition in _alike(symbol, op, float(right)):
        environment.decide(condition, reason)
    return holds


def within(number: Number, limit: float, environment: Environment, reason: str) -> None:
    """Decides whether a float from outside is finite in a type whose greatest number is `limit`."""
    inner = number.args[0] if isinstance(number, Real) and number.op == "neg" else number
    symbol = plain(inner)
    if symbol is None:
        return
    found = abs(from_bits(symbol.hint))
    magnitude = symbol.size // 2 % 2**62  # half the bits but for the sign
    if found < limit:
        environment.decide(Condition("<", magnitude, bits_of(limit) // 2), reason)
    elif found != found:
        environment.decide(Condition("<", INFINITY // 2, magnitude), reason)
    elif math.isinf(found):
        environment.specialise(symbol.size, reason)
    else:
        raise Undecided(f"{found}, which is too great: {reason}")


def _alike(symbol: Symbol, op: str, constant: float) -> list[Condition]:
    """Conditions that hold now, under which a comparison with the constant comes out as it does now."""
    bits, edge = symbol.hint, bits_of(constant)
    if op in ("==", "!=") and constant and bits != edge:
        return [Condition("!=", symbol.size, edge)]
    if constant != constant:
        return []
    # Floats of one sign are in the order of their bits; zeros are of both signs, and what is no number is last.
    edges = {edge, NEGATIVE, 0} if constant else {NEGATIVE, 0}
    first = NEGATIVE if bits < 0 else 0
    last = first + INFINITY
    if bits > last:
        beyond = Condition("<", last, symbol.size)
        return [beyond] if bits >= 0 else [beyond, Condition("<", symbol.size, 0)]
    inside = sorted(at for at in edges if first <= at <= last)
    if bits in inside:
        return [Condition("==", symbol.size, bits)]
    below = [at for at in inside if at < bits]
    above = [at for at in inside if at > bits]
    found = [Condition("<", max(below), symbol.size)]
    found.append(Condition("<", symbol.size, min(above)) if above else Condition("<=", symbol.size, last))
    return found


COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
