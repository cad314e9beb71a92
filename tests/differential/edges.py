"""Whole numbers and conversions at their edges, generated: bit for bit as eager gives them.

Operators of integers over the far ends of each dtype, and every pair of dtypes over values that the other does not
hold; in every length and layout that takes another way through a kernel: one element, fewer than a vector has lanes,
a whole vector, one with a tail, strided. `python -m tests.differential.edges` runs all of it.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

import stator

Work = Sequence[tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LENGTHS = (1, 3, 16, 37)
REALS = (
    math.nan, math.inf, -math.inf, 3e9, -3e9, 1e19, -1e19, 9.3e18, 300.7, -300.7, -1.5, 255.9, 256.0, -0.9, 65535.0,
    65536.7, 4e4, -4e4, 1e5, 2.0**31, -(2.0**31) - 1, 2.0**32 + 5, 127.5, 128.0, -129.0, 0.5, -0.0, 1.0, 1e-40, 65519.9,
    65520.0, 3.3e38, 3.4e38, 1e39, -1e39, 2049.0, 257.5, 6e-8, 2.0**-25, 1 + 2.0**-11 + 2.0**-40,
)  # fmt: skip


def ends(dtype: torch.dtype) -> list[int]:
    """Numbers at the ends of an integer dtype, and around what others and their products hold."""
    limits = torch.iinfo(dtype)
    near = [limits.min, limits.min + 1, -1, 0, 1, 2, 3, 7, 100, limits.max - 1, limits.max]
    far = [n * sign for n in (255, 2**15, 2**16 + 3, 2**24 + 1, 2**31, 2**53 + 1, 2**62 + 1) for sign in (1, -1)]
    return [n for n in dict.fromkeys(near + far) if limits.min <= n <= limits.max]


def whole(dtype: torch.dtype) -> Tensor:
    return torch.tensor(ends(dtype), dtype=torch.int64).to(dtype)


def conversions(source: torch.dtype) -> Work:
    """To every other dtype, and from there back or on, so that a compiler may try to leave a step out."""
    x = torch.tensor(REALS, dtype=torch.float64).to(source) if source in FLOATS else whole(source)
    found: list[tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]] = []
    targets = (*INTEGERS, *FLOATS, torch.bool)
    for target in targets:
        found.append((f"{source} to {target}", lambda x, target=target: x.to(target), (x,)))
        for last in (torch.float32, torch.int64, source, torch.uint8):
            name = f"{source} to {target} to {last}"
            found.append((name, lambda x, target=target, last=last: x.to(target).to(last), (x,)))
    return found


#: Operators of two integers; those that divide get no zero, nor the lowest number by -1, which eager does not survive.
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "shift left": torch.bitwise_left_shift, "shift right": torch.bitwise_right_shift, "and": torch.bitwise_and,
    "xor": torch.bitwise_xor, "lt": torch.lt, "ge": torch.ge, "eq": torch.eq, "div": torch.div,
    "sum of products": lambda a, b: a * b + a - b * 3, "wraps, then widens": lambda a, b: (a + b).long() * 2,
    "wraps, then is a float": lambda a, b: (a * b).double(), "difference, then compared": lambda a, b: a - b < 0,
    "alpha": lambda a, b: torch.add(a, b, alpha=7), "addcmul": lambda a, b: torch.addcmul(a, a, b, value=3),
}  # fmt: skip
DIVIDING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "floor divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod,
    "truncate": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}  # fmt: skip
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg, "abs": torch.abs, "square": torch.square, "not": torch.bitwise_not, "sign": torch.sign,
    "add 1": lambda a: a + 1, "sub 1": lambda a: a - 1, "1 -": lambda a: 1 - a, "* 3": lambda a: a * 3,
    "// 3": lambda a: a // 3, "% 3": lambda a: a % 3, "// -3": lambda a: a // -3, "% -3": lambda a: a % -3,
    "<< 1": lambda a: a << 1, ">> 1": lambda a: a >> 1, "<< 7": lambda a: a << 7, ">> 40": lambda a: a >> 40,
    "<< 31": lambda a: a << 31, "<< 64": lambda a: a << 64, ">> 64": lambda a: a >> 64, "cube": lambda a: a**3,
    "** 5": lambda a: a**5, "fmod 5": lambda a: torch.fmod(a, 5), "clamp": lambda a: a.clamp(-2, 100),
    "abs, then halved": lambda a: a.abs() // 2, "neg, then compared": lambda a: -a > a, "float": lambda a: a / 3,
    "mean": lambda a: a.float() * 0.5, "bool": lambda a: a.bool(), "sum": lambda a: a.sum(), "prod": lambda a: a.prod(),
    "cumsum": lambda a: a.cumsum(0), "cumprod": lambda a: a.cumprod(0), "diff": lambda a: a.diff(), "max": torch.max,
    "argmin": torch.argmin, "argmax": torch.argmax, "sum in dtype": lambda a: a.sum(dtype=a.dtype),
    "low bits": lambda a: (a & 7).argmin(), "shifted low bits": lambda a: (a & 127) >> 40,
    "narrowed": lambda a: (a % 5 - 9) >> 33,
    "shift by bits": lambda a: a << (a & 7), "shift of a comparison": lambda a: (a > 0).long() << 40,
}  # fmt: skip


def operations(dtype: torch.dtype) -> Iterator[tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Every operator over all pairs of ends."""
    x = whole(dtype)
    pairs = torch.tensor(list(itertools.product(range(len(x)), repeat=2)))
    a, b = x[pairs[:, 0]], x[pairs[:, 1]]
    yield from ((f"{name} {dtype}", function, (x,)) for name, function in UNARY.items())
    yield from ((f"{name} {dtype}", function, (a, b)) for name, function in BINARY.items())
    low = torch.iinfo(dtype).min
    safe = (b != 0) & ~((a == low) & (b == -1) if dtype is not torch.uint8 else torch.zeros_like(b, dtype=torch.bool))
    yield from ((f"{name} {dtype}", function, (a[safe], b[safe])) for name, function in DIVIDING.items())


def layouts(tensors: tuple[Tensor, ...]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """All of the values in each length, contiguous and strided: pieces one after the other."""
    yield "whole", tensors
    yield "strided", tuple(t.repeat_interleave(2)[::2] for t in tensors)
    for length in LENGTHS:
        for turn in range(20 if length == 1 else 3):
            yield f"{length}, turn {turn}", tuple(_piece(t, turn * 29 % len(t), length) for t in tensors)


def _piece(x: Tensor, start: int, length: int) -> Tensor:
    return x.roll(-start).repeat(1 + length // len(x))[:length].clone()


def bits(x: Tensor) -> Tensor:
    """The same where equal, NaN being one value."""
    if not x.is_floating_point():
        return x
    return torch.where(x.isnan(), torch.full_like(x, torch.nan), x).view(torch.uint8)


def differing(work: Work) -> Iterator[str]:
    """What comes out differently, all of it compiled at once for each layout."""
    functions = [function for _, function, _ in work]
    compiled = stator.compile(
        lambda given: [function(*args) for function, args in zip(functions, given, strict=True)],
        fullgraph=True,
        dynamic=True,
        options={"strict": True, "cache": False},
    )
    for parts in zip(*[list(layouts(tensors)) for _, _, tensors in work], strict=True):
        given = [args for _, args in parts]
        results = compiled(given)
        for (name, function, _), (layout, args), got in zip(work, parts, results, strict=True):
            want = function(*args)
            if got.dtype is not want.dtype or not torch.equal(bits(got), bits(want)):
                yield f"{name}, {layout}: {[a.tolist() for a in args]} give {got.tolist()}, in eager {want.tolist()}"


def main() -> int:
    """All of it; 1 where anything differs."""
    count = 0
    for work in (*map(conversions, (*FLOATS, *INTEGERS)), *[list(operations(dtype)) for dtype in INTEGERS]):
        for line in differing(work):
            count += 1
            print(line[:400], flush=True)
    print(f"# {count} differ")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
