"""Shapes of products and attention by measurement, with the device's clock replaced: what is tried, taken and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from stator.base import log
from stator.base.options import Options
from stator.kernel.matmul import Tiling, candidates, matmul_of
from stator.loop.kernel import Kernel
from stator.targets import typical
from stator.targets.cuda import autotune, printer, toolchain
from tests.codegen import tiled
from tests.codegen.test_attention import FLASH, Graph, heads

DEVICE = typical("cuda")


class Building:
    """Takes units and compiles nothing."""

    def begin(self, units: Sequence[Any], device: str, remarks: Mapping[str, str]) -> tuple[Any, ...]:
        return tuple(units)

    def finish(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were timed: one of 128 rows is the fastest, those of 64 do not run."""
    timed: list[str] = []

    def seconds(units: Sequence[Any], *_: object) -> float | str:
        timed.append(units[0].source)
        if "m_tile * 64 +" in units[0].source:
            return "OutOfResources: too much"
        return 1e-6 if "m_tile * 128 +" in units[0].source else 2e-6

    monkeypatch.setattr(autotune, "_timed", seconds)
    monkeypatch.setattr(autotune, "_arguments", lambda *_: [])
    monkeypatch.setattr(toolchain, "building", lambda _: Building())
    return timed


def product() -> Kernel:
    x = torch.empty(512, 512, dtype=torch.bfloat16)
    (made,) = tiled.scheduled(lambda a, b: torch.relu(a @ b), x, x)[0].kernels
    return made


def test_what_one_compiler_was_measured_with_says_nothing_of_another(clock: list[str], tmp_path: Path) -> None:
    kernel = product()
    for compiler, count in (("triton", 1), ("stator", 2), ("triton", 2)):
        autotune.shapes([kernel], DEVICE, Options(cache_dir=str(tmp_path), autotune=True, triton=compiler))
        assert len(clock) == count * len(autotune.candidates(kernel, DEVICE))


def test_numerics_have_shapes_of_their_own(clock: list[str], tmp_path: Path) -> None:
    """What is timed is the text that will run: a root that is a factor of a half is rough where it may be."""
    x = torch.empty(512, 512, dtype=torch.bfloat16)
    (kernel,) = tiled.scheduled(lambda a, b: ((a @ b).float().sqrt() * a).bfloat16(), x, x)[0].kernels
    exact, fast = (Options(cache_dir=str(tmp_path), autotune=True, numerics=how) for how in ("eager", "fast"))
    texts = []
    for options in (exact, fast):
        autotune.shapes([kernel], DEVICE, options)
        texts.append(set(clock))
        (unit,) = printer.emit([kernel], ["tried"], DEVICE, options)
        assert unit.source in clock
        clock.clear()
    assert texts[0] and texts[1] and not texts[0] & texts[1]


def test_the_fastest_is_taken_and_kept(clock: list[str], tmp_path: Path) -> None:
    options = Options(cache_dir=str(tmp_path), autotune=True)
    kernel = product()
    with log.collect() as recorder:
        found = autotune.shapes([kernel], DEVICE, options)[kernel]
    assert isinstance(found.shape, Tiling) and found.shape.rows == 128
    product_of = matmul_of(kernel, DEVICE)
    assert product_of is not None
    listed = candidates(product_of, DEVICE)[: autotune.TRIED]
    assert len(clock) == len(listed) == len(found.tried)
    refused = [why for _, why in found.tried if isinstance(why, str)]
    assert refused and all("too much" in why for why in refused)
    (record,) = recorder.of(log.TILING)
    assert f"{len(refused)} do not run" in record["told"] and record["kernel"] == kernel.text()
    clock.clear()
    assert autotune.shapes([kernel], DEVICE, options)[kernel] == found and not clock
    (unit,) = printer.emit([kernel], ["k"], DEVICE, options)
    assert "m_tile * 128 +" in unit.source and not clock
    assert "128×" in printer.reason(kernel, DEVICE, options)


def test_nothing_is_measured_unless_asked(clock: list[str], tmp_path: Path) -> None:
    printer.emit([product()], ["k"], DEVICE, Options(cache_dir=str(tmp_path)))
    assert not clock


def test_another_device_is_measured_anew(clock: list[str], tmp_path: Path) -> None:
    options = Options(cache_dir=str(tmp_path), autotune=True)
    kernel = product()
    autotune.shapes([kernel], DEVICE, options)
    count = len(clock)
    autotune.shapes([kernel], typical("cuda", 100), options)
    assert len(clock) > count


def test_a_kernel_of_which_nothing_runs_is_left_to_the_rule(
    clock: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune, "_timed", lambda *_: "OutOfResources: all of it")
    with log.collect() as recorder:
        assert not autotune.shapes([product()], DEVICE, Options(cache_dir=str(tmp_path)))
    (note,) = recorder.of(log.NOTE)
    assert "all of it" in note["text"]


def test_attention_has_shapes_too(clock: list[str], tmp_path: Path) -> None:
    made = Graph()
    q, k, v = (heads(1, 2, 256, 64, torch.bfloat16) for _ in range(3))
    node = made.call(FLASH, *map(made.given, (q, k, v)), 0.0, True)
    kernel = made.scheduled([made.part(node, 0)]).kernels[0]
    found = autotune.shapes([kernel], DEVICE, Options(cache_dir=str(tmp_path), autotune=True))[kernel]
    assert len(found.tried) > 2 and type(found.shape).__name__ == "Rows"
