"""The list of tests that need no torch names tests that exist, whole packages and the machine among them."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).parent.parent / "without-torch.txt"
ROOT = LIST.parent.parent


def test_what_is_listed_exists() -> None:
    paths = LIST.read_text().split()
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(set(paths)) == len(paths)
    assert {"tests/bytecode", "tests/capture/test_machine.py", "tests/native/test_frame_hook.py"} <= set(paths)
