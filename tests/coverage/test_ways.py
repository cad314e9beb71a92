"""What the tolerance of comparisons is measured by: eager, rounded at random or with other instructions."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

from stator.coverage.compare import Seen, judged, observe_on
from stator.coverage.reordered import Reordered
from stator.coverage.stepwise import Stepwise
from stator.coverage.tied import Tied
from stator.coverage.ways import (
    FORWARD_WAYS,
    WAYS,
    Around,
    Elsewhere,
    Plain,
    RandomRounding,
    SignedNaN,
    Together,
    moved_like,
)
from tests.differential.observe import observe
from tests.differential.programs import generate

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def run(function: object, *inputs: torch.Tensor, **how: object) -> Seen:
    leaves = [x.clone().requires_grad_(x.is_floating_point() or x.is_complex()) for x in inputs]
    return observe_on(function, leaves, leaves, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_rounded_moves_by_a_rounding_error(dtype: torch.dtype) -> None:
    x = torch.rand(100, generator=torch.Generator().manual_seed(1)).to(dtype) + 0.5
    with RandomRounding(0):
        moved = x.sin()
    off = (moved.double() - x.sin().double()).abs()
    assert 0 < off.max() <= 8 * torch.finfo(dtype).eps
    assert (off > 0).double().mean() > 0.3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_exact_stays(dtype: torch.dtype) -> None:
    x = (torch.rand(8, 9, generator=torch.Generator().manual_seed(2)) - 0.5).to(dtype)
    whole = torch.arange(9).to(dtype)
    for function in (
        lambda: x.amax(1), lambda: x.sort(1)[0], lambda: -x.abs(), lambda: x * 2, lambda: whole + whole,
        lambda: torch.where(x > 0, x, 0), lambda: x.to(torch.bfloat16), lambda: x[:, ::2].clone(), lambda: whole / 2,
    ):  # fmt: skip
        want = function()
        with RandomRounding(0):
            assert torch.equal(function(), want)


def test_doubles_that_are_short_by_chance_move() -> None:
    """A function's value is exact at few places; beside them what is as short is rounded."""
    x = torch.tensor([1e-40, 1e-13, 0.0, 1.0, -0.0, torch.inf], dtype=torch.float64)
    for function, rounded in (
        (torch.special.erfcx, [True, False, False, False, False, False]),
        (torch.tanh, [True, True, False, True, False, False]),
        (torch.exp, [True, True, False, True, False, False]),
        (lambda x: x.expm1() * 1, [True, True, False, True, False, False]),
    ):
        moved = torch.zeros(x.shape, dtype=torch.bool)
        want = function(x)
        for seed in range(30):
            with RandomRounding(seed):
                found = function(x)
            moved |= found != want
            torch.testing.assert_close(found, want, rtol=1e-15, atol=0)
        assert (moved | ~torch.tensor(rounded)).all(), moved
        assert not moved[(x == 0) | x.isinf()].any(), moved


def test_sums_that_come_to_a_short_number_move() -> None:
    """Probabilities add up to 1, by chance of their roundings; halves do exactly."""
    x = torch.randn(60, 7, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    halves = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    last = torch.cumsum(torch.softmax(x, -1), -1)[:, -1]
    moved, stays = set(), set()
    for seed in range(4):
        with RandomRounding(seed):
            now = torch.cumsum(torch.softmax(x, -1), -1)[:, -1]
            stays.update([*torch.cumsum(halves, 0).tolist(), float(halves.sum())])
        moved.update((last == 1).logical_and(now != 1).nonzero().flatten().tolist())
    assert len(moved) > 10 and stays == {0.25, 0.75, 1.0}


def test_long_sums_are_off_by_more() -> None:
    x = torch.rand(50, 900, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for function in (lambda x: x.sum(1), lambda x: x.cumsum(1)[:, -1], lambda x: x @ torch.ones(900, 1).double()):
        with RandomRounding(0):
            moved = function(x)
        off = ((moved - function(x)) / function(x)).std() / torch.finfo(torch.float64).eps
        assert 8 < off < 30  # a half times the root of 900


def test_in_place_results_move_too() -> None:
    x = torch.rand(50, generator=torch.Generator().manual_seed(4))
    y = x.clone()
    with RandomRounding(0):
        y.mul_(0.7)
    assert 0 < (y - x * 0.7).abs().max() < 1e-6


@pytest.mark.parametrize("function", [F.hardshrink, F.softshrink, F.selu, F.hardtanh])
def test_elementwise_operators_are_computed_in_both_ways(function: object) -> None:
    x = torch.tensor([torch.nan, 1.0])
    given = [run(function, x, within=lambda v=v: Elsewhere(vectors=v)).gradients[0] for v in (True, False)]
    alone = run(function, x, within=Plain).gradients[0]
    many = run(function, x.repeat_interleave(64)).gradients[0]
    assert alone is not None and many is not None and given[0] is not None and given[1] is not None
    assert not torch.equal(given[0], given[1])
    torch.testing.assert_close(given[1].isnan(), alone.isnan())
    torch.testing.assert_close(given[0].isnan(), many[::64].isnan())


def test_each_elementwise_operator_may_be_computed_in_either_way() -> None:
    """`hardswish` of NaN has a slope from scalars only, `hardtanh` none from vectors only: their sum, in one mix."""

    def both(x: torch.Tensor) -> torch.Tensor:
        return F.hardswish(x) + F.hardtanh(x) * torch.nan

    x = torch.tensor([torch.nan, 1.0])
    ways = [Elsewhere(vectors=True), Elsewhere(vectors=False), *[Elsewhere(seed=seed) for seed in range(6)]]
    slopes = [run(both, x, within=lambda way=way: way).gradients[0][0] for way in ways]
    assert slopes[0].isnan() and slopes[1].isnan() and not all(slope.isnan() for slope in slopes)


def judge(ours: object, eager: object, *inputs: torch.Tensor) -> list[str]:
    return judged(
        run(ours, *inputs), lambda noise=0.0, wide=False, **how: run(eager, *inputs, **how), run(eager, *inputs)
    )


def test_terms_that_cancel_are_no_fault() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(3)) + 0.5
    assert (
        judge(lambda x: (x.sin() * 3 - x.sin()) - 2 * x.sin(), lambda x: x.sin() * 3 - (x.sin() + 2 * x.sin()), x) == []
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: (x.sin() * 3).floor() + 1,
        lambda x: x.sin() * 1.0001,
        lambda x: torch.where(x == 0, torch.nan, x.sin()),
        lambda x: x.sin().detach() + 0 * x,
    ],
)
def test_faults_are_no_rounding(wrong: object) -> None:
    x = torch.cat([torch.rand(100, generator=torch.Generator().manual_seed(3)) + 0.5, torch.zeros(1)])
    assert judge(wrong, lambda x: x.sin(), x)


def test_a_formula_that_differs_under_a_mode_is_no_excuse() -> None:
    """Autograd divides the product where no factor is 0, unless a mode watches: that is not eager's own error."""
    x = torch.tensor([torch.inf, 2.0, 3.0])

    def ours(x: torch.Tensor) -> torch.Tensor:
        return x[0] * x[1] * x[2]

    assert judge(ours, lambda x: x.prod(), x)


def test_backward_has_its_own_formula_where_only_forward_has_another_way() -> None:
    """A product overflows by the order of its factors, and its slope is a quotient, unless a mode watches backward."""
    x = torch.tensor([250.0, 0.004], dtype=torch.float16).repeat_interleave(100)
    ours = lambda x: x.float().prod().half()  # noqa: E731
    assert x.prod() != ours(x) and judge(ours, lambda x: x.prod(), x) == []
    assert judge(lambda x: ours(x) * 3, lambda x: x.prod(), x[98:102])


def test_what_was_overwritten_unnoticed_is_no_measure() -> None:
    def spoilt(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        product = torch.kron(y, y)
        y.abs_()
        return product

    x = torch.tensor([-1.0, 2.0])
    assert judge(lambda x: torch.kron(x * 1, x * 1), spoilt, x) == []
    assert judge(lambda x: torch.kron(x * 1, x.detach()), lambda x: torch.kron(x * 1, x * 1), x)


def test_a_written_input_is_a_result() -> None:
    x, w = torch.ones(3), torch.ones(3)
    leaf = w.clone().requires_grad_()
    seen = observe_on(lambda x, w: x.mul_(w).sin(), [x, leaf], [x, leaf])
    assert x.requires_grad and len(seen.gradients) == 1


@pytest.mark.parametrize(
    "way",
    [
        *(lambda: RandomRounding(0), lambda: Elsewhere(vectors=True), lambda: Elsewhere(vectors=False)),
        *(Stepwise, lambda: SignedNaN(negative=True), Plain, lambda: Reordered(0), lambda: Tied(0)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeros_without_memory_are_not_read(dtype: torch.dtype, way: object) -> None:
    """The slope of `sgn` is such zeros; kernels called below a mode read at no address."""
    for function in (
        lambda x: torch.sgn(x).cumprod(0),
        lambda x: torch.sgn(x[1:].t() / 3) + x.sum(),
        lambda x: torch.sgn(torch.trapezoid(x, dim=0)) + x.sum(),
    ):
        found = run(function, torch.rand(17, 17, dtype=dtype) + 1, within=way)
        want = run(function, torch.rand(17, 17, dtype=dtype) + 1)
        assert found.backward_failed is None
        torch.testing.assert_close(found.gradients, want.gradients)


def test_the_sign_of_a_nan_that_is_computed_is_open() -> None:
    x = torch.tensor([0.0, 1.0, 2.0])
    negative = lambda x: torch.signbit(x * 0 / x)  # noqa: E731
    assert judge(lambda x: negative(x).logical_xor(x == 0), negative, x) == []
    assert judge(lambda x: x + 1, lambda x: torch.copysign(x + 1, -(x * 0 / x)), x)


@pytest.mark.parametrize("read", [torch.signbit, lambda x: torch.copysign(torch.ones(3), x)])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_sign_of_a_nan_that_is_moved_is_not(read: object, dtype: torch.dtype) -> None:
    x = torch.tensor([torch.nan, 1.0, -2.0], dtype=dtype)
    for function in (lambda x: x, lambda x: x.clone().flip(0), torch.neg, torch.abs, lambda x: torch.stack([x, -x])[1]):
        want = read(function(x))  # type: ignore[operator]
        for sign in (True, False):
            with SignedNaN(negative=sign):
                assert torch.equal(read(function(x)), want)  # type: ignore[operator]
    if dtype.itemsize > 2:  # eager's scalar kernels of half types lose it
        assert judge(lambda x: read(-x), read, x[:1])  # type: ignore[operator]
    for sign in (True, False):
        with SignedNaN(negative=sign):
            assert bool(torch.signbit(x + 1)[0]) is sign


def test_nans_of_different_operands_may_have_different_signs() -> None:
    x = torch.tensor([torch.inf, 0.0, -torch.inf, -0.0]).repeat(5)
    found = set()
    for seed in range(32):
        with SignedNaN(seed=seed):
            signs = torch.signbit(torch.fmod(x, x)).view(5, 4)
        assert torch.equal(signs, signs[:1].expand(5, -1)), "equal operands give equal signs"
        found.add(tuple(signs[0].tolist()))
    assert len(found) > 8


def test_a_nan_has_a_sign_whatever_it_was() -> None:
    x = torch.tensor([torch.inf, 1.0, 2.0])
    for sign in (True, False):
        with SignedNaN(negative=sign):
            found = torch.signbit(((x - x) / (x - x) + 1).sum(dim=0, keepdim=True))
        assert found.item() is sign


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64], ids=str)
def test_products_are_rounded_before_they_are_added(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    x, a = torch.tensor([top, 1.0], dtype=dtype), torch.tensor([-top / 2, 3.0], dtype=dtype)
    with Stepwise():
        found = [torch.addcmul(x, a, torch.full_like(x, 4.0)), torch.addcmul(x, a, torch.full_like(x, 4.0), value=0.5)]
    if dtype.itemsize > 2 and not dtype.is_complex:  # half types are computed in float32
        assert [y[0].item() for y in found] == [-torch.inf, 0.0]
    assert [y[1].item() for y in found] == [13.0, 7.0]


def test_a_formula_that_rounds_its_products_is_no_fault_and_another_is() -> None:
    top = torch.finfo(torch.float32).max
    x, a = torch.tensor([top, 1.0, 2.0]), torch.tensor([-top / 2, 3.0, 5.0])
    want = lambda x, a: torch.addcmul(x, a, a * 0 + 4)  # noqa: E731
    assert judge(lambda x, a: x + a * (a * 0 + 4), want, x, a) == []
    assert judge(lambda x, a: x + a * (a * 0 + 4.001), want, x, a)


def test_parts_of_complex_numbers_move_on_their_own() -> None:
    want = [torch.tensor([complex(torch.nan, 1.0), 2 + 3j])]
    other = [torch.tensor([complex(torch.nan, torch.nan), 2 + 3j])]
    (moved,) = moved_like(want, want, other)
    assert torch.view_as_real(moved).isnan().tolist() == [[True, True], [False, False]]


def test_the_gradient_of_an_input_that_is_returned_may_come_last() -> None:
    """Two terms whose sum is infinite: by which place that has in a sum of complex numbers it is NaN or not."""
    x = torch.tensor([6e307 + 0.2j] * 16 + [3 - 2j], dtype=torch.complex128)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x.conj() * x

    first, last = (run(program, x, within=way).gradients[0] for way in (Plain, Around))
    assert first is not None and last is not None
    assert (last.imag.isnan() & ~first.imag.isnan()).any()
    torch.testing.assert_close(first[-1], last[-1])


def test_the_gradient_of_a_view_that_is_returned_may_come_last() -> None:
    """What the view's cotangent is added to cancels: it is lost, or is all that is left."""
    x = torch.full((5, 1, 1), 2.0**-100)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ratio = x / x
        return x.mT, ratio

    first, last = (run(program, x, within=way).gradients[0] for way in (Plain, Around))
    assert first is not None and last is not None
    assert not first.any() and last.all()


def test_choices_of_instructions_meet_gradients_that_come_last() -> None:
    """The gradient of `elu` at NaN is NaN from vectors only, and in a sum of complex numbers the real part is, too."""
    x = torch.randn(33, 33, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    torch.view_as_real(x)[::3, 1::3, 1] = torch.nan

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        part = torch.imag(x)
        return part, torch.nn.functional.elu(part[:-1, 1:]).diagonal()

    ways = (Plain, Around, lambda: Elsewhere(vectors=True), lambda: Together(Around(), Elsewhere(vectors=True)))
    gradients = [run(program, x, within=way).gradients[0] for way in ways]
    nothing = [bool(torch.view_as_real(gradient)[..., 0].isnan().any()) for gradient in gradients]
    assert nothing == [False, False, False, True]


def test_choices_of_instructions_and_of_orders_meet() -> None:
    """A remainder by a denormal is NaN from vectors only, and hides that a mean of infinities is what it is."""
    x = torch.tensor([[3.0, 1.0, -2.0, 4.0] * 16])
    y = torch.tensor([[1e-40, -torch.inf, 1.5, 2.0] * 16])
    want = lambda x, y: torch.std_mean(torch.remainder(x, y).detach(), 1)[1]  # noqa: E731
    assert run(want, x, y).results[0].isnan().all()
    assert judge(lambda x, y: torch.full((1,), -torch.inf), want, x, y) == []


def test_two_norms_of_one_row_may_be_equal() -> None:
    """Rounded at random, or with sums in other orders, they hardly are; exact ones, rounded, are the same number."""
    x = torch.randn(16, 16, 16, generator=torch.Generator().manual_seed(5))
    want = lambda x: F.layer_norm(x, (16,)).eq(F.instance_norm(x))  # noqa: E731
    assert not want(x).all()
    assert judge(lambda x: torch.ones_like(x, dtype=torch.bool), want, x) == []
    assert judge(lambda x: torch.ones_like(x, dtype=torch.bool), lambda x: F.layer_norm(x, (16,)).eq(x), x)


@pytest.mark.parametrize("channels", [1, 4])
def test_interpolation_may_round_dim_by_dim(channels: int) -> None:
    """What cancels there is not zero where a product is joined with the sum of others."""
    x = torch.zeros(1, channels, 8, 10)
    x[..., 6:, 8:] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) * 1.5707964
    want = lambda x: F.interpolate(x, (3, 5), mode="bilinear").count_nonzero()  # noqa: E731
    assert want(x) == channels
    assert judge(lambda x: torch.tensor(0), want, x) == []
    assert judge(lambda x: torch.tensor(1), lambda x: want(x * 0), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["linear", "bilinear", "trilinear"])
def test_interpolation_dim_by_dim_is_interpolation(mode: str, dtype: torch.dtype) -> None:
    dims = 1 + ["linear", "bilinear", "trilinear"].index(mode)
    x = torch.randn(2, 3, *[7, 4, 5][:dims], generator=torch.Generator().manual_seed(6), dtype=dtype)
    x.view(-1)[::7] = torch.inf
    for how in (
        *({"size": size} for size in ([3, 9, 5][:dims], [1, 4, 8][:dims])),
        *({"size": [5, 1, 9][:dims], "align_corners": True}, {"scale_factor": [1.3, 2.5, 0.7][:dims]}),
        {"scale_factor": 1.3, "recompute_scale_factor": True},
    ):
        want = F.interpolate(x, mode=mode, **how)
        with Stepwise():
            found = F.interpolate(x, mode=mode, **how)
        torch.testing.assert_close(found, want, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.cumprod(1), lambda x: x.max(), lambda x: x.median()],
)
@pytest.mark.parametrize("odd", [1.0, 0.0, torch.inf, torch.nan])
def test_gradients_are_measured_by_the_formula_that_eager_takes(function: object, odd: float) -> None:
    """Which asks the data; below a mode it would be another one, whose NaN are others."""
    x = torch.tensor([[odd, 2.0, -3.0, 3e38], [4.0, torch.inf, 0.5, odd]])
    want = run(function, x).gradients[0]
    for way in (Plain, lambda: Together(Plain(), Plain())):
        torch.testing.assert_close(run(function, x, within=way).gradients[0], want, equal_nan=True)


def test_autograd_adds_in_place_only_without_a_mode() -> None:
    """Which lays out the sum otherwise, in dims of one, where batch norm's gradient is wrong in PyTorch 2.13."""
    x = torch.rand(34, 4, 34, 1, generator=torch.Generator().manual_seed(3))

    def want(x: torch.Tensor) -> torch.Tensor:
        norm = F.batch_norm(x, None, None, training=True)
        return F.scaled_dot_product_attention(norm, norm, norm)

    def ours(x: torch.Tensor) -> torch.Tensor:
        norm = F.batch_norm(x, None, None, training=True)
        norm.register_hook(lambda gradient: gradient.contiguous())
        return F.scaled_dot_product_attention(norm, norm, norm)

    assert judge(ours, want, x) == []
    assert judge(lambda x: ours(x) * 1e3, want, x)


@pytest.mark.parametrize("seed", range(24_000, 24_024))
@pytest.mark.filterwarnings("ignore")  # eager's own, about what random programs do
def test_every_way_runs_what_eager_runs(seed: int) -> None:
    """One that fails would measure nothing, unnoticed."""
    program = generate(random.Random(seed))
    want = observe(program.function(), program.inputs)
    for way in (Plain, *WAYS, *FORWARD_WAYS):
        seen = observe(program.function(), program.inputs, within=way)
        assert (seen.failed is None) == (want.failed is None), seen.failed
        assert want.backward_failed or not seen.backward_failed, seen.backward_failed


def test_vectors_decide_the_gradient_of_a_contiguous_copy() -> None:
    """A formula on NaN that eager has two values of; the copy's layout has as many dims as the tensor."""
    x = torch.full((3, 17, 3, 3), torch.nan, dtype=torch.bfloat16)
    want = lambda x: F.hardshrink(x.contiguous(memory_format=torch.channels_last))  # noqa: E731
    for vectors in (True, False):
        plain, seen = (run(want, x, within=w) for w in (Plain, lambda vectors=vectors: Elsewhere(vectors=vectors)))
        assert seen.failed is None and plain.failed is None
        assert bool(seen.gradients[0].any()) is not vectors


def test_norms_by_the_textbook_are_rounded_as_any_processor_may() -> None:
    """Of equal numbers their mean may be one of them, or beside it: eager's own algorithm finds it, a sum may not."""
    x = torch.full((1, 3, 3), 1.9459101)
    apart = []
    for seed in range(4):
        with Together(RandomRounding(seed), Reordered(seed)):
            apart.append(float(F.group_norm(x, 3).abs().max()))
    assert 0 < max(apart) < 1e-3
    assert judge(lambda x: F.group_norm(x, 3) + 3.7697e-05, lambda x: F.group_norm(x, 3), x) == []
    assert judge(lambda x: F.group_norm(x, 3) + 0.1, lambda x: F.group_norm(x, 3), x)


def test_sums_may_go_as_the_terms_lie() -> None:
    """Large terms that cancel leave what was added after them; eager adds in parts."""
    x = torch.tensor([[0.5, 1.0, -3e9, 2.0, 3e38, 1.0, -3e38, 0.75] + [0.0] * 56] * 2)
    want = lambda x: x.mean(1) > 0  # noqa: E731
    for seed, left in ((5, 0.75), (7, 4.5 - 3e9)):
        with Reordered(seed):
            assert torch.equal(x.sum(1), torch.full((2,), left))
    assert judge(lambda x: torch.tensor([True, True]), want, x) == [] == judge(want, want, x)
    assert judge(lambda x: ~want(x), want, x.abs())
