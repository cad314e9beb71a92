"""What a raw opcode becomes: the words the version tables are written in, and the rows all versions share.

A rule is a tuple of steps, or a function of the raw argument that gives one. A step is a neutral name and how its
operand is found. A fold joins a step with the instruction emitted just before it. What all versions spell alike is read
from the rows of `opcodes.py`; the version files hold the rest.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NamedTuple

from stator.bytecode.encodings import Encoding, Pieces
from stator.bytecode.opcodes import OPCODES, having

#: Finds the operand from the code object, the raw argument, and the code unit after the instruction and its caches.
Operand = Callable[[CodeType, int, int], Any]


class Step(NamedTuple):
    """One neutral instruction to emit."""

    name: str
    operand: Operand


Steps = tuple[Step, ...]
Rule = Steps | Callable[[int], Steps]
Fold = Callable[[Any, Any], tuple[str, Any]]


class Version(NamedTuple):
    """Everything the decoder needs to know about one Python version."""

    rules: Mapping[str, Rule]
    #: (name before, name) → how both become one; gets both operands.
    folds: Mapping[tuple[str, str], Fold]
    #: Neutral name → real instructions.
    encodings: Mapping[str, Encoding]
    #: Neutral name → real instructions that stand where it jumps to.
    landings: Mapping[str, Pieces] = {}
    #: Raw opcode → how many instructions behind it belong to it.
    trailing: Mapping[str, int] = {}


# -- operands ----------------------------------------------------------------------------------------


class Target(int):
    """A code unit to jump to; the decoder turns it into an instruction index."""


def none(code: CodeType, arg: int, after: int) -> None:
    return None


def raw(code: CodeType, arg: int, after: int) -> int:
    return arg


def constant(code: CodeType, arg: int, after: int) -> Any:
    return code.co_consts[arg]


def name(code: CodeType, arg: int, after: int) -> str:
    return code.co_names[arg]


def high(code: CodeType, arg: int, after: int) -> int:
    """The upper of two slots packed into one argument."""
    return arg >> 4


def low(code: CodeType, arg: int, after: int) -> int:
    return arg & 15


def flag(code: CodeType, arg: int, after: int) -> bool:
    return bool(arg)


def ends(code: CodeType, arg: int, after: int) -> tuple[int, int]:
    """Counts before and after the star."""
    return arg & 255, arg >> 8


def forward(skip: int = 0) -> Operand:
    """A jump ahead that lands `skip` units after the encoded target."""
    return lambda code, arg, after: Target(after + arg + skip)


def backward(code: CodeType, arg: int, after: int) -> Target:
    return Target(after - arg)


def shifted_name(bits: int) -> Operand:
    return lambda code, arg, after: code.co_names[arg >> bits]


def fixed(value: Any) -> Operand:
    return lambda code, arg, after: value


# -- rules -------------------------------------------------------------------------------------------


def emit(neutral: str, operand: Operand = none) -> Steps:
    return (Step(neutral, operand),)


#: How the operand is found, by its kind; the others are the raw argument.
DECODED: dict[str, Operand] = {"-": none, "name": name, "object": constant, "flag": flag, "ends": ends}


def same(*names: str) -> dict[str, Rule]:
    """Opcodes that keep their name, and have the operand that their row says."""
    return {each: emit(each, DECODED.get(OPCODES[each].operand, raw)) for each in names}


def nothing(*names: str) -> dict[str, Rule]:
    """Opcodes without an effect that matters here."""
    return dict.fromkeys(names, ())


def when(bit: int, then: Steps, otherwise: Steps) -> Rule:
    """One of two rules by a bit of the argument."""
    return lambda arg: then if arg & bit else otherwise


def binary_op(arg: int) -> Steps:
    """The numbered operators; the numbering has been the same since 3.11."""
    symbol = dis._nb_ops[arg][1]  # type: ignore[attr-defined]
    if symbol.endswith("="):
        return emit("INPLACE_OP", fixed(symbol[:-1]))
    return emit("BINARY_OP", fixed(symbol))


def compare_op(shift: int, bool_bit: int = 0) -> Rule:
    """A comparison whose operator starts at bit `shift`, forced to a bool where `bool_bit` is set."""

    def rule(arg: int) -> Steps:
        steps = emit("COMPARE_OP", fixed(dis.cmp_op[arg >> shift]))
        return (*steps, *emit("TO_BOOL")) if arg & bool_bit else steps

    return rule


def format_value(arg: int) -> Steps:
    """FORMAT_VALUE of 3.11 and 3.12: a conversion in two bits, and whether a spec is on the stack."""
    return emit("FORMAT_WITH_SPEC" if arg & 4 else "FORMAT_SIMPLE", fixed(arg & 3))


def numbered(opcode: str, names: Mapping[int, str]) -> Rule:
    """The intrinsic functions: neutral name by number; those not named make type parameters."""
    return lambda arg: emit(names[arg]) if arg in names else emit("TYPE_PARAMETERS", fixed((opcode, arg)))


SLICE = emit("BUILD_SLICE", fixed(2))

#: Before 3.13, NULL goes below the callable.
NULL_BELOW = (*emit("PUSH_NULL"), *emit("SWAP", fixed(2)))

#: The code of a function is always loaded just before the function is made.
FUNCTION_FOLDS: dict[tuple[str, str], Fold] = {
    ("LOAD_CONST", "MAKE_FUNCTION"): lambda code, flags: ("MAKE_FUNCTION", (code, flags)),
}

SHARED: dict[str, Rule] = {
    **same(*having("same")),
    **nothing("NOP", "RESUME"),
    "BINARY_OP": binary_op,
    "JUMP_FORWARD": emit("JUMP", forward()),
    "JUMP_BACKWARD": emit("JUMP", backward),
    "JUMP_BACKWARD_NO_INTERRUPT": emit("JUMP", backward),
}
