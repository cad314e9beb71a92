"""Equal layers give equal kernels, whatever constant offsets their slices and random numbers have."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.loop.kernel import Launch, Schedule
from stator.loop.schedule import schedule
from stator.loop.verify import verify_schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.targets import typical
from tests.aot.models import GPT, Function, captured

DEVICE = typical("cpu", 2)


def schedules(layers: int) -> list[Schedule]:
    """Forward and backward of a small GPT in training, with dropout in every layer."""
    torch.manual_seed(0)
    model = GPT(vocabulary=32, length=8, width=16, layers=layers, heads=2, dropout=0.25)
    inputs = [torch.randint(0, 32, (2, 8)), torch.randint(0, 32, (2, 8))]
    gm = captured(model, inputs)
    joint = trace(gm, inputs, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    assert joint.metadata.draws == 2 * layers
    parts = partition(joint)
    assert parts.backward is not None
    found = [schedule(lower(half, "half", typical("cpu")), DEVICE) for half in (parts.forward, parts.backward)]
    for plan in found:
        verify_schedule(plan)
        assert any(node.op == "random" for kernel in plan.kernels for node in kernel.nodes)
    return found


def test_the_number_of_kernels_does_not_depend_on_the_number_of_layers() -> None:
    few, many = schedules(4), schedules(12)
    for a, b in zip(few, many, strict=True):
        assert len(b.kernels) == len(a.kernels) < 24
        assert sum(isinstance(step, Launch) for step in b.steps) > sum(isinstance(step, Launch) for step in a.steps)


@pytest.mark.parametrize("parts", [2, 6])
def test_slices_of_one_buffer(parts: int) -> None:
    """Parts that are read for themselves are one kernel at several offsets."""

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return tuple([F.softmax(part, -1) @ w for part in x.chunk(parts, -1)])

    inputs = [torch.randn(3, 5 * parts), torch.randn(5, 5)]
    gm = captured(Function(program), inputs)
    joint = trace(gm, inputs, decompositions=DECOMPOSITIONS)
    plan = schedule(lower(partition(joint).forward, "parts", typical("cpu")), DEVICE)
    verify_schedule(plan)
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    offsets = sorted(step.args[0].offset for step in launches)
    assert len(plan.kernels) == 1 and offsets == [5 * i for i in range(parts)]
