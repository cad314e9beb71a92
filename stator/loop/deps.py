"""Analyse: what every node of a program reads and writes, and who must come before whom. Pure facts, no decisions.

Nodes are numbered by their place in the program; sets of nodes are bit sets (Python ints). Nodes whose results nobody
needs are left out of `Facts.live`; those with effects never are, and keep their order.
Neighbours: `fusion`, `order` and `apply` read the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from stator.base.effects import Effect
from stator.loop import tables
from stator.loop.collision import scatters
from stator.loop.contraction import contraction
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis, Index, Mod
from stator.loop.masks import LoadBounds, bounds_of_loads
from stator.loop.nest import Extern, Nest, Node, Program, View
from stator.loop.scalar import COSTLY
from stator.sizes import hint

#: Terms of a product up to which a factor is turned over where its terms, not its columns, lie side by side.
SHORT_TERMS = 256
#: Elements that lie in a line.
LINE = 16
#: A buffer of fewer elements than this part of the points that read it stays in a cache.
CACHED = 8
#: Dot products whose readers are computed one by one too, rather than in a kernel of their own.
FEW_DOTS = 512
#: The indices that a node reads, by buffer, and its expression nodes.
Reads: TypeAlias = tuple[dict[str, list[Index]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class NestFacts:
    """One nest's accesses: `reads` has the distinct indices by buffer, `bounds` what masks say of the axes of some,
    `nodes` are those of its expressions, operands first. All programs that have the nest share them."""

    nest: Nest
    reads: dict[str, list[Index]]
    nodes: tuple[Expr, ...]
    ordered: bool  # scans, argmax and argmin: the order of the reduce axes has a meaning
    scans: bool

    rowwise: bool  # a reduction runs along the fast axis of what it reads
    dots: bool  # of long rows of two factors: what becomes of its results is done one by one
    costly: bool
    product: str = ""  # the dtype of the factors, where it is a matrix product
    bounds: LoadBounds = field(default_factory=dict)


#: What each nest reads, and all that is known of it: most nests of a program are those of the one that it was before.
_READS: dict[Nest, Reads] = tables.table()
_FACTS: dict[Nest, NestFacts] = tables.table()


@dataclass(slots=True)
class Facts:
    """`before[n]`: nodes that must run before n, directly. `special`: buffers that take part in no substitution."""

    program: Program
    nests: dict[int, NestFacts]
    live: list[int]
    before: dict[int, set[int]]
    writers: dict[str, list[int]] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    special: set[str] = field(default_factory=set)

    def node(self, number: int) -> Node:
        return self.program.nodes[number]


def analyse(program: Program) -> Facts:
    """The facts of a program, one pass in order."""
    kept = {output.buffer for output in program.outputs if isinstance(output, View)}
    inputs = {buffer.name for buffer in program.inputs}
    reads = [_reads(node) for node in program.nodes]
    live = _live(program, reads, kept | inputs)
    facts = Facts(program, {}, live, {}, kept=kept)
    acted: list[int] = []  # the last of those that stay in order
    checks: list[int] = []
    for number in live:
        node = program.nodes[number]
        if isinstance(node, Nest):
            facts.nests[number] = facts_of(node)
            if scatters(node) or node.buffer.name in inputs or node.buffer.name in facts.writers:
                facts.special.add(node.buffer.name)
        facts.before[number] = _link(facts, number, node, reads[number][0])
        if isinstance(node, Extern) and node.ordered:
            facts.before[number].update(acted)
            acted = [number]
        elif isinstance(node, Extern) and node.effects:
            checks.append(number)
        elif isinstance(node, Nest) and node.buffer.name in inputs:  # what may raise does so before inputs change
            facts.before[number].update(acted, checks)
    return facts


def acts(facts: Facts) -> Iterator[tuple[int, Effect, str]]:
    """The effects of a program in its order: a node, the kind, and which memory of the caller it writes, if any."""
    for number in facts.live:
        node = facts.node(number)
        if isinstance(node, Extern):
            yield from [(number, effect, "") for effect in node.effects]
        elif node.buffer.name in facts.program.mutated:
            yield number, Effect.WRITE, node.buffer.name


def _link(facts: Facts, number: int, node: Node, reads: dict[str, list[Index]]) -> set[int]:
    """Record reads and writes of a node; gives those that must come first."""
    before: set[int] = set()
    for name in reads:
        before.update(facts.writers.get(name, ()))
        facts.readers.setdefault(name, []).append(number)
    for name in written(node):
        if name in facts.writers or name in facts.special:  # a second write: after all that saw the first
            before.update(facts.writers.get(name, ()))
            before.update(facts.readers.get(name, ()))
        facts.writers.setdefault(name, []).append(number)
    before.discard(number)
    return before


def written(node: Node) -> list[str]:
    """The buffers a node writes."""
    return [b.name for b in node.outputs] if isinstance(node, Extern) else [node.buffer.name]


def _reads(node: Node) -> Reads:
    """Indices by buffer (none for an extern's views), and a nest's expression nodes."""
    if isinstance(node, Extern):
        return {view.buffer: [] for view in node.views()}, ()
    if (known := _READS.get(node)) is not None:
        return known
    reads: dict[str, list[Index]] = {}
    nodes = postorder([node.value, *[a.expr for a in node.index.indirects()]])  # type: ignore[list-item]
    for expr in nodes:
        if expr.op == "load":
            name, index = expr.attr
            reads.setdefault(name, []).append(index)
    _READS[node] = reads, nodes
    return reads, nodes


def facts_of(nest: Nest) -> NestFacts:
    """The accesses of a nest, whether it is a node of a program or none."""
    if (known := _FACTS.get(nest)) is None:
        known = _FACTS[nest] = _nest_facts(nest)
    return known


def _nest_facts(nest: Nest) -> NestFacts:
    reads, nodes = _reads(nest)
    scans = any(n.op == "scan" for n in nodes)
    ordered = scans or any(n.op == "reduce" and n.attr in ("argmax", "argmin") for n in nodes)
    rowwise = along_rows([index for indices in reads.values() for index in indices], nest.reduce_axes)
    costly = any(n.op in COSTLY for n in nodes)
    product = contraction([nest.value], nest.axes, nest.reduce_axes) if nest.reduce_axes else None
    return NestFacts(
        nest, reads, nodes, ordered, scans, rowwise, _is_dots(nest), costly, product.dtype if product else "",
        bounds_of_loads(nest.value),
    )  # fmt: skip


def _is_dots(nest: Nest) -> bool:
    """Whether it is a product whose terms lie side by side in both factors, more than are worth turning over."""
    match nest.value.op, nest.reduce_axes:
        case "reduce", (terms,) if nest.value.attr == "sum" and nest.value.args[0].op == "mul":
            reads = [node.attr[1] for node in postorder(nest.value.args) if node.op == "load"]
            long = hint(terms.size) > SHORT_TERMS and hint(prod([axis.size for axis in nest.axes])) > FEW_DOTS
            return long and all(index.stride(terms) == 1 and not index.axes().issuperset(nest.axes) for index in reads)
    return False


def along_rows(reads: Iterable[Index], reduced: tuple[Axis, ...]) -> bool:
    """Whether most of the reads that depend on the most axes have stride 1 along a reduce axis."""
    reads = [index for index in reads if not index.axes().isdisjoint(reduced)]
    most = max([len(index.axes()) for index in reads], default=0)
    votes = 0
    for index in reads:
        if len(index.axes()) == most:
            votes += 1 if any(index.stride(axis) in (1, -1) for axis in reduced) else -1
    return votes >= 0


def lies_across(index: Index, axes: Sequence[Axis], reduce_axes: Sequence[Axis]) -> bool:
    """Whether neighbours along a row are lines apart in memory, and those of several rows side by side."""
    step = index.stride(reduce_axes[-1])
    if step is None or abs(hint(step)) < LINE:
        return False
    sides = [(atom.inner.axes() if isinstance(atom, Mod) else {atom}, factor) for atom, factor in index.terms]
    return any(abs(hint(factor)) == 1 and inner <= set(axes) for inner, factor in sides)


def _live(program: Program, reads: list[Reads], needed: set[str]) -> list[int]:
    live: list[int] = []
    needed = set(needed)
    for number in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[number]
        if not needed.isdisjoint(written(node)) or (isinstance(node, Extern) and bool(node.effects)):
            live.append(number)
            needed.update(reads[number][0])
    live.reverse()
    return live
