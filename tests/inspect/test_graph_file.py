"""Artifacts of every stage: one folder a graph, numbered, and each Python file among them runs by itself."""

from __future__ import annotations

import itertools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator.inspect import graph_file

HALVES = ("forward", "backward")
#: Both halves are scheduled before either is built: their memory is planned together.
STAGES = [
    "captured.py",
    "joint.py",
    *[f"{half}{end}" for half in HALVES for end in (".py", "_loops.txt")],
    *[f"{half}{end}" for half in HALVES for end in ("_fused.txt", "_kernels.cpp", "_wrapper.py")],
]


class Small(torch.nn.Module):
    """A bit of everything: a view, an in-place change of a buffer, dropout, a reduction, a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = self.norm(torch.relu(self.linear(x)))
        y = torch.nn.functional.dropout(y[index].transpose(0, 1), 0.3)
        return torch.softmax(y, -1, dtype=torch.float64) + float("-inf") * (y > 1e9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artifacts")
    model = Small()
    compiled = stator.compile(model, fullgraph=True, options={"debug": str(root), "strict": True})
    compiled(torch.randn(5, 8), torch.tensor([0, 3])).sum().backward()
    (folder,) = root.iterdir()
    return folder


def test_every_stage_is_there_in_order_under_the_users_name(folder: Path) -> None:
    assert folder.name == "Small_forward"
    found = [path.name.split("_", 1) for path in sorted(folder.iterdir())]
    assert [number for number, _ in found] == [f"{i:02}" for i in range(len(found))]
    # Kernels are shared among as many texts as there are cores to compile them.
    assert [name for name, _ in itertools.groupby(name for _, name in found)] == STAGES


def test_what_is_apart_is_told_behind_what_was_joined(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        rows = torch.softmax(x, -1)
        return (rows * 3).sum(0) * rows

    stator.compile(f, options={"debug": str(tmp_path)})(torch.randn(64, 64))
    (path,) = tmp_path.glob("*/??_forward_fused.txt")
    text = path.read_text()
    kernels, lines = text.count(" = kernel("), [line for line in text.splitlines() if line.startswith("apart ")]
    assert kernels > 1 and lines, text
    assert re.fullmatch(r"apart \w+ and \w+, which share \w+: .+", lines[0])


@pytest.mark.parametrize("name", [name for name in STAGES if name.endswith(".py")])
def test_each_python_file_runs_by_itself(folder: Path, name: str, tmp_path: Path) -> None:
    (path,) = folder.glob(f"??_{name}")
    root = str(Path(stator.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[0-9.]+ us a call\n", done.stdout)


def test_files_of_symbolic_graphs_run_by_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = stator.compile(
        lambda x, n: torch.softmax(x[:, :n] * n, -1),
        dynamic=True,
        fullgraph=True,
        options={"debug": str(tmp_path), "strict": True},
    )
    compiled(torch.randn(5, 8, requires_grad=True), 6).sum().backward()
    files = sorted(tmp_path.glob("*/*.py"))
    for path in files:
        with torch.enable_grad():
            runpy.run_path(str(path), run_name="__main__")
    assert len(files) == len(STAGES) - 6
    assert capsys.readouterr().out.count("us a call\n") == len(files)


def test_lines_tell_the_value_and_the_users_line(folder: Path) -> None:
    line = Small.forward.__code__.co_firstlineno + 2
    for name in ("captured", "forward"):
        (path,) = folder.glob(f"??_{name}.py")
        text = path.read_text(encoding="utf-8")
        assert f"# {__file__}:{line}\n" in text
        assert re.search(r"    \w+ = .*\(.*\)  # float32 \[5, 8\] strides \(8, 1\)\n", text)


def test_the_wrapper_can_be_edited(folder: Path, tmp_path: Path) -> None:
    (path,) = folder.glob("??_forward_wrapper.py")
    text = path.read_text(encoding="utf-8")
    edited = tmp_path / "edited.py"
    edited.write_text(text.replace("def call(inputs):", "def call(inputs):\n    print('edited')", 1), encoding="utf-8")
    root = str(Path(stator.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(edited)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.returncode == 0 and done.stdout.startswith("edited\n"), done.stderr


def program(x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = torch.split(x, [1, 2], dim=-1)
    b = b[..., None, 1:2, :].to(torch.float64, memory_format=torch.preserve_format)
    c = torch.full((2,), float("inf"), device=torch.device("cpu")).clamp(max=3.0)
    d = torch.topk(y, k=1, dim=0).values
    return (
        a.add(1, alpha=2) @ a.mT,
        b[slice(0, 1)],
        torch.cat([c, d[0]]),
        torch.einsum("ij->j", y),
        torch.ops.aten.relu(y).sum(dtype=None),
    )


def test_a_captured_file_computes_what_the_graph_computes(tmp_path: Path) -> None:
    found: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        found.append(gm)
        (tmp_path / "graph.py").write_text(graph_file.captured(gm, example_inputs), encoding="utf-8")
        return gm.forward

    args = torch.randn(2, 3, 3), torch.randn(4, 2)
    expected = stator.compile(program, fullgraph=True, backend=backend)(*args)
    module = runpy.run_path(str(tmp_path / "graph.py"))
    for got, want in zip(module["graph"](*args), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    for made, arg in zip(module["inputs"](), args, strict=True):
        assert (made.shape, made.stride(), made.dtype) == (arg.shape, arg.stride(), arg.dtype)
