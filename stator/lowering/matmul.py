"""Products as nests for a device that multiplies tiles of matrices: which ones, and in which loops.

By rule (`wins`) a product of half precision is ours where that saves a pass over its results which takes clearly longer
than tiles of ours may lose beside a library's: what is computed of each result would be stored for another operator
anyway. So are those whose rows of results lie so that a library cannot store them in vectors, those of few rows, which
bring a weight from memory and no more, of a single one also where it is computed of fewer bytes than it would take
there, and many small ones. Under the option `autotune` it is decided by measurement (`stator/tuning.py`).

The nest of a product has its bias and its rounding in it, so that what reads the result joins it as it would join any
reduction (`loop/fusion.py`). Its loops are the dims in which the program reads the result: where `[b*s, n]` is viewed
as `[b, s, heads, n // heads]` and turned, rows are loops over `b` and `s`, and the turned result is what is stored.
Neighbours: `product.py` asks; `loop/contraction.py` finds the product again in the kernel, `kernel/matmul.py` decides
how it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch.fx import Node

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.fake.symbolic import extents
from stator.graphs.calls import is_view
from stator.loop import expr as e
from stator.loop.expr import Expr, postorder
from stator.loop.index import ZERO, Axis, Index
from stator.loop.scalar import COSTLY
from stator.lowering.context import Context
from stator.lowering.value import HALF, Indices, LazyTensor, Place, Size, Spec, broadcast, placed
from stator.prims.set import PRIMITIVES, Primitive
from stator.sizes import Extent, hint
from stator.sizes.strides import contiguous

#: Rows or columns of results that are in one tile; and the weight up to which an operand is computed for it, or for a
#: single row, which takes no tiles.
ONCE, CHEAP, SINGLE = 32, 8, 16
#: Bytes that a library stores at once, and columns from which on a product is clearly slower where rows do not begin
#: at a multiple of them.
VECTOR, WIDE = 16, 128
#: Rows up to which, and columns and terms from which on, bringing the weight is all that takes time: cuBLAS took 1.0 to
#: 1.4 times as long on an H100, of weights that were in no cache.
FEW, FEW_COLUMNS, FEW_TERMS = 16, 1024, 512
#: Batches from which on, and rows, columns and terms between which, cuBLAS took 1.1 to 2.5 times as long there.
BATCHES, SMALL = 64, (16, 128)
#: Rows, columns and terms from which on it is known how fast tiles are.
MANY = 64
#: Of the rate at which tiles are multiplied, what is reached; what ours are behind a library's, and by how much a pass
#: has to be longer.
REACHED, BEHIND, SURE = 0.8, 0.12, 1.5
#: Sides of tiles, and how much slower they are than the largest ones.
SIDES = ((128, 256, 1.0), (128, 128, 1.1), (64, 128, 1.3), (64, 64, 1.6))
#: What is costly beside the operators of `scalar.COSTLY`.
QUOTIENTS = frozenset(("div", "reciprocal", "sqrt", "rsqrt"))
#: How many readers of a product are looked at.
READERS = 16
#: The dtypes of products that are nests.
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def wins(context: Context, out: Spec, a: LazyTensor, b: LazyTensor) -> bool:
    """Whether a product is ours by rule, which goes by what its sizes were in the first call."""
    device, size = context.device, [hint(n) for n in out.size]
    terms = hint(a.size[-1])
    if out.dtype not in HALF or 0 in size or not _has_vectors(context, out):
        return False
    *_, rows, columns = size
    aligned = VECTOR // ITEMSIZE[out.dtype]
    if columns % aligned and terms % aligned == 0 and columns >= WIDE and context.place(b).stride[-2] == 1:
        return True
    if (
        out.size[-2] == 1
        and min(columns, terms) >= MANY
        and _is_read_once(context, b, -1, 1)
        and _is_narrow(b, out.dtype)
    ):
        return True
    if _is_of_few_rows(context, b, size, terms) or _are_small(size, terms):
        return True
    if rows < MANY or columns < MANY or terms < MANY or not _saves_a_pass(context):
        return False
    work = 2.0 * prod(size) * terms / (device.product_rate * REACHED)
    saved = 2 * ITEMSIZE[out.dtype] * prod(size) / device.bandwidth + device.launch_cost
    return saved > SURE * work * (BEHIND + _waste(size, device))


def _is_of_few_rows(context: Context, b: LazyTensor, size: Sequence[int], terms: int) -> bool:
    """Whether it is one product of few rows; one of a single row is a dot product for each column, along the weight."""
    *batch, rows, columns = size
    if batch or rows > FEW or columns < FEW_COLUMNS or terms < FEW_TERMS or not _lies(b):
        return False
    return rows > 1 or context.place(b).stride[-2] == 1


def _lies(operand: LazyTensor) -> bool:
    """Whether an operand is read as it lies in memory."""
    at = tuple([Axis(f"x{i}", n).index if n != 1 else ZERO for i, n in enumerate(operand.size)])
    return operand.place is not None or _is_copy(operand, at)


def _are_small(size: Sequence[int], terms: int) -> bool:
    """Whether they are many products of which a tile or two has all results."""
    *batch, rows, columns = size
    low, high = SMALL
    return prod(batch) >= BATCHES and all(low <= n <= high for n in (rows, columns, terms))


def _has_vectors(context: Context, out: Spec) -> bool:
    """Whether rows of factors whose strides are symbolic begin where vectors do, so that tiles are loaded in these."""
    assert context.node is not None
    for given in context.node.args[-2:]:
        assert isinstance(given, Node)
        stride = extents(given.meta["val"].stride())
        if any(type(step) is not int and step % (VECTOR // ITEMSIZE[out.dtype]) != 0 for step in stride):
            return False
    return True


def _waste(size: Sequence[int], device: Device) -> float:
    """Which part of the work of the best tiles is lost, as they are small or do not fill the last wave of programs."""
    *batch, rows, columns = size
    found = []
    for m, n, slower in SIDES:
        count = prod(batch) * -(-rows // m) * -(-columns // n)
        waves = -(-count // device.cores)
        found.append(waves * device.cores * m * n * slower / prod(size) - 1)
    return min(found)


def _saves_a_pass(context: Context) -> bool:
    """Whether all that reads a product is cheap, computed of each result alone, and some of it stored for an operator.

    What is costly runs beside loads in a kernel of its own, and after all products of a tile in theirs.
    """
    product = context.node
    assert product is not None
    stored, rest = False, [product]
    for _ in range(READERS + 1):
        if not rest:
            return stored
        node = rest.pop()
        readers = _readers(node)
        taken = [user for user in readers if _line(user) is None]
        computed = [user for user in readers if user not in taken]
        if any(not _is_plain(user, product) for user in taken):
            stored = True  # in memory there, for what does not join the product
            if any(_joins_costly(user, node, product) for user in computed):
                return False
            continue
        if not all(_is_cheap(line) and _is_as_large(user, product) for user in computed if (line := _line(user))):
            return False
        if any(_brings_costly(user, node, product) for user in computed):
            return False
        rest.extend(computed)
    return False


def _joins_costly(user: Node, node: Node, product: Node) -> bool:
    """Whether what reads a stored value of the product's kernel would join it, as it is pointwise, and is costly."""
    line = _line(user)
    if line is None or line.kind != "pointwise" or not _is_as_large(user, product):
        return False
    return not _is_cheap(line) or _brings_costly(user, node, product)


def _brings_costly(user: Node, node: Node, product: Node) -> bool:
    """Whether what `user` reads beside `node` is computed where it is read, for each result, and is costly.

    So are the derivative of an activation and the mask of a dropout. Many values are not looked through to the end.
    """
    seen = {node, product}
    rest = [given for given in user.all_input_nodes if given not in seen]
    while rest:
        given = rest.pop()
        if given in seen or not _is_as_large(given, product):
            continue
        seen.add(given)
        if is_view(given):
            rest.extend(given.all_input_nodes)
            continue
        line = _line(given)
        in_memory = any(_line(reader) is None for reader in _readers(given))
        if line is None or line.kind not in ("pointwise", "view", "random") or in_memory:
            continue
        if not _is_cheap(line) or len(seen) > READERS:
            return True
        rest.extend(given.all_input_nodes)
    return False


def _readers(node: Node) -> list[Node]:
    """Who reads a value, or views of it."""
    found: dict[Node, None] = {}
    rest = [*node.users]
    while rest:
        user = rest.pop()
        if is_view(user):
            rest.extend(user.users)
        else:
            found[user] = None
    return [*found]


def _line(node: Node) -> Primitive | None:
    """What computes a node among others; None where it is an operator of PyTorch, or the result."""
    line = PRIMITIVES.get(node.target) if node.op == "call_function" else None  # type: ignore[call-overload]
    return None if line is None or line.kind == "extern" else line


def _is_cheap(line: Primitive) -> bool:
    """Whether an operator computes each element alone, in few operations."""
    return line.kind in ("pointwise", "view") and line.scalar not in COSTLY and line.scalar not in QUOTIENTS


def _is_plain(user: Node, product: Node) -> bool:
    """Whether it reads the product itself, or a view of it."""
    for given in user.all_input_nodes:
        while is_view(given):
            given = given.all_input_nodes[0]
        if given is product:
            return True
    return False


def _is_as_large(user: Node, product: Node) -> bool:
    value, whole = user.meta.get("val"), product.meta["val"]
    return isinstance(value, torch.Tensor) and prod(extents(value.shape)) == prod(extents(whole.shape))


def tiles(context: Context, out: Spec, a: LazyTensor, b: LazyTensor, bias: LazyTensor | None = None) -> LazyTensor:
    """`a @ b + bias`, summed up in float32 and rounded once."""
    parts = _loops(context.node, out.size)
    size = (*[n for part in parts for n in part], a.size[-1])
    probe = tuple([Axis(f"x{i}", n).index if n != 1 else ZERO for i, n in enumerate(size)])
    *batch, row, column = _joined(probe, parts)
    sides = ((a, -2, (*batch, row, probe[-1]), out.size[-1]), (b, -1, (*batch, probe[-1], column), out.size[-2]))
    for operand, number, at, times in sides:
        if not (_is_copy(operand, at) or _is_read_once(context, operand, number, times)):
            context.place(operand)  # each element is read many times

    def body(at: Indices) -> Expr:
        *batch, row, column = _joined(at, parts)
        factors = a.load((*batch, row, at[-1])), b.load((*batch, at[-1], column))
        total = e.reduce("sum", e.op("mul", *[e.cast(factor, "f32") for factor in factors]))
        if bias is not None:
            total = e.op("add", total, e.cast(broadcast(bias, (row, column)), "f32"))
        return e.cast(total, out.dtype)

    made = context.reduce(size, [len(size) - 1], out.dtype, body, False)
    return placed(out.size, Place(context.place(made).buffer, contiguous(out.size)))


def _is_copy(operand: LazyTensor, at: Indices) -> bool:
    """Whether an operand lies in memory, or would be a copy of what does, with neighbours side by side there too."""
    if operand.place is not None:
        return False
    read = operand.load(at)
    if read.op != "load" or not read.attr[1].is_linear():
        return False
    return any(read.attr[1].stride(axis) == 1 for index in at[-2:] for axis in index.axes())


def _is_read_once(context: Context, operand: LazyTensor, number: int, times: Extent) -> bool:
    """Whether an operand that only this product needs is cheap to compute, and is computed for one tile of results."""
    given = context.node.args[number] if context.node is not None else None
    if operand.place is not None or not isinstance(given, Node) or hint(times) > ONCE:
        return False
    return operand.weight <= (SINGLE if times == 1 else CHEAP) and context.uses[given].count == 1


def _is_narrow(operand: LazyTensor, dtype: str) -> bool:
    """Whether an element that is computed takes fewer bytes in memory than it would have there itself."""
    at = tuple([Axis(f"x{i}", n).index if n != 1 else ZERO for i, n in enumerate(operand.size)])
    loads = [node for node in postorder([operand.load(at)]) if node.op == "load"]
    own = [node for node in loads if len(node.attr[1].axes()) == len(operand.size)]
    return 0 < sum([ITEMSIZE[node.dtype] for node in own]) < ITEMSIZE[dtype]


def _joined(at: Indices, parts: Sequence[Size]) -> list[Index]:
    """The index of each dim that is several loops."""
    joined, start = [], 0
    for part in parts:
        position = ZERO
        for size in part:
            position = position * size + at[start]
            start += 1
        joined.append(position)
    return joined


def _loops(node: Node | None, size: Size) -> list[Size]:
    """For each dim of a product the dims in which the first view that divides them reads it."""
    for user in node.users if node is not None else ():
        value = user.meta.get("val")
        if is_view(user) and isinstance(value, torch.Tensor):
            parts = divided(size, extents(value.shape))
            if parts is not None and max(map(len, parts)) > 1:
                return parts
    return [(n,) for n in size]


def divided(size: Size, into: Size) -> list[Size] | None:
    """Dims as products of runs of other dims; None where these are no such runs, as far as is known.

    divided((6, 8), (2, 3, 4, 2))  ->  [(2, 3), (4, 2)]
    """
    parts, start = [], 0
    for n in size:
        end = start + 1
        while end < len(into) and prod(into[start:end]) != n:
            end += 1
        if prod(into[start:end]) != n or start >= len(into):
            return None
        parts.append(tuple(into[start:end]))
        start = end
    return parts if all(n == 1 for n in into[start:]) else None
