"""Functions of the language as kernels call them, against PyTorch and numpy: shapes, reductions, order, memory, random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.language.extra import libdevice

pytestmark = pytest.mark.usefixtures("way")


@triton.jit
def apply(out, x, y, FUNCTION: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Stores what a function gives for two matrices, flat."""
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    result = FUNCTION(tl.load(x + place), tl.load(y + place))
    tl.store(out + tl.arange(0, result.numel), tl.ravel(result))


def call(function: Any, x: torch.Tensor, y: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    out = torch.zeros(shape, dtype=dtype)
    apply[(1,)](out, x.contiguous(), y.contiguous(), FUNCTION=function, M=x.shape[0], N=x.shape[1])
    return out


@triton.jit
def transposed(x, y):
    return tl.trans(x) + y.T


@triton.jit
def reshaped(x, y):
    return tl.reshape(x, (2, 4, 4)).permute(2, 0, 1) * tl.view(y, [4, 2, 4]).reshape(4, 2, 4)


@triton.jit
def joined(x, y):
    both = tl.join(x, y)
    left, right = both.split()
    return tl.interleave(left + right, y)


@triton.jit
def expanded(x, y):
    z = tl.expand_dims(x, [0, -1])
    tl.static_assert(z.shape[0] == 1 and z.shape[3] == 1 and len(z.shape) == 4)
    return tl.broadcast_to(z, 1, 4, 8, 2) + y[None, :, :, None]


@triton.jit
def gathered(x, y):
    index = (tl.arange(0, 8) * 3 % 8)[None, :]
    return tl.gather(x, index.broadcast_to(4, 8), 1) + tl.flip(y, 0) + tl.flip(y)


@triton.jit
def swizzled(x, y):
    i, j = tl.swizzle2d(tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :], 4, 8, 2)
    return x * 0 + i * 100 + j


@triton.jit
def catted(x, y):
    return tl.sort(tl.cat(tl.ravel(x), tl.ravel(y), can_reorder=True))


def swizzle(i: np.ndarray[Any, Any], j: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = i * 8 + j
    group, rest = flat // 16 * 2, flat % 16
    return (group + rest % 2) * 100 + rest // 2


GRID = np.meshgrid(np.arange(4), np.arange(8), indexing="ij")
SHAPES: dict[Any, tuple[tuple[int, ...], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    transposed: ((8, 4), lambda x, y: x.T + y.T),
    reshaped: ((4, 2, 4), lambda x, y: x.reshape(2, 4, 4).permute(2, 0, 1) * y.reshape(4, 2, 4)),
    joined: ((4, 16), lambda x, y: torch.stack([x + y, y], -1).reshape(4, 16)),
    expanded: ((1, 4, 8, 2), lambda x, y: (x + y)[None, :, :, None].expand(1, 4, 8, 2)),
    gathered: ((4, 8), lambda x, y: x[:, torch.arange(8) * 3 % 8] + y.flip(0) + y.flip(1)),
    swizzled: ((4, 8), lambda x, y: torch.from_numpy(swizzle(*GRID)).float()),
    catted: ((64,), lambda x, y: torch.cat([x.ravel(), y.ravel()]).sort().values),
}


@pytest.mark.parametrize("function", SHAPES, ids=lambda function: function.fn.__name__)
def test_shapes(function: Any) -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    shape, expected = SHAPES[function]
    torch.testing.assert_close(call(function, x, y, shape, torch.float32), expected(x, y))


@triton.jit
def along(out, x, FUNCTION: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    result = FUNCTION(value, AXIS, keep_dims=KEEP)
    tl.static_assert(len(result.shape) == (2 if KEEP else 0 if AXIS is None else 1))
    tl.store(
        out + tl.arange(0, result.numel) if result.numel > 1 else out, tl.ravel(result) if result.numel > 1 else result
    )


@triton.jit
def store_number(out, x, FUNCTION: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out, FUNCTION(value, None))
    tl.store(out + 1, FUNCTION(value, None, keep_dims=True).item())


REDUCTIONS: dict[Any, Callable[..., Any]] = {
    tl.sum: torch.sum,
    tl.max: torch.amax,
    tl.min: torch.amin,
    tl.argmax: torch.argmax,
    tl.argmin: torch.argmin,
}


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int8])
def test_reductions(function: Any, dtype: torch.dtype) -> None:
    x = torch.randint(-5, 6, (4, 8)).to(dtype)
    for axis in (0, 1):
        for keep in (True, False):
            expected = REDUCTIONS[function](x, axis, keepdim=keep)
            out = torch.zeros(expected.shape, dtype=torch.float64)
            along[(1,)](out, x, FUNCTION=function, AXIS=axis, KEEP=keep, M=4, N=8)
            assert torch.equal(out, expected.double())
    out = torch.zeros(2, dtype=torch.float64)
    store_number[(1,)](out, x, FUNCTION=function, M=4, N=8)
    whole = REDUCTIONS[function](x.ravel(), 0)
    assert out.tolist() == [whole.item()] * 2


@triton.jit
def with_indices(out, x, N: tl.constexpr, LEFT: tl.constexpr):
    i = tl.arange(0, N)
    value, index = tl.max(tl.load(x + i), 0, return_indices=True, return_indices_tie_break_left=LEFT)
    least, place = tl.load(x + i).min(axis=0, return_indices=True)
    tl.store(out, value)
    tl.store(out + 1, index)
    tl.store(out + 2, least)
    tl.store(out + 3, place)


def test_extremes_with_their_places() -> None:
    x, out = torch.tensor([3.0, 7, -1, 7, 2, -1, 0, 7]), torch.zeros(4)
    with_indices[(1,)](out, x, N=8, LEFT=True)
    assert out.tolist() == [7, 1, -1, 2]


@triton.jit
def scans(out, x, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(out + i, tl.cumsum(value, 0, reverse=REVERSE))
    tl.store(out + N + i, value.cumprod(0, REVERSE))


@pytest.mark.parametrize("reverse", [True, False])
def test_scans(reverse: bool) -> None:
    x, out = torch.rand(16) + 0.5, torch.zeros(2, 16)
    scans[(1,)](out, x, N=16, REVERSE=reverse)
    given = x.flip(0) if reverse else x
    expected = torch.stack([given.cumsum(0), given.cumprod(0)])
    torch.testing.assert_close(out, expected.flip(1) if reverse else expected)


@triton.jit
def ordered(out, x, M: tl.constexpr, N: tl.constexpr, DOWN: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    value = tl.load(x + rows * N + columns)
    tl.store(out + rows * (N + K) + columns, tl.sort(value, descending=DOWN))
    tl.store(out + rows * (N + K) + N + tl.arange(0, K)[None, :], tl.topk(value, K))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("down", [True, False])
def test_sort_and_topk(dtype: torch.dtype, down: bool) -> None:
    x = (torch.randn(4, 16) * 100).to(dtype)
    out = torch.zeros(4, 20, dtype=dtype)
    ordered[(1,)](out, x, M=4, N=16, DOWN=down, K=4)
    assert torch.equal(out, torch.cat([x.sort(1, descending=down).values, x.topk(4).values], 1))


@triton.jit
def counted(out, x, N: tl.constexpr, LIMIT: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(out + tl.arange(0, 8), tl.histogram(value, 8))
    tl.store(out + 8 + tl.arange(0, 8), tl.histogram(value, 8, mask=tl.arange(0, N) < LIMIT))
    tl.store(out + 16, tl.xor_sum(value))
    tl.store(out + 17, tl.reduce_or(value, 0))


def test_histogram_and_bits() -> None:
    x, out = torch.randint(0, 8, (64,), dtype=torch.int32), torch.zeros(18, dtype=torch.int32)
    counted[(1,)](out, x, N=64, LIMIT=10)
    assert torch.equal(out[:8], x.bincount(minlength=8).int())
    assert torch.equal(out[8:16], x[:10].bincount(minlength=8).int())
    assert out[16:].tolist() == [int(np.bitwise_xor.reduce(x.numpy())), int(np.bitwise_or.reduce(x.numpy()))]


@triton.jit
def rows_softmax(x, y):
    return tl.softmax(x, dim=1, keep_dims=True) + tl.sigmoid(y)


@triton.jit
def mathematics(x, y):
    positive = tl.abs(x) + 0.5
    first = tl.exp(y) + tl.exp2(y) + tl.log(positive) + tl.log2(positive) + tl.sqrt(positive) + tl.rsqrt(positive)
    second = tl.sin(x) + tl.cos(x) + tl.erf(y) + tl.floor(x) + tl.ceil(y) + tl.sqrt_rn(positive)
    return first + second + tl.fma(x, y, x) + tl.fdiv(x, positive) + tl.div_rn(y, positive) + tl.clamp(x, -0.5, 0.5)


@triton.jit
def of_libdevice(x, y):
    first = libdevice.tanh(x) + libdevice.atan2(x, y) + libdevice.pow(tl.abs(x), y) + libdevice.expm1(x)
    return first + libdevice.isnan(x).to(tl.float32) + libdevice.ldexp(x, 3) + libdevice.hypot(x, y)


def math_expected(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p = x.abs() + 0.5
    first = y.exp() + y.exp2() + p.log() + p.log2() + p.sqrt() + p.rsqrt()
    second = x.sin() + x.cos() + y.erf() + x.floor() + y.ceil() + p.sqrt()
    return first + second + x * y + x + x / p + y / p + x.clamp(-0.5, 0.5)


FUNCTIONS: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    rows_softmax: lambda x, y: x.softmax(1) + y.sigmoid(),
    mathematics: math_expected,
    of_libdevice: lambda x, y: x.tanh() + x.atan2(y) + x.abs() ** y + x.expm1() + x * 8 + x.hypot(y),
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.fn.__name__)
def test_mathematics(function: Any) -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch.testing.assert_close(
        call(function, x, y, (4, 8), torch.float32), FUNCTIONS[function](x, y), rtol=1e-5, atol=1e-5
    )


@triton.jit
def integers(x, y):
    return libdevice.popc(x) + libdevice.clz(y) * 64 + libdevice.ffs(x) * 4096 + libdevice.brev(x) % 7 + tl.umulhi(x, y)


def test_integers_of_libdevice() -> None:
    x, y = [torch.randint(-(2**31), 2**31, (4, 8)).int() for _ in range(2)]
    x[0, 0], y[0, 0] = 0, 0

    def expected(a: int, b: int) -> int:
        a, b = a % 2**32, b % 2**32
        reverse = int(f"{a:032b}"[::-1], 2)
        signed = reverse - 2**32 if reverse >= 2**31 else reverse
        remainder = int(np.fmod(signed, 7))
        lowest = (a & -a).bit_length()
        return (a.bit_count() + (32 - b.bit_length()) * 64 + lowest * 4096 + remainder + (a * b >> 32)) % 2**32

    out = call(integers, x, y, (4, 8), torch.int32)
    wanted = [expected(*pair) for pair in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    assert [value % 2**32 for value in out.ravel().tolist()] == wanted


@triton.jit
def atomics(out, old, values, places, N: tl.constexpr):
    i = tl.arange(0, N)
    at, value = tl.load(places + i), tl.load(values + i)
    tl.atomic_add(out + at, value, mask=value > 0)
    tl.atomic_max(out + 4 + at, value, sem="relaxed", scope="cta")
    tl.atomic_min(out + 8 + at, value)
    tl.atomic_or(out + 12 + at, value)
    tl.atomic_and(out + 16 + at, value)
    tl.atomic_xor(out + 20 + at, value)
    tl.store(old, tl.atomic_xchg(out + 24, 5))
    tl.store(old + 1, tl.atomic_cas(out + 24, 5, 9))
    tl.store(old + 2, tl.atomic_cas(out + 24, 5, 11))


def test_atomics() -> None:
    places, values = torch.randint(0, 4, (32,)), torch.randint(-20, 20, (32,), dtype=torch.int32)
    out, old = torch.full((25,), 3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    atomics[(1,)](out, old, values, places, N=32)
    expected = np.full(25, 3, np.int32)
    pairs = list(zip(places.tolist(), values.tolist(), strict=True))
    for place, value in pairs:
        expected[place] += value if value > 0 else 0
        expected[4 + place] = max(expected[4 + place], value)
        expected[8 + place] = min(expected[8 + place], value)
        expected[12 + place] |= value
        expected[16 + place] &= value
        expected[20 + place] ^= value
    expected[24] = 9
    assert out.tolist() == expected.tolist() and old.tolist() == [3, 5, 9]


@triton.jit
def casts(out, bits, x, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(out + i, value.to(tl.float16).to(tl.float32))
    tl.store(out + N + i, value.to(tl.bfloat16, fp_downcast_rounding="rtz").to(tl.float32))
    tl.store(out + 2 * N + i, value.to(tl.float8e5).to(tl.float32))
    tl.store(bits + i, value.to(tl.int32, bitcast=True))
    tl.store(bits + N + i, tl.cast(value, tl.int8).to(tl.int32))
    tl.store(bits + 2 * N + i, (value != 0).to(tl.int32) + value.to(tl.int1))


def test_casts() -> None:
    x = torch.tensor([0.0, 1.1, -2.7, 100.3, 0.3333, -0.0, 7.9999, -64.5])
    out, bits = torch.zeros(3, 8), torch.zeros(3, 8, dtype=torch.int32)
    casts[(1,)](out, bits, x, N=8)
    truncated = (x.view(torch.int32) & -65536).view(torch.float32)
    assert torch.equal(out, torch.stack([x.half().float(), truncated, x.to(torch.float8_e5m2).float()]))
    assert torch.equal(bits, torch.stack([x.view(torch.int32), x.to(torch.int8).int(), (x != 0).int() * 2]))


@triton.jit
def random_bits(out, seed, offsets, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.load(offsets + i)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(out + i, a.to(tl.int64))
    tl.store(out + N + i, d.to(tl.int64))
    tl.store(out + 2 * N + i, tl.randint(seed, at, 7).to(tl.int64))


@triton.jit
def random_floats(out, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + N + i, tl.randn(seed, i))


#: Seed and dtype of offsets → the first bits that Triton gives.
BITS = {
    (0, False): [[1713891541, 2509423608, 1204689448, 1144056222], [2600524760, 4013573263, 912364222, 3988154370], [1601156873, 3862115812, 465925883, 1189380258]],
    (0, True): [[1713891541, 3883970891, 2018059685, 3765056741], [2600524760, 3563020459, 2594876078, 1140752941], [1601156873, 220362736, 521205702, 3901897365]],
    (42, False): [[2632642643, 2256775088, 3470007785, 238013946], [1463989207, 590277596, 229301757, 657639905], [2462826906, 1939362262, 887273980, 2816485433]],
    (42, True): [[2632642643, 1431812800, 1228610711, 4061192657], [1463989207, 772453884, 1917410267, 1929086273], [2462826906, 1022554329, 296243637, 2031483495]],
    (-3, False): [[3751952495, 3544957980, 1356367939, 2282595439], [971982459, 42312669, 1023655734, 3967198286], [309459078, 1055663982, 2408367927, 326296289]],
    (-3, True): [[3751952495, 97553978, 3628577622, 960172193], [971982459, 951752718, 4000395881, 368716448], [309459078, 841096743, 298753673, 3033276604]],
    (1099511627793, False): [[3043933274, 1370490273, 2246074940, 1853068254], [2372675247, 2536281814, 2198269103, 2308516986], [2376820573, 1856308821, 840988389, 2993985975]],
    (1099511627793, True): [[3043933274, 424207095, 654366301, 1776497573], [2372675247, 2795277025, 1923589082, 4166923523], [2376820573, 3526987385, 3571727301, 1336303335]],
}  # fmt: skip


@pytest.mark.parametrize(("seed", "wide"), BITS)
def test_random_bits_are_those_of_triton(seed: int, wide: bool) -> None:
    offsets = torch.arange(4).to(torch.int64 if wide else torch.int32) * 1000003 * (100003 if wide else 1)
    out = torch.zeros(3, 4, dtype=torch.int64)
    random_bits[(1,)](out, seed, offsets, N=4)
    assert out.tolist() == BITS[seed, wide]


def test_random_floats() -> None:
    out = torch.zeros(2, 4096)
    random_floats[(1,)](out, 42, N=4096)
    uniform, normal = out
    torch.testing.assert_close(
        uniform[:4], torch.tensor([0.7740801572799683, 0.024562695994973183, 0.3482663035392761, 0.5408014059066772])
    )
    torch.testing.assert_close(
        normal[:4], torch.tensor([0.6606133580207825, -1.5427135229110718, -0.5904635787010193, -0.6016254425048828])
    )
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
