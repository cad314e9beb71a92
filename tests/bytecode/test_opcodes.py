"""The rows of opcodes: well formed, and held against what `dis` says of the running version."""

from __future__ import annotations

import ast
import dis
import sys
from typing import Any

import pytest

from stator.bytecode import encode, flow, liveness
from stator.bytecode.opcodes import COUNTS, OPCODES, OPERANDS, TABLE, TRAITS, having
from tests.meta.source_tree import ROOT

#: Arguments for the operands that say how many items there are, as the neutral form has them.
COUNTED: dict[str, tuple[Any, ...]] = {"count": (0, 1, 2, 5), "flag": (False, True), "ends": ((0, 0), (2, 1), (0, 3))}

#: Of these the real instruction does another part of the work than the neutral one.
OTHERWISE = {"RETURN_GENERATOR": "the first value that is sent is counted where the generator goes on"}
if sys.version_info < (3, 12):
    OTHERWISE["CALL"] = "PRECALL pops what stands for the method"


def test_rows_are_made_of_known_words() -> None:
    assert len(OPCODES) == sum(bool(line.strip()) for line in TABLE.splitlines())
    for line in filter(str.strip, TABLE.splitlines()):
        head, _, traits, _ = line.split("|")
        assert set(traits.split()) <= set(TRAITS) | {f"refused:{row.refused}" for row in OPCODES.values()}, line
        assert head.split()[1] in OPERANDS, line
    assert {row.operand for row in OPCODES.values()} == OPERANDS
    assert all(having(trait) for trait in TRAITS)


def test_rows_agree_with_themselves() -> None:
    for name, row in OPCODES.items():
        counted = row.stack is not None and (row.stack.popped_each or row.stack.pushed_each)
        assert not counted or row.operand in COUNTS, name
        assert not row.traits & {"reads", "writes"} or row.operand in ("slot", "cell"), name
        assert row.jumping is None or row.jumps, name
        assert "raises" not in row.traits or "ends" in row.traits, name
        assert row.operand not in ("slot", "cell") or row.traits & {"reads", "writes"}, name


@pytest.mark.parametrize("name", sorted(having("same")))
def test_effects_are_those_that_python_says(name: str) -> None:
    """What the compiler computes stacks with is the second statement of the same effects."""
    row = OPCODES[name]
    number = dis.opmap[name]
    differ = 0
    for arg in (2, 3) if name == "BUILD_SLICE" else COUNTED.get(row.operand, (1,)):
        effect = row.effect(arg)
        assert effect is not None
        popped, pushed = effect
        raw = arg[0] | arg[1] << 8 if isinstance(arg, tuple) else int(arg)
        argument = raw if number >= dis.HAVE_ARGUMENT else None
        differ += pushed - popped != dis.stack_effect(number, argument, jump=False)
    assert bool(differ) == (name in OTHERWISE)


def test_nothing_else_lists_opcodes() -> None:
    """Who needs all opcodes of a sort asks the rows; the tables of the versions say how they are spelled."""
    assert encode.FAST | encode.CELL == liveness.READS | liveness.WRITES
    assert flow.effect("BUILD_MAP", 3) == (6, 1)
    spelling = {"rules.py", "encodings.py", "v311.py", "v312.py", "v313.py", "opcodes.py"}
    files = [p for folder in ("bytecode", "capture") for p in (ROOT / "stator" / folder).rglob("*.py")]
    assert len(files) > 50
    for path in files:
        if path.parent.name == "bytecode" and path.name in spelling:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words: set[Any] = set()
            if isinstance(node, ast.Dict | ast.Set | ast.List | ast.Tuple):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                words = {item.value for item in items if isinstance(item, ast.Constant)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper():
                words = set(node.value.split())
            assert len({word for word in words if isinstance(word, str)} & set(OPCODES)) < 3, f"{path}:{node.lineno}"
