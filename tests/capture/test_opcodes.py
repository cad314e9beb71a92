"""Every instruction of the running Python is interpreted or refused with a reason."""

from __future__ import annotations

import dis

from stator.bytecode.decode import VERSION
from stator.bytecode.instructions import NAMES
from stator.capture import opcodes
from stator.capture.machine import OPCODES, REFUSED
from tests.capture.plain import run

#: Not in a code object's own bytes: markers of the compiler, of the tracer, and the decoder's own business.
PSEUDO = {"CACHE", "EXTENDED_ARG"}


def test_every_neutral_instruction_is_handled_or_refused() -> None:
    assert len(opcodes.__all__) > 10
    assert set(OPCODES) | set(REFUSED) == set(NAMES)
    assert not set(OPCODES) & set(REFUSED)
    assert all(len(reason) > 10 for reason in REFUSED.values())


def test_every_raw_opcode_has_a_rule() -> None:
    raw = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    assert raw - PSEUDO == set(VERSION.rules) - _other_versions()
    emitted = {
        step.name
        for name, rule in VERSION.rules.items()
        for arg in ((0, 1, 2, 3, 4, 5) if callable(rule) else (0,))
        for step in (rule(arg) if callable(rule) else rule)
    }
    assert emitted <= set(NAMES) | {head for _, head in VERSION.folds} | {first for first, _ in VERSION.folds}


def _other_versions() -> set[str]:
    return {name for name in VERSION.rules if name not in dis.opmap}


def test_rules_name_only_opcodes_that_exist() -> None:
    assert _other_versions() == set()


def test_null_in_a_call_before_and_after() -> None:
    def program(items: list[int]) -> tuple[int, int, list[str]]:
        return len(items), items.count(1), list(map(str, items))

    assert run(program, [1, 2, 1]) == (3, 2, ["1", "2", "1"])
