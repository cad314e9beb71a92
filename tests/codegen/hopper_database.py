"""`python -m tests.codegen.hopper_database`: Triton reads the kernels of the whole operator database, without a GPU.

The arguments are those of `python -m stator.coverage`, and so is the form of the result. Each sample is traced twice:
on fakes that claim a GPU, without gradients (autograd asks such a device for its stream), which takes the ways of
operators on CUDA; and with gradients on fakes of the host, whose graphs are lowered for the GPU all the same. What
Triton refuses is a failure, what cannot be traced a break. Neighbours: `hopper.py`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from stator import lowering, passes, prims
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.coverage.__main__ import main
from stator.coverage.judge import Call, Run
from stator.fake import FakeMode, FakeTensor, make
from stator.loop import tables
from stator.loop.kernel import Kernel
from stator.loop.schedule import schedule
from stator.targets import typical
from tests.codegen import hopper

DEVICES = ("cuda:0", "cpu")


class Parser:
    """Reads the kernels of a sample; its results are eager's."""

    layout = True

    def __init__(self) -> None:
        torch.cuda._lazy_init = _nothing  # every factory that names the device would start it

    def run(self, program: Callable[..., Any], call: Call, *, exact_random: bool) -> Run:
        """See `stator.coverage.judge.Engine`."""
        untraced: list[str] = []
        refused: list[str] = []

        def read(args: Any, kwargs: Any) -> Any:
            for device in DEVICES:
                try:
                    kernels = kernels_of(program, args, kwargs, torch.device(device))
                except Exception as error:
                    untraced.append(f"{device}: {type(error).__name__}: {error}")
                    continue
                try:
                    hopper.parsed(kernels)
                except (hopper.Refused, KeyError) as error:
                    refused.append(f"{device}: {error}")
            return program(args, kwargs)

        return Run(call(read), tuple(untraced), (), tuple(refused))


def _nothing() -> None:
    """In place of what starts the device."""


@tables.session()
def kernels_of(program: Callable[..., Any], args: Any, kwargs: Any, device: torch.device) -> list[Kernel]:
    """The kernels of forward and backward."""
    gm, inputs = _captured(program, args, kwargs, device)
    joint = trace(gm, inputs, decompositions=prims.DECOMPOSITIONS, random_operators=prims.RANDOM_OPERATORS)
    parts = partition(joint, 1.0)
    return [kernel for half in (parts.forward, parts.backward) if half is not None for kernel in _kernels(half)]


def _kernels(gm: fx.GraphModule) -> Iterator[Kernel]:
    passes.run(gm)
    yield from schedule(lowering.lower(gm, "half", typical("cuda")), typical("cuda")).kernels


def _captured(
    program: Callable[..., Any], args: Any, kwargs: Any, device: torch.device
) -> tuple[fx.GraphModule, list[FakeTensor]]:
    """The call as a graph of one node over its tensors, and fakes of these on the device."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = [device if isinstance(leaf, torch.device | str) and str(leaf) == "cpu" else leaf for leaf in leaves]
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor.clone() if tensor.requires_grad else tensor
        inner, named = pytree.tree_unflatten(given, spec)
        return tuple(result for result in pytree.tree_leaves(program(inner, named)) if isinstance(result, Tensor))

    fakes = [_fake(leaves[place], device) for place in places]
    with torch.no_grad(), FakeMode():
        count = len(run(*[fake.detach() for fake in fakes]))
    graph = fx.Graph()
    called = graph.call_function(run, tuple([graph.placeholder(f"x{i}") for i in range(len(places))]))
    graph.output(tuple([graph.call_function(operator.getitem, (called, i)) for i in range(count)]))
    return fx.GraphModule({}, graph), fakes


def _fake(tensor: Tensor, device: torch.device) -> FakeTensor:
    fake = make(tensor.shape, tensor.dtype, device, tensor.stride(), tensor.storage_offset())
    fake.requires_grad_(tensor.requires_grad and device.type == "cpu")
    return fake


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "tests.codegen.hopper_database:Parser"))
