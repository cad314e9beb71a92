"""Global memory: loads and stores of as many elements at once as lie side by side, and atomics.

So many of a thread's registers in a row are one access as the operation says (`stator.tile.gpu.coalesce` has found
that). Accesses are instructions of PTX with a predicate for the mask, so that nothing branches.
Of threads that hold the same element one stores it.
Neighbours: `kernel` calls these for its operations, `threads` has registers and words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from stator.tile.cpu.casts import memory, pack, register, unpack
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.types import BF16, F32, DType, Element, Pointer
from stator.tile.nvidia.exchange import through_memory
from stator.tile.nvidia.writer import Registers, Results, Writer, operation

#: Letters of the registers of words, by their bits; there are none of 8.
_LETTERS = {8: "h", 16: "h", 32: "r", 64: "l"}


def pointee(value: Value) -> Element:
    """What lies where pointers point."""
    element = value.type.element
    assert isinstance(element, Pointer)
    return element.to


def _words(element: Element, count: int) -> tuple[int, int]:
    """Of an access: how many words, and of how many bits."""
    nbytes = count * element.itemsize
    if element.itemsize == 8:
        return count, 64
    return (1, 8 * nbytes) if nbytes < 4 else (nbytes // 4, 32)


def _to_words(w: Writer, element: Element, values: Sequence[str]) -> list[str]:
    """Numbers as the words of an access, i16 for bytes."""
    if element == BF16 and len(values) > 1:
        return [w.m.of_bfloats(low, high) for low, high in zip(values[::2], values[1::2], strict=True)]
    type_ = memory(element)
    count, bits = _words(element, len(values))
    kind, vector = w.vector(type_, [pack(w.m, element, value) for value in values])
    whole = f"i{bits}" if count == 1 else f"<{count} x i{bits}>"
    if kind != whole:
        vector = w.code.value(f"bitcast {kind} {vector} to {whole}")
    words = w.parts(f"i{bits}", count, vector)
    return [w.m.convert("zext", "i8", "i16", word) for word in words] if bits == 8 else words


def _from_words(w: Writer, element: Element, words: Sequence[str], count: int) -> list[str]:
    if element == BF16 and count > 1:
        return [value for word in words for value in w.m.bfloats(word)]
    type_ = memory(element)
    _, bits = _words(element, count)
    given = [w.m.convert("trunc", "i16", "i8", word) for word in words] if bits == 8 else words
    whole, vector = w.vector(f"i{bits}", given)
    kind = type_ if count == 1 else f"<{count} x {type_}>"
    if kind != whole:
        vector = w.code.value(f"bitcast {whole} {vector} to {kind}")
    return [unpack(w.m, element, value) for value in w.parts(type_, count, vector)]


def _hints(attrs: dict[str, object]) -> str:
    """How an access is to use the caches; what it says of eviction goes first, for both cannot be said."""
    if attrs.get("volatile"):
        return ""
    eviction = attrs["eviction"]
    return f".L1::{eviction}" if eviction else str(attrs["cache"])


def _kind(count: int, bits: int) -> str:
    return (f".v{count}" if count > 1 else "") + f".b{bits}"


@operation("load")
def load(w: Writer, o: Operation) -> Results:
    pointers, places, element = w.get(o.operands[0]), w.places(o.operands[0]), pointee(o.operands[0])
    mask = w.get(o.operands[1]) if len(o.operands) > 1 else None
    other = w.get(o.operands[2]) if len(o.operands) > 2 else None
    count, equal = o.attrs["vector"], range(places.count) if o.attrs["volatile"] else w.equal(o.result)
    w.before_access(o)
    found: dict[int, str] = {}
    for first in places.first:
        if first in found:
            continue
        part = range(first, first + count)
        if all(equal[each] in found for each in part):
            found.update({each: found[equal[each]] for each in part})
            continue
        rest = [other[r] for r in part] if other is not None else None
        given = _load(w, element, pointers[first], count, mask[first] if mask else "", rest, _load_text(o))
        found.update(zip(part, given, strict=True))
    return [[found[places.at[each]] for each in places.elements]]


def _load_text(o: Operation) -> str:
    return "ld.volatile.global" if o.attrs["volatile"] else f"ld.global{_hints(o.attrs)}"


def _load(
    w: Writer, element: Element, pointer: str, count: int, mask: str, other: Sequence[str] | None, text: str
) -> list[str]:
    number, bits = _words(element, count)
    letter, type_ = _LETTERS[bits], f"i{max(bits, 16)}"
    names = [f"${place}" for place in range(number)]
    whole = "{" + ", ".join(names) + "}" if number > 1 else names[0]
    access = f"{text}{_kind(number, bits)} {whole}, [${number}];"
    constraints, given = ["=" + letter] * number + ["l"], [("i64", pointer)]
    if mask and mask != "true":
        zeros = [w.zero(element)] * count
        words = _to_words(w, element, zeros if other is None else other)
        moves = [f"mov.b{max(bits, 16)} ${place}, ${number + 2 + place};" for place in range(number)]
        access = " ".join(moves) + f" @${number + 1} {access}"
        constraints = ["=&" + letter] * number + ["l", "b"] + [letter] * number
        given += [("i1", mask), *[(type_, word) for word in words]]
    return _from_words(w, element, w.assembly(access, constraints, [type_] * number, given), count)


def global_load(w: Writer, element: Element, pointer: str, mask: str, other: Sequence[str] | None) -> list[str]:
    """One element, where a mask holds."""
    return _load(w, element, pointer, 1, mask, other, "ld.global")


@operation("store")
def store(w: Writer, o: Operation) -> Results:
    pointers, places, element = w.get(o.operands[0]), w.places(o.operands[0]), pointee(o.operands[0])
    values = w.get(o.operands[1])
    mask = w.get(o.operands[2]) if len(o.operands) > 2 else None
    count = o.attrs["vector"]
    w.before_access(o)
    alone = w.is_first(places.alone)
    for first in places.first:
        if first % count:
            continue
        guard = w.both(alone, mask[first] if mask else "true")
        _store(w, element, pointers[first], values[first : first + count], guard, f"st.global{_hints(o.attrs)}")
    return []


def _store(w: Writer, element: Element, pointer: str, values: Sequence[str], mask: str, text: str) -> None:
    number, bits = _words(element, len(values))
    letter, type_ = _LETTERS[bits], f"i{max(bits, 16)}"
    names = [f"${place + 1}" for place in range(number)]
    whole = "{" + ", ".join(names) + "}" if number > 1 else names[0]
    access = f"{text}{_kind(number, bits)} [$0], {whole};"
    constraints, given = ["l"] + [letter] * number, [("i64", pointer)]
    given += [(type_, word) for word in _to_words(w, element, values)]
    if mask != "true":
        access = f"@${number + 1} {access}"
        constraints.append("b")
        given.append(("i1", mask))
    w.assembly(access, constraints, [], given)


# ---- atomics

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_SCOPES = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}


def _rmw_name(kind: str, element: Element) -> str:
    if kind in ("and", "or", "xor", "xchg"):
        return kind
    if isinstance(element, DType) and element.is_float:
        return {"add": "fadd", "max": "fmax", "min": "fmin"}[kind]
    unsigned = isinstance(element, DType) and element.kind == "uint" and kind != "add"
    return ("u" if unsigned else "") + kind


def _atomic_type(element: Element, name: str) -> str:
    """The LLVM type of an atomic's numbers."""
    if isinstance(element, DType) and element.name == "bf16" and name.startswith("f"):
        return "bfloat"
    return memory(element)


def _as_atomic(w: Writer, element: Element, type_: str, value: str) -> str:
    packed = pack(w.m, element, value)
    return w.m.bits("i16", "bfloat", packed) if type_ == "bfloat" else packed


def _from_atomic(w: Writer, element: Element, type_: str, value: str) -> str:
    return unpack(w.m, element, w.m.bits("bfloat", "i16", value) if type_ == "bfloat" else value)


#: The first architecture that adds several neighbours by one instruction, and how many at most.
VECTORS_SINCE, _NEIGHBOURS = 90, 4


def _sums_together(w: Writer, o: Operation) -> int:
    """How many neighbours a sum that nobody reads the old value of is for: f32, of one mask, at a multiple of them."""
    plain = o.attrs["kind"] == "add" and o.attrs["sem"] == "relaxed" and o.attrs["scope"] == "gpu"
    if not plain or pointee(o.operands[0]) != F32 or w.is_used(o.result) or w.architecture < VECTORS_SINCE:
        return 1
    return w.side_by_side(o.operands[0], F32.itemsize, o.operands[2:], _NEIGHBOURS)


def _sum_vectors(w: Writer, o: Operation, count: int) -> Results:
    pointers, places, values = w.get(o.operands[0]), w.places(o.operands[0]), w.get(o.operands[1])
    mask = w.get(o.operands[2]) if len(o.operands) > 2 else None
    w.before_access(o)
    alone = w.is_first(places.alone)
    names = ", ".join([f"${place + 1}" for place in range(count)])
    text = f"red.relaxed.gpu.global.add.v{count}.f32 [$0], {{{names}}};"
    for first in places.first:
        if first % count:
            continue
        guard = w.both(alone, mask[first] if mask else "true")
        given = [("i64", pointers[first]), *[("float", value) for value in values[first : first + count]]]
        constraints = ["l"] + ["f"] * count
        if guard == "true":
            w.assembly(text, constraints, [], given)
        else:
            w.assembly(f"@${count + 1} {text}", [*constraints, "b"], [], [*given, ("i1", guard)])
    return [["poison"] * places.count]


@operation("atomic_rmw")
def atomic_rmw(w: Writer, o: Operation) -> Results:
    element = pointee(o.operands[0])
    if (count := _sums_together(w, o)) > 1:
        return _sum_vectors(w, o, count)
    name = _rmw_name(o.attrs["kind"], element)
    type_ = _atomic_type(element, name)
    order, scope = _ORDERS[o.attrs["sem"]], _SCOPES[o.attrs["scope"]]
    values = w.get(o.operands[1])
    align = element.itemsize

    def change(register_: int, pointer: str) -> str:
        value = _as_atomic(w, element, type_, values[register_])
        text = f"atomicrmw {name} ptr addrspace(1) {pointer}, {type_} {value}{scope} {order}, align {align}"
        return _from_atomic(w, element, type_, w.code.value(text))

    return _atomic(w, o, w.get(o.operands[2]) if len(o.operands) > 2 else None, change)


@operation("atomic_cas")
def atomic_cas(w: Writer, o: Operation) -> Results:
    element = pointee(o.operands[0])
    bits = f"i{8 * element.itemsize}"
    order, scope = _ORDERS[o.attrs["sem"]], _SCOPES[o.attrs["scope"]]
    failed = {"monotonic": "monotonic", "acquire": "acquire", "release": "monotonic", "acq_rel": "acquire"}[order]
    expected, wanted = w.get(o.operands[1]), w.get(o.operands[2])

    def whole(value: str) -> str:
        packed, type_ = pack(w.m, element, value), memory(element)
        return packed if type_ == bits else w.m.bits(type_, bits, packed)

    def change(register_: int, pointer: str) -> str:
        pair = f"{bits} {whole(expected[register_])}, {bits} {whole(wanted[register_])}"
        text = f"cmpxchg ptr addrspace(1) {pointer}, {pair}{scope} {order} {failed}, align {element.itemsize}"
        found = w.code.value(f"extractvalue {{ {bits}, i1 }} {w.code.value(text)}, 0")
        return unpack(w.m, element, found if memory(element) == bits else w.m.bits(bits, memory(element), found))

    return _atomic(w, o, None, change)


def _at(w: Writer, change: Callable[[int, str], str], register_: int, pointer: str) -> str:
    return change(register_, w.code.value(f"inttoptr i64 {pointer} to ptr addrspace(1)"))


def _atomic(w: Writer, o: Operation, mask: Registers | None, change: Callable[[int, str], str]) -> Results:
    """Once for each element, by one of the threads that hold it, which tells the others what was there."""
    pointers, places, element = w.get(o.operands[0]), w.places(o.operands[0]), pointee(o.operands[0])
    w.before_access(o)
    ordered = o.attrs["sem"] != "relaxed"
    if ordered and o.attrs["sem"] != "acquire":
        w.barrier()
    alone = w.is_first(places.alone)
    found: dict[int, str] = {}
    for first in places.first:
        guard = w.both(alone, mask[first] if mask else "true")
        write = partial(_at, w, change, first, pointers[first])
        found[first] = w.guarded(guard, register(element), w.zero(element), write)
    values = [found[places.at[each]] for each in places.elements]
    if places.alone and w.is_used(o.results[0]):
        return [through_memory(w, element, values, places, places, once=True)]
    if ordered and o.attrs["sem"] != "release":
        w.barrier()
    return [values]
