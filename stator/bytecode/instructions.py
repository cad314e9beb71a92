"""The version-neutral form of a code object.

The vocabulary is closed (`opcodes.py`): each instruction has one name and one operand that is already resolved, so a
constant is the object, a name a string, a local its slot, and a jump the index of an instruction. Invariant: running
the neutral instructions over CPython's stack layout gives what CPython gives; NULL on the stack is `None`.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple


class Instruction(NamedTuple):
    """One neutral instruction; `arg` is resolved, jump targets are instruction indices."""

    name: str
    arg: Any

    def __str__(self) -> str:
        return self.name if self.arg is None else f"{self.name} {self.arg!r}"


class Block(NamedTuple):
    """Instructions `start` to `end` (not included) are protected by the handler at `target`."""

    start: int
    end: int
    target: int
    #: Stack depth to cut back to before the exception is pushed.
    depth: int
    #: Whether the index of the raising instruction is pushed below the exception.
    lasti: bool


class Position(NamedTuple):
    """Where an instruction stands in the source text; unknown parts are None."""

    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None


class Decoded:
    """A decoded code object; immutable by convention and shared by all frames that run it."""

    __slots__ = ("_positions", "blocks", "code", "instructions", "layouts", "live", "offsets", "program", "slot_names")

    def __init__(
        self,
        code: CodeType,
        instructions: tuple[Instruction, ...],
        offsets: tuple[int, ...],
        blocks: tuple[Block, ...],
        slot_names: tuple[str, ...],
    ) -> None:
        self.code = code
        self.instructions = instructions
        #: Code unit that each instruction comes from.
        self.offsets = offsets
        self.blocks = blocks
        #: Names of the slots: locals, then cells that are not arguments, then free variables.
        self.slot_names = slot_names
        #: What the machine runs, made from the instructions at first use.
        self.program: list[tuple[Any, Any]] | None = None
        #: The stack and the live slots before each instruction, found at first use by `flow` and `liveness`.
        self.layouts: tuple[tuple[str, ...] | None, ...] | None = None
        self.live: tuple[frozenset[int], ...] | None = None
        self._positions: list[Position] | None = None

    def position(self, index: int) -> Position:
        """Where instruction `index` comes from."""
        if self._positions is None:
            self._positions = [Position(*entry) for entry in self.code.co_positions()]
        return self._positions[self.offsets[index]]

    def block_at(self, index: int) -> Block | None:
        """The innermost handler that protects instruction `index`."""
        found = None
        for block in self.blocks:
            if block.start <= index < block.end:
                found = block
        return found

    def text(self) -> str:
        """A listing, one instruction a line, then the handlers."""
        lines = [f"{i:4} {instruction}" for i, instruction in enumerate(self.instructions)]
        lines += [
            f"     {b.start}..{b.end} → {b.target} depth {b.depth}{' lasti' if b.lasti else ''}" for b in self.blocks
        ]
        return "\n".join(lines)
