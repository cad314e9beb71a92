"""Values while lowering: tensors whose elements are expressions that have not been computed yet.

A `LazyTensor` either lies in a buffer (`place`) or is a function from indices to an expression.
Pointwise results stay functions until something needs them in memory; views are free both ways: over
a function they rewrite indices, over a place they rewrite strides. A view remembers its base, so
that realising the view realises the base once and shares it.

Invariant: `load` gives an expression in the value's own dtype, for indices within `size`.
Neighbours: `context.py` decides when a value is realised; the families build values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from stator.base.dtypes import OPAQUE
from stator.base.errors import Unsupported
from stator.fake.symbolic import known
from stator.loop import expr as e
from stator.loop import tables
from stator.loop.expr import Expr
from stator.loop.index import ZERO, Index
from stator.loop.nest import Buffer, Operator
from stator.sizes import Extent
from stator.sizes.real import Bits, Real, symbol_of
from stator.sizes.strides import Shape, contiguous

Size = Shape
Indices = tuple[Index, ...]
Body = Callable[[Indices], Expr]

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex128: "c128",
    torch.complex64: "c64",
    torch.complex32: "c32",
    torch.uint64: "u64",
    torch.uint32: "u32",
    torch.uint16: "u16",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3z",
    torch.float8_e5m2fnuz: "f8e5m2z",
    torch.float8_e8m0fnu: "f8e8m0",
}

HALF = frozenset(("bf16", "f16"))


def compute_dtype(dtype: str) -> str:
    """What arithmetic on `dtype` happens in: float32 for half types, as in eager."""
    return "f32" if dtype in HALF else dtype


class Spec(NamedTuple):
    """What tracing found out about a result."""

    size: Size
    stride: Size
    dtype: str
    device: str

    @staticmethod
    def of(value: torch.Tensor) -> Spec:
        dtype = DTYPES.get(value.dtype)
        if dtype is None:
            raise Unsupported(f"a tensor of {value.dtype}", "the loop IR has no such dtype")
        size, stride = value.shape, value.stride()
        if value._has_symbolic_sizes_strides:
            return Spec(shape(size), shape(stride), dtype, value.device.type)
        return Spec(tuple(size), stride, dtype, value.device.type)

    @property
    def numbers(self) -> Spec:
        """The same memory as loops know it; itself where the dtype is none of `dtypes.OPAQUE`."""
        found = OPAQUE.get(self.dtype)
        if found is None:
            return self
        dtype, width = found
        if width == 1:
            return self._replace(dtype=dtype)
        return Spec((*self.size, width), (*[step * width for step in self.stride], 1), dtype, self.device)


#: What arguments mostly are; none of it is symbolic.
_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))


def extent(value: Any) -> Any:
    """An argument of a node; a symbolic number becomes the size or the bits that it stands for."""
    if type(value) in _PLAIN:
        return value
    match value:
        case torch.SymInt():
            return known(value)
        case torch.SymFloat():
            found = value.node.value
            return Bits(symbol_of(found).size) if isinstance(found, Real) else found
        case torch.SymBool():
            return bool(value)
    return value


def shape(values: Sequence[Any]) -> Shape:
    """Sizes or strides of a tensor."""
    return tuple([n if type(n) is int else extent(n) for n in values])


class Place(NamedTuple):
    """Where a value lies: element `i` of the value is at `offset + Σ i·stride` of the buffer."""

    buffer: Buffer
    stride: Size
    offset: Extent = 0

    def position(self, at: Indices) -> Index:
        """The flat position of an element."""
        key = self.offset, self.stride, at
        found = _POSITIONS.get(key)
        if found is None:
            found = Index.of(self.offset)
            for index, step in zip(at, self.stride, strict=True):
                found = found + index * step
            _POSITIONS[key] = found
        return found


#: By offset, strides and indices: the values of a graph lie in few ways.
_POSITIONS: dict[tuple[Extent, Size, Indices], Index] = tables.table()
#: Rewrites the place of a base (of the given size) to the place of a view, or declines.
Restride = Callable[[Place], Place | None]


class LazyTensor:
    """A tensor under lowering. Make it with `placed`, `pointwise`, `viewed`, `with_strides` or `over`."""

    __slots__ = (
        "_memo",
        "base",
        "body",
        "bordered",
        "copied",
        "dtype",
        "innermost",
        "name",
        "operators",
        "parts",
        "pieces",
        "place",
        "planes",
        "raw",
        "restride",
        "size",
        "stride",
        "weight",
    )

    def __init__(self, size: Size, dtype: str, body: Body | None, weight: int, stride: Size | None = None) -> None:
        self.size, self.dtype, self.body = size, dtype, body
        #: The strides it gets when it is realised.
        self.stride = contiguous(size) if stride is None else stride
        #: An upper bound of the size of its expression.
        self.weight = weight
        self.place: Place | None = None
        self.base: LazyTensor | None = None
        #: Of an opaque dtype, with which loops do not compute: the same elements as numbers that they copy.
        self.raw: LazyTensor | None = None
        self.restride: Restride | None = None
        #: The value that this one is a copy of, for readers that may share its memory.
        self.copied: LazyTensor | None = None
        #: The value that this one is with a border around, which readers may as well read from that.
        self.bordered: LazyTensor | None = None
        #: The same image with the channel innermost, where it has been decided that it lies so.
        self.innermost: LazyTensor | None = None
        #: The values it is joined from along a dim, which it can be written from one by one.
        self.parts: tuple[int, Sequence[LazyTensor]] | None = None
        #: The values it is joined from along a dim, as slices of it read them (`joined.py`).
        self.pieces: tuple[int, Sequence[LazyTensor]] | None = None
        #: The real and the imaginary part as values of their own, between which the last dim chooses.
        self.planes: tuple[LazyTensor, LazyTensor] | None = None
        #: What its buffer is called if it gets one ("": like the node that needed it).
        self.name = ""
        #: The operators of the program that its expression computes.
        self.operators: tuple[Operator, ...] = ()
        self._memo: dict[Indices, Expr] = {}

    def load(self, at: Indices) -> Expr:
        """The element at these indices."""
        place = self.place
        if place is None:
            found = self._memo.get(at)
            if found is None:
                assert self.body is not None
                found = self._memo[at] = self.body(at)
            return found
        return e.load(place.buffer.name, place.position(at), self.dtype)

    def settle(self, place: Place) -> Place:
        """From now on the value is read from memory."""
        self.place, self.weight = place, 1
        self._memo.clear()
        return place

    def rewrite(self, body: Body, weight: int) -> None:
        """Replace the expression by another one of the same value."""
        self.body, self.weight = body, weight
        self._memo.clear()

    @property
    def rank(self) -> int:
        return len(self.size)


def placed(size: Size, place: Place) -> LazyTensor:
    """A value that lies in memory."""
    value = LazyTensor(size, place.buffer.dtype, None, 1, place.stride)
    value.place = place
    return value


def pointwise(size: Size, dtype: str, body: Body, weight: int) -> LazyTensor:
    """A value that is computed where it is read."""
    return LazyTensor(size, dtype, body, weight)


def copied(value: LazyTensor) -> LazyTensor:
    """A copy of a value, for the program memory of its own."""
    found = pointwise(value.size, value.dtype, value.load, value.weight)
    found.copied, found.pieces = value, value.pieces
    return found


def with_strides(value: LazyTensor, stride: Size) -> LazyTensor:
    """The same value for the program, to which it has other strides than with the channel innermost."""
    found = pointwise(value.size, value.dtype, value.load, value.weight)
    found.stride, found.innermost, found.name = stride, value, value.name
    found.copied, found.pieces = value.copied, value.pieces
    return found


def over(raw: LazyTensor, dtype: str) -> LazyTensor:
    """A tensor of an opaque dtype, from the value that loops copy it as."""
    value = LazyTensor(raw.size[:-1] if OPAQUE[dtype][1] > 1 else raw.size, dtype, None, raw.weight)
    value.raw = raw
    return value


def numbers(value: LazyTensor) -> LazyTensor:
    """The value, or what loops copy it as if its dtype is opaque."""
    return value if value.raw is None else value.raw


def viewed(base: LazyTensor, size: Size, remap: Callable[[Indices], Indices], restride: Restride) -> LazyTensor:
    """The same elements elsewhere: `remap` gives the base's indices for the view's."""
    if base.raw is not None:
        return over(_viewed_raw(base.raw, OPAQUE[base.dtype][1], size, remap, restride), base.dtype)
    if base.place is not None:
        place = restride(base.place)
        if place is not None:
            return placed(size, place)
    value = LazyTensor(size, base.dtype, lambda at: base.load(remap(at)), base.weight + 1)
    value.base, value.restride = base, restride
    return value


def _viewed_raw(
    raw: LazyTensor, width: int, size: Size, remap: Callable[[Indices], Indices], restride: Restride
) -> LazyTensor:
    """The view of elements that consist of several numbers: these stay together, as a last dimension."""
    if width == 1:
        return viewed(raw, size, remap, restride)

    def elements(place: Place) -> Place | None:
        found = restride(place._replace(stride=place.stride[:-1]))
        return None if found is None else found._replace(stride=(*found.stride, place.stride[-1]))

    return viewed(raw, (*size, width), lambda at: (*remap(at[:-1]), at[-1]), elements)


def broadcast(value: LazyTensor, at: Indices) -> Expr:
    """Load with the indices of a larger result: leading dims dropped, dims of size 1 held at 0."""
    size = value.size
    lead = len(at) - len(size)
    if lead or size.count(1):
        at = tuple([ZERO if n == 1 else i for n, i in zip(size, at[lead:], strict=True)])
    return value.load(at)


def broadcast_sizes(a: Size, b: Size) -> Size:
    """The size of a result of both."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple([m if n == 1 else n for n, m in zip(a, b, strict=True)])
