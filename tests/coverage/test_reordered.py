"""Eager with sums in another order: it changes nothing that is exact in any, and no more than that leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.coverage.compare import Seen, judged, observe_on
from stator.coverage.reordered import Reordered
from stator.coverage.textbook import NORMS

SEEDS = range(8)
BIG = torch.finfo(torch.float32).max

EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: (x * 0.3 - x / 7 + 2).sqrt(),
    "moves": lambda x: torch.cat([x.flip(0), F.pad(x, (0, 0, 1, 2), value=0.1)])[::2].t().contiguous(),
    "choices": lambda x: torch.where(x > 0.5, x.clamp(0, 1), torch.maximum(x, x.roll(1, 0))),
    "positions": lambda x: (x * 3).sort(0)[1] + x.argmax(),
    "sums of whole numbers": lambda x: torch.cumsum(x.round(), 0) + x.round().sum(0) + x.round() @ x.round().t()[:, :1],
    "windows of whole numbers": lambda x: (
        F.avg_pool2d(x[None].round(), 4) + F.avg_pool2d(x[None].round(), 4, 4, 1)[..., :2]
    ),
    "functions": lambda x: torch.exp(x) + torch.sin(x),
}

ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum": lambda x: x.sum(0),
    "a mean": lambda x: x.mean(0, dtype=torch.float64).float() + x.mean(1, keepdim=True),
    "a complex mean": lambda x: torch.view_as_real(torch.complex(x, x * 3).mean(-1) + torch.complex(x, x / 3).sum(1)),
    "a product": lambda x: x.prod(1),
    "a matrix product": lambda x: x @ x.t(),
    "three factors": lambda x: F.bilinear(x, x[:, :3], x[:27].view(9, 9, 3), x[0]),
    "a product that is added": lambda x: (
        torch.addmm(x[:, :1], x, x.t(), beta=0.5, alpha=-2.0) + torch.mv(x, x[0])[:, None]
    ),
    "a product of batches": lambda x: torch.bmm(x.view(4, 10, 9), x.view(4, 9, 10)) + torch.dot(x[0], x[1]),
    "a running sum": lambda x: x.cumsum(0),
    "averages of windows": lambda x: F.avg_pool2d(x[None], 4, 1),
    "averages of uneven windows": lambda x: F.adaptive_avg_pool2d(x[None], (7, 4)),
    "a variance": lambda x: x.var(0),
    "a deviation": lambda x: x.view(4, 10, 9).std((0, 2), correction=0),
    "a norm": lambda x: x.norm(dim=0),
    "gelu": lambda x: F.gelu(x * -4),
    "gelu by a tangent": lambda x: F.gelu(x * -2, approximate="tanh"),
    "layer norm": lambda x: F.layer_norm(x, (9,), x[0], x[1]),
    "group norm": lambda x: F.group_norm(x.view(4, 9, 10), 3),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 4, 10, 9)] * 3, is_causal=True),
    "batch norm": lambda x: F.batch_norm(x, None, None, x[0], x[1], training=True),
}


def inputs() -> Tensor:
    return torch.rand(40, 9, generator=torch.Generator().manual_seed(0)) + 0.25


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_stays(name: str) -> None:
    function, x = EXACT[name], inputs()
    want = function(x)
    for seed in SEEDS:
        with Reordered(seed):
            found = function(x)
        assert torch.equal(found, want)


@pytest.mark.parametrize("name", ROUNDED)
def test_what_rounds_moves_by_last_digits(name: str) -> None:
    """Values and gradients."""
    function = ROUNDED[name]

    def results() -> tuple[Tensor, Tensor]:
        x = inputs().requires_grad_()
        out = function(x)
        return out.detach(), torch.autograd.grad(out, x, torch.linspace(-1, 1, out.numel()).view(out.shape))[0]

    want, moved = results(), False
    for seed in SEEDS:
        with Reordered(seed):
            found = results()
        moved = moved or not torch.equal(found[0], want[0])
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert moved


@pytest.mark.parametrize("total", [torch.sum, lambda x: torch.trace(torch.diag(x))], ids=["sum", "trace"])
def test_sums_overflow_in_some_orders(total: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([BIG, BIG, -BIG, -BIG, 1.0])
    found = set()
    for seed in SEEDS:
        with Reordered(seed):
            found.add(str(total(x).item()))
    assert {"inf", "nan"} <= found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["mm", "dot", "bmm"])
def test_products_of_both_signs_overflow_apart_in_some_order(name: str, dtype: torch.dtype) -> None:
    """Though what lies first, and most orders, come to the one infinity at once, which takes in all else."""
    left = torch.full((64,), 1.0, dtype=dtype)
    right = torch.full_like(left, torch.finfo(dtype).max)
    right[40:42] *= -1
    shapes = {"mm": ((1, 64), (64, 1)), "bmm": ((1, 1, 64), (1, 64, 1)), "dot": ((64,), (64,))}[name]
    found = set()
    for seed in SEEDS:
        with Reordered(seed):
            found.add(str(getattr(torch, name)(left.view(shapes[0]), right.view(shapes[1])).item()))
    assert {"inf", "nan"} <= found


@pytest.mark.parametrize("function", [torch.sum, torch.mean])
def test_what_cancels_in_the_end_overflows_in_not_every_order(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([BIG, -BIG]).repeat_interleave(32)
    found = set()
    for seed in SEEDS:
        with Reordered(seed):
            found.add(str(function(x).item()))
            assert function(x.abs()).isinf()
    assert {"0.0", "nan"} <= found


def by_blocks(x: Tensor, scan: Callable[[Tensor, int], Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """A scan of 8 as trees do it: neighbours meet first, whatever came before them."""
    parts = [scan(part, 0) for part in x.split(2)]
    halves = [torch.cat([a, join(b, a[-1])]) for a, b in (parts[:2], parts[2:])]
    return torch.cat([halves[0], join(halves[1], halves[0][-1])])


TINY, HUGE = 1e-30, 1e30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "row",
    [
        [TINY, 1.0, 1.0, 1.0, HUGE, HUGE, 1.0, 1.0],  # 1e30, where both great ones meet first
        [HUGE, 1.0, 1.0, 1.0, TINY, TINY, 1.0, 1.0],  # nothing, likewise
        [TINY, 0.0, HUGE, HUGE, 1.0, 1.0, -1.0, 1.0],  # no number, beside a zero
        [TINY, 1.0, HUGE, 1.0, TINY, 1.0, HUGE, 1.0],  # exact in any order
    ],
)
def test_running_products_go_beyond_a_dtype_where_neighbours_do(row: list[float], dtype: torch.dtype) -> None:
    def run(*, noise: float = 0.0, wide: bool = False, within: object = nullcontext) -> Seen:
        x = torch.tensor(row, dtype=dtype)
        x = x.double() if wide else x * (1 + noise * torch.finfo(dtype).eps)
        return observe_on(lambda x: torch.cumprod(x, 0), [x], [], within=within)  # type: ignore[arg-type]

    want = run()
    ours = by_blocks(torch.tensor(row, dtype=dtype).float(), torch.cumprod, torch.mul).to(dtype)
    assert judged(observe_on(lambda x: ours, want.inputs, []), run, want) == []
    wrong = torch.where(torch.arange(8) == 1, torch.inf, want.results[0]).to(
        dtype
    )  # no two of the first are that great
    assert judged(observe_on(lambda x: wrong, want.inputs, []), run, want)


def test_running_sums_overflow_where_neighbours_do() -> None:
    row = torch.tensor([-BIG, 1.0, 1.0, 1.0, BIG, BIG, 0.0, 0.0])
    assert by_blocks(row, torch.cumsum, torch.add)[-1].isinf() and torch.cumsum(row, 0).isfinite().all()
    with Reordered(0):
        assert torch.cumsum(row, 0).isinf().tolist() == [False] * 5 + [True] * 3
    with Reordered(6):
        assert torch.equal(
            torch.cumsum(torch.tensor([BIG, BIG, -BIG, -BIG]), 0), torch.tensor([BIG, torch.inf, BIG, 0])
        )


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans_in_place_have_other_orders_too(name: str, seed: int) -> None:
    """By blocks, which meet what was before: as exact as eager's, and other digits."""
    x = torch.rand(3, 101, generator=torch.Generator().manual_seed(seed)) + 0.5
    exact, eager, found = (getattr(x.clone().double(), name)(1), getattr(x.clone(), name + "_")(1), x.clone())
    with Reordered(seed):
        getattr(found, name + "_")(1)
    assert not torch.equal(found, eager)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rms_norm_by_the_textbook(dtype: torch.dtype) -> None:
    x, weight = inputs().to(dtype), inputs()[0].to(dtype)
    for given in (x, x.view(5, 8, 9)):
        dims = [*range(1, given.dim())]
        shape, scale = list(given.shape[1:]), weight.expand(given.shape[1:])
        want = F.rms_norm(given.double(), shape, scale.double(), 1e-5)
        out = torch.empty_like(given), torch.empty([len(given)] + [1] * len(dims))
        NORMS["fused_rms_norm"](out, given, shape, scale, 1e-5)
        torch.testing.assert_close(out[0], want.to(dtype))
        leaf = given.double().requires_grad_()
        grad = torch.linspace(-1, 1, given.numel()).view(given.shape).to(dtype)
        (slope,) = torch.autograd.grad(F.rms_norm(leaf, shape, scale.double(), 1e-5), leaf, grad.double())
        found = (torch.empty_like(given), None)
        NORMS["fused_rms_norm_backward"](found, grad, given, shape, out[1], scale, (True, False))
        torch.testing.assert_close(found[0], slope.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_by_the_textbook(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    leaf = inputs().to(dtype).requires_grad_()
    exact = leaf.detach().double().requires_grad_()
    grad = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    for dim in (0, 1):
        want = function(exact, dim)
        with Reordered(1):
            found = function(leaf, dim)
            (slope,) = torch.autograd.grad(found, leaf, grad)
        (exact_slope,) = torch.autograd.grad(want, exact, grad.double())
        close = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
        torch.testing.assert_close(found, want.to(dtype), **close)
        torch.testing.assert_close(slope, exact_slope.to(dtype), **close)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("function", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits])
def test_terms_of_losses_have_other_orders(function: Callable[..., Tensor], reduction: str) -> None:
    x, y = inputs(), inputs().flip(0)
    want, found = function(x.double(), y.double(), reduction=reduction), set()
    for seed in SEEDS:
        with Reordered(seed):
            value = function(x, y, reduction=reduction)
        torch.testing.assert_close(value, want.float())
        found.add(value.sum().item())
    assert len(found) > 1 or reduction == "none"


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_terms_of_a_loss_that_weighs_them_have_other_orders(reduction: str, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    weight = torch.linspace(0.5, 2, 9) if weighted else None
    for shape in ((24, 9), (2, 9, 3, 5)):
        logs = torch.randn(shape, generator=generator).log_softmax(1)
        labels = torch.randint(0, 9, (shape[0], *shape[2:]), generator=generator)
        labels.view(-1)[2] = -100
        exact = F.nll_loss(logs.double(), labels, None if weight is None else weight.double(), reduction=reduction)
        for seed in SEEDS:
            with Reordered(seed):
                torch.testing.assert_close(F.nll_loss(logs, labels, weight, reduction=reduction), exact.float())


def test_rows_without_a_number_stay_nothing() -> None:
    x = inputs()
    x[1] = -math.inf
    with Reordered(2):
        found = torch.ops.aten._safe_softmax(x, 1)
    torch.testing.assert_close(found, torch.ops.aten._safe_softmax(x, 1))
    assert found[1].count_nonzero() == 0


def test_the_logarithm_of_nearly_all_may_be_nothing() -> None:
    """Others are less than half a rounding of one each, and more together."""
    row = torch.tensor([0.0, *[-17.0] * 6, *[-30.0] * 7])
    found = set()
    for seed in SEEDS:
        with Reordered(seed):
            found.add(torch.log_softmax(row, 0)[0].item() == 0)
    assert found == {True, False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_that_overflows_alone_may_be_joined_with_the_sum(dtype: torch.dtype) -> None:
    """An infinite sum stays what it is beside a finite product, and is no number beside an infinite one."""
    top = torch.finfo(dtype).max
    x, y = torch.tensor([[1.0, 1.0, 1.0, 1.5]], dtype=dtype), torch.tensor([[top, top, top, -top]], dtype=dtype)
    one = torch.ones(1, 1, dtype=dtype)
    for function in (lambda: x @ y.t(), lambda: F.bilinear(x, one, y.view(1, 4, 1))):
        found = set()
        for seed in SEEDS:
            with Reordered(seed):
                found.add(str(function().item()))
        assert {"inf", "nan"} <= found, function


def test_a_sum_below_the_rounding_of_its_terms_is_nothing_in_one_way() -> None:
    x = torch.sin(torch.arange(1.0, 99.0))
    random = torch.Generator().manual_seed(1)
    rows = torch.stack([torch.cat([x, -x])[torch.randperm(196, generator=random)] for _ in range(20)])
    whole = torch.tensor([2.0**20, 1.0, -(2.0**20)])
    assert rows.sum(1).count_nonzero() > 5
    with Reordered(3):
        assert rows.sum(1).count_nonzero() == 0
        assert whole.sum() == 1 and rows[:, :190].sum(1).count_nonzero() == 20


#: Rows of which one number is so large that its square hides the last digits of the others'.
ROWS = torch.randn(33, 7, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
ROWS[:, 0] = -100


def near_rows(x: Tensor, rows: Tensor = ROWS) -> Tensor:
    """Distances by a product of matrices, where those of a row from itself cancel."""
    given = rows + 0.0 * x[0, 0]
    return torch.cdist(given, given)


def seen(function: Callable[[Tensor], Tensor], within: Callable[[], object] = nullcontext, **_: object) -> Seen:
    x = torch.arange(12).view(3, 4)
    return observe_on(function, [x], [x], within=within)  # type: ignore[arg-type]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_what_one_cancels_with_is_as_exact_as_it_is(approximate: str) -> None:
    """Values and slopes of `gelu` far below 0, where a quotient makes a large number of what is left of them."""
    x = torch.tensor([-4.0, -4.5, -5.0], dtype=torch.float64)
    found = []
    for seed in SEEDS:
        leaf = x.clone().requires_grad_()
        with Reordered(seed):
            out = F.gelu(leaf, approximate=approximate)
            found.append((out.detach(), *torch.autograd.grad(out.reciprocal().sum(), leaf)))
    for values in zip(*found, strict=True):
        stacked = torch.stack(values)
        torch.testing.assert_close(stacked, stacked[:1].expand_as(stacked), rtol=1e-7, atol=0)
        assert bool((stacked.std(0) > 1e-13 * stacked[0].abs()).any())


def layer(x: Tensor) -> Tensor:
    return F.layer_norm(torch.tanh(x / 20), (4,))


@pytest.mark.parametrize(
    ("eager", "ours", "right"),
    [
        (layer, lambda x: layer(x) + 1e-6, True),  # no input moves integers
        (layer, lambda x: layer(x) * 1.001, False),
        (near_rows, lambda x: near_rows(x, ROWS.flip(1)), True),
        (near_rows, lambda x: near_rows(x, ROWS.flip(1)) + 1e-3, False),
        (lambda x: torch.sin(x).argmax(), lambda x: torch.sin(x).argmax() + 1, False),
        (lambda x: (x * 2.0).long(), lambda x: (x * 2.0).long() - 1, False),
        (lambda x: torch.log(x - 5.0), lambda x: torch.log(x - 5.0).nan_to_num(0), False),
        (lambda x: torch.log(x + 5.0), lambda x: torch.log(x - 5.0), False),
    ],
)
def test_differences_are_still_noticed(eager: object, ours: object, right: bool) -> None:
    def run(**how: object) -> Seen:
        return seen(eager, **how)  # type: ignore[arg-type]

    assert (judged(seen(ours), run, run()) == []) is right  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_what_overflows_in_one_order_is_a_complex_number_in_another(dtype: torch.dtype) -> None:
    """Of doubles too: the largest twice, beside an infinity of the other sign, are NaN by lanes, else that infinity."""
    most = torch.finfo(dtype).max
    row = torch.zeros(1, 16, dtype=dtype)
    row[0, 0] = row[0, 8] = complex(most, 1.0)
    row[0, 4] = complex(-torch.inf, 0.0)
    cancelling = row.clone()
    cancelling[0, 4] = complex(-most, 0.0)
    for given, found in ((row, -torch.inf), (cancelling, most)):
        totals, means = [], []
        for seed in SEEDS:
            with Reordered(seed):
                totals.append(given.sum(-1).real.item())
                means.append(given.mean(-1).real.item())
        assert found in totals and (found in means if found < 0 else any(abs(m / most - 1 / 16) < 1e-6 for m in means))
        assert any(not abs(total) < torch.inf for total in totals)


def test_a_product_of_matrices_is_joined_with_what_comes_before_it() -> None:
    """A product that overflows on its own changes no infinity that it is joined with, but does one that comes later."""
    rows = torch.tensor([[1.0, 3e9, 2.0], [2.0, 3e9, 1.0]], dtype=torch.float64)
    columns = torch.tensor([math.inf, -torch.finfo(torch.float64).max, 5.0], dtype=torch.float64)[:, None]
    found = []
    for seed in (4, 7):
        with Reordered(seed):
            found.append(rows @ columns)
    assert bool((found[0] == math.inf).all()) and bool(found[1].isnan().all())


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm"])
def test_a_product_is_halved_before_it_overflows_or_after(name: str) -> None:
    """And is what it was where nothing overflows, also beside what is not looked at."""
    shape = (2, 2) if name == "addmm" else (1, 2, 2)
    below = torch.full(shape if name == "baddbmm" else (2, 2), -math.inf, dtype=torch.float64)
    large = torch.full(shape, torch.finfo(torch.float64).max * 0.6, dtype=torch.float64)
    small, some = torch.eye(2, dtype=torch.float64).expand(shape) * 3, torch.rand(shape, dtype=torch.float64)
    function, found = getattr(torch, name), set()
    for seed in range(24):
        with Reordered(seed):
            found.add(str(function(below, small, large, alpha=0.5)[..., 0, 0].item()))
            unread = function(below * math.nan, some, some, alpha=0.5, beta=0)
        torch.testing.assert_close(unread.squeeze(), function(below, some, some, alpha=0.5, beta=0).squeeze())
    assert found == {"-inf", "nan"}
