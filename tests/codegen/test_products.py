"""Products as loops: rows that are computed together, for all sizes that these divide or do not, and readers."""

from __future__ import annotations

import pytest
import torch

from stator.base.device import Device
from stator.kernel.decisions import decide
from stator.loop.index import Axis
from stator.targets import typical
from stator.targets.cpu.record import read
from tests.codegen.harness import DTYPES, Batch, at, axes_of, e, generic, kernel, load, params, store

#: rows, terms, columns
SIZES = [
    (8, 32, 32),
    (6, 40, 40),
    (9, 16, 7),
    (7, 100, 24),
    (1, 33, 65),
    (32, 8, 1),
    (4, 64, 130),
    (5, 5, 5),
    (2, 300, 18),
]


@pytest.mark.parametrize("target", [read(), generic()], ids=["native", "generic"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_products(dtype: str, target: Device) -> None:
    """Both factors along the rows or the columns of memory; with a bias and an activation."""
    batch = Batch(target)
    torch.manual_seed(0)
    given = DTYPES[dtype]
    for rows, terms, columns in SIZES:
        for turned in (False, True):
            a, bias = torch.randn(rows, terms).to(given), torch.randn(columns).to(given)
            b = torch.randn(columns, terms).to(given) if turned else torch.randn(terms, columns).to(given)
            out = torch.empty(rows, columns, dtype=given)
            x, (r,) = axes_of([rows, columns]), (Axis("r0", terms),)
            factors = [load(0, a, (x[0], r)), load(1, b, (x[1], r) if turned else (r, x[1]))]
            wide = [e.cast(factor, "f32" if dtype == "f16" else dtype) for factor in factors]
            total = e.reduce("sum", e.op("mul", *wide))
            value = e.op(
                "maximum", e.op("add", total, e.cast(load(2, bias, (x[1],)), total.dtype)), e.const(0.0, total.dtype)
            )
            stores = (store(3, at(out, x), e.cast(value, dtype)),)
            made = kernel(x, (r,), stores, params(a, b, bias, out, out=[3]))
            jammed = decide(made, target).jammed
            assert jammed is None or jammed[0].size % jammed[1] == 0
            exact = a.double() @ (b.double().t() if turned else b.double()) + bias.double()
            name = f"{dtype} {rows}x{terms}x{columns} {'turned' if turned else ''}"
            tolerance = 2e-3 if dtype == "f16" else 1e-5
            batch.add(name, made, [a, b, bias, out], {3: exact.relu().to(given)}, rtol=tolerance, atol=tolerance * 10)
    batch.check()


def test_which_rows_are_computed_together() -> None:
    """Those of the factor that is loaded for each of them; as many as divide them, up to four; none of a plain sum."""
    x, (r,) = axes_of([6, 40]), (Axis("r0", 50),)
    a, b, out = torch.empty(6, 50), torch.empty(50, 40), torch.empty(6, 40)
    product = e.op("mul", load(0, a, (x[0], r)), load(1, b, (r, x[1])))
    made = kernel(x, (r,), (store(2, at(out, x), e.reduce("sum", product)),), params(a, b, out, out=[2]))
    plan = decide(made, typical("cpu"))
    assert plan.jammed == (x[0], 3) and plan.unroll * 3 <= 8
    whole = torch.empty(6, 50, 40)
    summed = e.reduce("sum", e.op("mul", load(0, whole, (x[0], r, x[1])), load(1, b, (r, x[1]))))
    made = kernel(x, (r,), (store(2, at(out, x), summed),), params(whole, b, out, out=[2]))
    assert decide(made, typical("cpu")).jammed is None
