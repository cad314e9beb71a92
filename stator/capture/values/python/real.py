"""Symbolic floats: floats from outside that differ from call to call, and what is computed from them or from sizes.

Arithmetic stays symbolic and is Python's own: in the graph it is `operator` and `math` calls, outside of it the new
code computes it from the same sources. A comparison is decided as it is in the call at hand and becomes a guard: with a
constant one on the bits of the float, else one that computes both sides again. All else that needs the number fixes it,
with the line that did it.
Invariant: a symbolic float raises nothing when it is computed; what could raise is guarded or fixed (`_total`).
Neighbours: `sizes/real.py` (the expressions), `capture/dynamic.py` (what is symbolic), `symbolic.py` (ints).
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.fields import value_class
from stator.capture.value import Value
from stator.capture.values.fold import fold
from stator.capture.values.python.symbolic import EXACT, MEETS_FLOAT, check_attribute, extent_of, unequal
from stator.capture.values.registry import fresh, makes
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


@value_class
class SymbolicFloat(Value):
    """A float given by an expression."""

    kind = "a symbolic float"

    number: Real
    sizes: Sizes

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
        return compare(tx, self.sizes, "!=", self.number, 0, "the program asks whether it is 0")

    def unary(self, tx: Machine, op: str) -> Value:
        if op == "+":
            return self
        return make(tx, self.sizes, "neg", self) if op == "-" else fold(tx, operator.invert, (self,))

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return operate(tx, self.sizes, op, self, other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return operate(tx, self.sizes, op, other, self)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        right = number_of(other)
        if right is None:
            return unequal(op, other) or on_numbers(tx, op, self, other)
        return fresh(compare(tx, self.sizes, op, self.number, right, "the program compares it"))

    def get_attr(self, tx: Machine, name: str) -> Value:
        check_attribute(tx, float, name)
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


def on_numbers(tx: Machine, op: str, left: Value, right: Value) -> Value | None:
    """What is no arithmetic of floats is computed by Python, with the numbers of the call at hand."""
    if not (left.is_constant() and right.is_constant()):
        return None
    tables: Any = tx.operators  # the module that asks us; it holds Python's operators by their text
    return fold(tx, {**tables.BINARY, **tables.COMPARE}[op], (left, right))


def compare(tx: Machine, sizes: Sizes, op: str, left: Number, right: Number, reason: str) -> bool:
    """`left op right`, by ranges where that is possible, or by a guard that computes it again."""
    if real.plain(left) is None or isinstance(right, Real | Size):
        return Asked(functools.partial(_compare, op, left, right), op, left, right).guarded(tx, sizes)
    return real.compare(op, left, right, sizes, reason)


def _compare(op: str, left: Number, right: Number, values: dict[Symbol, int]) -> bool:
    try:
        return bool(real.COMPARE[op](real.value(left, values), real.value(right, values)))
    except (ArithmeticError, ValueError):
        return False  # which another guard sees


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
            base, exponent = args  # whether it is complex or raises is a guard, see `_total`
            return (
                isinstance(base, Real | float) or isinstance(exponent, Real | float) or not isinstance(exponent, Size)
            )
        case "max" | "min":
            return all(isinstance(arg, Real | float) for arg in args)
    return op in GIVES_FLOAT or any(isinstance(arg, Real | float) for arg in args)


#: Powers of 64 bits up to this are floats.
EXPONENT = 16
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
    if op == "pow" and isinstance(args[0], Size) and isinstance(last, int | float) and abs(last) <= EXPONENT:
        return sizes.decide(Condition("<", 0, args[0]), "the program takes a root of it")
    return Asked(functools.partial(real.is_computed, made), "computes", made).guarded(tx, sizes)


class Asked:
    """A question about numbers from outside, which a guard asks again."""

    __slots__ = ("alone", "answer", "guard_text", "numbers", "op", "operands", "values")

    def __init__(self, answer: Callable[[dict[Symbol, int]], bool], op: str, *numbers: Number) -> None:
        self.answer = answer
        self.op = op
        self.numbers = numbers
        self.values = {symbol: symbol.hint for number in numbers for symbol in real.parts(number)}

    def guarded(self, tx: Machine, sizes: Sizes) -> bool:
        """The answer in this call, with a guard."""
        symbols = [symbol for symbol in self.values if isinstance(sizes.simplify(symbol.size), Size)]
        self.operands = {symbol: sizes.operand(symbol) for symbol in symbols}
        self.guard_text = self._text()
        answer = self.answer(self.values)
        sources = tuple([operand.source for operand in self.operands.values()])
        self.alone = len(sources) == 1
        if self.alone:
            tx.guard("CALL", sources[0], (self, answer))
        elif sources:
            tx.guard("TOGETHER", None, (self, answer, sources))
        return answer

    def __call__(self, found: Any) -> bool:
        objects = (found,) if self.alone else found
        read = {
            symbol: operand.read(obj) for (symbol, operand), obj in zip(self.operands.items(), objects, strict=True)
        }
        return self.answer({**self.values, **read})

    def _text(self) -> str:
        names = {symbol: str(operand.source) for symbol, operand in self.operands.items() if operand.kind == "bits"}
        names |= {symbol: str(operand) for symbol, operand in self.operands.items() if operand.kind != "bits"}
        written = [real.written(number, names, "{}") for number in self.numbers]
        return f" {self.op} ".join(written) if len(written) > 1 else f"{self.op} {written[0]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and other.guard_text == self.guard_text

    def __hash__(self) -> int:
        return hash(self.guard_text)

    def __repr__(self) -> str:
        return self.guard_text


# -- functions ---------------------------------------------------------------------------------------


def _exact(op: str) -> Callable[[Machine, Sequence[Value]], Value]:
    def call(tx: Machine, args: Sequence[Value]) -> Value:
        return make(tx, tx.graph.sizes, op, *args) if len(args) == 1 else fold(tx, real.FUNCTIONS[op], args)

    return call


def _power(tx: Machine, args: Sequence[Value]) -> Value:
    return tx.operators.binary(tx, "**", *args) if len(args) == 2 else fold(tx, pow, args)


def _rounded(function: Callable[[float], int]) -> Callable[[Machine, Sequence[Value]], Value]:
    """A function that makes an int of a float: a guard asks for the same int, which many floats give."""
    otherwise = EXACT.get(function)

    def call(tx: Machine, args: Sequence[Value]) -> Value:
        number = number_of(args[0]) if len(args) == 1 else None
        if isinstance(number, Real) and (found := _whole(function, real.now(number))) is not None:
            gives = functools.partial(_gives, function, number, found)
            Asked(gives, f"{function.__name__} is {found} of", number).guarded(tx, tx.graph.sizes)
            return fresh(found)
        return fold(tx, function, args) if otherwise is None else otherwise(tx, args)

    return call


def _asks(function: Callable[[float], bool]) -> Callable[[Machine, Sequence[Value]], Value]:
    """A question about what kind of float it is (`isfinite`), which a guard asks again; ints are finite."""

    def call(tx: Machine, args: Sequence[Value]) -> Value:
        number = number_of(args[0]) if len(args) == 1 else None
        if isinstance(number, Size):
            return fresh(function(0))
        if isinstance(number, Real):
            answers = Asked(functools.partial(_answers, function, number), function.__name__, number)
            return fresh(answers.guarded(tx, tx.graph.sizes))
        return fold(tx, function, args)

    return call


def _answers(function: Callable[[float], bool], number: Number, values: dict[Symbol, int]) -> bool:
    try:
        return function(real.value(number, values))
    except (ArithmeticError, ValueError):
        return False  # which another guard sees


def _whole(function: Callable[[float], int], number: float) -> int | None:
    return function(number) if math.isfinite(number) else None


def _gives(function: Callable[[float], int], number: Number, found: int, values: dict[Symbol, int]) -> bool:
    try:
        return _whole(function, real.value(number, values)) == found
    except (ArithmeticError, ValueError):
        return False  # which another guard sees


def extreme(tx: Machine, op: str, items: Sequence[Value]) -> Value | None:
    """`max(items)` (op ">") or `min(items)` where all are floats and one is symbolic."""
    symbolic = next((item for item in items if isinstance(item, SymbolicFloat) and item.is_symbolic()), None)
    if symbolic is None or any(item.python_type() is not float for item in items):
        return None
    return make(tx, symbolic.sizes, "max" if op == ">" else "min", *items)


EXACT.update(
    {
        math.sqrt: _exact("sqrt"), math.exp: _exact("exp"), math.log: _exact("log"), math.sin: _exact("sin"),
        math.cos: _exact("cos"), math.tanh: _exact("tanh"),
        operator.neg: lambda tx, args: tx.operators.unary(tx, "-", args[0]),
        abs: _exact("abs"), operator.abs: _exact("abs"),
        operator.truediv: lambda tx, args: tx.operators.binary(tx, "/", *args),
        operator.pow: lambda tx, args: tx.operators.binary(tx, "**", *args),
        math.floor: _rounded(math.floor), math.ceil: _rounded(math.ceil), math.trunc: _rounded(math.trunc),
        round: _rounded(round), pow: _power,
        math.isfinite: _asks(math.isfinite), math.isnan: _asks(math.isnan), math.isinf: _asks(math.isinf),
    }
)  # fmt: skip
MEETS_FLOAT.append(operate)
makes(torch.SymFloat)(lambda obj: SymbolicFloat(obj.node.value, obj.node.environment))
