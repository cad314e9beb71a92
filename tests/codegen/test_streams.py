"""Stores past the caches: every dtype, from places that vectors lie at and others, whole blocks and parts of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from stator.base.device import Device
from stator.codegen.cpp.emit import emit
from stator.targets.cpu.record import read
from tests.codegen.harness import DTYPES, Batch, at, axes_of, e, generic, kernel, load, params, store


def streaming(device: Device) -> Device:
    """The device, as if its caches held nothing."""
    return replace(device, stream_bytes=1, cores=1)


@pytest.mark.parametrize("target", [streaming(read()), streaming(generic()), streaming(generic(32))])
def test_every_dtype_at_any_place(target: Device) -> None:
    batch = Batch(target)
    for name, dtype in DTYPES.items():
        for rows, columns, start in ((3, 64, 0), (5, 37, 0), (2, 48, 1), (1, 200, 3)):
            a = torch.randint(0, 100, (rows, columns)).to(dtype)
            memory = torch.zeros(start + rows * columns + 70, dtype=dtype)
            out = memory[start : start + rows * columns].view(rows, columns)
            x = axes_of([rows, columns])
            made = kernel(x, (), (store(1, at(out, x), load(0, a, x)),), params(a, out, out=[1]))
            assert "stream<" in emit([made], target)
            batch.add(f"{name} {rows}x{columns} from {start}", made, [a, out], {1: a}, rtol=0, atol=0)
            batch.cases[-1][3][2] = torch.zeros(70, dtype=dtype)  # nothing is written beyond the result
            batch.cases[-1][2].append(memory[start + rows * columns :])
    batch.check()


def test_threads_see_all_that_others_stored() -> None:
    x = axes_of([1 << 20])
    a, out = torch.randn(1 << 20), torch.empty(1 << 20)
    made = kernel(
        x, (), (store(1, at(out, x), e.op("mul", load(0, a, x), e.const(3.0, "f32"))),), params(a, out, out=[1])
    )
    assert "end_streams();" in emit([made], streaming(read()))
    batch = Batch(streaming(read()))
    batch.add("tripled", made, [a, out], {1: a * 3}, rtol=0, atol=0)
    batch.check()


def test_a_result_in_the_place_of_an_operand() -> None:
    """It is in the caches, and stores past them would drive it out: the pointers tell."""
    x = axes_of([4096])
    a = torch.randn(4096)
    expected = a * 3
    tripled = e.op("mul", load(0, a, x), e.const(3.0, "f32"))
    made = kernel(x, (), (store(1, at(a, x), tripled),), params(a, torch.empty(4096), out=[1]))
    assert "apart_p1 = (void*)p1 != p0;" in emit([made], streaming(read()))
    batch = Batch(streaming(read()))
    batch.add("in place", made, [a, a], {1: expected}, rtol=0, atol=0)
    batch.check()
