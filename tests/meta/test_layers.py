"""The directions between the packages, as `docs/architecture.md` has them, against the imports as they are.

The table is read from the page itself, so the page cannot be wrong. Also held: imports run at the top and without
cycles, packages that do without torch do so, and nothing of torch's own compiler takes part in ours.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest

from tests.meta.source_tree import ROOT, Import, Module, modules, walk

# Files at the top of the package that know every package, as `driver` does.
TOP = {"stator", "__main__", "api", "compiled", "driver", "fingerprint", "pipeline", "speed", "tuning"}

# Modules of torch that are its own compiler.
COMPILER = ("_dynamo", "_inductor", "_functorch", "_prims", "_refs", "compile", "jit")
# Asking torch whether its own tracers run is not using them.
QUESTIONS = {"is_scripting", "is_tracing"}
# The way round: stator as a backend of torch.compile.
ADAPTER = "stator.backends.adapter"

# Files that are imported as a package, or run as a program.
FRONT = {"__init__.py", "__main__.py"}
# Modules that are found by the type of a device.
TARGET_PART = re.compile(r"stator/targets/\w+/(record|printer|recorder|toolchain)\.py")
# path -> why nobody imports it
UNUSED = {
    "stator/inspect/statistics.py": "totals of this process, for users and for the benchmarks",
    "stator/kernel/evaluate.py": "the definition of the kernel IR, which tests run",
    "stator/kernel/parse.py": "reads what `text` prints, for tests and for people who edit it",
    "stator/tile/gpu/simulate/threads.py": "what tile IR with layouts means, which tests run",
}

# Imports inside a function: what may be absent, or what a package must not import while it is imported itself.
OPTIONAL = {"triton", "llvmlite", "numpy", "onnxruntime", "openvino", "cuda"}
NEEDS_TORCH = {"torch", "stator._native"}


def table() -> dict[str, tuple[set[str] | None, bool]]:
    """Package -> (packages it may import, or None for all; whether it must do without torch at import time)."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sections = [page.split(f"## {title}")[1].split("\n## ")[0] for title in ("Directions", "Not there yet")]
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", "\n".join(sections), re.M)
    found: dict[str, tuple[set[str] | None, bool]] = {}
    for packages, allowed in rows:
        if packages == "package":
            continue
        names = [name.strip() for name in packages.split(",")]
        extra = dict(re.findall(r"\((\w+) also (\w+)", allowed))
        plain = re.sub(r"\(.*?\)", "", allowed.split(";")[0]).strip()
        for name in names:
            may = None if plain.startswith("all") else {p.strip() for p in plain.split(",")} - {"–"}
            if may is not None and name in extra:
                may.add(extra[name])
            found[name] = (may, "no torch" in allowed or name == "base")
    return found


LAYERS = table()


def inner(module: Module) -> list[Import]:
    return [i for i in module.imports() if i.target.split(".")[0] == "stator"]


def test_the_table_was_read() -> None:
    assert set(LAYERS) >= {"base", "bytecode", "capture", "aot", "lowering", "loop", "codegen", "runtime", "driver"}
    assert LAYERS["base"] == (set(), True)
    assert LAYERS["lowering"][0] == {"base", "fake", "graphs", "loop", "prims", "sizes"}
    assert LAYERS["tile"] == ({"base", "runtime", "sizes", "targets"}, True)
    assert LAYERS["driver"][0] is None
    assert LAYERS["kernel"] == ({"base", "loop", "sizes"}, True)
    assert len(modules()) > 10 and sum(len(inner(m)) for m in modules().values()) > 10


def test_every_package_is_in_the_table() -> None:
    assert {m.package for m in modules().values()} - TOP <= set(LAYERS)


def refused(module: Module, target: str) -> bool:
    """Whether the table forbids `module` to import `target`, a dotted name of the package."""
    may, _ = LAYERS.get(module.package, (None, False))
    package = target.split(".")[1] if "." in target else "stator"
    if package == module.package or (
        package == "_native" and module.package in {"aot", "capture", "recording", "runtime", "targets", "tile"}
    ):
        return False
    if {module.package, package} == {"backends", "inspect"}:
        return target.count(".") > 1  # only each other's front door
    return may is not None and package not in may


def test_a_package_imports_only_what_the_table_allows() -> None:
    wrong = [
        f"{m.where}:{i.line} imports {i.target}" for m in modules().values() for i in inner(m) if refused(m, i.target)
    ]
    assert not wrong, "\n".join(wrong)


def test_packages_without_torch_do_not_import_it() -> None:
    wrong = []
    for module in modules().values():
        if LAYERS.get(module.package, (None, False))[1]:
            early = [i for i in module.imports() if i.target.split(".")[0] == "torch" and i.when == "import"]
            wrong += [f"{module.where}:{i.line} imports {i.target} while it is imported" for i in early]
    assert not wrong, "\n".join(wrong)


def test_base_is_standard_library_only() -> None:
    for module in modules().values():
        if module.package == "base":
            outside = {i.target.split(".")[0] for i in module.imports()} - set(sys.stdlib_module_names) - {"stator"}
            assert not outside, f"{module.where} imports {outside}"


def test_imports_are_at_the_top() -> None:
    wrong = []
    for module in modules().values():
        late = OPTIONAL | (NEEDS_TORCH if LAYERS.get(module.package, (None, False))[1] else set())
        for item in module.imports():
            names = {item.target, item.target.split(".")[0]}
            if item.target == "." or (item.when == "function" and not names & late):
                wrong.append(f"{module.where}:{item.line} imports {item.target} inside a function, or relatively")
    assert not wrong, "\n".join(wrong)


def test_imports_are_acyclic() -> None:
    graph = {m.name: {i.target for i in inner(m) if i.when == "import"} - {m.name} for m in modules().values()}
    assert not list(cycle(graph))


def test_no_module_is_left_out() -> None:
    """A file that nobody imports registers nothing. Some are imported by name, as generated text or an entry point."""
    imported = {i.target for module in modules().values() for i in inner(module) if i.target != module.name}
    texts = [m.text for m in modules().values()] + [(ROOT / "pyproject.toml").read_text(encoding="utf-8")]
    quoted = set(re.findall(r"(?:from |\")(stator(?:\.\w+)+)", "\n".join(texts)))
    left = {m.where for m in modules().values() if m.name not in imported | quoted and m.path.name not in FRONT}
    left -= {where for where in left if TARGET_PART.fullmatch(where)}
    assert left == set(UNUSED), f"nobody imports {sorted(left - set(UNUSED))}"
    assert {"stator.pipeline", "stator.capture.values.torch.profiler", "stator.runtime.extern"} <= imported | quoted


def cycle(graph: dict[str, set[str]]) -> Iterator[str]:
    """The modules left over when those that import nothing left are taken away, again and again."""
    left = dict(graph)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    while outer := [name for name in left if not any(name in targets for targets in left.values())]:
        for name in outer:
            del left[name]
    yield from (f"{name} -> {', '.join(sorted(targets & left.keys()))}" for name, targets in left.items())


def test_the_cycle_finder_finds() -> None:
    assert list(cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})) == ["b -> c", "c -> b"]
    assert not list(cycle({"a": {"b"}, "b": set()}))


def only_named(tree: ast.Module) -> Iterator[int]:
    """Attributes that are named and not used: keys of a table, what is compared, the `torch.jit` of `is_tracing`."""
    for node in walk(tree):
        match node:
            case ast.Dict(keys=parts) | ast.Set(elts=parts):
                yield from map(id, parts)
            case ast.Compare(left=left, comparators=rest):
                yield from map(id, [left, *rest])
            case ast.Attribute(value=value, attr=attr) if attr in QUESTIONS:
                yield id(value)


def torch_compiler_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a tree imports a part of torch's compiler, or reaches for it as an attribute."""
    named = set(only_named(tree))
    for node in walk(tree):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                found = [f"{module}.{alias.name}" for alias in names if alias.name not in QUESTIONS]
            case ast.Attribute(value=ast.Name(id="torch"), attr=attr) if id(node) not in named:
                found = [f"torch.{attr}"]
            case _:
                continue
        for name in found:
            parts = name.split(".")
            if parts[0] == "torch" and len(parts) > 1 and parts[1] in COMPILER:
                yield node.lineno, name


def test_torchs_own_compiler_takes_no_part() -> None:
    wrong = [
        f"{module.where}:{line} uses {name}"
        for module in modules().values()
        if module.name != ADAPTER
        for line, name in torch_compiler_uses(module.tree)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text, count",
    [
        ("import torch._dynamo", 1),
        ("from torch._inductor import config", 1),
        ("from torch import _functorch", 1),
        ("torch.compile(f)", 1),
        ("refused = {torch.compile: 'compiling inside of compiled code'}", 0),
        ("fn is torch.compile", 0),
        ("x = torch._prims.add", 1),
        ("import torch.compiler", 0),
        ("torch.jit.is_scripting()", 0),
        ("torch.jit.script(f)", 1),
        ("other.compile(f)", 0),
    ],
)
def test_uses_of_torchs_compiler_are_recognised(text: str, count: int) -> None:
    assert len(list(torch_compiler_uses(ast.parse(text)))) == count
