"""Pointwise operators: every table line, dtypes, broadcasting, strides, special values."""

from __future__ import annotations

import torch

from tests.cases.model import (
    ALL_FLOATS,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    U8,
    Case,
    mask,
    normal,
    permuted,
    positions,
    positive,
    special,
    strided,
    unit,
    whole,
)

aten = torch.ops.aten

UNARY = {
    "abs": normal(3, 4), "neg": normal(3, 4), "exp": normal(3, 4), "exp2": normal(3, 4), "expm1": normal(3, 4),
    "log": positive(3, 4), "log2": positive(3, 4), "log1p": positive(3, 4), "log10": positive(3, 4),
    "sqrt": positive(3, 4), "rsqrt": positive(3, 4), "reciprocal": positive(3, 4), "square": normal(3, 4),
    "sin": normal(3, 4), "cos": normal(3, 4), "tan": unit(3, 4), "asin": unit(3, 4), "acos": unit(3, 4),
    "atan": normal(3, 4), "sinh": normal(3, 4), "cosh": normal(3, 4), "tanh": normal(3, 4), "asinh": normal(3, 4),
    "atanh": unit(3, 4), "erf": normal(3, 4), "erfc": normal(3, 4), "sigmoid": normal(3, 4), "sign": normal(3, 4),
    "floor": normal(3, 4), "ceil": normal(3, 4), "trunc": normal(3, 4), "round": normal(3, 4), "frac": normal(3, 4),
    "sgn": normal(3, 4), "isfinite": special, "isnan": special, "isinf": special, "isposinf": special,
    "isneginf": special, "logical_not": whole(0, 2, 3, 4), "nan_to_num": special, "sinc": normal(3, 4),
    "deg2rad": normal(3, 4), "rad2deg": normal(3, 4), "positive": normal(3, 4),
}  # fmt: skip

BINARY = (
    "add", "sub", "mul", "div", "minimum", "maximum", "fmin", "fmax", "atan2", "eq", "ne", "lt", "le", "gt", "ge",
    "remainder", "fmod", "hypot", "logaddexp", "floor_divide", "xlogy", "logical_and", "logical_or", "logical_xor",
    "rsub", "heaviside", "copysign",
)  # fmt: skip

WHOLE = ("add", "sub", "mul", "minimum", "maximum", "eq", "lt", "remainder", "fmod", "floor_divide", "bitwise_and",
         "bitwise_or", "bitwise_xor", "div")  # fmt: skip

SPECIAL = ("sign", "sqrt", "exp", "tanh", "floor", "round", "relu", "sigmoid", "erf", "abs", "log", "rsqrt")


def _by(name):
    return getattr(torch, name)


CASES = [
    *[Case(name, _by(name), (recipe,), ALL_FLOATS, slack=2.0) for name, recipe in UNARY.items()],
    *[Case(name, _by(name), (normal(3, 4), positive(3, 4)), ALL_FLOATS, slack=2.0) for name in BINARY],
    *[Case(f"{name}_whole", _by(name), (whole(0, 9, 3, 4), whole(1, 5, 3, 4)), INTEGERS) for name in WHOLE],
    *[Case(f"{name}_specials", _by(name), (special,), FLOATS) for name in SPECIAL],
    *[
        Case(f"{name}_signed", _by(name), (whole(-9, 9, 20), whole(-5, 0, 20)), (I64, I32, F32, BF16))
        for name in ("remainder", "fmod", "floor_divide")
    ],
    Case(
        "div_trunc",
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        (whole(-9, 9, 20), whole(-5, 0, 20)),
        (I64, F32, BF16),
    ),
    Case("div_number", lambda a: a / 3, (whole(0, 9, 3, 4),), (I64, BOOL, F32, BF16)),
    Case("add_alpha", lambda a, b: torch.add(a, b, alpha=3), (normal(3, 4), normal(4)), (F32, F64, I64)),
    Case("add_number", lambda a: a + 2.5, (whole(0, 9, 3, 4),), (I64, F32, BF16, BOOL)),
    Case("number_minus", lambda a: 1.5 - a, (normal(3, 4),)),
    Case("number_over", lambda a: 2.0 / a, (positive(3, 4),), slack=2.0),
    Case("compare_number", lambda a: (a > 0.1, a <= 1, a == 0.30000001, a != 2), (normal(3, 4),)),
    Case("compare_mixed", lambda a, b: (a < b, a == b), (normal(3, 4), positions(3, 3, 4)), FLOATS),
    Case("mixed_dtypes", lambda a, b, c: a * b + c, (normal(3, 4), positions(3, 4), mask(3, 1)), ALL_FLOATS),
    Case("wide_and_zero_dim", lambda a, b: a * b.double().sum(), (normal(3, 4), normal(2)), FLOATS, slack=4.0),
    Case("half_and_float", lambda a, b: a + b.float(), (normal(3), normal(3)), (BF16, F16)),
    Case("broadcast", lambda a, b, c: (a + b) * c, (normal(2, 1, 4), normal(3, 1), normal(1)), FLOATS, slack=2.0),
    Case("zero_dim", lambda a, b: a * b + 1, (normal(), normal()), FLOATS),
    Case("empty", lambda a, b: (a + b) * 2, (normal(3, 0), normal(0)), FLOATS),
    Case("ones", lambda a: a * 2, (normal(1, 1),), FLOATS),
    Case(
        "permuted", lambda a, b: a.exp() + b, (permuted(normal(2, 3, 4), 2, 0, 1), normal(4, 2, 3)), FLOATS, slack=2.0
    ),
    Case("strided", lambda a: a.sin() * a, (strided(normal(3, 8)),), FLOATS, slack=2.0),
    Case(
        "pow_numbers",
        lambda a: (a**2, a**3, a**0.5, a**-1, a**1, a**2.5, a**-0.5),
        (positive(3, 4),),
        FLOATS,
        slack=2.0,
    ),
    Case("pow_tensors", torch.pow, (positive(3, 4), normal(3, 4)), FLOATS, slack=4.0),
    Case("pow_of_number", lambda a: 2.0**a, (normal(3, 4),), FLOATS, slack=2.0),
    Case(
        "functions_of_whole_numbers",
        lambda a: (a.asinh(), a.acosh(), a.atanh(), a.isposinf(), a.isneginf()),
        (whole(0, 3, 3, 4),),
        (I64, U8, BOOL),
        slack=2.0,
    ),
    Case("pow_whole", lambda a: (a**2, a**3), (whole(-4, 5, 3, 4),), (I64, I32)),
    Case("pow_of_flags", lambda a: (a**True, a**False, a**2), (mask(3, 4),), (BOOL,)),
    Case("where", lambda m, a, b: torch.where(m, a, b), (mask(3, 4), normal(3, 4), normal(4)), FLOATS),
    Case(
        "where_numbers",
        lambda m, a: (torch.where(m, a, 0.25), torch.where(m, 2.0, a), torch.where(m, 1.0, 0.0)),
        (mask(3, 4), normal(3, 4)),
    ),
    Case("clamp", lambda a: (a.clamp(-0.5, 0.7), a.clamp(min=0.1), a.clamp(max=1)), (normal(3, 4),)),
    Case("clamp_whole", lambda a: (a.clamp(2, 5), a.clamp(min=3)), (whole(0, 9, 3, 4),), INTEGERS),
    Case("clamp_tensors", torch.clamp, (normal(3, 4), normal(4), normal(3, 1))),
    Case("masked_fill", lambda a, m: a.masked_fill(m, -1e4), (normal(3, 4), mask(3, 4))),
    Case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), (normal(3, 4), normal(3, 4), normal(4))),
    Case(
        "addcdiv",
        lambda a, b, c: torch.addcdiv(a, b, c, value=0.5),
        (normal(3, 4), normal(3, 4), positive(4)),
        slack=2.0,
    ),
    Case("lerp", lambda a, b: (torch.lerp(a, b, 0.3), torch.lerp(a, b, 0.8)), (normal(3, 4), normal(3, 4)), slack=2.0),
    Case("lerp_tensor", torch.lerp, (normal(3, 4), normal(3, 4), unit(3, 4)), slack=2.0),
    Case("shifts", lambda a, b: (a << b, a >> 1), (whole(0, 9, 8), whole(0, 3, 8)), (I64, I32)),
    Case("bits_numbers", lambda a: (a & 5, a | 2, a ^ 3, ~a), (whole(0, 9, 8),), (I64, I32, U8)),
    Case("bits_bool", lambda a, b: (a & b, a | ~b, a ^ b), (mask(8), mask(8)), (F32,)),
    Case("remainder_number", lambda a: (a % 3, a % -2.5, torch.fmod(a, 2)), (normal(12),), (F32, F64), slack=2.0),
    Case("casts", lambda a: (a.to(I32), a.to(F64), a.to(BF16), a > 0, a.bool(), a.half().float()), (normal(3, 4),)),
    Case("casts_whole", lambda a: (a.float(), a.to(torch.int8), a.bool()), (whole(0, 300, 3, 4),), (I64, I32)),
    Case("bool_arithmetic", lambda a, b: (a + b, a * b, a + 1, a.sum()), (mask(6), mask(6)), (F32,)),
    Case("rounding_points", lambda a, b: ((a + b) * b - a) / 3, (normal(4, 5), normal(4, 5)), (BF16, F16), slack=0.01),
    Case("scalar_forms", lambda a: aten.mul.Scalar(aten.add.Scalar(aten.sub.Scalar(a, 1), 2.5), 0.1), (normal(5),)),
    Case(
        "creation",
        lambda a: (torch.ones_like(a), torch.zeros_like(a), a.new_full((2,), 3), torch.full_like(a, 2)),
        (permuted(normal(2, 3), 1, 0),),
    ),
    Case(
        "ranges",
        lambda a: (
            torch.arange(5) + a.sum().long() * 0,
            torch.arange(2, 9, 3),
            torch.arange(0.5, 2.0, 0.25),
            torch.arange(1, 2, 0.3),
        ),
        (normal(2),),
        (F32,),
    ),
    Case(
        "linspace",
        lambda a: (torch.linspace(0, 1, 7) + a, torch.eye(3), torch.eye(2, 4)),
        (normal(7),),
        (F32,),
        slack=2.0,
    ),
]
