"""`float(t)` as a number that the graph goes on computing with, where the program does no more with it than that.

    factor = 1.0 / float(count); batch_norm(…, momentum=factor)    -->    a tensor of one double, in the graph

Arithmetic with floats is the same in doubles of the graph, bit for bit; where Python raises for a divisor of zero, the
graph asserts that it is none. Whatever else the program does with the number ends the graph, and does so before the
number is read. Neighbours: `tensor.py` (reads numbers), `functions.py` (asks `TAKES`), `assertions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from stator.capture import assertions
from stator.capture.fields import part, value_class
from stator.capture.values.base import Object
from stator.capture.values.python.constant import FALSE
from stator.capture.values.registry import fresh
from stator.capture.values.torch.tensor import READS_FLOAT, DataDependentValue, TensorValue, call_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.base.errors import GraphBreak
    from stator.capture.machine import Machine
    from stator.capture.value import Value

ARITHMETIC = {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div}

#: Whole numbers up to this are doubles.
WHOLE = 1 << 53


@value_class
class ReadFloat(Object):
    """A float that a tensor of the graph holds, and only the call knows."""

    kind = "a float read from a tensor"
    in_graph = True

    #: Of one double, and no dims.
    tensor: TensorValue = part()
    location: tuple[str, int]
    step: int

    def python_type(self) -> type:
        return float

    def refuse(self, what: str) -> GraphBreak:
        stop = DataDependentValue("__float__()")
        stop.location, stop.step = self.location, self.step
        return stop

    def get_attr(self, tx: Machine, name: str) -> Value:
        raise self.refuse(name)

    def is_same(self, other: Value) -> bool:
        return self is other

    def unary(self, tx: Machine, op: str) -> Value:
        if op == "+":
            return self
        return self._of(call_graph(tx, "call_function", torch.neg, (self.tensor,), {})) if op == "-" else self._end(op)

    def binary(self, tx: Machine, op: str, other: Value) -> Value:
        return self._operate(tx, op, self, other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value:
        return self._operate(tx, op, other, self)

    def _operate(self, tx: Machine, op: str, left: Value, right: Value) -> Value:
        a, b = operand(left), operand(right)
        if op not in ARITHMETIC or a is None or b is None:
            raise self.refuse(op)
        if op == "/":
            self._check_divisor(tx, right)
        return self._of(call_graph(tx, "call_function", ARITHMETIC[op], (a, b), {}))

    def _check_divisor(self, tx: Machine, divisor: Value) -> None:
        if not isinstance(divisor, ReadFloat):
            if divisor.constant() == 0:
                raise self.refuse("a division by zero")
        elif not assertions.assume(tx, divisor.tensor, True):
            raise self.refuse("a division that may raise")

    def _of(self, tensor: Value) -> ReadFloat:
        assert isinstance(tensor, TensorValue)
        return ReadFloat(tensor, self.location, self.step)

    def _end(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.refuse("use")

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value:
        return self if function is float else self._end()

    truth = compare = mirrored = reconstruct = graph_argument = call = snapshot = cast("Any", _end)


def operand(value: Value) -> Value | None:
    """What the graph computes with in place of a number; None for what is no float, or not the same as a double."""
    if isinstance(value, ReadFloat):
        return value.tensor
    if not value.is_constant() or value.is_symbolic() or value.python_type() not in (int, float):
        return None
    number = value.constant()
    return value if type(number) is float or abs(number) <= WHOLE else None


def read(tx: Machine, owner: TensorValue) -> Value | None:
    """`float(owner)`; None where no graph computes with it."""
    fake = owner.fake
    if fake.constant is not None or fake.requires_grad or fake.dtype.is_complex or fake.is_quantized:
        return None
    if fake._has_symbolic_sizes_strides or fake.numel() != 1 or tx.graph.mapping or tx.graph.scoring:
        return None
    location, step = tx.location(), tx.graph.step
    whole = owner if not fake.dim() else call_graph(tx, "call_method", "reshape", (owner, fresh(())), {})
    assert isinstance(whole, TensorValue)
    named = {"dtype": fresh(torch.float64), "copy": fresh(True)}
    double = call_graph(tx, "call_method", "to", (whole,), named)
    assert isinstance(double, TensorValue)
    return ReadFloat(double, location, step)


READS_FLOAT.append(read)


# -- functions that take such a number ---------------------------------------------------------------------


def batch_norm(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`F.batch_norm` in training with such a momentum: the statistics of the batch alone, then the average."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    momentum, training = given.get("momentum"), given.get("training", FALSE)
    averages = [given[name] for name in ("running_mean", "running_var") if name in given]
    if not isinstance(momentum, ReadFloat) or not training.truth(tx):
        return None
    if len(averages) != 2 or not all(isinstance(value, TensorValue) and value.fake.dtype in WIDE for value in averages):
        return None
    own = [call_graph(tx, "call_function", torch.zeros_like, (value,), {}) for value in averages]
    given |= {"running_mean": own[0], "running_var": own[1], "momentum": fresh(1.0)}
    out = call_graph(tx, "call_function", torch.nn.functional.batch_norm, (), given)
    rest = tx.operators.binary(tx, "-", fresh(1.0), momentum)
    assert isinstance(rest, ReadFloat)
    for average, found in zip(averages, own, strict=True):
        # A write that autograd does not see, as eager's is.
        place = average.get_attr(tx, "data")
        kept = call_graph(tx, "call_function", torch.mul, (place, rest.tensor), {})
        new = call_graph(tx, "call_function", torch.mul, (found, momentum.tensor), {})
        call_graph(tx, "call_method", "copy_", (place, call_graph(tx, "call_function", torch.add, (kept, new), {})), {})
    return out


WIDE = (torch.float32, torch.float64)

#: Function → the same where a float that it is given has been read from a tensor; None: the graph ends.
TAKES: dict[Any, Callable[[Machine, Sequence[Value], dict[str, Value]], Value | None]] = {
    torch.nn.functional.batch_norm: batch_norm,
}


def take(tx: Machine, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """A call of a function of torch with such a number; None if there is none."""
    number = next((value for value in (*args, *kwargs.values()) if isinstance(value, ReadFloat)), None)
    if number is None:
        return None
    taken = TAKES[function](tx, args, kwargs) if function in TAKES else None
    if taken is None:
        raise number.refuse("use")
    return taken
