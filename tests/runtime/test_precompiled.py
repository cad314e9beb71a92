"""What many units begin with: g++ reads it once and makes the same of them, and a header that is lost harms nothing."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stator.base import preamble
from stator.base.errors import BuildError
from stator.base.options import Options
from stator.codegen.cpp.emit import header
from stator.runtime import Cpp, precompiled
from stator.runtime.toolchain import Compilation
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read

FLAGS = ("-shared", "-fPIC", "-O1")
TIMES = "static int times(int x) {{ return {0} * x; }}\n" + preamble.END
UNIT = 'extern "C" int k0(int x) {{ return times(x) + {0}; }}\n'

Build = Callable[..., Path]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run, in a process that has compiled nothing yet, and in which two units are many."""
    found: list[list[str]] = []
    run = Compilation._run
    monkeypatch.setattr(precompiled, "MANY", 2)
    monkeypatch.setattr(precompiled, "_known", {})
    monkeypatch.setattr(
        Compilation, "_run", lambda self, command, end: found.append(command) or run(self, command, end)
    )
    return found


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def build(source: str, flags: tuple[str, ...] = FLAGS, folder: str = "") -> Path:
        return Cpp(Options.from_user(options={"cache_dir": str(tmp_path / folder)})).build(source, flags)

    return build


def result(path: Path) -> int:
    found: int = ctypes.CDLL(str(path)).k0(7)
    return found


def included(commands: list[list[str]]) -> list[bool]:
    return ["-include" in command for command in commands]


def test_units_after_many_are_compiled_with_it(commands: list[list[str]], build: Build) -> None:
    found = [result(build(TIMES.format(3) + UNIT.format(i))) for i in range(5)]
    assert found == [21 + i for i in range(5)]
    assert included(commands) == [False, False, False, True, True, True]
    assert [command[-1].endswith(".gch") for command in commands] == [False, True, False, False, False, False]


def test_each_beginning_and_each_set_of_flags_has_its_own(commands: list[list[str]], build: Build) -> None:
    for i in range(4):
        assert result(build(TIMES.format(3) + UNIT.format(i))) == 21 + i
        assert result(build(TIMES.format(5) + UNIT.format(i))) == 35 + i
        assert result(build(TIMES.format(3) + UNIT.format(i), (*FLAGS, "-O2"))) == 21 + i
    headers = {command[command.index("-include") + 1] for command in commands if "-include" in command}
    assert len(headers) == 3


def test_units_without_a_line_that_ends_their_beginning(commands: list[list[str]], build: Build) -> None:
    for i in range(4):
        build(TIMES.format(3).replace(preamble.END, "") + UNIT.format(i))
    assert not any(included(commands))


def test_machine_code_is_the_same(commands: list[list[str]], build: Build) -> None:
    kernel = """static void range(void* const* p, i64_ begin, i64_ end) {
        SWEEP(4, 1, none, x0, 0, 128, { store<4>((float*)p[1] + x0, exp_(load<4>((float*)p[0] + x0, n)), n); })
    }
    extern "C" const char* k0(void* const* p) { parallel(range, p, 1, 1); return 0; }
    """
    source = header() + preamble.END + kernel
    told = flags(read())
    plain = build(source, told, "plain").read_bytes()
    for name in ("k1", "k2"):
        build(source.replace("k0", name), told)
    assert build(source, told).read_bytes() == plain
    assert not included(commands)[0] and included(commands)[-1]


def test_a_header_that_is_gone_or_damaged_is_done_without(commands: list[list[str]], build: Build) -> None:
    for i in range(3):
        build(TIMES.format(3) + UNIT.format(i))
    path = Path(commands[-1][-1])
    gch = path.with_name(f"{path.name}.gch")
    gch.write_bytes(gch.read_bytes()[:5000])
    assert result(build(TIMES.format(3) + UNIT.format(8))) == 29
    shutil.rmtree(path.parent)
    for i in range(9, 15):
        assert result(build(TIMES.format(3) + UNIT.format(i))) == 21 + i
    assert included(commands)[-5:] == [False] * 5, "it was given up"


def test_errors_are_told_by_the_lines_of_the_source(commands: list[list[str]], build: Build) -> None:
    for i in range(3):
        build(TIMES.format(3) + UNIT.format(i))
    assert included(commands)[-1]
    with pytest.raises(BuildError, match=r"\.cpp:3:1.*broken") as caught:
        build(TIMES.format(3) + "broken;")
    kept = Path(str(caught.value).split("building ")[1].split(" failed")[0])
    assert kept.read_text().startswith("static int times")
    kept.unlink()
