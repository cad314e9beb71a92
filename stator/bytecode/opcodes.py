"""The neutral instructions: one row says all about an opcode, and everything else that knows opcodes reads it here.

    NAME operand | stack | traits | what it does

The stack is `popped → pushed`, the top on the right, with `item*n` for as many as the operand says (`COUNTS`); what is
left alone is not named; behind `;` it is that of a jump. `?` stands where the effect depends on the version: such code
is no function's. Traits are those of `TRAITS`. What an instruction means is a function of `capture/opcodes/`, which is
registered under the name; how a version of Python spells one that is not `same` is in its own file.
Invariant: the names are a closed set; a test holds that each is handled or refused, and held against its effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

#: Items popped and pushed.
Effect = tuple[int, int]

#: What is said of an instruction beside its stack; `refused:reason` as well (`capture/opcodes/refused.py`).
TRAITS: Final[dict[str, str]] = {
    "same": "all versions of Python have it under this name, with this operand",
    "reads": "reads the slot that is its operand",
    "writes": "sets or unsets that slot",
    "ends": "nothing runs on behind it",
    "raises": "leaves with an exception",
    "calls": "calls what is below its arguments, beside which is NULL or an argument more",
    "outward": "changes what is not its frame's, or reads it without a name",
    "silent": "does nothing that capture could refuse, so a graph that ends there has nothing left to do for real",
}

#: How many items `*n` are, by the kind of the operand.
COUNTS: Final[dict[str, Callable[[Any], int]]] = {
    "count": lambda count: count,
    "flag": int,
    "ends": lambda ends: ends[0] + 1 + ends[1],  # counts before and after the star
    "call": lambda call: call[0],  # the count and the names of keywords
    "function": lambda made: made[1].bit_count(),  # the code and a flag for each attribute
    "generic": lambda made: 2 if made[0] == "CALL_INTRINSIC_2" else 1,  # the raw opcode and its number
}

#: Kinds of operands: what the operand of an instruction is once it is resolved.
OPERANDS: Final = frozenset(COUNTS) | frozenset("- slot cell name object symbol target depth conversion super".split())

TABLE = """
    NOP -                  | →                          | same silent      | nothing
    POP_TOP -              | a →                        | same silent      |
    COPY depth             | → copy                     | same silent      | of the item so deep, the top is 1
    SWAP depth             | →                          | same silent      | the top with the item so deep
    PUSH_NULL -            | → NULL                     | same silent      |

    LOAD_CONST object      | → value                    | same silent      |
    LOAD_FAST slot         | → value                    | same reads silent | an unset one raises
    LOAD_FAST_AND_CLEAR slot | → value                  | reads writes silent | or NULL, and unsets it
    STORE_FAST slot        | value →                    | same writes silent | NULL as well
    DELETE_FAST slot       | →                          | same reads writes silent |
    MAKE_CELL cell         | →                          | same reads writes silent | puts its value into a fresh cell
    COPY_FREE_VARS count   | →                          | same silent      | the closure into the last slots
    LOAD_CLOSURE cell      | → cell                     | reads silent     |
    LOAD_DEREF cell        | → value                    | same reads silent | the contents of the cell
    STORE_DEREF cell       | value →                    | same reads silent outward |
    DELETE_DEREF cell      | →                          | same reads silent outward |
    LOAD_GLOBAL name       | → value                    | silent           | of globals, then of builtins
    STORE_GLOBAL name      | value →                    | same outward     |
    DELETE_GLOBAL name     | →                          | same outward     |
    LOAD_ATTR name         | object → value             |                  |
    LOAD_SUPER_ATTR super  | super, class, self → value |                  | the name, and whether it had arguments
    STORE_ATTR name        | value, object →            | same             |
    DELETE_ATTR name       | object →                   | same             |
    IMPORT_NAME name       | level, names → module      | same outward     |
    IMPORT_FROM name       | → value                    | same             | of the module on top
    LOAD_ASSERTION_ERROR - | → AssertionError           | same silent      |

    UNARY_POSITIVE -       | a → +a                     |                  |
    UNARY_NEGATIVE -       | a → -a                     | same             |
    UNARY_INVERT -         | a → ~a                     | same             |
    UNARY_NOT -            | a → not a                  | same             |
    TO_BOOL -              | a → bool(a)                |                  |
    BINARY_OP symbol       | a, b → a op b              |                  |
    INPLACE_OP symbol      | a, b → a op= b             |                  |
    COMPARE_OP symbol      | a, b → a op b              |                  |
    IS_OP flag             | a, b → a is b              | same silent      | inverted where the flag is set
    CONTAINS_OP flag       | a, b → a in b              | same             | inverted where the flag is set
    BINARY_SUBSCR -        | container, key → item      | same             |
    STORE_SUBSCR -         | value, container, key →    | same             |
    DELETE_SUBSCR -        | container, key →           | same             |

    JUMP target            | →                          | ends silent      |
    POP_JUMP_IF_FALSE target | a →                      |                  |
    POP_JUMP_IF_TRUE target | a →                       |                  |
    POP_JUMP_IF_NONE target | a →                       | silent           |
    POP_JUMP_IF_NOT_NONE target | a →                   | silent           |
    GET_ITER -             | a → iterator               | same             |
    FOR_ITER target        | → item; iterator →         |                  | of the iterator on top, jumps at the end
    RETURN_VALUE -         | value →                    | same ends silent | leaves the frame

    CALL count             | callable, self, arg*n → result | same calls   | NULL for self before or behind
    CALL_KW call           | callable, self, arg*n → result | calls        | the last ones by keyword
    CALL_FUNCTION_EX flag  | callable, NULL, args, mapping*n → result | same |
    MAKE_FUNCTION function | attribute*n → function     | silent           | defaults, closure and so on

    BUILD_TUPLE count      | item*n → tuple             | same silent      |
    BUILD_LIST count       | item*n → list              | same silent      |
    BUILD_SET count        | item*n → set               | same             |
    BUILD_MAP count        | key*n, value*n → dict      | same             | a key, its value, and so on
    BUILD_CONST_KEY_MAP count | value*n, keys → dict    | same             |
    BUILD_SLICE count      | part*n → slice             | same silent      |
    BUILD_STRING count     | string*n → string          | same             |
    LIST_APPEND depth      | item →                     | same             | to the list so deep
    SET_ADD depth          | item →                     | same             |
    MAP_ADD depth          | key, value →               | same             |
    LIST_EXTEND depth      | iterable →                 | same             |
    SET_UPDATE depth       | iterable →                 | same             |
    DICT_UPDATE depth      | mapping →                  | same             |
    DICT_MERGE depth       | mapping →                  | same             | a key twice raises
    LIST_TO_TUPLE -        | list → tuple               | silent           |
    UNPACK_SEQUENCE count  | iterable → item*n          | same             | the first on top
    UNPACK_EX ends         | iterable → item*n          | same             | the first on top, with a list for the star
    CONVERT_VALUE conversion | a → string               |                  | 1 str, 2 repr, 3 ascii
    FORMAT_SIMPLE conversion | a → string               |                  | converted first, unless it is 0
    FORMAT_WITH_SPEC conversion | a, spec → string      |                  | converted first, unless it is 0

    GET_LEN -              | → length                   | same             | of the item on top
    MATCH_MAPPING -        | → bool                     | same             | of the item on top
    MATCH_SEQUENCE -       | → bool                     | same             | of the item on top
    MATCH_KEYS -           | → values                   | same             | of the subject at the keys on top, or None
    MATCH_CLASS count      | a, class, names → attributes | same           | so many by position; or None

    RAISE_VARARGS count    | part*n →                   | same ends raises | exception and cause
    RERAISE depth          | exception →                | same ends raises | the instruction index is so deep, or 0
    PUSH_EXC_INFO -        | exception → previous, exception | same silent | it is being handled
    POP_EXCEPT -           | previous →                 | same silent      | it is being handled again
    CHECK_EXC_MATCH -      | class → bool               | same             | of the exception below
    BEFORE_WITH -          | manager → exit, entered    | same             |
    WITH_EXCEPT_START -    | → result                   | same             | of the exit below the exception

    RETURN_GENERATOR -     | → None                     | same silent      | the first value sent
    YIELD_VALUE -          | value → sent               | same             | leaves the frame until resumed
    GET_YIELD_FROM_ITER -  | a → iterator               | same             | generators as they are
    SEND target            | value → yielded; receiver, value → result |   | jumps at the end
    END_SEND -             | receiver, value → value    |                  |
    CLEANUP_THROW -        | receiver, value, exception → NULL, value |    | that of StopIteration, or raises
    STOPITERATION_ERROR -  | exception → exception      |                  | RuntimeError in place of StopIteration

    LOAD_BUILD_CLASS -     | → builder                  | same             | class statement
    LOAD_NAME name         | → value                    | same             | class or module body
    STORE_NAME name        | value →                    | same             | class or module body
    DELETE_NAME name       | →                          | same             | class or module body
    LOAD_LOCALS -          | → namespace                |                  | class body
    LOAD_CLASSDEREF cell   | → value                    | reads silent     | class body
    LOAD_FROM_DICT_OR_DEREF cell | namespace → value    | reads silent     | class body

    CHECK_EG_MATCH -       | group, class → rest, matched | same refused:except_star |
    PREP_RERAISE_STAR -    | original, raised → exception | refused:except_star |
    GET_AWAITABLE count    | a → awaitable              | same refused:async |
    GET_AITER -            | a → iterator               | same refused:async |
    GET_ANEXT -            | → awaitable                | same refused:async |
    BEFORE_ASYNC_WITH -    | manager → exit, awaitable  | same refused:async |
    END_ASYNC_FOR -        | iterator, exception →      | same refused:async |
    ASYNC_GEN_WRAP -       | a → wrapped                | refused:async    |
    LOAD_FROM_DICT_OR_GLOBALS name | namespace → value  | refused:class_body |
    SETUP_ANNOTATIONS -    | →                          | same refused:class_body |
    TYPE_PARAMETERS generic | part*n → made             | refused:generic  | generic functions and type aliases
    IMPORT_STAR -          | ?                          | refused:module_body |
    PRINT_EXPR -           | ?                          | refused:module_body | interactive input
    EXIT_INIT_CHECK -      | ?                          | refused:internal |
    INTERPRETER_EXIT -     | ?                          | refused:internal |
    ENTER_EXECUTOR count   | ?                          | refused:internal |
    RESERVED -             | ?                          | refused:internal |
"""


class Stack(NamedTuple):
    """Items popped and pushed: so many, and so many more for each `n`."""

    popped: int
    pushed: int
    popped_each: int = 0
    pushed_each: int = 0


class Opcode(NamedTuple):
    """A row."""

    name: str
    operand: str
    #: None: not that of a function.
    stack: Stack | None
    #: Where it jumps, if that differs.
    jumping: Effect | None
    traits: frozenset[str]
    #: By which name `capture/opcodes/refused.py` has the reason why no frame that has it is interpreted.
    refused: str | None
    note: str

    @property
    def jumps(self) -> bool:
        """Whether its operand is the index of another instruction."""
        return self.operand == "target"

    def effect(self, arg: Any) -> Effect | None:
        """How many items it pops and pushes when it does not jump."""
        if self.stack is None:
            return None
        popped, pushed, popped_each, pushed_each = self.stack
        if not popped_each and not pushed_each:
            return popped, pushed
        n = COUNTS[self.operand](arg)
        return popped + n * popped_each, pushed + n * pushed_each


def _stack(text: str) -> Stack:
    popped, pushed = ([item for item in side.strip().split(", ") if item] for side in text.split("→"))
    each, pushed_each = (sum(item.endswith("*n") for item in side) for side in (popped, pushed))
    return Stack(len(popped) - each, len(pushed) - pushed_each, each, pushed_each)


def _row(line: str) -> Opcode:
    head, stack, words, note = (part.strip() for part in line.split("|"))
    name, operand = head.split()
    straight, _, jumping = stack.partition(";")
    traits = words.split()
    refused = next((word.removeprefix("refused:") for word in traits if word.startswith("refused:")), None)
    return Opcode(
        name,
        operand,
        None if stack == "?" else _stack(straight),
        _stack(jumping)[:2] if jumping else None,
        frozenset(word for word in traits if word in TRAITS),
        refused,
        note,
    )


#: The rows by name.
OPCODES: Final[dict[str, Opcode]] = {
    row.name: row for row in (_row(line) for line in TABLE.splitlines() if line.strip())
}


def having(trait: str) -> frozenset[str]:
    """The names of the rows that have a trait."""
    return frozenset(name for name, row in OPCODES.items() if trait in row.traits)


def taking(*operands: str) -> frozenset[str]:
    """The names of the rows with such an operand."""
    return frozenset(name for name, row in OPCODES.items() if row.operand in operands)
