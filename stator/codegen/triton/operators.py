"""How each scalar operator, cast and reduction of the loop IR is spelled in Triton.

Spellings that round like eager on CUDA are chosen over faster ones: IEEE division and square root, libdevice's
functions where Triton's own are approximations. Functions starting with an underscore are in `PREAMBLE`, the text that
stands before the kernels of every file, and in `instructions.py`. Neighbour: `printer.py` reads the tables.
"""

from __future__ import annotations

TYPES = {
    "f64": "tl.float64", "f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16", "i64": "tl.int64",
    "i32": "tl.int32", "i16": "tl.int16", "i8": "tl.int8", "u8": "tl.uint8", "bool": "tl.int1",
}  # fmt: skip

POINTERS = {
    "f64": "*fp64", "f32": "*fp32", "bf16": "*bf16", "f16": "*fp16", "i64": "*i64", "i32": "*i32", "i16": "*i16",
    "i8": "*i8", "u8": "*u8", "bool": "*i1",
}  # fmt: skip
SIGNED = frozenset(("i8", "i16", "i32", "i64"))

# Operator -> format of its operands {0}, {1}, {2}. An operator on f32 or f64 where both differ has an entry in DOUBLE.
SPELLING = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "tl.div_rn({0}, {1})",
    "fma": "tl.fma({0}, {1}, {2})",
    "neg": "-{0}", "abs": "tl.abs({0})", "minimum": "_minimum({0}, {1})", "maximum": "_maximum({0}, {1})",
    "pow": "libdevice.pow({0}, {1})", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "libdevice.rsqrt({0})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "exp": "libdevice.exp({0})", "exp2": "libdevice.exp2({0})", "expm1": "libdevice.expm1({0})",
    "log": "libdevice.log({0})", "log2": "libdevice.log2({0})", "log1p": "libdevice.log1p({0})",
    "log10": "libdevice.log10({0})",
    "sin": "libdevice.sin({0})", "cos": "libdevice.cos({0})", "tan": "libdevice.tan({0})",
    "tanh": "_tanh({0})", "asin": "libdevice.asin({0})", "acos": "libdevice.acos({0})",
    "atan": "libdevice.atan({0})", "atan2": "libdevice.atan2({0}, {1})", "sinh": "libdevice.sinh({0})",
    "cosh": "libdevice.cosh({0})", "erf": "_erf({0})", "erfc": "libdevice.erfc({0})",
    "lgamma": "libdevice.lgamma({0})", "erfinv": "libdevice.erfinv({0})",
    "sigmoid": "_sigmoid({0})", "sign": "_sign({0})",
    "floor": "libdevice.floor({0})", "ceil": "libdevice.ceil({0})", "trunc": "libdevice.trunc({0})",
    "round": "libdevice.nearbyint({0})", "isnan": "({0} != {0})", "isinf": "(tl.abs({0}) == float('inf'))",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}",
    "shl": "_shl({0}, {1})", "shr": "_shr({0}, {1})", "where": "tl.where({0}, {1}, {2})",
}  # fmt: skip

INTEGER = {
    "neg": "_negative({0})", "abs": "_absolute({0})", "floordiv": "_floordiv({0}, {1})", "mod": "_mod({0}, {1})",
    "pow": "_integer_pow({0}, {1})",
}  # fmt: skip
FLOATING = {"floordiv": "libdevice.floor(tl.div_rn({0}, {1}))", "mod": "_float_mod({0}, {1})"}
BOOLEAN = {"add": "{0} | {1}", "mul": "{0} & {1}", "not": "({0} == 0)", "minimum": "{0} & {1}", "maximum": "{0} | {1}"}
# Triton's div_rn and sqrt_rn are for f32; plain division and square root of f64 are rounded right.
DOUBLE = {
    "div": "{0} / {1}", "sqrt": "tl.sqrt({0})", "reciprocal": "1.0 / {0}", "floordiv": "libdevice.floor({0} / {1})",
}  # fmt: skip
# Of float32, where a half is all that is used of it: right to a few units of the last place. `silu` is an operator of
# none but `halves.py`, which finds it.
ROUGH = {
    "div": "{0} / {1}", "reciprocal": "1.0 / {0}", "sqrt": "_rough_sqrt({0})", "sigmoid": "_rough_sigmoid({0})",
    "silu": "_rough_silu({0})",
}  # fmt: skip
# What is computed in 32 bits for i16, and cut by an instruction that LLVM does not see through: it would make 16-bit
# negations of these, and ptxas extends the result of `neg.s16` and `abs.s16` without wrapping it: -(-32768) > 0.
SHORTENED = frozenset(("neg", "abs", "add", "sub", "mul", "floordiv", "mod", "pow"))
# Mode of a store -> the function that combines with memory, where many programs may do so at one address.
ATOMICS = {"add": "tl.atomic_add", "maximum": "tl.atomic_max", "minimum": "tl.atomic_min"}


def spelling(name: str, dtype: str) -> str:
    """The format of an operator on operands of a dtype; KeyError if there is none."""
    tables = [SPELLING]
    if dtype == "bool":
        tables.insert(0, BOOLEAN)
    elif dtype in ("f32", "f64"):
        tables[:0] = [DOUBLE, FLOATING] if dtype == "f64" else [FLOATING]
    else:
        tables.insert(0, INTEGER)
    for table in tables:
        if name in table:
            found = table[name]
            return f"_short({found.replace('}', '}.to(tl.int32)')})" if dtype == "i16" and name in SHORTENED else found
    raise KeyError(name)


# Operator of an accumulator -> how that takes a value, how a block of them is folded along a dim.
FOLDS = {
    "add": ("{0} + {1}", "tl.sum({0}, {1}, keep_dims=True)"),
    "mul": ("{0} * {1}", "tl.reduce({0}, {1}, _product, keep_dims=True)"),
    "maximum": ("_maximum({0}, {1})", "tl.reduce({0}, {1}, _maximum, keep_dims=True)"),
    "minimum": ("_minimum({0}, {1})", "tl.reduce({0}, {1}, _minimum, keep_dims=True)"),
    "or": ("{0} | {1}", "(tl.max({0}.to(tl.int32), {1}, keep_dims=True) != 0)"),
    "and": ("{0} & {1}", "(tl.min({0}.to(tl.int32), {1}, keep_dims=True) != 0)"),
}

# Scan -> the function that joins what was so far with what comes next.
SCANS = {"sum": "_sum", "prod": "_product", "max": "_maximum", "min": "_minimum", "logsumexp": "_logaddexp"}

# What takes values of a row one block after another, and what joins its lanes at the end: for files that need it.
ONLINE = """\
@triton.jit
def _exp_sum(best, total, value):
    e = libdevice.exp(tl.where(value == best, 0.0, -tl.abs(value - best)))
    better = value > best
    total = tl.fma(total, tl.where(better, e, 1.0), tl.where(better, 1.0, e))
    return tl.maximum(best, value, propagate_nan=tl.PropagateNan.ALL), total


@triton.jit
def _exp_sum_of_row(best, total, dim: tl.constexpr):
    most = tl.reduce(best, dim, _maximum, keep_dims=True)
    total = tl.where(best == most, total, total * libdevice.exp(best - most))
    return most, tl.sum(total, dim, keep_dims=True)


@triton.jit
def _welford(mean, squares, value, live, turn):
    apart = tl.where(live, value - mean, 0.0)
    mean = tl.fma(apart, 1.0 / turn.to(mean.dtype), mean)
    return mean, tl.fma(apart, tl.where(live, value - mean, 0.0), squares)


@triton.jit
def _welford_of_row(mean, squares, count, dim: tl.constexpr):
    count = count.to(mean.dtype)
    whole = tl.sum(count, dim, keep_dims=True)
    middle = tl.sum(count * mean, dim, keep_dims=True) / whole
    apart = mean - middle
    return whole, middle, tl.sum(squares + count * apart * apart, dim, keep_dims=True)
"""


PREAMBLE = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _sum(a, b):
    return a + b


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _logaddexp(a, b):
    low, high = _minimum(a, b), _maximum(a, b)
    joined = libdevice.log1p(libdevice.exp(low - high)) + high
    return tl.where((low == high) & (tl.abs(low) == float("inf")), high, joined)


@triton.jit
def _within(at, bound, needed):
    inside = (at >= 0) & (at < bound)
    tl.device_assert(inside, "index out of range", needed)
    return tl.where(inside, at, 0)


@triton.jit
def _sign(a):
    one, none = tl.full([], 1, a.dtype), tl.full([], 0, a.dtype)
    return tl.where(a > 0, one, tl.where(a < 0, -one, tl.where(a != a, a, none)))


@triton.jit
def _absolute(a):
    return tl.where(a < 0, _negative(a), a)


@triton.jit
def _sigmoid(a):
    return (1.0 / (1.0 + libdevice.exp(-a))).to(a.dtype)


@triton.jit
def _by_zero(a, b, result):
    # What eager's kernels give; they divide long numbers below 2**32 as short ones.
    nothing = tl.full([], 0, result.dtype) - 1
    if result.dtype == tl.int64:
        nothing = tl.where((a >> 32) == 0, tl.full([], 0xFFFFFFFF, tl.int64), nothing)
    return tl.where(b == 0, nothing, result)


@triton.jit
def _divisor(b):
    # Not 0, and not -1: LLVM assumes that the quotient of the lowest number is in range, and decides its sign by that.
    divisor = tl.where(b == 0, 1, b)
    if divisor.dtype.is_int_signed():
        divisor = tl.where(divisor == -1, 1, divisor)
    return divisor


@triton.jit
def _floordiv(a, b):
    quotient = _by_zero(a, b, a // _divisor(b))
    if quotient.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    down = ((a - quotient * b) != 0) & ((a < 0) != (b < 0))
    return quotient - down.to(quotient.dtype)


@triton.jit
def _mod(a, b):
    rest = _by_zero(a, b, a % _divisor(b))
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def _shl(a, b):
    held = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    return tl.where(held, a << tl.where(held, b, 0), 0)


@triton.jit
def _shr(a, b):
    held = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    if a.dtype.is_int_signed():
        return a >> tl.where(held, b, a.dtype.primitive_bitwidth - 1)
    return tl.where(held, a >> tl.where(held, b, 0), 0)


@triton.jit
def _float_mod(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def _integer_pow(a, b):
    result = (a * 0 + 1).to(a.dtype)
    base = a
    left = tl.where(b < 0, 0, b)
    for _ in tl.static_range(64):
        result = tl.where((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    one = tl.where(a == 1, 1, tl.where(a == -1, tl.where((b & 1) != 0, -1, 1), 0)).to(a.dtype)
    return tl.where(b < 0, one, result)


@triton.jit
def _arg_max(value, position, other, place):
    first = (value > other) | ((value != value) & (other == other))
    tie = (value == other) | ((value != value) & (other != other))
    first = first | (tie & (position < place))
    return tl.where(first, value, other), tl.where(first, position, place)


@triton.jit
def _arg_min(value, position, other, place):
    first = (value < other) | ((value != value) & (other == other))
    tie = (value == other) | ((value != value) & (other != other))
    first = first | (tie & (position < place))
    return tl.where(first, value, other), tl.where(first, position, place)


@triton.jit
def _philox(seed, number):
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0 = (number & 0xFFFFFFFF).to(tl.uint32)
    c1 = ((number >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c2 = tl.zeros_like(c0)
    c3 = tl.zeros_like(c0)
    for _ in tl.static_range(10):
        # Both halves of a product are one instruction.
        one = c2.to(tl.uint64) * tl.full(c0.shape, 0xCD9E8D57, tl.uint64)
        other = c0.to(tl.uint64) * tl.full(c0.shape, 0xD2511F53, tl.uint64)
        c0, c2 = (one >> 32).to(tl.uint32) ^ c1 ^ k0, (other >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = one.to(tl.uint32), other.to(tl.uint32)
        k0 = k0 + tl.full([], 0x9E3779B9, tl.uint32)
        k1 = k1 + tl.full([], 0xBB67AE85, tl.uint32)
    return c0, c1


@triton.jit
def _uniform(seed, number):
    c0, _ = _philox(seed, number)
    return (c0 >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _normal(seed, number):
    c0, c1 = _philox(seed, number)
    u = ((c0 >> 8) + 1).to(tl.float32) * 5.9604644775390625e-08
    v = (c1 >> 8).to(tl.float32) * 5.9604644775390625e-08
    return tl.sqrt_rn(-2.0 * libdevice.log(u)) * libdevice.cos(6.2831855 * v)
"""
