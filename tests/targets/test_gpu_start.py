"""Starts on a device: a second process compiles nothing and imports no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator.targets.cuda import driver
from stator.targets.cuda.binaries import Binary
from stator.targets.cuda.driver import DriverError

pytestmark = pytest.mark.gpu

PROGRAM = """
    import json, sys
    import torch
    from torch import nn
    import stator
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 80), nn.GELU(), nn.LayerNorm(80), nn.Linear(80, 3), nn.Softmax(-1)).cuda()
    x = torch.randn(9, 40, device="cuda", requires_grad=True)
    step = stator.compile(model, options={"strict": True, "check_speed": "off"})
    step(x).square().sum().backward()
    wanted, = torch.autograd.grad(model(x).square().sum(), x)
    torch.testing.assert_close(x.grad, wanted, rtol=1e-4, atol=1e-5)
    names = "triton", "torch._dynamo", "torch._inductor", "stator.pipeline", "stator.codegen"
    print(json.dumps([name for name in names if name in sys.modules]))
"""

#: Warnings are errors: PyTorch's, where its libraries are called in a thread that is in no context, too.
THREADS = """
    import json, threading, warnings
    import torch, stator
    torch.zeros(1, device="cuda") @ torch.zeros(1, 1, device="cuda")
    warnings.simplefilter("error")
    def step(x, w):
        return torch.relu((x * 2) @ w).sin() * 3
    compiled = stator.compile(step, mode=MODE, options={"strict": True, "check_speed": "off"})
    w, wrong = torch.randn(8, 8, device="cuda", requires_grad=True), []
    def run():
        try:
            for _ in range(4):
                x = torch.randn(5, 8, device="cuda", requires_grad=True)
                found, wanted = (torch.autograd.grad(fn(x, w).sum(), (x, w)) for fn in (compiled, step))
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        except BaseException as error:
            wrong.append(repr(error))
    run()
    worker = threading.Thread(target=run)
    worker.start(), worker.join()
    print(json.dumps(wrong))
"""


def start(folder: Path, program: str = PROGRAM) -> Any:
    """What a process that uses this folder prints last: which modules are loaded at its end, for example."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "STATOR_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_warm_start_imports_no_compiler(tmp_path: Path) -> None:
    cold = start(tmp_path)
    assert "stator.pipeline" in cold and "triton" not in cold  # its workers have it
    kernels = list(tmp_path.rglob("kernel-*"))
    assert kernels
    assert start(tmp_path) == []
    assert sorted(tmp_path.rglob("kernel-*")) == sorted(kernels)
    for path in kernels:  # the graph is there, and its binaries are not
        path.unlink()
    assert "triton" not in start(tmp_path)
    assert sorted(tmp_path.rglob("kernel-*")) == sorted(kernels)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_threads_that_are_in_no_context(mode: str | None, tmp_path: Path) -> None:
    """Backward runs in a thread of autograd's; its first step is a kernel of ours, and the next one a library's."""
    assert start(tmp_path, THREADS.replace("MODE", repr(mode))) == []


def test_what_the_driver_refuses_has_its_name() -> None:
    torch.zeros(1, device="cuda")
    with pytest.raises(DriverError, match=r"CUDA_ERROR_INVALID_(IMAGE|SOURCE) \(\d+\) where mine was loaded"):
        driver.load(b"no binary", "mine", 0, 0)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        driver.refused("mine", 1)


def test_binaries_say_what_they_take(tmp_path: Path) -> None:
    x = torch.randn(64, 4096, device="cuda")
    call = stator.compile(lambda x: x.softmax(-1), options={"strict": True, "cache_dir": str(tmp_path)})
    torch.testing.assert_close(call(x), x.softmax(-1))
    found = [path.read_bytes() for path in tmp_path.rglob("kernel-*")]
    assert found and all(Binary.from_bytes(data).registers > 0 for data in found)
