"""Temporary folders: one a process, gone when it ends, and after a crash at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stator.base import temporary

MAKES = """
import os, sys, time
from stator.base import temporary
place = temporary.folder()
assert temporary.fresh("a").parent == place == temporary.folder()
print(place, flush=True)
match sys.argv[1]:
    case "waits":
        time.sleep(60)
    case "forks":
        if os.fork() == 0:
            mine = temporary.folder()
            assert mine != place
            print(mine, flush=True)
            sys.exit()
        os.wait()
        assert place.is_dir(), "the child has removed its parent's"
    case "sweeps":
        temporary.sweep()
        assert place.is_dir()
"""


def start(folder: Path, what: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", MAKES, what], stdout=subprocess.PIPE, text=True, env=environment)


def sweep(folder: Path) -> bool:
    """Whether another start has swept."""
    process = start(folder, "sweeps")
    process.communicate(timeout=60)
    return process.returncode == 0


def test_a_folder_is_open_to_its_owner_only_and_gone_at_exit(tmp_path: Path) -> None:
    assert temporary.folder().stat().st_mode & 0o777 == 0o700
    for what in ("ends", "forks", "sweeps"):
        process = start(tmp_path, what)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and output.split() and not list(tmp_path.iterdir()), what


def test_what_a_crash_leaves_goes_at_the_next_start_and_what_is_in_use_stays(tmp_path: Path) -> None:
    crashed, living = start(tmp_path, "waits"), start(tmp_path, "waits")
    try:
        left, used = (Path(str(process.stdout and process.stdout.readline()).strip()) for process in (crashed, living))
        crashed.send_signal(signal.SIGKILL)
        crashed.wait()
        assert left.is_dir() and used.is_dir()
        assert sweep(tmp_path)
        assert list(tmp_path.iterdir()) == [used]
    finally:
        for process in (crashed, living):
            process.kill()
            process.communicate()


def test_a_folder_without_a_lock_goes_when_it_is_old(tmp_path: Path) -> None:
    names = ["stator-abcdefgh", "stator-build-abcdefgh", "stator-mine", "another-abcdefgh"]
    for name in names:
        (tmp_path / name).mkdir()
    assert sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names), "they are new"
    for name in names:
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    assert sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another-abcdefgh", "stator-mine"]


def test_links_and_files_are_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "stator-abcdefgh").symlink_to(elsewhere)
    (tmp_path / "stator-ijklmnop").write_text("")
    os.utime(tmp_path / "stator-ijklmnop", (0, 0))
    assert sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
