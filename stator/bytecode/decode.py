"""Decode a code object into neutral instructions.

One pass over the code units applies the version's rules, a second resolves jumps and the exception table from code
units to instruction indices. The result is cached for as long as the code object lives. Neighbours: `rules.py` and the
version tables (what), `instructions.py` (the result), `capture/machine.py` (runs it).
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any

from stator.bytecode import v311, v312, v313
from stator.bytecode.instructions import Block, Decoded, Instruction
from stator.bytecode.rules import Steps, Target, Version

VERSIONS: dict[tuple[int, int], Version] = {
    (3, 11): v311.VERSION,
    (3, 12): v312.VERSION,
    (3, 13): v313.VERSION,
}
VERSION = VERSIONS[sys.version_info[:2]]

CACHE = dis.opmap["CACHE"]

#: id(code) → decoded. Keyed by identity: equality of code objects compares everything they contain.
_decoded: dict[int, Decoded] = {}


def decode(code: CodeType) -> Decoded:
    """The neutral form of `code`."""
    key = id(code)
    found = _decoded.get(key)
    if found is None:
        found = _decoded[key] = _decode(code)
        # The cache must not keep the code alive, so `Decoded.code` is a copy of it.
        weakref.finalize(code, _decoded.pop, key, None).atexit = False
    return found


class _Rules:
    """The version's rules by opcode number, steps by (opcode, argument) remembered."""

    def __init__(self, version: Version) -> None:
        self.by_opcode = {dis.opmap[name]: rule for name, rule in version.rules.items() if name in dis.opmap}
        self.folds = version.folds
        self.heads = frozenset(name for _, name in version.folds)
        self.trailing = {dis.opmap[name]: count for name, count in version.trailing.items()}

    def steps(self, opcode: int, arg: int) -> Steps:
        rule = self.by_opcode[opcode]
        return rule(arg) if callable(rule) else rule


RULES = _Rules(VERSION)


def _units(raw: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(first unit, opcode, argument, unit after the caches and what else belongs to it) for each instruction."""
    extended = 0
    first = -1
    count = len(raw) // 2
    unit = 0
    while unit < count:
        opcode, arg = raw[2 * unit], raw[2 * unit + 1] | extended
        first = unit if first < 0 else first
        unit += 1
        if opcode == dis.EXTENDED_ARG:
            extended = arg << 8
            continue
        while unit < count and raw[2 * unit] == CACHE:
            unit += 1
        if opcode in RULES.trailing:
            unit += RULES.trailing[opcode]
        yield first, opcode, arg, unit
        extended, first = 0, -1


def _decode(code: CodeType) -> Decoded:
    raw = code.co_code
    names: list[str] = []
    args: list[Any] = []
    offsets: list[int] = []
    index_of = [0] * (len(raw) // 2 + 1)
    folds, heads = RULES.folds, RULES.heads
    for first, opcode, arg, after in _units(raw):
        index_of[first:after] = [len(names)] * (after - first)
        for name, operand in RULES.steps(opcode, arg):
            value = operand(code, arg, after)
            if name in heads and names and (fold := folds.get((names[-1], name))):
                names[-1], args[-1] = fold(args[-1], value)
                continue
            names.append(name)
            args.append(value)
            offsets.append(first)
    index_of[-1] = len(names)
    instructions = tuple(
        Instruction(name, index_of[arg] if type(arg) is Target else arg) for name, arg in zip(names, args, strict=True)
    )
    blocks = tuple(
        Block(index_of[start], index_of[end], index_of[target], depth, lasti)
        for start, end, target, depth, lasti in _exception_table(code.co_exceptiontable)
    )
    return Decoded(code.replace(), instructions, tuple(offsets), blocks, slot_names(code))


def slot_names(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots in their order."""
    own = code.co_varnames
    cells = tuple(name for name in code.co_cellvars if name not in own)
    return (*own, *cells, *code.co_freevars)


def _exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, lasti) in code units; entries are groups of four base-64 numbers."""
    position = 0

    def number() -> int:
        nonlocal position
        byte = table[position]
        value = byte & 63
        while byte & 64:
            position += 1
            byte = table[position]
            value = value << 6 | byte & 63
        position += 1
        return value

    while position < len(table):
        start, length, target, packed = number(), number(), number(), number()
        yield start, start + length, target, packed >> 1, bool(packed & 1)
