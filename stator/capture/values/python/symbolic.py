"""Symbolic ints: sizes that differ from call to call, ints from outside that do, and what is computed from them.

Arithmetic stays symbolic; a comparison is decided as it is in the call at hand, and becomes a guard. Whatever needs the
number itself (an index, a key, a text, a range) asks for `constant()`: the value is then fixed for this version, with
the line that did it. In the graph such an int is a node computed from the sizes of inputs, outside of it the new code
computes it from the same sources.
Neighbours: `capture/dynamic.py` (what is symbolic), `operators.py` (asks these values before it folds constants).
"""

from __future__ import annotations

import math
import operator
from types import EllipsisType, NoneType
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.fields import value_class
from stator.capture.value import Value
from stator.capture.values.fold import fold
from stator.capture.values.registry import fresh, makes
from stator.fake.symbolic import size_of, symint
from stator.sizes import Condition, Extent, Size, maximum, minimum, python, quotient_of, remainder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.dynamic import Sizes
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler

#: A comparison read from its other side.
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: The greatest exponent that is multiplied out.
EXPONENT = 8


def is_negative(exponent: Value) -> bool:
    """Whether it is a number that makes a float of an int."""
    return (
        exponent.is_constant()
        and not exponent.is_symbolic()
        and type(exponent.constant()) is int
        and exponent.constant() < 0
    )


@value_class
class SymbolicValue(Value):
    """An int given by an expression of sizes."""

    kind = "a symbolic size"

    size: Size
    sizes: Sizes

    def __repr__(self) -> str:
        return f"SymbolicValue({self.size})"

    def python_type(self) -> type:
        return int

    def is_constant(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return isinstance(self.sizes.simplify(self.size), Size)

    def constant(self) -> int:
        return self.sizes.specialise(self.size, "the program needs the number itself")

    def is_same(self, other: Value) -> bool:
        # Equal ints are one object or two by accident of the interpreter.
        extent = extent_of(other) if other.python_type() is int else None
        return extent is not None and self.sizes.decide(Condition("==", self.size, extent), "the program compares it")

    # -- operations ------------------------------------------------------------------------------------

    def truth(self, tx: Machine) -> bool:
        return self.sizes.decide(Condition("!=", self.size, 0), "the program asks whether it is 0")

    def unary(self, tx: Machine, op: str) -> Value:
        size = self.sizes.simplify(self.size)
        return self.like(size if op == "+" else -size if op == "-" else -size - 1)

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operate(tx, op, self, other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operate(tx, op, other, self)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        right = extent_of(other)
        if right is None and other.python_type() is float and other.is_symbolic():
            return other.compare(tx, MIRRORED[op], self)
        if right is None:
            limit = limit_of(op, other)
            if limit is None:
                return unequal(op, other) or self._on_numbers(tx, op, self, other)
            op, right = limit
        match op:
            case ">":
                condition = Condition("<", right, self.size)
            case ">=":
                condition = Condition("<=", right, self.size)
            case _:
                condition = Condition(op, self.size, right)
        return fresh(self.sizes.decide(condition, "the program compares it"))

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in ("real", "numerator"):
            return self
        if name in ("imag", "denominator"):
            return fresh(int(name == "denominator"))
        check_attribute(tx, int, name)
        return fresh(self.constant()).get_attr(tx, name)

    def _operate(self, tx: Machine, op: str, left: Value, right: Value) -> Value | None:
        if op == "/" or float in (left.python_type(), right.python_type()) or (op == "**" and is_negative(right)):
            (operate,) = MEETS_FLOAT
            return operate(tx, self.sizes, op, left, right)
        first, second = extent_of(left), extent_of(right)
        if first is None or second is None:
            return self._on_numbers(tx, op, left, right)
        result = self.arithmetic(op, first, second)
        return self._on_numbers(tx, op, left, right) if result is None else self.like(result)

    def arithmetic(self, op: str, left: Extent, right: Extent) -> Extent | None:
        """`left op right`, where that is an expression of sizes."""
        match op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "//" | "%" if self.sizes.decide(Condition("<", 0, right), "the program divides by it"):
                return quotient_of(left, right) if op == "//" else remainder_of(left, right)
            case "**" if isinstance(right, int) and 0 <= right <= EXPONENT:
                power: Extent = 1
                for _ in range(right):
                    power = power * left
                return power
        return None

    def _on_numbers(self, tx: Machine, op: str, left: Value, right: Value) -> Value | None:
        """What is no arithmetic of ints is computed by Python, with the numbers of the call at hand."""
        if not (left.is_constant() and right.is_constant()):
            return None
        tables = tx.operators  # the module that asks us; it holds Python's operators by their text
        table: dict[str, Callable[..., Any]] = {**tables.BINARY, **tables.COMPARE}  # type: ignore[attr-defined]
        return fold(tx, table[op], (left, right))

    def like(self, extent: Extent) -> Value:
        """The value of another expression."""
        extent = self.sizes.simplify(extent)
        return SymbolicValue(extent, self.sizes) if isinstance(extent, Size) else fresh(extent)

    # -- outside of the capture --------------------------------------------------------------------------

    def graph_argument(self) -> tuple[Any, Any]:
        extent = self.sizes.simplify(self.size)
        return self.sizes.graph.size_node(extent), symint(extent, self.sizes)

    def reconstruct(self, out: Assembler) -> None:
        symbols = sorted(self.size.symbols, key=str)
        sources: list[Any] = [self.sizes.places[symbol][0] for symbol in symbols]
        if self.size == symbols[0].size:
            out.load_source(sources[0])
            return
        out.start_call(lambda: out.load_object(function_of(self.size)))
        for source in sources:
            out.load_source(source)
        out.finish_call(len(sources))


def function_of(size: Size) -> Callable[..., int]:
    """An expression as a Python function of its symbols, in the order of their names."""
    names = ", ".join(sorted(map(str, size.symbols)))
    function: Callable[..., int] = eval(f"lambda {names}: {python(size)}", {"max": max, "min": min})
    return function


def extent_of(value: Value) -> Extent | None:
    """The extent of an int's value; None for anything else."""
    if isinstance(value, SymbolicValue):
        return value.sizes.simplify(value.size)
    if not value.is_constant() or value.is_symbolic():
        return None
    constant = value.constant()
    return int(constant) if isinstance(constant, int) else None


def check_attribute(tx: Machine, cls: type, name: str) -> None:
    """Raises where no number of the type has the attribute, whichever it is."""
    if not hasattr(cls, name):
        tx.raise_exception(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")


#: Types whose objects equal no number, and do not compare otherwise.
NO_NUMBERS = {NoneType, EllipsisType, str, bytes, tuple, list, dict, set, frozenset, range, slice}


def unequal(op: str, other: Value) -> Value | None:
    """What `==` and `!=` say of a number and an object that is none; None where that needs the number."""
    if op in ("==", "!=") and other.python_type() in NO_NUMBERS:
        return fresh(op == "!=")
    return None


def limit_of(op: str, other: Value) -> tuple[str, int] | None:
    """What `n op f` says of an int n, for a float f that is known: a comparison with an int; None where it is none."""
    number = other.constant() if other.is_constant() and not other.is_symbolic() else None
    if type(number) is not float or not math.isfinite(number):
        return None
    if number.is_integer():
        return op, int(number)
    match op:
        case "<" | "<=":
            return "<=", math.floor(number)
        case ">" | ">=":
            return ">=", math.ceil(number)
    return None


def extreme(op: str, items: Sequence[Value]) -> Value | None:
    """`max(items)` (op ">") or `min(items)` of ints, where it depends on sizes without a decision."""
    symbolic = next((item for item in items if isinstance(item, SymbolicValue)), None)
    extents = [extent_of(item) for item in items]
    if symbolic is None or any(extent is None for extent in extents):
        return None
    best, *others = extents
    for extent in others:
        assert best is not None and extent is not None
        lower = symbolic.sizes.prove(Condition("<=", best, extent))
        if lower is None:
            best = maximum(best, extent) if op == ">" else minimum(best, extent)
        elif lower is (op == ">"):
            best = extent
    assert best is not None
    return symbolic.like(best)


#: `operate` of `real.py`, which builds on this file: what an int gives with a float, or divided.
MEETS_FLOAT: list[Callable[[Machine, Sizes, str, Value, Value], Value | None]] = []


def _itself(function: Callable[..., Any]) -> Callable[[Machine, Sequence[Value]], Value]:
    """What rounds a number leaves an int as it is."""

    def call(tx: Machine, args: Sequence[Value]) -> Value:
        return args[0] if isinstance(args[0], SymbolicValue) else fold(tx, function, args)

    return call


#: C functions that are exact on symbolic ints; asked by `builtin.BuiltinValue` before it folds.
EXACT: dict[Any, Callable[[Machine, Sequence[Value]], Value]] = {
    **{function: _itself(function) for function in (math.floor, math.ceil, math.trunc, operator.index)},
    math.prod: lambda tx, args: product(tx, args[0].unpack(tx)),
    operator.add: lambda tx, args: tx.operators.binary(tx, "+", *args),
    operator.sub: lambda tx, args: tx.operators.binary(tx, "-", *args),
    operator.mul: lambda tx, args: tx.operators.binary(tx, "*", *args),
    operator.floordiv: lambda tx, args: tx.operators.binary(tx, "//", *args),
    operator.mod: lambda tx, args: tx.operators.binary(tx, "%", *args),
}


def product(tx: Machine, items: Sequence[Value]) -> Value:
    """The product of ints."""
    total: Value = fresh(1)
    for item in items:
        total = tx.operators.binary(tx, "*", total, item)
    return total


makes(torch.SymInt)(lambda obj: SymbolicValue(size_of(obj), obj.node.environment))  # type: ignore[arg-type]
