"""A target of its own package compiles and runs graphs, with no file of the product knowing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator import pipeline, targets
from stator.base import log
from stator.base.errors import FallbackWarning, Unsupported
from stator.base.options import Options
from stator.fake import make
from stator.prims import DECOMPOSITIONS
from tests.cases.graphs import trace
from tests.targets.toy import toolchain

TOY = "tests.targets.toy"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The toy in place of the host's target; the kernels that it runs."""
    monkeypatch.setattr(targets, "PACKAGES", {})
    targets.register("cpu", TOY)
    toolchain.CALLS.clear()
    yield toolchain.CALLS
    targets.PACKAGES.clear()


def step(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x @ w, (6,)) + b).softmax(-1).cumsum(0) * x.sum()


def test_a_graph_is_compiled_and_run(toy: list[str], tmp_path: Path) -> None:
    inputs = [torch.randn(size, requires_grad=True) for size in ((20, 5), (5, 6), (6,))]
    compiled = stator.compile(step, fullgraph=True, options={"strict": True, "debug": str(tmp_path)})
    with log.collect() as recorder:
        found = compiled(*inputs)
    wanted = step(*inputs)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(result.square().sum(), inputs) for result in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)
    assert len(toy) > 3 and "g++" not in {span.name for span in recorder.spans}
    texts = {path.name.partition("_")[2]: path.read_text(encoding="utf-8") for path in (tmp_path / "step").iterdir()}
    assert "def " in texts["forward_kernels.py"] and "a toy takes one element at a time" in texts["forward_fused.txt"]
    assert "pieces, as 1 results do not fill 3 programs" in texts["forward_fused.txt"]


def test_a_second_process_would_find_it(toy: list[str], tmp_path: Path) -> None:
    """The store has what the toy made under the toy's record, and nothing of it for the host's own target."""
    x = torch.randn(7)
    hits = []
    for kind in ("toy", "toy", "host"):
        if kind == "host":
            targets.PACKAGES.clear()
        with log.collect() as recorder:
            compiled = stator.compile(torch.sin, options={"strict": True, "cache_dir": str(tmp_path)})
            torch.testing.assert_close(compiled(x), x.sin())
        hits += [facts["hit"] for facts in recorder.of(log.CACHE) if facts["what"] == "graph"]
    assert hits == [False, True, False] and len(toy) == 2


def test_sizes_that_change(toy: list[str]) -> None:
    compiled = stator.compile(lambda x: (x * 2).sum(0), dynamic=True, fullgraph=True, options={"strict": True})
    for rows in (3, 5, 40):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), (x * 2).sum(0))
    assert len(toy) >= 3


def test_another_type_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that torch has a name for and nobody here a device: all of the way to text."""
    options = Options.from_user()
    gm, _ = trace(lambda x: x.exp().sum(-1), (torch.randn(8, 50),), DECOMPOSITIONS)
    for node in gm.graph.nodes:
        if isinstance(value := node.meta.get("val"), Tensor):
            node.meta["val"] = make(tuple(value.shape), value.dtype, torch.device("hpu"))
    with pytest.raises(Unsupported, match="of type hpu"):
        pipeline.schedule_graph(gm, "forward", options)
    monkeypatch.setitem(targets.PACKAGES, "hpu", TOY)
    schedule = pipeline.schedule_graph(gm, "forward", options)
    assert schedule.device == "hpu" and {buffer.device for buffer in schedule.buffers.values()} == {"hpu"}
    artifact = pipeline.emit_artifact(schedule, tuple(pipeline.emit_kernels(schedule, options)), options)
    assert artifact.plan.device == "hpu" and all(toolchain.parse(unit.source) for unit in artifact.units)


def test_the_targets_that_there_are() -> None:
    assert targets.kinds() == ["cpu", "cuda"]
    assert all(map(targets.has, targets.kinds())) and not targets.has("hpu") and not targets.has("target")


def test_a_type_without_a_target_runs_in_eager() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(3, device="meta") + 1, x + 1

    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="on a device of type meta is not supported"):
        found = stator.compile(function)(x)
    assert found[0].device.type == "meta"
    torch.testing.assert_close(found[1], x + 1)
