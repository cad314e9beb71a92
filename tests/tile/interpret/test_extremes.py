"""No number stops the interpreter: elementwise operators on the numbers at the ends of each dtype, in combinations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from stator.tile.errors import InterpreterError
from stator.tile.interpret.eager import Cell, EagerBuilder
from stator.tile.ir.build import complete
from stator.tile.ir.externs import EXTERNS
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import DTYPES, DType, Type
from tests.tile.interpret.cases import Case, Data

_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    3.4e38,
    1e-40,
    -1e-45,
    1e308,
    -1e308,
    5e-324,
    170.5,
    -2.5,
    1e5,
]


def ends(dtype: DType, count: int = 99) -> Data:
    """The numbers at which mistakes show, so many of them."""
    if dtype.name == "f8e4b15":
        return np.arange(256, dtype=np.uint8)
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.array(_FLOATS[:count]).astype(dtype.numpy)
    return np.array([dtype.low, dtype.high, 0, 1, dtype.high - dtype.high // 2][:count], object).astype(dtype.numpy)


def run(op: str, columns: list[tuple[DType, Data]], attrs: dict[str, Any]) -> None:
    """An operator on all combinations of numbers."""
    rows = np.array(list(itertools.product(*[range(len(data)) for _, data in columns])))
    cells = [Cell(Type(d, (len(rows),)), data[rows[:, i]]) for i, (d, data) in enumerate(columns)]
    (found,) = EagerBuilder().emit(op, cells, attrs)
    assert found.data.shape == (len(rows),) and found.data.dtype == found.type.element.numpy


def taken(op: str, dtypes: list[DType], attrs: dict[str, Any]) -> bool:
    try:
        OPERATORS[op].rule([Type(dtype) for dtype in dtypes], complete(op, attrs), ())
    except TypeRule:
        return False
    return True


#: Operators whose operands are not of one type, or that look at no numbers.
_OTHERS = {"cast", "extern", "select", "bitcast", "addptr", "int_to_ptr", "ptr_to_int"}


@pytest.mark.parametrize("op", [name for name, row in OPERATORS.items() if row.elementwise and name not in _OTHERS])
def test_operators(op: str) -> None:
    tried = 0
    for dtype in DTYPES.values():
        for count in (1, 2, 3):
            if taken(op, [dtype] * count, {}):
                run(op, [(dtype, ends(dtype, 12))] * count, {})
                tried += 1
    assert tried >= 4


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str) -> None:
    for target in DTYPES.values():
        for rounding in ("rtne", "rtz"):
            attrs = {"dtype": target, "rounding": rounding}
            if taken("cast", [DTYPES[source]], attrs):
                run("cast", [(DTYPES[source], ends(DTYPES[source]))], attrs)


@pytest.mark.parametrize("symbol", EXTERNS)
def test_functions(symbol: str) -> None:
    for signature in EXTERNS[symbol].split(" | "):
        words = signature.split("->")[0].split()
        for floating in ("f32", "f64") if "F" in words else ("f32",):
            dtypes = [DTYPES[floating if word == "F" else word] for word in words]
            columns = [(dtype, ends(dtype, 99 if len(words) < 3 else 7)) for dtype in dtypes]
            if symbol in ("jn", "yn"):
                columns[0] = (dtypes[0], np.array([0, 1, 2, -3, 50, 300], np.int32))
            run("extern", columns, {"symbol": symbol})


@pytest.mark.parametrize("symbol", ["jn", "yn"])
def test_orders_that_would_take_too_long(symbol: str) -> None:
    operands = (("i32", np.array([2**31 - 1], np.int32)), ("f64", np.array([1e9])))
    with pytest.raises(InterpreterError, match="a Bessel function of order 2147483647: the interpreter knows"):
        Case("extern", operands, {"symbol": symbol}).run()
