"""The instructions of LLVM that code for GPUs has in it, on numpy arrays of all threads: a row of a table each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from stator.tile.interpret.casts import narrow
from stator.tile.ir.types import BF16
from tests.tile.nvidia.functions import call
from tests.tile.nvidia.numbers import (
    LOCAL_BASE,
    SHARED_BASE,
    Array,
    MachineError,
    as_bytes,
    from_bytes,
    numpy_of,
    saturated,
    signed,
    size_of,
    split_list,
    typed,
    vector_type,
)  # fmt: skip

# ---- instructions

_FLAGS = r"^((?:contract|nsw|nuw|exact|disjoint|nnan|ninf|reassoc|fast|afn|arcp|nsz)\s+)+"
_WRAPPING = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide,
    "frem": np.fmod,
}  # fmt: skip


def _arithmetic(m: Any, text: str, op: str) -> Any:
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


def _fneg(m: Any, text: str, op: str) -> Any:
    type_, value = typed(text)
    return np.negative(m.value(type_, value))


_PREDICATES: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _icmp(m: Any, text: str, op: str) -> Any:
    predicate, rest = text.split(" ", 1)
    type_, values = typed(rest)
    a, b = (m.value(type_, part) for part in split_list(values))
    if predicate[0] == "s":
        a, b = signed(a), signed(b)
    return _PREDICATES[predicate if predicate in _PREDICATES else predicate[1:]](a, b)


def _fcmp(m: Any, text: str, op: str) -> Any:
    predicate, rest = text.split(" ", 1)
    type_, values = typed(rest)
    a, b = (m.value(type_, part) for part in split_list(values))
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("uno", "ord"):
        return unordered if predicate == "uno" else ~unordered
    plain = _PREDICATES[predicate[1:]](a, b)
    return plain & ~unordered if predicate[0] == "o" else plain | unordered


def _select(m: Any, text: str, op: str) -> Any:
    condition, a, b = (m.argument(part)[1] for part in split_list(text))
    return np.where(condition, a, b)


def _convert(m: Any, text: str, op: str) -> Any:
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
            return saturated(given, target, op == "fptosi")
    raise MachineError(f"unknown conversion {op}")


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


def _bitcast(m: Any, source: str, target: str, value: Any) -> Any:
    return _unflat(target, _flat(source, value))


def _phi(m: Any, text: str, op: str) -> Any:
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


def _insert(m: Any, text: str, op: str) -> Any:
    vector, value, place = split_list(text)
    (_, whole), (_, given) = m.argument(vector), m.argument(value)
    parts = list(whole)
    parts[int(typed(place)[1])] = given
    return parts


def _extract(m: Any, text: str, op: str) -> Any:
    vector, place = split_list(text)
    return m.argument(vector)[1][int(typed(place)[1])]


def _extractvalue(m: Any, text: str, op: str) -> Any:
    whole, place = split_list(text)
    return m.argument(whole)[1][int(place)]


def _alloca(m: Any, text: str, op: str) -> Any:
    size = 64
    place = m.local.shape[1]
    m.local = np.concatenate([m.local, np.zeros((m.threads, size), np.uint8)], axis=1)
    return np.full(m.threads, LOCAL_BASE + place, np.uint64)


def _getelementptr(m: Any, text: str, op: str) -> Any:
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


def _load(m: Any, text: str, op: str) -> Any:
    type_, address, *_ = split_list(text)
    count, each = vector_type(type_)
    return _unflat(type_, m.load(m.argument(address)[1], max(count, 1) * size_of(each), m.mask))


def _store(m: Any, text: str, op: str) -> Any:
    value, address, *_ = split_list(text)
    type_, given = m.argument(value)
    m.store(m.argument(address)[1], _flat(type_, given), m.mask)


def _atomicrmw(m: Any, text: str, op: str) -> Any:
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


def _cmpxchg(m: Any, text: str, op: str) -> Any:
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


def _call(m: Any, text: str, op: str) -> Any:
    text = re.sub(r"^range\(.*?\) ", "", text)
    match = re.match(r"(\{.*?\}|<.*?>|\w+) asm( sideeffect)? \"(.*?)\", \"(.*?)\"\((.*)\)( #\d+)?$", text)
    if match is not None:
        args = [m.argument(part) for part in split_list(match.group(5))]
        return m.assembly.run(match.group(3), match.group(1), args, match.group(4))
    match = re.match(r"(\{.*?\}|<.*?>|\w+) @([\w.]+)\((.*)\)( #\d+)?$", text)
    if match is None:
        raise MachineError(f"unknown call: {text}")
    args = [m.argument(part) for part in split_list(match.group(3))]
    return call(m, match.group(2), match.group(1), args)


HANDLERS: dict[str, Callable[[Any, str, str], Any]] = {
    **dict.fromkeys([*_WRAPPING, "shl", "lshr", "ashr", "sdiv", "udiv", "srem", "urem"], _arithmetic),
    **dict.fromkeys(
        "bitcast trunc zext sext fpext fptrunc sitofp uitofp fptosi fptoui inttoptr ptrtoint".split(), _convert
    ),
    "fneg": _fneg, "icmp": _icmp, "fcmp": _fcmp, "select": _select, "phi": _phi, "insertelement": _insert,
    "extractelement": _extract, "extractvalue": _extractvalue, "alloca": _alloca, "getelementptr": _getelementptr,
    "load": _load, "store": _store, "atomicrmw": _atomicrmw, "cmpxchg": _cmpxchg, "call": _call,
}  # fmt: skip
