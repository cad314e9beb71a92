"""Symbolic floats: floats from outside that differ from call to call, and what is computed from them or from sizes.

Arithmetic stays symbolic and is Python's own: in the graph it is `operator` and `math` calls, outside of it the new
code computes it from the same sources. A comparison of a float from outside with a constant is decided as it is in the
call at hand and becomes a guard; all else that needs the number fixes it, with the line that did it.
Invariant: a symbolic float raises nothing when it is computed; what could raise is guarded or fixed (`_total`).
Neighbours: `sizes/real.py` (the expressions), `capture/dynamic.py` (what is symbolic), `symbolic.py` (ints).
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.source import SizeSource, StrideSource
from stator.capture.value import Value
from stator.capture.values.fold import fold
from stator.capture.values.registry import fresh, makes
from stator.capture.values.symbolic import EXACT, MEETS_FLOAT, extent_of
from stator.fake.symbolic import symfloat
from stator.sizes import Condition, Size, Symbol, real
from stator.sizes.real import PARTIAL, Number, Real

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.dynamic import Sizes
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler

#: Operator text -> function of `real.FUNCTIONS`.
ARITHMETIC = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
}  # fmt: skip
WHY = "the program needs the number itself"


class SymbolicFloat(Value):
    """A float given by an expression."""

    __slots__ = ("number", "sizes")
    kind = "a symbolic float"

    def __init__(self, number: Real, sizes: Sizes, source: Any = None) -> None:
        self.number = number
        self.sizes = sizes
        self.source = source

    def __repr__(self) -> str:
        return f"SymbolicFloat({real.written(self.number)})"

    def python_type(self) -> type:
        return float

    def is_constant(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return any(isinstance(self.sizes.simplify(symbol.size), Size) for symbol in real.parts(self.number))

    def constant(self) -> float:
        found: float = real.specialise(self.number, self.sizes, WHY)
        return found

    def is_same(self, other: Value) -> bool:
        if other is self or other.python_type() is not float:
            return other is self
        if isinstance(other, SymbolicFloat) and real.written(other.number) == real.written(self.number):
            return True
        return other.is_constant() and bool(self.constant() == other.constant())

    # -- operations ------------------------------------------------------------------------------------

    def truth(self, tx: Machine) -> bool:
        return real.compare("!=", self.number, 0, self.sizes, "the program asks whether it is 0")

    def unary(self, tx: Machine, op: str) -> Value:
        if op == "+":
            return self
        return make(tx, self.sizes, "neg", self) if op == "-" else on_numbers(tx, op, self)

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return operate(tx, self.sizes, op, self, other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return operate(tx, self.sizes, op, other, self)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        right = number_of(other)
        if right is None:
            return on_numbers(tx, op, self, other)
        return fresh(real.compare(op, self.number, right, self.sizes, "the program compares it"))

    def get_attr(self, tx: Machine, name: str) -> Value:
        return self if name == "real" else fresh(self.constant()).get_attr(tx, name)

    # -- outside of the capture --------------------------------------------------------------------------

    def graph_argument(self) -> tuple[Any, Any]:
        value = symfloat(self.number, self.sizes)
        return (value, value) if isinstance(value, float) else (self.sizes.graph.float_node(self.number), value)

    def reconstruct(self, out: Assembler) -> None:
        symbols = sorted(real.parts(self.number), key=str)
        names = ", ".join(map(str, symbols))
        text = real.written(self.number, bits="{}")
        function = eval(f"lambda {names}: {text}", dict(real.NAMES))
        sources: list[Any] = [self.sizes.places[symbol][0] for symbol in symbols]
        if real.plain(self.number) is not None:
            out.load_source(sources[0])
            return
        out.start_call(lambda: out.load_object(function))
        for source in sources:
            out.load_source(source)
        out.finish_call(len(sources))


# -- expressions -------------------------------------------------------------------------------------


def number_of(value: Value) -> Number | None:
    """The number of a float or int; None for anything else."""
    if isinstance(value, SymbolicFloat):
        return value.number if value.is_symbolic() else value.constant()
    if value.is_constant() and not value.is_symbolic() and type(value.constant()) is float:
        found: float = value.constant()
        return found
    return extent_of(value)


def operate(tx: Machine, sizes: Sizes, op: str, left: Value, right: Value) -> Value | None:
    """`left op right`, one of them symbolic."""
    if op not in ARITHMETIC or number_of(left) is None or number_of(right) is None:
        return on_numbers(tx, op, left, right)
    return make(tx, sizes, ARITHMETIC[op], left, right)


def on_numbers(tx: Machine, op: str, *values: Value) -> Value | None:
    """What is no arithmetic of floats is computed by Python, with the numbers of the call at hand."""
    if not all(value.is_constant() for value in values):
        return None
    tables: Any = tx.operators  # the module that asks us; it holds Python's operators by their text
    table = tables.UNARY if len(values) == 1 else {**tables.BINARY, **tables.COMPARE}
    return fold(tx, table[op], values)


def make(tx: Machine, sizes: Sizes, op: str, *values: Value) -> Value:
    """The value of `real.FUNCTIONS[op]` of numbers."""
    numbers = [number_of(value) for value in values]
    args = tuple([number for number in numbers if number is not None])
    if len(args) == len(numbers) and _gives_float(op, args) and _total(tx, sizes, op, args):
        return SymbolicFloat(Real(op, args), sizes)
    return fold(tx, real.FUNCTIONS[op], values)


def _gives_float(op: str, args: tuple[Number, ...]) -> bool:
    """Whether it is a float, whatever the symbols are."""
    match op:
        case "pow":
            return real.is_real_power(*args)
        case "max" | "min":
            return all(isinstance(arg, Real | float) for arg in args)
    return op in GIVES_FLOAT or any(isinstance(arg, Real | float) for arg in args)


#: What makes floats of ints.
GIVES_FLOAT = {"truediv", "float", "sqrt", "exp", "log", "sin", "cos", "tanh"}


def _total(tx: Machine, sizes: Sizes, op: str, args: tuple[Number, ...]) -> bool:
    """Whether computing it raises nothing: in this call, and by guards in others."""
    made = Real(op, args)
    if not real.is_computed(made, {symbol: symbol.hint for symbol in real.parts(made)}):
        return False
    if op not in PARTIAL:
        return True
    last = args[-1]
    if op in ("truediv", "floordiv", "mod") and isinstance(last, float | int):
        return True
    if op in ("truediv", "floordiv", "mod") and isinstance(last, Size):
        return sizes.decide(Condition("!=", last, 0), "the program divides by it")
    if op in ("truediv", "floordiv", "mod") and real.plain(last) is not None:
        return real.compare("!=", last, 0, sizes, "the program divides by it")
    if op in ("sqrt", "log") and isinstance(last, Size):
        return sizes.decide(Condition("<", 0, last), f"the program takes its {op}")
    return _is_guarded(tx, sizes, made)


def _is_guarded(tx: Machine, sizes: Sizes, made: Real) -> bool:
    """Has a guard compute it, where it depends on one number from outside."""
    symbols = [symbol for symbol in real.parts(made) if isinstance(sizes.simplify(symbol.size), Size)]
    place: Any = sizes.places[symbols[0]][0] if symbols else None
    if len(symbols) != 1 or isinstance(place, SizeSource | StrideSource):
        return not symbols
    tx.guard("CALL", place, (Computed(made, symbols[0], symbols[0] in sizes.floats), True))
    return True


class Computed:
    """Whether a float can be computed from the number that it depends on."""

    __slots__ = ("is_float", "made", "others", "symbol", "text")

    def __init__(self, made: Real, symbol: Symbol, is_float: bool) -> None:
        self.made = made
        self.symbol = symbol
        self.is_float = is_float
        self.text = real.written(made)
        #: What is fixed by guards of its own.
        self.others = {other: other.hint for other in real.parts(made)}

    def __call__(self, number: Any) -> bool:
        bits = real.bits_of(number) if self.is_float else number
        return real.is_computed(self.made, {**self.others, self.symbol: bits})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Computed) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


# -- functions ---------------------------------------------------------------------------------------


def _exact(op: str) -> Callable[[Machine, Sequence[Value]], Value]:
    def call(tx: Machine, args: Sequence[Value]) -> Value:
        return make(tx, tx.graph.sizes, op, *args)

    return call


EXACT.update(
    {
        math.sqrt: _exact("sqrt"), math.exp: _exact("exp"), math.log: _exact("log"), math.sin: _exact("sin"),
        math.cos: _exact("cos"), math.tanh: _exact("tanh"), operator.neg: lambda tx, args: tx.operators.unary(tx, "-", args[0]),
        operator.truediv: lambda tx, args: tx.operators.binary(tx, "/", *args),
        operator.pow: lambda tx, args: tx.operators.binary(tx, "**", *args),
    }
)  # fmt: skip
MEETS_FLOAT.append(operate)
makes(torch.SymFloat)(lambda obj: SymbolicFloat(obj.node.value, obj.node.environment))  # type: ignore[arg-type]
