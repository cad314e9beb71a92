"""Functions that kernels compute on vectors: exact, or as near as floats are, whatever the size of the operands."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import stator

INF = math.inf
EDGES = [0.0, 1.0, 2.0, 0.5, 3.0, 7.0, 0.1, 1 / 3, 1e-45, 1e-38, 1e38, 1e10, 8388607.0, 16777216.0, INF, math.nan]


def floats_of_every_size(count: int) -> Tensor:
    """By their bits: infinities, NaN and denormals are among them."""
    return torch.randint(-(2**31), 2**31 - 1, (count,)).to(torch.int32).view(torch.float32)


def pairs() -> tuple[Tensor, Tensor]:
    """Random ones, those near whole quotients, and every pair of edges."""
    torch.manual_seed(1)
    y, sign = floats_of_every_size(4000), torch.randint(0, 2, (4000,)) * 2 - 1
    whole = y * sign * (2 ** (torch.rand(4000) * 26)).floor()
    near = torch.nextafter(whole, torch.randn(4000) * INF)
    ends = torch.tensor(EDGES + [-edge for edge in EDGES])
    first = [floats_of_every_size(4000), torch.randn(4001) * 9, whole, near, ends.repeat_interleave(len(ends))]
    return torch.cat(first), torch.cat([y, torch.randn(4001), y, y, ends.repeat(len(ends))])


def same_bits(found: Tensor, wanted: Tensor) -> Tensor:
    return (found.view(torch.int32) == wanted.view(torch.int32)) | (found.isnan() & wanted.isnan())


def remainder_of(x: float, y: float) -> float:
    return math.nan if math.isinf(x) or y == 0 else math.fmod(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_remainders_are_exact(dtype: torch.dtype) -> None:
    """Those of floats are floats: bit for bit what `fmod` of the C library gives."""
    x, y = (t.to(dtype) for t in pairs())
    fmod = stator.compile(torch.fmod, fullgraph=True, options={"strict": True})
    rows = zip(x.tolist(), y.tolist(), strict=True)
    wanted = torch.tensor([remainder_of(*row) for row in rows], dtype=torch.float64)
    assert bool(same_bits(fmod(x, y).float(), wanted.float()).all())
    modulo = stator.compile(torch.remainder, fullgraph=True, options={"strict": True})
    across = (wanted != 0) & ((wanted < 0) != (y < 0))
    wanted = torch.where(across, wanted.to(dtype) + y, wanted.to(dtype))
    assert bool(same_bits(modulo(x, y).float(), wanted.float()).all())


FUNCTIONS = "sin cos tan asin acos atan sinh cosh tanh erf erfc exp log log2 log10 rsqrt lgamma".split()


def inputs() -> Tensor:
    torch.manual_seed(2)
    around = [
        place + torch.randn(300) * size
        for place in (1.0, 0.55, math.pi / 2, 300 * math.pi, 89.0)
        for size in (1e-2, 1e-5)
    ]
    ends = torch.tensor(EDGES)
    x = torch.cat(
        [floats_of_every_size(4000), torch.randn(4000), torch.randn(4000) * 20, torch.rand(4000) * 2e4, *around, ends]
    )
    return torch.cat([x, -x])


def last_places(found: Tensor, exact: Tensor) -> Tensor:
    """How far from an exact value, by the distance of the floats around it; 0 where it is that value rounded."""
    rounded = exact.float()
    size = rounded.abs().clamp(torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max)
    place = torch.exp2(torch.frexp(size.double()).exponent - 24.0)
    return torch.where(same_bits(found, rounded), 0.0, (found.double() - exact).abs() / place).nan_to_num(INF)


def test_functions_are_near() -> None:
    """Within a few units in the last place, also at the ends of their range and beside zeros; zeros have their sign."""
    x = inputs()

    def every(x: Tensor) -> list[Tensor]:
        return [getattr(torch, name)(x) for name in FUNCTIONS]

    found = stator.compile(every, fullgraph=True, options={"strict": True})(x)
    for name, mine, exact in zip(FUNCTIONS, found, every(x.double()), strict=True):
        off = last_places(mine, exact)
        assert float(off.max()) < 2.5, (name, float(x[off.argmax()]))
        zero = exact == 0
        assert torch.equal(mine[zero].signbit(), exact[zero].signbit()), name


@pytest.mark.parametrize("length", [None, 5])
def test_square_roots_are_rounded_once(length: int | None) -> None:
    """Also where most of a vector is as usual, and one lane is small, infinite or no number."""
    x = inputs()[:length]
    found = stator.compile(lambda x: (x.sqrt(), x * 2), fullgraph=True, options={"strict": True})(x)[0]
    assert bool(same_bits(found, x.double().sqrt().float()).all())


def doubles() -> Tensor:
    """Of all sizes: around 0, where functions change their formula, where they saturate, and where they overflow."""
    torch.manual_seed(5)
    sizes = [torch.randn(1500, dtype=torch.float64) * size for size in (1e-300, 1e-9, 1e-3, 1.0, 8.0, 300.0)]
    around = [place + torch.randn(300, dtype=torch.float64) * 1e-3 for place in (0.55, 0.625, 1.5, 5.95, 22.0, 709.8)]
    ends = torch.tensor([*EDGES, 710.4, 710.5, 745.2, 1024.0, 1075.0, 1e300, 5e-324], dtype=torch.float64)
    x = torch.cat([*sizes, *around, torch.linspace(0, 6.2, 5001, dtype=torch.float64), ends])
    return torch.cat([x, -x])


@pytest.mark.parametrize("name", "exp exp2 expm1 log log2 log10 tanh sinh cosh erf sigmoid sin cos".split())
@pytest.mark.parametrize("length", [None, 3])
def test_doubles_are_near(name: str, length: int | None) -> None:
    """To eager's, whose error is less than a unit in the last place, by less than two more; alone too.

    Eager's hyperbolic functions overflow before the result does.
    """
    function, x = getattr(torch, name), doubles()[:length]
    found = stator.compile(lambda x: (function(x), x * 2), fullgraph=True, options={"strict": True})(x)[0]
    wanted = function(x)
    place = torch.nextafter(wanted.abs(), torch.tensor(INF, dtype=torch.float64)) - wanted.abs()
    early = wanted.isinf() & (x.abs() < 710.47) & (name in ("sinh", "cosh"))
    same = (found == wanted) | (found.isnan() & wanted.isnan()) | (early & (found.abs() > 9e307))
    off = torch.where(same, 0.0, (found - wanted).abs() / place).nan_to_num(INF)
    assert float(off.max()) <= 3, float(x[off.argmax()])
    zero = wanted == 0
    assert torch.equal(found[zero].signbit(), wanted[zero].signbit())


def test_angles_are_near() -> None:
    y, x = pairs()
    off = last_places(stator.compile(torch.atan2, fullgraph=True)(y, x), torch.atan2(y.double(), x.double()))
    assert float(off.max()) < 2


def test_powers_are_rounded_once() -> None:
    """To hardly more than half a unit in the last place; signs, infinities and NaN as in float64."""
    x, y = pairs()
    torch.manual_seed(3)
    x = torch.cat([x, torch.randn(4000).abs(), torch.randn(4000), 1 + torch.randn(4000) * 1e-4])
    y = torch.cat([y, torch.randn(4000) * 9, torch.randint(-20, 20, (4000,)) * 0.5, torch.randn(4000) * 1e5])
    found, exact = stator.compile(torch.pow, fullgraph=True)(x, y), torch.pow(x.double(), y.double())
    assert float(last_places(found, exact).max()) < 0.51
    zero = exact == 0
    assert torch.equal(found[zero].signbit(), exact[zero].signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_powers_of_ten_are_whole(dtype: torch.dtype) -> None:
    """Programs count digits by them; what is stored of a power is nearer to it than a whole number's last place."""
    low, high = (-37, 39) if dtype is torch.float32 else (-307, 309)
    powers = torch.tensor([10.0**k for k in range(low, high)], dtype=torch.float64).to(dtype)
    found = stator.compile(torch.log10, fullgraph=True, options={"strict": True})(powers)
    assert torch.equal(found, torch.arange(low, high, dtype=dtype))


def test_logarithms_of_doubles_are_near() -> None:
    """Those to base 10 are in two parts: where they are tiny, they are those to base e, scaled."""
    torch.manual_seed(4)
    x = torch.cat([1 + torch.randn(3000) * 0.1, 1 + torch.randn(3000) * 1e-9, (torch.randn(3000) * 100).exp()]).double()
    found = stator.compile(torch.log10, fullgraph=True, options={"strict": True})(x)
    torch.testing.assert_close(found, torch.log10(x), rtol=3e-16, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_whole_numbers_are_divided_exactly(dtype: torch.dtype) -> None:
    """Of every size, at the ends of what floats and doubles hold, and beside whole multiples of the divisor."""
    torch.manual_seed(2)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    powers = [sign << bits for bits in (0, 3, 22, 23, 24, 31, 50, 51, 52, 53) for sign in (1, -1)]
    ends = [power + step for power in powers for step in (-1, 0, 1)]
    edges = torch.tensor(sorted({number for number in [*ends, low, high, high - 1] if low <= number <= high})).to(dtype)
    sizes = [1 << bits for bits in (2, 7, 15, 23, 31, 51, 62)]
    numbers = [torch.randint(max(low, -size), min(high, size), (2000,)) for size in sizes]
    random = torch.cat(numbers).to(dtype)
    divisors = random[torch.randperm(len(random))]
    divisors[divisors == 0] = 5
    multiples = random // divisors * divisors
    x = torch.cat([edges.repeat_interleave(len(edges)), random, multiples, multiples - 1, multiples + 1])
    y = torch.cat([edges.repeat(len(edges)), *[divisors] * 4])
    kept = (y != 0) & ((x != low) | (y.long() != -1))  # what traps in eager
    x, y = x[kept], y[kept]
    for name in ("floor", "trunc"):
        found = stator.compile(lambda x, y, name=name: torch.div(x, y, rounding_mode=name), fullgraph=True)(x, y)
        assert torch.equal(found, torch.div(x, y, rounding_mode=name))
    for remainder in (torch.remainder, torch.fmod):
        assert torch.equal(stator.compile(remainder, fullgraph=True)(x, y), remainder(x, y))
