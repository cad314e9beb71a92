"""Artifacts say which lines of the program a kernel computes; what is linked and kept does not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.loop.expr import const, load, op
from stator.loop.index import Axis
from stator.loop.nest import Buffer, Nest, Operator, Program, View
from stator.loop.schedule import schedule
from stator.plan.sources import unit_text
from stator.targets import typical


def layer(x: Tensor) -> Tensor:
    y = F.gelu(x @ x.T)
    return (y + 1) * 2


def twice(x: Tensor) -> Tensor:
    return layer(layer(x))


def line(number: int) -> str:
    """A line of `layer`, counted from its first, as artifacts call it."""
    return f"{__file__}:{layer.__code__.co_firstlineno + number}"


def test_kernels_in_python_have_their_lines_over_them() -> None:
    buffers = [Buffer(name, "f32", (8,), (1,)) for name in ("x", "y", "z")]
    axis = Axis("x0", 8)
    nests = [
        Nest(buffer, (axis,), (), op("add", load(given.name, axis.index, "f32"), const(1.0, "f32")), axis.index,
             operators=(Operator("add", ("model.py", number)),))
        for number, (given, buffer) in enumerate(pairwise(buffers))
    ]  # fmt: skip
    outputs = tuple([View(buffer.name, (8,), (1,)) for buffer in buffers[1:]])
    made = schedule(Program("told", "cpu", tuple(buffers[:1]), tuple(nests), outputs), typical("cpu"))
    source = f"import triton\n\n\n@triton.jit\ndef {made.names[0]}(p0):\n    pass\n"
    told = "# model.py:0: add\n# model.py:1: add\n@triton.jit\ndef "
    assert unit_text(source, made.names, made, "#") == source.replace("@triton.jit\ndef ", told)


def test_launches_and_kernels_have_the_lines_they_come_from(tmp_path: Path) -> None:
    options = {"cache_dir": str(tmp_path / "store"), "strict": True, "debug": str(tmp_path / "stages")}
    x = torch.randn(32, 32)
    torch.testing.assert_close(stator.compile(twice, fullgraph=True, options=options)(x), twice(x))
    (wrapper,), (kernels,) = tmp_path.rglob("*forward_wrapper.py"), tmp_path.rglob("*forward_kernels.cpp")
    told = f"# {line(1)}: gelu\n    # {line(2)}: add, mul\n    gelu_add_mul_k0("
    assert wrapper.read_text(encoding="utf-8").count(told) == 2
    head = f"// gelu_add_mul_k0\n//   {line(1)}: gelu\n//   {line(2)}: add, mul\n//   and 1 more\n"
    assert kernels.read_text(encoding="utf-8").startswith(head)
    kept = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert any(b"gelu_add_mul_k0" in data for data in kept) and not any(__file__.encode() in data for data in kept)
