"""Encode neutral instructions for the running Python, as instructions of the library `bytecode`.

`instruction` encodes one, `body` all those of a code object with its labels and handlers. What differs between versions
is in their tables (`Version.encodings`, `Version.landings`). Invariant: decoding what was encoded gives the neutral
instructions again. Reading an unset local raises, whatever the original knew about it. Neighbours: `decode.py` (the way
back), `continuation.py` (puts a body behind a prologue).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any, NamedTuple

from bytecode import Instr, Label
from bytecode.instr import CellVar, FreeVar, InstrLocation, TryBegin, TryEnd

from stator.bytecode.decode import VERSION, slot_names
from stator.bytecode.encodings import IT, Pieces
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import having, taking

#: What code is made of.
Item = Instr | Label | TryBegin | TryEnd

#: Instructions whose operand is the slot of a local, those whose slot holds a cell, and those that jump to another.
FAST, CELL, JUMPS = taking("slot"), taking("cell"), taking("target")

#: The names that jumps have where the target stands before them.
BACKWARD = {
    "JUMP": "JUMP_BACKWARD",
    **{f"POP_JUMP_IF_{test}": f"POP_JUMP_BACKWARD_IF_{test}" for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")},
}

#: Nothing runs on behind these.
FINAL = having("ends")


class Slots(NamedTuple):
    """How slots are named, by number: as locals, and as cells."""

    fast: tuple[str | FreeVar, ...]
    cells: tuple[CellVar | FreeVar, ...]


def slots_of(code: CodeType) -> Slots:
    """The slots of code that has the same locals, cells and free variables."""
    names = slot_names(code)
    first_free = len(names) - len(code.co_freevars)
    own, free = names[:first_free], tuple(FreeVar(name) for name in names[first_free:])
    return Slots((*own, *free), (*(CellVar(name) for name in own), *free))


def instruction(name: str, arg: Any = None, slots: Slots | None = None, *, backward: bool = False) -> list[Instr]:
    """One neutral instruction; the operand of a jump is a `Label`, and `backward` says that it stands before."""
    if name in FAST:
        assert slots is not None
        arg = slots.fast[arg]
    elif name in CELL:
        assert slots is not None
        arg = slots.cells[arg]
    elif backward:
        name = BACKWARD[name]
    encoding = VERSION.encodings[name]
    pieces = encoding(arg) if callable(encoding) else encoding
    return _instructions(pieces, arg)


def landing(name: str, label: Label) -> list[Item]:
    """What stands where the instruction `name` jumps to: the label, and what the interpreter skips from there.

    Nothing else may jump to this label or run into it: a `FOR_ITER` lands behind an instruction that no other path
    may execute.
    """
    return [label, *_instructions(VERSION.landings.get(name, ()), None)]


def _instructions(pieces: Pieces, arg: Any) -> list[Instr]:
    return [Instr(piece.name, *(arg if item is IT else item for item in piece.args)) for piece in pieces]


class Body(NamedTuple):
    """All instructions of a code object, encoded."""

    items: list[Item]
    #: Label before each instruction; there is one behind the last.
    labels: list[Label]


def body(decoded: Decoded, slots: Slots) -> Body:
    """The instructions of `decoded` with line numbers, jumps and handlers."""
    return _Encoder(decoded, slots).run()


class _Encoder:
    def __init__(self, decoded: Decoded, slots: Slots) -> None:
        self.decoded = decoded
        self.slots = slots
        self.items: list[Item] = []
        self.labels = [Label() for _ in range(len(decoded.instructions) + 1)]
        #: Index → where a `FOR_ITER` that ends a loop there lands.
        self.landings = {arg: Label() for name, arg in decoded.instructions if name == "FOR_ITER"}

    def run(self) -> Body:
        starts = {block.start: block for block in self.decoded.blocks if block.start < block.end}
        open_block: tuple[int, TryBegin] | None = None
        runs_on = True
        for index, (name, arg) in enumerate(self.decoded.instructions):
            if open_block is not None and open_block[0] == index:
                self.items.append(TryEnd(open_block[1]))
                open_block = None
            self._land(index, runs_on)
            self.items.append(self.labels[index])
            if (block := starts.get(index)) is not None:
                begin = TryBegin(self.labels[block.target], push_lasti=block.lasti, stack_depth=block.depth)
                self.items.append(begin)
                open_block = block.end, begin
            self._place(index, self._instruction(index, name, arg))
            runs_on = name not in FINAL
        if open_block is not None:
            self.items.append(TryEnd(open_block[1]))
        self.items.append(self.labels[-1])
        return Body(self.items, self.labels)

    def _land(self, index: int, runs_on: bool) -> None:
        """Where loops end, what the interpreter skips is kept out of every other way."""
        label = self.landings.get(index)
        if label is None:
            return
        items = landing("FOR_ITER", label)
        if runs_on and len(items) > 1:
            items.insert(0, Instr("JUMP_FORWARD", self.labels[index]))
        self._place(index, items)

    def _instruction(self, index: int, name: str, arg: Any) -> list[Instr]:
        if name == "YIELD_VALUE":
            # In a `yield from`, what is yielded comes from SEND.
            arg = index > 0 and self.decoded.instructions[index - 1].name == "SEND"
        if name not in JUMPS:
            return instruction(name, arg, self.slots)
        if name == "FOR_ITER":
            return instruction(name, self.landings[arg])
        if name == "SEND" and "END_SEND" in VERSION.encodings:
            return instruction(name, self.labels[arg - 1])  # there is END_SEND
        return instruction(name, self.labels[arg], backward=arg <= index)

    def _place(self, index: int, items: Iterable[Item]) -> None:
        location = InstrLocation._from_tuple(*self.decoded.position(index))
        for item in items:
            if isinstance(item, Instr):
                item.location = location
            self.items.append(item)
