"""Blocks made, and blocks of another shape: ranges, constants, reshapes, permutations, joins, subscripts.

Shapes are known while compiling, each dim is a power of two. Elements are computed by `arange` and `full` alone.
Neighbours: `promotion.py` broadcasts, `members.py` hangs the methods on the class of tensors.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.arithmetic import minimum
from stator.tile.language.context import emit, emit_all
from stator.tile.language.promotion import (
    bitcast_to,
    broadcast_all,
    broadcast_pair,
    cast_to,
    promote,
    to_tensor,
    typed_constant,
)
from stator.tile.language.promotion import broadcast_to as broadcast_shape
from stator.tile.language.static import unwrap
from stator.tile.language.types import as_dtype, block_type, int32
from stator.tile.language.values import sequence, shape_of, slice, tensor, tuple


def arange(start: Any, end: Any) -> tensor:
    """The integers start … end-1, a power of two of them."""
    low, high = unwrap(start), unwrap(end)
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise InvalidUse(
                f"the bounds of arange are known while compiling, and {bound!r} is not",
                "declare the parameter that it comes from as `tl.constexpr`",
            )
        if not int32.get_int_min_value() <= bound <= int32.get_int_max_value():
            raise InvalidUse(f"arange counts in int32, and {bound} is none", "add an int64 to a shorter arange")
    if high <= low:
        raise InvalidUse(f"arange's end ({high}) is not greater than its start ({low})")
    if (high - low) & (high - low - 1):
        raise InvalidUse(f"arange gives a power of 2 of numbers, and not {high - low}", "take the next, and a mask")
    return emit("arange", start=low, end=high, type=block_type(int32, [high - low]))


def full(shape: Any, value: Any, dtype: Any) -> tensor:
    """A block of one value."""
    type = as_dtype(dtype)
    if isinstance(value, tensor):
        if value.type.numel != 1:
            raise InvalidUse(f"full takes one value, not a block of {value.type}")
        scalar = cast_to(value, type)
        scalar = emit("reshape", scalar, shape=(), reorder=False) if scalar.type.shape else scalar
    else:
        scalar = typed_constant(value, type)
    return splat(scalar, shape_of(shape))


def splat(value: tensor, shape: Sequence[int]) -> tensor:
    """A block of a scalar."""
    if not shape:
        return value
    return emit("splat", value, shape=builtins.tuple(shape), type=block_type(value.dtype, shape))


def zeros(shape: Any, dtype: Any) -> tensor:
    """A block of zeros."""
    return full(shape, 0, dtype)


def zeros_like(input: Any) -> tensor:
    """Zeros in the shape and dtype of a tensor."""
    return full(input.shape, 0, input.dtype)


def broadcast(input: Any, other: Any) -> Any:
    """Two tensors in the shape that both broadcast to."""
    return tuple(list(broadcast_pair(to_tensor(input), to_tensor(other))))


def _sizes(given: Sequence[Any]) -> list[int]:
    """A shape that was passed as several numbers, or as one list of them."""
    return shape_of(given[0]) if len(given) == 1 and not isinstance(unwrap(given[0]), int) else shape_of(list(given))


def broadcast_to(input: Any, *shape: Any) -> tensor:
    """A tensor in a shape: dims of one grow to what it says."""
    return broadcast_shape(to_tensor(input), _sizes(shape))


def _with_inferred(sizes: list[int], numel: int) -> list[int]:
    if sizes.count(-1) > 1:
        raise InvalidUse(f"only one size of {sizes} can be left open")
    if -1 in sizes:
        rest = 1
        for size in sizes:
            rest *= size if size != -1 else 1
        sizes = [numel // rest if size == -1 else size for size in sizes]
    return sizes


def reshape(input: Any, *shape: Any, can_reorder: Any = False) -> tensor:
    """The same elements in another shape, in order unless they may be reordered."""
    value = to_tensor(input)
    sizes = _with_inferred(_sizes(shape), value.type.numel)
    count = 1
    for size in sizes:
        count *= size
    if count != value.type.numel:
        raise InvalidUse(f"a block of {list(value.type.shape)} has not as many elements as {sizes}")
    if builtins.tuple(sizes) == value.type.shape:
        return value
    type = block_type(value.dtype, sizes) if sizes else value.dtype
    return emit("reshape", value, shape=builtins.tuple(sizes), reorder=bool(unwrap(can_reorder)), type=type)


def view(input: Any, *shape: Any) -> tensor:
    """The same elements in another shape, in some order."""
    return reshape(input, *shape, can_reorder=True)


def ravel(x: Any, can_reorder: Any = False) -> tensor:
    """All elements in one dim."""
    return reshape(x, [x.type.numel], can_reorder=can_reorder)


def item(input: Any) -> tensor:
    """The number of a block of one element."""
    if input.type.numel != 1:
        raise InvalidUse(f"item takes a block of one element, not {input.type}", "reduce it first")
    return reshape(input, [])


def wrap_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front."""
    axis = unwrap(axis)
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise InvalidUse(f"an axis is an int that is known while compiling, not {axis!r}")
    if not -rank <= axis < rank:
        raise InvalidUse(f"axis {axis} is none of a block with {rank} dims")
    return axis % rank


def expand_dims(input: Any, axis: Any) -> tensor:
    """A tensor with a dim of one at each of some places."""
    value = to_tensor(input)
    axes = [unwrap(item) for item in sequence(axis)]
    rank = len(value.type.shape) + len(axes)
    places = [wrap_axis(item, rank) for item in axes]
    if len(set(places)) != len(places):
        raise InvalidUse(f"expand_dims was given one axis twice: {axes}")
    for place in sorted(places):
        shape = [*value.type.shape[:place], 1, *value.type.shape[place:]]
        if not value.type.shape:
            value = splat(value, shape)
        else:
            value = emit("expand_dims", value, axis=place, type=block_type(value.dtype, shape))
    return value


def permute(input: Any, *dims: Any) -> tensor:
    """The dims of a tensor in another order."""
    order = [unwrap(item) for item in (sequence(dims[0]) if len(dims) == 1 else dims)]
    rank = len(input.type.shape)
    if sorted(order) != list(range(rank)):
        raise InvalidUse(f"{order} is no order of the {rank} dims of {input.type}")
    shape = [input.type.shape[axis] for axis in order]
    return emit("permute", input, order=builtins.tuple(order), type=block_type(input.dtype, shape))


def trans(input: Any, *dims: Any) -> tensor:
    """The dims in another order; without one, the last two are swapped."""
    if dims:
        return permute(input, *dims)
    rank = len(input.type.shape)
    if rank < 2:
        raise InvalidUse(f"a block of {input.type} has no two dims to swap")
    return permute(input, [*range(rank - 2), rank - 1, rank - 2])


def cat(input: Any, other: Any, can_reorder: Any = False) -> tensor:
    """The elements of two blocks in one; they may be reordered, and `can_reorder` says that you know."""
    if not unwrap(can_reorder):
        raise InvalidUse(
            "cat may reorder elements, and does not promise their order",
            "pass can_reorder=True, or use tl.join with a permute and a reshape",
        )
    a, b = to_tensor(input), to_tensor(other)
    if len(a.type.shape) != 1 or a.type != b.type:
        raise InvalidUse(f"cat takes two blocks with one dim, of one type, not {a.type} and {b.type}")
    return emit("cat", a, b, type=block_type(a.dtype, [2 * a.type.shape[0]]))


def join(a: Any, b: Any) -> tensor:
    """Two tensors side by side in a new last dim."""
    first, second = promote(a, b) if not _pointers(a, b) else broadcast_pair(a, b)
    shape = [*first.type.shape, 2]
    return emit("join", first, second, type=block_type(first.dtype, shape))


def _pointers(*values: Any) -> bool:
    return all(isinstance(value, tensor) and value.dtype.is_ptr() for value in values)


def split(a: Any) -> Any:
    """The two tensors that lie side by side in the last dim."""
    shape = a.type.shape
    if not shape or shape[-1] != 2:
        raise InvalidUse(f"split takes a block whose last dim is 2, not {a.type}", "reshape and permute it first")
    type = block_type(a.dtype, shape[:-1]) if len(shape) > 1 else a.dtype
    return tuple([tensor(handle, type) for handle in emit_all("split", [a])])


def interleave(a: Any, b: Any) -> tensor:
    """The elements of two blocks in turn, along the last dim."""
    joined = join(a, b)
    shape = joined.type.shape
    return joined if len(shape) == 1 else reshape(joined, [*shape[:-2], 2 * shape[-2]])


def gather(src: Any, index: Any, axis: Any) -> tensor:
    """Of each row along an axis, the elements at given positions."""
    if not index.dtype.is_int():
        raise InvalidUse(f"gather takes positions as integers, not {index.dtype}")
    place = wrap_axis(axis, len(src.type.shape))
    return emit("gather", src, index, axis=place, type=index.type.with_element_ty(src.dtype))


def subscript(input: tensor, key: Any) -> Any:
    """`x[:, None]` and the like: each `:` is a dim, each `None` a new one."""
    places = list(key) if isinstance(key, tuple | builtins.tuple | list) else [key]
    value = to_tensor(input)
    added = []
    for place, item in enumerate(places):
        item = unwrap(item)
        if item is None:
            added.append(place)
        elif not _is_whole(item):
            raise InvalidUse(
                f"a block has no subscript {item!r}: only `:` and `None`",
                "for single elements use tl.gather, or a mask and a reduction; for halves tl.reshape and tl.split",
            )
    if len(places) - len(added) != len(value.type.shape):
        raise InvalidUse(f"a subscript of {len(places) - len(added)} dims for {value.type}")
    return expand_dims(value, added) if added else value


def _is_whole(item: Any) -> bool:
    if not isinstance(item, slice | builtins.slice):
        return False
    return all(unwrap(part) is None for part in (item.start, item.stop, item.step))


def cast(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """A tensor in another dtype: its numbers, or with `bitcast` its bits."""
    value = to_tensor(input)
    if unwrap(bitcast):
        if unwrap(fp_downcast_rounding) is not None:
            raise InvalidUse("a bitcast does not round", "leave fp_downcast_rounding out")
        return bitcast_to(value, as_dtype(dtype))
    return cast_to(value, as_dtype(dtype), unwrap(fp_downcast_rounding))


def broadcast_tensors(*inputs: Any) -> list[tensor]:
    """Tensors in the shape that all of them broadcast to."""
    return broadcast_all([to_tensor(item) for item in inputs])


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> Any:
    """Positions of a matrix in row-major order, as those of one whose groups of `size_g` rows go column by column."""
    linear = i * size_j + j
    in_group = size_g * size_j
    first = linear // in_group * size_g
    rows = minimum(size_i - first, size_g)
    rest = linear % in_group
    return tuple([first + rest % rows, rest // rows])
