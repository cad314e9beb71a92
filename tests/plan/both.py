"""Every plan that is linked, run by the C core and as Python on equal memory: the results are the same, to the bit.

`watching()` puts this in place of `stator.driver.link`. What the plans make of the random state is the same too, for it
is put back in between. Meanwhile every kernel is written in the kernel IR as well, which is verified, read
back and, where it is small, evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from stator import pipeline
from stator import plan as plans
from stator.base.options import Options
from stator.coverage.judge import Stator
from stator.kernel.blocks import choose
from stator.kernel.decisions import decide
from stator.kernel.ir import Function
from stator.kernel.strategies import blocks, serial, vectors
from stator.loop.kernel import Kernel, Schedule
from stator.plan import ir
from stator.runtime import GraphArtifact, Unit, executor
from stator.runtime.link import execute, load
from stator.targets import typical
from stator.targets.cpu.record import read
from tests.kernel.programs import checked
from tests.plan.evaluated import Evaluated

Call = Any


class Twice:
    """A linked graph: the C core's results, once those of the Python module are found to be equal."""

    def __init__(self, plan: ir.Plan, kernels: dict[str, Any], evaluated: dict[str, Any] | None = None) -> None:
        assert plans.from_bytes(plans.to_bytes(plan)) == plan
        self.plan = plan
        self.native = executor.make(plan, kernels)
        self.text = execute(plans.module_text(plan), plan.name, evaluated or kernels)

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        if self.native is None:
            return self.text(inputs)
        again, state = copied(inputs), random_state()
        kept = list(inputs)
        wanted, failed = outcome(self.text, again[:])
        drawn = random_state(state)
        found, raised = outcome(self.native, inputs)
        assert not inputs and type(failed) is type(raised) and str(failed) == str(raised), (failed, raised)
        assert all(map(torch.equal, drawn, random_state()))
        assert_same([*found, *kept], [*wanted, *again], self.plan)
        if raised is not None:
            raise raised
        return found


def random_state(then: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The state of all devices' generators, which is set to another one after that."""
    found = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]
    if then is not None:
        torch.set_rng_state(then[0])
        torch.cuda.set_rng_state_all(then[1:])
    return found


def outcome(call: Call, inputs: list[Any]) -> tuple[tuple[Any, ...], Exception | None]:
    try:
        return call(inputs), None
    except Exception as error:
        return (), error


def copied(inputs: list[Any]) -> list[Any]:
    """The same tensors in other memory, of which they share what they share."""
    memory: dict[int, Any] = {}
    found = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            found.append(value)
            continue
        storage = value.untyped_storage()
        fresh = memory.setdefault(storage._cdata, storage.clone())
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        copy = empty.set_(fresh, value.storage_offset(), value.size(), value.stride())
        found.append(torch._C._conj(copy) if value.is_conj() else copy)
    return found


def assert_same(found: list[Any], wanted: list[Any], plan: ir.Plan) -> None:
    """The same bytes, geometry and sharing of memory."""
    assert len(found) == len(wanted)
    memory: dict[int, int] = {}
    for mine, theirs in zip(found, wanted, strict=True):
        if not isinstance(mine, torch.Tensor):
            assert repr(mine) == repr(theirs), plan.name
            continue
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), plan.name
        own, other = [t.detach().resolve_conj().contiguous().view(-1) for t in (mine, theirs)]
        assert own.view(torch.uint8).equal(other.view(torch.uint8)), plan.name
        if mine.numel():
            place, expected = [t.untyped_storage()._cdata for t in (mine, theirs)]
            assert memory.setdefault(place, expected) == expected, plan.name


@contextmanager
def watching() -> Iterator[list[Twice]]:
    """All that is linked meanwhile."""
    made: list[Twice] = []
    emit = pipeline.emit_kernels
    functions: dict[tuple[str, str], tuple[Kernel, Function]] = {}

    def emit_kernels(schedule: Schedule, options: Options) -> list[Unit]:
        for kernel, name in zip(schedule.kernels, schedule.names, strict=True):
            if schedule.device != "cpu":
                checked(blocks(choose(kernel, typical("cuda")), name))
                continue
            checked(serial(kernel, name))
            plan = decide(kernel, read(threads=options.threads))
            functions[schedule.name, name] = kernel, checked(vectors(plan, name))
        return emit(schedule, options)

    def link(artifact: GraphArtifact, options: Options | None = None) -> Twice:
        plan, kernels = artifact.plan, load(artifact.units, options, artifact.plan.device)
        host = {name: kernel for name, kernel in kernels.items() if (plan.name, name) in functions}
        evaluated = {name: Evaluated(kernel, *functions[plan.name, name]) for name, kernel in host.items()}
        made.append(Twice(plan, kernels, kernels | evaluated))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stator.driver.link", link)
        patch.setattr(pipeline, "emit_kernels", emit_kernels)
        yield made


class StatorTwice(Stator):
    """The engine of the operator table, with every graph run both ways."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with watching():
            return super().run(*args, **kwargs)
