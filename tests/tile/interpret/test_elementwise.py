"""Elementwise operators on every dtype that they take: integers against Python's, floats against torch or fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from stator.tile.interpret.exact import rounded
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.types import DTYPES, DType
from tests.tile.interpret.cases import FLOATS, INTEGERS, NUMBERS, SIGNED, Case, Data, draw, numbers_of, wrapped

_TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
SHAPES = [(), (32,), (4, 8)]


def quotient(a: int, b: int) -> int:
    """As C divides."""
    if b == 0:
        return 0
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def shifted_right(a: int, b: int, dtype: DType) -> int:
    return a >> b if 0 <= b < dtype.bits else -1 if a < 0 else 0


#: Operator → what it does to integers, before the result wraps around.
ON_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": lambda d, a, b: a + b, "sub": lambda d, a, b: a - b, "mul": lambda d, a, b: a * b,
    "idiv": lambda d, a, b: quotient(a, b), "rem": lambda d, a, b: a - quotient(a, b) * b if b else 0,
    "and": lambda d, a, b: a & b, "or": lambda d, a, b: a | b, "xor": lambda d, a, b: a ^ b, "not": lambda d, a: ~a,
    "shl": lambda d, a, b: a << b if 0 <= b < d.bits else 0, "shr": lambda d, a, b: shifted_right(a, b, d),
    "neg": lambda d, a: -a, "abs": lambda d, a: abs(a), "minimum": lambda d, a, b: min(a, b),
    "maximum": lambda d, a, b: max(a, b), "mulhi": lambda d, a, b: a * b >> d.bits,
    "clamp": lambda d, a, b, c: min(max(a, b), c),
}  # fmt: skip

_INTEGER_DTYPES = {
    "add sub mul rem minimum maximum neg clamp and or xor not": ["i1", *INTEGERS],
    "idiv shl shr": INTEGERS,
    "abs": SIGNED,
    "mulhi": ["i32", "i64", "u32", "u64"],
}


def by_python(function: Callable[..., float], *operands: torch.Tensor) -> torch.Tensor:
    """A function of Python's floats, NaN where it refuses them."""

    def call(*numbers: float) -> float:
        try:
            return function(*numbers)
        except ValueError:
            return math.nan

    rows = zip(*[operand.flatten().tolist() for operand in operands], strict=True)
    found = torch.tensor([call(*row) for row in rows], dtype=torch.float64)
    return found.to(operands[0].dtype).reshape(operands[0].shape)


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Exactly, while torch's is NaN where the quotient is great."""
    return by_python(math.fmod, a, b)


def root(a: torch.Tensor) -> torch.Tensor:
    """Correctly rounded, as torch's of f64 is not. That of f64, rounded again, is as good as the exact one."""
    return by_python(math.sqrt, a)


#: Operator → the same in torch, which computes halves in f32 and rounds, as we do.
ON_FLOATS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "div_rn": torch.div, "rem": remainder,
    "neg": torch.neg, "abs": torch.abs, "sqrt": root, "sqrt_rn": root, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round,
}  # fmt: skip

#: Operator → the same in torch in f64: rounding that is right but for the last bit of f64.
IN_DOUBLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "sin": torch.sin, "cos": torch.cos,
    "tanh": torch.tanh, "erf": torch.erf, "rsqrt": torch.rsqrt,
}  # fmt: skip

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


BINARY = {"add", "sub", "mul", "div", "div_rn", "rem"}


def arity(op: str) -> int:
    return {"clamp": 3, "neg": 1, "not": 1, "abs": 1}.get(op, 2)


def case(op: str, dtype: str, shape: tuple[int, ...], count: int, **attrs: Any) -> Case:
    operands = [(dtype, draw(dtype, shape, f"{op}{i}")) for i in range(count)]
    if op in ("shl", "shr") and shape:
        amounts = np.arange(shape[0] * (shape[1] if len(shape) > 1 else 1)) * 3 - 2
        operands[1] = (dtype, amounts.astype(DTYPES[dtype].numpy).reshape(shape))
    return Case(op, tuple(operands), attrs)


def to_torch(name: str, data: Data) -> torch.Tensor:
    if name == "bf16":
        return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(data)


def same(given: Data, wanted: Data, bits: int = 0) -> None:
    """Equal numbers, a NaN equal to one; those of f64 may differ in the last bits."""
    first, second = given.astype(np.float64), wanted.astype(np.float64)
    assert first.shape == second.shape
    close = (first == second) | (np.isnan(first) & np.isnan(second))
    if bits:
        with np.errstate(invalid="ignore"):
            close |= np.abs(first - second) <= bits * np.spacing(np.abs(second))
    assert close.all(), (given[~close], wanted[~close])


CASES = [
    case(op, dtype, shape, arity(op))
    for ops, dtypes in _INTEGER_DTYPES.items()
    for op in ops.split()
    for dtype in dtypes
    for shape in SHAPES
]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_integers(given: Case) -> None:
    name, _ = given.operands[0]
    dtype = DTYPES[name]
    operands = [numbers_of(name, data) for _, data in given.operands]
    wanted = [wrapped(ON_INTEGERS[given.op](dtype, *map(int, row)), dtype) for row in zip(*operands, strict=True)]
    (found,) = given.run()
    assert found.dtype == dtype.numpy
    assert numbers_of(name, found) == wanted


@pytest.mark.parametrize(
    "given", [case(op, d, s, 1 + (op in BINARY)) for op in ON_FLOATS for d in FLOATS for s in SHAPES], ids=str
)
def test_floats(given: Case) -> None:
    name, _ = given.operands[0]
    operands = [to_torch(name, data) for _, data in given.operands]
    (found,) = given.run()
    wanted = ON_FLOATS[given.op](*operands)
    assert wanted.dtype == _TORCH[name] and found.dtype == DTYPES[name].numpy
    same(found, wanted.double().numpy())
    zeros = found.astype(np.float64) == 0
    assert (np.signbit(found.astype(np.float64)) == wanted.double().signbit().numpy())[zeros].all()


@pytest.mark.parametrize("given", [case(op, d, s, 1) for op in IN_DOUBLE for d in FLOATS for s in SHAPES], ids=str)
def test_functions(given: Case) -> None:
    name, data = given.operands[0]
    (found,) = given.run()
    wanted = IN_DOUBLE[given.op](to_torch(name, data).double()).to(_TORCH[name]).double().numpy()
    same(found, wanted, bits=0 if name in ("f16", "bf16") else 2 if name == "f64" else 2**29)


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_fma(dtype: str, shape: tuple[int, ...]) -> None:
    given = case("fma", dtype, shape, 3)
    rows = zip(*[numbers_of(dtype, data) for _, data in given.operands], strict=True)
    for found, (a, b, c) in zip(numbers_of(dtype, given.run()[0]), rows, strict=True):
        if not all(map(math.isfinite, (a, b, c))):
            wanted = a * b + c
        else:
            exact = Fraction(a) * Fraction(b) + Fraction(c)
            wanted = rounded(exact, DTYPES[dtype], "rn") if exact else 0.0
        assert found == wanted or (math.isnan(found) and math.isnan(wanted)), (a, b, c)


@pytest.mark.parametrize(("a", "b", "c"), [(1 + 2**-12, 1 + 2**-12, 2.0**-60), (1 + 2**-12, 1 - 2**-12, -(2.0**-48))])
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    """The product lies between two f32, and only what is lost of the sum says on which side."""
    operands = tuple([("f32", np.array(number, np.float32)) for number in (a, b, c)])
    (found,) = Case("fma", operands).run()
    assert float(found) == rounded(Fraction(a) * Fraction(b) + Fraction(float(np.float32(c))), DTYPES["f32"], "rn")


@pytest.mark.parametrize("nan", ["number", "propagate"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["minimum", "maximum", "clamp"])
def test_nan(op: str, dtype: str, nan: str) -> None:
    given = case(op, dtype, (32,), 3 if op == "clamp" else 2, nan=nan)
    operands = [to_torch(dtype, data).double() for _, data in given.operands]
    low, high = (torch.fmin, torch.fmax) if nan == "number" else (torch.minimum, torch.maximum)
    match op:
        case "clamp":
            wanted = low(high(operands[0], operands[1]), operands[2])
        case _:
            wanted = (low if op == "minimum" else high)(*operands)
    same(given.run()[0], wanted.numpy())
    assert wanted.isnan().any() == (nan == "propagate") and operands[0].isnan().any()


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, dtype: str) -> None:
    given = case(op, dtype, (32,), 2)
    a, b = (numbers_of(dtype, data) for _, data in given.operands)
    b[: len(b) // 2] = a[: len(b) // 2]
    second = np.concatenate([given.operands[0][1][:16], given.operands[1][1][16:]])
    given = Case(op, (given.operands[0], (dtype, second)))
    (found,) = given.run()
    assert found.tolist() == [COMPARISONS[op](x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u64", "f16", "f32", "f8e4nv", "f8e4b15"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_select(dtype: str, shape: tuple[int, ...]) -> None:
    condition, a, b = draw("i1", shape, "condition"), draw(dtype, shape, "a"), draw(dtype, shape, "b")
    (found,) = Case("select", (("i1", condition), (dtype, a), (dtype, b))).run()
    chosen = [x if c else y for c, x, y in zip(condition.flat, a.flat, b.flat, strict=True)]
    assert [item.tobytes() for item in found.flat] == [item.tobytes() for item in chosen]


def test_every_elementwise_operator_has_cases() -> None:
    here = ON_INTEGERS.keys() | ON_FLOATS.keys() | IN_DOUBLE.keys() | COMPARISONS.keys() | {"fma", "select"}
    elsewhere = {"cast", "bitcast", "int_to_ptr", "ptr_to_int", "addptr", "extern"}
    assert {name for name, row in OPERATORS.items() if row.elementwise} == here | elsewhere
