"""Rewrites of the program before fusion decides anything.

`pick` does not loop over what a comparison selects:
    s = sum(where(r == t, v[r], 0) for r < N)   -->   s = where(0 <= t < N, v[t], 0)
`split_reductions` makes a large reduction with few results parallel:
    s = sum(x[r] for r < N)   -->   part[p] = sum(x[p*c + r] for r < c);  s = sum(part[p] for p < P)
`c` is `N // P`, and the P-1 elements that may be left over are added in the second sum.
`detach` gives a nest that overwrites what it reads elsewhere a buffer of its own, and copies at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from stator.base.device import Device
from stator.loop import scalar
from stator.loop.canonical import indices_in, merged
from stator.loop.contraction import Contraction, contraction
from stator.loop.deps import along_rows
from stator.loop.expr import Expr, Rewriter, const, index, load, masked, op, postorder, reduce, to_index
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Nest, Node, Program
from stator.loop.space import flat
from stator.sizes import Extent, hint
from stator.sizes.strides import contiguous

#: Sides of a tile of a product, and terms of a piece of one that is worth its part of another pass over results.
_SIDE, _LEAST_TERMS = 64, 512
#: Pieces that are worth that whatever the terms, and terms of each that are worth it for two.
_FEW, _MANY_TERMS = 4, 2048
#: The reductions that may be split, and what joins two parts.
_SPLITS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


def prepare(program: Program, device: Device, reasons: dict[str, str] | None = None) -> Program:
    """All rewrites; the same object where nothing changed. `reasons` takes why a reduction is split, by its parts."""
    nodes: list[Node] = []
    for node in program.nodes:
        parts = list(_parts(node, device)) if isinstance(node, Nest) else [node]
        nodes.extend(parts)
        if reasons is not None and isinstance(node, Nest):
            why = f"{prod(axis.size for axis in node.axes)} results do not fill {device.programs} programs"
            split = [part for part in parts if isinstance(part, Nest) and len(part.axes) > len(node.axes)]
            reasons.update({part.buffer.name: f"in {part.axes[-1].size} pieces, as {why}" for part in split})
    return program if nodes == list(program.nodes) else replace(program, nodes=tuple(nodes))


def _parts(nest: Nest, device: Device) -> Iterator[Node]:
    nest = _pick(nest)
    nodes = postorder([nest.value])
    own = [n for n in nodes if n.op == "load" and n.attr[0] == nest.buffer.name]
    if nest.mode == "store" and any(n.attr[1] is not nest.index or n.axes & {*nest.reduce_axes} for n in own):
        points = nest.points
        size = tuple(axis.size for axis in points)
        buffer = Buffer(f"{nest.buffer.name}_next", nest.buffer.dtype, size, contiguous(size), nest.buffer.device)
        position = flat(points)
        yield from _parts(replace(nest, buffer=buffer, index=position), device)
        yield replace(nest, axes=points, reduce_axes=(), value=load(buffer.name, position, buffer.dtype))
        return
    product = contraction([nest.value], nest.axes, nest.reduce_axes) if device.tile_products else None
    count = _pieces(nest, nodes, device) if product is None else _pieces_of_terms(product, device)
    if count:
        yield from _split(nest, nodes, count, product is not None or _columns(nest, nodes))
    else:
        yield nest


def _pick(nest: Nest) -> Nest:
    """Only where it leaves no reduction in the nest."""
    if len(nest.reduce_axes) != 1 or nest.points != nest.axes:
        return nest
    memo: dict[Expr, Expr] = {}
    for node in postorder([nest.value]):
        if node.op == "reduce":
            found = _picked(node, nest.reduce_axes[0])
            if found is None:
                return nest
            memo[node] = found
    return replace(nest, reduce_axes=(), value=Rewriter({}, memo=memo)(nest.value))


def _picked(node: Expr, axis: Axis) -> Expr | None:
    """The one term that differs from zero, of a sum over the axis."""
    body = node.args[0]
    if node.attr != "sum" or node.level > 1 or body.op != "where" or body.args[0].op != "eq":
        return None
    position, nothing = index(axis), const(0, body.dtype)
    left, right = body.args[0].args
    chosen = right if left is position else left
    if position not in (left, right) or axis in chosen.axes or body.args[2] is not nothing:
        return None
    inside = op("and", op("ge", chosen, const(0, "i64")), op("lt", chosen, index(axis.size)))
    return masked(inside, body.args[1].substitute({axis: to_index(chosen, axis.size)}), nothing)


def _pieces(nest: Nest, nodes: tuple[Expr, ...], device: Device) -> int:
    """Into how many pieces to split the reductions of a nest; 0 for not at all."""
    outer, inner = (prod(hint(axis.size) for axis in axes) for axes in (nest.axes, nest.reduce_axes))
    kinds = [n.attr if n.op == "reduce" else n.op for n in nodes if n.op in ("reduce", "scan")]
    if not kinds or outer * inner < device.min_split or any(kind not in _SPLITS for kind in kinds):
        return 0
    columns = _columns(nest, nodes)
    if not columns and inner < device.min_row:
        return 0
    width, least = (device.columns, device.min_split >> 10) if columns else (1, device.min_split >> 5)
    programs = -(-outer // width)
    if programs * 2 > device.programs:
        return 0
    pieces = min(-(-device.programs // programs), inner // max(least, 2))
    return pieces if pieces > 1 else 0


def _pieces_of_terms(product: Contraction, device: Device) -> int:
    """Into how many pieces the terms of a product fall whose tiles do not fill half of the device."""
    batch, rows, columns, terms = (
        prod([hint(axis.size) for axis in axes])
        for axes in (product.batch, product.rows, product.columns, product.terms)
    )
    tiles = batch * -(-rows // _SIDE) * -(-columns // _SIDE)
    pieces = min(device.cores // tiles, terms // _LEAST_TERMS)
    return pieces if pieces >= _FEW or (pieces > 1 and terms >= _FEW * _MANY_TERMS) else 0


def _columns(nest: Nest, nodes: tuple[Expr, ...]) -> bool:
    return bool(nest.axes) and not along_rows([n.attr[1] for n in nodes if n.op == "load"], nest.reduce_axes)


def _split(nest: Nest, nodes: tuple[Expr, ...], pieces: int, columns: bool) -> Iterator[Node]:
    """Innermost reductions first: each becomes two nests and then a load. With `columns`, results stay side by side."""
    outer = flat(nest.axes)
    size = tuple(axis.size for axis in nest.axes)
    pieces = _divisor(prod([axis.size for axis in nest.reduce_axes]), pieces)
    piece = Axis("piece", pieces)
    memo: dict[Expr, Expr] = {}
    rewrite = Rewriter({}, memo=memo)
    for number, node in enumerate(n for n in nodes if n.op == "reduce"):
        body = rewrite(node.args[0])
        name = f"{nest.buffer.name}_part{number}"
        parts = (pieces, *size) if columns else (*size, pieces)
        part = Buffer(name, node.dtype, parts, contiguous(parts), nest.buffer.device)
        whole = Buffer(f"{name}_whole", node.dtype, size, contiguous(size), nest.buffer.device)
        chunk, value, rest = _chunked(node.attr, body, nest.reduce_axes, piece)
        at = piece.index * prod(size) + outer if columns else outer * pieces + piece
        yield Nest(part, (*nest.axes, piece), (chunk,), reduce(node.attr, value), at, operators=nest.operators)
        done = load(name, at, node.dtype)
        total = done if rest is None else op(_SPLITS[node.attr], done, rest)
        yield Nest(whole, nest.axes, (piece,), reduce(node.attr, total), outer, operators=nest.operators)
        memo[node] = load(whole.name, outer, node.dtype)
    yield replace(nest, reduce_axes=(), value=rewrite(nest.value))


def _divisor(total: Extent, wanted: int) -> int:
    """A divisor of the total near what is wanted (up to twice), or what is wanted."""
    for pieces in range(wanted, 2 * wanted):
        if total % pieces == 0:
            return pieces
    return wanted


def _chunked(kind: str, body: Expr, axes: tuple[Axis, ...], piece: Axis) -> tuple[Axis, Expr, Expr | None]:
    """(chunk, the body over one chunk, what is left over): each piece gets one of the elements left over, masked where
    there are too few, so that no mask is in the loop over a chunk.
    """
    joined, mapping = merged(list(axes), indices_in(postorder([body])), {})
    axes, body = tuple(joined), body.substitute(mapping)
    total = prod(axis.size for axis in axes)
    chunk = Axis("chunk", total // piece.size)
    value = body.substitute(_positions(piece.index * chunk.size + chunk, axes))
    if type(total) is int and total % piece.size == 0:
        return chunk, value, None
    left = piece.index + chunk.size * piece.size
    inside = op("lt", index(left), index(total))
    nothing = const(scalar.identity(kind, body.dtype), body.dtype)
    return chunk, value, masked(inside, body.substitute(_positions(left, axes)), nothing)


def _positions(flat_position: Index, axes: tuple[Axis, ...]) -> dict[Axis, Index]:
    """Where the axes stand at a flat position; what is read at one that is not below their product is masked."""
    mapping: dict[Axis, Index] = {}
    step: Extent = 1
    for axis in reversed(axes):
        at = flat_position // step
        mapping[axis] = at if axis is axes[0] else at % axis.size
        step *= axis.size
    return mapping
