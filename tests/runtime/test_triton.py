"""Triton texts to kernels: what is compiled when, without a device. What launches do: `tests/native/test_device.py`."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import torch

from stator.base.store import Store
from stator.codegen import triton as codegen
from stator.loop.expr import load, op
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, kernel
from stator.loop.kernel import Store as Write
from stator.plan import ir
from stator.runtime import executor
from stator.targets import typical
from stator.targets.cuda import toolchain as triton


def twice(points: int) -> Kernel:
    x = Axis("x0", points)
    value = load("p0", x.index, "f32")
    params = (Param("p0", "f32", "in", points), Param("p1", "f32", "out", points))
    return kernel((x,), (), (Write("p1", x.index, op("add", value, value), "outer"),), params)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> triton.Binaries:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    source = codegen.emit([twice(1000), twice(2000)], typical("cuda"), ["first", "second"])
    return triton.begin(source, "cuda:0", Store(tmp_path))


def test_what_most_launches_take_is_compiled_at_once(begun: triton.Binaries) -> None:
    made = {name: future.result() for name, future in begun._compiling.items()}
    assert made.keys() == {"first", "second"} and all(one.kernel for one in made.values())
    assert [launch["grid"] for launch in begun.launches.values()] == [8, 16]


def test_other_binaries_are_compiled_when_they_are_needed(begun: triton.Binaries) -> None:
    aligned = begun._compiling["first"].result().asm["ttir"]
    anywhere = begun._compiled("first", anywhere=True, wide=False).asm["ttir"]
    assert "tt.divisibility" in aligned and "tt.divisibility" not in anywhere


def test_a_text_is_begun_once(begun: triton.Binaries, tmp_path: Path) -> None:
    source = codegen.emit([twice(1000), twice(2000)], typical("cuda"), ["first", "second"])
    assert triton.begin(source, "cuda", Store(tmp_path)) is begun


def test_a_device_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled in a process of its own for each device: memory, streams and kernels are all that device's."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(triton, "stream_getter", lambda: 77)
    assert [triton.number(device) for device in ("cuda", "cuda:0", "cuda:2")] == [3, 0, 2]
    form = ir.Form("f32", (4,), (1,))
    steps = tuple([ir.Allocate(f"a{i}", form, device) for i, device in enumerate(("cuda", "cuda:1", "cpu"))])
    plan = ir.Plan("test", "cuda", (), (), steps, (), arena=ir.Arena(64, (ir.Piece("p", form, 0),)))
    assembly = executor._Assembly(plan, {}, {"cuda", "cpu"}, reuse=True)
    assert [assembly._step(step)[-2:] for step in steps] == [("cuda", 3), ("cuda", 1), ("cpu", 0)]
    assert (assembly._scratch() or ())[-2:] == (3, 77)


def test_nothing_is_compiled_for_a_program_that_ends(begun: triton.Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)
    with pytest.raises(CancelledError):
        begun._early("first")
