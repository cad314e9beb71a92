"""Opaque dtypes, with which loops do not compute: complex numbers, wide unsigned integers, eight-bit floats.

A value of one of them is represented by numbers that loops can copy (`LazyTensor.raw`): a complex tensor is pairs of
floats in a last dimension. So views, copies and writes are loops as for other dtypes, `view_as_real` and
`view_as_complex` cost nothing, and an operator that computes is a call of ATen's own kernel, unless `complex.py`
computes it with the real and imaginary parts, or `eights.py` converts it.

Neighbours: `engine.py` sends every operator here that touches such a value; `value.py` has the representation.
"""

from __future__ import annotations

from typing import Any

from stator.base.dtypes import ITEMSIZE, OPAQUE
from stator.fake.execute import plan_of
from stator.loop import expr as e
from stator.lowering import complex, eights
from stator.lowering.context import Context
from stator.lowering.extern import extern, target_name
from stator.lowering.table import LOWERINGS, lowers
from stator.lowering.value import LazyTensor, Size, Spec, compute_dtype, numbers, over, pointwise
from stator.lowering.view import expand, slice_

#: Dtypes of which a loop can read the bits as those of another.
BITS = frozenset(("f64", "f32", "i64", "i32"))

#: Names of overloads, views aside, whose lowering copies elements whatever they are, and has no argument but those
#: that it copies, their dims and their strides.
COPIES = frozenset(("aten.clone.default",))


def touches(value: Any) -> bool:
    """Whether it is, or contains, a value of an opaque dtype."""
    kind = type(value)
    if kind is LazyTensor:
        return value.raw is not None
    if kind is Spec:
        return value.dtype in OPAQUE
    return (kind is tuple or kind is list) and any(map(touches, value))


def lower(context: Context, target: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator with values of opaque dtypes among its operands or results."""
    for module in (eights, complex):
        computed = module.lower(context, target, out, args, kwargs)
        if computed is not None:
            return computed
    name = target_name(target)
    if name in COPIES:
        return over(LOWERINGS[target](context, out.numbers, numbers(args[0]), **kwargs), out.dtype)
    function = LOWERINGS.get(target)
    if function is not None and plan_of(target).view:
        return function(context, out, *args, **kwargs)
    return extern(context, out, *args, **kwargs)


@lowers("view_as_real")
def view_as_real(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return numbers(x)


@lowers("view_as_complex")
def view_as_complex(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    return over(x, out.dtype)


@lowers("_neg_view")
def negated(context: Context, out: Spec, x: LazyTensor) -> LazyTensor:
    dtype = compute_dtype(out.dtype)
    return pointwise(
        x.size, out.dtype, lambda at: e.cast(e.op("neg", e.cast(x.load(at), dtype)), out.dtype), x.weight + 1
    )


@lowers("view.dtype")
def view_dtype(context: Context, out: Spec, x: LazyTensor, dtype: Any) -> Any:
    """The same bits read as another dtype; each element once: dims that repeat are expanded again."""
    repeated = [d for d, (n, step) in enumerate(zip(out.size, out.stride, strict=True)) if n != 1 and step == 0]
    if not repeated or 0 in out.size:
        return _cast(context, out, x, dtype)
    for d in repeated:
        once = Spec((*x.size[:d], 1, *x.size[d + 1 :]), x.stride, x.dtype, out.device)
        x = slice_(context, once, x, d, 0, 1)
    size: Size = tuple([1 if d in repeated else n for d, n in enumerate(out.size)])
    return expand(context, out, _cast(context, out._replace(size=size), x, dtype), ())


def _cast(context: Context, out: Spec, x: LazyTensor, dtype: Any) -> Any:
    """A loop where the size of an element stays; ATen copies where it differs."""
    source, wanted = numbers(x), out.numbers
    if source.size != wanted.size or ITEMSIZE[source.dtype] != ITEMSIZE[wanted.dtype]:
        return extern(context, out, x, dtype)
    value = source
    if source.dtype != wanted.dtype:
        if not {source.dtype, wanted.dtype} <= BITS:
            return extern(context, out, x, dtype)
        value = pointwise(
            source.size, wanted.dtype, lambda at: e.bitcast(source.load(at), wanted.dtype), source.weight + 1
        )
    return over(value, out.dtype) if out.dtype in OPAQUE else value
