"""The matcher finds what means the same, however it is written, and leaves alone what somebody could tell apart."""

from __future__ import annotations

import math
import operator

import pytest
import torch
from torch.nn import functional as F

import stator
from tests.patterns.compiling import compiled, registered

X, Y = torch.randn(3, 4), torch.randn(3, 4)


def tanh_gated(x, y):
    return torch.tanh(x) * y + x


def marked(x, y):
    """Another result, so that a test sees that it was put there."""
    return torch.atan(x) - y


def expect(function, *args, times=1):
    stator.reset()
    result, replaced, refused = compiled(function, *args)
    assert replaced == ["mine"] * times, refused
    return result


def refuse(function, *args, why=""):
    """Not replaced, right all the same, and the reason is told."""
    stator.reset()
    result, replaced, refused = compiled(function, *args)
    assert not replaced
    assert any(why in text for text in refused) if why else not refused
    torch.testing.assert_close(result, function(*args))


@pytest.mark.parametrize(
    "text",
    [
        lambda x, y: torch.tanh(x) * y + x,
        lambda x, y: x + y * x.tanh(),
        lambda x, y: torch.add(x, torch.mul(y, other=torch.tanh(input=x))),
        lambda x, y: operator.add(x.tanh().multiply(y), x),
        lambda x, y: x.tanh().contiguous().mul_(y).add_(x),
        lambda x, y: F.dropout(x.tanh().to(torch.float32), 0.5, False).clone() * y + x,
        lambda x, y: y.t() * x.t().tanh() + x.t(),
    ],
)
def test_spellings(text) -> None:
    with registered(tanh_gated, marked, (X, Y)):
        result = expect(text, X, Y)
    expected = marked(X, Y)
    torch.testing.assert_close(result, expected if result.shape == expected.shape else expected.t())


def test_other_operands_are_not_the_same() -> None:
    with registered(tanh_gated, marked, (X, Y)):

        def tanh(x):
            return x.clone()

        stator.allow_in_graph(tanh)
        for text in (
            lambda x, y: tanh(x) * y + x,
            lambda x, y: torch.tanh(x) * y + y,
            lambda x, y: torch.tanh(x) * y - x,
            lambda x, y: torch.add(torch.tanh(x) * y, x, alpha=2),
            lambda x, y: torch.tanh(x.double()) * y + x,
            lambda x, y: torch.tanh(x + 1) * y + x,
        ):
            refuse(text, X, Y)


def test_ranks_and_kinds_of_dtype_are_the_examples() -> None:
    with registered(tanh_gated, marked, (X, Y)):
        refuse(tanh_gated, X[0], Y[0])
        refuse(tanh_gated, X, torch.arange(12).view(3, 4))
    with registered(tanh_gated, marked, (X, Y), any_rank=("x", "y")):
        expect(tanh_gated, X[0], Y[0])


def test_a_value_inside_is_read_elsewhere() -> None:
    def text(x, y):
        inside = torch.tanh(x)
        return inside * y + x, inside.sum()

    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, X, Y, why="read by sum")


def test_a_value_inside_is_read_for_nothing() -> None:
    def text(x, y):
        inside = torch.tanh(x)
        inside.sum()
        return inside * y + x

    def written(x, y):
        inside = torch.tanh(x)
        inside[0] = 3.0
        return inside * y + x

    with registered(tanh_gated, marked, (X, Y)):
        torch.testing.assert_close(expect(text, X, Y), marked(X, Y))
        refuse(written, X, Y, why="read by setitem")


def test_an_inner_value_that_is_a_result() -> None:
    def text(x, y):
        inside = torch.tanh(x)
        return inside * y + x, inside

    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, X, Y, why="read by output")


def test_arguments_written_to_in_between() -> None:
    def text(x, y):
        x = x + 0.5
        inside = torch.tanh(x)
        x.mul_(2)
        return inside * y + x

    def after(x, y):
        x = x * 2
        z = torch.tanh(x) * y + x
        x.mul_(2)
        return z + x

    def before(x, y):
        x = x.clone()
        x[0] = 2.0
        return torch.tanh(x) * y + x

    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, X, Y)
        torch.testing.assert_close(expect(after, X, Y), marked(X * 2, Y) + X * 4)
        changed = X.clone()
        changed[0] = 2.0
        torch.testing.assert_close(expect(before, X, Y), marked(changed, Y))


def test_an_argument_whose_view_is_written_to_in_between() -> None:
    def text(x, y):
        x = x + 0.5
        row = x[0]
        inside = torch.tanh(y) * x
        row.fill_(7.0)
        return inside + y

    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, X, Y, why="written to")


def test_a_write_that_the_caller_sees() -> None:
    def text(x, y):
        x.tanh_()
        return x.mul(y) + 1.0

    def search(x, y):
        return torch.tanh(x) * y

    with registered(search, marked, (X, Y)):
        stator.reset()
        mine, eager = X.clone(), X.clone()
        result, replaced, refused = compiled(text, mine, Y)
        torch.testing.assert_close(result, text(eager, Y))
        torch.testing.assert_close(mine, eager)
        assert not replaced and "writes to what others see" in refused[0]


def test_a_mode_inside() -> None:
    def text(x, y):
        with torch.no_grad():
            inside = torch.tanh(x)
        return inside * y + x

    x = X.clone().requires_grad_()
    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, x, Y, why="mode")


def test_the_result_may_be_written_to() -> None:
    def text(x, y):
        z = torch.tanh(x) * y + x
        z += 1
        return z

    with registered(tanh_gated, marked, (X, Y)):
        torch.testing.assert_close(expect(text, X, Y), marked(X, Y) + 1)


def test_gradients_are_those_of_the_replacement() -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    with registered(tanh_gated, marked, (X, Y)):
        result = expect(tanh_gated, x, y)
    found = torch.autograd.grad(result.sum(), (x, y))
    expected = torch.autograd.grad(marked(x, y).sum(), (x, y))
    torch.testing.assert_close(found, expected)


def scaled(x, c):
    return torch.tanh(x * c)


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        (lambda x: torch.tanh(x * 3), 3.0),
        (lambda x: torch.tanh(0.5 * x), 0.5),
        (lambda x: torch.tanh(x / 4), 0.25),
        (lambda x: torch.tanh(x / torch.sqrt(torch.tensor(4.0))), 0.5),
        (lambda x: torch.tanh(x), 1.0),
        (lambda x: x.tanh(), 1.0),
    ],
)
def test_a_number_stands_for_any_number(text, factor) -> None:
    with registered(scaled, lambda x, c: torch.full_like(x, c), (X, 2.0)):
        torch.testing.assert_close(expect(text, X), torch.full_like(X, factor))


def test_a_divisor_is_found_as_a_factor() -> None:
    with registered(lambda x, c: torch.tanh(x / c), lambda x, c: torch.full_like(x, c), (X, 2.0)):
        torch.testing.assert_close(expect(lambda x: torch.tanh(x * 0.25), X), torch.full_like(X, 4.0))


def test_numbers_written_in_the_pattern_are_these_numbers() -> None:
    with registered(lambda x: torch.tanh(x * 0.5), lambda x: x.atan(), (X,)):
        expect(lambda x: torch.tanh(x / 2), X)
        refuse(lambda x: torch.tanh(x / 3), X)
        refuse(lambda x: torch.tanh(x), X)


def test_numbers_that_the_pattern_computes_of_sizes() -> None:
    def search(x):
        return torch.tanh(x * x.shape[-1] ** -0.5)

    with registered(search, lambda x: x.atan(), (X,)):
        expect(lambda x: torch.tanh(x / 2), X)
        expect(lambda x: torch.tanh(x / math.sqrt(9)), torch.randn(5, 9))
        refuse(lambda x: torch.tanh(x / 2), torch.randn(5, 9))


def turned(x, y):
    return torch.tanh(x @ y.transpose(-1, -2))


@pytest.mark.parametrize(
    "text",
    [
        lambda x, y: torch.tanh(x @ y.T),
        lambda x, y: torch.tanh(torch.mm(x, y.permute(1, 0))),
        lambda x, y: torch.matmul(x, y.t().t().mT).tanh(),
        lambda x, y: torch.tanh(x @ torch.swapaxes(y, 0, 1)),
    ],
)
def test_permutations(text) -> None:
    def replace(x, y):
        return torch.atan(x.sum(1, keepdim=True) + y.sum(1))

    with registered(turned, replace, (X, Y)):
        torch.testing.assert_close(expect(text, X, Y), replace(X, Y))
        y = torch.randn(4, 6)
        torch.testing.assert_close(expect(lambda x, y: torch.tanh(x @ y), X, y), replace(X, y.t()))


def test_reshapes_that_mean_the_same() -> None:
    def search(x):
        return torch.tanh(x.reshape(x.shape[0] * x.shape[1])) + 1

    x = torch.randn(3, 4)
    with registered(search, lambda x: x.reshape(-1).atan(), (x,)):
        for text in (
            lambda x: torch.tanh(x.view(12)) + 1,
            lambda x: x.flatten().tanh() + 1,
            lambda x: x.unsqueeze(0).reshape(2, 6).view(-1).tanh() + 1,
        ):
            torch.testing.assert_close(expect(text, x), x.flatten().atan())
        refuse(lambda x: torch.tanh(x.view(2, 6)) + 1, x)


def test_a_condition_either_way() -> None:
    mask = torch.rand(3, 4) > 0.5

    def search(x, keep):
        return torch.tanh(torch.where(keep, x, 0.25))

    def replace(x, keep):
        return x * keep

    with registered(search, replace, (X, mask)):
        for text in (
            lambda x, m: torch.tanh(x.masked_fill(~m, 0.25)),
            lambda x, m: torch.tanh(torch.where(torch.logical_not(m), 0.25, x)),
            lambda x, m: x.clone().masked_fill_(~m, 0.25).tanh(),
        ):
            torch.testing.assert_close(expect(text, X, mask), X * mask)
        torch.testing.assert_close(expect(lambda x, m: torch.tanh(x.masked_fill(m, 0.25)), X, mask), X * ~mask)


def test_defaults_are_filled_in() -> None:
    with registered(lambda x: F.gelu(x), lambda x: x.atan(), (X,)):
        expect(lambda x: F.gelu(x, approximate="none"), X)
        refuse(lambda x: F.gelu(x, approximate="tanh"), X)
    with registered(lambda x: x.cumsum(-1), lambda x: x.atan(), (X,)):
        expect(lambda x: torch.cumsum(x, dim=1), X)
        refuse(lambda x: torch.cumsum(x, dim=0), X)


def test_conversions_are_to_a_dtype() -> None:
    with registered(lambda x: torch.tanh(x.double()).float(), lambda x: x.atan(), (X,)):
        expect(lambda x: x.to(torch.float64).tanh().to(x.dtype), X)
        refuse(lambda x: torch.tanh(x.half()).float(), X)
        refuse(lambda x: torch.tanh(x.to(torch.bfloat16)).float(), X)


def test_a_truth_value_is_no_number() -> None:
    with registered(lambda x: torch.std(x, 0), lambda x: x.atan()[0], (X,)):
        expect(lambda x: x.std(dim=0), X)
        refuse(lambda x: torch.std(x, False), X)


def test_geometry_that_changes_in_place() -> None:
    def text(x, y):
        x = x + 0.5
        z = torch.tanh(x) * y + x
        z.t_()
        return z

    with registered(tanh_gated, marked, (X, Y)):
        refuse(text, X, Y)


def test_several_places() -> None:
    def text(x, y):
        return tanh_gated(tanh_gated(x, y), y)

    with registered(tanh_gated, marked, (X, Y)):
        torch.testing.assert_close(expect(text, X, Y, times=2), marked(marked(X, Y), Y))


def test_symbolic_sizes() -> None:
    with registered(tanh_gated, marked, (X, Y)):
        stator.reset()
        function = stator.compile(tanh_gated, dynamic=True, fullgraph=True)
        for rows in (3, 5, 7):
            x, y = torch.randn(rows, 4), torch.randn(rows, 4)
            torch.testing.assert_close(function(x, y), marked(x, y))
