"""Complex numbers whose parts are zeros, infinities, NaN and the ends of a dtype, through all that computes with them.

Every function of one number takes every pair of such parts, every one of two takes every pair of pairs: as tensors of
one dtype, of two, real with complex, and with either one a 0-dim tensor. A part has to be what eager makes of it by one
of its own ways (`WAYS`): with vector instructions or without, products joined with sums or not. Neighbour:
`special_values.py` does it for real numbers. `python -m tests.differential.complex_values` runs all of it.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

import stator
from stator.coverage.stepwise import Stepwise
from stator.coverage.ways import Elsewhere, Plain

DTYPES = (torch.complex64, torch.complex128)
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
NUMBERS = (2, 1, 1.0, 0, -0.5, math.inf, 1 + 0j, 2 + 3j, 1j, complex(0, math.inf))
EXPONENTS = (1, 2, 3, 0, 0.5, -0.5, -1, -2, 2.5, 2 + 1j)

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "abs angle exp log sqrt sin cos tan sinh cosh tanh reciprocal sgn neg square isnan isinf isfinite logical_not "
        "sigmoid log2 log10 rsqrt expm1 log1p atan asinh acos asin acosh atanh conj_physical isreal sum mean prod any"
    ).split()},
    **{f"** {k}": lambda x, k=k: x**k for k in EXPONENTS},
    **{f"{name}, rows": lambda x, name=name: getattr(torch, name)(x.unflatten(0, (-1, 5)), 1) for name in (
        "sum mean prod cumsum cumprod softmax count_nonzero"
    ).split()},
    "norm": lambda x: torch.linalg.vector_norm(x.unflatten(0, (-1, 5)), 2, 1),
    **{f"to {dtype}": lambda x, dtype=dtype: x.to(dtype) for dtype in DTYPES},
}  # fmt: skip
#: Of a tensor and a number.
SCALAR: dict[str, Callable[..., Tensor]] = {
    "+": lambda x, k: x + k, "-": lambda x, k: x - k, "*": lambda x, k: x * k, "/": lambda x, k: x / k,
    "- from": lambda x, k: k - x, "by": lambda x, k: k / x, "==": lambda x, k: x == k,
    "add alpha": lambda x, k: torch.add(x, x, alpha=k), "sub alpha": lambda x, k: torch.sub(x, x, alpha=k),
    "rsub alpha": lambda x, k: torch.rsub(x, x, alpha=k), "rsub 2 alpha": lambda x, k: torch.rsub(x, 2, alpha=k),
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k), "addcdiv": lambda x, k: torch.addcdiv(x, x, x, value=k),
    "addr": lambda x, k: torch.addr(x[1::16], x, x[1::16], alpha=k),
    "addr beta": lambda x, k: torch.addr(x[2::16], x[:40], x[2::16], beta=k),
    "masked_fill": lambda x, k: x.masked_fill(x.real > 0, k), "where": lambda x, k: torch.where(x.real > 0, x, k),
    "lerp": lambda x, k: torch.lerp(x, x.conj() + 1, k), "isclose": lambda x, k: torch.isclose(x, x + k),
    "minus tensor": lambda x, k: torch.sub(torch.scalar_tensor(k, dtype=x.dtype if type(k) is complex else None), x),
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in "add sub mul div rsub eq ne logical_and isclose pow".split()},
    "alpha": lambda a, b: torch.add(a, b, alpha=2), "sub alpha": lambda a, b: torch.sub(a, b, alpha=0.5 + 1j),
    "addcmul": lambda a, b: torch.addcmul(b, a, b), "addcmul 2j": lambda a, b: torch.addcmul(a, b, b, value=2j),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b), "addcdiv 0.5": lambda a, b: torch.addcdiv(b, b, a, value=0.5),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3), "far lerp": lambda a, b: torch.lerp(a, b, 0.7),
    "where": lambda a, b: torch.where(a.real > b.real, a, b), "conj": lambda a, b: a.conj() * b - b.conj(),
    "dist": lambda a, b: torch.dist(a, b),
}  # fmt: skip

#: How eager may compute.
WAYS: tuple[Callable[[], AbstractContextManager[object]], ...] = (
    nullcontext, lambda: Elsewhere(vectors=True), lambda: Elsewhere(vectors=False), Stepwise,
)  # fmt: skip


def parts(dtype: torch.dtype) -> tuple[float, ...]:
    limits = torch.finfo(dtype)
    far = (limits.max, limits.min, -1.5 * math.sqrt(limits.max), limits.max / 3)
    return (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -2.5, limits.tiny, limits.tiny / 8, 3e9, *far, 0.3)


def numbers(dtype: torch.dtype, share: int = 1) -> Tensor:
    """Every pair of parts, or each so many-th."""
    made = [torch.complex(*torch.tensor(pair, dtype=REAL[dtype])) for pair in itertools.product(parts(dtype), repeat=2)]
    return torch.stack(made[::share])


def operands(dtype: torch.dtype, share: int) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Pairs of numbers in every way to be given."""
    x = numbers(dtype, share)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    (other,) = set(DTYPES) - {dtype}
    yield "both complex", (a, b)
    yield "with a real one", (a, b.real.clone())
    yield "a real one with", (b.real.clone(), a)
    yield "with another dtype", (a, b.to(other))
    for i in range(0, len(x), max(1, len(x) // 8)):
        yield f"with {x[i].item()}", (x, x[i])
        yield f"{x[i].item()} with", (x[i], x)
        yield f"real ones with {x[i].item()}", (x.real.clone(), x[i])


def differing(functions: dict[str, Callable[..., Tensor]], args: Sequence[Tensor]) -> Iterator[str]:
    """What no way of eager's gives, all functions compiled in one graph."""
    wanted = {name: _eager(function, args) for name, function in functions.items()}
    wanted = {name: want for name, want in wanted.items() if want}
    compiled = stator.compile(
        lambda *args: [functions[name](*args) for name in wanted],
        fullgraph=True,
        options={"strict": True, "cache": False},
    )
    for (name, wants), got in zip(wanted.items(), compiled(*args), strict=True):
        if got.dtype is not wants[0].dtype or got.shape != wants[0].shape:
            yield f"{name}: {got.dtype} {tuple(got.shape)}, eager's {wants[0].dtype} {tuple(wants[0].shape)}"
            continue
        wrong = torch.stack([_apart(got, want) for want in wants]).all(0)
        for at in wrong.nonzero().tolist()[:3]:
            given = [arg[at[0]].item() if arg.dim() and arg.shape == wants[0].shape else "…" for arg in args]
            values = [_in_parts(t)[tuple(at)].item() for t in (got, *wants)]
            yield f"{name}{given} part {at[-1]} is {values[0]}, eager's {values[1:]} ({int(wrong.sum())} differ)"


def _eager(function: Callable[..., Tensor], args: Sequence[Tensor]) -> list[Tensor]:
    found = []
    for way in WAYS:
        try:
            with way():
                found.append(function(*args).clone())
        except (RuntimeError, NotImplementedError):
            return []
    return found


def _in_parts(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.unsqueeze(-1)


def _apart(got: Tensor, want: Tensor) -> Tensor:
    """Which parts differ, by more than some roundings of the number that they are parts of."""
    a, b = _in_parts(got), _in_parts(want)
    if not b.is_floating_point():
        return a != b
    limits = torch.finfo(b.dtype)
    size = b.double().abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True)
    near = (a.double() - b.double()).abs() <= 64 * limits.eps * size + 8 * limits.tiny
    return ~((a == b) | (a.isnan() & b.isnan()) | near)


def sloping(functions: dict[str, Callable[..., Tensor]], args: Sequence[Tensor]) -> Iterator[str]:
    """The same for gradients, each function compiled by itself: the gradient of one must not meet that of another."""
    for name, function in functions.items():
        try:
            wants = [_slopes(function, args, way) for way in (*WAYS, Plain)]
        except (RuntimeError, NotImplementedError):
            continue
        stator.reset()
        compiled = stator.compile(function, fullgraph=True, options={"strict": True, "cache": False})
        for i, (got, *want) in enumerate(zip(_slopes(compiled, args), *wants, strict=True)):
            if got is None or None in want:
                wrong = torch.tensor(got is not want[0])
            else:
                wrong = torch.stack([_apart(got, w) for w in want]).all(0)
            if wrong.any():
                yield f"gradient {i} of {name} at {wrong.nonzero()[0].tolist()} ({int(wrong.sum())} differ)"


def _slopes(
    function: Callable[..., Tensor],
    args: Sequence[Tensor],
    way: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[Tensor | None, ...]:
    leaves = [arg.clone().requires_grad_() for arg in args]
    with way():
        out = function(*leaves)
        if not out.requires_grad:
            return ()
        cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
        cotangent = cotangent.to(out.dtype) if out.is_complex() else cotangent.real.to(out.dtype)
        return torch.autograd.grad(out, leaves, cotangent, allow_unused=True)


def scalars() -> dict[str, Callable[[Tensor], Tensor]]:
    return {f"{name} {k}": lambda x, f=f, k=k: f(x, k) for name, f in SCALAR.items() for k in NUMBERS}


def main() -> int:
    """All of it; 1 where anything differs."""
    warnings.simplefilter("ignore")
    count = 0
    for dtype in DTYPES:
        given = [("one", {**UNARY, **scalars()}, (numbers(dtype),))]
        given += [(how, BINARY, args) for how, args in operands(dtype, 1)]
        for how, functions, args in given:
            few = [arg[:: max(1, len(arg) // 200)] if arg.dim() else arg for arg in args]
            for line in (*differing(functions, args), *sloping(functions, few)):
                count += 1
                print(f"{dtype}, {how}: {line}"[:300], flush=True)
    print(f"# {count} differ")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
