"""Tests that ask the garbage collector have it walk over few objects: over all of a run's it takes a second or two."""

from __future__ import annotations

import ast
import re

from tests.meta.source_tree import ROOT, python_files

ASKS = re.compile(r"gc\.(collect|get_objects)\(\)")
FIXTURE = "few_objects"


def slow(text: str) -> list[str]:
    """The tests of a file that ask it, themselves or by a function of the file, without the fixture."""
    if not ASKS.search(text):
        return []
    tree = ast.parse(text)
    if any(
        isinstance(node, ast.Assign) and "pytestmark" in (mark := ast.unparse(node)) and FIXTURE in mark
        for node in tree.body
    ):
        return []
    functions = {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    asking = {name for name, body in functions.items() if ASKS.search(body)}
    for _ in functions:
        asking |= {name for name, body in functions.items() if any(f"{each}(" in body for each in asking - {name})}
    return [
        name for name in functions if name.startswith("test_") and name in asking and FIXTURE not in functions[name]
    ]


def test_collections_walk_over_few_objects() -> None:
    files = [path for path in python_files("tests") if path.name.startswith("test_") and path.parent.name != "meta"]
    found = [f"{path.relative_to(ROOT)}: {name}" for path in files for name in slow(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_they_are_recognised() -> None:
    text = "def f(): gc.collect()\ndef test_a(): f()\ndef test_b(few_objects): f()\ndef test_c(): g()\n"
    assert slow(text) == ["test_a"]
    assert slow(f'pytestmark = pytest.mark.usefixtures("few_objects")\n{text}') == []
