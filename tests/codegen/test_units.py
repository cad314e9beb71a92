"""Kernels of much text are shared among several units, which compile side by side and run as one would."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.options import Options
from stator.runtime import GraphArtifact, link

emit = import_module("stator.codegen.cpp.emit")


def several(x: torch.Tensor) -> torch.Tensor:
    for scale in range(1, 5):
        x = torch.softmax(x * scale, -1) @ x
    return x.sum(0)


def test_every_kernel_is_in_one_unit_and_no_unit_is_much_longer() -> None:
    for lengths in ([], [5], [300_000, 10], [1_000 * (i % 37) for i in range(200)]):
        shared = emit._shared(lengths)
        assert sorted(i for part in shared for i in part) == list(range(len(lengths)))
        totals = [sum(lengths[i] for i in part) for part in shared]
        assert max(totals, default=0) <= sum(lengths) / max(len(shared), 1) + max(lengths, default=0)
        assert len(shared) <= sum(lengths) // emit.UNIT_TEXT + 1


def test_short_texts_are_shared_among_the_cores() -> None:
    assert len(emit._shared([emit.LEAST_TEXT] * 4, cores=2)) == 2
    assert len(emit._shared([emit.LEAST_TEXT // 8] * 4, cores=2)) == 1


def test_units_run_as_one_would(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(emit, "UNIT_TEXT", 1)
    seen: list[GraphArtifact] = []

    def linked(artifact: GraphArtifact, options: Options) -> Any:
        seen.append(artifact)
        return link(artifact, options)

    monkeypatch.setattr("stator.driver.link", linked)
    x = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    compiled = stator.compile(several, options={"cache_dir": str(tmp_path)})
    torch.testing.assert_close(compiled(x), several(x))
    grads = [torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, several)]
    torch.testing.assert_close(*grads)
    for artifact in seen:
        names = [name for unit in artifact.units for name in unit.kernels]
        assert len(names) == len(set(names)) and set(artifact.plan.launches) == set(names)
        assert len(artifact.units) == len(names)
    assert sum(len(artifact.units) for artifact in seen) > 3


def test_kernels_of_forward_compile_while_backward_is_scheduled(tmp_path: Path) -> None:
    x = torch.randn(6, 6, requires_grad=True)
    with log.collect() as recorder:
        stator.compile(several, options={"cache_dir": str(tmp_path)})(x)
    spans = {(span.name, span.facts.get("graph")): span for span in reversed(recorder.spans)}
    assert spans["codegen", "forward"].start < spans["schedule", "backward"].start < spans["g++", None].start
