"""Products as loops: in every layout, with odd sizes, batches and half types, and how their loops are laid out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stator.base.device import Device
from stator.kernel.decisions import decide
from stator.kernel.product import Block, length
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.targets import typical
from stator.targets.cpu.record import read
from tests.codegen.harness import DTYPES, Batch, at, axes_of, e, generic, kernel, load, params, store

#: batches, rows, terms, columns
SIZES = [
    (1, 8, 32, 32),
    (1, 6, 40, 40),
    (1, 9, 16, 7),
    (1, 7, 100, 24),
    (1, 1, 33, 65),
    (1, 32, 8, 1),
    (1, 4, 64, 130),
    (1, 5, 5, 5),
    (1, 2, 300, 18),
    (1, 13, 301, 36),  # rows left over, and terms
    (1, 300, 40, 96),  # rows in strips
    (1, 131, 24, 200),  # columns in pieces
    (6, 7, 32, 9),
    (5, 49, 17, 33),
    (3, 4, 270, 6),
]


def product(
    sizes: tuple[int, int, int, int], turned: tuple[bool, bool], dtype: str
) -> tuple[Kernel, list[Tensor], Tensor]:
    """A product with a bias and an activation, what it takes and where it writes, and what it should write.

    Rows of the first factor or columns of the second lie apart in memory where it is turned.
    """
    batches, rows, terms, columns = sizes
    given = DTYPES[dtype]
    a = torch.randn(batches, terms, rows).mT if turned[0] else torch.randn(batches, rows, terms)
    b = torch.randn(batches, columns, terms).mT if turned[1] else torch.randn(batches, terms, columns)
    a, b, bias = a.to(given), b.to(given), torch.randn(columns).to(given)
    out = torch.empty(batches, rows, columns, dtype=given)
    x, (r,) = axes_of([batches, rows, columns]), (Axis("r0", terms),)
    factors = [load(0, a, (x[0], x[1], r)), load(1, b, (x[0], r, x[2]))]
    total = e.reduce("sum", e.op("mul", *[e.cast(factor, "f32" if dtype == "f16" else dtype) for factor in factors]))
    biased = e.op("add", total, e.cast(load(2, bias, (x[2],)), total.dtype))
    value = e.op("maximum", biased, e.const(0.0, total.dtype))
    made = kernel(x, (r,), (store(3, at(out, x), e.cast(value, dtype)),), params(a, b, bias, out, out=[3]))
    return made, [a, b, bias, out], (a.double() @ b.double() + bias.double()).relu().to(given)


NARROW = replace(read(), vector_bytes=min(read().vector_bytes, 32), registers=16)


@pytest.mark.parametrize("target", [read(), NARROW, generic()], ids=["native", "narrow", "generic"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_products(dtype: str, target: Device) -> None:
    """Both factors along the rows or the columns of memory; with a bias and an activation."""
    batch = Batch(target)
    torch.manual_seed(0)
    tolerance = 2e-3 if dtype == "f16" else 1e-5
    for sizes in SIZES:
        for turned in ((False, False), (False, True), (True, False)):
            made, tensors, exact = product(sizes, turned, dtype)
            name = f"{dtype} {'x'.join(map(str, sizes))} {turned}"
            batch.add(name, made, tensors, {3: exact}, rtol=tolerance, atol=tolerance * 10)
    batch.check()


def block(sizes: tuple[int, int, int, int], turned: bool) -> Block:
    found = decide(product(sizes, (False, turned), "f32")[0], typical("cpu")).block
    assert found is not None
    return found


def test_what_is_computed_together_fills_the_registers() -> None:
    """Rows and vectors of columns; rows and columns where lanes lie along many terms."""
    wide, skinny = block((1, 96, 64, 192), False), block((1, 8, 768, 3072), True)
    ((_, rows),) = wide.jammed
    assert rows * wide.unroll >= 20 and wide.tile is None
    (_, rows), (_, columns) = skinny.jammed
    assert rows * columns >= 16 and skinny.swept.name == "r0" and skinny.tile is None
    assert skinny.inner is not None and skinny.inner.size == 8  # all rows for some columns, which are read once


def test_a_factor_is_turned_over_where_terms_are_few_and_rows_pay_for_it() -> None:
    window, tall = block((192, 49, 32, 49), True), block((1, 3136, 96, 96), True)
    for found in (window, tall):
        assert found.tile is not None and 0 <= found.tile.width - length(found.swept) < 16
    assert window.strips == 1 and tall.strips == 4  # four cores
    assert block((1, 8, 768, 3072), True).tile is None


def test_sums_that_are_no_product() -> None:
    """One that is loaded whole has nothing to share."""
    x, (r,) = axes_of([6, 40]), (Axis("r0", 50),)
    whole, b, out = torch.empty(6, 50, 40), torch.empty(50, 40), torch.empty(6, 40)
    summed = e.reduce("sum", e.op("mul", load(0, whole, (x[0], r, x[1])), load(1, b, (r, x[1]))))
    made = kernel(x, (r,), (store(2, at(out, x), summed),), params(whole, b, out, out=[2]))
    plan = decide(made, typical("cpu"))
    assert plan.block is None and plan.jammed == ()
