"""The command line: every command runs and prints what its package knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from stator.__main__ import app
from stator.base.options import MODES, OPTIONS
from stator.base.store import Store


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stator.__main__.console", Console(width=240))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_options_are_all_listed() -> None:
    text = run("options")
    assert all(known.environment in text for known in OPTIONS.values()) and all(mode in text for mode in MODES)


def test_backends_are_listed() -> None:
    assert {"inductor", "eager", "aot_eager"} <= set(run("backends").split())


def test_info_names_versions_and_the_compiler() -> None:
    text = run("info")
    assert all(word in text for word in ("stator", "torch", "python", "compiler", "cache"))


def test_cache_is_shown_and_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_CACHE_DIR", str(tmp_path))
    Store(tmp_path).put("entry", b"x" * 100)
    assert "1 entries" in run("cache")
    assert "0 entries" in run("cache", "--clear")
    assert Store(tmp_path).get("entry") is None


def test_a_script_is_run_and_explained(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, stator\n"
        "print('arguments', sys.argv[1:])\n"
        "stator.compile(lambda x: torch.sin(x), backend='eager')(torch.ones(3))\n"
    )
    text = run("explain", str(script), "--mine", "4")
    assert "arguments ['--mine', '4']" in text
    assert "1 graph," in text


def test_a_script_is_timed_against_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATOR_CHECK_SPEED", raising=False)
    script = tmp_path / "script.py"
    script.write_text("import torch, stator\nstator.compile(lambda x: torch.sin(x) + 1)(torch.ones(3))\n")
    try:
        assert "ms a call, in eager PyTorch" in run("explain", str(script))
    finally:
        os.environ.pop("STATOR_CHECK_SPEED", None)
