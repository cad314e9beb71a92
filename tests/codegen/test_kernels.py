"""Loop shapes of C++ kernels against torch: pointwise, reductions along rows and columns, levels, masks, indices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import stator
from stator.base.errors import BuildError
from stator.codegen.cpp.emit import emit
from stator.kernel.decisions import decide
from stator.loop.expr import Expr
from stator.loop.kernel import Store
from stator.prims.random import philox
from stator.targets.cpu.record import read
from tests.codegen.harness import Batch, Built, Index, at, axes_of, e, generic, kernel, load, params, store

SIZES = (0, 1, 7, 64, 1000)


def f32(value: float) -> Expr:
    return e.const(value, "f32")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(11)


def test_pointwise_sizes_broadcasts_and_strides() -> None:
    batch = Batch()
    for n in SIZES:
        for rows in (1, 3):
            x = axes_of([rows, n])
            a, b, c = torch.randn(rows, n), torch.randn(n), torch.randn(rows, 1)
            d = torch.randn(n, rows).t()
            out = torch.empty(rows, n)
            value = e.op(
                "add", e.op("mul", load(0, a, x), load(1, b, x[1:])), e.op("sub", load(2, c, x), load(3, d, x))
            )
            made = kernel(x, (), (store(4, at(out, x), value),), params(a, b, c, d, out, out=[4]))
            batch.add(f"{rows}x{n}", made, [a, b, c, d, out], {4: a * b + (c - d)}, rtol=0, atol=0)
            turned = torch.empty(n, rows).t()
            made = kernel(x, (), (store(1, at(turned, x), load(0, a, x)),), params(a, turned, out=[1]))
            batch.add(f"transpose {rows}x{n}", made, [a, turned], {1: a}, rtol=0, atol=0)
    a = torch.randn(4, 5, 37, 2)
    x = axes_of([4, 37, 2, 5])
    out = torch.empty(4, 37, 2, 5)
    made = kernel(x, (), (store(1, at(out, x), load(0, a, (x[0], x[3], x[1], x[2]))),), params(a, out, out=[1]))
    batch.add("permute", made, [a, out], {1: a.permute(0, 2, 3, 1)}, rtol=0, atol=0)
    batch.check()


def test_division_of_axes() -> None:
    """Reshapes that stay as `//` and `%` in the index, some of them aligned with vectors."""
    batch = Batch()
    for heads, width in ((4, 32), (3, 5), (6, 16)):
        a = torch.randn(7, heads, 9, width)
        (x,) = axes_of([a.numel()])
        index = x.index
        source = (
            index // (9 * heads * width) * (heads * 9 * width)
            + index // width % heads * (9 * width) + index // (heads * width) % 9 * width + index % width
        )  # fmt: skip
        out = torch.empty(7, 9, heads, width)
        made = kernel((x,), (), (store(1, index, e.load("p0", source, "f32")),), params(a, out, out=[1]))
        batch.add(f"{heads}x{width}", made, [a, out], {1: a.transpose(1, 2).contiguous()}, rtol=0, atol=0)
    batch.check()


REDUCTIONS = {
    "sum": lambda x, d: x.double().sum(d).float(), "prod": lambda x, d: x.double().prod(d).float(),
    "max": torch.amax, "min": torch.amin, "argmax": torch.argmax, "argmin": torch.argmin,
}  # fmt: skip


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions_of_floats(kind: str) -> None:
    batch = Batch()
    for n in (1, 7, 64, 129, 1000):
        for columns in (1, 5, 16, 100, 192):
            a = torch.randn(n, columns) * (0.1 if kind == "prod" else 1) + (1 if kind == "prod" else 0)
            a[:, 0] = a[:, 0].round()  # ties
            if n > 20 and kind != "sum" and kind != "prod":
                a[17, columns // 2] = float("nan")
            for name, source in (("column", a), ("row", a.t().contiguous().t())):
                x, r = axes_of([columns]), axes_of([n], "r")
                value = e.reduce(kind, load(0, source, (r[0], x[0])))
                expected = REDUCTIONS[kind](source, 0)
                out = torch.empty_like(expected)
                made = kernel(x, r, (store(1, x[0].index, value),), params(source, out, out=[1]))
                scale = source.abs().sum(0).max().item() if kind == "sum" else 1.0
                tolerance = {"rtol": 2e-6, "atol": 2e-7 * scale} if kind in ("sum", "prod") else {"rtol": 0, "atol": 0}
                batch.add(f"{kind} {name} {n}x{columns}", made, [source, out], {1: expected}, **tolerance)
    batch.check()


def test_reductions_of_other_dtypes() -> None:
    batch = Batch()
    for dtype, name in ((torch.float64, "f64"), (torch.int64, "i64"), (torch.int32, "i32"), (torch.uint8, "u8")):
        for kind in ("sum", "prod", "max", "min", "argmax", "argmin"):
            for turned in (False, True):
                a = torch.randint(1, 5, (77, 33)).to(dtype)
                a = a.t().contiguous().t() if turned else a
                x, r = axes_of([33]), axes_of([77], "r")
                value = e.reduce(kind, load(0, a, (r[0], x[0])))
                wanted = a.argmax(0) if kind == "argmax" else a.argmin(0) if kind == "argmin" else None
                if wanted is None:
                    function = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}[kind]
                    wanted = function(a, 0).to(dtype)
                out = torch.empty_like(wanted)
                made = kernel(x, r, (store(1, x[0].index, value),), params(a, out, out=[1]))
                batch.add(f"{kind} {name} {turned}", made, [a, out], {1: wanted})
    for turned in (False, True):
        a = torch.rand(50, 37) < 0.9
        a[:, :20] = True
        a[:, 30:] = False
        a = a.t().contiguous().t() if turned else a
        x, r = axes_of([37]), axes_of([50], "r")
        for kind, function in (("any", torch.any), ("all", torch.all)):
            out = torch.empty(37, dtype=torch.bool)
            made = kernel(
                x, r, (store(1, x[0].index, e.reduce(kind, load(0, a, (r[0], x[0])))),), params(a, out, out=[1])
            )
            batch.add(f"{kind} {turned}", made, [a, out], {1: function(a, 0)})
        out = torch.empty(37, dtype=torch.int64)
        count = e.reduce("sum", e.cast(load(0, a, (r[0], x[0])), "i64"))
        made = kernel(x, r, (store(1, x[0].index, count),), params(a, out, out=[1]))
        batch.add(f"count {turned}", made, [a, out], {1: a.sum(0)})
    batch.check()


def test_long_sums_are_as_accurate_as_eager() -> None:
    batch, checks = Batch(), []
    for rows, n, turned in ((1, 1 << 21, False), (40, 30_000, False), (40, 30_000, True)):
        a = torch.rand(n, rows) if turned else torch.rand(rows, n)
        x, r = axes_of([rows]), axes_of([n], "r")
        position = (r[0], x[0]) if turned else (x[0], r[0])
        out = torch.empty(rows)
        made = kernel(x, r, (store(1, x[0].index, e.reduce("sum", load(0, a, position))),), params(a, out, out=[1]))
        batch.add(f"{rows}x{n}", made, [a, out], {}, rtol=0, atol=0)
        exact = a.double().sum(0 if turned else 1)
        checks.append((out, exact, (a.sum(0 if turned else 1) - exact).abs().max()))
    batch.check()
    for out, exact, eager in checks:
        assert (out - exact).abs().max() <= max(2 * eager, 1e-7 * exact.max())


def test_long_sums_of_rows_are_rounded_about_once() -> None:
    """What short sums round off is little beside the result: joining them must not round it again and again."""
    for target in (generic(16), read()):
        batch = Batch(target)
        a, out = torch.rand(400, 8192) + 10, torch.empty(400)
        x, r = axes_of([400]), axes_of([8192], "r")
        made = kernel(x, r, (store(1, x[0].index, e.reduce("sum", load(0, a, (x[0], r[0])))),), params(a, out, out=[1]))
        batch.add(f"sums at {target.vector_bytes} bytes", made, [a, out], {}, rtol=0, atol=0)
        batch.check()
        exact = a.double().sum(1)
        assert (out == exact.float()).double().mean() > 0.9
        assert (out - exact).abs().max() <= 0.6 * 2.0**-7  # in units of the last digit, between 2 ** 16 and 2 ** 17


def test_reductions_over_several_axes() -> None:
    batch = Batch()
    a = torch.randn(6, 5, 40, 9)
    for kept, dropped in (((1,), (0, 2, 3)), ((0, 1), (2, 3)), ((3,), (0, 1, 2)), ((0, 3), (1, 2)), ((), (0, 1, 2, 3))):
        x, r = axes_of([a.shape[k] for k in kept]), axes_of([a.shape[k] for k in dropped], "r")
        axes = dict(zip((*kept, *dropped), (*x, *r), strict=True))
        body = load(0, a, [axes[i] for i in range(4)])
        total, best = (
            torch.empty([a.shape[k] for k in kept]),
            torch.empty([a.shape[k] for k in kept], dtype=torch.int64),
        )
        place = at(total, x)
        stores = (store(1, place, e.reduce("sum", body)), store(2, place, e.reduce("argmax", body)))
        expected = a.permute(*kept, *dropped).flatten(len(kept))
        made = kernel(x, r, stores, params(a, total, best, out=[1, 2]))
        batch.add(
            f"{kept}", made, [a, total, best], {1: expected.sum(-1), 2: expected.argmax(-1)}, rtol=1e-5, atol=1e-4
        )
    batch.check()


def softmax(x: Expr) -> Expr:
    raised = e.op("exp", e.op("sub", x, e.reduce("max", x)))
    return e.op("div", raised, e.reduce("sum", raised))


def normalised(x: Expr, n: int, weight: Expr, bias: Expr) -> tuple[Expr, Expr, Expr]:
    """Layer norm; also the mean and the reciprocal deviation."""
    mean = e.op("div", e.reduce("sum", x), f32(n))
    centred = e.op("sub", x, mean)
    scale = e.op("rsqrt", e.op("add", e.op("div", e.reduce("sum", e.op("mul", centred, centred)), f32(n)), f32(1e-5)))
    return e.op("add", e.op("mul", e.op("mul", centred, scale), weight), bias), mean, scale


def test_softmax_and_layer_norm() -> None:
    batch = Batch()
    for n in (1, 7, 64, 100, 768):
        for rows in (1, 12):
            a, residual, w, b = torch.randn(rows, n), torch.randn(rows, n), torch.randn(n), torch.randn(n)
            x, r = axes_of([rows]), axes_of([n], "r")
            here = (x[0], r[0])
            out = torch.empty(rows, n)
            made = kernel(x, r, (store(1, at(out, here), softmax(load(0, a, here)), "inner"),), params(a, out, out=[1]))
            batch.add(f"softmax {rows}x{n}", made, [a, out], {1: a.softmax(-1)}, rtol=1e-5, atol=1e-6)
            joined, mean, scale = torch.empty(rows, n), torch.empty(rows), torch.empty(rows)
            out = torch.empty(rows, n)
            total = e.op("add", load(0, a, here), load(1, residual, here))
            value, average, deviation = normalised(total, n, load(2, w, r), load(3, b, r))
            stores = (
                store(4, at(out, here), total, "inner"), store(5, at(out, here), value, "inner"),
                store(6, x[0].index, average), store(7, x[0].index, deviation),
            )  # fmt: skip
            made = kernel(x, r, stores, params(a, residual, w, b, joined, out, mean, scale, out=[4, 5, 6, 7]))
            s = a + residual
            expected = {
                4: s, 5: functional.layer_norm(s, (n,), w, b), 6: s.mean(-1),
                7: torch.rsqrt(s.var(-1, correction=0) + 1e-5),
            }  # fmt: skip
            batch.add(
                f"layer norm {rows}x{n}",
                made,
                [a, residual, w, b, joined, out, mean, scale],
                expected,
                rtol=1e-5,
                atol=2e-5,
            )
            # the same along columns
            out = torch.empty(n, rows)
            source = a.t().contiguous()
            turned = (r[0], x[0])
            made = kernel(
                x,
                r,
                (store(1, at(out, turned), softmax(load(0, source, turned)), "inner"),),
                params(source, out, out=[1]),
            )
            batch.add(f"column softmax {rows}x{n}", made, [source, out], {1: source.softmax(0)}, rtol=1e-5, atol=1e-6)
    batch.check()


def test_images_are_read_along_their_rows_however_much_is_read_per_channel() -> None:
    batch = Batch()
    for shape in ((2, 32, 80), (3, 20, 49)):
        n, channels, pixels = shape
        a, out = torch.randn(shape), torch.empty(shape)
        weight, bias = torch.randn(channels), torch.randn(channels)
        mean, scale = torch.empty(channels), torch.empty(channels)
        (c,), (i, p) = axes_of([channels]), axes_of([n, pixels], "r")
        value, average, deviation = normalised(
            load(0, a, (i, c, p)), n * pixels, load(1, weight, [c]), load(2, bias, [c])
        )
        stores = (
            store(3, at(out, (i, c, p)), value, "inner"),
            store(4, c.index, average), store(5, c.index, deviation),
        )  # fmt: skip
        made = kernel((c,), (i, p), stores, params(a, weight, bias, out, mean, scale, out=[3, 4, 5]))
        assert decide(made, read()).vector is p
        expected = {
            3: functional.batch_norm(a, None, None, weight, bias, training=True),
            4: a.mean((0, 2)), 5: torch.rsqrt(a.var((0, 2), correction=0) + 1e-5),
        }  # fmt: skip
        tensors = [a, weight, bias, out, mean, scale]
        batch.add(f"batch norm {shape}", made, tensors, expected, rtol=1e-5, atol=2e-5)
        applied = torch.empty(shape)
        x = axes_of(shape)
        parts = [load(number, t, x[1:2]) for number, t in ((1, mean), (2, scale), (3, weight), (4, bias))]
        centred = e.op("mul", e.op("sub", load(0, a, x), parts[0]), parts[1])
        value = e.op("add", e.op("mul", centred, parts[2]), parts[3])
        made = kernel(x, (), (store(5, at(applied, x), value),), params(a, mean, scale, weight, bias, applied, out=[5]))
        assert decide(made, read()).vector is x[2]
        wanted = {5: expected[3]}
        batch.add(f"apply {shape}", made, [a, mean, scale, weight, bias, applied], wanted, rtol=1e-5, atol=2e-5)
    batch.check()


def test_what_all_columns_share_does_not_turn_the_loop_to_gathers() -> None:
    """Sums over the middle dim: one operand is contiguous in it, the other one in the columns."""
    batch = Batch()
    rows, middle, columns = 6, 37, 32
    a, b, out = torch.randn(rows, middle), torch.randn(middle, columns), torch.empty(rows, columns)
    x, (r,) = axes_of([rows, columns]), axes_of([middle], "r")
    far = e.op("abs", e.op("sub", load(0, a, (x[0], r)), load(1, b, (r, x[1]))))
    total = e.reduce("sum", far)
    made = kernel(x, (r,), (store(2, at(out, x), total),), params(a, b, out, out=[2]))
    assert decide(made, read()).vector is x[1]
    wanted = {2: (a[:, :, None] - b).abs().sum(1)}
    batch.add("distances", made, [a, b, out], wanted, rtol=1e-5, atol=1e-5)
    batch.check()


def test_halves_round_where_the_casts_are() -> None:
    batch = Batch()
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        a, b = torch.randn(5, 77).to(dtype), torch.randn(77).to(dtype)
        x = axes_of([5, 77])
        total = e.cast(e.op("add", e.cast(load(0, a, x), "f32"), e.cast(load(1, b, x[1:]), "f32")), name)
        value = e.cast(e.op("mul", e.cast(total, "f32"), e.cast(total, "f32")), name)
        out = torch.empty(5, 77, dtype=dtype)
        made = kernel(x, (), (store(2, at(out, x), value),), params(a, b, out, out=[2]))
        batch.add(name, made, [a, b, out], {2: (a + b) * (a + b)}, rtol=0, atol=0)
    batch.check()


def test_masked_loads_stay_inside() -> None:
    """Padding: positions outside of the source are masked; the source ends at unmapped or foreign memory."""
    batch = Batch()
    for n in (5, 64, 100):
        a = torch.randn(3, n)
        x = axes_of([3, n + 9])
        moved = x[1].index - 4
        inside = e.op(
            "and", e.op("ge", e.index(moved), e.const(0, "i64")), e.op("lt", e.index(moved), e.const(n, "i64"))
        )
        body = e.op("exp", e.load("p0", x[0].index * n + moved, "f32"))
        out = torch.empty(3, n + 9)
        made = kernel(x, (), (store(1, at(out, x), e.masked(inside, body, f32(-1.0))),), params(a, out, out=[1]))
        batch.add(f"pad {n}", made, [a, out], {1: functional.pad(a.exp(), (4, 5), value=-1.0)}, rtol=1e-6, atol=0)
    a = torch.randn(40)
    x = axes_of([8, 30])
    row = e.op("lt", e.index(x[0]), e.const(4, "i64"))
    far = x[0].index * 10 + x[1].index * 0 + 0
    nested = e.masked(
        row,
        e.masked(e.op("lt", e.index(x[1]), e.const(10, "i64")), e.load("p0", far + x[1], "f32"), f32(2.0)),
        f32(3.0),
    )
    out = torch.empty(8, 30)
    expected = torch.full((8, 30), 3.0)
    expected[:4] = 2.0
    expected[:4, :10] = a.view(4, 10)
    made = kernel(x, (), (store(1, at(out, x), nested),), params(a, out, out=[1]))
    batch.add("nested", made, [a, out], {1: expected}, rtol=0, atol=0)
    batch.check()


def test_triangle_and_positions() -> None:
    batch = Batch()
    x = axes_of([50, 70])
    lower = e.op("ge", e.index(x[0]), e.index(x[1]))
    a = torch.randn(50, 70)
    out, places = torch.empty(50, 70), torch.empty(50, 70, dtype=torch.int64)
    scaled = e.op("mul", e.cast(e.index(x[1].index * 3 + x[0]), "f32"), f32(0.5))
    stores = (
        store(1, at(out, x), e.op("where", lower, load(0, a, x), scaled)),
        store(2, at(out, x), e.index(x[1].index * 2 + x[0])),
    )
    made = kernel(x, (), stores, params(a, out, places, out=[1, 2]))
    i, j = torch.arange(50)[:, None], torch.arange(70)[None]
    expected = {1: torch.where(i >= j, a, (j * 3 + i).float() * 0.5), 2: j * 2 + i}
    batch.add("triangle", made, [a, out, places], expected, rtol=0, atol=0)
    batch.check()


def test_gathers_and_scatters() -> None:
    batch = Batch()
    for dtype, name in ((torch.int64, "i64"), (torch.int32, "i32")):
        table, ids = torch.randn(50, 48), torch.randint(0, 50, (30,), dtype=dtype)
        x = axes_of([30, 48])
        row = e.to_index(load(1, ids, x[:1]), 50)
        out = torch.empty(30, 48)
        made = kernel(
            x, (), (store(2, at(out, x), e.load("p0", row * 48 + x[1], "f32")),), params(table, ids, out, out=[2])
        )
        batch.add(f"rows by {name}", made, [table, ids, out], {2: table[ids]}, rtol=0, atol=0)
        column = torch.randint(0, 48, (30, 20), dtype=dtype)
        y = axes_of([30, 20])
        picked = e.load("p0", y[0].index * 48 + e.to_index(load(1, column, y), 48), "f32")
        out = torch.empty(30, 20)
        made = kernel(y, (), (store(2, at(out, y), picked),), params(table, column, out, out=[2]))
        batch.add(
            f"elements by {name}", made, [table, column, out], {2: table[:30].gather(1, column.long())}, rtol=0, atol=0
        )
        total, source = torch.randn(50, 48), torch.randn(30, 48)
        expected = total.index_add(0, ids, source)
        made = kernel(
            x, (), (store(2, row * 48 + x[1], load(0, source, x), mode="add"),), params(source, ids, total, out=[2])
        )
        batch.add(f"add rows by {name}", made, [source, ids, total], {2: expected}, rtol=1e-6, atol=1e-6)
        flat, source = torch.zeros(48), torch.randn(30, 20)
        expected = flat.index_add(0, column.flatten(), source.flatten())
        place = e.to_index(load(1, column, y), 48)
        made = kernel(y, (), (store(2, place, load(0, source, y), mode="add"),), params(source, column, flat, out=[2]))
        batch.add(f"add elements by {name}", made, [source, column, flat], {2: expected}, rtol=1e-5, atol=1e-5)
    big, ids = torch.zeros(100, 1024), torch.randint(0, 100, (4000,))
    source = torch.randn(4000, 1024)
    x = axes_of([4000, 1024])
    row = e.to_index(load(1, ids, x[:1]), 100)
    expected = big.index_add(0, ids, source)
    made = kernel(
        x, (), (store(2, row * 1024 + x[1], load(0, source, x), mode="add"),), params(source, ids, big, out=[2])
    )
    batch.add("many threads", made, [source, ids, big], {2: expected}, rtol=1e-5, atol=1e-4)
    batch.check()


def test_random_is_the_reference_stream() -> None:
    batch = Batch()
    seed = torch.tensor([-(1 << 62) + 12345])
    for size, offset in ((1000, 0), (37, 2**32 - 10), (1, 5)):
        (x,) = axes_of([size])
        w0, w1 = philox(seed.reshape(()), torch.arange(offset, offset + size))
        uniform = (w0 >> 8).float() * 2.0**-24
        normal = torch.sqrt(-2 * torch.log(((w0 >> 8) + 1).float() * 2.0**-24)) * torch.cos(
            (w1 >> 8).float() * 2.0**-24 * 6.2831855
        )
        outs = [torch.empty(size), torch.empty(size)]
        counter = e.index(x.index + offset)
        stores = tuple(
            store(i + 1, x.index, e.random(kind, e.load("p0", 0, "i64"), counter))
            for i, kind in enumerate(("uniform", "normal"))
        )
        made = kernel((x,), (), stores, params(seed, *outs, out=[1, 2]))
        batch.add(f"{size} from {offset}", made, [seed, *outs], {1: uniform, 2: normal}, rtol=2e-6, atol=1e-6)
    batch.check()


def test_results_do_not_depend_on_threads() -> None:
    a = torch.randn(512, 3000)
    x, r = axes_of([512]), axes_of([3000], "r")
    here = (x[0], r[0])
    outs = [torch.empty(512, 3000), torch.empty(512, 3000)]
    built = Built([kernel(x, r, (store(1, at(a, here), softmax(load(0, a, here)), "inner"),), params(a, a, out=[1]))])
    before = torch.get_num_threads()
    for threads, out in zip((1, 4), outs, strict=True):
        torch.set_num_threads(threads)
        built.run(0, a, out)
    torch.set_num_threads(before)
    assert torch.equal(*outs)


def test_other_vector_widths_agree() -> None:
    for width in (16, 32):
        batch = Batch(generic(width))
        a = torch.randn(9, 133)
        x, r = axes_of([9]), axes_of([133], "r")
        here = (x[0], r[0])
        out = torch.empty(9, 133)
        made = kernel(x, r, (store(1, at(out, here), softmax(load(0, a, here)), "inner"),), params(a, out, out=[1]))
        batch.add(f"softmax at {width} bytes", made, [a, out], {1: a.softmax(-1)}, rtol=1e-5, atol=1e-6)
        total = torch.empty(133)
        y, q = axes_of([133]), axes_of([9], "r")
        made = kernel(
            y, q, (store(1, y[0].index, e.reduce("sum", load(0, a, (q[0], y[0])))),), params(a, total, out=[1])
        )
        batch.add(f"column sum at {width} bytes", made, [a, total], {1: a.sum(0)}, rtol=1e-5, atol=1e-5)
        batch.check()


def test_in_place() -> None:
    a, b = torch.randn(300), torch.randn(300)
    (x,) = axes_of([300])
    value = e.op("add", e.load("p0", x.index, "f32"), load(1, b, (x,)))
    built = Built([kernel((x,), (), (Store("p0", Index.of(x), value, "outer"),), params(a, b, out=[0]))])
    expected = a + b
    built.run(0, a, b)
    assert torch.equal(a, expected)


def test_shared_subexpressions_are_written_once() -> None:
    a = torch.randn(8, 64)
    x = axes_of([8, 64])
    shared = e.op("exp", load(0, a, x))
    made = kernel(x, (), (store(1, at(a, x), e.op("add", e.op("mul", shared, shared), shared)),), params(a, a, out=[1]))
    text = emit([made], read())
    assert text[text.index("k0_range") :].count("exp_(") == 1


@pytest.mark.parametrize(("length", "times"), [(64, 1), (77, 1), (5000, 2)])
def test_what_is_costly_is_kept_from_one_loop_over_a_short_row_to_the_next(length: int, times: int) -> None:
    a = torch.randn(6, length)
    x, r = axes_of([6, length])
    raised = e.op("exp", load(0, a, (x, r)))
    scaled = e.op("mul", raised, e.op("reciprocal", e.reduce("sum", raised)))
    made = kernel((x,), (r,), (store(1, at(a, (x, r)), scaled, "inner"),), params(a, a, out=[1]))
    text = emit([made], read())
    assert text[text.index("k0_range") :].count("exp_(") == times
    batch = Batch()
    batch.add(f"softmax of {length}", made, [a, torch.empty_like(a)], {1: a.softmax(-1)}, rtol=1e-5, atol=1e-6)
    batch.check()


def test_rows_at_positions_that_a_block_of_lanes_shares() -> None:
    """Where axes are merged, a loaded position differs along the vector axis, though not within a block of lanes."""
    batch = Batch()
    ids = torch.tensor([14, 8, 3])
    for width in (3, 8, 16, 48):
        a = torch.randn(16, width)
        (x,) = axes_of([9 * width * width])
        first = e.to_index(e.load("p1", x.index // (3 * width * width), "i64"), 16)
        second = e.to_index(e.load("p1", x.index // width % 3, "i64"), 16)
        left = e.load("p0", first * width + x.index // (3 * width) % width, "f32")
        value = e.op("mul", left, e.load("p0", second * width + x.index % width, "f32"))
        rows = torch.flatten(a[ids])
        out = torch.empty(3 * width, 3 * width)
        made = kernel((x,), (), (store(2, x.index, value),), params(a, ids, out, out=[2]))
        batch.add(f"outer {width}", made, [a, ids, out], {2: torch.outer(rows, rows)}, rtol=0, atol=0)
    batch.check()


def test_a_kernel_takes_no_more_threads_than_the_target_has() -> None:
    a = torch.randn(1024, 1024)
    x = axes_of([1024, 1024])
    made = kernel(x, (), (store(1, at(a, x), e.op("exp", load(0, a, x))),), params(a, a, out=[1]))
    assert decide(made, read()).threads > 4
    assert [decide(made, read(threads=n)).threads for n in (1, 3)] == [1, 3]


def test_a_refused_source_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from stator.runtime import Cpp

    with pytest.raises(BuildError, match=r"cpp-.*\.cpp"):
        Cpp().build("this is not C++", ("-shared",))


def test_columns_of_what_is_joined() -> None:
    """Which part a vector of columns lies in is a number that moves from vector to vector and is used in the loop."""
    x, r = axes_of([192]), axes_of([10], "r")
    parts, out = [torch.randn(10, 64) for _ in range(3)], torch.empty(192)
    which, total = e.index(x[0].index // 64), f32(0.0)
    for i, part in enumerate(parts):
        loaded = load(i, part, (r[0], x[0].index % 64))
        total = e.op("add", total, e.op("where", e.op("eq", which, e.const(i, "i64")), loaded, f32(0.0)))
    made = kernel(x, r, (store(3, at(out, x), e.reduce("sum", total)),), params(*parts, out, out=[3]))
    batch = Batch()
    batch.add("joined", made, [*parts, out], {3: torch.cat(parts, 1).sum(0)})
    batch.check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.float32, torch.float64])
def test_positions_that_fill_several_registers(dtype: torch.dtype) -> None:
    """A vector of int64 as long as one of a narrow dtype is wider than a register, and is used more than twice."""

    def distances(x: Tensor, at: Tensor) -> Tensor:
        taken = x[at, 0].t().float()
        joined = torch.block_diag(taken, taken + 1)
        return torch.cdist(joined, joined + 1)

    x, at = (torch.randn(3, 17, 17) * 3).to(dtype), torch.tensor([2, 1])
    torch.testing.assert_close(stator.compile(distances)(x, at), distances(x, at))
