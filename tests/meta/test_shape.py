"""The shape of the source: sizes of files and functions, names, docstrings, and what may not stand in the text.

Quality is lost in the tail, so the limits are on the largest; each exception has its reason beside it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.source_tree import ROOT, modules, python_files, walk

FILE_LINES = 600
FUNCTION_LINES = 60
DOCSTRING_LINES = range(3, 16)

# path -> why it may be longer
LONG_FILES: dict[str, str] = {
    "tests/capture/statements.py": "a corpus of small programs, data rather than code",
}
# path -> why its docstring may be longer
LONG_DOCSTRINGS: dict[str, str] = {
    "stator/capture/value.py": "the protocol between machine, values and assembler, in one list",
    "stator/kernel/ir.py": "the grammar, on one screen",
    "stator/tile/ir/core.py": "the grammar, on one screen",
}
# Folders of alike files that fill one table: the folder's own docstring says the rest, so a sentence is enough.
FAMILIES = {"stator/capture/opcodes", "stator/prims/decompositions", "stator/lowering", "stator/bytecode"}
# path:function -> why it may be longer
LONG_FUNCTIONS: dict[str, str] = {}

LANDFILLS = re.compile(r"^(utils?|common|misc|helpers?|shared|stuff)(_.*)?$|_(utils?|misc|helpers?)$")
NATIVE = {".c", ".h", ".cpp", ".cu"}
STUBS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
NAMED_FILE = re.compile(r"`([\w/]+\.(?:py|pyi|c|h|md|html|toml))`")
ELSEWHERE = re.compile(r"(?<![\w.])/(home|root|Users|work)/")


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def native_files() -> list[Path]:
    return sorted(p for folder in ("csrc", "stator") for p in (ROOT / folder).rglob("*.[ch]*") if p.suffix in NATIVE)


def test_files_are_short(record_property: pytest.RecordProperty) -> None:
    files = python_files("stator", "tests", "benchmarks") + native_files()
    sizes = sorted(((len(p.read_text(encoding="utf-8").splitlines()), where(p)) for p in files), reverse=True)
    assert len(sizes) > 10
    print("\n".join(f"{lines:5} {path}" for lines, path in sizes[:8]))
    record_property("largest", sizes[:8])
    assert not [f"{path}: {lines} lines" for lines, path in sizes if lines > FILE_LINES and path not in LONG_FILES]
    assert set(LONG_FILES) <= {path for lines, path in sizes if lines > FILE_LINES}, "an exception is not needed"


def test_functions_are_short(record_property: pytest.RecordProperty) -> None:
    sizes = sorted(
        ((lines, f"{module.where}:{name}") for module in modules().values() for name, _, lines in module.functions()),
        reverse=True,
    )
    assert len(sizes) > 50
    print("\n".join(f"{lines:5} {name}" for lines, name in sizes[:8]))
    record_property("longest", sizes[:8])
    assert not [f"{name}: {n} lines" for n, name in sizes if n > FUNCTION_LINES and name not in LONG_FUNCTIONS]
    assert set(LONG_FUNCTIONS) <= {name for n, name in sizes if n > FUNCTION_LINES}, "an exception is not needed"


def test_no_file_is_a_landfill() -> None:
    files = python_files("stator", "tests", "benchmarks") + native_files()
    names = {part for path in files for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not [name for name in names if LANDFILLS.search(name)]
    assert LANDFILLS.search("utils") and LANDFILLS.search("string_utils") and not LANDFILLS.search("commoning")


def test_every_module_says_what_it_is() -> None:
    wrong = []
    for module in modules().values():
        lines = len((ast.get_docstring(module.tree) or "").splitlines())
        # A package's front door may be one sentence; a module says what it is, its invariant, its neighbours.
        short = module.path.name == "__init__.py" or where(module.path.parent) in FAMILIES
        long = module.where in LONG_DOCSTRINGS
        if lines < (1 if short else DOCSTRING_LINES.start) or (lines >= DOCSTRING_LINES.stop and not long):
            wrong.append(f"{module.where}: {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_every_test_file_says_what_it_tests() -> None:
    files = [p for p in python_files("tests") if p.name.startswith("test_")]
    assert len(files) > 5
    assert not [where(p) for p in files if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]


def test_files_that_texts_name_exist() -> None:
    known = {where(p) for p in ROOT.glob("*") if p.is_file()}
    known |= {
        where(p) for folder in ("stator", "csrc", "tests", "benchmarks", "docs") for p in (ROOT / folder).rglob("*.*")
    }
    gone = []
    for path in python_files("stator", "tests", "benchmarks"):
        for name in NAMED_FILE.findall(path.read_text(encoding="utf-8")):
            if not any(f"/{other}".endswith(f"/{name}") for other in known):
                gone.append(f"{where(path)}: {name}")
    assert not gone, "\n".join(gone)
    assert NAMED_FILE.findall("Neighbours: `capture/guards.py`, `tree.c`, `opcodes/*.py`") == [
        "capture/guards.py",
        "tree.c",
    ]


def test_tests_are_in_the_folder_of_their_package() -> None:
    packages = {m.package for m in modules().values()} | {
        "meta", "native", "cases", "differential", "effects", "models", "architectures", "benchmarks",
    }  # fmt: skip
    folders = {p.relative_to(ROOT / "tests").parts[0] for p in python_files("tests")} - {"conftest.py"}
    assert folders <= packages, folders - packages


def test_nothing_is_left_as_a_stub() -> None:
    wrong = []
    for module in modules().values():
        wrong += [f"{module.where}: {m.group()}" for m in STUBS.finditer(module.text)]
        wrong += [f"{module.where}:{line} swallows errors" for line in swallowed(module.tree)]
    assert not wrong, "\n".join(wrong)


def swallowed(tree: ast.Module) -> list[int]:
    """Lines of handlers that catch everything and do nothing."""
    return [
        node.lineno
        for node in walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        and all(
            isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
            for s in node.body
        )
    ]


def test_swallowing_is_recognised() -> None:
    assert swallowed(ast.parse("try:\n    f()\nexcept Exception:\n    pass")) == [3]
    assert swallowed(ast.parse("try:\n    f()\nexcept OSError:\n    pass")) == []


def test_no_path_of_somebodys_machine() -> None:
    files = python_files("stator", "benchmarks") + native_files()
    files += [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    assert not [where(p) for p in files if ELSEWHERE.search(p.read_text(encoding="utf-8"))]
