"""The compiler and its store: built once, rebuilt when damaged, errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stator.base import temporary
from stator.base.errors import BuildError, CacheWarning, CompilerMissing
from stator.base.options import Options
from stator.plan import ir
from stator.runtime import Cpp, GraphArtifact, Unit
from stator.runtime.link import load
from stator.runtime.toolchain import Compilation

FLAGS = ("-shared", "-fPIC", "-O1")
SOURCE = 'extern "C" const char* k0(void* const* p) {{ *(int*)p[0] = {0}; return 0; }}'


def options(folder: Path, compiler: str = "g++") -> Options:
    return Options.from_user(options={"cache_dir": str(folder), "compiler": compiler})


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Cpp(options(tmp_path)).build(SOURCE.format(1), FLAGS)
    monkeypatch.setattr(Compilation, "_start", None)  # a second build would call it
    assert Cpp(options(tmp_path)).build(SOURCE.format(1), FLAGS) == path


def test_keys_follow_source_flags_and_compiler(tmp_path: Path) -> None:
    cpp = Cpp(options(tmp_path))
    keys = {cpp.key("a", ()), cpp.key("b", ()), cpp.key("a", ("-O1",)), Cpp(options(tmp_path, "gcc")).key("a", ())}
    assert len(keys) == 4


def test_several_units_build_side_by_side(tmp_path: Path) -> None:
    paths = Cpp(options(tmp_path)).build_all([(SOURCE.format(i), FLAGS) for i in range(7)])
    assert len(set(paths)) == 7 and all(path.exists() for path in paths)


def test_a_failure_is_raised_after_all_have_ended(tmp_path: Path) -> None:
    cpp = Cpp(options(tmp_path))
    sources = [(text, FLAGS) for text in ("int broken(", *[SOURCE.format(i) for i in range(5)])]
    with pytest.raises(BuildError, match="expected"):
        cpp.build_all(sources)
    assert all(cpp.store.path(cpp.key(*source)) for source in sources[1:])


def test_what_is_left_early_is_ended(tmp_path: Path) -> None:
    cpp = Cpp(options(tmp_path))
    source = SOURCE.format(7)
    with Compilation(cpp) as compilation:
        compilation.add([cpp.key(source, FLAGS)] * 2, [(source, FLAGS)] * 2)
        folders = list(temporary.folder().glob("build-*"))
    assert len(folders) == 1 and not folders[0].exists()
    assert cpp.store.path(cpp.key(source, FLAGS)) is None


def test_a_damaged_library_is_built_again(tmp_path: Path) -> None:
    path = Cpp(options(tmp_path)).build(SOURCE.format(2), FLAGS)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(CacheWarning, match="damaged"):
        again = Cpp(options(tmp_path)).build(SOURCE.format(2), FLAGS)
    assert again.read_bytes().startswith(b"\x7fELF")


def test_a_library_that_does_not_load_is_built_again(tmp_path: Path) -> None:
    import torch

    cpp = Cpp(options(tmp_path))
    source = SOURCE.format(42)
    cpp.store.put(cpp.key(source, FLAGS), b"\x7fELF but not really")
    kernels = load([Unit(source, ("k0",), FLAGS)], options(tmp_path))
    cell = torch.zeros(1, dtype=torch.int32)
    kernels["k0"](cell)
    assert cell.item() == 42


def test_errors_name_the_compiler_and_the_source(tmp_path: Path) -> None:
    with pytest.raises(CompilerMissing, match="no-such-compiler"):
        Cpp(options(tmp_path, "no-such-compiler")).build("", ())
    with pytest.raises(BuildError, match="expected") as caught:
        Cpp(options(tmp_path)).build("int broken(", FLAGS)
    kept = Path(str(caught.value).split("building ")[1].split(" failed")[0])
    assert kept.read_text() == "int broken(\n"
    kept.unlink()


@pytest.mark.parametrize(("taken", "calls"), [("-O2", 2), ("-fdisable-rtl-combine", 3)])
def test_a_compiler_that_crashes_is_asked_once_more(tmp_path: Path, taken: str, calls: int) -> None:
    crashing = tmp_path / "crashing"
    crashing.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] || echo "$@" >> {tmp_path}/calls\n'
        f'case "$*" in *{taken}*) exec g++ "$@";; --version) exit;; esac\n'
        'echo "k.cpp:1:1: internal compiler error: Segmentation fault"; exit 1\n'
    )
    crashing.chmod(0o755)
    path = Cpp(options(tmp_path, str(crashing))).build(SOURCE.format(3), FLAGS)
    assert path.read_bytes().startswith(b"\x7fELF")
    assert len((tmp_path / "calls").read_text().splitlines()) == calls
    crashing.write_text(crashing.read_text().replace(taken, "-O7"))
    with pytest.raises(BuildError, match="internal compiler error") as caught:
        Cpp(options(tmp_path, str(crashing))).build(SOURCE.format(4), FLAGS)
    Path(str(caught.value).split("building ")[1].split(" failed")[0]).unlink()


def test_artifacts_are_bytes() -> None:
    plan = ir.Plan("g", "cpu", ("k0", "k1"), (), (ir.Launch("k0", ()),), ())
    made = GraphArtifact(plan, (Unit("int x;", ("k0", "k1"), FLAGS),))
    assert GraphArtifact.from_bytes(made.to_bytes()) == made
    with pytest.raises(ValueError, match="format"):
        GraphArtifact.from_bytes(bytes(8) + b"{}")
