"""What lies across the lanes is turned over in tiles: sizes that blocks divide and others, every width of element."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.codegen.cpp.emit import emit
from stator.targets.cpu.record import read
from tests.codegen.harness import DTYPES, Batch, at, axes_of, e, generic, kernel, load, params, store


@pytest.mark.parametrize("target", [read(), generic()], ids=["native", "generic"])
def test_transposes(target: object) -> None:
    batch = Batch(target)  # type: ignore[arg-type]
    for name, dtype in DTYPES.items():
        for rows, columns in ((96, 8), (72, 16), (65, 33), (80, 130), (200, 67)):
            a = torch.randint(0, 100, (rows, columns)).to(dtype)
            out = torch.empty(columns, rows, dtype=dtype)
            x = axes_of([columns, rows])
            made = kernel(x, (), (store(1, at(out, x), load(0, a, (x[1], x[0]))),), params(a, out, out=[1]))
            assert "turn<" in emit([made], target)  # type: ignore[arg-type]
            batch.add(f"{name} {rows}x{columns}", made, [a, out], {1: a.t()}, rtol=0, atol=0)
    batch.check()


def test_some_operands_are_turned() -> None:
    """One operand along the lanes, one across, one backwards across, one the same for all lanes."""
    batch = Batch()
    for batches, rows, columns in ((1, 40, 70), (3, 19, 130)):
        x = axes_of([batches, rows, columns])
        along, across = torch.randn(batches, rows, columns), torch.randn(batches, columns, rows)
        back, row = torch.randn(columns, rows), torch.randn(rows, 1)
        out = torch.empty(batches, rows, columns)
        loads = [load(0, along, x), load(1, across, (x[0], x[2], x[1]))]
        loads += [load(2, back, (columns - 1 - x[2].index, x[1])), load(3, row, x[1:])]
        value = e.op("add", e.op("mul", loads[0], loads[1]), e.op("sub", loads[2], loads[3]))
        made = kernel(x, (), (store(4, at(out, x), value),), params(along, across, back, row, out, out=[4]))
        assert emit([made], read()).count("turn<64>(s") == 2
        wanted = along * across.transpose(1, 2) + (back.flip(0).t() - row)
        batch.add(f"{batches}x{rows}x{columns}", made, [along, across, back, row, out], {4: wanted}, rtol=0, atol=0)
    batch.check()


def test_what_is_read_under_a_mask_is_not_turned() -> None:
    """A tile would read outside of memory."""
    x = axes_of([32, 32])
    a, out = torch.randn(31, 32), torch.empty(32, 32)
    inside = e.op("lt", e.index(x[1].index), e.const(31, "i64"))
    value = e.masked(inside, load(0, a, (x[1], x[0])), e.const(0.0, "f32"))
    made = kernel(x, (), (store(1, at(out, x), value),), params(a, out, out=[1]))
    assert "turn<" not in emit([made], read())
    batch = Batch()
    batch.add("masked", made, [a, out], {1: torch.nn.functional.pad(a, (0, 0, 0, 1)).t()}, rtol=0, atol=0)
    batch.check()


def test_few_lines_stay_in_the_cache() -> None:
    """To channels last: each channel is a line that positions walk along."""
    a, out = torch.randn(32, 400), torch.empty(400, 32)
    x = axes_of([400, 32])
    made = kernel(x, (), (store(1, at(out, x), load(0, a, (x[1], x[0]))),), params(a, out, out=[1]))
    assert "turn<" not in emit([made], read())


def test_symbolic_sizes() -> None:
    compiled = stator.compile(lambda x: x.transpose(1, 2).contiguous() * 2, dynamic=True)
    for size in ((2, 40, 70), (3, 9, 8), (1, 130, 65)):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), (x.transpose(1, 2) * 2).contiguous(), rtol=0, atol=0)
