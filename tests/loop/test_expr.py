"""Folding is exact: what it removes could not have changed a bit, signed zeros and NaN included."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stator.loop import scalar
from stator.loop.evaluate import Memory, _Values
from stator.loop.expr import (
    OPS,
    Expr,
    Rewriter,
    bitcast,
    cast,
    const,
    index,
    load,
    masked,
    op,
    postorder,
    reduce,
    to_index,
)
from stator.loop.index import Axis, Index

a, b = Axis("a", 8), Axis("b", 4)
x = load("x", a.index, "f32")
y = load("y", a.index, "f32")
h = load("h", a.index, "bf16")
n = load("n", a.index, "i64")
m = load("m", a.index, "bool")
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


def f(value: float) -> Expr:
    return const(value, "f32")


#: Of halves alone, rounded to whole numbers.
clamped = op("minimum", f(255.0), op("where", m, op("round", op("abs", cast(h, "f32"))), f(-0.5)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (op("mul", x, f(1.0)), x),
        (op("add", x, f(-0.0)), x),
        (op("sub", x, f(0.0)), x),
        (op("div", x, f(1.0)), x),
        (op("neg", op("neg", x)), x),
        (cast(x, "f32"), x),
        (cast(cast(h, "f32"), "bf16"), h),
        (cast(cast(h, "f32"), "f64"), cast(h, "f64")),
        (cast(cast(n, "i64"), "i64"), n),
        (cast(cast(clamped, "bf16"), "f32"), clamped),
        (cast(cast(reduce("max", clamped), "bf16"), "f32"), reduce("max", clamped)),
        (op("where", const(True, "bool"), x, y), x),
        (op("where", m, x, x), x),
        (op("and", m, const(False, "bool")), const(False, "bool")),
        (op("or", m, const(False, "bool")), m),
        (op("not", op("not", m)), m),
        (op("not", op("lt", n, const(3, "i64"))), op("ge", n, const(3, "i64"))),
        (op("where", m, const(True, "bool"), const(False, "bool")), m),
        (op("where", op("not", m), x, y), op("where", m, y, x)),
        (masked(const(False, "bool"), x, y), y),
        (op("maximum", x, x), x),
        (op("mul", n, const(0, "i64")), const(0, "i64")),
        (op("add", index(a.index), index(b.index)), index(a.index + b)),
        (op("mul", index(a.index), const(3, "i64")), index(a.index * 3)),
        (op("lt", index(a.index), const(8, "i64")), const(True, "bool")),
        (op("ge", index(a.index), const(8, "i64")), const(False, "bool")),
        (to_index(index(a.index), 8), a.index),
        (index(to_index(n, 10)), n),
        (bitcast(x, "f32"), x),
    ],
)
def test_folded(before: object, after: object) -> None:
    assert before is after


@pytest.mark.parametrize(
    "kept",
    [
        op("add", x, f(0.0)),  # -0.0 + 0.0 is 0.0
        op("sub", x, f(-0.0)),
        op("mul", x, f(0.0)),  # NaN, infinities, signs
        op("sub", x, x),
        op("eq", x, x),
        op("not", op("lt", x, y)),  # NaN
        op("div", x, x),
        cast(cast(x, "bf16"), "f32"),  # a rounding
        cast(cast(clamped, "f16"), "f32"),  # of a number that another type holds
        cast(cast(op("maximum", clamped, f(257.0)), "bf16"), "f32"),  # of nine digits
        cast(cast(reduce("sum", clamped), "bf16"), "f32"),
        cast(cast(n, "i32"), "i64"),  # a wrap
        cast(cast(n, "f32"), "i64"),
        op("lt", index(a.index), const(7, "i64")),
    ],
)
def test_kept(kept: Expr) -> None:
    assert kept.op not in ("const", "load")
    assert kept.args


def test_constants_are_told_apart() -> None:
    assert f(0.0) is not f(-0.0)
    assert f(math.nan) is f(-math.nan)
    assert const(1, "i64") is not const(1.0, "f32")
    assert const(True, "bool") is not const(1, "i64")
    assert f(0.1).attr == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert const(300, "u8").attr == 44


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [torch.floor, torch.ceil, torch.trunc, torch.round, torch.sign, torch.abs])
def test_halves_hold_what_is_chosen_of_halves(
    function: Callable[[torch.Tensor], torch.Tensor], half: torch.dtype
) -> None:
    """Which is why no rounding follows it: of all halves."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(half)
    wanted = function(every.float())
    torch.testing.assert_close(wanted.to(half).float(), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_operator_agrees_with_its_evaluation(name: str) -> None:
    """Folded constants equal what the evaluator computes from loads of the same numbers."""
    rule, arity = OPS[name].rule, OPS[name].arity
    dtype = {"bits": "i32"}.get(rule, "f32")
    dtypes = ["bool" if rule == "where" and k == 0 else dtype for k in range(arity)]
    for values in ([1, 2, 3], [-0.0, 0.0, 1], [5, -3, 2], [0.5, 0.25, 0]):
        numbers = [scalar.convert(d, v) for d, v in zip(dtypes, values, strict=False)]
        memories = {}
        for k, (d, v) in enumerate(zip(dtypes, numbers, strict=True)):
            memories[f"v{k}"] = Memory(bytearray(8), 0, d)
            memories[f"v{k}"].write(0, v)
        loaded = op(name, *[load(f"v{k}", 0, d) for k, d in enumerate(dtypes)])
        folded = op(name, *[const(v, d) for v, d in zip(numbers, dtypes, strict=True)])
        computed = [_Values({}, memories, {})(e) for e in (loaded, folded)]
        same = scalar.pack(loaded.dtype, computed[0]) == scalar.pack(folded.dtype, computed[1])
        assert same or all(value != value for value in computed)  # one constant stands for NaN of both signs


def test_dtype_rules() -> None:
    for wrong in (
        lambda: op("add", x, n),
        lambda: op("add", h, h),
        lambda: op("exp", n),
        lambda: op("and", x, x),
        lambda: op("where", x, x, y),
        lambda: op("add", x),
        lambda: reduce("sum", m),
        lambda: reduce("any", x),
        lambda: masked(n, x, y),
        lambda: bitcast(x, "i64"),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert op("lt", x, y).dtype == "bool"
    assert reduce("argmax", x).dtype == "i64"


@given(st.floats(width=32), st.sampled_from((torch.bfloat16, torch.float16, torch.float32)))
def test_rounding_is_torch_s(value: float, dtype: torch.dtype) -> None:
    ours = scalar.round_to(DTYPES[dtype], value)
    theirs = torch.tensor(value, dtype=torch.float32).to(dtype).item()
    assert ours == theirs or (ours != ours and theirs != theirs)


@given(st.integers(-(2**70), 2**70))
def test_integers_wrap(value: int) -> None:
    for dtype, bits in (("i64", 64), ("i32", 32), ("i16", 16), ("i8", 8)):
        ours = scalar.round_to(dtype, value)
        assert -(2 ** (bits - 1)) <= ours < 2 ** (bits - 1)
        assert (ours - value) % 2**bits == 0


def test_levels_axes_and_order() -> None:
    mean = reduce("sum", x)
    spread = reduce("sum", op("mul", op("sub", x, mean), op("sub", x, mean)))
    value = op("add", spread, mean)
    assert (mean.level, spread.level, value.level) == (1, 2, 2)
    order = postorder([value])
    assert len(order) == len(set(order)) == 6
    assert all(order.index(arg) < order.index(node) for node in order for arg in node.args)


def test_what_has_been_summed_up_comes_before_what_is_added() -> None:
    """So that a long sum of products keeps one of its loads at a time."""
    total = const(0.0, "f32")
    for i in range(4):
        total = op("fma", load("a", Index.of(i), "f32"), load("b", Index.of(i), "f32"), total)
    found = [node.op if node.op == "fma" else node.attr[0] for node in postorder([total]) if node.op != "const"]
    assert found == ["a", "b", "fma"] * 4


def test_rewriting_reaches_indirect_indices() -> None:
    value = load("x", to_index(n, 8), "f32")
    moved = Rewriter({a: Index.of(b)}, lambda name, position, dtype: load(name.upper(), position, dtype))(value)
    assert moved is load("X", to_index(load("N", b.index, "i64"), 8), "f32")
    assert value.axes == {a}


def test_deep_expressions_need_no_recursion() -> None:
    value = x
    for _ in range(20_000):
        value = op("add", value, y)
    assert len(postorder([value])) == 20_002
    assert value.substitute({a: Index.of(b)}).axes == {b}
