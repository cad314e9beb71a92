"""Symbolic sizes in torch's terms: `torch.SymInt` over a `Size`, so that fakes and meta kernels compute with them.

torch asks a number of this kind everything through a node, an object with the methods below (its own would bring its
compiler and SymPy). Arithmetic gives a normal form, comparisons a condition, and whoever needs the truth of one has the
`Environment` decide and record it. Floats that come of sizes stay expressions until somebody needs the number.
Invariant: a node whose value is constant says so, hence `symint` and arithmetic give plain ints for constants.
Neighbours: `stator/sizes` (the algebra), `tensor.py` and `mode.py` (fakes with such sizes).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.sizes import Condition, Environment, Extent, Size, maximum, minimum, quotient_of, real, remainder_of
from stator.sizes.real import Number, Real
from stator.sizes.strides import same_layout

#: torch's symbolic numbers.
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def symint(size: Extent, environment: Environment) -> int | torch.SymInt:
    """What torch takes for an extent; a plain int for one that is known."""
    size = environment.simplify(size)
    return size if isinstance(size, int) else torch.SymInt(SizeNode(size, environment))


def size_of(value: int | torch.SymInt) -> Extent:
    """The extent behind what torch gives; bools are ints."""
    if isinstance(value, torch.SymInt):
        node = value.node
        assert isinstance(node, SizeNode), "a symbolic int of another compiler"
        return node.environment.simplify(node.size)
    return int(value)


def known(value: torch.SymInt) -> Extent:
    """The extent in terms of all that is known of it, some of which no input tells."""
    node = value.node
    assert isinstance(node, SizeNode), "a symbolic int of another compiler"
    return node.environment.known(node.size)


def environment_of(values: Iterable[Any]) -> Environment | None:
    """In which the sizes of these tensors and numbers are decided; None where none is symbolic."""
    for value in values:
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for number in numbers:
            if isinstance(number, torch.SymInt) and isinstance(number.node, SizeNode):
                return number.node.environment
    return None


def lies_alike(size: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether strides place the elements of a tensor alike; sizes and strides may be torch's symbolic ints."""
    return same_layout(extents(size), extents(a), extents(b))


def extents(values: Sequence[int | torch.SymInt]) -> tuple[Extent, ...]:
    """The extents of a shape."""
    return tuple([value if type(value) is int else size_of(value) for value in values])


def is_symbolic(values: Iterable[Any]) -> bool:
    """Whether any of these numbers, or of those in lists among them, is symbolic."""
    for value in values:
        if isinstance(value, SYMBOLIC) or (isinstance(value, (list, tuple)) and is_symbolic(value)):
            return True
    return False


class NotModelled(AttributeError, RuntimeError):
    """torch's own code asks a symbolic number for what only the numbers of its compiler have.

    To `hasattr` it is an attribute that is not there, to whoever runs a meta kernel an error of that kernel.
    """


class _Expression:
    """What torch finds in place of a SymPy expression where it asks whether data decides a size: none does."""

    __slots__ = ()
    free_symbols: frozenset[Any] = frozenset()
    args: tuple[Any, ...] = ()
    is_number = is_Boolean = is_Symbol = False


class _Node:
    """What is alike in the nodes of ints, floats and bools."""

    __slots__ = ("environment",)
    environment: Environment
    expr = _Expression()

    def __getattr__(self, name: str) -> Any:
        raise NotModelled(f"{type(self).__name__} of a symbolic number has no {name!r}")

    def wrap_int(self, number: int) -> SizeNode:
        return SizeNode(int(number), self.environment)

    def wrap_float(self, number: float) -> FloatNode:
        return FloatNode(float(number), self.environment)

    def wrap_bool(self, truth: bool) -> TruthNode:
        return TruthNode(bool(truth), self.environment)

    def is_int(self) -> bool:
        return False

    is_float = is_bool = is_nested_int = is_int

    def has_hint(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def is_constant(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def clone(self) -> Any:
        return self

    def str(self) -> str:
        return repr(self)

    _graph_repr = str


# -- numbers ---------------------------------------------------------------------------------------


class SizeNode(_Node):
    """The node of an int: an extent and the environment in which conditions on it are decided."""

    __slots__ = ("size",)

    def __init__(self, size: Extent, environment: Environment) -> None:
        self.size = environment.simplify(size)
        self.environment = environment

    def __repr__(self) -> str:
        return repr(self.size)

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.size, int)

    def maybe_as_int(self) -> int | None:
        return self.size if isinstance(self.size, int) else None

    def int_(self) -> int:
        """A number is asked for."""
        return self.environment.specialise(self.size, "its number is needed")

    def guard_int(self, file: str, line: int) -> int:
        return self.int_()

    def add(self, other: SizeNode) -> SizeNode:
        return SizeNode(self.size + other.size, self.environment)

    def sub(self, other: SizeNode) -> SizeNode:
        return SizeNode(self.size - other.size, self.environment)

    def mul(self, other: SizeNode) -> SizeNode:
        return SizeNode(self.size * other.size, self.environment)

    def int_floordiv(self, other: SizeNode) -> SizeNode:
        return SizeNode(quotient_of(self.size, other._divisor()), self.environment)

    floordiv = int_floordiv

    def mod(self, other: SizeNode) -> SizeNode:
        return SizeNode(remainder_of(self.size, other._divisor()), self.environment)

    def _divisor(self) -> Extent:
        """What is divided by has one sign, so that quotients have a normal form."""
        if isinstance(self.size, Size) and not self.environment.decide(Condition("<", 0, self.size), "divided by"):
            return self.environment.specialise(self.size, "it divides, and is not positive")
        return self.size

    def neg(self) -> SizeNode:
        return SizeNode(-self.size, self.environment)

    def pos(self) -> SizeNode:
        return self

    def sym_max(self, other: SizeNode) -> SizeNode:
        greater = self.environment.prove(Condition("<=", other.size, self.size))
        return (
            SizeNode(maximum(self.size, other.size), self.environment)
            if greater is None
            else self
            if greater
            else other
        )

    def sym_min(self, other: SizeNode) -> SizeNode:
        smaller = self.environment.prove(Condition("<=", self.size, other.size))
        return (
            SizeNode(minimum(self.size, other.size), self.environment)
            if smaller is None
            else self
            if smaller
            else other
        )

    def abs(self) -> SizeNode:
        return SizeNode(maximum(self.size, -self.size), self.environment)

    def sym_sum(self, terms: list[SizeNode]) -> SizeNode:
        total: Extent = 0
        for term in terms:
            total = total + term.size
        return SizeNode(total, self.environment)

    def pow_by_natural(self, other: SizeNode) -> SizeNode:
        power = other.int_()
        result: Extent = 1
        for _ in range(power):
            result = result * self.size
        return SizeNode(result, self.environment)

    pow = pow_by_natural

    # An int is rounded already.
    ceil = floor = trunc = sym_int = pos

    def round(self, digits: int | None = None) -> SizeNode:
        return self

    def sym_float(self) -> FloatNode:
        return FloatNode(self.size, self.environment)

    def int_truediv(self, other: SizeNode) -> FloatNode:
        return self.sym_float().truediv(other.sym_float())

    truediv = int_truediv

    # -- conditions --------------------------------------------------------------------------------

    def eq(self, other: SizeNode) -> TruthNode:
        return TruthNode(Condition("==", self.size, other.size), self.environment)

    def ne(self, other: SizeNode) -> TruthNode:
        return TruthNode(Condition("!=", self.size, other.size), self.environment)

    def lt(self, other: SizeNode) -> TruthNode:
        return TruthNode(Condition("<", self.size, other.size), self.environment)

    def le(self, other: SizeNode) -> TruthNode:
        return TruthNode(Condition("<=", self.size, other.size), self.environment)

    def gt(self, other: SizeNode) -> TruthNode:
        return other.lt(self)

    def ge(self, other: SizeNode) -> TruthNode:
        return other.le(self)

    # -- layouts, asked of the first symbolic size or stride of a tensor ---------------------------------

    def is_contiguous(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        return self._follows(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        return self._follows(sizes, strides, (1, 3, 2, 0) if len(sizes) == 4 else None)

    def is_channels_last_contiguous_3d(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        return self._follows(sizes, strides, (1, 4, 3, 2, 0) if len(sizes) == 5 else None)

    def is_channels_last_strides_2d(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        return self._rises(sizes, strides, (1, 3, 2, 0) if len(sizes) == 4 else None)

    def is_channels_last_strides_3d(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        return self._rises(sizes, strides, (1, 4, 3, 2, 0) if len(sizes) == 5 else None)

    def is_non_overlapping_and_dense(self, sizes: list[SizeNode], strides: list[SizeNode]) -> TruthNode:
        order = sorted(range(len(sizes)), key=lambda dim: _Stride(strides[dim], self.environment))
        return self._follows(sizes, strides, order)

    def is_non_overlapping_and_dense_indicator(self, sizes: list[SizeNode], strides: list[SizeNode]) -> SizeNode:
        return SizeNode(int(self.is_non_overlapping_and_dense(sizes, strides).bool_()), self.environment)

    def _follows(self, sizes: list[SizeNode], strides: list[SizeNode], order: Sequence[int] | None) -> TruthNode:
        """Whether each dim's step is the extent of those before it in `order`, innermost first."""
        if order is None:
            return TruthNode(False, self.environment)
        prove, decide = self.environment.prove, self.environment.decide
        expected: Extent = 1
        for dim in order:
            if prove(Condition("==", strides[dim].size, expected)) is not True:
                break
            expected = expected * sizes[dim].size
        else:
            return TruthNode(True, self.environment)
        if any(decide(Condition("==", size.size, 0), "whether it is empty") for size in sizes):
            return TruthNode(True, self.environment)
        expected = 1
        for dim in order:
            size, stride = sizes[dim].size, strides[dim].size
            if decide(Condition("==", size, 1), "whether it is 1"):
                continue
            if not decide(Condition("==", stride, expected), "whether the tensor is contiguous"):
                return TruthNode(False, self.environment)
            expected = expected * size
        return TruthNode(True, self.environment)

    def _rises(self, sizes: list[SizeNode], strides: list[SizeNode], order: Sequence[int] | None) -> TruthNode:
        """Whether strides are ordered like those of a channels-last tensor, as torch asks it."""
        decide = self.environment.decide
        least: Extent = 0
        if order is None or decide(Condition("==", strides[1].size, 0), "whether channels repeat"):
            return TruthNode(False, self.environment)
        for dim in order:
            size, stride = sizes[dim].size, strides[dim].size
            if decide(Condition("==", size, 0), "whether it is empty") or decide(
                Condition("<", stride, least), "order"
            ):
                return TruthNode(False, self.environment)
            if dim == 0 and decide(Condition("==", least, strides[1].size), "whether the tensor is one row"):
                return TruthNode(False, self.environment)
            wide = decide(Condition("<", 1, size), "whether it is 1")
            least = stride * size if wide else stride
        return TruthNode(True, self.environment)


class _Stride:
    """A stride as a key to sort by."""

    __slots__ = ("environment", "size")

    def __init__(self, node: SizeNode, environment: Environment) -> None:
        self.size, self.environment = node.size, environment

    def __lt__(self, other: _Stride) -> bool:
        return self.environment.decide(Condition("<", self.size, other.size), "the order of strides")


# -- truths ----------------------------------------------------------------------------------------


class TruthNode(_Node):
    """The node of a bool: a condition that is not decided yet, or its outcome."""

    __slots__ = ("condition",)

    def __init__(self, condition: Condition | bool, environment: Environment) -> None:
        self.environment = environment
        proven = condition if isinstance(condition, bool) else environment.prove(condition)
        self.condition = condition if proven is None else proven

    def __repr__(self) -> str:
        return str(self.condition)

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.condition, bool)

    def maybe_as_bool(self) -> bool | None:
        return self.condition if isinstance(self.condition, bool) else None

    def bool_(self) -> bool:
        """The truth is asked for."""
        if not isinstance(self.condition, bool):
            self.condition = self.environment.decide(self.condition, "an operator depends on it")
        return self.condition

    def guard_bool(self, file: str, line: int) -> bool:
        return self.bool_()

    expect_true = guard_size_oblivious = guard_or_false = guard_or_true = guard_bool

    def statically_known_true(self, file: str, line: int) -> bool:
        return self.condition is True

    def sym_not(self) -> TruthNode:
        condition = self.condition
        return TruthNode(not condition if isinstance(condition, bool) else condition.negated(), self.environment)

    def sym_and(self, other: TruthNode) -> TruthNode:
        if other.condition is True or self.condition is False:
            return self
        return other if self.bool_() else self

    def sym_or(self, other: TruthNode) -> TruthNode:
        if other.condition is False or self.condition is True:
            return self
        return self if self.bool_() else other

    and_ = bitwise_and = sym_and
    or_ = bitwise_or = sym_or

    def eq(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.bool_() is other.bool_(), self.environment)

    def ne(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.bool_() is not other.bool_(), self.environment)

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return then if self.bool_() else otherwise

    def sym_int(self) -> SizeNode:
        return SizeNode(int(self.bool_()), self.environment)

    sym_float = sym_int


# -- floats ----------------------------------------------------------------------------------------


class FloatNode(_Node):
    """The node of a float: a number, a size as a float, or an expression.

    Whoever only passes it on keeps it symbolic; who needs the number fixes what it is computed from.
    """

    __slots__ = ("value",)

    def __init__(self, value: Number, environment: Environment) -> None:
        self.value = float(value) if isinstance(value, int) else value
        self.environment = environment

    def __repr__(self) -> str:
        return str(self.value)

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.value, float)

    def maybe_as_float(self) -> float | None:
        return self.value if isinstance(self.value, float) else None

    def guard_float(self, file: str, line: int) -> float:
        return self._number(self.value)

    def hint(self) -> float:
        """The number in the call at hand; nothing is assumed of it."""
        return float(real.now(self.value))

    def sym_float(self) -> FloatNode:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Arithmetic and comparisons are those of floats."""
        if name not in _FLOATS:
            raise Unsupported(f"{name} of a symbolic float", "it is not modelled")
        return lambda *others: self._apply(name, self.value, *[other.value for other in others])

    def _apply(self, name: str, *values: Number) -> FloatNode | TruthNode | SizeNode:
        if any(not isinstance(value, float) for value in values):
            whole = [extent for value in values if (extent := _exact(value)) is not None]
            if name in _CONDITIONS:
                op = _CONDITIONS[name]
                if len(whole) == len(values):
                    first, second = whole if op[0] != ">" else whole[::-1]
                    return TruthNode(Condition(op.replace(">", "<"), first, second), self.environment)
                truth = real.compare(op, values[0], values[1], self.environment, "an operator depends on it")
                return TruthNode(truth, self.environment)
            if len(whole) == len(values) and name in _WHOLE:
                return FloatNode(_FLOATS[name](*whole), self.environment)
            op = _ARITHMETIC.get(name, "")
            if op and (op != "pow" or real.is_real_power(*values)):
                return FloatNode(Real(op, values), self.environment)
        return self._wrap(_FLOATS[name](*[self._number(value) for value in values]))

    def _number(self, value: Number) -> float:
        return float(real.specialise(value, self.environment, "its number is needed"))

    def _wrap(self, result: float | bool) -> FloatNode | TruthNode | SizeNode:
        match result:
            case bool():
                return TruthNode(result, self.environment)
            case int():
                return SizeNode(result, self.environment)
        return FloatNode(result, self.environment)


def symfloat(value: Number, environment: Environment) -> float | torch.SymFloat:
    """What torch takes for a float; a plain one for a number."""
    if all(isinstance(environment.simplify(symbol.size), int) for symbol in real.parts(value)):
        return float(real.now(value))
    return torch.SymFloat(FloatNode(value, environment))


def _exact(value: Number) -> Extent | None:
    """The extent that a float is, if it is whole."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return None if isinstance(value, Real) else value


#: What stays symbolic: on any floats, and on whole ones, where it gives whole ones.
_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "float_truediv": "truediv", "neg": "neg",
    "sqrt": "sqrt", "pow": "pow", "float_pow": "pow", "abs": "abs", "floordiv": "floordiv", "mod": "mod",
    "sym_min": "min", "sym_max": "max",
}  # fmt: skip
_WHOLE = {"add", "sub", "mul", "neg"}
_CONDITIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOATS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "float_truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "float_pow": operator.pow,
    "neg": operator.neg,
    "sqrt": math.sqrt,
    "sym_min": min,
    "sym_max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "abs": abs,
    "ceil": lambda number: -int(-number // 1),
    "floor": lambda number: int(number // 1),
    "trunc": int,
    "sym_int": int,
    "round": round,
    "is_integer": float.is_integer,
}
