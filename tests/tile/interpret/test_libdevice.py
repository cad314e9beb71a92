"""Functions of libdevice against mpmath and exact fractions, each of them in every signature that it has."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from stator.tile.interpret.exact import root, rounded
from stator.tile.interpret.libdevice import BITS, DIRECTED, INTEGERS, NUMBERS
from stator.tile.ir.externs import EXTERNS
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import DTYPES, Type
from tests.tile.interpret.cases import Case, Data, numbers_of, wrapped

mp = mpmath.mp.clone()
mp.dps = 40


def called(symbol: str, *operands: tuple[str, Any]) -> Data:
    """What a function gives."""
    arrays = tuple([(name, np.asarray(data, DTYPES[name].numpy)) for name, data in operands])
    return Case("extern", arrays, {"symbol": symbol}).run()[0]


#: Function → itself in mpmath, and numbers to try it on.
PRECISE: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "acos": (mp.acos, [-1, -0.3, 0.2, 1]), "acosh": (mp.acosh, [1, 1.5, 80]), "asin": (mp.asin, [-1, 0.3, 0.9]),
    "asinh": (mp.asinh, [-90, 0.3, 4]), "atan": (mp.atan, [-90, 0.3, 4]), "atanh": (mp.atanh, [-0.9, 0.3]),
    "atan2": (mp.atan2, [(1, 2), (-1, 2), (3, -1), (-3, -1)]),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), [-8, 3]),
    "rcbrt": (lambda x: 1 / mp.cbrt(x), [8, 3, 0.1]),
    "cosh": (mp.cosh, [-3, 0.2, 20]), "sinh": (mp.sinh, [-3, 0.2, 20]),
    "tan": (mp.tan, [-3, 0.2, 20]), "sin": (mp.sin, [-3, 0.2, 20]), "cos": (mp.cos, [-3, 0.2, 20]),
    "tanh": (mp.tanh, [-3, 0.2]), "cospi": (mp.cospi, [0, 0.5, 1, 1.25, -7.75, 1e6]),
    "sinpi": (mp.sinpi, [0, 0.5, 1, 1.25, -7.75, 1e6]), "exp": (mp.exp, [-20, 0.1, 30]),
    "exp2": (lambda x: mp.mpf(2) ** x, [-20, 0.5, 30]), "exp10": (lambda x: mp.mpf(10) ** x, [-20, 0.5, 30]),
    "expm1": (mp.expm1, [-1e-6, 1e-3, 3]), "log": (mp.log, [1e-9, 0.5, 1e9]),
    "log2": (lambda x: mp.log(x, 2), [0.5, 3, 8]),
    "log10": (mp.log10, [0.001, 3, 1000]), "log1p": (mp.log1p, [-1e-6, 1e-3, 3]), "sqrt": (mp.sqrt, [0.25, 3]),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), [0.25, 3]), "erf": (mp.erf, [-3, 0.1, 1]), "erfc": (mp.erfc, [-3, 0.1, 5]),
    "erfcx": (lambda x: mp.erfc(x) * mp.exp(x * x), [-5, 0.1, 5, 19.9, 20.5, 1e6]),
    "erfinv": (mp.erfinv, [-0.999, -0.5, 1e-6, 0.3, 0.7]),
    "erfcinv": (lambda x: mp.erfinv(1 - x), [1e-20, 0.001, 0.3, 0.8, 1.2, 1.9]),
    "normcdf": (mp.ncdf, [-8, -1, 0.5, 3]),
    "normcdfinv": (lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), [0.01, 0.3, 0.9]),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), [0.1, 3.5, 100, -0.5]), "tgamma": (mp.gamma, [0.1, 3.5, 20, -2.5]),
    "j0": (lambda x: mp.besselj(0, x), [0.1, -3, 30, 90]), "j1": (lambda x: mp.besselj(1, x), [0.1, -3, 30, 90]),
    "y0": (lambda x: mp.bessely(0, x), [1e-9, 0.1, 3, 30, 90]),
    "y1": (lambda x: mp.bessely(1, x), [1e-9, 0.1, 3, 30, 90]),
    "jn": (mp.besselj, [(0, 2), (3, 0.1), (5, 12), (2, 90), (-3, 2), (40, 90), (80, 60)]),
    "yn": (mp.bessely, [(0, 2), (3, 0.1), (5, 12), (2, 90), (-3, 2)]),
    "cyl_bessel_i0": (lambda x: mp.besseli(0, x), [-2, 0.1, 25, 60]),
    "cyl_bessel_i1": (lambda x: mp.besseli(1, x), [-2, 0.1, 25, 60]),
    "hypot": (mp.hypot, [(3, 4), (1, -2)]), "rhypot": (lambda x, y: 1 / mp.hypot(x, y), [(3, 4), (1, -2)]),
    "norm3d": (lambda *x: mp.norm(x), [(1, 2, 3)]), "rnorm3d": (lambda *x: 1 / mp.norm(x), [(1, 2, 3)]),
    "norm4d": (lambda *x: mp.norm(x), [(1, 2, 3, -4)]), "rnorm4d": (lambda *x: 1 / mp.norm(x), [(1, 2, 3, -4)]),
    "pow": (mp.power, [(2, 0.5), (3, -2), (0.1, 7)]), "ldexp": (lambda x, n: x * mp.mpf(2) ** n, [(1.5, 4), (3, -7)]),
    "scalbn": (lambda x, n: x * mp.mpf(2) ** n, [(1.5, 4), (3, -7)]), "fma": (lambda a, b, c: a * b + c, [(2, 3, 0.5)]),
    "copysign": (lambda x, y: abs(x) * mp.sign(y), [(2, -3), (-2, 3)]),
    "fmod": (lambda x, y: x - y * int(x / y), [(5, 3), (-5, 3), (5.5, -2)]),
    "fdim": (lambda x, y: max(x - y, 0), [(3, 1), (1, 3)]), "abs": (abs, [-1.5, 2]),
    "ceil": (mp.ceil, [-1.5, 2.2]), "floor": (mp.floor, [-1.5, 2.2]),
    "trunc": (lambda x: mp.mpf(int(x)), [-1.5, 2.2]),
    "rint": (mp.nint, [0.5, 1.5, -2.5, 2.2]), "nearbyint": (mp.nint, [0.5, 1.5, -2.5, 2.2]),
    "round": (lambda x: mp.sign(x) * mp.floor(abs(x) + mp.mpf(1) / 2), [0.5, 1.5, -2.5, 2.2]),
    "logb": (lambda x: mp.floor(mp.log(abs(x), 2)), [0.1, 1, -9]),
    "ilogb": (lambda x: mp.floor(mp.log(abs(x), 2)), [0.1, 1, -9]),
    "llrint": (mp.nint, [0.5, 1.5, -2.5, 1e9]), "llround": (lambda x: mp.sign(x) * mp.floor(abs(x) + 0.5), [0.5, -2.5]),
    "remainder": (lambda x, y: x - y * mp.nint(x / y), [(5, 3), (7, 2), (-5, 3)]),
    "saturatef": (lambda x: min(max(x, 0), 1), [-1, 0.25, 2]),
    "fast_cosf": (mp.cos, [-3, 0.2]), "fast_sinf": (mp.sin, [-3, 0.2]), "fast_tanf": (mp.tan, [-3, 0.2]),
    "fast_tanhf": (mp.tanh, [-3, 0.2]), "fast_expf": (mp.exp, [-3, 0.2]), "fast_logf": (mp.log, [0.2, 9]),
    "fast_exp10f": (lambda x: mp.mpf(10) ** x, [-3, 0.5]), "fast_log2f": (lambda x: mp.log(x, 2), [0.2, 9]),
    "fast_log10f": (mp.log10, [0.2, 9]), "fast_powf": (mp.power, [(2, 0.5)]),
    "fast_dividef": (lambda x, y: x / y, [(1, 3)]),
    "rsqrt_rn": (lambda x: 1 / mp.sqrt(x), [0.3, 3]),
}  # fmt: skip


def signatures(symbol: str) -> list[list[str]]:
    """The operands' dtypes of each signature, F as both."""
    found = []
    for signature in EXTERNS[symbol].split(" | "):
        words = signature.split("->")[0].split()
        for floating in ("f32", "f64") if "F" in words else ("f32",):
            found.append([floating if word == "F" else word for word in words])
    return found


@pytest.mark.parametrize(("symbol", "given"), [(s, g) for s in PRECISE for g in signatures(s)], ids=str)
def test_functions(symbol: str, given: list[str]) -> None:
    function, points = PRECISE[symbol]
    rows = [point if isinstance(point, tuple) else (point,) for point in points]
    if any(not DTYPES[name].is_float for name in given):  # whole numbers are tried on integers
        rows = [row for row in rows if all(DTYPES[n].is_float or v == int(v) for n, v in zip(given, row, strict=True))]
    columns = [(name, [row[i] for row in rows]) for i, name in enumerate(given)]
    found = called(symbol, *columns)
    bits = 22 if found.dtype == np.float32 else 49
    taken = zip(*[np.asarray(column, DTYPES[name].numpy).tolist() for name, column in columns], strict=True)
    for number, row in zip(found.tolist(), taken, strict=True):
        wanted = function(*[mp.mpf(value) if isinstance(value, float) else value for value in row])
        assert abs(number - wanted) <= mp.mpf(2) ** -bits * max(abs(wanted), mp.mpf(2) ** -8), (row, number, wanted)
    assert rows


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c, "rcp": lambda a: 1 / a,
}  # fmt: skip


def neighbours(number: Fraction, dtype: str) -> tuple[Fraction, Fraction]:
    """The numbers of a dtype of which one is not above, and one not below."""
    near = DTYPES[dtype].numpy.type(float(number))
    while Fraction(float(near)) > number:
        near = np.nextafter(near, -np.inf, dtype=near.dtype)
    while Fraction(float(np.nextafter(near, np.inf, dtype=near.dtype))) <= number:
        near = np.nextafter(near, np.inf, dtype=near.dtype)
    low = Fraction(float(near))
    return low, low if low == number else Fraction(float(np.nextafter(near, np.inf, dtype=near.dtype)))


def chosen(number: Fraction, dtype: str, way: str) -> float:
    low, high = neighbours(number, dtype)
    match way:
        case "rd":
            return float(low)
        case "ru":
            return float(high)
        case "rz":
            return float(low if number > 0 else high)
    if number - low == high - number:
        return rounded(number, DTYPES[dtype], "rn")
    return float(low if number - low < high - number else high)


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", _EXACT)
def test_directions(op: str, dtype: str, way: str) -> None:
    count = _EXACT[op].__code__.co_argcount
    generator = np.random.default_rng(3)
    columns = [generator.normal(size=40).astype(DTYPES[dtype].numpy) for _ in range(count)]
    found = called(f"{op}_{way}", *[(dtype, column) for column in columns])
    for number, row in zip(found.tolist(), zip(*columns, strict=True), strict=True):
        assert number == chosen(_EXACT[op](*[Fraction(float(value)) for value in row]), dtype, way)


@pytest.mark.parametrize("way", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_roots(dtype: str, way: str) -> None:
    data = np.array([2.0, 3.0, 4.0, 0.3, 1e-30, 1e30, 6.25, 5e-324 if dtype == "f64" else 1e-45], DTYPES[dtype].numpy)
    for number, given in zip(called(f"sqrt_{way}", (dtype, data)).tolist(), data.tolist(), strict=True):
        square = Fraction(given)
        up = Fraction(float(np.nextafter(DTYPES[dtype].numpy.type(number), np.inf)))
        down = Fraction(float(np.nextafter(DTYPES[dtype].numpy.type(number), -np.inf)))
        exact = Fraction(number)
        if exact**2 == square:
            continue
        match way:
            case "rd" | "rz":
                assert exact**2 < square < up**2
            case "ru":
                assert down**2 < square < exact**2
            case _:
                assert ((down + exact) / 2) ** 2 < square < ((up + exact) / 2) ** 2
        assert root(square, DTYPES[dtype], way) == number


def test_what_has_no_exact_value() -> None:
    data = [np.inf, -np.inf, np.nan, 0.0]
    assert str(called("rcp_ru", ("f32", data))) == str(np.array([0.0, -0.0, np.nan, np.inf], np.float32))
    assert str(called("sqrt_rd", ("f32", data))) == str(np.array([np.inf, np.nan, np.nan, 0], np.float32))
    great = [3.4e38]
    assert called("add_ru", ("f32", great), ("f32", great))[0] == np.inf
    assert called("add_rz", ("f32", great), ("f32", great))[0] == np.finfo(np.float32).max
    assert called("add_rd", ("f32", [-3.4e38]), ("f32", [-3.4e38]))[0] == -np.inf
    assert called("mul_rn", ("f64", [1e300]), ("f64", [1e300]))[0] == np.inf


_WHOLE: dict[str, Callable[[float], float]] = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}
_TARGETS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}


@pytest.mark.parametrize("way", _WHOLE)
@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize(("source", "dtype"), [("float", "f32"), ("double", "f64")])
def test_floats_to_integers(source: str, dtype: str, target: str, way: str) -> None:
    data = np.array([0.5, 1.5, -0.5, -2.5, 7.9, 3e9, -3e9, 1e30, -1e30, 1e19], DTYPES[dtype].numpy)
    goal = DTYPES[_TARGETS[target]]
    found = called(f"{source}2{target}_{way}", (dtype, [*data, np.nan]))
    wanted = [min(max(int(_WHOLE[way](float(n))), goal.low), goal.high) for n in data] + [0]
    signed = DTYPES[f"i{goal.bits}"]
    assert found.dtype == signed.numpy and found.tolist() == [wrapped(n, signed) for n in wanted]


@pytest.mark.parametrize("way", _WHOLE)
@pytest.mark.parametrize(
    ("symbol", "source", "target"),
    [("int2float", "i32", "f32"), ("uint2float", "u32", "f32"), ("ll2float", "i64", "f32"), ("ull2float", "u64", "f32"),
     ("ll2double", "i64", "f64"), ("ull2double", "u64", "f64"), ("double2float", "f64", "f32")],
)  # fmt: skip
def test_numbers_to_floats(symbol: str, source: str, target: str, way: str) -> None:
    dtype = DTYPES[source]
    data = (
        [0.1, -0.1, 1 / 3, 1e10] if dtype.is_float else [0, 1, dtype.high, dtype.high // 3, dtype.low, dtype.high - 70]
    )
    found = called(f"{symbol}_{way}", (source, data))
    assert found.dtype == DTYPES[target].numpy
    assert found.tolist() == [chosen(Fraction(number), target, way) if number else 0.0 for number in data]


def test_ties_go_to_the_even_number() -> None:
    data = [2**24 + 1, 2**24 + 3, -(2**24) - 1]
    assert called("int2float_rn", ("i32", data)).tolist() == [2.0**24, 2.0**24 + 4, -(2.0**24)]
    found = called("add_rn", ("f32", [1.0, 1 + 2**-23]), ("f32", [2**-24, 2**-24]))
    assert found.tolist() == [1.0, 1 + 2**-22]


def test_integers_that_fit_stay() -> None:
    assert called("int2double_rn", ("i32", [-(2**31), 7])).tolist() == [-(2.0**31), 7.0]
    assert called("uint2double_rn", ("u32", [2**32 - 1])).tolist() == [2.0**32 - 1]


WORDS = [0, 1, -1, 2**31 - 1, -(2**31), 0x1234567, -77, 1 << 20]


def unsigned(number: int, bits: int) -> int:
    return number & (1 << bits) - 1


_BITWISE: dict[str, Callable[..., int]] = {
    "clz": lambda n, bits: bits - n.bit_length(), "popc": lambda n, bits: n.bit_count(),
    "ffs": lambda n, bits: next((i + 1 for i in range(bits) if n >> i & 1), 0),
    "brev": lambda n, bits: sum((n >> i & 1) << (bits - 1 - i) for i in range(bits)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("symbol", _BITWISE)
def test_bits(symbol: str, dtype: str) -> None:
    bits = DTYPES[dtype].bits
    words = [wrapped(word * (1 if bits == 32 else 3**15), DTYPES[dtype]) for word in WORDS]
    found = called(symbol, (dtype, words))
    result = DTYPES[dtype] if symbol == "brev" else DTYPES["i32"]
    assert found.dtype == result.numpy
    assert found.tolist() == [wrapped(_BITWISE[symbol](unsigned(word, bits), bits), result) for word in words]


def low24(number: int, signed: bool) -> int:
    number &= 0xFFFFFF
    return number - 0x1000000 if signed and number >= 0x800000 else number


_OF_TWO: dict[str, Callable[[int, int, int, bool], int]] = {
    "mulhi": lambda a, b, bits, signed: a * b >> bits, "hadd": lambda a, b, bits, signed: (a + b) // 2,
    "rhadd": lambda a, b, bits, signed: (a + b + 1) // 2,
    "mul24": lambda a, b, bits, signed: low24(a, signed) * low24(b, signed),
}  # fmt: skip


@pytest.mark.parametrize(("symbol", "dtype"), [(s, g[0]) for s in _OF_TWO for g in signatures(s)])
def test_two_integers(symbol: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    a = [wrapped(word * 5**9, kind) for word in WORDS for _ in WORDS]
    b = [wrapped(word * 3**7, kind) for _ in WORDS for word in WORDS]
    found = called(symbol, (dtype, a), (dtype, b))
    wanted = [_OF_TWO[symbol](x, y, kind.bits, kind.is_signed) for x, y in zip(a, b, strict=True)]
    assert found.tolist() == [wrapped(number, kind) for number in wanted]


def test_other_integers() -> None:
    assert called("abs", ("i32", [-3, 4])).tolist() == called("abs", ("i64", [-3, 4])).tolist() == [3, 4]
    assert called("sad", ("i32", [-5]), ("i32", [7]), ("u32", [1])).tolist() == [13]
    assert called("sad", ("u32", [5]), ("u32", [7]), ("u32", [2**32 - 1])).tolist() == [1]
    found = called("byte_perm", ("i32", [0x33221100]), ("i32", [0x77665544]), ("i32", [0x7531]))
    assert found.view(np.uint32).tolist() == [0x77553311]


@pytest.mark.parametrize("symbol", sorted(BITS))
def test_bits_are_taken_as_another_dtype(symbol: str) -> None:
    (source,), kinds = signatures(symbol)[0], {"float": "f", "int": "i", "uint": "i", "longlong": "q", "double": "d"}
    target = kinds[symbol.split("_as_")[1]]
    data = np.array([1.5, -2.0] if source[0] == "f" else [7, 2**30], DTYPES[source].numpy)
    found = called(symbol, (source, data))
    assert found.tolist() == [struct.unpack(target, item.tobytes())[0] for item in data]


def test_words_of_doubles() -> None:
    data = np.array([math.pi, -1e300])
    high, low = called("double2hiint", ("f64", data)), called("double2loint", ("f64", data))
    assert called("hiloint2double", ("i32", high), ("i32", low)).tolist() == data.tolist()
    bits = data.view(np.int64)
    assert high.tolist() == [int(word) >> 32 for word in bits]
    (coarse,) = called("rcp64h", ("f64", [3.0]))
    assert abs(coarse * 3 - 1) < 2**-20 and coarse.view(np.uint64) & 0xFFFFFFFF == 0


_TRUTH: dict[str, Callable[[float], bool]] = {
    "isnan": math.isnan, "isinf": math.isinf, "finitef": math.isfinite, "isfinited": math.isfinite,
    "signbit": lambda x: math.copysign(1, x) < 0,
}  # fmt: skip


@pytest.mark.parametrize(("symbol", "dtype"), [(s, g[0]) for s in _TRUTH for g in signatures(s)])
def test_questions(symbol: str, dtype: str) -> None:
    data = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
    found = called(symbol, (dtype, data))
    assert found.dtype == np.int32 and found.tolist() == [int(_TRUTH[symbol](number)) for number in data]


@pytest.mark.parametrize(
    ("symbol", "given", "wanted"),
    [
        ("lgamma", [0.0, -1.0, math.inf], [math.inf, math.inf, math.inf]),
        ("tgamma", [0.0, -0.0, -1.0, -math.inf, 200.0], [math.inf, -math.inf, math.nan, math.nan, math.inf]),
        ("erfinv", [1.0, -1.0, 2.0, 0.0], [math.inf, -math.inf, math.nan, 0.0]),
        ("erfcinv", [0.0, 2.0, -1.0, 1.0], [math.inf, -math.inf, math.nan, 0.0]),
        ("normcdfinv", [0.0, 1.0], [-math.inf, math.inf]), ("normcdf", [-math.inf, math.inf], [0.0, 1.0]),
        ("erfcx", [-30.0, math.inf, math.nan], [math.inf, 0.0, math.nan]),
        ("logb", [0.0, math.inf, -math.inf, math.nan], [-math.inf, math.inf, math.inf, math.nan]),
        ("ilogb", [0.0, math.inf, math.nan], [-(2**31), 2**31 - 1, -(2**31)]),
        ("j0", [0.0, math.inf, math.nan], [1.0, 0.0, math.nan]), ("j1", [0.0], [0.0]),
        ("y0", [0.0, -1.0, math.inf, math.nan], [-math.inf, math.nan, 0.0, math.nan]),
        ("y1", [5e-324], [-math.inf]), ("j1", [5e-324], [0.0]),
        ("cyl_bessel_i0", [0.0, math.inf, 1e4], [1.0, math.inf, math.inf]),
        ("cyl_bessel_i1", [-math.inf], [-math.inf]), ("sinpi", [math.inf, 2.0**40], [math.nan, 0.0]),
        ("saturatef", [math.nan, math.inf], [0.0, 1.0]), ("llrint", [1e30, math.nan], [2**63 - 1, 0]),
    ],
)  # fmt: skip
def test_edges(symbol: str, given: list[float], wanted: list[float]) -> None:
    dtype = "f32" if symbol == "saturatef" else "f64"
    assert str(called(symbol, (dtype, given)).tolist()) == str(wanted)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_neighbours(dtype: str) -> None:
    (found,) = called("nextafter", (dtype, [1.0]), (dtype, [2.0]))
    assert found == 1 + 2.0 ** -DTYPES[dtype].mantissa
    assert str(called("remainder", (dtype, [np.inf, 1.0]), (dtype, [1.0, 0.0])).tolist()) == "[nan, nan]"
    assert called("fma", (dtype, [2.0]), (dtype, [3.0]), (dtype, [1.0])).tolist() == [7.0]


def test_every_function_has_a_row_and_a_case() -> None:
    rows = DIRECTED.keys() | INTEGERS.keys() | BITS | NUMBERS.keys() | {"abs", "mulhi", "fma"}
    assert set(EXTERNS) == rows and len(EXTERNS) > 190
    assert numbers_of("i32", called("popc", ("i32", [3]))) == [2]


@pytest.mark.parametrize(
    ("symbol", "operands", "message"),
    [
        ("sine", ["f32"], "there is no function sine"),
        ("sin", ["f16"], r"sin takes F -> F, not \(f16\)"),
        ("pow", ["f32", "f64"], r"pow takes F F -> F \| F i32 -> F, not \(f32, f64\)"),
        ("clz", ["f32"], "clz takes i32 -> i32"),
        ("hypot", ["f32"], "hypot takes F F -> F"),
    ],
)
def test_signatures(symbol: str, operands: list[str], message: str) -> None:
    types = [Type(DTYPES[name]) for name in operands]
    with pytest.raises(TypeRule, match=message):
        OPERATORS["extern"].rule(types, {"symbol": symbol}, ())
