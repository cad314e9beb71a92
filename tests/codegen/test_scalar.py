"""Every scalar operator and cast against torch: special values, random vectors, tails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stator.loop.scalar import OPS
from tests.codegen.harness import DTYPES, NAMES, Batch, Built, axes_of, e, generic, kernel, load, params, store

INF, NAN = float("inf"), float("nan")
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, INF, -INF, NAN, 1e-45, -1e-40, 1e-38, 3e38, -3e38, 88.7,
    -87.4, -103.9, 89.5, 128.0, 1e4, 3e4, 1e6, -1e9, 0.3465, 0.7071, 0.99999994, 1.0000001, 4.1, -9.3,
    2**23 + 1.0, 127.5,
]  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": torch.neg, "abs": torch.abs, "sqrt": torch.sqrt, "rsqrt": lambda x: 1 / torch.sqrt(x),
    "reciprocal": torch.reciprocal, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "tanh": torch.tanh,
    "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "erf": torch.erf, "erfc": torch.erfc, "sigmoid": torch.sigmoid, "floor": torch.floor, "ceil": torch.ceil,
    "trunc": torch.trunc, "round": torch.round, "isnan": torch.isnan, "isinf": torch.isinf,
    "sign": lambda x: torch.where(x.isnan(), x, torch.sign(x)),
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "minimum": torch.minimum,
    "maximum": torch.maximum, "pow": torch.pow, "atan2": torch.atan2, "mod": torch.remainder,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}  # fmt: skip
WHOLE = ("add", "sub", "mul", "minimum", "maximum", "mod", "floordiv", "eq", "ne", "lt", "le", "gt", "ge", "pow")


def apply(batch: Batch, name: str, inputs: list[torch.Tensor], expected: torch.Tensor, **tolerance: float) -> None:
    """One operator over flat inputs, as a kernel of the batch."""
    axes = axes_of([expected.numel()])
    out = torch.empty_like(expected)
    value = e.op(name, *[load(i, t, axes) for i, t in enumerate(inputs)])
    made = kernel(axes, (), (store(len(inputs), axes[0].index, value),), params(*inputs, out, out=[len(inputs)]))
    batch.add(f"{name} {NAMES[inputs[0].dtype]}", made, [*inputs, out], {len(inputs): expected}, **tolerance)


def floats(dtype: torch.dtype, n: int = 1500) -> torch.Tensor:
    torch.manual_seed(7)
    spread = torch.randn(n, dtype=torch.float64)
    parts = [
        torch.tensor(SPECIAL, dtype=torch.float64),
        spread,
        spread[:300] * 30,
        spread[:200] * 1e-3,
        spread[:99] * 1e4,
    ]
    return torch.cat(parts).to(dtype)


def test_unary_floats() -> None:
    batch = Batch()
    for dtype in (torch.float32, torch.float64):
        x = floats(dtype)
        for name, function in UNARY.items():
            expected = function(x.double()).to(torch.bool if name.startswith("is") else dtype)
            eps = torch.finfo(dtype).eps
            if name == "sigmoid":  # by its own formula, which overflows where eager's does
                expected = 1 / (1 + torch.exp(-x))
            apply(batch, name, [x], expected, rtol=2.5 * eps, atol=torch.finfo(dtype).tiny * eps * 2)
    batch.check()


def test_binary_floats() -> None:
    batch = Batch()
    for dtype in (torch.float32, torch.float64):
        x = floats(dtype, 700)
        y = x[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))]
        for name, function in BINARY.items():
            tolerance = (
                {"rtol": 2.5 * torch.finfo(dtype).eps, "atol": 0.0}
                if name in ("pow", "atan2")
                else {"rtol": 0.0, "atol": 0.0}
            )
            # eager's vectors give NaN for denormal divisors, its scalars do not
            z = torch.where(y.abs() < 1e-30, torch.ones_like(y), y) if name in ("mod", "floordiv") else y
            apply(batch, name, [x, z], function(x, z), **tolerance)
    batch.check()


@pytest.mark.parametrize("name", ["i64", "i32", "i16", "i8", "u8"])
def test_integers(name: str) -> None:
    batch = Batch()
    dtype = DTYPES[name]
    info = torch.iinfo(dtype)
    torch.manual_seed(3)
    x = torch.randint(info.min, info.max, (203,), dtype=dtype)
    x[:3] = torch.tensor([info.min, info.max, 0], dtype=dtype)
    y = torch.randint(max(-9, info.min), 9, (203,), dtype=dtype)
    y[y == 0] = 1
    small = torch.randint(0, 6, (203,), dtype=dtype)
    for op in WHOLE:
        if op in ("floordiv", "mod"):  # the lowest number by -1 traps in eager
            a, b = torch.where(x == info.min, torch.zeros_like(x), x), y
        else:
            a, b = x, small if op == "pow" else y
        apply(batch, op, [a, b], BINARY[op](a, b))
    for op, function in BITS.items():
        if op in ("shl", "shr"):
            apply(batch, op, [x, small], function(x, small))
        else:
            apply(batch, op, [x, y], function(x, y))
    apply(batch, "not", [x], torch.bitwise_not(x))
    apply(batch, "neg", [x], torch.neg(x))
    apply(batch, "abs", [x], torch.abs(x))
    apply(batch, "sign", [x], torch.sign(x))
    batch.check()


def test_booleans() -> None:
    batch = Batch()
    x = torch.tensor([True, False, True, False] * 10)
    y = torch.tensor([True, True, False, False] * 10)
    for op in ("and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "add", "mul", "minimum", "maximum"):
        function = {**BITS, **BINARY}[op]
        apply(batch, op, [x, y], function(x, y))
    apply(batch, "not", [x], torch.logical_not(x))
    batch.check()


def test_where_takes_every_dtype() -> None:
    batch = Batch()
    torch.manual_seed(0)
    mask = torch.rand(37) < 0.5
    for name, dtype in DTYPES.items():
        a, b = (torch.randn(2, 37) * 3).to(dtype)
        if name in ("bf16", "f16"):  # arithmetic is on f32
            a, b = a.float(), b.float()
        apply(batch, "where", [mask, a, b], torch.where(mask, a, b))
    batch.check()


@pytest.mark.parametrize("size", [1, 37])
def test_the_extremes_of_integers_are_constants_of_their_type(size: int) -> None:
    batch = Batch()
    torch.manual_seed(0)
    mask = torch.rand(size) < 0.5
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        x = torch.randint(0, 100, (size,), dtype=dtype)
        for extreme in (torch.iinfo(dtype).min, torch.iinfo(dtype).max):
            out, axes = torch.empty_like(x), axes_of([size])
            constant = e.const(extreme, NAMES[dtype])
            value = e.op("maximum", e.op("where", load(0, mask, axes), load(1, x, axes), constant), constant)
            made = kernel(axes, (), (store(2, axes[0].index, value),), params(mask, x, out, out=[2]))
            wanted = torch.where(mask, x, extreme).clamp(min=extreme)
            batch.add(f"{extreme}", made, [mask, x, out], {2: wanted})
    batch.check()


def test_products_and_sums_are_joined_as_in_eager() -> None:
    batch = Batch()
    for dtype in (torch.float32, torch.float64):
        x = floats(dtype, 700)
        y = x[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))]
        z = torch.where((x * y).isfinite() & (torch.arange(x.numel()) % 3 > 0), -(x * y), y)
        for operands in ([x, y, z], [x, y, x]):
            apply(batch, "fma", operands, torch.addcmul(operands[2], x, y), rtol=0.0, atol=0.0)
    batch.check()


def test_every_operator_is_covered() -> None:
    assert {*UNARY, *BINARY, *BITS, "fma", "not", "where", "lgamma", "erfinv"} == set(OPS)  # test_special.py has these


def test_casts() -> None:
    """All pairs of dtypes, with values that the target can hold, and rounding of halves on what it cannot."""
    batch = Batch()
    torch.manual_seed(5)
    for source in DTYPES.values():
        for target in DTYPES.values():
            if source == target:
                continue
            values = torch.randn(259, dtype=torch.float64) * 50
            if torch.uint8 in (source, target):
                values = values.abs()
            x = values.to(source)
            if source.is_floating_point and target.is_floating_point:
                x = torch.cat([x, torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e-7, -6e-8, 65519.0, 65520.0]).to(source)])
            axes = axes_of([x.numel()])
            out = torch.empty(x.shape, dtype=target)
            value = e.cast(load(0, x, axes), NAMES[target])
            made = kernel(axes, (), (store(1, axes[0].index, value),), params(x, out, out=[1]))
            batch.add(f"{source} to {target}", made, [x, out], {1: x.to(target)}, rtol=0, atol=0)
    batch.check()


def test_half_rounds_like_torch_everywhere() -> None:
    bits = torch.arange(-(2**31), 2**31, 40_009, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32).clone()
    batch = Batch()
    for target in (torch.bfloat16, torch.float16):
        axes = axes_of([x.numel()])
        out = torch.empty(x.shape, dtype=target)
        made = kernel(
            axes, (), (store(1, axes[0].index, e.cast(load(0, x, axes), NAMES[target])),), params(x, out, out=[1])
        )
        batch.add(f"to {target}", made, [x, out], {1: x.to(target)}, rtol=0, atol=0)
        every = torch.arange(-(2**15), 2**15).to(torch.int16).view(target).clone()
        axes = axes_of([every.numel()])
        wide = torch.empty(every.shape)
        made = kernel(
            axes, (), (store(1, axes[0].index, e.cast(load(0, every, axes), "f32")),), params(every, wide, out=[1])
        )
        batch.add(f"from {target}", made, [every, wide], {1: every.float()}, rtol=0, atol=0)
    batch.check()


def test_bitcasts() -> None:
    batch = Batch()
    for a, b in (("f32", "i32"), ("f64", "i64"), ("bf16", "i16"), ("f16", "i16"), ("i8", "u8")):
        for source, target in ((a, b), (b, a)):
            x = torch.randn(45, dtype=torch.float64).mul(20).to(DTYPES[a]).view(DTYPES[source])
            axes = axes_of([45])
            out = torch.empty(45, dtype=DTYPES[target])
            value = e.bitcast(load(0, x, axes), target)
            made = kernel(axes, (), (store(1, axes[0].index, value),), params(x, out, out=[1]))
            batch.add(f"{source} as {target}", made, [x, out], {1: x.view(DTYPES[target])}, rtol=0, atol=0)
    batch.check()


def test_a_value_does_not_depend_on_its_lane_or_width() -> None:
    """Scalars, tails and every vector width give the same bits."""
    x = floats(torch.float32, 300)
    names = [n for n in UNARY if not n.startswith("is")]
    results = []
    for target in (None, generic(16), generic(32)):
        outs = [torch.empty_like(x) for _ in names]
        axes = axes_of([x.numel()])
        made = [
            kernel(axes, (), (store(1, axes[0].index, e.op(n, load(0, x, axes))),), params(x, out, out=[1]))
            for n, out in zip(names, outs, strict=True)
        ]
        built = Built(made, target)
        for i, out in enumerate(outs):
            built.run(i, x, out)
        results.append(outs)
    single = []
    made = [
        kernel((), (), (store(1, axes[0].index * 0, e.op(n, load(0, x, [0]))),), params(x[:1], x[:1], out=[1]))
        for n in names
    ]
    built = Built(made)
    for i in range(len(names)):
        out = torch.empty_like(x)
        for j in range(x.numel()):
            built.run(i, x[j:], out[j:])
        single.append(out)
    for i, name in enumerate(names):
        assert torch.equal(results[0][i].nan_to_num(9.5), single[i].nan_to_num(9.5)), name
        for other in results[1:]:  # without fused multiply-add the last bit may differ
            torch.testing.assert_close(results[0][i], other[i], rtol=4e-7, atol=1e-44, equal_nan=True, msg=name)
