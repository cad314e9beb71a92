"""Runs the LLVM that is written for a GPU on the CPU: all threads of a program side by side, as numpy arrays.

It knows the instructions that `stator.tile.nvidia` writes and no others, and is strict where a GPU is not: every access
of global memory lies in an array that was given, a barrier or shuffle is met by all threads, and what one thread writes
to shared memory another one reads only behind a barrier.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.interpret.casts import narrow
from stator.tile.ir.types import BF16
from stator.tile.nvidia.kernel import Text
from tests.tile.nvidia.assembly import Assembly

Array = Any
SHARED_BASE = 1 << 60
LOCAL_BASE = 1 << 61
CONSTANT_BASE = 1 << 62
_FLOATS = {"float": np.float32, "double": np.float64, "half": np.float16}
_SIZES = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}


class MachineError(Exception):
    """What a GPU would do wrong, or what this does not know."""


def numpy_of(type_: str) -> Any:
    """The dtype that holds numbers of a type of LLVM, integers without a sign."""
    if type_ in _FLOATS:
        return np.dtype(_FLOATS[type_])
    if type_ == "i1":
        return np.dtype(np.bool_)
    if type_ == "bfloat":
        return np.dtype(np.uint16)
    if type_.startswith("ptr"):
        return np.dtype(np.uint64)
    bits = int(type_[1:])
    return np.dtype(object) if bits > 64 else np.dtype(f"u{max(bits // 8, 1)}")


def size_of(type_: str) -> int:
    return _SIZES.get(type_.split(" ")[0], 0) or max(int(type_[1:]) // 8, 1)


def split_list(text: str) -> list[str]:
    """At commas outside of brackets and quotes."""
    found, depth, quoted, last = [], 0, False, 0
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "([{<":
            depth += 1
        elif not quoted and letter in ")]}>":
            depth -= 1
        elif letter == "," and not depth and not quoted:
            found.append(text[last:place].strip())
            last = place + 1
    rest = text[last:].strip()
    return [*found, rest] if rest else found


def typed(text: str) -> tuple[str, str]:
    """A type and a value."""
    match = re.match(r"(<.*?>|\{.*?\}|ptr addrspace\(\d\)|\w+)\s+(.*)$", text)
    if match is None:
        raise MachineError(f"no typed value: {text}")
    return match.group(1), match.group(2)


def vector_type(type_: str) -> tuple[int, str]:
    match = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    return (int(match.group(1)), match.group(2)) if match else (0, type_)


@dataclass
class Block:
    name: str
    lines: list[str] = field(default_factory=list)


class Machine:
    """One kernel."""

    def __init__(self, text: Text, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.text, self.threads = text, text.threads
        self.assembly = Assembly(self)
        self.ranges = sorted(
            [(a.__array_interface__["data"][0], a.nbytes, np.frombuffer(_bytes(a), np.uint8)) for a in arrays],
            key=lambda each: each[0],
        )
        self.starts = np.array([start for start, _, _ in self.ranges], np.uint64)
        self.params: list[str] = []
        self.blocks: list[Block] = []
        self.globals: dict[str, int] = {"@shared": SHARED_BASE}
        self.constant = np.zeros(0, np.uint8)
        self.printed: list[str] = []
        self._read_module(text.llvm)
        self.number = {block.name: i for i, block in enumerate(self.blocks)}

    def _read_module(self, text: str) -> None:
        inside, data = False, b""
        for line in text.splitlines():
            if line.startswith("define"):
                self.params = re.findall(r"i64 (%a\d+)", line)
                inside = True
            elif line.startswith("@") and "private constant" in line:
                name, rest = line.split(" = ", 1)
                self.globals[name] = CONSTANT_BASE + len(data)
                data += self._constant(rest)
                data += b"\0" * (-len(data) % 64)
            elif inside and line == "}":
                inside = False
            elif inside and line.endswith(":") and not line.startswith(" "):
                self.blocks.append(Block(line[:-1]))
            elif inside and line.strip():
                self.blocks[-1].lines.append(line.strip())
        self.constant = np.frombuffer(data, np.uint8).copy()

    def _constant(self, text: str) -> bytes:
        match = re.match(r"private constant \[(\d+) x (\w+)\] (.*?)(, align \d+)?$", text)
        assert match is not None
        if match.group(3).startswith("c"):
            return bytes(int(pair, 16) for pair in re.findall(r"\\(..)", match.group(3)))
        items = [typed(item)[1] for item in split_list(match.group(3)[1:-1])]
        return np.array([self.literal(match.group(2), item) for item in items], numpy_of(match.group(2))).tobytes()

    # ---- running

    def run(self, numbers: Sequence[int], grid: Sequence[int] = (1, 1, 1)) -> None:
        """All programs; arguments are words of 64 bits."""
        for place in itertools.product(*[range(size) for size in reversed(grid)]):
            self.grid, self.place = tuple(grid), tuple(reversed(place))
            self._program(numbers)

    def _program(self, numbers: Sequence[int]) -> None:
        self.shared = np.zeros(self.text.shared, np.uint8)
        self.writer = np.full(self.text.shared, -1, np.int64)
        self.reader = np.full(self.text.shared, -1, np.int64)
        self.local = np.zeros((self.threads, 0), np.uint8)
        self.assembly.groups = [[]]
        self.tid = np.arange(self.threads, dtype=np.uint32)
        self.env: dict[str, Any] = {
            name: np.full(self.threads, int(number) & (1 << 64) - 1, np.uint64)
            for name, number in zip(self.params, numbers, strict=True)
        }
        self.came = np.full(self.threads, -1)
        pending = [np.zeros(self.threads, bool) for _ in self.blocks]
        pending[0][:] = True
        steps = 0
        while True:
            index = next((i for i, mask in enumerate(pending) if mask.any()), None)
            if index is None:
                return
            steps += 1
            if steps > 200_000:
                raise MachineError("no end is seen")
            self.mask = pending[index]
            pending[index] = np.zeros(self.threads, bool)
            self._block(index, pending)

    def _block(self, index: int, pending: list[Array]) -> None:
        for line in self.blocks[index].lines:
            if line.startswith("br "):
                self._branch(line, pending)
                break
            if line.startswith("ret"):
                break
            self._line(line)
        self.came = np.where(self.mask, index, self.came)

    def _branch(self, line: str, pending: list[Array]) -> None:
        labels = re.findall(r"label %([\w.]+)", line)
        if len(labels) == 1:
            pending[self.number[labels[0]]] |= self.mask
            return
        match = re.match(r"br i1 ([^,]+),", line)
        assert match is not None
        condition = self.value("i1", match.group(1))
        pending[self.number[labels[0]]] |= self.mask & condition
        pending[self.number[labels[1]]] |= self.mask & ~condition

    def _line(self, line: str) -> None:
        match = re.match(r"(%[\w.]+) = (.*)$", line)
        name, text = match.groups() if match else ("", line)
        op = text.split(" ", 1)[0]
        handler = _HANDLERS.get(op)
        if handler is None:
            raise MachineError(f"unknown instruction: {line}")
        with np.errstate(all="ignore"):
            found = handler(self, text[len(op) + 1 :], op)
        if name:
            self._set(name, found)

    def _set(self, name: str, value: Any) -> None:
        if name in self.env and not self.mask.all():
            value = _merge(self.mask, value, self.env[name])
        self.env[name] = value

    # ---- values

    def literal(self, type_: str, text: str) -> Any:
        if type_ in _FLOATS:
            if text.startswith("0xH"):
                return np.array(int(text[3:], 16), np.uint16).view(np.float16)[()]
            bits = int(text, 16)
            number = np.array(bits, np.uint64).view(np.float64)
            return number.astype(_FLOATS[type_])[()]
        if type_ == "i1":
            return text == "true"
        number = int(text) & ((1 << int(type_[1:])) - 1)
        return number if numpy_of(type_).hasobject else numpy_of(type_).type(number)

    def value(self, type_: str, text: str) -> Any:
        text = text.strip()
        if text in self.env:
            return self.env[text]
        count, each = vector_type(type_)
        if text in ("poison", "undef", "zeroinitializer"):
            zero = np.zeros(self.threads, numpy_of(each))
            return [zero] * count if count else zero
        if text in self.globals:
            return np.full(self.threads, self.globals[text], np.uint64)
        if text.startswith("%"):
            raise MachineError(f"{text} has no value")
        return np.full(self.threads, self.literal(type_, text), numpy_of(type_))

    def argument(self, text: str) -> tuple[str, Any]:
        type_, value = typed(text)
        return type_, self.value(type_, value)

    # ---- memory

    def load(self, address: Array, nbytes: int, mask: Array) -> Array:
        """Bytes of each thread; what no thread reads is 0."""
        found = np.zeros((self.threads, nbytes), np.uint8)
        self._access(address, nbytes, mask, found, None)
        return found

    def store(self, address: Array, data: Array, mask: Array) -> None:
        self._access(address, data.shape[1], mask, None, data)

    def _access(self, address: Array, nbytes: int, mask: Array, into: Array | None, data: Array | None) -> None:
        which = np.nonzero(mask)[0]
        if not len(which):
            return
        at = address[which].astype(object)
        base = int(at[0])
        if any(int(a) % nbytes and nbytes & (nbytes - 1) == 0 for a in at):
            raise MachineError(f"an access of {nbytes} bytes is not aligned")
        if base >= CONSTANT_BASE:
            place = np.array([int(a) - CONSTANT_BASE for a in at])
            assert into is not None
            into[which] = self.constant[place[:, None] + np.arange(nbytes)]
        elif base >= LOCAL_BASE:
            place = np.array([int(a) - LOCAL_BASE for a in at])
            index = (which[:, None], place[:, None] + np.arange(nbytes))
            if into is not None:
                into[which] = self.local[index]
            else:
                self.local[index] = data[which]
        elif base >= SHARED_BASE:
            self._shared(which, np.array([int(a) - SHARED_BASE for a in at]), nbytes, into, data)
        else:
            self._global(which, address[which], nbytes, into, data)

    def _shared(self, which: Array, place: Array, nbytes: int, into: Array | None, data: Array | None) -> None:
        index = place[:, None] + np.arange(nbytes)
        if index.min() < 0 or index.max() >= len(self.shared):
            raise MachineError(f"shared memory ends at {len(self.shared)}, and {index.max()} is accessed")
        by = np.broadcast_to(which[:, None], index.shape)
        if into is not None:
            other = self.writer[index]
            if ((other >= 0) & (other != by)).any():
                raise MachineError("a thread reads what another one writes, with no barrier between")
            self.reader[index] = by
            into[which] = self.shared[index]
            return
        assert data is not None
        same = self.shared[index] == data[which]
        for others in (self.reader, self.writer):
            other = others[index]
            if ((other >= 0) & (other != by) & ~same).any():
                raise MachineError("a thread writes what another one reads or writes, with no barrier between")
        self.writer[index] = np.where(same & (self.writer[index] < 0), -1, by)
        self.shared[index] = data[which]

    def _global(self, which: Array, at: Array, nbytes: int, into: Array | None, data: Array | None) -> None:
        where = np.searchsorted(self.starts, at, side="right").astype(np.int64) - 1
        for number in set(where.tolist()):
            if number < 0:
                raise MachineError("an access before all arrays")
            start, size, view = self.ranges[number]
            chosen = where == number
            place = at[chosen].astype(np.int64) - start
            if (place + nbytes > size).any():
                raise MachineError(f"an access at {int(place.max())} of an array of {size} bytes")
            index = place[:, None] + np.arange(nbytes)
            if into is not None:
                into[which[chosen]] = view[index]
            else:
                view[index] = data[which[chosen]]

    def barrier(self) -> None:
        if not self.mask.all():
            raise MachineError("a barrier that not all threads meet")
        self.writer[:] = -1
        self.reader[:] = -1


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(bytearray(1))


def _merge(mask: Array, new: Any, old: Any) -> Any:
    if isinstance(new, list | tuple):
        return type(new)(_merge(mask, a, b) for a, b in zip(new, old, strict=True))
    return np.where(mask, new, old)


def as_bytes(values: Array) -> Array:
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    return np.ascontiguousarray(values)[:, None].view(np.uint8).reshape(len(values), -1)


def from_bytes(type_: str, data: Array) -> Array:
    found = np.ascontiguousarray(data).view(numpy_of(type_) if type_ != "i1" else np.uint8).reshape(-1)
    return found.astype(bool) if type_ == "i1" else found


def signed(values: Array) -> Array:
    if values.dtype == np.bool_:
        return -values.astype(np.int8)
    return values.view(np.dtype(f"i{values.dtype.itemsize}"))


# ---- instructions

_FLAGS = r"^((?:contract|nsw|nuw|exact|disjoint|nnan|ninf|reassoc|fast|afn|arcp|nsz)\s+)+"
_WRAPPING = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide,
    "frem": np.fmod,
}  # fmt: skip


def _arithmetic(m: Machine, text: str, op: str) -> Any:
    text = re.sub(_FLAGS, "", text)
    type_, rest = typed(text)
    a, b = (m.value(type_, part) for part in split_list(rest))
    if op in _WRAPPING:
        if type_ == "i1" and op in ("add", "sub"):
            return a ^ b
        if numpy_of(type_).hasobject:
            return _WRAPPING[op](a, b) & ((1 << int(type_[1:])) - 1)
        return _WRAPPING[op](a, b)
    if op in ("sdiv", "srem", "udiv", "urem"):
        return _divide(op, a, b)
    bits = int(type_[1:])
    if numpy_of(type_).hasobject:
        return np.array([int(x) >> int(y) for x, y in zip(a, b, strict=True)], object)
    amount = np.minimum(b, bits - 1).astype(a.dtype)
    if op == "shl":
        return np.where(b >= bits, 0, a << amount).astype(a.dtype)
    if op == "lshr":
        return np.where(b >= bits, 0, a >> amount).astype(a.dtype)
    return (signed(a) >> signed(amount)).view(a.dtype)


def _divide(op: str, a: Array, b: Array) -> Array:
    if op[0] == "u":
        safe = np.where(b == 0, 1, b).astype(b.dtype)
        return a // safe if op == "udiv" else a % safe
    x, y = signed(a), signed(b)
    y = np.where(y == 0, 1, y)
    quotient = np.array(
        [abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(x, y, strict=True)], object
    )
    found = quotient if op == "sdiv" else np.array([int(p) for p in x], object) - quotient * y.astype(object)
    mask = (1 << 8 * a.dtype.itemsize) - 1
    return np.array([int(v) & mask for v in found], a.dtype)


def _fneg(m: Machine, text: str, op: str) -> Any:
    type_, value = typed(text)
    return np.negative(m.value(type_, value))


_PREDICATES: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _icmp(m: Machine, text: str, op: str) -> Any:
    predicate, rest = text.split(" ", 1)
    type_, values = typed(rest)
    a, b = (m.value(type_, part) for part in split_list(values))
    if predicate[0] == "s":
        a, b = signed(a), signed(b)
    return _PREDICATES[predicate if predicate in _PREDICATES else predicate[1:]](a, b)


def _fcmp(m: Machine, text: str, op: str) -> Any:
    predicate, rest = text.split(" ", 1)
    type_, values = typed(rest)
    a, b = (m.value(type_, part) for part in split_list(values))
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("uno", "ord"):
        return unordered if predicate == "uno" else ~unordered
    plain = _PREDICATES[predicate[1:]](a, b)
    return plain & ~unordered if predicate[0] == "o" else plain | unordered


def _select(m: Machine, text: str, op: str) -> Any:
    condition, a, b = (m.argument(part)[1] for part in split_list(text))
    return np.where(condition, a, b)


def _convert(m: Machine, text: str, op: str) -> Any:
    match = re.match(r"(.*) to (.*)$", text)
    assert match is not None
    source, value = typed(match.group(1))
    target, given = match.group(2), m.value(source, value)
    if "bfloat" in (source, target) and op == "fptrunc":
        return narrow(given, BF16).view(np.uint16)
    if op == "bitcast":
        return _bitcast(m, source, target, given)
    kind = numpy_of(target)
    match op:
        case "inttoptr" | "ptrtoint":
            return given.astype(np.uint64)
        case "trunc" if target == "i1":
            return (given & 1).astype(bool)
        case "trunc" if given.dtype.hasobject:
            return np.array([int(v) & (1 << int(target[1:])) - 1 for v in given], kind)
        case "zext" if kind.hasobject:
            return np.array([int(v) for v in given], object)
        case "sext" if kind.hasobject:
            return np.array([int(v) & (1 << int(target[1:])) - 1 for v in signed(given)], object)
        case "trunc" | "zext" | "fpext" | "fptrunc" | "uitofp":
            return given.astype(kind)
        case "sext":
            return signed(given).astype(np.dtype(f"i{kind.itemsize}")).view(kind)
        case "sitofp":
            return signed(given).astype(kind)
        case "fptosi" | "fptoui":
            return _saturated(given, target, op == "fptosi")
    raise MachineError(f"unknown conversion {op}")


def _saturated(given: Array, target: str, sign: bool) -> Array:
    bits = int(target[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)

    def one(number: float) -> int:
        if math.isnan(number):
            return 0
        return (low if number < low else high if number > high else int(number)) & ((1 << bits) - 1)

    return np.array([one(float(v)) for v in given], numpy_of(target))


def _flat(type_: str, value: Any) -> Array:
    count, _ = vector_type(type_)
    parts = value if count else [value]
    return np.concatenate([as_bytes(part) for part in parts], axis=1)


def _unflat(type_: str, data: Array) -> Any:
    count, each = vector_type(type_)
    if not count:
        return from_bytes(type_, data)
    size = size_of(each)
    return [from_bytes(each, data[:, i * size : (i + 1) * size]) for i in range(count)]


def _bitcast(m: Machine, source: str, target: str, value: Any) -> Any:
    return _unflat(target, _flat(source, value))


def _phi(m: Machine, text: str, op: str) -> Any:
    type_, rest = typed(text)
    found = None
    for value, label in re.findall(r"\[(.*?), %([\w.]+)\]", rest):
        here = m.came == m.number[label]
        if not (here & m.mask).any():
            continue
        given = m.value(type_, value)
        found = given if found is None else np.where(here, given, found)
    assert found is not None
    return found


def _insert(m: Machine, text: str, op: str) -> Any:
    vector, value, place = split_list(text)
    (_, whole), (_, given) = m.argument(vector), m.argument(value)
    parts = list(whole)
    parts[int(typed(place)[1])] = given
    return parts


def _extract(m: Machine, text: str, op: str) -> Any:
    vector, place = split_list(text)
    return m.argument(vector)[1][int(typed(place)[1])]


def _extractvalue(m: Machine, text: str, op: str) -> Any:
    whole, place = split_list(text)
    return m.argument(whole)[1][int(place)]


def _alloca(m: Machine, text: str, op: str) -> Any:
    size = 64
    place = m.local.shape[1]
    m.local = np.concatenate([m.local, np.zeros((m.threads, size), np.uint8)], axis=1)
    return np.full(m.threads, LOCAL_BASE + place, np.uint64)


def _getelementptr(m: Machine, text: str, op: str) -> Any:
    type_, base, *indices = split_list(text)
    found = m.argument(base)[1]
    if type_.startswith("{"):
        fields = split_list(type_[1:-1].strip())
        at = 0
        for number, each in enumerate(fields):
            at += -at % size_of(each)
            if number == int(typed(indices[1])[1]):
                break
            at += size_of(each)
        return found + np.uint64(at)
    _, index = m.argument(indices[0])
    return found + (signed(index).astype(np.int64) * size_of(type_)).view(np.uint64)


def _load(m: Machine, text: str, op: str) -> Any:
    type_, address, *_ = split_list(text)
    count, each = vector_type(type_)
    return _unflat(type_, m.load(m.argument(address)[1], max(count, 1) * size_of(each), m.mask))


def _store(m: Machine, text: str, op: str) -> Any:
    value, address, *_ = split_list(text)
    type_, given = m.argument(value)
    m.store(m.argument(address)[1], _flat(type_, given), m.mask)


def _atomicrmw(m: Machine, text: str, op: str) -> Any:
    kind, rest = text.split(" ", 1)
    address, value, *_ = split_list(rest)
    value = re.sub(r"( syncscope\(.*?\))? (monotonic|acquire|release|acq_rel).*$", "", value)
    type_, given = m.argument(value)
    at, found = m.argument(address)[1], np.zeros(m.threads, numpy_of(type_))
    writers = m.writer.copy() if hasattr(m, "writer") else None
    for thread in np.nonzero(m.mask)[0]:
        only = np.zeros(m.threads, bool)
        only[thread] = True
        if int(at[0]) >= SHARED_BASE:
            m.reader[:] = -1  # atomics are ordered by themselves
            m.writer[:] = -1
        old = _unflat(type_, m.load(at, size_of(type_), only))
        found[thread] = old[thread]
        m.store(at, as_bytes(_changed(kind, type_, old, given)), only)
    if writers is not None:
        m.writer = writers
        if int(at[0]) >= SHARED_BASE:
            m.reader[:] = -1
    return found


def _changed(kind: str, type_: str, old: Array, given: Array) -> Array:
    if type_ == "bfloat":
        a, b = ((v.astype(np.uint32) << 16).view(np.float32) for v in (old, given))
        total = _changed(kind, "float", a, b)
        bits = total.view(np.uint32)
        rounded = bits + 0x7FFF + (bits >> 16 & 1)
        return (rounded >> 16).astype(np.uint16)
    match kind:
        case "xchg":
            return given
        case "add" | "fadd":
            return (old + given).astype(old.dtype)
        case "and":
            return old & given
        case "or":
            return old | given
        case "xor":
            return old ^ given
        case "fmax":
            return np.fmax(old, given)
        case "fmin":
            return np.fmin(old, given)
        case "umax":
            return np.maximum(old, given)
        case "umin":
            return np.minimum(old, given)
        case "max":
            return np.maximum(signed(old), signed(given)).view(old.dtype)
        case "min":
            return np.minimum(signed(old), signed(given)).view(old.dtype)
    raise MachineError(f"unknown atomic {kind}")


def _cmpxchg(m: Machine, text: str, op: str) -> Any:
    address, expected, wanted, *_ = split_list(text)
    wanted = re.sub(r"( syncscope\(.*?\))? (monotonic|acquire|release|acq_rel).*$", "", wanted)
    (type_, first), (_, second) = m.argument(expected), m.argument(wanted)
    at, found = m.argument(address)[1], np.zeros(m.threads, numpy_of(type_))
    for thread in np.nonzero(m.mask)[0]:
        only = np.zeros(m.threads, bool)
        only[thread] = True
        old = _unflat(type_, m.load(at, size_of(type_), only))
        found[thread] = old[thread]
        if old[thread] == first[thread]:
            m.store(at, as_bytes(second), only)
    return (found, found == first)


def _call(m: Machine, text: str, op: str) -> Any:
    text = re.sub(r"^range\(.*?\) ", "", text)
    match = re.match(r"(\{.*?\}|<.*?>|\w+) asm( sideeffect)? \"(.*?)\", \"(.*?)\"\((.*)\)( #\d+)?$", text)
    if match is not None:
        args = [m.argument(part) for part in split_list(match.group(5))]
        return m.assembly.run(match.group(3), match.group(1), args)
    match = re.match(r"(\{.*?\}|<.*?>|\w+) @([\w.]+)\((.*)\)( #\d+)?$", text)
    if match is None:
        raise MachineError(f"unknown call: {text}")
    args = [m.argument(part) for part in split_list(match.group(3))]
    from tests.tile.nvidia.functions import call

    return call(m, match.group(2), match.group(1), args)


_HANDLERS: dict[str, Callable[[Machine, str, str], Any]] = {
    **dict.fromkeys([*_WRAPPING, "shl", "lshr", "ashr", "sdiv", "udiv", "srem", "urem"], _arithmetic),
    **dict.fromkeys(
        "bitcast trunc zext sext fpext fptrunc sitofp uitofp fptosi fptoui inttoptr ptrtoint".split(), _convert
    ),
    "fneg": _fneg, "icmp": _icmp, "fcmp": _fcmp, "select": _select, "phi": _phi, "insertelement": _insert,
    "extractelement": _extract, "extractvalue": _extractvalue, "alloca": _alloca, "getelementptr": _getelementptr,
    "load": _load, "store": _store, "atomicrmw": _atomicrmw, "cmpxchg": _cmpxchg, "call": _call,
}  # fmt: skip
