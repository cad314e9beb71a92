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
from stator.runtime import triton


def twice(points: int) -> Kernel:
    x = Axis("x0", points)
    value = load("p0", x.index, "f32")
    params = (Param("p0", "f32", "in", points), Param("p1", "f32", "out", points))
    return kernel((x,), (), (Write("p1", x.index, op("add", value, value), "outer"),), params)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> triton.Binaries:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    source = codegen.emit([twice(1000), twice(2000)], ["first", "second"])
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
    source = codegen.emit([twice(1000), twice(2000)], ["first", "second"])
    assert triton.begin(source, "cuda", Store(tmp_path)) is begun


def test_nothing_is_compiled_for_a_program_that_ends(begun: triton.Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: False)
    with pytest.raises(CancelledError):
        begun._early("first")
