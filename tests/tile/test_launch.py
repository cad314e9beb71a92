"""Launches: grids, options, what is known of arguments, what is kept of compiled kernels, and what is refused."""

from __future__ import annotations

import re
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.errors import CompilationError, InterpreterError, LaunchError
from stator.tile.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def whole(out, n, scale, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, i * scale, mask=i < n)


@triton.jit
def places(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    where = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out + where, x + 10 * y + 100 * z)


@pytest.mark.parametrize("grid", [(2, 3, 4), [24], (4, 6), lambda meta: (24,), 24, (tl.constexpr(8), 3)])
@pytest.mark.usefixtures("way")
def test_grids(grid: Any) -> None:
    sizes = grid({}) if callable(grid) else grid
    x, y, z = (*[int(size) for size in (sizes if isinstance(sizes, tuple | list) else [sizes])], 1, 1)[:3]
    out = torch.zeros(24, dtype=torch.int32)
    places[grid](out)
    expected = [a + 10 * b + 100 * c for c in range(z) for b in range(y) for a in range(x)]
    assert out.tolist() == expected


def test_a_grid_sees_all_arguments() -> None:
    seen: dict[str, Any] = {}
    whole[lambda meta: seen.update(meta) or (1,)](torch.zeros(4), 3, scale=2.5, SIZE=4)
    assert {name: seen[name] for name in ("n", "scale", "SIZE")} == {"n": 3, "scale": 2.5, "SIZE": 4}


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), (-1,), (1.5,), "x", None])
def test_what_is_no_grid_is_refused(grid: Any) -> None:
    with pytest.raises(LaunchError, match="a grid is one to three sizes"):
        whole[grid](torch.zeros(4), 3, 2.5, SIZE=4)


def test_an_empty_grid_runs_nothing() -> None:
    out = torch.zeros(4)
    whole[(0,)](out, 3, 2.5, SIZE=4)
    assert not out.any()


def signature(*args: Any, kernel: Any = whole, **named: Any) -> str:
    """The first line of the kernel's tile IR."""
    return str(kernel.warmup(*args, grid=(1,), **named).asm["tir"].splitlines()[0])


def test_what_is_known_of_arguments() -> None:
    out = np.zeros(64, np.float32)
    aligned = out[-out.__array_interface__["data"][0] % 64 // 4 :]
    text = signature(aligned, 32, 0.5, SIZE=4)
    assert "out: ptr[f32](divisibility=16), n: i32(divisibility=16), scale: f32" in text
    text = signature(aligned[1:], 33, 0.5, SIZE=4)
    assert "out: ptr[f32], n: i32, scale: f32" in text
    assert "n" not in signature(aligned, 1, 0.5, SIZE=4).replace(":", " ").split()
    assert "scale: i64" in signature(aligned, 3, 2**40 + 1, SIZE=4)
    assert "scale: u64" in signature(aligned, 3, 2**63 + 1, SIZE=4)
    assert "scale: i1" in signature(aligned, 3, True, SIZE=4)


def test_parameters_that_are_not_specialised() -> None:
    @triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=[0])
    def kernel(out, n, m):
        tl.store(out, n + m)

    text = signature(torch.zeros(4, dtype=torch.int32), 1, 16, kernel=kernel)
    assert "out: ptr[i32], n: i32, m: i32(divisibility=16)" in text
    assert [p.name for p in kernel.params if p.do_not_specialize] == ["n"]


def test_annotations_give_numbers_their_dtype() -> None:
    @triton.jit
    def kernel(out, a: tl.int64, b: tl.float64, c: tl.int8, d: tl.uint32, e: tl.int1):
        tl.store(out, a + b + c + d + e)

    text = signature(torch.zeros(4), 1, 2, 3, 16, 1, kernel=kernel)
    assert "a: i64, b: f64, c: i8, d: u32(divisibility=16), e: i1" in text
    with pytest.raises(LaunchError, match="c is 300, and the kernel says that it is int8"):
        kernel[(1,)](torch.zeros(4), 1, 2, 300, 16, 1)
    with pytest.raises(LaunchError, match=r"a is 1\.5, and the kernel says that it is int64"):
        kernel[(1,)](torch.zeros(4), 1.5, 2, 3, 16, 1)


def test_kernels_are_compiled_once_for_a_signature() -> None:
    whole.cache.clear()
    out = torch.zeros(8)
    for n in (3, 5, 7, 9):
        whole[(1,)](out, n, 2.5, SIZE=8)
    assert len(whole.cache) == 1
    whole[(1,)](out, 16, 2.5, SIZE=8)
    whole[(1,)](out, 3, 2.5, SIZE=4)
    whole[(1,)](out, 3, 2.5, SIZE=4, num_warps=8)
    whole[(1,)](out.double(), 3, 2.5, SIZE=4)
    assert len(whole.cache) == 5
    kernel = whole[(1,)](out, 3, 2.5, SIZE=4, num_warps=8)
    assert kernel.metadata.num_warps == 8 and "num_warps=8" in kernel.asm["tir"]


def test_dtypes_stand_for_tensors_in_a_warmup() -> None:
    assert "out: ptr[bf16](divisibility=16)" in signature(torch.bfloat16, 3, 2.5, SIZE=4)
    assert "out: ptr[f32]" in signature(triton.MockTensor(torch.float32), 3, 2.5, SIZE=4)


Pair = namedtuple("Pair", "first second")


@triton.jit
def mixed(out, pair, flag, name: tl.constexpr, FUNCTION, missing=None, *, DTYPE: tl.constexpr = tl.int32):
    if missing is None and flag and name == "twice":
        tl.store(out, FUNCTION(tl.load(pair.first)).to(DTYPE) + pair.second)


@triton.jit
def twice(x):
    return x * 2


@pytest.mark.usefixtures("way")
def test_arguments_of_many_kinds() -> None:
    out, first = torch.zeros(1, dtype=torch.int32), torch.tensor([21.0])
    mixed[(1,)](out, Pair(first, 100), True, "twice", twice)
    assert out.item() == 142
    mixed[(1,)](out, Pair(first, 1), True, name="twice", FUNCTION=twice, missing=None, DTYPE=tl.int64)
    assert out.item() == 43


@pytest.mark.usefixtures("way")
def test_views_and_reinterpreted_tensors() -> None:
    base = torch.zeros(16)
    whole[(1,)](base[4:], 4, 1.0, SIZE=4)
    assert base.tolist() == [0.0] * 4 + [0.0, 1.0, 2.0, 3.0] + [0.0] * 8
    bits = torch.zeros(4, dtype=torch.int8)
    whole[(1,)](triton.reinterpret(bits, tl.float8e5), 4, 1.0, SIZE=4)
    assert bits.view(torch.float8_e5m2).float().tolist() == [0, 1, 2, 3]


class Elsewhere:
    """A tensor that is not on the CPU."""

    dtype, device = torch.float32, torch.device("meta")

    def data_ptr(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, "missing a required argument: 'out'"),
        ((torch.zeros(4), 3, 2.5, 4, 5), {}, "too many positional"),
        ((torch.zeros(4), 3, 2.5), {"SIZE": 4, "num_warp": 4}, "no parameter or option 'num_warp'.*num_warps"),
        ((torch.zeros(4), 3, 2.5), {"SIZE": 4, "num_warps": 3}, "num_warps is a power of 2, not 3"),
        ((torch.zeros(4), 3, 2.5), {"SIZE": 4, "num_stages": -1}, "num_stages is an int of at least 0"),
        ((torch.zeros(4), 3, 2.5), {"SIZE": 4, "maxnreg": "x"}, "maxnreg is an int, or None"),
        ((torch.zeros(4), 3, 2.5), {"SIZE": 4, "debug": 1}, "debug is True or False"),
        ((torch.zeros(4), {}, 2.5), {"SIZE": 4}, "the argument n is a dict, which kernels cannot take"),
        ((torch.zeros(4, dtype=torch.complex64), 3, 2.5), {"SIZE": 4}, "out is a tensor of torch.complex64"),
        ((Elsewhere(), 3, 2.5), {"SIZE": 4}, "out is on the device 'meta'.*.cpu()"),
        ((torch.zeros(4), 2**64, 2.5), {"SIZE": 4}, "more than 64 bits"),
        ((torch.zeros(4), object(), 2.5), {"SIZE": 4}, "the argument n is a object"),
    ],
)
def test_launches_that_are_refused(args: Any, named: Any, message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        whole[(1,)](*args, **named)
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


def test_jit_functions_are_not_called_from_programs() -> None:
    with pytest.raises(LaunchError, match=r"twice\[grid\]"):
        twice(3)
    with pytest.raises(LaunchError, match="no function defined by `def`"):
        triton.jit(3)
    with pytest.raises(CompilationError, match="not defined by `def`"):
        triton.jit(lambda x: x).source  # noqa: B018
    made: dict[str, Any] = {"tl": tl}
    exec("def kernel(x):\n    pass", made)
    with pytest.raises(CompilationError, match="source of 'kernel' cannot be read") as caught:
        triton.jit(made["kernel"])[(1,)](3)
    assert "define it in a file" in str(caught.value)


def test_what_a_jit_function_shows() -> None:
    assert whole.__name__ == "whole" and whole.arg_names == ["out", "n", "scale", "SIZE"]
    assert "tl.store(out + i, i * scale" in whole.src and repr(whole).endswith(":whole)")
    assert whole.cache_key != twice.cache_key and triton.jit(whole) is whole
    assert isinstance(whole, triton.JITFunction) and isinstance(whole, triton.KernelInterface)


def test_hooks_run_before_launches() -> None:
    seen = []

    @triton.jit
    def kernel(out):
        tl.store(out, 1.0)

    kernel.add_pre_run_hook(lambda *args, **named: seen.append(args[0].tolist()))
    out = torch.zeros(1)
    kernel[(1,)](out)
    kernel[(1,)](out)
    assert seen == [[0.0], [1.0]]


# ---- faults


@triton.jit
def overrun(out, n):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(out + i, i)
    helper(out, n)


@triton.jit
def helper(out, n):
    tl.store(out - n, 3)


@pytest.mark.usefixtures("way")
def test_accesses_outside_of_the_arguments_name_the_line() -> None:
    out = torch.zeros(6, dtype=torch.int32)
    with pytest.raises(InterpreterError) as caught:
        overrun[(2,)](out, 0)
    text = str(caught.value)
    assert "store of 4 bytes outside of the memory of all arguments, 0 bytes behind out, which has 24" in text
    assert "program (1, 0, 0)" in text and "tl.store(out + i, i)" in text and ", in overrun" in text
    with pytest.raises(InterpreterError) as caught:
        overrun[(1,)](out, 2)
    assert "8 bytes before out" in str(caught.value) and "tl.store(out - n, 3)" in str(caught.value)


@triton.jit
def through_integers(addresses, out):
    pointer = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(pointer))


@pytest.mark.usefixtures("way", "few_objects")
def test_addresses_in_memory_reach_tensors_that_are_alive() -> None:
    value, out = torch.tensor([2.5]), torch.zeros(1)
    through_integers[(1,)](torch.tensor([value.data_ptr()]), out)
    assert out.item() == 2.5
    with pytest.raises(InterpreterError, match="outside of the memory of all arguments"):
        through_integers[(1,)](torch.tensor([64]), out)


@triton.jit
def constant_pointer(x: tl.const, out):
    tl.store(out, tl.load(x))
    tl.store(x, 1.0)


@pytest.mark.usefixtures("way")
def test_nothing_is_written_through_const_pointers() -> None:
    with pytest.raises((CompilationError, InterpreterError), match="nothing is written through a const pointer"):
        constant_pointer[(1,)](torch.zeros(1), torch.zeros(1))


# ---- descriptors


@triton.jit
def descriptors(desc, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    made = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    block = desc.load([1, 2])
    made.store([1, 2], block * 2)
    made.atomic_add([0, 0], tl.full([BM, BN], 1.0, tl.float32))
    tl.static_assert(desc.block_shape[0] == BM and desc.shape[1].dtype == tl.int32)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.usefixtures("way")
def test_descriptors_pad_and_mask(padding: str) -> None:
    x, out = torch.randn(3, 8), torch.zeros(3, 8)
    desc = TensorDescriptor.from_tensor(x, [4, 8], padding)
    descriptors[(1,)](desc, out, 3, 8, BM=4, BN=8)
    expected = torch.ones(3, 8)
    expected[1:, 2:] += 2 * torch.nn.functional.pad(x[1:, 2:], (0, 0))
    assert torch.allclose(out, expected)


@triton.jit
def indexed_rows(x, out, rows, M, N, BN: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, BN])
    into = tl.make_tensor_descriptor(out, [M, N], [N, 1], [1, BN])
    at = tl.load(rows + tl.arange(0, 4))
    into.scatter(desc.gather(at, 4), at, 0)


@pytest.mark.usefixtures("way")
def test_descriptors_gather_and_scatter_rows() -> None:
    x, out = torch.randn(6, 16), torch.zeros(6, 16)
    rows = torch.tensor([5, 0, 3, 7], dtype=torch.int32)
    indexed_rows[(1,)](x, out, rows, 6, 16, BN=8)
    expected = torch.zeros(6, 16)
    expected[[5, 0, 3], :8] = x[[5, 0, 3], 4:12]
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorDescriptor.from_tensor(torch.zeros(4, 8).T, [4, 4]), "last dim of a descriptor has stride 1"),
        (lambda: TensorDescriptor.from_tensor(torch.zeros(4, 6), [4, 4]), "multiples of 16 bytes, and 24 is none"),
        (lambda: TensorDescriptor(torch.zeros(4), [4], [1, 1], [4]), "one item for each of 1 to 5 dims"),
        (lambda: TensorDescriptor.from_tensor(torch.zeros(4, 4), [4, 4], "inf"), "no padding 'inf'"),
    ],
)
def test_descriptors_that_are_refused(make: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        make()
