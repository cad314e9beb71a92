"""Complex arithmetic as real arithmetic: a complex value is computed as the pair of its parts.

In memory the parts lie side by side (`LazyTensor.raw` has them as a last dimension of two); in a program they are two
real values, its `planes`, which loops fuse with whatever is around them. Readers that ask for one part get the
expression of that part alone. What is put in memory only to be read again lies there plane by plane; what leaves
the program, or meets an extern kernel, is written interleaved, as two writes of one loop (`parity.py`).

The formulas are those of eager's kernels where these agree among themselves: a real operand is a complex one without
imaginary part, quotients are scaled by the larger part of the divisor, magnitudes do not overflow.
Neighbours: `opaque.py` asks `lower` first; `pointwise.py` has the real operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from stator.base.dtypes import OPAQUE
from stator.fake.overloads import Table
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.lowering.context import Context
from stator.lowering.indexing import cat, constant_pad, flip, index, index_select, select_scatter, slice_scatter
from stator.lowering.parity import chosen
from stator.lowering.pointwise import Operand, promote
from stator.lowering.reduction import any_, reduced_dims, sum_
from stator.lowering.table import lowers
from stator.lowering.value import Indices, LazyTensor, Spec, broadcast, compute_dtype, numbers, over, pointwise


def _halves() -> tuple[Index, Index]:
    """The positions of the real and the imaginary part; positions other than ZERO live for one compile only."""
    return ZERO, Index.of(1)


class Pair(NamedTuple):
    """A complex number as expressions of its parts."""

    re: Expr
    im: Expr


Reader = Callable[[Indices], Pair]

#: Overload → its lowering where complex numbers are among the operands or results; None declines.
PAIRED = Table("lowering of complex numbers")
_pairs = PAIRED.register


def lower(context: Context, target: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LazyTensor | None:
    """The value of a call that touches complex numbers, or None where only ATen's kernel computes it."""
    function = PAIRED.get(target)
    if function is None or not isinstance(out, Spec) or not (is_complex(out.dtype) or _has_complex(args)):
        return None
    return function(context, out, *args, **kwargs) if all(map(_known, (out, *args))) else None


def is_complex(dtype: str) -> bool:
    return OPAQUE.get(dtype, ("", 1))[1] == 2


def _has_complex(value: Any) -> bool:
    if isinstance(value, LazyTensor):
        return is_complex(value.dtype)
    return isinstance(value, list | tuple) and not isinstance(value, Spec) and any(map(_has_complex, value))


def _known(value: Any) -> bool:
    """Whether it is none of the dtypes that are neither complex nor known to loops."""
    if isinstance(value, LazyTensor | Spec):
        return value.dtype not in OPAQUE or is_complex(value.dtype)
    return not isinstance(value, list | tuple) or all(map(_known, value))


# -- values ----------------------------------------------------------------------------------------


def paired(out: Spec, body: Reader, weight: int) -> LazyTensor:
    """A complex value that is computed where it is read."""
    dtype, stride = OPAQUE[out.dtype][0], (*out.stride, 1)
    pair = cache(body)
    size = (*out.size, 1)
    re = pointwise(size, dtype, lambda at: e.cast(pair(at[:-1]).re, dtype), weight)
    im = pointwise(size, dtype, lambda at: e.cast(pair(at[:-1]).im, dtype), weight)
    re.stride = im.stride = stride

    def load(at: Indices) -> Expr:
        inner, part = (*at[:-1], ZERO), at[-1]
        if part is ZERO:
            return re.load(inner)
        return im.load(inner) if part is Index.of(1) else chosen(part, re.load(inner), im.load(inner))

    raw = pointwise((*out.size, 2), dtype, load, 2 * weight + 1)
    raw.planes = re, im
    return over(raw, out.dtype)


def _reader(operand: Operand | complex, dtype: str) -> Reader:
    """The operand's elements as pairs of `dtype`, for the indices of a larger result."""
    if not isinstance(operand, LazyTensor):
        re, im = (operand.real, operand.imag) if isinstance(operand, complex) else (operand, 0)
        constant = Pair(e.number(re, dtype), e.number(im, dtype))
        return lambda at: constant
    raw = operand.raw
    if raw is None:
        zero = e.const(0, dtype)
        return lambda at: Pair(e.cast(broadcast(operand, at), dtype), zero)

    def read(at: Indices) -> Pair:
        return Pair(*[e.cast(broadcast(raw, (*at, part)), dtype) for part in _halves()])

    return read


def _weight(*operands: Any) -> int:
    """The size of an expression of both parts of the operands."""
    return sum([numbers(o).weight for o in operands if isinstance(o, LazyTensor)])


def _plane(x: LazyTensor, part: Index, dtype: str) -> LazyTensor:
    """One part of a value, as a real one."""
    read = _reader(x, dtype)
    return pointwise(x.size, dtype, lambda at: read(at)[part.const], numbers(x).weight + 1)


def _apply(out: Spec, function: Callable[..., Pair], *operands: Any) -> LazyTensor:
    """A complex value whose elements are `function` of the operands'."""
    readers = [_reader(operand, _computed(out)) for operand in operands]
    return paired(out, lambda at: function(*[read(at) for read in readers]), 2 + _weight(*operands))


def _test(out: Spec, dtype: str, function: Callable[..., Expr], *operands: Any) -> LazyTensor:
    """A real value whose elements are `function` of the operands' elements, which are pairs of `dtype`."""
    readers = [_reader(operand, dtype) for operand in operands]

    def body(at: Indices) -> Expr:
        return e.cast(function(*[read(at) for read in readers]), out.dtype)

    return pointwise(out.size, out.dtype, body, 3 + _weight(*operands))


def _part(dtype: str) -> str:
    """The dtype of a part of a complex number; a real dtype as it is."""
    return OPAQUE[dtype][0] if dtype in OPAQUE else dtype


def _computed(out: Spec) -> str:
    return compute_dtype(_part(out.dtype))


# -- arithmetic ------------------------------------------------------------------------------------


def _sum(x: Pair, y: Pair) -> Pair:
    return Pair(e.op("add", x.re, y.re), e.op("add", x.im, y.im))


def _product(x: Pair, y: Pair) -> Pair:
    re = e.op("sub", e.op("mul", x.re, y.re), e.op("mul", x.im, y.im))
    return Pair(re, e.op("add", e.op("mul", x.re, y.im), e.op("mul", x.im, y.re)))


def _quotient(x: Pair, y: Pair) -> Pair:
    """Scaled by the larger part of the divisor, so that no square overflows; nothing is turned by dividing by zero.

    Products are added to without being rounded, as in eager's kernels.
    """
    zero, one = e.const(0, y.re.dtype), e.const(1, y.re.dtype)
    size_re, size_im = e.op("abs", y.re), e.op("abs", y.im)
    by_re = e.op("ge", size_re, size_im)
    large, small = e.op("where", by_re, y.re, y.im), e.op("where", by_re, y.im, y.re)
    ratio = e.op("div", small, large)
    scale = e.op("div", one, e.op("fma", small, ratio, large))
    turned = Pair(e.op("where", by_re, x.re, x.im), e.op("where", by_re, x.im, x.re))
    re = e.op("mul", e.op("fma", turned.im, ratio, turned.re), scale)
    rest = e.op("fma", e.op("neg", turned.re), ratio, turned.im)
    im = e.op("mul", e.op("where", by_re, rest, e.op("neg", rest)), scale)
    nothing = e.op("and", e.op("eq", size_re, zero), e.op("eq", size_im, zero))
    return Pair(
        e.op("where", nothing, e.op("div", x.re, size_re), re),
        e.op("where", nothing, e.op("div", x.im, size_re), im),
    )


def _negative(x: Pair) -> Pair:
    return Pair(e.op("neg", x.re), e.op("neg", x.im))


def _conjugate(x: Pair) -> Pair:
    return Pair(x.re, e.op("neg", x.im))


def _exponential(x: Pair) -> Pair:
    """What has no imaginary part gets none, and e to the minus infinity is zero in every direction."""
    zero = e.const(0, x.re.dtype)
    size, real = e.op("exp", x.re), e.op("eq", x.im, zero)
    open_ = e.op("and", e.op("isinf", x.re), e.op("isnan", e.op("sub", x.im, x.im)))  # an infinity without an angle
    falls = e.op("and", open_, e.op("lt", x.re, zero))
    re = e.op("where", real, size, e.op("mul", size, e.op("cos", x.im)))
    im = e.op("where", real, x.im, e.op("mul", size, e.op("sin", x.im)))
    return Pair(e.op("where", open_, size, re), e.op("where", falls, zero, im))


def _magnitude(x: Pair) -> Expr:
    """The larger part times a number of 1 … √2; an infinite part counts more than a NaN."""
    a, b = e.op("abs", x.re), e.op("abs", x.im)
    top, low = e.op("maximum", a, b), e.op("minimum", a, b)
    zero, one = e.const(0, a.dtype), e.const(1, a.dtype)
    ratio = e.op("div", low, top)
    size = e.op("mul", top, e.op("sqrt", e.op("add", e.op("mul", ratio, ratio), one)))
    size = e.op("where", e.op("eq", top, zero), zero, size)
    infinite = e.op("or", e.op("isinf", a), e.op("isinf", b))
    return e.op("where", infinite, e.const(float("inf"), a.dtype), size)


def _both(name: str, joined: str) -> Callable[..., Expr]:
    """A test of both parts."""
    return lambda *pairs: e.op(joined, *[e.op(name, *parts) for parts in zip(*pairs, strict=True)])


ARITHMETIC: dict[str, Callable[..., Pair]] = {
    "mul.Tensor": _product, "div.Tensor": _quotient, "neg": _negative, "_neg_view": _negative, "exp": _exponential,
}  # fmt: skip

#: (test of a part, how the two are joined)
TESTS = {"isnan": ("isnan", "or"), "isinf": ("isinf", "or")}
COMPARISONS = {"eq": ("eq", "and"), "ne": ("ne", "or")}


def _register_arithmetic(target: str, function: Callable[..., Pair]) -> None:
    @_pairs(target)
    def run(context: Context, out: Spec, *operands: Any) -> LazyTensor:
        return _apply(out, function, *operands)


def _register_test(target: str, name: str, joined: str) -> None:
    @_pairs(target)
    def run(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
        return _test(out, compute_dtype(_part(x.dtype)), _both(name, joined), x)


def _register_comparison(target: str, name: str, joined: str) -> None:
    @_pairs(f"{target}.Tensor", f"{target}.Scalar")
    def run(context: Context, out: Spec, a: LazyTensor, b: Any) -> LazyTensor:
        return _test(out, _compared(a, b), _both(name, joined), a, b)


def _compared(a: LazyTensor, b: Any) -> str:
    """What parts are compared in: the promoted dtype's."""
    kinds: list[Operand] = []
    for x in (a, b):
        if isinstance(x, LazyTensor) and x.raw is not None:
            x = pointwise(x.size, _part(x.dtype), x.raw.load, 1)
        kinds.append(0.0 if isinstance(x, complex) else x)
    return compute_dtype(promote(*kinds))


for _target, _function in ARITHMETIC.items():
    _register_arithmetic(_target, _function)
for _target, _names in TESTS.items():
    _register_test(_target, *_names)
for _target, _names in COMPARISONS.items():
    _register_comparison(_target, *_names)


@_pairs("add.Tensor")
def _add(context: Context, out: Spec, a: Any, b: Any, *, alpha: Any = 1) -> LazyTensor:
    """Eager multiplies by a complex alpha, even by 1: 0 times an infinite part is NaN in the other one."""
    return _apply(out, lambda x, y, scale: _sum(x, _product(scale, y)), a, b, alpha)


@_pairs("sub.Tensor")
def _sub(context: Context, out: Spec, a: Any, b: Any, *, alpha: Any = 1) -> LazyTensor:
    """The same with the opposite of alpha, whose imaginary part has a sign only if alpha is complex."""

    def difference(x: Pair, y: Pair, scale: Pair) -> Pair:
        less = _negative(scale)
        return _sum(x, _product(less if isinstance(alpha, complex) else Pair(less.re, scale.im), y))

    return _apply(out, difference, a, b, alpha)


@_pairs("reciprocal")
def _reciprocal(context: Context, out: Spec, x: Any) -> LazyTensor:
    return _apply(out, _quotient, 1, x)


@lowers("_conj")
@_pairs("_conj")
def conjugated(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return _apply(out, _conjugate, x)


@_pairs("abs")
def _abs(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return _test(out, compute_dtype(_part(x.dtype)), _magnitude, x)


@_pairs("where.self", "where.ScalarSelf", "where.ScalarOther")
def _where(context: Context, out: Spec, mask: LazyTensor, a: Any, b: Any) -> LazyTensor:
    left, right = _reader(a, _part(out.dtype)), _reader(b, _part(out.dtype))

    def body(at: Indices) -> Pair:
        choice = e.cast(broadcast(mask, at), "bool")
        return Pair(*[e.op("where", choice, x, y) for x, y in zip(left(at), right(at), strict=True)])

    return paired(out, body, 2 + _weight(mask, a, b))


@_pairs("full")
def _full(context: Context, out: Spec, size: Sequence[int], value: Any, **_: Any) -> LazyTensor:
    return _apply(out, lambda x: x, value)


@_pairs("full_like")
def _full_like(context: Context, out: Spec, x: LazyTensor, value: Any, **_: Any) -> LazyTensor:
    return _apply(out, lambda x: x, value)


@_pairs("_to_copy")
def _to_copy(context: Context, out: Spec, x: LazyTensor, **options: Any) -> LazyTensor | None:
    """Reals have no imaginary part, and other dtypes are given the real one, or whether either is not zero."""
    place = numbers(x).place
    source = place.buffer.device if place is not None else context.device.kind
    if options.get("device") is not None and out.device != source:
        return None
    if is_complex(out.dtype):
        return _apply(out, lambda value: value, x)
    wide = compute_dtype(_part(x.dtype))
    if out.dtype == "bool":
        return _test(out, wide, _both("ne", "or"), x, 0)
    return _test(out, wide, lambda value: value.re, x)


# -- sums ------------------------------------------------------------------------------------------


@_pairs("sum.dim_IntList")
def _total(
    context: Context, out: Spec, x: LazyTensor, dim: Any, keep: bool = False, *, dtype: Any = None
) -> LazyTensor | None:
    if not is_complex(out.dtype):
        return None
    real = out._replace(dtype=_part(out.dtype))
    parts = [sum_(context, real, _plane(x, part, _computed(out)), dim, keep) for part in _halves()]
    return paired(out, lambda at: Pair(*[part.load(at) for part in parts]), 2)


@_pairs("mean.dim")
def _mean(context: Context, out: Spec, x: LazyTensor, dim: Any, keep: bool = False, **_: Any) -> LazyTensor | None:
    total = _total(context, out, x, dim, keep)
    count = prod([x.size[d] for d in reduced_dims(x, dim)]) if x.rank else 1
    return None if total is None else _apply(out, _quotient, total, count)


@_pairs("any.dims")
def _any(context: Context, out: Spec, x: LazyTensor, dim: Any = None, keep: bool = False) -> LazyTensor:
    nonzero = _test(Spec(x.size, x.stride, "bool", out.device), compute_dtype(_part(x.dtype)), _both("ne", "or"), x, 0)
    return any_(context, out, nonzero, dim, keep)


# -- movement: what moves elements moves pairs, whose dimension comes last -------------------------


def _converted(x: LazyTensor, out: Spec) -> LazyTensor:
    """The value, in the dtype of the result, as loops know it."""
    if x.dtype == out.dtype:
        return numbers(x)
    spec = Spec(x.size, x.stride, out.dtype, out.device)
    return numbers(_apply(spec, lambda value: value, x))


def _moved(lowering: Callable[..., LazyTensor], context: Context, out: Spec, *args: Any) -> LazyTensor:
    """What a lowering for real values makes of pairs."""
    return over(lowering(context, out.numbers, *args), out.dtype)


@_pairs("cat")
def _cat(context: Context, out: Spec, tensors: Sequence[LazyTensor], dim: int = 0) -> LazyTensor:
    rank = len(out.size)
    kept = [t for t in tensors if t.rank == rank and (t.size != (0,) or rank != 1)]
    return _moved(cat, context, out, [_converted(t, out) for t in kept], dim % max(rank, 1))


@_pairs("flip")
def _flip(context: Context, out: Spec, x: LazyTensor, dims: Sequence[int]) -> LazyTensor:
    return _moved(flip, context, out, numbers(x), [d % x.rank for d in dims] if x.rank else [])


@_pairs("index.Tensor")
def _index(context: Context, out: Spec, x: LazyTensor, indices: Sequence[LazyTensor | None]) -> LazyTensor | None:
    if any(i is not None and i.dtype in ("bool", "u8") for i in indices) or 0 in x.size:
        return None
    return _moved(index, context, out, numbers(x), indices)


@_pairs("index_select")
def _index_select(context: Context, out: Spec, x: LazyTensor, dim: int, positions: LazyTensor) -> LazyTensor | None:
    return None if 0 in x.size else _moved(index_select, context, out, numbers(x), dim % x.rank, positions)


@_pairs("constant_pad_nd")
def _pad(context: Context, out: Spec, x: LazyTensor, pads: Sequence[Any], value: Any = 0) -> LazyTensor:
    if isinstance(value, int | float) and value == 0:
        return _moved(constant_pad, context, out, numbers(x), [0, 0, *pads], 0)
    dtype, border = _part(out.dtype), complex(value)
    real = out._replace(dtype=dtype)
    numbered = zip(_halves(), (border.real, border.imag), strict=True)
    parts = [constant_pad(context, real, _plane(x, part, dtype), pads, number) for part, number in numbered]
    return paired(out, lambda at: Pair(*[part.load(at) for part in parts]), 4 + _weight(x))


@_pairs("slice_scatter")
def _slice_scatter(
    context: Context,
    out: Spec,
    x: LazyTensor,
    source: LazyTensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> LazyTensor:
    given = numbers(x), _converted(source, out)
    return _moved(slice_scatter, context, out, *given, dim % x.rank, start, end, step)


@_pairs("select_scatter")
def _select_scatter(
    context: Context, out: Spec, x: LazyTensor, source: LazyTensor, dim: int, position: Any
) -> LazyTensor:
    given = numbers(x), _converted(source, out)
    return _moved(select_scatter, context, out, *given, dim % x.rank, position)
