"""Every instruction of the running Python is interpreted or refused with a reason."""

from __future__ import annotations

import copy
import dis
import sys
from contextlib import suppress
from types import CodeType, FrameType

from stator.bytecode.decode import VERSION
from stator.bytecode.opcodes import OPCODES
from stator.capture import opcodes
from stator.capture.machine import HANDLERS, REFUSED
from tests.capture.library import CALLS
from tests.capture.plain import run
from tests.capture.statements import PROGRAMS

#: Not in a code object's own bytes: markers of the compiler, of the tracer, and the decoder's own business.
PSEUDO = {"CACHE", "EXTENDED_ARG"}
#: Handlers that no program reaches, and why they are there.
NOT_REACHED = {
    "END_SEND": "the jump that ends a SEND goes past it; it keeps the stack right if one ever falls through",
    **dict.fromkeys(
        "LOAD_BUILD_CLASS LOAD_NAME STORE_NAME DELETE_NAME LOAD_CLASSDEREF LOAD_LOCALS LOAD_FROM_DICT_OR_DEREF".split(),
        "class bodies need the values of classes: programs/class_statements.py runs them",
    ),
}


def test_every_neutral_instruction_is_handled_or_refused() -> None:
    assert len(opcodes.__all__) > 10
    assert set(HANDLERS) | set(REFUSED) == set(OPCODES)
    assert not set(HANDLERS) & set(REFUSED)
    assert all(len(reason) > 10 for reason in REFUSED.values())


def test_every_raw_opcode_has_a_rule() -> None:
    raw = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    assert raw - PSEUDO == set(VERSION.rules) - _other_versions()
    emitted = _emitted(set(VERSION.rules))
    assert emitted <= set(OPCODES) | {head for _, head in VERSION.folds} | {first for first, _ in VERSION.folds}


def _emitted(raw: set[str]) -> set[str]:
    """The neutral instructions that these raw opcodes are decoded to."""
    rules = [VERSION.rules[name] for name in raw]
    steps = [rule(arg) for rule in rules if callable(rule) for arg in range(6)] + [r for r in rules if not callable(r)]
    return {step.name for found in steps for step in found}


def test_every_handler_runs_in_some_program() -> None:
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            ran.add(frame.f_code)

    sys.setprofile(note)
    try:
        for function, args in [*PROGRAMS, *[(call, ()) for call in CALLS]]:
            with suppress(Exception):  # whether it is the right one is what the test of the programs asks
                run(function, *copy.deepcopy(args))
    finally:
        sys.setprofile(None)
    wanted = _emitted(set(VERSION.rules) - _other_versions()) & set(HANDLERS) - set(NOT_REACHED)
    assert not {name for name in wanted if HANDLERS[name].__code__ not in ran}


def _other_versions() -> set[str]:
    return {name for name in VERSION.rules if name not in dis.opmap}


def test_rules_name_only_opcodes_that_exist() -> None:
    assert _other_versions() == set()


def test_null_in_a_call_before_and_after() -> None:
    def program(items: list[int]) -> tuple[int, int, list[str]]:
        return len(items), items.count(1), list(map(str, items))

    assert run(program, [1, 2, 1]) == (3, 2, ["1", "2", "1"])
