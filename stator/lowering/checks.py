"""Checks of data: a nest that asks whether an element is wrong, and ATen's assertion, which raises.

Nothing is left of a check whose answer is proven. Neighbour: `graphs/checks.py` says what the operators mean.
"""

from __future__ import annotations

from stator.base.effects import Effect
from stator.graphs.checks import (
    CHECK_DIVISOR,
    CHECK_POSITIONS,
    CHECK_PROBABILITIES,
    DIVISION,
    OUT_OF_RANGE,
    PROBABILITIES,
)
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO
from stator.loop.ranges import Ranges
from stator.lowering.context import Context, loop_axes
from stator.lowering.extern import call
from stator.lowering.table import lowers
from stator.lowering.value import Body, LazyTensor, pointwise
from stator.sizes import Extent


@lowers(CHECK_POSITIONS)
def check_positions(context: Context, out: None, x: LazyTensor, low: Extent, high: Extent) -> None:
    known = _range(x)
    if known is not None and type(low) is int and type(high) is int and low <= known[0] and known[1] < high:
        return

    def fits(value: Expr) -> Expr:
        value = e.cast(value, "i64")
        return e.op("and", e.op("ge", value, e.index(low)), e.op("lt", value, e.index(high)))

    _require(context, x, lambda at: fits(x.load(at)), OUT_OF_RANGE.format(high if type(high) is int else "n"))


@lowers(CHECK_DIVISOR)
def check_divisor(context: Context, out: None, x: LazyTensor) -> None:
    known = _range(x)
    if known is not None and not known[0] <= 0 <= known[1]:
        return
    _require(context, x, lambda at: e.op("ne", x.load(at), e.const(0, x.dtype)), DIVISION)


@lowers(CHECK_PROBABILITIES)
def check_probabilities(context: Context, out: None, x: LazyTensor) -> None:
    wide = "f64" if x.dtype == "f64" else "f32"

    def fits(value: Expr) -> Expr:
        value = e.cast(value, wide)
        return e.op("and", e.op("ge", value, e.const(0.0, wide)), e.op("le", value, e.const(1.0, wide)))

    _require(context, x, lambda at: fits(x.load(at)), PROBABILITIES)


@lowers("_linalg_check_errors")
def check_linalg(context: Context, out: None, info: LazyTensor, name: str, *, is_matrix: bool) -> None:
    """In a wrapper, what starts with "torch." is an expression and no text."""
    call(
        context,
        "aten._linalg_check_errors.default",
        None,
        (info, name.removeprefix("torch.")),
        {"is_matrix": is_matrix},
        (Effect.CHECK,),
    )


def _range(x: LazyTensor) -> tuple[int, int] | None:
    """Between which numbers all elements provably lie."""
    return Ranges().numbers(x.load(loop_axes(x.size, x.stride)[1]))


def _require(context: Context, x: LazyTensor, condition: Body, message: str) -> None:
    """Raise at run time where the condition does not hold for an element."""

    def all_hold(value: Expr) -> Expr:
        return e.op("not", e.reduce("any", e.op("not", value)))

    if all(n == 1 for n in x.size):
        held = pointwise((), "bool", lambda at: condition((ZERO,) * x.rank), x.weight + 1)
    else:
        held = context.reduce(x.size, list(range(x.rank)), "bool", lambda at: all_hold(condition(at)), False)
    call(context, "aten._assert_async.msg", None, (held, message), {}, (Effect.CHECK,))
