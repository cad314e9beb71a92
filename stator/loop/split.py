"""Rewrites of the program before fusion decides anything.

`pick` does not loop over what a comparison selects:
    s = sum(where(r == t, v[r], 0) for r < N)   -->   s = where(0 <= t < N, v[t], 0)
`split_reductions` makes a large reduction with few results parallel:
    s = sum(x[r] for r < N)   -->   part[p] = sum(x[p*c + r] for r < c);  s = sum(part[p] for p < P)
`c` is `N // P`, and the P-1 elements that may be left over are added in the second sum. Where the device wants it,
parts of squared differences are about their own mean, so that they need not wait for what is subtracted, which often is
the mean of all (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
1979):
    s = sum((x[r] - m)**2 for r < N)   -->   mean[p] = sum(x[p*c + r] for r < c) / c
        part[p] = sum((x[p*c + r] - mean[p])**2 for r < c);  s = sum(part[p] + c*(mean[p] - m)**2 for p < P)
`detach` gives a nest that overwrites what it reads elsewhere a buffer of its own, and copies at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from stator.base.device import Device
from stator.loop import scalar
from stator.loop.canonical import indices_in, merged
from stator.loop.contraction import Contraction, contraction
from stator.loop.deps import along_rows
from stator.loop.expr import Expr, Rewriter, const, index, load, masked, op, postorder, reduce, to_index
from stator.loop.index import Axis, Index
from stator.loop.mixed import Rows, pieces_by_rows, rows_of
from stator.loop.narrow import narrowed
from stator.loop.nest import Buffer, Nest, Node, Program
from stator.loop.space import flat
from stator.loop.turned import turned
from stator.sizes import Extent, hint
from stator.sizes.strides import contiguous

#: Sides of a tile of a product, and terms of a piece of one that is worth its part of another pass over results.
_SIDE, _LEAST_TERMS = 64, 512
#: Pieces that are worth that whatever the terms, and terms of each that are worth it for two.
_FEW, _MANY_TERMS = 4, 2048
#: Turns of the loop down a piece of columns, from which on pieces are shorter, as the last of a few long ones end late;
#: and how many pieces there are then at most.
_TURNS, _MOST_PIECES = 8, 64
#: The reductions that may be split, and what joins two parts.
_SPLITS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


@dataclass(frozen=True, slots=True)
class _Around:
    """What other nests of a program read: along rows, and at each of so many points of loops that reduce nothing."""

    rows: Rows
    points: list[tuple[Extent, set[str]]]

    def read_again(self, nest: Nest, names: Sequence[str], numel: Extent) -> bool:
        """Whether a nest over all that another one reduces reads it once more, beside the result."""
        buffer = nest.buffer.name
        return any(numel == size and buffer in found and not found.isdisjoint(names) for size, found in self.points)


def prepare(program: Program, device: Device, reasons: dict[str, str] | None = None) -> Program:
    """All rewrites; the same object where nothing changed. `reasons` takes why a reduction is split, by its parts."""
    program = turned(narrowed(program) if device.narrows else program, device)
    nodes: list[Node] = []
    found = _Around(rows_of(program, device), _read_by_points(program) if device.min_columns else [])
    for node in program.nodes:
        parts = list(_parts(node, device, found)) if isinstance(node, Nest) else [node]
        nodes.extend(parts)
        if reasons is not None and isinstance(node, Nest):
            why = f"{prod(axis.size for axis in node.axes)} results do not fill {device.programs} programs"
            split = [part for part in parts if isinstance(part, Nest) and len(part.axes) > len(node.axes)]
            reasons.update({part.buffer.name: f"in {part.axes[-1].size} pieces, as {why}" for part in split})
    return program if nodes == list(program.nodes) else replace(program, nodes=tuple(nodes))


def _read_by_points(program: Program) -> list[tuple[Extent, set[str]]]:
    plain = [node for node in program.nodes if isinstance(node, Nest) and not node.reduce_axes]
    reads = [{expr.attr[0] for expr in postorder([nest.value]) if expr.op == "load"} for nest in plain]
    return [(prod([axis.size for axis in nest.axes]), names) for nest, names in zip(plain, reads, strict=True)]


def _parts(nest: Nest, device: Device, around: _Around) -> Iterator[Node]:
    nest = _pick(nest)
    nodes = postorder([nest.value])
    own = [n for n in nodes if n.op == "load" and n.attr[0] == nest.buffer.name]
    if nest.mode == "store" and any(n.attr[1] is not nest.index or n.axes & {*nest.reduce_axes} for n in own):
        points = nest.points
        size = tuple(axis.size for axis in points)
        buffer = Buffer(f"{nest.buffer.name}_next", nest.buffer.dtype, size, contiguous(size), nest.buffer.device)
        position = flat(points)
        yield from _parts(replace(nest, buffer=buffer, index=position), device, around)
        yield replace(nest, axes=points, reduce_axes=(), value=load(buffer.name, position, buffer.dtype))
        return
    product = contraction([nest.value], nest.axes, nest.reduce_axes) if device.tile_products else None
    count = _pieces(nest, nodes, device, around) if product is None else _pieces_of_terms(product, device)
    if count:
        columns = product is not None or _columns(nest, nodes)
        yield from _split(nest, nodes, count, columns, device.parts_online and product is None)
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


def _pieces(nest: Nest, nodes: tuple[Expr, ...], device: Device, around: _Around) -> int:
    """Into how many pieces to split the reductions of a nest; 0 for not at all."""
    outer, inner = (prod(hint(axis.size) for axis in axes) for axes in (nest.axes, nest.reduce_axes))
    kinds = [n.attr if n.op == "reduce" else n.op for n in nodes if n.op in ("reduce", "scan")]
    if not kinds or outer * inner < device.min_split or any(kind not in _SPLITS for kind in kinds):
        return 0
    columns = _columns(nest, nodes)
    if not columns and inner < device.min_row:
        return 0
    names = [node.attr[0] for node in nodes if node.op == "load"]
    if columns and kinds == ["sum"] and (count := pieces_by_rows(nest, names, around.rows, device)):
        return count
    if (
        columns
        and device.min_columns
        and outer >= device.full_columns
        and around.read_again(nest, names, outer * inner)
    ):
        return 0  # one kernel reads all of it again while it is in a cache
    width, least = 1, device.min_split >> 5
    if columns:
        width, least = device.columns, max(device.min_split >> 10, 4 * device.column_points // device.columns)
    programs = -(-outer // width)
    if programs * 2 > device.programs:
        return 0
    pieces = min(-(-device.programs // programs), inner // max(least, 2))
    if columns and device.min_columns:
        pieces = max(pieces, min(inner // (_TURNS * device.column_points // device.columns), _MOST_PIECES))
    if device.row_pieces and not columns and pieces > 1:
        most = device.row_pieces * device.programs // programs
        at_once = _pieces_at_once(nest.reduce_axes[0].size, inner, most, device)
        pieces = max(pieces, at_once)
    return pieces if pieces > 1 else 0


def _pieces_at_once(first: Extent, inner: int, most: int, device: Device) -> int:
    """Into how many pieces of its first axis a row falls so that a program has all of one at once; 0 for none."""
    wanted = -(-inner // device.row_elements)
    if type(first) is not int or wanted > most:
        return 0
    return next((pieces for pieces in range(wanted, min(2 * wanted, most + 1)) if first % pieces == 0), 0)


def _pieces_of_terms(product: Contraction, device: Device) -> int:
    """Into how many pieces the terms of a product fall whose tiles do not fill half of the device."""
    batch, rows, columns, terms = (
        prod([hint(axis.size) for axis in axes])
        for axes in (product.batch, product.rows, product.columns, product.terms)
    )
    tiles = max(1, batch * -(-rows // _SIDE) * -(-columns // _SIDE))
    pieces = min(device.cores // tiles, terms // _LEAST_TERMS)
    return pieces if pieces >= _FEW or (pieces > 1 and terms >= _FEW * _MANY_TERMS) else 0


def _columns(nest: Nest, nodes: tuple[Expr, ...]) -> bool:
    return bool(nest.axes) and not along_rows([n.attr[1] for n in nodes if n.op == "load"], nest.reduce_axes)


def _split(nest: Nest, nodes: tuple[Expr, ...], pieces: int, columns: bool, online: bool) -> Iterator[Node]:
    """Innermost reductions first: each becomes two nests, or three, and then a load. With `columns`, results stay side
    by side.
    """
    outer = flat(nest.axes)
    size = tuple(axis.size for axis in nest.axes)
    pieces = _divisor([axis.size for axis in nest.reduce_axes], pieces)
    piece = Axis("piece", pieces)
    parts = (pieces, *size) if columns else (*size, pieces)
    at = piece.index * prod(size) + outer if columns else outer * pieces + piece
    memo: dict[Expr, Expr] = {}
    rewrite = Rewriter({}, memo=memo)

    def part(name: str, value: Expr, chunk: tuple[Axis, ...]) -> Nest:
        buffer = Buffer(name, value.dtype, parts, contiguous(parts), nest.buffer.device)
        return Nest(buffer, (*nest.axes, piece), chunk, value, at, operators=nest.operators)

    for number, node in enumerate(n for n in nodes if n.op == "reduce"):
        body = rewrite(node.args[0])
        name = f"{nest.buffer.name}_part{number}"
        whole = Buffer(f"{name}_whole", node.dtype, size, contiguous(size), nest.buffer.device)
        chunk, value, rest = _chunked(node.attr, body, nest.reduce_axes, piece)
        done = load(name, at, node.dtype)
        length = prod([axis.size for axis in chunk])
        difference = _squared(value, chunk) if online and node.attr == "sum" and type(length) is int else None
        if difference is not None:
            term, shift = difference.args
            count, around = const(float(length), node.dtype), load(f"{name}_mean", at, node.dtype)
            yield part(f"{name}_mean", op("div", reduce("sum", term), count), chunk)
            apart, shifted = op("sub", term, around), op("sub", around, shift)
            value = op("mul", apart, apart)
            done = op("add", done, op("mul", count, op("mul", shifted, shifted)))
        yield part(name, reduce(node.attr, value), chunk)
        total = done if rest is None else op(_SPLITS[node.attr], done, rest)
        yield Nest(whole, nest.axes, (piece,), reduce(node.attr, total), outer, operators=nest.operators)
        memo[node] = load(whole.name, outer, node.dtype)
    yield replace(nest, reduce_axes=(), value=rewrite(nest.value))


def _squared(value: Expr, chunk: tuple[Axis, ...]) -> Expr | None:
    """The difference whose square it is, if that is of what differs within a chunk and what does not."""
    match value.op, value.args:
        case "mul", (left, right) if left is right and left.op == "sub" and left.dtype in ("f32", "f64"):
            term, shift = left.args
            return left if not term.axes.isdisjoint(chunk) and shift.axes.isdisjoint(chunk) else None
    return None


def _divisor(sizes: Sequence[Extent], wanted: int) -> int:
    """A divisor of the first size, or of their product, near what is wanted (up to twice); or what is wanted."""
    for total in (sizes[0], prod(sizes)):
        for pieces in range(wanted, 2 * wanted):
            if total % pieces == 0:
                return pieces
    return wanted


def _chunked(kind: str, body: Expr, axes: tuple[Axis, ...], piece: Axis) -> tuple[tuple[Axis, ...], Expr, Expr | None]:
    """(chunk, the body over one chunk, what is left over): each piece gets one of the elements left over, masked where
    there are too few, so that no mask is in the loop over a chunk. Where it can, a chunk is some of the first axis by
    all of the others, so that kernels that loop over these find their places in it.
    """
    first, *others = axes
    if others and type(first.size) is int and first.size % piece.size == 0:
        some = Axis("chunk", first.size // piece.size)
        return (some, *others), body.substitute({first: piece.index * some.size + some}), None
    joined, mapping = merged(list(axes), indices_in(postorder([body])), {})
    axes, body = tuple(joined), body.substitute(mapping)
    total = prod(axis.size for axis in axes)
    chunk = Axis("chunk", total // piece.size)
    value = body.substitute(_positions(piece.index * chunk.size + chunk, axes))
    if type(total) is int and total % piece.size == 0:
        return (chunk,), value, None
    left = piece.index + chunk.size * piece.size
    inside = op("lt", index(left), index(total))
    nothing = const(scalar.identity(kind, body.dtype), body.dtype)
    return (chunk,), value, masked(inside, body.substitute(_positions(left, axes)), nothing)


def _positions(flat_position: Index, axes: tuple[Axis, ...]) -> dict[Axis, Index]:
    """Where the axes stand at a flat position; what is read at one that is not below their product is masked."""
    mapping: dict[Axis, Index] = {}
    step: Extent = 1
    for axis in reversed(axes):
        at = flat_position // step
        mapping[axis] = at if axis is axes[0] else at % axis.size
        step *= axis.size
    return mapping
