"""What the pages of `docs/` name exists: files, links, and names of the package's modules and classes.

A page may name a module by the end of its path (`size`, `loop.fusion`); a name that several modules end in has to be in
one of them. Names of other projects, and of the standard library, are left alone.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path

from tests.meta.source_tree import ROOT, modules, walk

# Pages that commands write, about other people's code.
GENERATED = {"architectures.md", "coverage.md", "coverage-cuda.md", "kernels.md", "models.md"}
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"(?<![\w…*/.])[\w/]+\.(?:py|pyi|c|h|md|html|toml|txt)\b")
DOTTED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.([A-Za-z_][\w.]*)")
# What pages name because it does not exist, or what only looks like a name of ours.
ELSEWHERE = {"utils.py", "your_program.py", "mma.sync"}
# Other packages, and variables of examples, which are called as a module of ours is.
FOREIGN = {"torch", "autograd", "triton", "module", "kernel", *sys.stdlib_module_names}


def spans(page: Path) -> list[str]:
    """What is written as code within lines; examples in blocks are programs of their own."""
    return CODE.findall(re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S))


def missing_files(page: Path, known: set[str]) -> list[str]:
    """Files that a page names or links to and that are not there."""
    named = dict.fromkeys(name for text in spans(page) for name in FILE.findall(text) if name not in ELSEWHERE)
    gone = [name for name in named if not any(path.endswith(f"/{name}") for path in known)]
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if re.fullmatch(r"[\w./-]+\.\w+", link)]
    return gone + [link for link in links if not (page.parent / link).exists()]


def test_files_that_pages_name_exist() -> None:
    folders = ("stator", "csrc", "tests", "benchmarks", "docs", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")] + [*ROOT.glob("*.*")]
    known = {f"/{path.relative_to(ROOT).as_posix()}" for path in paths}
    pages = [page for page in PAGES if page.name not in GENERATED]
    assert len(pages) > 10
    assert not [f"{page.name}: {name}" for page in pages for name in missing_files(page, known)]


@functools.cache
def names() -> dict[str, set[str]]:
    """What a dotted name may begin with (the last part of a module's name, a class) -> what may follow."""
    found: dict[str, set[str]] = defaultdict(set)
    native = ast.parse((ROOT / "stator" / "_native.pyi").read_text(encoding="utf-8"))
    for name, tree in [("stator._native", native), *((module.name, module.tree) for module in modules().values())]:
        package, _, own = name.rpartition(".")
        found[package.rpartition(".")[2]].add(own)
        found[own] |= _defined(tree)
        for node in walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name] |= _defined(node)
                found[node.name] |= {inner.attr for inner in walk(node) if isinstance(inner, ast.Attribute)}
    return found


def _defined(scope: ast.Module | ast.ClassDef) -> set[str]:
    """The names that a module or class has, slots and what is imported included."""
    found: set[str] = set()
    for node in walk(scope):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name for alias in aliases}
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
    return found


def unknown(text: str, known: dict[str, set[str]]) -> list[str]:
    """Dotted names that begin with a module or class of ours, and lead to nothing."""
    wrong = []
    for first, rest in DOTTED.findall(text):
        second = rest.split(".")[0]
        ours = first in known and first not in FOREIGN
        if ours and second not in known[first] and not {first, f"{first}.{second}"} & ELSEWHERE:
            wrong.append(f"{first}.{second}")
    return wrong


def test_names_that_pages_give_exist() -> None:
    known, wrong, seen = names(), [], 0
    for page in PAGES:
        for text in spans(page) if page.name not in GENERATED else ():
            if FILE.fullmatch(text) is None:
                seen += len(DOTTED.findall(text))
                wrong += [f"{page.name}: {name} in `{text}`" for name in unknown(text, known)]
    assert seen > 100
    assert not wrong, "\n".join(wrong)


def test_wrong_names_are_found(tmp_path: Path) -> None:
    known = names()
    assert unknown("`frames.convert(fn)`, `Environment.decide`, `torch.nothing`, `loop.fusion.decide`", known) == []
    assert unknown("frames.converted(fn)", known) == ["frames.converted"]
    assert unknown("Environment.told", known) == ["Environment.told"]
    page = tmp_path / "page.md"
    text = "'aot/gone.py', 'size.py' and [a page](gone.md)\n```\n'nowhere.py'\n```\n"
    page.write_text(text.replace("'", "`"))
    assert missing_files(page, {"/stator/sizes/size.py"}) == ["aot/gone.py", "gone.md"]
