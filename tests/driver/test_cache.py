"""The store between processes: the second starts warm, and no fault of the folder costs more than one warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import CacheWarning
from stator.base.store import Store
from stator.runtime import toolchain

SCRIPT = """
import json, sys, warnings
import torch, stator
from stator.base import log
from stator.base.errors import CacheWarning

def f(x, w):
    return torch.softmax(torch.relu(x @ w) + 1, -1)

torch.manual_seed(0)
x, w = torch.randn(8, 16), torch.randn(16, 32, requires_grad=True)
expected, = torch.autograd.grad((f(x, w) ** 2).sum(), w)
with warnings.catch_warnings(record=True) as caught, log.collect() as recorder:
    warnings.simplefilter("always")
    compiled = stator.compile(f, fullgraph=True, options={"strict": True})
    (compiled(x, w) ** 2).sum().backward()
loaded = set(sys.modules)
torch.testing.assert_close(compiled(x, w), f(x, w))
torch.testing.assert_close(w.grad, expected)
print(json.dumps({
    "spans": sorted({span.name for span in recorder.spans}),
    "packages": sorted({name.split(".")[1] for name in loaded if name.startswith("stator.")}),
    "foreign": [name for name in ("sympy", "networkx", "torch._dynamo", "torch._inductor") if name in loaded],
    "warnings": [str(w.message) for w in caught if isinstance(w.message, CacheWarning)],
}))
"""

COMPILING = {"trace", "partition", "lower", "schedule", "codegen", "g++"}


def start(folder: Path) -> subprocess.Popen[str]:
    root = str(Path(stator.__file__).parents[1])
    environment = {**os.environ, "STATOR_CACHE_DIR": str(folder), "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output)  # type: ignore[no-any-return]


def test_a_second_process_starts_warm(tmp_path: Path) -> None:
    cold, warm = finish(start(tmp_path)), finish(start(tmp_path))
    assert set(cold["spans"]) >= COMPILING and "lowering" in cold["packages"]
    assert not set(warm["spans"]) & COMPILING and "link" in warm["spans"]
    assert not set(warm["packages"]) & {"pipeline", "lowering", "loop", "codegen", "passes", "prims"}
    assert cold["warnings"] == warm["warnings"] == [] == warm["foreign"]


def test_many_processes_start_on_one_empty_folder(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(4)]
    assert [finish(process)["warnings"] for process in processes] == [[]] * len(processes)
    assert not set(finish(start(tmp_path))["spans"]) & COMPILING


# -- faults, in this process: a store of its own for every start -----------------------------------------------


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.sin(x) + 1, -1)


def g(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x) * 2


class Start:
    """What one start on a folder did: both functions compiled, right results."""

    def __init__(self, folder: Path) -> None:
        toolchain._store.cache_clear()
        x = torch.randn(4, 8)
        with warnings.catch_warnings(record=True) as caught, log.collect() as recorder:
            warnings.simplefilter("always")
            for function in (f, g):
                compiled = stator.compile(function, fullgraph=True, options={"cache_dir": str(folder), "strict": True})
                torch.testing.assert_close(compiled(x), function(x))
        self.warnings = [item.message for item in caught]
        assert all(isinstance(warning, CacheWarning) for warning in self.warnings)
        self.spans = [span.name for span in recorder.spans]
        self.hits = [facts["hit"] for facts in recorder.of(log.CACHE) if facts["what"] == "graph"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    assert Start(tmp_path).hits == [False, False]
    assert Start(tmp_path).hits == [True, True]
    yield tmp_path
    toolchain._store.cache_clear()


def entries(folder: Path, kind: str = "") -> list[Path]:
    return [path for path in folder.rglob(f"{kind}*") if path.is_file()]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "garbage": lambda data: os.urandom(300),
    "appended": lambda data: data + b"more",
}


@pytest.mark.parametrize("kind", ["graph-", "cpp-", ""], ids=["graphs", "libraries", "all"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_entries_are_made_again_with_one_warning(
    folder: Path, damage: Callable[[bytes], bytes], kind: str
) -> None:
    assert len(entries(folder, kind)) >= 2
    for path in entries(folder, kind):
        data = damage(path.read_bytes())
        path.unlink()  # the old library is still mapped
        path.write_bytes(data)
    (warning,) = Start(folder).warnings
    assert "damaged" in str(warning)
    again = Start(folder)
    assert again.warnings == [] and again.hits == [True, True] and "g++" not in again.spans


@pytest.mark.parametrize("data", [b"", b"no format", b"\x05" + b"\0" * 7 + b"hello", b"{}" * 50])
def test_whole_entries_of_another_format_are_made_again(folder: Path, data: bytes) -> None:
    for path in entries(folder, "graph-"):
        Store(folder).put(path.name, data)
    again = Start(folder)
    assert again.hits == [False, False] and again.warnings == [] and "g++" not in again.spans
    assert Start(folder).hits == [True, True]


def test_a_format_number_of_another_version_is_made_again(folder: Path) -> None:
    for path in entries(folder, "graph-"):
        data = Store(folder).get(path.name)
        assert data is not None and b'"format": ' in data
        Store(folder).put(path.name, data.replace(b'"format": ', b'"format":9'))
    assert Start(folder).hits == [False, False] and Start(folder).hits == [True, True]


def test_libraries_that_do_not_load_are_built_again(folder: Path) -> None:
    for path in entries(folder, "cpp-"):
        Store(folder).put(path.name, b"\x7fELF but nothing else")
    again = Start(folder)
    assert again.hits == [True, True] and again.warnings == []


def test_missing_libraries_are_built_again(folder: Path) -> None:
    for path in entries(folder, "cpp-"):
        path.unlink()
    again = Start(folder)
    assert again.hits == [True, True] and "g++" in again.spans and again.warnings == []


def test_a_folder_that_cannot_be_made_is_bypassed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (warning,) = Start(tmp_path / "file" / "cache").warnings
    assert "cannot be written" in str(warning)


def refuse(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let every write into the folder fail; permissions do not stop root."""
    write = Store._write

    def refused(store: Store, place: Path, sealed: bytes) -> None:
        if folder in place.parents:
            raise OSError(code, os.strerror(code))
        write(store, place, sealed)

    monkeypatch.setattr(Store, "_write", refused)


@pytest.mark.parametrize("code", [13, 28, 30], ids=["denied", "full", "read-only"])
def test_a_folder_that_refuses_writes_is_still_read(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    refuse(folder, monkeypatch, code)
    assert Start(folder).warnings == []
    for path in entries(folder):
        path.unlink()
    (warning,) = Start(folder).warnings
    assert os.strerror(code) in str(warning)
    assert entries(folder) == []


def test_damage_in_a_folder_that_refuses_writes_gives_one_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in entries(folder):
        data = path.read_bytes()[:-1]
        path.unlink()
        path.write_bytes(data)
    refuse(folder, monkeypatch, 13)
    assert len(Start(folder).warnings) == 1


def test_the_option_cache_leaves_no_graph_behind(tmp_path: Path) -> None:
    toolchain._store.cache_clear()
    x = torch.randn(3)
    options = {"cache": False, "cache_dir": str(tmp_path)}
    torch.testing.assert_close(stator.compile(f, fullgraph=True, options=options)(x), f(x))
    assert not entries(tmp_path, "graph-")
