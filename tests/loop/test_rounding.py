"""`numerics="fast"`: no rounding between the operators of a kernel, but where something would jump."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.loop import expr as e
from stator.loop.expr import Expr, const, load, op
from stator.loop.index import Axis, Index
from stator.loop.kernel import Store
from stator.loop.rounding import without_roundings

X = Axis("x0", 8)


def half(name: str) -> Expr:
    return e.cast(load(name, Index.of(X), "bf16"), "f32")


def rounded(value: Expr) -> Expr:
    """As the operator of a half type: its result, for the next operator."""
    return e.cast(e.cast(value, "bf16"), "f32")


def stored(value: Expr) -> Expr:
    (store,) = without_roundings([Store("out", Index.of(X), value, "outer")])
    return store.value


PRODUCT = op("mul", half("a"), half("b"))
SUM = op("add", rounded(PRODUCT), const(1.0, "f32"))


def test_a_value_between_two_operators_is_not_rounded() -> None:
    assert stored(e.cast(SUM, "bf16")) is e.cast(op("add", PRODUCT, const(1.0, "f32")), "bf16")


def where(condition: Expr, value: Expr, other: Expr) -> Expr:
    return op("where", condition, value, other)


@pytest.mark.parametrize("choice", [where, e.masked])
def test_what_is_chosen_among_roundings_is_not_rounded(choice: Callable[[Expr, Expr, Expr], Expr]) -> None:
    """As a concatenation has it: one part of memory, one that is computed."""
    first, second = (op("lt", e.index(Index.of(X)), const(n, "i64")) for n in (2, 5))
    part = choice(second, e.cast(PRODUCT, "bf16"), const(0.0, "bf16"))
    joined = choice(first, load("c", Index.of(X), "bf16"), part)
    value = e.cast(op("add", e.cast(joined, "f32"), half("d")), "bf16")
    wide = choice(first, half("c"), choice(second, PRODUCT, const(0.0, "f32")))
    assert stored(value) is e.cast(op("add", wide, half("d")), "bf16")
    plain = e.cast(choice(first, load("c", Index.of(X), "bf16"), load("d", Index.of(X), "bf16")), "f32")
    assert stored(plain) is plain
    compared = op("lt", e.cast(joined, "f32"), half("d"))
    assert stored(compared) is compared


@pytest.mark.parametrize("jump", ["lt", "floor", "int", "where", "position"])
def test_what_jumps_is_rounded(jump: str) -> None:
    match jump:
        case "lt":
            value = op("lt", SUM, half("c"))
        case "floor":
            value = e.cast(op("floor", SUM), "bf16")
        case "int":
            value = e.cast(SUM, "i32")
        case "where":
            value = e.cast(op("where", op("lt", rounded(PRODUCT), half("c")), rounded(PRODUCT), half("a")), "bf16")
        case "position":
            value = load("d", e.to_index(e.cast(SUM, "i64"), 8), "bf16")
    assert stored(value) is value


def test_a_conversion_between_float32_and_float64_stays() -> None:
    value = e.cast(e.cast(op("mul", load("a", Index.of(X), "f64"), const(3.0, "f64")), "f32"), "f64")
    assert stored(value) is value


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gelu": lambda x, y: 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x))) * y,
    "softmax": lambda x, y: (x * 0.125 + y).softmax(-1),
    "norm": lambda x, y: F.layer_norm(x * y + x, x.shape[-1:]) * y,
    "variance": lambda x, y: (x * y).var(-1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_fast_is_nearer_to_float64_than_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x, y = torch.randn(64, 96).to(dtype), torch.randn(64, 96).to(dtype)
    program = PROGRAMS[name]
    exact, eager = program(x.double(), y.double()), program(x, y)
    fast = stator.compile(program, fullgraph=True, options={"numerics": "fast"})(x, y)
    assert fast.dtype is eager.dtype
    error = [(found.double() - exact).abs().mean().item() for found in (fast, eager)]
    assert error[0] <= error[1]


@pytest.mark.parametrize("numerics", ["eager", "fast"])
def test_comparisons_are_eagers_bits(numerics: str) -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x * 1.01 + y
        return z > y * 1.01, z.argmax(-1), (z * 8).long(), torch.where(z * y > x, z, y).floor(), z.to(torch.int8)

    torch.manual_seed(4)
    x, y = torch.randn(256, 64).bfloat16(), torch.randn(256, 64).bfloat16()
    found = stator.compile(program, fullgraph=True, options={"numerics": numerics})(x, y)
    for ours, eager in zip(found, program(x, y), strict=True):
        assert torch.equal(ours, eager)
