"""The folders of `stator/capture/values/`: each imports only those that `docs/architecture.md` allows it.

What the language is stays apart from torch: a value class of a higher folder says by methods of its own what a builtin
function makes of it, so that the lower ones need not know it. And how the classes in them say what they are made of.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator

from stator.capture.value import Value
from stator.capture.values import build
from tests.meta.source_tree import ROOT, modules

TOP = "stator.capture.values"
FRONT_DOOR = f"{TOP}.build"


def table() -> dict[str, set[str]]:
    """Folder -> the folders that it may import."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Inside of capture/values")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for folder, _, allowed in re.findall(r"^\| ([\w/]+) \| (.+?) \| (.+?) \|$", section, re.M)[1:]:
        below = {name for name in found if name.startswith("python")} if "all of python" in allowed else set()
        found[folder] = below | (set(re.findall(r"[a-z/]+", allowed)) & found.keys())
    return found


FOLDERS = table()


def folder_of(name: str) -> str:
    """The folder of a module: `values` for those at the top."""
    path = modules()[name].path.relative_to(ROOT / "stator" / "capture" / "values").parent.as_posix()
    return "values" if path == "." else path


def inner() -> list[str]:
    return [name for name in modules() if f"{name}.".startswith(f"{TOP}.") and name != FRONT_DOOR]


def test_the_table_was_read() -> None:
    assert FOLDERS["values"] == set() and FOLDERS["python/containers"] == {"values", "python"}
    assert FOLDERS["torch"] == {"values", "python", "python/containers", "python/objects", "python/library"}
    assert FOLDERS["autograd"] == FOLDERS["torch"] | {"torch"}


def test_the_table_has_every_folder_and_no_other() -> None:
    assert {folder_of(name) for name in inner()} == set(FOLDERS)


def test_a_folder_imports_only_what_the_table_allows() -> None:
    wrong = [
        f"{modules()[name].where}:{item.line} imports {item.target}"
        for name in inner()
        for item in modules()[name].imports()
        if item.when != "typing" and f"{item.target}.".startswith(f"{TOP}.") and item.target in modules()
        if item.target == FRONT_DOOR or folder_of(item.target) not in FOLDERS[folder_of(name)] | {folder_of(name)}
    ]
    assert not wrong, "\n".join(wrong)


def test_the_front_door_imports_every_file_that_registers() -> None:
    """What it does not name itself comes with what it names."""
    reached, left = set[str](), [FRONT_DOOR]
    while left:
        name = left.pop()
        reached.add(name)
        targets = {item.target for item in modules()[name].imports() if item.when == "import"}
        left += [target for target in targets if target in modules() and target not in reached]
    files = {name for name in inner() if modules()[name].path.name != "__init__.py"}
    assert files <= reached, files - reached


def test_no_folder_is_a_heap() -> None:
    """A newcomer looks through one folder at a glance."""
    for folder in FOLDERS:
        files = [name for name in inner() if folder_of(name) == folder]
        assert len(files) <= 20, f"{folder} has {len(files)} files"


# -- fields --------------------------------------------------------------------------------------------

#: Class.field that holds values and is no part -> why `children` does not follow it.
NOT_PARTS = {
    "CellValue.owner": "the way back",
    "FunctionValue.annotations": "nothing reads them in a compiled function",
    "DictIterator.expected": "what the owner held, which is its part",
    "SetIterator.items": "what the owner held, which is its part",
    "SetValue.before": "what the real set holds",
    "Switch.before": "what the real switch is set to",
    "Steps.steps": "a running generator: it may not outlive the graph",
    "ModuleValue.registries": "parts of the namespace",
    "ModuleValue.searched": "parts of the namespace",
}

VALUES = re.compile(r"\b(Value|Entry|[A-Z]\w*Value)\b")


def value_classes() -> Iterator[type[Value]]:
    left: list[type[Value]] = [Value]
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        if cls.__module__.startswith("stator.") and getattr(sys.modules[cls.__module__], cls.__name__) is cls:
            yield cls


def test_every_value_class_is_declared() -> None:
    """Without the decorator a class has no fields of its own, and a `__dict__`."""
    classes = list(value_classes())
    assert len(classes) > 80 and build.FILES
    assert not [cls.__name__ for cls in classes if "__dict__" in dir(cls) or "PARTS" not in vars(cls)]
    # What dataclasses write stands in no file.
    assert not [cls.__name__ for cls in classes if cls.__init__.__code__.co_filename.endswith(".py")]


def test_what_holds_values_is_a_part() -> None:
    left = set()
    for cls in value_classes():
        if "children" in vars(cls):
            continue
        own = vars(cls).get("__annotations__", {})
        for entry in dataclasses.fields(cls):
            text = str(own.get(entry.name, ""))
            if VALUES.search(text) and not text.startswith("Callable") and entry.name not in cls.PARTS:
                left.add(f"{cls.__name__}.{entry.name}")
    assert left == set(NOT_PARTS)
