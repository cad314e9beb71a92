"""Pointwise operators: the expression of one element, for most the scalar operator that their line of the set names.

Operands are cast to the computing dtype (that of the result, float32 for half types; the promoted one for comparisons),
and what is computed is cast to the result's dtype: this is the only place with that policy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from stator.base.device import HOST
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.scalar import FLOATS, INTEGERS, OPS
from stator.lowering.context import Context
from stator.lowering.extern import extern
from stator.lowering.table import lowers
from stator.lowering.value import DTYPES, HALF, Indices, LazyTensor, Spec, broadcast, compute_dtype, copied, pointwise
from stator.prims.set import PRIMITIVES, Primitive
from stator.prims.types import same
from stator.sizes import Size
from stator.sizes.real import Bits

Operand = LazyTensor | Size | Bits | int | float | bool


def apply(out: Spec, dtype: str, function: Callable[..., Expr], *operands: Operand) -> LazyTensor:
    """A value whose elements are `function` of the operands' elements, cast to `dtype`."""
    readers = [_reader(operand, dtype) for operand in operands]
    result = out.dtype

    def body(at: Indices) -> Expr:
        return e.cast(function(*[read(at) for read in readers]), result)

    return pointwise(out.size, result, body, 1 + _weight(out, *operands))


def _weight(out: Spec, *operands: Operand) -> int:
    """What operands weigh for each element: on the host, one that is constant along the last dim is computed outside of
    its loop."""
    tensors = [operand for operand in operands if isinstance(operand, LazyTensor)]
    loops = out.device == HOST and out.size[-1:] != (1,)
    return sum([1 if loops and tensor.size[-1:] == (1,) else tensor.weight for tensor in tensors])


def _reader(operand: Operand, dtype: str) -> Callable[[Indices], Expr]:
    if isinstance(operand, LazyTensor):
        if operand.dtype == dtype:
            return lambda at: broadcast(operand, at)
        return lambda at: e.cast(broadcast(operand, at), dtype)
    constant = e.number(operand, dtype)
    return lambda at: constant


# -- promotion -------------------------------------------------------------------------------------


def _category(dtype: str) -> int:
    return 2 if dtype in FLOATS else 1 if dtype in INTEGERS else 0


_INTEGER_ORDER = {"bool": 0, "u8": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4}


def _join(a: str, b: str) -> str:
    if a == b:
        return a
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    if _category(a) == 2:
        return "f64" if "f64" in (a, b) else "f32"  # bf16 with f16 gives f32 too
    if _INTEGER_ORDER[a] == _INTEGER_ORDER[b]:
        return "i16"  # u8 with i8
    return a if _INTEGER_ORDER[a] > _INTEGER_ORDER[b] else b


def promote(*operands: Operand) -> str:
    """The dtype that eager compares operands in: dims outrank 0-dim tensors, which outrank numbers."""
    ranks: list[str | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, LazyTensor):
            level, dtype = (0 if operand.size else 1), operand.dtype
        else:
            level, dtype = 2, "f32" if isinstance(operand, float | Bits) else "bool" if operand is True else "i64"
            if operand is False:
                dtype = "bool"
        known = ranks[level]
        ranks[level] = dtype if known is None else _join(known, dtype)
    result: str | None = None
    for found in ranks:
        if found is None:
            continue
        if result is None or _category(found) > _category(result):
            result = found
    assert result is not None
    return result


# -- what is a scalar operator on each element, by the set's own line --------------------------------


def _simple(name: str) -> Callable[..., Expr]:
    return lambda *args: e.op(name, *args)


#: Operators → which operands meet a half type as they are if they are single numbers; eager rounds all others to it
#: first. On the host those of any tensor of one element are, on other devices numbers that the host has.
EXACT_ON_HOST: dict[str, tuple[int, ...]] = {"mul": (1,), "div": (1,)}
EXACT_ELSEWHERE: dict[str, tuple[int, ...]] = {"add": (0, 1), "sub": (0, 1), "mul": (0, 1), "div": (1,)}


def _meeting(context: Context, name: str, out: Spec, *operands: Operand) -> tuple[Operand, ...]:
    """The operands of the node that is lowered, rounded to the half type of its result where eager does so first."""
    return tuple([
        operand if _is_exact(context, name, place, operand) else _in_half(operand, out.dtype)
        for place, operand in enumerate(operands)
    ])  # fmt: skip


def _is_exact(context: Context, name: str, place: int, operand: Operand) -> bool:
    if place not in (EXACT_ON_HOST if context.device.host else EXACT_ELSEWHERE).get(name, ()):
        return False
    if not isinstance(operand, LazyTensor):
        return True
    if context.device.host:
        return all(n == 1 for n in operand.size)
    given: Any = context.node.args[place] if context.node is not None else None
    return not operand.size and isinstance(given, Node) and given.meta["val"].device.type == HOST


def _in_half(operand: Operand, dtype: str) -> Operand:
    """A number, a 0-dim tensor or integers, rounded to the half type that they meet."""
    if dtype not in HALF:
        return operand
    if isinstance(operand, Size | Bits):
        number = e.cast(e.number(operand, "f32"), dtype)
        return pointwise((), dtype, lambda at: number, 1)
    if not isinstance(operand, LazyTensor):
        return e.const(operand, dtype).attr
    if operand.dtype == dtype:
        return operand
    return pointwise(operand.size, dtype, lambda at: e.cast(operand.load(at), dtype), operand.weight + 1)


def _register(op: OpOverload, primitive: Primitive) -> None:
    """Registers the lowering of a primitive that its line says all about."""
    assert primitive.scalar is not None
    rule = OPS[primitive.scalar].rule
    if rule == "compare":
        _register_comparison(op, primitive.scalar)
    elif rule == "float" and primitive.types == (same,):
        _register_rounding(op, primitive.scalar)
    else:
        _register_elementwise(op, primitive.scalar)


def _register_elementwise(target: OpOverload, name: str) -> None:
    """Computed in the result's dtype."""
    function = _simple(name)

    @lowers(target)
    def run(context: Context, out: Spec, *operands: Operand) -> LazyTensor:
        return apply(out, compute_dtype(out.dtype), function, *_meeting(context, name, out, *operands))


def _register_rounding(target: OpOverload, name: str) -> None:
    """Whole numbers stay as they are."""
    function = _simple(name)

    @lowers(target)
    def run(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
        return apply(out, compute_dtype(out.dtype), function if out.dtype in FLOATS else _identity, x)


def _register_comparison(target: OpOverload, name: str) -> None:
    """In the dtype in which both operands meet."""
    function = _simple(name)

    @lowers(target)
    def run(context: Context, out: Spec, a: LazyTensor, b: Operand | complex) -> LazyTensor:
        if isinstance(b, complex):
            if b.imag != 0:  # no real number is equal to it
                return apply(out, "bool", _identity, name == "ne")
            b = b.real
        common = promote(a, b)
        # eager rounds numbers and 0-dim tensors of other types first
        return apply(out, compute_dtype(common), function, _in_half(a, common), _in_half(b, common))


def _identity(value: Expr) -> Expr:
    return value


for _op, _primitive in PRIMITIVES.items():
    if _primitive.scalar is not None:
        _register(_op, _primitive)


# -- the ones with more to say ---------------------------------------------------------------------


@lowers("add.Tensor")
def add(context: Context, out: Spec, a: Operand, b: Operand, *, alpha: float = 1) -> LazyTensor:
    return _add_scaled("add", out, _meeting(context, "add", out, a, b), alpha)


@lowers("sub.Tensor")
def sub(context: Context, out: Spec, a: Operand, b: Operand, *, alpha: float = 1) -> LazyTensor:
    return _add_scaled("sub", out, _meeting(context, "sub", out, a, b), alpha)


def _add_scaled(name: str, out: Spec, operands: tuple[Operand, ...], alpha: float) -> LazyTensor:
    dtype = compute_dtype(out.dtype)
    if alpha == 1:
        return apply(out, dtype, _simple(name), *operands)
    factor = e.cast(e.number(alpha, out.dtype), dtype)
    if out.dtype in FLOATS:  # eager's kernels join product and sum
        factor = e.op("neg", factor) if name == "sub" else factor
        return apply(out, dtype, lambda x, y: e.op("fma", y, factor, x), *operands)
    return apply(out, dtype, lambda x, y: e.op(name, x, e.op("mul", y, factor)), *operands)


@lowers("abs")
def absolute(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return apply(out, compute_dtype(out.dtype), _identity if out.dtype == "bool" else _simple("abs"), x)


@lowers("sign")
def sign(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return apply(out, compute_dtype(out.dtype), _identity if out.dtype == "bool" else _sign, x)


def _sign(x: Expr) -> Expr:
    """Eager gives 0 for NaN, and for -0.0."""
    value = e.op("sign", x)
    if x.dtype not in FLOATS:
        return value
    nothing = e.op("or", e.op("isnan", x), e.op("eq", x, e.const(0, x.dtype)))
    return e.op("where", nothing, e.const(0, x.dtype), value)


@lowers("isnan")
def isnan(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return _float_test("isnan", out, x)


@lowers("isinf")
def isinf(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return _float_test("isinf", out, x)


def _float_test(name: str, out: Spec, x: LazyTensor) -> LazyTensor:
    if x.dtype not in FLOATS:
        return apply(out, "bool", _identity, False)
    return apply(out, compute_dtype(x.dtype), _simple(name), x)


@lowers("div.Tensor_mode")
def div_mode(context: Context, out: Spec, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> LazyTensor:
    dtype = compute_dtype(out.dtype)
    whole = out.dtype not in FLOATS
    single = _is_exact(context, "div", 1, b)

    def rounded(value: Expr) -> Expr:
        """As in eager, every step is rounded to a half type, unless y is a single number."""
        return value if single else e.cast(e.cast(value, out.dtype), dtype)

    def truncated(x: Expr, y: Expr) -> Expr:
        return e.op("trunc", rounded(e.op("div", x, y)))

    match rounding_mode:
        case None:
            function = _simple("div")
        case "floor" if whole:
            function = _simple("floordiv")
        case "floor":
            function = partial(_floor_quotient, rounded if context.device.host else _identity)
        case _ if whole:
            function = _truncated_quotient
        case _:
            function = truncated
    return apply(out, dtype, function, *_meeting(context, "div", out, a, b))


def _floor_quotient(rounded: Callable[[Expr], Expr], x: Expr, y: Expr) -> Expr:
    """floor(x / y) without the rounding of x / y: the remainder is taken off first, step by step as in eager.

    The remainder has the sign of x, so that it is finite where y is infinite; a quotient of 0 has the sign of x / y.
    """
    zero, one = e.const(0, x.dtype), e.const(1, x.dtype)
    quotient, rest = e.op("div", x, y), _float_remainder(x, y)
    exact = rounded(e.op("div", rounded(e.op("sub", x, rest)), y))
    lower = e.op("and", e.op("ne", rest, zero), _signs_differ(rest, y))
    exact = e.op("where", lower, rounded(e.op("sub", exact, one)), exact)
    floored = e.op("floor", exact)
    above = e.op("gt", rounded(e.op("sub", exact, floored)), e.const(0.5, x.dtype))
    floored = e.op("where", above, e.op("add", floored, one), floored)
    floored = e.op("where", e.op("eq", exact, zero), e.op("mul", quotient, zero), floored)
    return e.op("where", e.op("eq", y, zero), quotient, floored)


def _truncated_quotient(x: Expr, y: Expr) -> Expr:
    """The floored one, and 1 more where that lies below: the lowest integer has no absolute value."""
    floored = e.op("floordiv", x, y)
    below = e.op("and", _signs_differ(x, y), e.op("ne", e.op("mul", floored, y), x))
    return e.op("where", below, e.op("add", floored, e.const(1, x.dtype)), floored)


def _signs_differ(x: Expr, y: Expr) -> Expr:
    zero = e.const(0, x.dtype)
    return e.op("xor", e.op("lt", x, zero), e.op("lt", y, zero))


@lowers("fmod.Tensor")
def fmod(context: Context, out: Spec, a: Operand, b: Operand) -> LazyTensor:
    function = _float_remainder if out.dtype in FLOATS else _whole_remainder
    return apply(out, compute_dtype(out.dtype), function, _in_half(a, out.dtype), _in_half(b, out.dtype))


def _float_remainder(x: Expr, y: Expr) -> Expr:
    """With the sign of x, of a zero too."""
    zero = e.const(0, x.dtype)
    size = e.op("mod", e.op("abs", x), e.op("abs", y))
    signed = e.op("where", e.op("lt", x, zero), e.op("neg", size), size)
    return e.op("where", e.op("and", e.op("eq", x, zero), e.op("eq", size, zero)), x, signed)


def _whole_remainder(x: Expr, y: Expr) -> Expr:
    """With the sign of x, where `mod` has that of y."""
    floored = e.op("mod", x, y)
    other = e.op("and", _signs_differ(x, y), e.op("ne", floored, e.const(0, x.dtype)))
    return e.op("where", other, e.op("sub", floored, y), floored)


@lowers("clamp")
def clamp(
    context: Context, out: Spec, x: LazyTensor, low: float | None = None, high: float | None = None
) -> LazyTensor:
    dtype = compute_dtype(out.dtype)

    def function(value: Expr) -> Expr:
        if low is not None:  # of equal operands the second one is kept: a limit of 0 leaves -0.0
            value = e.op("maximum", e.number(low, dtype), value)
        return value if high is None else e.op("minimum", e.number(high, dtype), value)

    return apply(out, dtype, function, x)


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther")
def where(context: Context, out: Spec, mask: LazyTensor, a: Operand, b: Operand) -> LazyTensor:
    choose = _reader(mask, "bool")
    left, right = _reader(a, out.dtype), _reader(b, out.dtype)

    def body(at: Indices) -> Expr:
        return e.op("where", choose(at), left(at), right(at))

    return pointwise(out.size, out.dtype, body, 1 + _weight(out, mask, a, b))


@lowers("clone")
def clone(context: Context, out: Spec, x: LazyTensor, *, memory_format: Any = None) -> LazyTensor:
    return copied(x)


@lowers("copy")
def copy(context: Context, out: Spec, x: LazyTensor, source: LazyTensor, non_blocking: bool = False) -> Any:
    """Nothing of `x` is read but its geometry, which tracing has given the result; another device is an extern call."""
    origin = source.place.buffer.device if source.place is not None else context.device.kind
    if out.device != origin:
        return extern(context, out, x, source)
    if source.size == out.size and source.dtype == out.dtype:
        return clone(context, out, source)
    return pointwise(out.size, out.dtype, lambda at: e.cast(broadcast(source, at), out.dtype), source.weight + 1)


@lowers("_to_copy")
def to_copy(context: Context, out: Spec, x: LazyTensor, **options: Any) -> Any:
    """A cast; another device is an extern call."""
    device = options.get("device")
    source = x.place.buffer.device if x.place is not None else context.device.kind
    if device is not None and out.device != source:
        return extern(context, out, x, **options)
    wanted = options.get("dtype")
    if wanted is not None and wanted not in DTYPES:
        return extern(context, out, x, **options)
    if out.dtype == x.dtype:
        return clone(context, out, x)
    return pointwise(x.size, out.dtype, lambda at: e.cast(x.load(at), out.dtype), x.weight + 1)
