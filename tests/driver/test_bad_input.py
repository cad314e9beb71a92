"""Bad input and failures: one error that says what to do, or one warning and the eager result; never a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import pipeline
from stator.base.errors import (
    BackendError,
    BuildError,
    CaptureError,
    CompilerMissing,
    FallbackWarning,
    InternalError,
    InvalidOption,
    StatorError,
    UnknownBackend,
    UnknownMode,
    UnknownOption,
)


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a mistake of ours")


# -- arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "nearest"),
    [
        ({"backend": "inducter"}, UnknownBackend, "inductor"),
        ({"mode": "reduce_overhead"}, UnknownMode, "reduce-overhead"),
        ({"options": {"recompile_limits": 3}}, UnknownOption, "recompile_limit"),
        ({"options": {"numerics": "eagre"}}, InvalidOption, "eager"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(
    arguments: dict[str, Any], error: type[StatorError], nearest: str
) -> None:
    with pytest.raises(error) as caught:
        stator.compile(f, **arguments)
    assert f"did you mean {nearest!r}?" in str(caught.value)


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.filterwarnings("ignore:option 'cudagraphs' has no effect:stator.base.errors.OptionWarning")
def test_every_mode_is_accepted_on_a_cpu(mode: str | None) -> None:
    x = torch.randn(3)
    torch.testing.assert_close(stator.compile(f, mode=mode, fullgraph=True)(x), f(x))


# -- no compiler -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, {"fullgraph": True}, {"options": {"strict": True}}], ids=str)
def test_a_missing_compiler_is_one_error(arguments: dict[str, Any], tmp_path: Path) -> None:
    options = {**arguments.pop("options", {}), "compiler": "no-such-compiler", "cache_dir": str(tmp_path)}
    compiled = stator.compile(f, options=options, **arguments)
    for _ in range(2):
        with pytest.raises(CompilerMissing) as caught, warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(torch.randn(3))
        assert "'no-such-compiler' was not found" in str(caught.value) and "install" in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_path_without_a_compiler_is_one_error(tmp_path: Path) -> None:
    script = "import torch, stator; stator.compile(lambda x: x.sin() + 1)(torch.ones(3))"
    environment = {**os.environ, "PATH": str(tmp_path), "STATOR_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(stator.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1 and "CompilerMissing: the compiler 'g++' was not found" in done.stderr
    assert "apt install g++" in done.stderr


# -- what cannot be captured -----------------------------------------------------------------------------------


def test_fullgraph_is_refused_with_line_reason_and_hint() -> None:
    def looks_at_data(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        if y.sum() > 0:
            return y
        return -y

    with pytest.raises(CaptureError) as caught:
        stator.compile(looks_at_data, fullgraph=True)(torch.randn(3))
    message, place, hint = str(caught.value).splitlines()
    assert "depends on the data" in message
    assert place == f"  at {__file__}:{looks_at_data.__code__.co_firstlineno + 2}"
    assert hint.startswith("  hint: ") and caught.value.__cause__ is None
    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="depends on the data") as told:
        torch.testing.assert_close(stator.compile(looks_at_data)(x), looks_at_data(x))
    assert len(told) == 1


# -- failures of ours ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["trace", "partition", "make", "Building", "schedule"])
@pytest.mark.faults
def test_our_failure_is_one_warning_and_the_eager_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    monkeypatch.setattr(f"stator.pipeline.{place}", fails)
    assert pipeline
    x = torch.randn(3)
    options = {"cache_dir": str(tmp_path / "cache")}
    compiled = stator.compile(f, options=options)
    with pytest.warns(FallbackWarning, match="a mistake of ours") as told:
        torch.testing.assert_close(compiled(x), f(x))
        torch.testing.assert_close(compiled(x), f(x))
    assert len(told) == 1
    folder = Path(str(told[0].message).split("are in ")[1].split(";")[0])
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["00_captured.py", "01_failure.txt"]
    assert "ZeroDivisionError: a mistake of ours" in (folder / names[1]).read_text(encoding="utf-8")
    assert "torch.sin" in (folder / names[0]).read_text(encoding="utf-8")
    with pytest.raises(InternalError, match="a mistake of ours") as caught:
        stator.compile(f, options={**options, "strict": True})(x)
    assert isinstance(caught.value.__cause__, ZeroDivisionError | InternalError)


@pytest.mark.parametrize(("place", "stage"), [("pipeline.make", "plan"), ("targets.cpu.printer.emit", "codegen")])
@pytest.mark.faults
def test_the_artifacts_of_a_failure_stand_with_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, stage: str
) -> None:
    monkeypatch.setattr(f"stator.{place}", fails)
    options = {"debug": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
    with pytest.warns(FallbackWarning, match=f"stage '{stage}'") as told:
        stator.compile(f, options=options)(torch.randn(3))
    assert str(tmp_path / "f") in str(told[0].message)
    names = [path.name.partition("_")[2] for path in sorted((tmp_path / "f").iterdir())]
    assert names == ["captured.py", "joint.py", "forward.py", "forward_loops.txt", "forward_fused.txt", "failure.txt"]


@pytest.mark.faults
def test_a_source_that_does_not_compile_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("stator.targets.cpu.printer.cpp.emit_units", lambda *_: [("this is no C++;\n", ("k0",))])
    x = torch.randn(3)
    options = {"cache_dir": str(tmp_path)}
    with pytest.warns(FallbackWarning, match="building .*cpp failed"):
        torch.testing.assert_close(stator.compile(f, options=options)(x), f(x))
    with pytest.raises(BuildError):
        stator.compile(f, options={**options, "strict": True})(x)


@pytest.mark.faults
def test_a_failure_of_capture_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stator.capture.frames.Conversion.start", fails)
    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="stage 'capture'.*a mistake of ours"):
        torch.testing.assert_close(stator.compile(f)(x), f(x))
    with pytest.raises(InternalError, match="a mistake of ours"):
        stator.compile(f, options={"strict": True})(x)


# -- backends that are not ours --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, 3, "f"], ids=str)
def test_a_backend_that_gives_no_function(given: Any) -> None:
    def theirs(gm: Any, example_inputs: Any) -> Any:
        return given

    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="the backend 'theirs' gave .*not callable"):
        torch.testing.assert_close(stator.compile(f, backend=theirs)(x), f(x))
    with pytest.raises(BackendError):
        stator.compile(f, backend=theirs, options={"strict": True})(x)


def test_a_backend_that_raises() -> None:
    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="the backend 'fails' raised ZeroDivisionError: a mistake"):
        torch.testing.assert_close(stator.compile(f, backend=fails)(x), f(x))
    with pytest.raises(BackendError) as caught:
        stator.compile(f, backend=fails, fullgraph=True)(x)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (lambda x: x, "type Tensor, not a tuple"),
        (lambda x: None, "gave None, not a tuple"),
        (lambda x: (x, x), "gave 2 results, not 1"),
        (lambda x: (), "gave 0 results, not 1"),
        (lambda x: (3,), "type int among its results"),
    ],
    ids=["tensor", "none", "many", "few", "number"],
)
def test_a_backend_whose_function_gives_garbage(results: Any, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        stator.compile(f, backend=lambda gm, example_inputs: results)(torch.randn(1))


def test_a_backend_may_give_a_list_and_the_graph_itself() -> None:
    x = torch.randn(3)
    for theirs in (lambda gm, _: gm, lambda gm, _: gm.forward, lambda gm, _: lambda *args: list(gm(*args))):
        torch.testing.assert_close(stator.compile(f, backend=theirs, fullgraph=True)(x), f(x))
