"""The version-neutral form of a code object.

The vocabulary is closed (`NAMES`): each instruction has one name and one operand that is already resolved, so a
constant is the object, a name a string, a local its slot, and a jump the index of an instruction. Invariant: running
the neutral instructions over CPython's stack layout gives what CPython gives; NULL on the stack is `None`.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

#: Every neutral name, with its operand and what it does to the stack (top on the right).
NAMES: dict[str, str] = {
    # stack
    "NOP": "nothing",
    "POP_TOP": "a →",
    "COPY": "count; push the count-th item from the top again",
    "SWAP": "count; exchange the top with the count-th item",
    "PUSH_NULL": "→ NULL",
    # names
    "LOAD_CONST": "object; → value",
    "LOAD_FAST": "slot; → value, an unset one raises",
    "LOAD_FAST_AND_CLEAR": "slot; → value or NULL, and unsets it",
    "STORE_FAST": "slot; value or NULL →",
    "DELETE_FAST": "slot",
    "MAKE_CELL": "slot; puts its value into a fresh cell",
    "COPY_FREE_VARS": "count; the function's closure into the last slots",
    "LOAD_CLOSURE": "slot; → cell",
    "LOAD_DEREF": "slot; → contents of the cell",
    "STORE_DEREF": "slot; value →",
    "DELETE_DEREF": "slot",
    "LOAD_GLOBAL": "name; → value, globals then builtins",
    "STORE_GLOBAL": "name; value →",
    "DELETE_GLOBAL": "name",
    "LOAD_ATTR": "name; object → value",
    "LOAD_SUPER_ATTR": "(name, two arguments given); super, class, self → value",
    "STORE_ATTR": "name; value, object →",
    "DELETE_ATTR": "name; object →",
    "IMPORT_NAME": "name; level, names → module",
    "IMPORT_FROM": "name; module → module, value",
    "LOAD_ASSERTION_ERROR": "→ AssertionError",
    # operators
    "UNARY_POSITIVE": "a → +a",
    "UNARY_NEGATIVE": "a → -a",
    "UNARY_INVERT": "a → ~a",
    "UNARY_NOT": "a → not a",
    "TO_BOOL": "a → bool(a)",
    "BINARY_OP": "operator; a, b → a op b",
    "INPLACE_OP": "operator; a, b → a op= b",
    "COMPARE_OP": "operator; a, b → a op b",
    "IS_OP": "inverted; a, b → a is b",
    "CONTAINS_OP": "inverted; a, b → a in b",
    "BINARY_SUBSCR": "container, key → item",
    "STORE_SUBSCR": "value, container, key →",
    "DELETE_SUBSCR": "container, key →",
    # control
    "JUMP": "target",
    "POP_JUMP_IF_FALSE": "target; a →",
    "POP_JUMP_IF_TRUE": "target; a →",
    "POP_JUMP_IF_NONE": "target; a →",
    "POP_JUMP_IF_NOT_NONE": "target; a →",
    "GET_ITER": "a → iterator",
    "FOR_ITER": "target; iterator → iterator, item; at the end: iterator → and jump",
    "RETURN_VALUE": "value → leaves the frame",
    # calls; a callable is (callable, NULL) since Python 3.13, (NULL, callable) before, or (function, self)
    "CALL": "count; callable, arguments → result",
    "CALL_KW": "(count, names); callable, arguments → result",
    "CALL_FUNCTION_EX": "has mapping; callable, sequence, mapping? → result",
    "MAKE_FUNCTION": "(code, flags); defaults?, keyword defaults?, annotations?, closure? → function",
    # containers and text
    "BUILD_TUPLE": "count; items → tuple",
    "BUILD_LIST": "count; items → list",
    "BUILD_SET": "count; items → set",
    "BUILD_MAP": "count; key, value, … → dict",
    "BUILD_CONST_KEY_MAP": "count; values, keys → dict",
    "BUILD_SLICE": "count; start, stop, step? → slice",
    "BUILD_STRING": "count; strings → string",
    "LIST_APPEND": "depth; item →",
    "SET_ADD": "depth; item →",
    "MAP_ADD": "depth; key, value →",
    "LIST_EXTEND": "depth; iterable →",
    "SET_UPDATE": "depth; iterable →",
    "DICT_UPDATE": "depth; mapping →",
    "DICT_MERGE": "depth; mapping →, a key twice raises",
    "LIST_TO_TUPLE": "list → tuple",
    "UNPACK_SEQUENCE": "count; iterable → items, the first on top",
    "UNPACK_EX": "(before, after); iterable → items, the first on top",
    "CONVERT_VALUE": "1 str, 2 repr, 3 ascii; a → string",
    "FORMAT_SIMPLE": "conversion or 0; a → format(a), converted first",
    "FORMAT_WITH_SPEC": "conversion or 0; a, spec → format(a, spec), converted first",
    # match
    "GET_LEN": "a → a, len(a)",
    "MATCH_MAPPING": "a → a, bool",
    "MATCH_SEQUENCE": "a → a, bool",
    "MATCH_KEYS": "a, keys → a, keys, tuple of values or None",
    "MATCH_CLASS": "positional count; a, class, names → tuple of attributes or None",
    # exceptions and with
    "RAISE_VARARGS": "count; exception?, cause? → raises",
    "RERAISE": "depth of the instruction index or 0; exception → raises it",
    "PUSH_EXC_INFO": "exception → previous, exception; it is being handled",
    "POP_EXCEPT": "previous →; it is being handled again",
    "CHECK_EXC_MATCH": "exception, class → exception, bool",
    "BEFORE_WITH": "manager → exit, entered",
    "WITH_EXCEPT_START": "exit, index, previous, exception → …, result of exit",
    # generators
    "RETURN_GENERATOR": "→ None, the first value sent",
    "YIELD_VALUE": "value → leaves the frame until resumed; → value sent",
    "GET_YIELD_FROM_ITER": "a → iterator, generators as they are",
    "SEND": "target; receiver, value → receiver, yielded; at the end: → result and jump",
    "END_SEND": "receiver, value → value",
    "CLEANUP_THROW": "receiver, value, exception → NULL, StopIteration.value, or raises",
    "STOPITERATION_ERROR": "exception → RuntimeError in place of StopIteration",
    # refused by capture, but part of the vocabulary
    "CHECK_EG_MATCH": "except*",
    "PREP_RERAISE_STAR": "except*",
    "GET_AWAITABLE": "async",
    "GET_AITER": "async",
    "GET_ANEXT": "async",
    "BEFORE_ASYNC_WITH": "async",
    "END_ASYNC_FOR": "async",
    "ASYNC_GEN_WRAP": "async",
    "LOAD_BUILD_CLASS": "class statement",
    "LOAD_NAME": "class or module body",
    "STORE_NAME": "class or module body",
    "DELETE_NAME": "class or module body",
    "LOAD_LOCALS": "class body",
    "LOAD_CLASSDEREF": "class body",
    "LOAD_FROM_DICT_OR_DEREF": "class body",
    "LOAD_FROM_DICT_OR_GLOBALS": "class body",
    "SETUP_ANNOTATIONS": "class or module body",
    "IMPORT_STAR": "module body",
    "PRINT_EXPR": "interactive input",
    "TYPE_PARAMETERS": "generic functions and type aliases",
    "EXIT_INIT_CHECK": "internal to the interpreter",
    "INTERPRETER_EXIT": "internal to the interpreter",
    "ENTER_EXECUTOR": "internal to the interpreter",
    "RESERVED": "internal to the interpreter",
}


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
