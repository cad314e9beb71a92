"""`numerics="fast"` on a GPU, whose plans have other nests than their programs: sums down columns in parts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from stator import lowering, passes
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.fake import FakeMode
from stator.loop.footprint import Kept
from stator.loop.schedule import make_kernels, plan_both
from stator.loop.verify import verify_schedule
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.codegen.tiled import on_a_device

GPU = typical("cuda")


def test_rounding_of_both_halves_leaves_parts_of_sums_as_they_are() -> None:
    """A norm's kernel of rows sums up in parts what the gradient of its weight is of."""

    def function(x: Tensor, weight: Tensor, factors: Tensor) -> Tensor:
        y = x + F.linear(F.layer_norm(x, (768,), weight), factors)
        return F.linear(F.layer_norm(F.relu(y * 1.1), (768,), weight), factors)

    given = [torch.randn(*size).bfloat16().requires_grad_() for size in ((2048, 768), (768,), (768, 768))]
    mode = FakeMode()
    joint = trace(torch.fx.symbolic_trace(function), [mode.from_real(x) for x in given], decompositions=DECOMPOSITIONS)
    parts = partition(joint)
    assert parts.backward is not None
    lowered = []
    for graph, name in ((parts.forward, "forward"), (parts.backward, "backward")):
        passes.run(graph, passes.PIPELINE)
        lowered.append((lowering.lower(on_a_device(graph), name, GPU, False), GPU))
    start = {"value": 0, "extra": len(parts.metadata.values)}
    saved = [
        Kept(i, start[one.source] + one.index) for i, one in enumerate(parts.metadata.saved) if one.source in start
    ]
    planned = plan_both(lowered[0], lowered[1], saved)
    assert any(group.parts for group in planned[1].plan.groups)
    for half in planned:
        verify_schedule(make_kernels(half))
