"""The rows of `csrc/guard_kinds.h`: C and Python agree, each has a mutation, and nothing lists the kinds again."""

from __future__ import annotations

import ast
import re
from typing import get_args

import pytest

from stator import _native
from stator.capture.conditions import PRECEDENCE, Number
from stator.capture.guard_kinds import FORMS, KINDS, PAYLOADS
from stator.capture.guards import Guard
from stator.capture.source import ConstSource, LocalSource
from tests.capture.test_soundness_kinds import MUTATIONS
from tests.meta.source_tree import ROOT


def test_every_kind_has_a_mutation() -> None:
    assert set(MUTATIONS) == set(KINDS)


def test_python_knows_what_the_rows_of_c_are_made_of() -> None:
    rows = _native.GUARD_KINDS
    assert len({row[0] for row in rows}) == len(rows)
    assert {row[2] for row in rows} == set(PAYLOADS)
    forms = {form for row in rows for form in re.findall(r"{payload(?:\[\d\])?:?(\w*)}", row[5])}
    assert forms == set(FORMS)
    header = (ROOT / "csrc/guard_kinds.h").read_text(encoding="utf-8")
    assert re.findall(r"KIND\((\w+), \d", header) == [row[0] for row in rows]


def test_no_second_list_of_kinds() -> None:
    """Capture asks for kinds by name where it needs one; every name is a row, and every row is asked for."""
    asked: set[str] = set()
    for path in (ROOT / "stator" / "capture").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in ("guard", "Guard"):
                kinds = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
                asked |= {kind for kind in kinds if isinstance(kind, str)}
        for display in (n for n in ast.walk(tree) if isinstance(n, ast.Dict | ast.Set | ast.List | ast.Tuple)):
            items = display.keys if isinstance(display, ast.Dict) else display.elts
            listed = {item.value for item in items if isinstance(item, ast.Constant)} & set(KINDS)
            assert len(listed) < 3, f"{path.name}:{display.lineno} lists kinds again"
    assert asked == set(KINDS)


def test_steps_and_operands_have_the_names_of_c() -> None:
    """What the tree builder writes into a specification is what the parser reads."""
    header, conditions, arithmetic = (
        (ROOT / "csrc" / name).read_text(encoding="utf-8") for name in ("guard_kinds.h", "condition.c", "arithmetic.h")
    )
    accessors = set(re.findall(r'STEP\(\w+, "(\w+)"\)', header))
    written = ast.parse((ROOT / "stator/capture/guards.py").read_text(encoding="utf-8"))
    steps = {n.elts[1].value for n in ast.walk(written) if isinstance(n, ast.Tuple) and len(n.elts) == 3
             and isinstance(n.elts[1], ast.Constant)}  # fmt: skip
    assert steps == accessors
    assert set(re.findall(r'OPERAND\(\w+, "(\w+)"\)', conditions)) == set(get_args(Number))
    operators = set(re.findall(r'OPERATION\(\w+, "(.+?)"\)', arithmetic)) - {"operand", "const"}
    assert operators == set(PRECEDENCE) - {">", ">="} | {"max", "min"}


def test_a_kind_that_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of guard"):
        Guard("NONSENSE", LocalSource("x"))
    for kind, payload in (("SAME", (0,)), ("ALIASED", [0]), ("CONDITION", ((), 5))):
        with pytest.raises(TypeError):
            _native.GuardTree((), (("slot", 0, "", 0, (), ()),), ((kind, payload, ""),))
    with pytest.raises(ValueError, match="unknown name"):
        _native.GuardTree((), (("slot", 0, "", -1, (("SAME", None, ""),), ()),), ())
    assert str(Guard("CALL", ConstSource(5), (abs, 5))) == "builtins.abs(5) == 5"
