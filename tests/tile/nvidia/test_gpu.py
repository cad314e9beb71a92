"""The tile language on a GPU: the conformance suite, random programs, launches."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.errors import LaunchError
from tests.tile.conformance import cases
from tests.tile.interpret.cases import Case
from tests.tile.nvidia.on_gpu import agree, agree_on_program

pytestmark = pytest.mark.gpu
#: One case in so many is run here; `python -m tests.tile --gpu --cases` runs all. `test_libdevice` has its functions.
STEP = 8


@pytest.fixture(autouse=True)
def coded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TILE_CODE", "1")


@pytest.mark.parametrize("case", [case for case in cases()[::STEP] if case.op != "extern"], ids=str)
def test_code_agrees_with_the_interpreter(case: Case) -> None:
    agree(case)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_agree_with_the_interpreter(seed: int) -> None:
    agree_on_program(seed)


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


def test_a_launch_is_like_the_one_before_only_where_its_key_is() -> None:
    wide = torch.arange(4097, dtype=torch.float32, device="cuda")
    aligned, apart, double = wide[:-1], wide[1:], wide.double()[:-1]
    launches = [(aligned, 4096, 1024), (apart, 4096, 1024), (aligned, 4096, 256), (aligned, 17, 256), (aligned, 1, 256)]
    for turn in range(3):
        for x, n, block in [*launches, (double, 4096, 256)]:
            out = torch.zeros(4096, dtype=x.dtype, device="cuda")
            for _ in range(2):
                add_kernel[(-(-n // block),)](x, x, out, n, BLOCK=block)
            expected = torch.where(torch.arange(4096, device="cuda") < n, x + x, 0.0)
            assert torch.equal(out, expected), (turn, n, block, x.dtype)
