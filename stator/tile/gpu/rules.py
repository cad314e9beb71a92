"""What layouts operators take and give: a rule for each, beside the rules of types in `stator.tile.ir.rules`.

A rule takes the types of the operands with their layouts, the attributes, and the types of the results as the rule of
types gives them; it gives the layouts of the results, or raises `TypeRule`. A scalar has no layout, and every thread
has it. Operators on elements want one layout. What only shows a tile in another shape moves nothing: every thread
must have what its part of the result is, in the same register in all threads. Neighbours: `operators` puts both rules
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from stator.tile.gpu.instructions import GROUP_INSTRUCTIONS, instruction
from stator.tile.ir.rules import TypeRule, listed, require
from stator.tile.ir.types import Type
from stator.tile.layouts.linear import Layout, LayoutError
from stator.tile.layouts.matrix import plan_matrix
from stator.tile.layouts.memory import Shared
from stator.tile.layouts.mma import GROUP_ROWS, dot_operand, group_columns, is_mma
from stator.tile.layouts.text import AnyLayout

Layouts: TypeAlias = Sequence[AnyLayout | None]
LayoutRule: TypeAlias = Callable[[Sequence[Type], Mapping[str, Any], Sequence[Type]], Layouts]


def spread(type_: Type) -> Layout:
    """The layout of a tile."""
    layout = type_.layout
    if not isinstance(layout, Layout):  # asked so often that what would be said is not made in vain
        raise TypeRule(f"{type_} is spread over no threads: it has no layout of registers")
    if layout.shape != type_.shape:
        raise TypeRule(f"{type_} has a layout of another shape")
    return layout


def alike(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    """All tiles have one layout."""
    found: Layout | None = None
    for given in types:
        if not given.is_scalar:
            layout = spread(given)
            if found is not None and layout != found:
                raise TypeRule(f"{listed(types)} have different layouts")
            found = layout
    require(found is not None or all(result.is_scalar for result in results), "gives tiles of no layout")
    return [None if result.is_scalar else found for result in results]


def access(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    """Of loads and stores: `vector` registers of a thread are neighbours along one axis, and there is one of each."""
    found = alike(types, attrs, results)
    bits = attrs["vector"].bit_length() - 1
    if bits and types[0].is_scalar:
        raise TypeRule("a scalar is no vector of elements")
    if bits:
        first = spread(types[0]).register[:bits]
        wanted = [[tuple([1 << bit if i == axis else 0 for i in range(types[0].rank)]) for bit in range(bits)]
                  for axis in range(types[0].rank)]  # fmt: skip
        if list(first) not in wanted:
            raise TypeRule(
                f"the first {attrs['vector']} registers of {types[0].layout} are no neighbours along an axis"
            )
    return found


def chosen(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    """The attribute `layout` says it; operands are tiles of any layout."""
    for given in types:
        if not given.is_scalar:
            spread(given)
    return [_fitting(attrs["layout"], result) for result in results]


def _fitting(layout: Layout | None, result: Type) -> Layout | None:
    if result.is_scalar:
        if layout is not None:
            raise TypeRule(f"{result} is a scalar, and has no layout")
        return None
    if layout is None:
        raise TypeRule(f"needs the layout of {result}")
    if layout.shape != result.shape:
        raise TypeRule(f"{layout} is no layout of {result}")
    return layout


def stays(have: Layout, need: Layout) -> None:
    """Every thread has what it needs, in the same register as all others."""
    if len(have.warp) != len(need.warp):
        raise TypeRule(f"{have} and {need} are of different numbers of warps")
    if not need.invert_and_compose(have).uniform:
        raise TypeRule(f"no thread has all of its part of {need} in {have}: convert the layout")


def broadcast(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    (layout,) = chosen(types, attrs, results)
    given = types[0]
    grown = [axis for axis, size in enumerate(given.shape) if size != results[0].shape[axis]]
    assert isinstance(layout, Layout)
    stays(spread(given), layout.squash(grown))
    return [layout]


def expand_dims(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    if types[0].is_scalar:
        return chosen(types, attrs, results)
    require(attrs["layout"] is None, "the layout follows from the operand's")
    return [spread(types[0]).expand_dims(attrs["axis"])]


def reshape(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    if types[0].is_scalar:
        return chosen(types, attrs, results)
    require(attrs["layout"] is None, "the layout follows from the operand's")
    return [spread(types[0]).reshape(results[0].shape) if results[0].shape else None]


def permute(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    return [spread(types[0]).transpose(attrs["order"])]


def join(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    if types[0].is_scalar:
        return chosen(types, attrs, results)
    require(attrs["layout"] is None, "the layout follows from the operands'")
    (layout,) = alike(types, attrs, [types[0]])
    assert isinstance(layout, Layout)
    return [layout.join()]


def split(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    if results[0].is_scalar:
        if spread(types[0]).register != ((1,),):
            raise TypeRule(f"not every thread has both elements of {types[0]}")
        return [None, None]
    try:
        return [spread(types[0]).split()] * 2
    except LayoutError as error:
        raise TypeRule(str(error)) from error


def cat(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    if types[0].shape != types[1].shape:
        raise TypeRule(f"{listed(types)} differ in shape")
    (layout,) = alike(types, attrs, [types[0]])
    assert isinstance(layout, Layout)
    return [layout.cat()]


def gather(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    """The source is laid out in any way."""
    spread(types[0])
    return [spread(types[1])]


def reduce(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    alike(types, attrs, types)
    layout = spread(types[0])
    separable(layout, attrs["axis"])
    return [layout.slice(attrs["axis"])] * len(results)


def separable(layout: Layout, axis: int) -> None:
    """Each bit goes along the axis or not, so that bits tell which elements are combined."""
    mixed = [base for base in layout.bases if base[axis] and any(c for i, c in enumerate(base) if i != axis)]
    if mixed:
        raise TypeRule(f"bits of {layout} go along axis {axis} and another one at once: convert the layout")


def scan(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    """Along the axis, neighbours are in a thread, then in neighbouring lanes, and nothing is in another warp."""
    found = alike(types, attrs, results)
    layout, axis = spread(types[0]), attrs["axis"]
    separable(layout, axis)
    bits = [base[axis] for base in layout.register + layout.lane if base[axis]]
    ordered = bits == [1 << bit for bit in range(len(bits))] and 1 << len(bits) == types[0].shape[axis]
    if not ordered:
        raise TypeRule(f"axis {axis} of {layout} does not go along registers first, then lanes: convert the layout")
    return found


def mma(types: Sequence[Type], attrs: Mapping[str, Any], results: Sequence[Type]) -> Layouts:
    a, b, acc = types
    found = instruction(a.element, b.element, acc.element, attrs["precision"])
    if found is None:
        raise TypeRule(f"tensor cores do not multiply {listed(types)} in precision {attrs['precision']}")
    assert found is not None
    layout = spread(acc)
    if not is_mma(layout):
        raise TypeRule(f"{layout} is no layout of tensor cores' results")
    try:
        wanted = [dot_operand(layout, index, a.shape[-1], found.width) for index in (0, 1)]
    except LayoutError as error:
        raise TypeRule(str(error)) from error
    for given, needed in zip((a, b), wanted, strict=True):
        if spread(given) != needed:
            raise TypeRule(f"an operand is laid out as {needed}, not {given.layout}")
    return [layout]


def wgmma(a: Type, b: Type, acc: Type, precision: str) -> Layout:
    """Of a product by warp groups: `a` and `b` are buffers, or `a` is a tile that threads have as operand.

    The elements of buffers are numbers here, whose layouts are those of memory.
    """
    found = instruction(a.element, b.element, acc.element, precision, GROUP_INSTRUCTIONS)
    if found is None:
        raise TypeRule(f"warp groups do not multiply {listed([a, b, acc])} in precision {precision}")
    layout = spread(acc)
    columns = group_columns(layout)
    if not columns:
        raise TypeRule(f"{layout} is no layout of warp groups' results")
    if isinstance(a.layout, Layout):
        wanted = dot_operand(layout, 0, a.shape[-1], found.width)
        if a.layout != wanted:
            raise TypeRule(f"the left operand is laid out as {wanted}, not {a.layout}")
    for given, size in ((a, GROUP_ROWS), (b, columns)):
        if isinstance(given.layout, Shared):
            matrix = plan_matrix(given.layout, given.element.itemsize)
            if matrix is None:
                raise TypeRule(f"no descriptor says where {given} lies")
            outer = 0 if given is a else 1
            whole = matrix.inner != outer or size * given.element.itemsize % matrix.row == 0
            if not whole:
                raise TypeRule(f"{size} of axis {outer} of {given} are no whole rows")
    return layout
