"""No keyword of a user's call can meet a parameter name of ours: whoever models a call takes its own by position only.

A function under `capture` that has a parameter `tx` and collects keywords (`**named`), is a method `m_*` of a value, or
is registered with `@models`, gets the keywords of the program's call as they are written.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from stator.capture.values import build, methods, mirror
from stator.capture.values.registry import CALLS

CAPTURE = Path(__file__).parents[2] / "stator" / "capture"


def modelled(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef | ast.Lambda, str]]:
    """The functions that are called with a program's keywords."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        if "tx" not in names:
            continue
        name = getattr(node, "name", "lambda")
        decorated = isinstance(node, ast.FunctionDef) and any(
            "models" in ast.unparse(item) for item in node.decorator_list
        )
        if name.startswith("m_") or node.args.kwarg is not None or decorated:
            yield node, name


@pytest.mark.parametrize("path", sorted(CAPTURE.rglob("*.py")), ids=lambda path: path.stem)
def test_models_take_their_own_parameters_by_position(path: Path) -> None:
    found = list(modelled(ast.parse(path.read_text())))
    wrong = [f"line {node.lineno}: {name}" for node, name in found if node.args.args]
    assert not wrong, f"{path}: not positional-only: {wrong}"


def test_the_scan_finds_models() -> None:
    source = "def m_get(self, tx, key): ...\ndef call(tx, /, **named): ...\ndef other(tx, key): ...\n"
    assert [name for _, name in modelled(ast.parse(source))] == ["m_get", "call"]


@pytest.mark.parametrize("name", sorted(methods.DUNDERS))
def test_special_methods_take_their_parameters_by_position(name: str) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(methods.DUNDERS[name]).parameters.values()}
    assert inspect.Parameter.POSITIONAL_OR_KEYWORD not in kinds


def test_models_have_no_keywords_that_python_lacks() -> None:
    """A keyword-only parameter of a model is one of the function that it models, where Python tells."""
    assert build.FILES and mirror.apply
    checked = 0
    for function, handler in CALLS.items():
        cells = inspect.getclosurevars(handler).nonlocals if inspect.isfunction(handler) else {}
        model = cells.get("model")
        try:
            theirs = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        if model is None or any(item.kind is inspect.Parameter.VAR_KEYWORD for item in theirs.values()):
            continue
        for name, parameter in inspect.signature(model).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                checked += 1
                assert name in theirs, f"{function}: {name}"
    assert checked
