"""A cache folder that was filled elsewhere: another root, other times, no compiler, no home. And what stays behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stator

PROGRAM = """
import json, sys, warnings
import torch, stator
from stator.base import log

def f(x, w):
    return torch.softmax(torch.relu(x @ w) + 1, -1)

torch.manual_seed(0)
x, w = torch.randn(8, 16), torch.randn(16, 32, requires_grad=True)
expected, = torch.autograd.grad((f(x, w) ** 2).sum(), w)
with warnings.catch_warnings(record=True) as caught, log.collect() as recorder:
    warnings.simplefilter("always")
    (stator.compile(f, fullgraph=True, options={"strict": True})(x, w) ** 2).sum().backward()
torch.testing.assert_close(w.grad, expected)
print(json.dumps({
    "built": "g++" in {span.name for span in recorder.spans},
    "hits": [facts["hit"] for facts in recorder.of(log.CACHE) if facts["what"] == "graph"],
    "told": [str(warning.message) for warning in caught],
}))
"""


def run(cache: Path | None, temporary: Path, **changes: str) -> dict[str, Any]:
    """What a fresh process did that compiles a training step."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("STATOR_", "XDG_"))}
    environment |= {"PYTHONPATH": str(Path(stator.__file__).parents[1]), "TMPDIR": str(temporary)}
    if cache is not None:
        environment["STATOR_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | changes, cwd=temporary, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that a first process has filled; it leaves nothing else behind."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "tmp").mkdir()
    assert run(folder / "cache", folder / "tmp") == {"built": True, "hits": [False], "told": []}
    assert not list((folder / "tmp").iterdir())
    return folder / "cache"


def test_a_copied_cache_needs_no_compiler(filled: Path, tmp_path: Path) -> None:
    there = tmp_path / "another" / "root"
    shutil.copytree(filled, there, copy_function=shutil.copyfile)
    for path in there.rglob("*"):
        os.utime(path, (1e9, 1e9))
    (tmp_path / "tmp").mkdir()
    warm = {"built": False, "hits": [True], "told": []}
    assert run(there, tmp_path / "tmp", PATH=str(tmp_path / "nothing")) == warm
    assert not list((tmp_path / "tmp").iterdir())


def test_a_copied_package_finds_the_same_entries(filled: Path, tmp_path: Path) -> None:
    """The package's own files are in the key by content: neither where they lie nor when they were written."""
    root = Path(stator.__file__).parent
    shutil.copytree(root, tmp_path / "stator", copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("__pyc*"))
    assert run(filled, tmp_path, PATH="", PYTHONPATH=str(tmp_path))["hits"] == [True]
    changed = tmp_path / "stator" / "compiled.py"
    before = changed.stat()
    changed.write_text(changed.read_text().replace("_LENGTH = 8", "_LENGTH = 9"))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(filled, tmp_path, PYTHONPATH=str(tmp_path))["hits"] == [False]


def test_a_cache_that_others_can_write_to_is_not_used(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    found = run(tmp_path / "cache", tmp_path)
    assert found["built"] and found["hits"] == [False] and len(found["told"]) == 1
    assert "others can put files into it" in found["told"][0] and "STATOR_CACHE_DIR" in found["told"][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"], "its private folder is gone"


def test_without_a_home_the_folder_in_the_temporary_one_is_ours_alone(tmp_path: Path) -> None:
    assert run(None, tmp_path, HOME="") == {"built": True, "hits": [False], "told": []}
    (made,) = tmp_path.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700 and made.stat().st_uid == os.geteuid()
