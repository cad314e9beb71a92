"""Casts between all dtypes against exact fractions, and against torch where it has both; bits keep as they are."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from stator.tile.interpret.casts import greatest
from stator.tile.interpret.exact import rounded
from stator.tile.ir.types import DTYPES, DType, Pointer, Type
from tests.tile.interpret.cases import EVERY, FLOATS, FP8, Case, draw, numbers_of, wrapped

TORCH = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8e4nv": torch.float8_e4m3fn, "f8e5": torch.float8_e5m2, "f8e4b8": torch.float8_e4m3fnuz,
    "f8e5b16": torch.float8_e5m2fnuz,
}  # fmt: skip


def converted(number: Any, source: DType, target: DType, way: str = "rn") -> Any:
    """A number in another dtype, as the language says."""
    if target.is_bool:
        return number != 0
    if not target.is_float:
        if not source.is_float:
            return wrapped(int(number), target)
        if math.isnan(number):
            return 0
        return target.high if number > target.high else target.low if number < target.low else int(number)
    if math.isnan(number):
        return greatest(target) if target.name == "f8e4b15" else math.nan
    if math.isinf(number):
        return math.copysign(greatest(target), number) if target.is_fp8 else number
    found = rounded(Fraction(number), target, way) if number else number
    return math.copysign(greatest(target), found) if target.is_fp8 and math.isinf(found) else float(found)


def alike(given: list[Any], wanted: list[Any]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(given, wanted, strict=True))


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("source", EVERY)
def test_casts(source: str, target: str) -> None:
    data = draw(source, (48,), f"to {target}")
    (found,) = Case("cast", ((source, data),), {"dtype": DTYPES[target]}).run()
    assert found.dtype == DTYPES[target].numpy
    given = numbers_of(source, data)
    wanted = given if source == target else [converted(n, DTYPES[source], DTYPES[target]) for n in given]
    assert alike(numbers_of(target, found), wanted)


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for a in FLOATS for b in [*FLOATS, *FP8] if DTYPES[a].bits > DTYPES[b].bits],
)
def test_casts_toward_zero(source: str, target: str) -> None:
    data = draw(source, (48,), f"to {target} toward zero")
    (found,) = Case("cast", ((source, data),), {"dtype": DTYPES[target], "rounding": "rtz"}).run()
    wanted = [converted(n, DTYPES[source], DTYPES[target], "rz") for n in numbers_of(source, data)]
    assert alike(numbers_of(target, found), wanted)


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in TORCH for b in TORCH if a != b])
def test_casts_are_torchs(source: str, target: str) -> None:
    """Of numbers that fit: what becomes of others is a matter of taste, and torch has another."""
    data = draw(source, (48,), f"torch {target}")
    numbers = np.array([float(n) for n in numbers_of(source, data)])
    if not DTYPES[target].is_float:
        fits = (numbers >= DTYPES[target].low) & (numbers <= DTYPES[target].high) | DTYPES[target].is_bool
        fits &= np.isfinite(numbers) & (np.abs(numbers) < 2.0**62)
    else:
        fits = np.abs(numbers) <= greatest(DTYPES[target])
    data = data[fits][:32]
    bits = torch.from_numpy(data.view(f"u{data.dtype.itemsize}")) if DTYPES[source].is_float else torch.from_numpy(data)
    tensor = bits.view(TORCH[source]) if DTYPES[source].is_float else bits
    (found,) = Case("cast", ((source, data),), {"dtype": DTYPES[target]}).run()
    wanted = tensor.to(TORCH[target])
    expected = wanted.tolist() if not DTYPES[target].is_float else wanted.to(torch.float64).tolist()
    assert len(data) > 3 and alike(numbers_of(target, found), expected)


@pytest.mark.parametrize(
    ("source", "number", "target", "wanted"),
    [
        ("f64", 1 + 2**-8 + 2**-40, "bf16", 1 + 2**-7),  # by f32 it would be a tie, and go to 1
        ("f64", 1 + 2**-11 + 2**-40, "f16", 1 + 2**-10),
        ("f64", 1 + 2**-4 + 2**-40, "f8e4nv", 1 + 2**-3),
        ("i64", 2**62 + 2**54 + 1, "bf16", 2**62 + 2**55),  # by f64 it would be a tie as well
        ("i64", -(2**62) - 2**54 - 1, "bf16", -(2**62) - 2**55),
        ("u64", 2**63 + 2**55 + 1, "bf16", 2**63 + 2**56),
        ("i64", 2**62 + 2**54, "bf16", 2**62),
        ("i64", 2**53 + 1, "f64", 2**53),
        ("f16", 6e-8, "f8e5b16", 0.0),
    ],
)
def test_casts_round_once(source: str, number: Any, target: str, wanted: float) -> None:
    data = np.array([number], DTYPES[source].numpy)
    (found,) = Case("cast", ((source, data),), {"dtype": DTYPES[target]}).run()
    assert numbers_of(target, found) == [float(wanted)]


@pytest.mark.parametrize("name", FP8)
def test_every_byte_is_a_number_that_stays(name: str) -> None:
    data = np.arange(256, dtype=np.uint8).view(DTYPES[name].numpy)
    (wide,) = Case("cast", ((name, data),), {"dtype": DTYPES["f32"]}).run()
    (back,) = Case("cast", (("f32", wide),), {"dtype": DTYPES[name]}).run()
    numbers = numbers_of(name, data)
    assert alike([float(n) for n in wide], numbers)
    limit = greatest(DTYPES[name])
    assert alike(numbers_of(name, back), [math.copysign(limit, n) if math.isinf(n) else n for n in numbers])
    assert len({n for n in numbers if n == n}) >= 246


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for a in EVERY for b in EVERY if DTYPES[a].bits == DTYPES[b].bits],
)
def test_bits_stay(source: str, target: str) -> None:
    data = draw(source, (32,), f"bits of {target}")
    (found,) = Case("bitcast", ((source, data),), {"dtype": DTYPES[target]}).run()
    assert found.dtype == DTYPES[target].numpy and found.tobytes() == data.tobytes()


@pytest.mark.parametrize("name", ["i64", "u64"])
def test_pointers_are_integers(name: str) -> None:
    data = draw(name, (32,), "pointers")
    integers = Case("int_to_ptr", ((name, data),), {"dtype": Pointer(DTYPES["f32"])})
    (addresses,) = integers.run()
    assert addresses.tobytes() == data.tobytes()
    assert integers.module()[1] == [Type(Pointer(DTYPES["f32"]), (32,))]
