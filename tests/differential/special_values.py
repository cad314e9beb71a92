"""Elementwise functions at NaN, infinities, zeros of both signs, denormals and the ends of a dtype.

Every pair of such values goes through every function of two numbers, every one through those of one; what differs from
eager by more than a rounding, or by the sign of a zero, is told. `DECIDED` is where ours differs on purpose, with the
reason; `docs/numerics.md` has the same list. Neighbour: `edges.py` does it for integers and conversions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import stator

VALUES = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-40, 20.0, -100.0, 3e38, -3e38, 1e-38, 7.3,
    0.1, 0.3, 5.5, 1e10,
)  # fmt: skip
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot pow copysign nextafter xlogy logaddexp "
        "logaddexp2 heaviside div mul sub ldexp float_power igamma igammac isclose"
    ).split()},
    "truncate": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "xlog1py": torch.special.xlog1py,
    "zeta": torch.special.zeta, "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "far lerp": lambda a, b: torch.lerp(a, b, 0.7),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "huber": lambda a, b: F.huber_loss(a, b, reduction="none"),
    "choice": lambda a, b: torch.where(a > 0, a, a * b),
    "smooth": lambda a, b: F.smooth_l1_loss(a, b, reduction="none"), "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "chain": lambda a, b: torch.floor_divide(torch.floor_divide(a, b), b),
    "quotient": lambda a, b: a // b - a / b // 1,
}  # fmt: skip
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "abs neg sin cos tanh exp sigmoid relu sqrt rsqrt log log1p expm1 erf floor ceil round trunc sign square "
        "reciprocal frac atan asinh sinh cosh tan exp2 log2 log10 isnan isinf isfinite signbit logical_not erfc "
        "digamma positive sgn asin acos acosh atanh lgamma nan_to_num deg2rad rad2deg sinc angle logit erfinv"
    ).split()},
    **{f"special.{name}": getattr(torch.special, name) for name in (
        "expit ndtr i0 i1 i0e i1e entr log_ndtr ndtri erfcx"
    ).split()},
    **{f"F.{name}": getattr(F, name) for name in (
        "relu gelu silu elu selu softplus leaky_relu mish hardswish hardsigmoid hardtanh relu6 softsign tanhshrink "
        "logsigmoid celu hardshrink softshrink"
    ).split()},
    "to int and back": lambda a: a.to(torch.int32).to(a.dtype), "at most 0": lambda a: a.clamp(max=0.0),
    "at least 0": lambda a: a.clamp_min(0), "within": lambda a: a.clamp(-0.0, 0.0), "// 3": lambda a: a // 3,
    "% 0.3": lambda a: a % 0.3,
    "fmod 0.3": lambda a: torch.fmod(a, 0.3), "** 3": lambda a: a**3,
    "** -0.5": lambda a: a**-0.5, "** 0.5": lambda a: a**0.5, "** -1": lambda a: a**-1, "** -2": lambda a: a**-2,
}  # fmt: skip

#: Function -> why some values differ.
DECIDED = {
    "remainder": "eager's vectors give NaN for a denormal divisor, its scalars and ours the remainder",
    "fmod": "as remainder",
    "F.gelu": "gelu(inf) is inf, eager's formula gives NaN",
    "special.i1": "the sign of a zero", "special.i1e": "the sign of a zero", "F.softshrink": "the sign of a zero",
    "fmax": "which of two zeros, which differs between eager's dtypes", "fmin": "as fmax",
    "% 0.3": "as remainder, for a quotient that is too great", "fmod 0.3": "as remainder",
    "logaddexp2": "0 exactly, where eager is off by a rounding of its terms",
}  # fmt: skip


def differing(dtype: torch.dtype, functions: dict[str, Callable[..., Tensor]], count: int) -> Iterator[str]:
    """What differs from eager, all functions compiled in one graph."""
    chosen = list(itertools.product(VALUES, repeat=count))
    args = [torch.tensor(column, dtype=torch.float64).to(dtype) for column in zip(*chosen, strict=True)]
    wanted = {name: want for name, function in functions.items() if (want := _eager(function, args)) is not None}
    compiled = stator.compile(
        lambda *args: [functions[name](*args) for name in wanted],
        fullgraph=True,
        options={"strict": True, "cache": False},
    )
    for (name, want), got in zip(wanted.items(), compiled(*args), strict=True):
        if got.dtype is not want.dtype:
            yield f"{name}: {got.dtype}, eager's {want.dtype}"
            continue
        for i in _apart(got, want).nonzero().flatten().tolist():
            yield f"{name}{chosen[i]} in {dtype} is {got[i].item()}, eager's {want[i].item()}"


def _eager(function: Callable[..., Tensor], args: list[Tensor]) -> Tensor | None:
    try:
        return function(*args)
    except (RuntimeError, NotImplementedError):
        return None


def _apart(got: Tensor, want: Tensor) -> Tensor:
    if not want.is_floating_point():
        return got != want
    limits = torch.finfo(want.dtype)
    roundings = 64 if want.dtype in (torch.float32, torch.float64) else 2
    a, b = got.double(), want.double()
    near = (a - b).abs() <= roundings * limits.eps * b.abs() + 4 * limits.tiny
    zeros = (a == 0) & (b == 0)
    same = torch.where(zeros, torch.signbit(a) == torch.signbit(b), (a == b) | near)
    return ~(same | (a.isnan() & b.isnan()))
