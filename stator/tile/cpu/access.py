"""Loads, stores and atomics: of whole vectors where pointers run, of lanes where they do not.

Where a mask does not hold nothing is touched; a load gives `other` there, or 0, an atomic 0. Places of a scatter are
written lane after lane, so that of two to one place the last one stays; atomics go lane after lane too.
Neighbours: `evaluate` has computed pointers, values and masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stator.tile.cpu import casts, elementwise
from stator.tile.cpu.code import Code, Maker
from stator.tile.cpu.lanes import Lanes, expanded
from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Operation
from stator.tile.ir.rules import dtype_of, pointee
from stator.tile.ir.types import DType, Element


class Place(NamedTuple):
    """Where memory is accessed: the element there, pointers, and the mask if there is one."""

    element: Element
    pointer: Lanes
    mask: Lanes | None

    @property
    def contiguous(self) -> bool:
        return self.pointer.step == self.element.itemsize


def place_of(operation: Operation, pointer: Lanes, mask: Lanes | None) -> Place:
    if mask is not None and mask.text == "true":
        mask = None
    return Place(pointee(operation.operands[0].type).element, pointer, mask)


def _address(code: Code, text: str) -> str:
    return code.value(f"inttoptr i64 {text} to ptr")


def load(code: Code, width: int, place: Place, other: Lanes | None) -> Lanes:
    """What lies there."""
    element, pointer, mask = place
    single = pointer.uniform and (mask is None or mask.uniform) and (other is None or other.uniform)
    m = Maker(code, 0 if single else width)
    if single:
        found = _load_one(code, place, other)
    elif place.contiguous and mask is not None and mask.uniform:
        found = _load_run_if(m, place, mask, other)
    elif place.contiguous:
        found = _load_run(m, place, other)
    else:
        found = _gather(m, place, other)
    return Lanes(found, casts.register(element), m.width)


def _load_one(code: Code, place: Place, other: Lanes | None) -> str:
    element, pointer, mask = place
    m, kind, type_ = Maker(code, 0), casts.memory(element), casts.register(element)
    if mask is None:
        return casts.unpack(m, element, code.load(kind, _address(code, pointer.text)))
    target = code.memory(type_)
    code.store(type_, m.number(type_, 0) if other is None else other.text, target)
    with code.when(mask.text):
        found = casts.unpack(m, element, code.load(kind, _address(code, pointer.text)))
        code.store(type_, found, target)
    return code.load(type_, target)


def _filled(m: Maker, place: Place, other: Lanes | None, read: Callable[[str, str], str]) -> str:
    """What is read under the mask, and `other` elsewhere."""
    element, _, mask = place
    kind, type_ = casts.memory(element), casts.register(element)
    zero = m.number(kind, 0)
    holds = m.number("i1", True) if mask is None else expanded(m.code, mask, m.width)
    if mask is None or other is None:
        return casts.unpack(m, element, read(holds, zero))
    rest = expanded(m.code, other, m.width)
    if kind == type_:
        return read(holds, rest)
    return m.select(holds, type_, casts.unpack(m, element, read(holds, zero)), rest)


def _load_run(m: Maker, place: Place, other: Lanes | None) -> str:
    kind, size = casts.memory(place.element), place.element.itemsize
    address = _address(m.code, place.pointer.text)
    if place.mask is None:
        found = m.code.value(f"load {m.type(kind)}, ptr {address}, align {size}")
        return casts.unpack(m, place.element, found)

    def read(mask: str, rest: str) -> str:
        return m.code.call(
            m.type(kind), f"llvm.masked.load.{m.suffix(kind)}.p0",
            (f"ptr align {size}", address), (m.type("i1"), mask), (m.type(kind), rest),
        )  # fmt: skip

    return _filled(m, place, other, read)


def _load_run_if(m: Maker, place: Place, mask: Lanes, other: Lanes | None) -> str:
    """A whole vector or none of it, as one condition says."""
    kind, type_ = m.type(casts.memory(place.element)), casts.register(place.element)
    target = m.code.memory(m.type(type_))
    rest = m.number(type_, 0) if other is None else expanded(m.code, other, m.width)
    m.code.store(m.type(type_), rest, target)
    with m.code.when(mask.text):
        address = _address(m.code, place.pointer.text)
        found = m.code.value(f"load {kind}, ptr {address}, align {place.element.itemsize}")
        m.code.store(m.type(type_), casts.unpack(m, place.element, found), target)
    return m.code.load(m.type(type_), target)


def _pointers(m: Maker, place: Place) -> str:
    addresses = expanded(m.code, place.pointer, m.width)
    return m.code.value(f"inttoptr {m.type('i64')} {addresses} to {m.type('ptr')}")


def _gather(m: Maker, place: Place, other: Lanes | None) -> str:
    pointers, kind = _pointers(m, place), casts.memory(place.element)
    return _filled(m, place, other, lambda mask, rest: casts.gather(m, kind, pointers, mask, rest))


def store(code: Code, width: int, place: Place, value: Lanes) -> None:
    """Writes values there."""
    element, pointer, mask = place
    kind, size = casts.memory(element), element.itemsize
    if pointer.uniform and value.uniform and (mask is None or mask.uniform):
        m = Maker(code, 0)
        text = casts.pack(m, element, value.text)
        if mask is None:
            code.do(f"store {kind} {text}, ptr {_address(code, pointer.text)}")
            return
        with code.when(mask.text):
            code.do(f"store {kind} {text}, ptr {_address(code, pointer.text)}")
        return
    m = Maker(code, width)
    text = casts.pack(m, element, expanded(code, value, width))
    if place.contiguous and mask is None:
        code.do(f"store {m.type(kind)} {text}, ptr {_address(code, pointer.text)}, align {size}")
        return
    if place.contiguous and mask is not None and mask.uniform:
        with code.when(mask.text):
            code.do(f"store {m.type(kind)} {text}, ptr {_address(code, pointer.text)}, align {size}")
        return
    holds = m.number("i1", True) if mask is None else expanded(code, mask, width)
    if place.contiguous:
        code.call(
            "void", f"llvm.masked.store.{m.suffix(kind)}.p0",
            (m.type(kind), text), (f"ptr align {size}", _address(code, pointer.text)), (m.type("i1"), holds),
        )  # fmt: skip
        return
    code.call(
        "void", f"llvm.masked.scatter.{m.suffix(kind)}.v{width}p0",
        (m.type(kind), text), (f"{m.type('ptr')} align {size}", _pointers(m, place)), (m.type("i1"), holds),
    )  # fmt: skip


# ---- atomics

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_INTEGER = {"add": "add", "xchg": "xchg", "and": "and", "or": "or", "xor": "xor"}


def each_lane(
    code: Code, width: int, place: Place, values: list[Lanes], change: Callable[[str, list[str]], str]
) -> Lanes:
    """The results of something that is done for lane after lane: given an address, and one lane of each value."""
    type_ = casts.register(place.element)
    given = [place.pointer, *values, *([] if place.mask is None else [place.mask])]
    target = code.memory(type_ if not width else f"[{width} x {type_}]")

    def one(texts: list[str], slot: str) -> None:
        code.store(type_, Maker(code, 0).number(type_, 0), slot)
        holds = "true" if place.mask is None else texts[-1]
        with code.when(holds):
            code.store(type_, change(_address(code, texts[0]), texts[1 : 1 + len(values)]), slot)

    if not width:
        one([lanes.text for lanes in given], target)
        return Lanes(code.load(type_, target), type_)
    m = Maker(code, width)
    texts = [expanded(code, lanes, width) for lanes in given]
    with code.loop("0", str(width)) as lane:
        single = [
            code.value(f"extractelement {m.type(lanes.type)} {text}, i64 {lane}")
            for lanes, text in zip(given, texts, strict=True)
        ]
        one(single, code.at(target, lane, type_))
    return Lanes(code.value(f"load {m.type(type_)}, ptr {target}, align 1"), type_, width)


def atomic_rmw(code: Code, width: int, operation: Operation, place: Place, value: Lanes) -> Lanes:
    """Changes what lies there, and gives what did before."""
    dtype, kind = dtype_of(operation.operands[1].type), operation.attrs["kind"]
    order = _ORDERS[operation.attrs["sem"]]

    def change(address: str, values: list[str]) -> str:
        type_ = casts.register(dtype)
        if dtype.is_integer:
            signed = "" if dtype.kind == "int" else "u"
            name = _INTEGER.get(kind, f"{signed}{kind}")
            return code.value(f"atomicrmw {name} ptr {address}, {type_} {values[0]} {order}")
        if dtype.bits >= 32 and kind in ("add", "xchg"):
            name = "fadd" if kind == "add" else "xchg"
            return code.value(f"atomicrmw {name} ptr {address}, {type_} {values[0]} {order}")
        return _by_comparing(code, dtype, kind, address, values[0])

    return each_lane(code, width, place, [value], change)


def _by_comparing(code: Code, dtype: DType, kind: str, address: str, value: str) -> str:
    """By an operator, until nobody has written between."""
    m, bits, memory = Maker(code, 0), f"i{dtype.bits}", casts.memory(dtype)
    before, head, done = code.label, code.fresh("try"), code.fresh("done")
    first = code.value(f"load atomic {bits}, ptr {address} monotonic, align {dtype.itemsize}")
    code.jump(head)
    code.block(head)
    again, old = f"%{code.fresh('again')}", f"%{code.fresh('old')}"
    code.do(f"{old} = phi {bits} [{first}, %{before}], [{again}, %{head}]")

    def from_bits(text: str) -> str:
        return casts.unpack(m, dtype, text if memory == bits else m.bits(bits, memory, text))

    now = from_bits(old)
    names = {"add": "add", "max": "maximum", "min": "minimum"}
    new = value if kind == "xchg" else elementwise.ROWS[names[kind]](m, dtype, {"nan": "number"}, now, value)
    packed = casts.pack(m, dtype, new)
    packed = packed if memory == bits else m.bits(memory, bits, packed)
    pair = code.value(f"cmpxchg ptr {address}, {bits} {old}, {bits} {packed} acq_rel monotonic")
    code.do(f"{again} = extractvalue {{ {bits}, i1 }} {pair}, 0")
    code.branch(code.value(f"extractvalue {{ {bits}, i1 }} {pair}, 1"), done, head)
    code.block(done)
    return now


def atomic_cas(code: Code, width: int, operation: Operation, place: Place, expected: Lanes, new: Lanes) -> Lanes:
    """Writes where the expected bits are, and gives what was there."""
    dtype = dtype_of(operation.operands[1].type)
    bits, memory = f"i{dtype.bits}", casts.memory(dtype)
    m = Maker(code, 0)

    def as_bits(text: str) -> str:
        packed = casts.pack(m, dtype, text)
        return packed if memory == bits else m.bits(memory, bits, packed)

    def change(address: str, values: list[str]) -> str:
        first, second = map(as_bits, values)
        pair = code.value(f"cmpxchg ptr {address}, {bits} {first}, {bits} {second} acq_rel acquire")
        old = code.value(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
        return casts.unpack(m, dtype, old if memory == bits else m.bits(bits, memory, old))

    return each_lane(code, width, place, [expected, new], change)


def refuse_booleans(operation: Operation) -> None:
    """Truths have no atomics."""
    if dtype_of(operation.operands[1].type).is_bool:
        raise Refused(operation.op, "atomics of truths have no code", operation.location)
