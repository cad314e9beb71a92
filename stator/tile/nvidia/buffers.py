"""Buffers in shared memory that the IR has: loads and stores of tiles, copies from global memory, matrices.

A buffer is the byte at which it begins, as i32. `stator.tile.layouts` plans which registers go to which bytes, as wide
vectors as they fit; operands of tensor cores of 16 bits come by `ldmatrix`, copies by `cp.async`. Barriers are
operations of the IR. Neighbours: `stator.tile.gpu` has placed the buffers; `threads` has the room behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.cpu.casts import memory, unpack
from stator.tile.gpu.operators import buffer, content, slot_bytes
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.types import DType, Element
from stator.tile.layouts.access import Access, Matrices, plan_access, plan_matrices
from stator.tile.layouts.conversion import ThroughShared, plan_conversion
from stator.tile.layouts.linear import Base, Layout
from stator.tile.layouts.memory import Shared
from stator.tile.nvidia.access import global_load
from stator.tile.nvidia.exchange import fetch
from stator.tile.nvidia.threads import SHARED
from stator.tile.nvidia.writer import Registers, Results, Writer, operation

#: Bytes that one copy may have.
_COPIES = (4, 8, 16)


def layout_of(value: Value) -> Layout:
    assert isinstance(value.type.layout, Layout)
    return value.type.layout


@operation("local_alloc")
def local_alloc(w: Writer, o: Operation) -> Results:
    return [[str(o.attrs["offset"])]]


@operation("local_index")
def local_index(w: Writer, o: Operation) -> Results:
    (base,), (number,) = (w.get(operand) for operand in o.operands)
    moved = w.m.op("mul", "i32", number, str(slot_bytes(o.operands[0].type)))
    return [[w.m.op("add", "i32", base, moved)]]


@operation("local_permute")
def local_permute(w: Writer, o: Operation) -> Results:
    return [w.get(o.operands[0])]


class Addresses:
    """Where a thread's vectors lie in a buffer."""

    def __init__(
        self, w: Writer, base: str, lane: Sequence[int], warp: Sequence[int], shared: Shared, size: int
    ) -> None:
        self.w, self.base, self.shared, self.size = w, base, shared, size
        self.own = w.thread_bits([*lane, *warp])
        self.taken = 0
        for offset in (*lane, *warp):
            self.taken |= offset

    def at(self, offset: int) -> str:
        """A pointer to an offset, in elements, that the thread's own is added to by exclusive or."""
        byte, rest = self._byte(offset)
        found = self.w.code.value(f"getelementptr i8, ptr addrspace(3) {SHARED}, i32 {byte}")
        return self.w.code.value(f"getelementptr i8, ptr addrspace(3) {found}, i32 {rest}") if rest else found

    def address(self, offset: int) -> str:
        """The same as a number of 32 bits, as instructions take it."""
        byte, rest = self._byte(offset)
        found = self.w.m.op("add", "i32", self.w.shared_address(), byte)
        return self.w.m.op("add", "i32", found, str(rest)) if rest else found

    def _byte(self, offset: int) -> tuple[str, int]:
        """A byte of the room, and how many bytes behind it."""
        m, (interval, pad) = self.w.m, self.shared.padding
        plain = not offset & self.taken and not interval
        place = self.own if plain else m.op("xor", "i32", self.own, str(offset))
        if interval:
            gaps = m.op("udiv", "i32", place, str(interval))
            place = m.op("add", "i32", place, m.op("mul", "i32", gaps, str(pad)))
        byte = m.op("add", "i32", self.base, m.op("mul", "i32", place, str(self.size)))
        return byte, offset * self.size if plain else 0


@operation("convert_layout")
def convert_layout(w: Writer, o: Operation) -> Results:
    """Through shared memory as the plan says, where what a thread or its warp has is not enough."""
    source, element = o.operands[0], o.result.type.element
    values, size = w.get(source), element.itemsize
    plan = plan_conversion(layout_of(source), layout_of(o.result), size)
    if not isinstance(plan, ThroughShared):
        return [fetch(w, element, values, w.places(source), w.places(o.result))]
    w.exchange(plan.shared.size * size)
    at = Addresses(w, str(w.base), plan.store.lane, plan.store.warp, plan.shared, size)
    for vector in plan.store.vectors:
        w.put(element, [values[registers[0]] for registers in vector.registers], at.at(vector.offset))
    w.barrier()
    at = Addresses(w, str(w.base), plan.load.lane, plan.load.warp, plan.shared, size)
    return [_loaded(w, element, plan.load, at, w.places(o.result).count)]


def _loaded(w: Writer, element: Element, plan: Access, places: Addresses, count: int) -> Registers:
    found = [""] * count
    for vector in plan.vectors:
        loaded = w.take(element, plan.width, places.at(vector.offset))
        for value, registers in zip(loaded, vector.registers, strict=True):
            for register in registers:
                found[register] = value
    return found


def _places(w: Writer, value: Value, layout: Layout, start: Base | None = None) -> tuple[Access, Addresses, DType]:
    dtype, shared = content(value.type), buffer(value.type)
    plan = plan_access(layout, shared, dtype.itemsize, start)
    (base,) = w.get(value)
    return plan, Addresses(w, base, plan.lane, plan.warp, shared, dtype.itemsize), dtype


@operation("local_store")
def local_store(w: Writer, o: Operation) -> Results:
    values = w.get(o.operands[1])
    plan, places, dtype = _places(w, o.operands[0], layout_of(o.operands[1]))
    for vector in plan.vectors:
        w.put(dtype, [values[registers[0]] for registers in vector.registers], places.at(vector.offset))
    return []


@operation("local_load")
def local_load(w: Writer, o: Operation) -> Results:
    layout, source, start = layout_of(o.result), o.operands[0], o.attrs["start"]
    dtype, shared = content(source.type), buffer(source.type)
    plan = plan_matrices(layout, shared, dtype.itemsize, start)
    if plan is None:
        access, places, _ = _places(w, source, layout, start)
        found = _loaded(w, dtype, access, places, layout.registers)
        if o.result in w.are_words:
            return [[w.word(dtype, found[place : place + 2]) for place in range(0, len(found), 2)]]
        return [found]
    words = _matrices(w, source, plan, layout)
    if o.result in w.are_words:
        return [words]
    return [[number for word in words for number in _halves(w, dtype, word)]]


def _halves(w: Writer, dtype: DType, word: str) -> Registers:
    kind = memory(dtype)
    pair = w.code.value(f"bitcast i32 {word} to <2 x {kind}>")
    return [unpack(w.m, dtype, value) for value in w.parts(kind, 2, pair)]


def _matrices(w: Writer, source: Value, plan: Matrices, layout: Layout) -> Registers:
    """Words of two neighbouring registers, of one, two or four matrices of 8 by 8 at a time."""
    dtype = content(source.type)
    (base,) = w.get(source)
    places = Addresses(w, base, plan.lane, plan.warp, buffer(source.type), dtype.itemsize)
    found = [""] * (layout.registers // 2)
    for offset, words in plan.groups:
        count = len(words)
        names = ", ".join([f"${i}" for i in range(count)])
        way = ".trans" if plan.transposed else ""
        text = f"ldmatrix.sync.aligned.m8n8.x{count}{way}.shared.b16 {{{names}}}, [${count}];"
        loaded = w.assembly(text, ["=r"] * count + ["r"], ["i32"] * count, [("i32", places.address(offset))])
        for word, (first, _) in zip(loaded, words, strict=True):
            found[first // 2] = word
    return found


# ---- copies


@operation("async_copy")
def async_copy(w: Writer, o: Operation) -> Results:
    """Vectors that lie side by side in both memories; what is too narrow for a copy goes through registers."""
    target, source = o.operands[:2]
    pointers = w.get(source)
    mask = w.get(o.operands[2]) if len(o.operands) > 2 else None
    other: Registers | None = w.get(o.operands[3]) if len(o.operands) > 3 else None
    if other is not None and set(other) == {w.zero(o.operands[3].type.element)}:
        other = None  # which is what a copy leaves where its mask does not hold
    plan, places, dtype = _places(w, target, layout_of(source))
    width = min(plan.width, o.attrs["vector"])
    w.before_access(o)
    for vector in plan.vectors:
        for first in range(0, plan.width, width):
            part = [registers[0] for registers in vector.registers[first : first + width]]
            guard = mask[part[0]] if mask else "true"
            if width * dtype.itemsize not in _COPIES or part != list(range(part[0], part[0] + width)):
                for place, each in enumerate(part):
                    rest = [other[each]] if other else None
                    (value,) = global_load(w, dtype, pointers[each], mask[each] if mask else "true", rest)
                    w.put(dtype, [value], places.at(vector.offset + first + place))
                continue
            address = places.address(vector.offset + first)
            _copy(w, address, pointers[part[0]], width * dtype.itemsize, guard, o)
            if other is not None and guard != "true":
                with w.code.when(w.m.op("xor", "i1", guard, "true")):
                    w.put(dtype, [other[each] for each in part], places.at(vector.offset + first))
    return []


def _copy(w: Writer, address: str, pointer: str, nbytes: int, mask: str, o: Operation) -> None:
    """Zeros where the mask does not hold."""
    cache = "cg" if nbytes == 16 and o.attrs["cache"] != ".ca" else "ca"
    given = [("i32", address), ("i64", pointer)]
    if mask == "true":
        w.assembly(f"cp.async.{cache}.shared.global [$0], [$1], {nbytes};", ["r", "l"], [], given)
        return
    size = w.m.select(mask, "i32", str(nbytes), "0")
    text = f"cp.async.{cache}.shared.global [$0], [$1], {nbytes}, $2;"
    w.assembly(text, ["r", "l", "r"], [], [*given, ("i32", size)])


@operation("proxy_fence")
def proxy_fence(w: Writer, o: Operation) -> Results:
    w.assembly("fence.proxy.async.shared::cta;", ["~{memory}"], [], [])
    return []


@operation("async_commit")
def async_commit(w: Writer, o: Operation) -> Results:
    w.assembly("cp.async.commit_group;", [], [], [])
    return []


@operation("async_wait")
def async_wait(w: Writer, o: Operation) -> Results:
    w.assembly(f"cp.async.wait_group {o.attrs['pending']};", ["~{memory}"], [], [])
    return []
