"""Products by warp groups, run on the CPU as a GPU would: where they are such, and that what they give is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.nvidia import ptx
from stator.tile.nvidia.kernel import Text
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine, MachineError
from tests.tile.nvidia.test_products import batched_kernel
from tests.tile.nvidia.warp_groups import WarpGroups

F16, BF16 = torch.float16, torch.bfloat16


def compiled(kernel: triton.JITFunction, *args: object, **options: object) -> Text:
    found = kernel.warmup(*args, grid=(1,), **options)
    return text_of(found.compiled.module, found.name)


def run(text: Text, tensors: Sequence[torch.Tensor], *numbers: int) -> None:
    arrays = [tensor.view(torch.uint8).reshape(-1).numpy() for tensor in tensors]
    Machine(text, arrays).run([*[tensor.data_ptr() for tensor in tensors], *numbers])


def integers(*sizes: int, dtype: torch.dtype = F16, seed: int = 0) -> torch.Tensor:
    """Small ones, whose products any order adds up exactly."""
    return torch.randint(-8, 9, sizes, generator=torch.Generator().manual_seed(seed + sum(sizes))).to(dtype)


def shapes(text: Text) -> set[str]:
    return set(re.findall(r"mma_async\.sync\.aligned\.(m64n\d+k16)", text.llvm))


@triton.jit
def product_kernel(
    a, b, c, inner, rows_of_a, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    rows, columns, terms = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, inner, K):
        there = start + terms < inner
        inside = there[None, :] & (rows < rows_of_a)[:, None]
        if LEFT:  # neighbours along the rows
            left = tl.load(a + (start + terms)[:, None] * M + rows[None, :], mask=there[:, None], other=0.0).T
        else:
            left = tl.load(a + rows[:, None] * inner + (start + terms)[None, :], mask=inside, other=0.0)
        if RIGHT:
            right = tl.load(b + columns[:, None] * inner + (start + terms)[None, :], mask=there[None, :], other=0.0).T
        else:
            right = tl.load(b + (start + terms)[:, None] * N + columns[None, :], mask=there[:, None], other=0.0)
        if FORM == "computed":
            left, right = left * 2, right * 2
        if FORM == "used":
            acc = tl.dot(left, right, acc) * 0.5
        elif FORM == "added":
            acc += tl.dot(left, right)
        elif FORM == "twice":
            acc = tl.dot(left, right, acc)
            acc = tl.dot(left * 2, right, acc)
        else:
            acc = tl.dot(left, right, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def expected(form: str, a: torch.Tensor, b: torch.Tensor, step: int) -> torch.Tensor:
    a, b = a.double(), b.double()
    if form != "used":
        return a @ b * {"computed": 4, "twice": 3}.get(form, 1)
    found = torch.zeros(len(a), b.shape[1], dtype=torch.float64)
    for start in range(0, a.shape[1], step):
        found = (found + a[:, start : start + step] @ b[start : start + step]) / 2
    return found


def product(
    m: int, n: int, k: int, inner: int, left: bool, right: bool, form: str, dtype: torch.dtype, **options: int
) -> Text:
    """A product that has been compiled, run and compared; warps and stages are options."""
    a, b = integers(m, max(inner, k), dtype=dtype), integers(max(inner, k), n, dtype=dtype, seed=1)
    c = torch.full((m, n), torch.nan)
    given = [a.T.contiguous() if left else a, b.T.contiguous() if right else b, c]
    text = compiled(product_kernel, *given, inner or k, m, M=m, N=n, K=k, LEFT=left, RIGHT=right, FORM=form, **options)
    run(text, given, inner, m)
    np.testing.assert_array_equal(c.numpy(), expected(form, a[:, :inner], b[:inner], k).numpy())
    return text


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "warps", "shape"),
    [
        (64, 16, 16, 4, "m64n16k16"),
        (64, 32, 64, 4, "m64n32k16"),
        (128, 64, 128, 4, "m64n64k16"),
        (64, 128, 32, 8, "m64n64k16"),
        (128, 64, 32, 8, "m64n64k16"),
        (256, 16, 64, 16, "m64n16k16"),
    ],
)
def test_operands_in_every_order(m: int, n: int, k: int, warps: int, shape: str, left: bool, right: bool) -> None:
    text = product(m, n, k, 3 * k, left, right, "", F16, num_warps=warps, num_stages=3)
    assert shapes(text) == {shape} and "mma.sync" not in text.llvm and "ldmatrix" not in text.llvm


def test_results_of_many_rows_take_several_instructions() -> None:
    text = product(256, 32, 16, 32, False, False, "", F16, num_warps=4, num_stages=2)
    assert shapes(text) == {"m64n32k16"} and text.llvm.count("mma_async") == 4


@pytest.mark.parametrize(("m", "n", "warps", "limit"), [(64, 512, 4, None), (128, 512, 16, None), (64, 256, 4, 128)])
def test_sums_that_do_not_fit_into_registers_stay_with_single_warps(
    m: int, n: int, warps: int, limit: int | None
) -> None:
    """An assembler refuses what it cannot keep there while warp groups multiply."""
    arguments = [F16, F16, torch.float32, 64, 64]
    text = compiled(product_kernel, *arguments, M=m, N=n, K=16, LEFT=False, RIGHT=False, FORM="", num_warps=warps,
                    maxnreg=limit)  # fmt: skip
    assert not shapes(text) and "mma.sync" in text.llvm


@pytest.mark.parametrize("form", ["", "added", "used", "computed", "twice"])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("turns", [0, 1, 4])
def test_loops_of_every_form(form: str, stages: int, turns: int) -> None:
    text = product(64, 32, 32, 32 * turns, False, True, form, BF16, num_warps=4, num_stages=stages)
    assert shapes(text) == {"m64n32k16"}


@pytest.mark.parametrize("stages", [1, 3])
def test_rows_that_end_within_a_tile(stages: int) -> None:
    product(64, 32, 32, 72, False, False, "", F16, num_warps=4, num_stages=stages)


@pytest.mark.parametrize(
    ("m", "n", "k", "warps"), [(32, 64, 32, 4), (64, 8, 32, 4), (64, 64, 32, 2), (64, 32, 32, 8), (64, 64, 32, 8)]
)
def test_what_is_too_small_stays_with_single_warps(m: int, n: int, k: int, warps: int) -> None:
    text = product(m, n, k, 2 * k, False, False, "", F16, num_warps=warps, num_stages=2)
    assert not shapes(text) and "mma.sync" in text.llvm


def test_batches_stay_with_single_warps() -> None:
    text = compiled(batched_kernel, F16, F16, torch.float32, 64, B=2, M=64, N=32, K=32)
    assert not shapes(text) and "mma.sync" in text.llvm


def test_only_the_architecture_that_has_them_takes_warp_groups() -> None:
    found = product_kernel.warmup(F16, F16, torch.float32, 64, 64, M=64, N=32, K=32, LEFT=False, RIGHT=False, FORM="",
                                  grid=(1,))  # fmt: skip
    for architecture, has in ((80, False), (89, False), (90, True), (100, False), (120, False)):
        assert ("wgmma" in text_of(found.compiled.module, found.name, architecture).llvm) == has


def test_sums_stay_in_flight_where_a_loop_only_adds_them_up() -> None:
    waits = {}
    for form in ("", "used"):
        text = product(64, 32, 32, 96, False, False, form, F16, num_warps=4, num_stages=3)
        waits[form] = re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", text.llvm)
    assert waits == {"": ["1", "0"], "used": ["0"]}


@triton.jit
def repeated_kernel(q, k, out, LENGTH, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + inner[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    for start in range(0, LENGTH, N):
        keys = tl.load(k + (start + columns)[None, :] * D + inner[:, None])
        most = tl.maximum(most, tl.max(tl.dot(queries, keys), 1))
    tl.store(out + rows, most)


@pytest.mark.parametrize(("d", "stages", "fits"), [(256, 2, True), (512, 3, False)])
def test_operands_that_fill_shared_memory_stay_in_registers(d: int, stages: int, fits: bool) -> None:
    """A buffer that lives as long as a loop does may be what is too much."""
    text = compiled(repeated_kernel, F16, F16, torch.float32, 256, M=128, N=64, D=d, num_warps=8, num_stages=stages)
    assert bool(shapes(text)) == fits and text.shared <= 232448


@triton.jit
def attention_kernel(
    q, k, v, out, scale, LENGTH, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + inner[None, :])
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, LENGTH, BN):
        keys = tl.load(k + (start + columns)[None, :] * D + inner[:, None])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= start + columns[None, :], scores, -1.0e6)
        above = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp(scores - above[:, None])
        alpha = tl.exp(most - above)
        total = total * alpha + tl.sum(p, 1)
        values = tl.load(v + (start + columns)[:, None] * D + inner[None, :])
        acc = tl.dot(p.to(queries.dtype), values, acc * alpha[:, None])
        most = above
    tl.store(out + rows[:, None] * D + inner[None, :], acc / total[:, None])


@pytest.mark.parametrize(("bm", "bn", "warps"), [(64, 32, 4), (128, 16, 4), (128, 64, 8), (64, 128, 8)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("stages", [1, 3])
def test_attention(bm: int, bn: int, warps: int, causal: bool, stages: int) -> None:
    """Where all rows of a warp's part are its own, what a product gives is an operand of the next one as it is."""
    d, length = 64, 128
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, d, generator=generator).to(F16) for rows in (bm, length, length))
    out = torch.zeros(bm, d)
    text = compiled(attention_kernel, q, k, v, out, 0.125, length, BM=bm, BN=bn, D=d, CAUSAL=causal,
                    num_warps=warps, num_stages=stages)  # fmt: skip
    scale = int(np.float32(0.125).view(np.uint32))
    run(text, [q, k, v, out], scale, length)
    scores = q.double() @ k.double().T * 0.125
    if causal:
        scores = scores.masked_fill(torch.arange(bm)[:, None] < torch.arange(length)[None, :], -1.0e6)
    torch.testing.assert_close(out, (scores.softmax(-1) @ v.double()).float(), rtol=2e-3, atol=2e-3)
    in_registers = re.findall(r"mma_async[^{;]*\{[^}]*\}, \{", text.llvm)
    assert shapes(text) and bool(in_registers) == (bm // 64 * 4 >= warps)


@triton.jit
def eights_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, terms = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + rows[:, None] * K + terms[None, :])
    right = tl.load(b + terms[:, None] * N + columns[None, :])
    tl.store(c + rows[:, None] * N + columns[None, :], tl.dot(left, right, out_dtype=tl.float16))


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn, F16])
def test_products_outside_of_loops(dtype: torch.dtype) -> None:
    """Operands of 8 bits are multiplied as f16."""
    a, b, c = integers(64, 32, dtype=dtype), integers(32, 32, dtype=dtype), torch.zeros(64, 32, dtype=F16)
    text = compiled(eights_kernel, a, b, c, M=64, N=32, K=32)
    run(text, [a, b, c])
    assert shapes(text) == {"m64n32k16"}
    torch.testing.assert_close(c, (a.double() @ b.double()).half())


# ---- what would be wrong


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("fence.proxy.async.shared::cta", "no fence and barrier behind it"),
        ("wgmma.fence.sync.aligned; ", "no fence is behind"),
        ("call void @llvm.nvvm.barrier.cta.sync.aligned.all", "no fence and barrier behind it"),
    ],
)
def test_what_is_left_out_is_found(left_out: str, message: str) -> None:
    a, b, c = integers(64, 64), integers(64, 32), torch.zeros(64, 32)
    text = compiled(product_kernel, a, b, c, 64, 64, M=64, N=32, K=32, LEFT=False, RIGHT=False, FORM="", num_stages=3)
    assert left_out in text.llvm
    lines = [line.replace(left_out, "") if "asm" in line else line for line in text.llvm.splitlines()]
    kept = "\n".join([line for line in lines if left_out not in line])
    with pytest.raises(MachineError, match=message):
        run(Text(text.name, kept, text.shared, text.warps), [a, b, c], 64, 64)


def test_sums_are_not_there_before_they_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = integers(64, 64), integers(64, 32), torch.zeros(64, 32)
    text = compiled(product_kernel, a, b, c, 64, 64, M=64, N=32, K=32, LEFT=False, RIGHT=False, FORM="", num_stages=3)
    early = Text(text.name, text.llvm.replace("wait_group.sync.aligned 0", "wait_group.sync.aligned 1"), text.shared, 4)
    with pytest.raises(MachineError, match="what a warp group may be reading"):
        run(early, [a, b, c], 64, 64)
    monkeypatch.setattr(WarpGroups, "check_write", lambda groups, index: None)
    run(early, [a, b, c], 64, 64)
    assert c.isnan().all()


def test_a_slot_is_not_filled_while_it_may_be_read() -> None:
    a, b, c = integers(64, 128), integers(128, 32), torch.zeros(64, 32)
    text = compiled(product_kernel, a, b, c, 64, 64, M=64, N=32, K=32, LEFT=False, RIGHT=False, FORM="", num_stages=2)
    late = text.llvm.replace("wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 2")
    with pytest.raises(MachineError, match="what a warp group may be reading"):
        run(Text(text.name, late, text.shared, text.warps), [a, b, c], 128, 64)


@pytest.mark.parametrize("form", ["", "used"])
def test_the_assembler_takes_it_as_it_is(form: str) -> None:
    """Instructions of warp groups are not put one behind the other, and all sums fit into registers."""
    if ptx.assembler() is None:
        pytest.skip("there is no ptxas")
    arguments: list[Any] = [F16, F16, torch.float32, 4096, 128]
    found = product_kernel.warmup(*arguments, M=128, N=128, K=64, LEFT=False, RIGHT=False, FORM=form, grid=(1,))
    text = text_of(found.compiled.module, found.name)
    assembled = ptx.assembled(ptx.ptx_of(text.llvm, 90, alone=True), 90, alone=True)
    assert assembled is not None and assembled.spills == 0
