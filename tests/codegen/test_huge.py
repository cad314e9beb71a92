"""Counting past 2**31: what the generated code counts with, and, with STATOR_LARGE=1 in the environment, what it gives.

The text is generated for tensors that repeat one element, so no test here needs their memory. The runs take seconds
each and up to 7 GiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

import stator
from stator import pipeline
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.base.options import Options
from stator.codegen import cpp, triton
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.targets import typical
from stator.targets.cpu.record import read

HUGE = 2**31 + 5
large = pytest.mark.skipif(not os.environ.get("STATOR_LARGE"), reason="STATOR_LARGE=1 runs on tensors of gigabytes")

COUNTING: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: (x + 1).argmax(),
    "argmin of rows": lambda x: x.expand(3, -1).argmin(1),
    "argmax of columns": lambda x: x[:, None].expand(-1, 40).argmax(0),
    "max with positions": lambda x: torch.max(x * 2, 0)[1],
    "sum of positions": lambda x: (torch.arange(x.shape[0]) * x).sum(),
    "positions": lambda x: torch.arange(x.shape[0]).expand(2, -1).argmin(1),
    "count": lambda x: (x > 0).sum(),
    "gathered": lambda x: x[(torch.arange(7) * 306783378) % x.shape[0]],
    "divided": lambda x: x[(torch.arange(9) * 1000000007) // 4],
    "two axes": lambda x: x.view(5, -1).argmax() if x.shape[0] % 5 == 0 else x.argmax(),
}


def kernels(function: Callable[[Tensor], Tensor], size: int) -> tuple[Kernel, ...]:
    """What a function of one vector is compiled to; nothing is run."""
    x = torch.zeros(1, dtype=torch.int8).expand(size)
    gm = fx.GraphModule({}, _graph(function))
    joint = trace(gm, [x], decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    forward = partition(joint, 1.0).forward
    return pipeline.schedule_graph(forward, "forward", Options.from_user()).kernels


def _graph(function: Callable[[Tensor], Tensor]) -> fx.Graph:
    graph = fx.Graph()
    graph.output((graph.call_function(function, (graph.placeholder("x"),)),))
    return graph


@pytest.mark.parametrize("name", COUNTING)
def test_what_is_counted_in_32_bits_fits(name: str) -> None:
    for kernel in kernels(COUNTING[name], HUGE):
        text = cpp.emit([kernel], read()).rpartition("// ")[2]
        ranges = Ranges(kernel.reduce_numel)
        fits = [ranges.numbers(node) for node in kernel.nodes if node.op == "reduce" and node.attr.startswith("arg")]
        if any(known is None or known[1] >= 2**31 for known in fits):
            assert "Best<" in text and not re.search(r"Best<[^;]*, int> ", text)
        for axis in (*kernel.axes, *kernel.reduce_axes):
            if axis.size >= 2**31:
                assert not re.search(rf"\(int\)\([^;]*\b{axis.name}\b", text), text
                assert not re.search(rf"\bint {axis.name}\b", text)


@pytest.mark.parametrize("name", COUNTING)
def test_a_gpu_counts_in_64_bits_where_32_are_too_few(name: str) -> None:
    for kernel in kernels(COUNTING[name], HUGE):
        text = triton.emit([kernel], typical("cuda")).rpartition("@triton.jit")[2]
        points = (kernel.outer_numel, kernel.reduce_numel, *[param.numel for param in kernel.params])
        if any(count >= 2**31 for count in points):
            assert "tl.program_id(0).to(tl.int64)" in text or "tl.program_id" not in text
            row = re.search(r"base = tl\.arange\(0, \d+\)(\[None, :\])?\.to\(tl\.int64\)", text)
            assert kernel.reduce_axes == () or row is not None, text


def test_a_gpu_multiplies_positions_in_64_bits() -> None:
    (kernel,) = kernels(lambda x: torch.arange(5000) * 1000003 + x, 5000)
    assert "tl.program_id(0).to(tl.int64)" in triton.emit([kernel], typical("cuda")).rpartition("@triton.jit")[2]


def test_short_reductions_keep_narrow_positions() -> None:
    (kernel,) = kernels(lambda x: x.argmax(), 5000)
    assert re.search(r"Best<[^;]*, int> ", cpp.emit([kernel], read()))
    assert "int64) * X" not in triton.emit([kernel], typical("cuda")).rpartition("@triton.jit")[2]


def compiled(function: Callable[..., Tensor], *args: Tensor, dynamic: bool) -> Tensor:
    return stator.compile(function, fullgraph=True, dynamic=dynamic, options={"strict": True, "cache": False})(*args)


@large
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_position_of_the_greatest_of_many(dynamic: bool) -> None:
    x = torch.zeros(HUGE, dtype=torch.int8)
    x[-1] = 7
    assert compiled(lambda x: (x + 1).argmax(), x, dynamic=dynamic).item() == HUGE - 1
    assert compiled(lambda x: (x + 1).max(0)[1], x, dynamic=dynamic).item() == HUGE - 1
    assert compiled(lambda x: (x - 9).argmin(), x[:-1], dynamic=dynamic).item() == 0
    assert compiled(lambda x: (x == 0).sum(), x, dynamic=dynamic).item() == HUGE - 1
    assert compiled(lambda x: x[torch.arange(3) + x.shape[0] - 3] * 2, x, dynamic=dynamic).tolist() == [0, 0, 14]
    columns = compiled(lambda x: x[:, None].expand(-1, 2).argmax(0), x, dynamic=dynamic)
    assert columns.tolist() == [HUGE - 1] * 2


@large
def test_positions_that_the_graph_makes() -> None:
    n = HUGE
    assert compiled(lambda: (torch.arange(n) > n - 3).argmax(), dynamic=False).item() == n - 2
    assert compiled(lambda: torch.arange(n).clamp(max=3).sum(), dynamic=False).item() == 3 * (n - 2)
    assert compiled(lambda: (torch.arange(n) // 2).max(), dynamic=False).item() == (n - 1) // 2


@large
def test_running_sums_of_many() -> None:
    x = torch.ones(1, dtype=torch.int8).expand(HUGE)
    assert compiled(lambda x: x.cumsum(0, dtype=torch.int8)[-1], x, dynamic=False).item() == HUGE % 256
