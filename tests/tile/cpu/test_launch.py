"""Machine code at launches: threads, failures with their line, prints, refusals, and code that is made once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.cpu import build, entry, launch
from stator.tile.errors import CodeRefused, CodeWarning
from stator.tile.language.extra import libdevice


@pytest.fixture(autouse=True)
def coded(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as machine code, and what is refused is said anew."""
    monkeypatch.setenv("STATOR_TILE_CODE", "1")
    monkeypatch.setattr(entry, "_said", set())


def forget(kernel: triton.JITFunction) -> None:
    """The kernel is compiled anew at its next launch."""
    kernel.cache.clear()


@triton.jit
def count_kernel(out, counter, BLOCK: tl.constexpr):
    place = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    tl.store(out + place * BLOCK + tl.arange(0, BLOCK), place)
    tl.atomic_add(counter, 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grid", [(1,), (7, 3), (3, 2, 5)])
def test_every_program_runs_once(threads: int, grid: tuple[int, ...]) -> None:
    before, total = torch.get_num_threads(), int(np.prod(grid))
    out, counter = torch.full((total, 4), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    torch.set_num_threads(threads)
    try:
        kernel = count_kernel[grid](out, counter, BLOCK=4)
    finally:
        torch.set_num_threads(before)
    assert isinstance(kernel.code, launch.Kernel)
    assert counter.item() == total and torch.equal(out, torch.arange(total, dtype=torch.int32)[:, None].expand(-1, 4))


def test_no_program_runs_on_an_empty_grid() -> None:
    counter = torch.zeros(1, dtype=torch.int32)
    count_kernel[(0,)](torch.zeros(4, dtype=torch.int32), counter, BLOCK=4)
    assert counter.item() == 0


@triton.jit(debug=True)
def checked_kernel(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.device_assert(value >= 0, "no negative numbers")
    tl.store(out + tl.program_id(0), tl.sum(value))


def test_a_failed_assertion_names_the_line_and_the_program() -> None:
    x, out = torch.ones(3, 8), torch.zeros(3)
    checked_kernel[(3,)](x, out, BLOCK=8)
    assert torch.equal(out, torch.full((3,), 8.0))
    x[2, 5] = -1
    out.zero_()
    with pytest.raises(
        triton.InterpreterError, match="assertion failed: no negative numbers, in program \\(2, 0, 0\\)"
    ) as e:
        checked_kernel[(3,)](x, out, BLOCK=8)
    assert 'tl.device_assert(value >= 0, "no negative numbers")' in str(e.value) and out[2] == 0


@triton.jit
def printing_kernel(x, BLOCK: tl.constexpr):
    tl.device_print("row", tl.program_id(0), tl.load(x + tl.arange(0, BLOCK)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_prints_are_those_of_the_interpreter(
    dtype: torch.dtype, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.arange(4).to(dtype)
    printing_kernel[(2,)](x, BLOCK=4)
    found = capsys.readouterr().out
    monkeypatch.setenv("STATOR_TILE_CODE", "0")
    forget(printing_kernel)
    printing_kernel[(2,)](x, BLOCK=4)
    forget(printing_kernel)
    assert found == capsys.readouterr().out and found.count("\n") == 4


@triton.jit
def refused_kernel(x, BLOCK: tl.constexpr):
    places = x + tl.arange(0, BLOCK)
    tl.store(places, libdevice.erfinv(tl.load(places)))


def test_what_is_refused_is_said_once_and_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(refused_kernel)
    x = torch.tensor([0.0, 0.5])
    with pytest.warns(
        CodeWarning, match="refused_kernel is interpreted, slowly: no code for extern.*erfinv.*test_launch"
    ):
        refused_kernel[(1,)](x, BLOCK=2)
    torch.testing.assert_close(x, torch.erfinv(torch.tensor([0.0, 0.5])))
    forget(refused_kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused_kernel[(1,)](x, BLOCK=2)
    monkeypatch.setenv("STATOR_TILE_STRICT", "1")
    forget(refused_kernel)
    with pytest.raises(CodeRefused, match="erfinv"):
        refused_kernel[(1,)](x, BLOCK=2)


def test_machine_code_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out, counter = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    count_kernel[(1,)](out, counter, BLOCK=4)
    forget(count_kernel)
    monkeypatch.setattr(build, "optimized", lambda text: pytest.fail("code was made again"))
    count_kernel[(1,)](out, counter, BLOCK=4)
    assert counter.item() == 2


@triton.jit
def same_place_kernel(counter, old, BLOCK: tl.constexpr):
    found = tl.atomic_add(counter + tl.zeros((BLOCK,), tl.int32), 2)
    tl.store(old + tl.arange(0, BLOCK), found)


def test_atomics_of_equal_lanes_happen_for_each_lane() -> None:
    counter, old = torch.zeros(1, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    same_place_kernel[(1,)](counter, old, BLOCK=32)
    assert counter.item() == 64 and torch.equal(old, 2 * torch.arange(32, dtype=torch.int32))


@triton.jit
def through_data_kernel(places, x, BLOCK: tl.constexpr):
    pointers = x + tl.load(places + tl.arange(0, BLOCK))
    tl.store(pointers, tl.load(pointers) * 2)


def test_pointers_from_data_are_all_read_before_they_are_written() -> None:
    places, x = torch.zeros(64, dtype=torch.int32), torch.ones(1)
    through_data_kernel[(1,)](places, x, BLOCK=64)
    assert x.item() == 2


@triton.jit
def divide_kernel(x, by, out, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places) / tl.load(by))


@pytest.mark.parametrize("by", [3.0, 0.0, -0.0, 1e-40, -7e-39, 1.2e-38, 3e38, float("inf"), float("nan"), 1e-20, 1e20])
def test_division_by_one_number(by: float) -> None:
    x = torch.tensor(
        [0.0, -0.0, 1.0, -3.5, 1e-40, -3e-42, 3e38, -1e38, float("inf"), float("nan"), 1e-20, 1e20] + [7.0] * 4
    )
    out, divisor = torch.empty(16), torch.tensor([by])
    divide_kernel[(1,)](x, divisor, out, BLOCK=16)
    expected = (x.double() / divisor.double()).float()
    torch.testing.assert_close(out, expected, rtol=2.4e-7, atol=1.5e-45, equal_nan=True)


@triton.jit
def specialised_kernel(x, n, scale, out, flag, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n, other=0.0) * scale
    if flag:
        value = -value
    tl.store(out + places, value)


def test_launches_like_one_before_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(specialised_kernel)
    whole = torch.randn(40, dtype=torch.float64)

    def check(x: torch.Tensor, n: int, scale: float, flag: bool, block: int) -> None:
        out = torch.full((block,), 9.0, dtype=x.dtype)
        specialised_kernel[lambda meta: (meta["n"] // meta["n"],)](x, n, scale, flag=flag, out=out, BLOCK=block)
        expected = torch.zeros(block, dtype=x.dtype)
        expected[:n] = (x[:n].double() * scale * (-1 if flag else 1)).to(x.dtype)
        torch.testing.assert_close(out, expected[:block])

    launches = [
        (x, n, scale, flag, block)
        for x in (whole, whole[1:], whole.float())
        for n in (16, 1, 5)
        for scale in (2.0, -0.5)
        for flag in (True, False)
        for block in (16, 32)
    ]
    for arguments in launches:
        check(*arguments)
    kinds = len(specialised_kernel.launches.known)
    assert kinds == 3 * 3 * 2
    monkeypatch.setattr(triton.JITFunction, "bind", lambda *_: pytest.fail("went the long way"))
    for arguments in reversed(launches):
        check(*arguments)
    assert len(specialised_kernel.launches.known) == kinds


@triton.jit
def halves_kernel(x, y, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.arange(0, BLOCK)
    given, other = tl.load(x + offsets).to(tl.float32), tl.load(y + offsets).to(tl.float32)
    product = (given * other).to(tl.float16)
    tl.store(out + offsets, (product.to(tl.float32) - given).to(tl.float16))


def test_float16_is_rounded_to_where_a_kernel_says_so() -> None:
    """Though processors that compute in float16 have an instruction for both operations, which rounds once."""
    x, y = torch.randn(1024).half(), torch.randn(1024).half()
    out = torch.empty(1024, dtype=torch.float16)
    halves_kernel[(1,)](x, y, out, BLOCK=1024)
    assert torch.equal(out, x * y - x)


def test_the_short_way_is_left_where_switches_change(monkeypatch: pytest.MonkeyPatch) -> None:
    out, counter = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert count_kernel[(1,)](out, counter, BLOCK=4) is not None
    assert count_kernel[(1,)](out, counter, BLOCK=4) is not None
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1")
    assert count_kernel[(1,)](out, counter, BLOCK=4) is None and counter.item() == 3
