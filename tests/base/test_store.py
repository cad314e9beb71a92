"""The disk store: whole entries or none, damage, bounds, refusal to write, many processes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from stator.base.errors import CacheWarning
from stator.base.store import Store, key_of


def files(root: Path) -> list[Path]:
    return [p for p in root.rglob("*") if p.is_file()]


def test_what_is_put_is_got_also_by_another_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = key_of("a", 1)
    assert store.get(key) is None and store.path(key) is None
    data = bytes(range(256)) * 10
    store.put(key, data)
    for reader in (store, Store(tmp_path)):
        assert reader.get(key) == data
        path = reader.path(key)
        assert path is not None and path.read_bytes()[: len(data)] == data
    assert len(files(tmp_path)) == 1, "no temporary file stays"


def test_keys_depend_on_where_parts_end() -> None:
    keys = {key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of(), key_of("")}
    assert len(keys) == 5
    assert key_of("1") == key_of(1) == key_of(b"1")


@pytest.mark.parametrize("key", ["", "../../etc", "a/b", ".hidden", "ab"])
def test_keys_cannot_leave_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="store key"):
        Store(tmp_path).put(key, b"")


@pytest.mark.parametrize("cut", [1, 40, 10_000], ids=["truncated", "no trailer", "empty"])
def test_a_truncated_entry_is_a_miss_reported_once_and_removed(tmp_path: Path, cut: int) -> None:
    store = Store(tmp_path)
    keys = [key_of(i) for i in range(2)]
    for key in keys:
        store.put(key, b"x" * 100)
        (path,) = [p for p in files(tmp_path) if p.name == key]
        path.write_bytes(path.read_bytes()[:-cut] if cut < 1000 else b"")
    with pytest.warns(CacheWarning, match="damaged") as caught:
        assert [store.get(key) for key in keys] == [None, None]
    assert len(caught) == 1
    assert files(tmp_path) == []
    store.put(keys[0], b"again")
    assert store.get(keys[0]) == b"again"


def test_a_changed_byte_is_noticed_by_path_too(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("entry.so", b"x" * 100)
    (path,) = files(tmp_path)
    path.write_bytes(b"y" + path.read_bytes()[1:])
    with pytest.warns(CacheWarning):
        assert store.path("entry.so") is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10_000)
    keys = [key_of(i) for i in range(9)]
    for age, key in enumerate(keys):
        store.put(key, b"x" * 1000)
        (path,) = [p for p in files(tmp_path) if p.name == key]
        os.utime(path, (1000.0 + age, 1000.0 + age))
    assert store.get(keys[0]) is not None  # now the most recent
    store.put("last", b"x" * 1000)
    assert sum(p.stat().st_size for p in files(tmp_path)) <= 10_000
    assert store.get(keys[0]) is not None and store.get("last") is not None
    assert store.get(keys[1]) is None


def test_an_entry_larger_than_the_store_can_still_be_used_once(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10)
    store.put("large", b"x" * 1000)
    assert store.get("large") == b"x" * 1000


def test_a_folder_that_cannot_be_written_warns_once_and_still_gives_paths(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = Store(blocked / "cache")
    with pytest.warns(CacheWarning, match="cannot be written") as caught:
        store.put("one", b"1")
        store.put("two", b"2")
    assert len(caught) == 1
    path = store.path("one")
    assert path is not None and path.is_file() and tmp_path not in path.parents
    assert store.get("two") == b"2"
    assert Store(blocked / "cache").get("one") is None


def test_a_read_only_store_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).put("old", b"old")
    store = Store(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Store, "_write", refuse)
    assert store.get("old") == b"old"


def test_clear_deletes_entries_and_nothing_else(tmp_path: Path) -> None:
    mine = tmp_path / "go" / "source"
    mine.parent.mkdir()
    mine.write_text("not an entry")
    store = Store(tmp_path, max_bytes=10)
    store.put("one", b"1" * 100)
    store.put("two", b"2" * 100)
    store.put("three", b"3" * 100)
    assert store.usage()[0] == 1, "the bound keeps only the last"
    store.clear()
    assert store.usage() == (0, 0) and store.get("three") is None
    assert files(tmp_path) == [mine]


WORKER = """
import sys, warnings
warnings.simplefilter("error")
from stator.base.store import Store
store = Store(sys.argv[1], max_bytes=30_000)
for i in range(60):
    key = f"key{i % 12}"
    got = store.get(key)
    assert got is None or got == key.encode() * 500, (key, len(got))
    store.put(key, key.encode() * 500)
"""


def test_many_processes_share_one_folder(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(4)
    ]
    for worker in workers:
        _, complaint = worker.communicate(timeout=60)
        assert worker.returncode == 0, complaint.decode()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(tmp_path)
        found = [data for i in range(12) if (data := store.get(f"key{i}")) is not None]
    assert found and all(len(data) in (2000, 2500) for data in found)
    assert sum(p.stat().st_size for p in files(tmp_path)) <= 60_000
    assert not [p for p in files(tmp_path) if p.name.startswith("tmp-")]
