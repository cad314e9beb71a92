"""Decide: which nests become one kernel.

Every nest starts as a group of its own. Pairs of groups that share a buffer are tried in order of the bytes that
joining them saves: first producer and consumer (the value stays in registers), then readers of the same buffer. Two
groups join if one's loops map onto the other's such that each buffer made in one is read in the other at exactly the
index where it is made, if no path leads from one to the other through a third, and if the kernel stays within the
device's limits. `FusionPlan` prints what was decided.
Neighbours: `deps` has the facts, `space` the maps, `apply` builds kernels from the plan, `apart` tells of any two nests
why they did not join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from stator.base.device import Device
from stator.loop.collision import disjoint, scatters
from stator.loop.deps import CACHED, Facts, NestFacts, facts_of, lies_across
from stator.loop.index import Index
from stator.loop.mixed import by_rows, is_kept, map_onto, pieces_of
from stator.loop.nest import Extern
from stator.loop.space import AxisMap, Space, composed, flat, is_linear, maps
from stator.sizes import hint

_ROUNDS = 3
_NEAR = 96  # how far apart in the program two readers of a buffer may be, so that results do not live long
_SMALL = 20  # launches: work below is worth joining for the launch alone
_MANY = 12  # candidates for a map that are tried, at most
_LONG = 1 << 15  # elements that are worth threads of their own
#: Places that are a window over what is read, not some neighbours.
_WINDOW = 4
#: Matrix products that share a kernel: each needs registers for a tile of sums.
_PRODUCTS = 2
#: A tensor with so many times the elements that are scattered into it is large beside what these are made of.
FEW = 32


class Refusal(Enum):
    """Why two groups may not join."""

    SIZES = "their loops do not have the same number of points"
    SCATTER = "one scatters, which stays a plain loop, and the other reduces"
    NOTHING = "there is nothing to loop over"
    OPERATIONS = "together they have more operations than a kernel may have"
    BUFFERS = "together they read and write more buffers than a kernel may take"
    DOTS = "dot products come one by one, and what the other computes of each is costly without vectors"
    FEW_ROWS = "the scan of a few long rows has little parallelism, so other long loops stay out of it"
    FEW_COLUMNS = "the reduction down columns has little parallelism, so work needed elsewhere too stays out of it"
    WINDOWS = "the reduction down columns reads a part of each row, and windows of more rows than caches hold"
    COLUMNS = "the reduction down columns does not read what the other makes"
    PRODUCT = "a product is computed in tiles, and only what is computed of each of its results stays with it"
    PRODUCTS = "products that share tiles have the same dtype, and are two"
    SCATTERED = "what is scattered into is large, and the other reads more beside what is scattered than fits with it"
    BETWEEN = "a step must run after one of them and before the other"
    TURNED = "the rows that one reduces lie across those that the other reads or writes in memory"
    MAPS = "no order of their loops makes each read what the other makes at the point where it is made"


class Group:
    """Nests that become one kernel; reads and writes are in terms of the group's own space."""

    __slots__ = (
        "after", "before", "bits", "costly", "dots", "later", "maps", "members", "nodes",
        "ordered", "parts", "products", "reads", "rowwise", "scans", "scatters", "shape", "space", "writes",
    )  # fmt: skip

    def __init__(self, number: int, facts: NestFacts | None, before: int, after: int) -> None:
        self.members = [number]
        self.bits = 1 << number
        self.before = before  # nodes that must run right before some member
        self.after = after  # of each group that must run before some member, a node or more
        self.later = 0  # of each group that must run after some member, a node or more
        self.shape = number  # changes with each join
        self.maps: dict[int, AxisMap | None] = {number: None}
        self.reads: dict[str, list[Index]] = {}
        self.writes: dict[str, Index] = {}
        self.nodes = 0
        self.scatters, self.scans, self.ordered, self.rowwise = False, False, False, True
        self.dots, self.costly = False, False
        self.products: list[str] = []  # the dtype in which each of its matrix products is multiplied
        self.parts = 0  # of each of its sums down columns, where it is a kernel of rows
        self.space = Space((), ())
        if facts is not None:
            self.reads = dict(facts.reads)
            self.writes = {facts.nest.buffer.name: facts.nest.index}
            self.nodes, self.ordered = len(facts.nodes), facts.ordered
            self.space = Space(facts.nest.axes, facts.nest.reduce_axes)
            self.rowwise, self.scans = facts.rowwise, facts.scans
            self.dots, self.costly = facts.dots, facts.costly
            self.products = [facts.product] if facts.product else []
            self.scatters = scatters(facts.nest)

    def loops(self) -> str:
        """The sizes of its axes, and of those that it reduces behind a bar."""
        axes = "×".join(str(axis.size) for axis in self.space.axes) or "1"
        reduced = "×".join(str(axis.size) for axis in self.space.reduce_axes)
        return f"{axes} | {reduced}" if reduced else axes


class Pair(NamedTuple):
    """A chance to join: the buffer that two nodes share, and the bytes it saves."""

    bytes: float
    one: int
    other: int
    buffer: str


@dataclass(slots=True)
class FusionPlan:
    """The groups (externs are groups of one), by their first member, and what was joined for how many bytes."""

    groups: list[Group]
    joined: list[Pair]
    facts: Facts
    #: All pairs that were tried, and what decided.
    tried: list[Pair]
    decision: Decision

    def reason(self, group: Group) -> str:
        """Why the nests of a group are one kernel."""
        saved = [pair.bytes for pair in self.joined if group.bits >> pair.one & 1]
        launches = ", and for launches" if 0.0 in saved else ""
        return f"{len(group.members)} nests, joined for {sum(saved):.0f} bytes{launches}" if saved else ""

    def text(self) -> str:
        """One line a group, then one line a join."""
        out = []
        for group in self.groups:
            node = self.facts.node(group.members[0])
            if isinstance(node, Extern):
                out.append(f"extern {node.name}")
                continue
            out.append(f"group [{group.loops()}] {', '.join(group.writes)}")
        for pair in self.joined:
            one, other = (self.facts.nests[n].nest.buffer.name for n in (pair.one, pair.other))
            out.append(f"  joined {one} and {other} through {pair.buffer}: {pair.bytes:.0f} bytes")
        return "\n".join(out) + "\n"


def decide(facts: Facts, device: Device) -> FusionPlan:
    """The plan for a program."""
    return Decision(facts, device).run()


class Decision:
    """The state of the decision: the group of each node, and which pairs failed in the shape they had."""

    def __init__(self, facts: Facts, device: Device) -> None:
        self.facts, self.device = facts, device
        self.group: dict[int, Group] = {}
        self.joined: list[Pair] = []
        self.failed: set[tuple[int, int]] = set()
        self.bytes = {name: hint(buffer.nbytes) for name, buffer in facts.program.buffers.items()}
        for number in facts.live:
            before = after = 0
            for earlier in facts.before[number]:
                before |= 1 << earlier
                after |= self.group[earlier].after
            self.group[number] = Group(number, facts.nests.get(number), before, before | after)
        for number in reversed(facts.live):
            follow = self.group[number].later | 1 << number
            for earlier in facts.before[number]:
                self.group[earlier].later |= follow
        self.groups = set(self.group.values())
        self.shapes = len(facts.program.nodes)

    def run(self) -> FusionPlan:
        vertical, horizontal = self._vertical(), self._horizontal()
        for _ in range(_ROUNDS):
            before = len(self.joined)
            for pairs in (vertical, horizontal):
                for pair in pairs:
                    self._try(pair)
            if len(self.joined) == before:
                break
        self._mix()
        self._pack()
        groups = sorted(self.groups, key=lambda group: group.members[0])
        return FusionPlan(groups, self.joined, self.facts, vertical + horizontal, self)

    # -- candidates --------------------------------------------------------------------------------

    def _vertical(self) -> list[Pair]:
        """Producer and consumer: the read is saved, and the write too if nobody else reads."""
        facts, pairs = self.facts, []
        for name, writers in facts.writers.items():
            if writers[0] not in facts.nests or len(writers) > 1:
                continue
            readers = facts.readers.get(name, [])
            saved = self.bytes[name] * (2 if len(readers) == 1 and name not in facts.kept else 1)
            for reader in readers:
                if reader in facts.nests and reader > writers[0]:
                    worth = float(saved + self._common(writers[0], reader))
                    if not facts.nests[reader].rowwise:
                        worth /= 4
                    pairs.append(Pair(worth, writers[0], reader, name))
        for name in facts.special:  # a mutation joins the nests that read the old value
            for writer in facts.writers[name]:
                early = [n for n in facts.readers.get(name, ()) if n < writer and n in facts.nests]
                pairs += [Pair(self.bytes[name], reader, writer, name) for reader in early if writer in facts.nests]
        return sorted(pairs, key=lambda pair: (-pair.bytes, pair.one, pair.other))

    def _common(self, one: int, other: int) -> int:
        """Bytes that both nests read."""
        ours, theirs = self.facts.nests[one].reads, self.facts.nests[other].reads
        return sum([self.bytes[name] for name in ours if name in theirs])

    def _horizontal(self) -> list[Pair]:
        """Neighbouring readers of one buffer."""
        facts, pairs = self.facts, []
        for name, readers in facts.readers.items():
            nests = [n for n in readers if n in facts.nests]
            for step in (1, 2):
                for one, other in zip(nests, nests[step:], strict=False):
                    if other - one <= _NEAR:
                        pairs.append(Pair(self.bytes[name], one, other, name))
        for name in facts.special:  # the parts of one buffer
            writers = [n for n in facts.writers[name] if n in facts.nests]
            pairs += [Pair(self.bytes[name], a, b, name) for a, b in pairwise(writers)]
        return sorted(pairs, key=lambda pair: (-pair.bytes, pair.one, pair.other))

    # -- joining -----------------------------------------------------------------------------------

    def _try(self, pair: Pair) -> None:
        one, other = self.group[pair.one], self.group[pair.other]
        shapes = one.shape, other.shape
        if one is other or shapes in self.failed:
            return
        if self.refusal(one, other) is not None or (found := self.unify(one, other)) is None or self.turns(*found):
            self.failed.add(shapes)
            return
        self._join(*found)
        self.joined.append(pair)

    def refusal(self, one: Group, other: Group) -> Refusal | None:
        """Sizes, limits, loops that suit each other, and no way between them through a third group."""
        a, b = one.space, other.space
        sizes = {s.numel * s.reduce_numel for s in (a, b)}
        if len(sizes) > 1 and not (a.numel == b.numel and bool(a.reduce_axes) != bool(b.reduce_axes)):
            return Refusal.SIZES
        if (one.scatters or other.scatters) and (a.reduce_axes or b.reduce_axes):
            return Refusal.SCATTER
        if 0 in sizes:
            return Refusal.NOTHING
        if one.nodes + other.nodes > self.device.max_nodes:
            return Refusal.OPERATIONS
        touched = one.reads.keys() | one.writes.keys() | other.reads.keys() | other.writes.keys()
        if len(touched) > self.device.max_params and self._params(one, other) > self.device.max_params:
            return Refusal.BUFFERS
        if (unsuited := self._unsuited(one, other)) is not None:
            return unsuited
        if self._crowds(one, other):
            return Refusal.SCATTERED
        return Refusal.BETWEEN if self.between(one, other) is not None else None

    def _unsuited(self, one: Group, other: Group) -> Refusal | None:
        """A reduction down columns has little parallelism: work that is needed elsewhere too stays out of it.

        So does any work out of a scan of a few long rows, and out of dot products what is costly one by one.
        """
        if self.device.tile_products and (one.products or other.products):
            return self._no_tiles(one, other)
        for reduction, pointwise in ((one, other), (other, one)):
            if reduction.dots and pointwise.costly and not pointwise.space.reduce_axes:
                return Refusal.DOTS
            few = reduction.scans and hint(reduction.space.numel) < self.device.cores
            if few and not pointwise.space.reduce_axes and hint(pointwise.space.numel) > _LONG:
                return Refusal.FEW_ROWS
            if reduction.rowwise or pointwise.space.reduce_axes or pointwise.space.numel == reduction.space.numel:
                continue
            inside = reduction.bits | pointwise.bits
            few = hint(reduction.space.numel) < self.device.full_columns
            far = self._windows(pointwise) > self.device.cores * self.device.cache_bytes
            if (few or far) and any(escapes(name, inside, self.facts) for name in pointwise.writes):
                return Refusal.FEW_COLUMNS if few else Refusal.WINDOWS
            needs = pointwise.reads.keys() & reduction.writes.keys() if self.device.min_columns else ()
            if not needs and not pointwise.writes.keys() & reduction.reads.keys():
                return Refusal.COLUMNS
        return None

    def _no_tiles(self, one: Group, other: Group) -> Refusal | None:
        """Why a kernel of both would not be tiles of products, which they are apart."""
        if one.products and other.products:
            alike = len({*one.products, *other.products}) == 1
            return None if alike and len(one.products) + len(other.products) <= _PRODUCTS else Refusal.PRODUCTS
        product, reader = (one, other) if one.products else (other, one)
        plain = not reader.space.reduce_axes and not reader.scatters
        return None if plain and reader.space.numel == product.space.numel else Refusal.PRODUCT

    def _windows(self, group: Group) -> int:
        """Bytes of the buffers that a group reads in several places for each point of its loops."""
        return sum([self.bytes[name] for name, places in group.reads.items() if len(places) >= _WINDOW])

    def _crowds(self, one: Group, other: Group) -> bool:
        """A large buffer that is scattered into stands beside what is scattered, not beside all that this is made of.

        scatter(f(a, b)), scatter(c)  -->  v = f(a, b), of which a and b are given back; scatter(v); scatter(c)
        """
        for scatter, joining in ((one, other), (other, one)):
            if not scatter.scatters:
                continue
            around = max(map(self.bytes.__getitem__, scatter.writes))
            made = sum([self.bytes[name] for name in joining.writes.keys() & scatter.reads.keys()])
            beside = sum([self.bytes[name] for name in joining.reads.keys() - scatter.reads.keys()])
            if beside > made and around > max(made * FEW, self.device.cache_bytes):
                return True
        return False

    def _params(self, one: Group, other: Group) -> int:
        inside = one.bits | other.bits
        written = one.writes.keys() | other.writes.keys()
        stored = [name for name in written if escapes(name, inside, self.facts)]
        return len(stored) + len((one.reads.keys() | other.reads.keys()) - written)

    def between(self, one: Group, other: Group) -> Group | None:
        """A group outside of both that must run after one of them and before the other."""
        both = one.bits | other.bits
        for first, last in ((one, other), (other, one)):
            if not last.after & first.bits:
                continue
            direct = last.before & ~both
            while direct:
                number = direct.bit_length() - 1
                group = self.group[number]
                if group.after & first.bits:
                    return group
                direct &= ~group.bits & ~(1 << number)
        return None

    def unify(self, one: Group, other: Group) -> tuple[Group, Group, AxisMap] | None:
        """(target, source, map of the source's axes), or None."""
        ways = [(one, other), (other, one)]  # (source, target)
        if bool(one.space.reduce_axes) != bool(other.space.reduce_axes):
            ways = [ways[0] if other.space.reduce_axes else ways[1]]
        elif len(one.space.axes) > len(other.space.axes):
            ways.reverse()
        for source, target in ways:
            shared = self._shared(source, target)
            for found in maps(source.space, target.space, shared[:_MANY]):
                agree = self._agree(source, target, found) and self._same_order(source, target, found)
                if agree and (is_linear(found) or self._keeps_simple(source, found)):
                    return target, source, found
        return None

    def _keeps_simple(self, source: Group, found: AxisMap) -> bool:
        """Whether a map under which an axis is a part of another leaves all positions of plain loops without parts.

        a[i, j, k] of (2, 64, 8)  -->  a[512·(r // 64) + 8·(r % 64) + k] = a[8·r + k] for r < 128
        """
        if source.space.reduce_axes:
            return False
        for number, own in source.maps.items():
            nodes = self.facts.nests[number].nodes
            read = [node.attr[1] if node.op == "load" else node.attr for node in nodes if node.op in ("load", "index")]
            for index in (*read, self.facts.nests[number].nest.index):
                earlier = index.substitute(own or {})
                if earlier.is_linear() and not earlier.substitute(found).is_linear():
                    return False
        return True

    def turns(self, target: Group, source: Group, found: AxisMap) -> bool:
        """Whether a kernel of rows would read or write across them in memory what the other has there.

        A row's neighbours are then a line apart, and each row of a GPU's programs moves whole lines; a kernel of tiles
        moves them once, and reads again what fits it.
        """
        rows = target.space
        if self.device.host or source.space.reduce_axes or not rows.reduce_axes or not target.rowwise:
            return False
        inside, points = source.bits | target.bits, hint(rows.numel * rows.reduce_numel)
        touched = [(name, index) for name, index in source.writes.items() if escapes(name, inside, self.facts)]
        made = source.writes.keys() | target.writes.keys() | target.reads.keys()
        touched += [(name, index) for name, places in source.reads.items() if name not in made for index in places]
        buffers = self.facts.program.buffers
        large = [index for name, index in touched if hint(buffers[name].numel) * CACHED > points]
        return any(lies_across(index.substitute(found), rows.axes, rows.reduce_axes) for index in large)

    def _shared(self, source: Group, target: Group) -> list[tuple[Index, Index]]:
        """Pairs of accesses to the same buffer, the largest buffers and the written ones first."""
        names = (source.reads.keys() | source.writes.keys()) & (target.reads.keys() | target.writes.keys())
        made = source.writes.keys() | target.writes.keys()
        pairs = []
        for name in sorted(names, key=lambda name: (name not in made, -self.bytes[name], name)):
            ours = [source.writes[name]] if name in source.writes else source.reads[name][:2]
            theirs = [target.writes[name]] if name in target.writes else target.reads[name][:2]
            pairs += [(a, b) for a in ours for b in theirs]
        return pairs

    def _agree(self, source: Group, target: Group, found: AxisMap) -> bool:
        """Whether under the map each buffer made by one is read by the other exactly where it is made."""
        if any(not self._apart(name, source, target, found) for name in source.writes.keys() & target.writes.keys()):
            return False
        for name in source.writes.keys() & target.reads.keys():
            made = source.writes[name].substitute(found)
            if any(index is not made for index in target.reads[name]) or not self._ordered(name, source, target):
                return False
        for name in target.writes.keys() & source.reads.keys():
            made = target.writes[name]
            wrong = any(index.substitute(found) is not made for index in source.reads[name])
            if wrong or not self._ordered(name, target, source):
                return False
        return self._connected(source, target) or self._reads_alike(source, target, found)

    def _apart(self, name: str, source: Group, target: Group, found: AxisMap) -> bool:
        """Whether both write different elements of a buffer, in plain loops, and neither reads it."""
        if source.scatters or target.scatters or source.space.reduce_axes or target.space.reduce_axes:
            return False
        if name in source.reads or name in target.reads:
            return False
        nests = self.facts.nests
        theirs = [nests[n].nest.index.substitute(target.maps[n] or {}) for n in self._writers(name, target)]
        ours = [nests[n].nest.index.substitute(composed(source.maps[n], found)) for n in self._writers(name, source)]
        return all(disjoint(a, b) for a in ours for b in theirs)

    def _writers(self, name: str, group: Group) -> list[int]:
        return [number for number in self.facts.writers[name] if group.bits >> number & 1]

    def _connected(self, source: Group, target: Group) -> bool:
        return any(not a.keys().isdisjoint(b) for a, b in (
            (source.writes, target.reads), (target.writes, source.reads), (source.writes, target.writes),
        ))  # fmt: skip

    def _reads_alike(self, source: Group, target: Group, found: AxisMap) -> bool:
        """Readers of one buffer: an access must be the same, or the saved launch must count against the work."""
        if not (source.space.reduce_axes or target.space.reduce_axes):
            work = 4 * hint(source.space.numel) / self.device.bandwidth
            if work < _SMALL * self.device.launch_cost:
                return True
        for name in (source.reads.keys() & target.reads.keys()) - self.facts.special:
            theirs = set(target.reads[name])
            if any(index.substitute(found) in theirs for index in source.reads[name]):
                return True
        return False

    def _ordered(self, name: str, writer: Group, reader: Group) -> bool:
        """A buffer that is mutated joins only its earlier readers, pointwise, so that they see the old value."""
        facts = self.facts
        if name not in facts.special:
            return True
        if len(facts.writers[name]) > 1 or writer.space.reduce_axes or reader.space.reduce_axes:
            return False
        last = max(n for n in reader.members if n in facts.readers[name])
        nest = facts.nests[facts.writers[name][0]].nest
        return not scatters(nest) and last < facts.writers[name][0]

    def _same_order(self, source: Group, target: Group, found: AxisMap) -> bool:
        """argmax and argmin give positions: their reduce axes must keep their order. So must the loops of scatters."""
        if source.scatters and flat(source.space.axes).substitute(found) is not flat(target.space.axes):
            return False
        if not (source.ordered or (target.ordered and source.space.reduce_axes)):
            return True
        position = Index.of(0)
        for axis in source.space.reduce_axes:
            position = position * axis.size + found.get(axis, Index.of(0))
        theirs = Index.of(0)
        for axis in target.space.reduce_axes:
            theirs = theirs * axis.size + axis
        return position is theirs

    def _join(self, target: Group, source: Group, found: AxisMap) -> None:
        """The source's nests become members of the target."""
        for number, earlier in source.maps.items():
            target.maps[number] = composed(earlier, found)
            self.group[number] = target
        target.members = sorted(target.members + source.members)
        target.bits |= source.bits
        target.nodes += source.nodes
        target.ordered = target.ordered or source.ordered
        target.scatters = target.scatters or source.scatters
        target.scans = target.scans or source.scans
        target.dots, target.costly = target.dots or source.dots, target.costly or source.costly
        target.products = target.products + source.products
        for name, indices in source.reads.items():
            known = target.reads.setdefault(name, [])
            target.reads[name] = known + [i for i in _mapped(indices, found) if i not in known]
        for name, index in source.writes.items():
            target.writes[name] = index.substitute(found)
        self.shapes += 1
        target.shape = self.shapes
        self._spread(target, source)

    def _mix(self) -> None:
        """Parts of sums down columns go to the kernel of rows that reads the most of what they do, see `mixed`."""
        if not self.device.row_parts:
            return
        kept = [g for g in self.groups if g.space.reduce_axes and is_kept(g.space.reduce_numel, self.device)]
        for columns in sorted(self.groups, key=lambda group: group.members[0]):
            nests = [self.facts.nests[n].nest for n in columns.members if n in self.facts.nests]
            parts = [by_rows(nest) for nest in nests] if columns.space.reduce_axes and not columns.rowwise else []
            if not parts or None in parts or columns.reads.keys() & columns.writes.keys():
                continue
            if any(pieces_of(nest) * 2 < self.device.cores for nest in nests):  # a program for each
                continue
            shared = {rows: (rows.reads.keys() | rows.writes.keys()) & columns.reads.keys() for rows in kept}
            worth = {rows: float(sum([self.bytes[name] for name in names])) for rows, names in shared.items()}
            name, counts = nests[0].buffer.name, {pieces_of(nest) for nest in nests}
            for rows in sorted(kept, key=lambda group: (-worth[group], group.members[0])):
                facts = [facts_of(part) for part in parts if part is not None]
                alike = len(counts | {rows.parts} - {0}) == 1  # a program has as many rows for all of them
                if alike and worth[rows] and rows in self.groups and self._joins_rows(rows, columns, facts):
                    (rows.parts,) = counts
                    self.joined.append(Pair(worth[rows], rows.members[0], columns.members[0], name))
                    break

    def _joins_rows(self, rows: Group, columns: Group, facts: list[NestFacts]) -> bool:
        """Whether parts of sums down columns, as nests over all rows and columns, joined a kernel of rows."""
        sizes = {group.space.numel * group.space.reduce_numel for group in (rows, columns)}
        if len(sizes) > 1 or rows.scans or not rows.rowwise or rows.reads.keys() & columns.writes.keys():
            return False
        if rows.nodes + columns.nodes > self.device.max_nodes or self._params(rows, columns) > self.device.max_params:
            return False
        touched = rows.reads | {name: [index] for name, index in rows.writes.items()}
        found = [map_onto(each, rows.space, touched) for each in facts]
        reads: dict[str, list[Index]] = {}
        for each, mapping in zip(facts, found, strict=True):
            for name, indices in each.reads.items() if mapping is not None else ():
                reads.setdefault(name, []).extend(_mapped(indices, mapping or {}))
        made = [(rows.writes[name], index) for name in reads.keys() & rows.writes.keys() for index in reads[name]]
        special = self.facts.special & (rows.writes.keys() | columns.writes.keys())
        if None in found or special or any(ours is not index for ours, index in made):
            return False
        if self.between(rows, columns) is not None:
            return False
        for number, each, mapping in zip(columns.members, facts, found, strict=True):
            self.facts.nests[number], columns.maps[number] = each, mapping
            columns.writes[each.nest.buffer.name] = each.nest.index.substitute(mapping or {})
        columns.reads = {name: list(dict.fromkeys(indices)) for name, indices in reads.items()}
        self._join(rows, columns, {})
        return True

    def _pack(self) -> None:
        """Small kernels of the same loops that share nothing, where a launch costs more than they do."""
        found: dict[tuple[object, ...], Group] = {}
        for group in sorted(self.groups, key=lambda group: group.members[0]) if self.device.packs else ():
            space = group.space
            work = 4 * hint(space.numel * space.reduce_numel) / self.device.bandwidth
            if not group.nodes or group.scatters or group.ordered or group.parts or work > self.device.launch_cost:
                continue
            sizes = tuple([tuple([axis.size for axis in axes]) for axes in space])
            if (first := found.get((sizes, group.rowwise))) is not None and self._shares_nothing(first, group):
                mine, theirs = (one.axes + one.reduce_axes for one in (space, first.space))
                self._join(first, group, {axis: other.index for axis, other in zip(mine, theirs, strict=True)})
                self.joined.append(Pair(0.0, first.members[0], group.members[0], next(iter(group.writes))))
            else:
                found[sizes, group.rowwise] = group

    def _shares_nothing(self, first: Group, second: Group) -> bool:
        """Whether groups that are near each other may join as they are, neither of which needs the other."""
        if second.members[-1] - first.members[0] > _NEAR or self.refusal(first, second) is not None:
            return False
        touched = [group.reads.keys() | group.writes.keys() for group in (first, second)]
        written = first.writes.keys() | second.writes.keys()
        return written.isdisjoint(touched[0] & touched[1]) and written.isdisjoint(self.facts.special)

    def _spread(self, target: Group, source: Group) -> None:
        """Keep `after` and `later` transitive: all that follows a member follows what any member follows.

        `after` has some bit of each group that runs before, not every one: what followed one of the two has a bit of
        the joined group already, and learns something only where the other follows what this one did not. So a join
        costs what it changes, and a step of a long chain that takes in a neighbour changes nothing for the rest.
        """
        self.groups.discard(source)
        bits = target.bits
        for one, other in ((target, source), (source, target)):
            after, later = other.after & ~bits, other.later & ~bits
            if after & ~one.after:
                for group in self._groups(one.later & ~other.later & ~bits):
                    group.after |= after
            if later & ~one.later:
                for group in self._groups(one.after & ~other.after & ~bits):
                    group.later |= later
        target.before = (target.before | source.before) & ~bits
        target.after = (target.after | source.after) & ~bits
        target.later = (target.later | source.later) & ~bits

    def _groups(self, numbers: int) -> Iterator[Group]:
        """The groups of these nodes."""
        while numbers:
            number = numbers.bit_length() - 1
            group = self.group[number]
            yield group
            numbers &= ~group.bits


def escapes(name: str, inside: int, facts: Facts) -> bool:
    """Whether a buffer is needed outside of these nodes."""
    if name in facts.kept or name in facts.special:
        return True
    return any(not inside >> reader & 1 for reader in facts.readers.get(name, ()))


def _mapped(indices: Iterable[Index], found: AxisMap) -> list[Index]:
    return [index.substitute(found) for index in indices]
