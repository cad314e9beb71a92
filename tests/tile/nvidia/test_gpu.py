"""The tile language on a GPU: the conformance suite, random programs, launches."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.cpu.refused import Refused
from stator.tile.errors import LaunchError
from tests.tile.conformance import cases
from tests.tile.cpu.test_conformance import same
from tests.tile.interpret.cases import Case
from tests.tile.interpret.compare import Arguments, by_ir
from tests.tile.ir.programs import random_module
from tests.tile.nvidia.on_gpu import run_on_arrays
from tests.tile.nvidia.test_conformance import REFUSED, agree_with_tf32

pytestmark = pytest.mark.gpu
#: One case in so many is run here; those of libdevice are in `test_libdevice`.
STEP = 8


@pytest.fixture(autouse=True)
def coded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TILE_CODE", "1")


@pytest.mark.parametrize("case", [case for case in cases()[::STEP] if case.op != "extern"], ids=str)
def test_code_agrees_with_the_interpreter(case: Case) -> None:
    expected = case.run()
    module, results = case.module()
    arrays = [np.array(data) for _, data in case.operands]
    arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
    try:
        run_on_arrays(module, "main", arrays)
    except Refused as refused:
        assert str(refused).split(" (")[0].split(":")[0] in REFUSED
        return
    for wanted, found, type_ in zip(expected, arrays[len(case.operands) :], results, strict=True):
        if not agree_with_tf32(case, wanted, found):
            same(case, type_, wanted, found)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_agree_with_the_interpreter(seed: int) -> None:
    module, function = random_module(seed)
    expected = by_ir(module)
    function.attrs["num_warps"] = 1 << seed % 4
    arguments = Arguments()
    run_on_arrays(module, "main", [arguments.x, arguments.y], arguments.numbers[2])
    x, y = (np.frombuffer(part, dtype) for part, dtype in ((expected[:256], np.float32), (expected[256:], np.int32)))
    np.testing.assert_array_equal(arguments.y, y)
    np.testing.assert_allclose(arguments.x, x, rtol=1e-4, atol=1e-5)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("n", [1, 1000, 100_000])
def test_tensors_of_a_gpu_are_added_where_they_are(dtype: torch.dtype, n: int) -> None:
    x, y = (torch.randn(n, device="cuda").mul(10).to(dtype) for _ in range(2))
    out = torch.zeros_like(x)
    for _ in range(2):  # the second launch goes the short way
        kernel = add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    torch.testing.assert_close(out, x + y)
    assert ".visible .entry add_kernel" in kernel.asm["ptx"]


def test_a_launch_is_on_the_current_stream() -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x += 1
        add_kernel[(1024,)](x, x, x, 1 << 20, BLOCK=1024)
    stream.synchronize()
    assert torch.equal(x, torch.full_like(x, 2))


def test_tensors_of_two_devices_are_refused() -> None:
    x = torch.zeros(8, device="cuda")
    with pytest.raises(LaunchError, match=r"on one device, not .* on cuda:0 and y on the CPU"):
        add_kernel[(1,)](x, torch.zeros(8), x, 8, BLOCK=8)


def test_what_is_interpreted_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1")
    x = torch.zeros(8, device="cuda")
    with pytest.raises(LaunchError, match=r"interpreted.*cuda:0"):
        add_kernel[(1,)](x, x, x, 8, BLOCK=8)


_OUT_OF_RANGE = """
import torch, stator
lookup = stator.compile(torch.nn.functional.embedding, options={"triton": "stator"})
weight = torch.randn(100, 64, device="cuda")
print(lookup(torch.arange(100, device="cuda"), weight).equal(weight))
lookup(torch.arange(1, 101, device="cuda"), weight)
torch.cuda.synchronize()
"""


def test_a_position_out_of_range_stops_the_device() -> None:
    """In a process of its own, for CUDA does nothing more there."""
    done = subprocess.run([sys.executable, "-c", _OUT_OF_RANGE], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True"), done.stderr
    assert "device-side assert" in done.stderr and "index out of range" in done.stderr + done.stdout
