"""Artifacts: numbered, lazy, one folder a graph, and nothing at all when not asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stator.base import artifacts


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATOR_DEBUG", raising=False)


def explode() -> str:
    raise AssertionError("the text was made although nobody reads it")


def test_nothing_is_made_or_written_when_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert artifacts.stage("graph", explode) is None
    with artifacts.writing("", "g") as folder:
        assert folder is None
        assert artifacts.stage("graph", explode) is None
    assert list(tmp_path.iterdir()) == []


def test_stages_are_numbered_in_the_order_of_writing(tmp_path: Path) -> None:
    with artifacts.writing(str(tmp_path), "forward"):
        artifacts.stage("captured graph", "a", "py")
        path = artifacts.stage("kernels", lambda: "b\n", ".cpp")
    assert path is not None and path.read_text() == "b\n"
    names = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*"))
    assert names == ["forward/00_captured_graph.py", "forward/01_kernels.cpp"]
    assert artifacts.stage("later", explode) is None


def test_equal_names_get_folders_of_their_own_and_inner_ones_do_not_mix(tmp_path: Path) -> None:
    with artifacts.writing(str(tmp_path), "g"):
        with artifacts.writing(str(tmp_path), "g"):
            artifacts.stage("inner", "i")
        artifacts.stage("outer", "o")
    assert (tmp_path / "g_2" / "00_inner.txt").read_text() == "i\n"
    assert (tmp_path / "g" / "00_outer.txt").read_text() == "o\n"


def test_the_environment_catches_stages_outside_any_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_DEBUG", str(tmp_path))
    artifacts.stage("one", "1")
    artifacts.stage("two", "2")
    assert sorted(p.name for p in (tmp_path / "process").iterdir()) == ["00_one.txt", "01_two.txt"]


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    with artifacts.writing(str(tmp_path / "out"), "../../up"):
        path = artifacts.stage("../x", "text")
    assert path is not None and path.is_relative_to(tmp_path / "out")
