"""Block pointers and tensor descriptors: blocks of a tensor in memory, addressed by where they begin.

Both are aggregates of the language: a base, sizes, strides and offsets, which are lowered to pointers and masks at each
load and store. Outside of the tensor a descriptor reads its padding and writes nothing; a block pointer does so along
the dims that `boundary_check` names.
Neighbours: `memory.py`, whose `load` and `store` come here by `BLOCK_LOADS` and `BLOCK_STORES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.arithmetic import add, and_, compare, mul
from stator.tile.language.memory import (
    BLOCK_LOADS,
    BLOCK_STORES,
    atomic_add,
    atomic_and,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xor,
    load,
    pointee,
    store,
)
from stator.tile.language.promotion import broadcast_all, broadcast_to, cast_to, to_tensor
from stator.tile.language.shapes import arange, expand_dims, full
from stator.tile.language.static import base_type, base_value, unwrap
from stator.tile.language.types import block_type, dtype, int32, int64
from stator.tile.language.values import sequence, shape_of, tensor, tuple


class _view_type(base_type):
    """The type of a view: its base, the shape of its blocks, and what else distinguishes it."""

    view: type

    def __init__(self, base: dtype, block_shape: Sequence[int], extra: Any) -> None:
        self.base, self.block_shape, self.extra = base, [*block_shape], extra

    @property
    def element_ty(self) -> dtype:
        return block_type(self.base.element_ty, self.block_shape)

    @property
    def scalar(self) -> Any:
        return self

    def _identity(self) -> Any:
        return (type(self), self.base, (*self.block_shape,), self.extra)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _view_type) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        return f"{type(self).__name__.removesuffix('_type')}<{self.element_ty}>"

    __repr__ = __str__

    def mangle(self) -> str:
        return f"{type(self).__name__}_{self.element_ty.mangle()}"


class block_pointer_type(_view_type):
    """The type of a block pointer; `extra` is its order."""

    def is_ptr(self) -> bool:
        return True

    def handle_types(self) -> list[Any]:
        rank = len(self.block_shape)
        return [*self.base.handle_types(), *(int64.handle_types() * (2 * rank)), *(int32.handle_types() * rank)]

    def assemble(self, handles: Iterator[Any]) -> block_pointer:
        base = tensor(next(handles), self.base)
        rank = range(len(self.block_shape))
        shape, strides = [[tensor(next(handles), int64) for _ in rank] for _ in range(2)]
        offsets = [tensor(next(handles), int32) for _ in rank]
        return block_pointer(base, shape, strides, offsets, self.block_shape, self.extra)


class block_pointer(base_value):
    """A block of a tensor in memory, and where in it the block begins."""

    def __init__(
        self,
        base: tensor,
        shape: Sequence[tensor],
        strides: Sequence[tensor],
        offsets: Sequence[tensor],
        block_shape: Sequence[int],
        order: Sequence[int],
    ) -> None:
        self.base, self.block_shape, self.order = base, [*block_shape], (*order,)
        self.sizes, self.strides, self.offsets = [*shape], [*strides], [*offsets]
        self.type = block_pointer_type(base.type, self.block_shape, self.order)

    @property
    def dtype(self) -> block_pointer_type:
        return self.type

    def handles(self) -> list[Any]:
        return [item.handle for item in (self.base, *self.sizes, *self.strides, *self.offsets)]

    def advance(self, offsets: Any) -> block_pointer:
        """The block that begins so much further on."""
        return advance(self, offsets)


def _integer(value: Any, type: dtype, what: str) -> tensor:
    item = to_tensor(value)
    if item.type.shape or not item.dtype.is_int():
        raise InvalidUse(f"{what} are integers, not {item.type}")
    return cast_to(item, type)


def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    """A pointer to the block at `offsets` of a tensor in memory of a shape and strides."""
    pointee(base, "make_block_ptr")
    if base.type.shape:
        raise InvalidUse("the base of a block pointer is one pointer", "`offsets` says where the block begins")
    sizes = shape_of(block_shape)
    block_type(base.dtype.element_ty, sizes)
    parts = {"shape": shape, "strides": strides, "offsets": offsets, "order": order}
    for name, part in parts.items():
        if len(sequence(part)) != len(sizes):
            raise InvalidUse(f"`{name}` has {len(sequence(part))} items, and the block has {len(sizes)} dims")
    places = [unwrap(item) for item in sequence(order)]
    if sorted(places) != list(range(len(sizes))):
        raise InvalidUse(f"`order` is an order of 0 … {len(sizes) - 1}, not {places}")
    return block_pointer(
        base,
        [_integer(item, int64, "sizes") for item in sequence(shape)],
        [_integer(item, int64, "strides") for item in sequence(strides)],
        [_integer(item, int32, "offsets") for item in sequence(offsets)],
        sizes,
        places,
    )


def advance(base: Any, offsets: Any) -> block_pointer:
    """A block pointer to the block that begins so much further on."""
    steps = sequence(offsets)
    if not isinstance(base, block_pointer) or len(steps) != len(base.offsets):
        raise InvalidUse("advance takes a block pointer, and an offset for each of its dims")
    moved = [add(old, _integer(step, int32, "offsets")) for old, step in zip(base.offsets, steps, strict=True)]
    return block_pointer(base.base, base.sizes, base.strides, moved, base.block_shape, base.order)


# ---- lowering


def _indices(offsets: Sequence[tensor], block_shape: Sequence[int]) -> list[tensor]:
    """Along each dim the positions of the block's elements, as a block that broadcasts to its shape."""
    found = []
    rank = len(block_shape)
    for axis, (offset, size) in enumerate(zip(offsets, block_shape, strict=True)):
        row = arange(0, size) if size > 1 else full([1], 0, int32)
        row = expand_dims(row, [other for other in range(rank) if other != axis]) if rank > 1 else row
        found.append(add(cast_to(row, int64), cast_to(offset, int64)))
    return found


def _addresses(base: tensor, strides: Sequence[tensor], indices: Sequence[tensor]) -> tensor:
    total = None
    for stride, index in zip(strides, indices, strict=True):
        part = mul(index, stride)
        total = part if total is None else add(total, part)
    return add(base, total)


def _inside(sizes: Sequence[tensor], indices: Sequence[tensor], dims: Sequence[int]) -> tensor | None:
    """Where positions lie in the tensor, along some dims."""
    mask = None
    for axis in dims:
        size, index = sizes[axis], indices[axis]
        here = and_(compare("ge", index, 0), compare("lt", index, size))
        mask = here if mask is None else and_(mask, here)
    return mask


def _padding_value(element: dtype, padding: str) -> Any:
    if padding == "nan":
        if not element.is_floating():
            raise InvalidUse(f"{element} has no NaN to pad with", "padding 'zero' is for all dtypes")
        return float("nan")
    return 0


def _load_view(
    base: tensor, strides: Sequence[tensor], indices: Sequence[tensor], mask: tensor | None, padding: str, options: Any
) -> tensor:
    pointers = _addresses(base, strides, indices)
    names = {"cache_modifier": options["cache"], "eviction_policy": options["eviction"]}
    volatile = options.get("volatile", False)
    if mask is None:
        return load(pointers, volatile=volatile, **names)
    mask = broadcast_to(mask, pointers.type.shape)
    other = _padding_value(base.dtype.element_ty, padding)
    return load(pointers, mask, other, volatile=volatile, **names)


def _store_view(
    base: tensor, strides: Sequence[tensor], indices: Sequence[tensor], mask: tensor | None, value: Any, options: Any
) -> None:
    pointers = _addresses(base, strides, indices)
    mask = mask if mask is None else broadcast_to(mask, pointers.type.shape)
    store(pointers, value, mask, cache_modifier=options["cache"], eviction_policy=options["eviction"])


def _dims(checks: Sequence[int], rank: int) -> list[int]:
    for axis in checks:
        if not 0 <= axis < rank:
            raise InvalidUse(f"boundary_check names the dim {axis}, and the block has {rank}")
    if len(set(checks)) != len(checks):
        raise InvalidUse("boundary_check names a dim twice")
    return sorted(checks)


def _load_block(pointer: block_pointer, checks: Sequence[int], padding: str, options: Any) -> tensor:
    indices = _indices(pointer.offsets, pointer.block_shape)
    mask = _inside(pointer.sizes, indices, _dims(checks, len(pointer.block_shape)))
    _padding_value(pointer.base.dtype.element_ty, padding)
    return _load_view(pointer.base, pointer.strides, indices, mask, padding, options)


def _store_block(pointer: block_pointer, value: Any, checks: Sequence[int], options: Any) -> None:
    indices = _indices(pointer.offsets, pointer.block_shape)
    mask = _inside(pointer.sizes, indices, _dims(checks, len(pointer.block_shape)))
    given = to_tensor(value)
    if given.type.shape and list(given.type.shape) != pointer.block_shape:
        raise InvalidUse(f"the block is {pointer.type.element_ty}, and the value {given.type}")
    value = broadcast_to(cast_to(given, pointer.base.dtype.element_ty), pointer.block_shape)
    _store_view(pointer.base, pointer.strides, indices, mask, value, options)


BLOCK_LOADS[block_pointer] = _load_block
BLOCK_STORES[block_pointer] = _store_block


# ---- tensor descriptors


class tensor_descriptor_type(_view_type):
    """The type of a descriptor; `extra` is its padding."""

    def handle_types(self) -> list[Any]:
        rank = len(self.block_shape)
        return [*self.base.handle_types(), *(int32.handle_types() * rank), *(int64.handle_types() * rank)]

    def assemble(self, handles: Iterator[Any]) -> tensor_descriptor:
        base = tensor(next(handles), self.base)
        rank = range(len(self.block_shape))
        shape = [tensor(next(handles), int32) for _ in rank]
        strides = [tensor(next(handles), int64) for _ in rank]
        return tensor_descriptor(base, shape, strides, self.block_shape, self.extra)


_PLAIN = {"cache": "", "eviction": ""}


class tensor_descriptor(base_value):
    """A tensor in memory, of which blocks of one shape are loaded and stored."""

    def __init__(
        self,
        base: tensor,
        shape: Sequence[tensor],
        strides: Sequence[tensor],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> None:
        self.base, self.padding = base, padding
        self.shape, self.strides = tuple([*shape]), tuple([*strides])
        self.block_shape = [*block_shape]
        self.type = tensor_descriptor_type(base.type, self.block_shape, padding)

    @property
    def block_type(self) -> dtype:
        return self.type.element_ty

    @property
    def dtype(self) -> dtype:
        element: dtype = self.base.dtype.element_ty
        return element

    def handles(self) -> list[Any]:
        return [item.handle for item in (self.base, *self.shape, *self.strides)]

    def _indices(self, offsets: Any) -> list[tensor]:
        given = sequence(offsets)
        if len(given) != len(self.block_shape):
            raise InvalidUse(f"{len(given)} offsets, and the descriptor has {len(self.block_shape)} dims")
        return _indices([_integer(item, int32, "offsets") for item in given], self.block_shape)

    def _mask(self, indices: Sequence[tensor]) -> Any:
        return _inside(self.shape.values, indices, range(len(indices)))

    def load(self, offsets: Any) -> tensor:
        """The block that begins at some offsets; what is outside of the tensor is its padding."""
        indices = self._indices(offsets)
        return _load_view(self.base, self.strides.values, indices, self._mask(indices), self.padding, _PLAIN)

    def store(self, offsets: Any, value: Any) -> None:
        """Writes a block at some offsets, but for what is outside of the tensor."""
        given = to_tensor(value)
        if list(given.type.shape) != self.block_shape:
            raise InvalidUse(f"the descriptor's blocks are {self.block_type}, and the value is {given.type}")
        indices = self._indices(offsets)
        _store_view(self.base, self.strides.values, indices, self._mask(indices), given, _PLAIN)

    def _atomic(self, function: Any, offsets: Any, value: Any) -> None:
        indices = self._indices(offsets)
        pointers = _addresses(self.base, self.strides.values, indices)
        function(pointers, value, broadcast_to(self._mask(indices), pointers.type.shape), sem="relaxed")

    def atomic_add(self, offsets: Any, value: Any) -> None:
        """Adds a block to the one at some offsets."""
        self._atomic(atomic_add, offsets, value)

    def atomic_min(self, offsets: Any, value: Any) -> None:
        """Leaves the lesser elements at some offsets."""
        self._atomic(atomic_min, offsets, value)

    def atomic_max(self, offsets: Any, value: Any) -> None:
        """Leaves the greater elements at some offsets."""
        self._atomic(atomic_max, offsets, value)

    def atomic_and(self, offsets: Any, value: Any) -> None:
        """Leaves the bits that both have at some offsets."""
        self._atomic(atomic_and, offsets, value)

    def atomic_or(self, offsets: Any, value: Any) -> None:
        """Leaves the bits that one has at some offsets."""
        self._atomic(atomic_or, offsets, value)

    def atomic_xor(self, offsets: Any, value: Any) -> None:
        """Leaves the bits that only one has at some offsets."""
        self._atomic(atomic_xor, offsets, value)

    def _rows(self, x_offsets: Any, y_offset: Any) -> list[tensor]:
        if len(self.block_shape) != 2 or self.block_shape[0] != 1:
            raise InvalidUse(f"gather and scatter take descriptors of single rows, not of {self.block_shape}")
        if len(x_offsets.type.shape) != 1:
            raise InvalidUse(f"the rows are named by a block with one dim, not by {x_offsets.type}")
        columns = arange(0, self.block_shape[1]) if self.block_shape[1] > 1 else full([1], 0, int32)
        along = add(cast_to(columns, int64), cast_to(_integer(y_offset, int32, "offsets"), int64))
        return [expand_dims(cast_to(x_offsets, int64), 1), expand_dims(along, 0)]

    def gather(self, x_offsets: Any, y_offset: Any) -> tensor:
        """Rows of the tensor, from a column on."""
        indices = self._rows(x_offsets, y_offset)
        mask = broadcast_all([self._mask(indices)])[0]
        return _load_view(self.base, self.strides.values, indices, mask, self.padding, _PLAIN)

    def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Writes rows of the tensor, from a column on."""
        indices = self._rows(x_offsets, y_offset)
        _store_view(self.base, self.strides.values, indices, self._mask(indices), value, _PLAIN)


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero"
) -> tensor_descriptor:
    """A descriptor of a tensor in memory; its last dim has stride 1, and a row of a block at least 16 bytes."""
    element = pointee(base, "make_tensor_descriptor")
    sizes, strides, blocks = sequence(shape), sequence(strides), shape_of(block_shape)
    if not 1 <= len(sizes) <= 5 or len(strides) != len(sizes) or len(blocks) != len(sizes):
        numbers = f"{len(sizes)}, {len(strides)} and {len(blocks)}"
        raise InvalidUse(f"shape, strides and block_shape have one item for each of 1 to 5 dims, not {numbers}")
    if unwrap(strides[-1]) != 1 or isinstance(strides[-1], tensor):
        raise InvalidUse(
            "the last dim of a descriptor has the stride 1, which is known while compiling",
            "write 1, or let the argument that is 1 be specialised",
        )
    block = block_type(element, blocks)
    if blocks[-1] * element.itemsize < 16:
        raise InvalidUse(f"a row of {block} has less than 16 bytes", "take more columns in a block")
    padding = unwrap(padding_option)
    if padding not in ("zero", "nan"):
        raise InvalidUse(f"there is no padding option {padding!r}", "valid: 'zero', 'nan'")
    _padding_value(element, padding)
    return tensor_descriptor(
        base,
        [_integer(item, int32, "sizes") for item in sizes],
        [_integer(item, int64, "strides") for item in strides],
        blocks,
        padding,
    )


def load_tensor_descriptor(desc: Any, offsets: Any) -> tensor:
    """The block of a descriptor that begins at some offsets."""
    return desc.load(offsets)


def store_tensor_descriptor(desc: Any, offsets: Any, value: Any) -> None:
    """Writes a block of a descriptor at some offsets."""
    desc.store(offsets, value)
