"""Data that eager's kernels refuse is refused whoever reads the result: all of it, some of it, nobody.

The classes of error are eager's; where data is good, results are, and kernels that check positions anyway get no second
check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator import passes, prims
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.graphs.checks import CHECK_POSITIONS

SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
REGULAR = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
ROWS, COLUMN = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(2, 1)
WHOLE = torch.tensor([7, -8, 9])
CERTAIN = torch.tensor([0.0, 1.0, 1.0])


def at(*positions: int) -> Tensor:
    return torch.tensor(positions)


#: name → (operator, good arguments, bad arguments).
OPERATORS: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...], tuple[Any, ...]]] = {
    "index": (lambda x, i: x[i], (ROWS, at(0, -4, 3)), (ROWS, at(0, 1, 4))),
    "index below": (lambda x, i: x[i], (ROWS, at(0, -4, 3)), (ROWS, at(0, 1, -5))),
    "two indices": (lambda x, i, j: x[i, j], (ROWS, at(0, 1), at(2, 0)), (ROWS, at(0, 1), at(2, 3))),
    "index_select": (lambda x, i: x.index_select(1, i), (ROWS, at(0, 2)), (ROWS, at(0, 3))),
    "gather": (
        lambda x, i: x.gather(1, i.view(1, -1)),
        (ROWS, at(0, 2)),
        (ROWS, at(0, -1)),
    ),
    "take": (torch.take, (ROWS, at(0, 11, -12)), (ROWS, at(0, 12))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i.view(-1, 1), 0), (ROWS, at(0, 3)), (ROWS, at(0, 4))),
    "embedding": (lambda x, i: F.embedding(i, x), (ROWS, at(3, 0)), (ROWS, at(3, 4))),
    "scatter": (lambda x, i: x.scatter(0, i.view(1, -1), 1.0), (ROWS, at(3, 0)), (ROWS, at(3, 4))),
    "scatter_add": (
        lambda x, i: x.scatter_add(0, i.view(1, -1), x[:1, :2]),
        (ROWS, at(3, 0)),
        (ROWS, at(3, 4)),
    ),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), (ROWS, at(3, 0)), (ROWS, at(3, 4))),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:2]), (ROWS, at(3, 0)), (ROWS, at(3, 4))),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), (ROWS, at(3, -1)), (ROWS, at(3, 4))),
    "index_put": (lambda x, i: x.index_put((i,), x[0]), (ROWS, at(3, -1)), (ROWS, at(3, -5))),
    "nll_loss": (
        lambda x, i: F.nll_loss(x, i, reduction="none"),
        (ROWS, at(2, 0, -100, 1)),
        (ROWS, at(2, 0, 3, 1)),
    ),
    "cross_entropy": (
        lambda x, i: F.cross_entropy(x, i, reduction="none", ignore_index=1),
        (ROWS, at(2, 0, 1, 1)),
        (ROWS, at(2, 0, -1, 1)),
    ),
    "//": (lambda x, y: x // y, (WHOLE, at(2, -3, 4)), (WHOLE, at(2, 0, 4))),
    "%": (lambda x, y: x % y, (WHOLE, at(2, -3, 4)), (WHOLE, at(2, 0, 4))),
    "fmod": (torch.fmod, (WHOLE, at(2, -3, 4)), (WHOLE, at(2, 0, 4))),
    "div trunc": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (WHOLE, at(2, -3, 4)),
        (WHOLE, at(2, 0, 4)),
    ),
    "number // tensor": (lambda y: 7 // y, (at(2, -3, 4),), (at(2, 0, 4),)),
    "number % tensor": (lambda y: 7 % y, (at(2, -3, 4),), (at(2, 0, 4),)),
    "in place //": (lambda x, y: x.clone().floor_divide_(y), (WHOLE, at(2, -3, 4)), (WHOLE, at(2, 0, 4))),
    "narrow ints": (lambda x, y: x.byte() % y.byte(), (WHOLE, at(2, 3, 4)), (WHOLE, at(2, 0, 4))),
    "one divisor": (lambda x, y: x // y.sum(), (WHOLE, at(1, 1)), (WHOLE, at(1, -1))),
    "bernoulli": (torch.bernoulli, (CERTAIN,), (CERTAIN + 0.5,)),
    "bernoulli of half types": (lambda x: torch.bernoulli(x.bfloat16()), (CERTAIN,), (CERTAIN - 0.5,)),
    "bernoulli in place": (lambda x, y: x.clone().bernoulli_(y), (ROWS[0], CERTAIN), (ROWS[0], CERTAIN * torch.nan)),
    "binary_cross_entropy": (F.binary_cross_entropy, (CERTAIN * 0.9, CERTAIN), (CERTAIN * 1.1, CERTAIN)),
    "its target": (F.binary_cross_entropy, (CERTAIN * 0.9, CERTAIN), (CERTAIN, -CERTAIN)),
    "quantile": (torch.quantile, (CERTAIN, CERTAIN), (CERTAIN, CERTAIN - 0.001)),
    "nanquantile as a method": (
        lambda x, q: x.nanquantile(q, 0),
        (CERTAIN, CERTAIN[:1]),
        (CERTAIN, CERTAIN[:1] * torch.nan),
    ),
    "quantile by name": (
        lambda x, y: torch.quantile(x, q=y, interpolation="lower"),
        (CERTAIN, CERTAIN),
        (CERTAIN, CERTAIN + 0.001),
    ),
    "one_hot": (lambda x: F.one_hot(x, 3), (at(0, 2),), (at(0, 3),)),
    "inv": (torch.linalg.inv, (REGULAR,), (SINGULAR,)),
    "inverse": (torch.inverse, (REGULAR,), (SINGULAR,)),
    "cholesky": (torch.linalg.cholesky, (REGULAR,), (SINGULAR - 3,)),
    "torch.cholesky_inverse": (lambda x: torch.cholesky_inverse(x), (REGULAR,), (SINGULAR * 0,)),
    "solve": (torch.linalg.solve, (REGULAR, COLUMN), (SINGULAR, COLUMN)),
    "batch of inverses": (lambda x, y: torch.linalg.inv(torch.stack([x, y])), (REGULAR, REGULAR), (REGULAR, SINGULAR)),
    "lu_factor": (lambda x: torch.linalg.lu_factor(x)[0], (REGULAR,), (SINGULAR * 0,)),
    "eigh": (lambda x: torch.linalg.eigh(x)[0], (REGULAR,), (SINGULAR * torch.nan,)),
    "svdvals": (torch.linalg.svdvals, (REGULAR,), (SINGULAR * torch.nan,)),
    "assert_async": (lambda x: (torch._assert_async(x[0]), x)[1], (at(1, 0),), (at(0, 1),)),
}
#: How results are read.
READ: dict[str, Callable[[Tensor], Tensor | None]] = {
    "whole": lambda y: y * 2,
    "some": lambda y: y.flatten()[:1] * 2,
    "nobody": lambda y: None,
}


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (RuntimeError, IndexError) as error:
        return error


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("read", READ)
def test_bad_data_raises_and_good_does_not(name: str, read: str) -> None:
    operator, good, bad = OPERATORS[name]

    def program(*arguments: Any) -> Any:
        return READ[read](operator(*arguments)), arguments[0] + 1

    compiled = stator.compile(program, options={"cache": False}, fullgraph=True)
    expected = program(*good)
    for mine, theirs in zip(compiled(*good), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    raised, wanted = outcome(compiled, bad), outcome(program, bad)
    if isinstance(wanted, Exception):
        assert isinstance(raised, type(wanted)), (raised, wanted)
    else:
        assert not isinstance(raised, Exception), raised


@pytest.mark.parametrize("read", READ)
def test_sizes_that_change(read: str) -> None:
    def program(x: Tensor, i: Tensor, d: Tensor) -> Any:
        return READ[read](x[i]), READ[read](i // d), x * 2

    compiled = stator.compile(program, options={"cache": False}, fullgraph=True, dynamic=True)
    for length in (3, 5, 7):
        x, i = torch.randn(length), torch.arange(length)
        expected = program(x, i, i + 1)
        for mine, theirs in zip(compiled(x, i, i + 1), expected, strict=True):
            torch.testing.assert_close(mine, theirs)
        assert isinstance(outcome(compiled, (x, i + 1, i + 1)), IndexError)
        assert "ZeroDivision" in str(outcome(compiled, (x, i, i)))


def test_with_gradients_that_nobody_asks_for() -> None:
    def program(x: Tensor, i: Tensor) -> Tensor:
        return (x[i] * x.sum()).flatten()[:1]

    x = torch.randn(4, 3, requires_grad=True)
    compiled = stator.compile(program, options={"cache": False}, fullgraph=True)
    compiled(x, at(0, 1)).sum().backward()
    assert isinstance(outcome(compiled, (x, at(0, 9))), IndexError)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_inputs_are_as_they_were_before_what_raises(backend: str) -> None:
    def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        quotient = a // b
        x.add_(1)
        return quotient

    x = torch.zeros(3)
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    compiled(x, WHOLE, at(1, 2, 3))
    assert x.tolist() == [1, 1, 1]
    assert "ZeroDivision" in str(outcome(compiled, (x, WHOLE, at(1, 0, 3))))
    assert x.tolist() == [1, 1, 1]


def checks_left(function: Callable[..., Any], *inputs: Tensor) -> int:
    gm = torch.fx.symbolic_trace(function)
    joint = trace(gm, inputs, decompositions=prims.DECOMPOSITIONS)
    graph = passes.run(partition(joint).forward).graph
    return sum(node.target is CHECK_POSITIONS for node in graph.nodes)


def test_what_kernels_check_is_not_checked_twice() -> None:
    i = at(0, 1)
    assert checks_left(lambda x, i: x[i] * 2, ROWS, i) == 0
    assert checks_left(lambda x, i: F.embedding(i, x).sum(), ROWS, i) == 0
    assert checks_left(lambda x, i: (F.embedding(i.view(1, 2), x) @ x.t()).relu(), ROWS, i) == 0
    assert checks_left(lambda x, i: x.index_add(0, i, x[:2])[:1], ROWS, i) == 0
    assert checks_left(lambda x, i: F.nll_loss(x, i), ROWS[:2], i) == 0
    assert checks_left(lambda x, i: x[i][:1], ROWS, i) == 1
    assert checks_left(lambda x, i: (x[i], x)[1] * 2, ROWS, i) == 1
    assert checks_left(lambda x, i: x[i][:, i], ROWS, i) == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_what_eager_raises_in_backward_too_is_no_fault(in_place: bool) -> None:
    """Its kernel for `index_add` reads no positions of nothing, and that of the gradient does."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return y.index_add_(0, at(8, -3), x) if in_place else torch.index_add(y, 0, at(8, -3), x)

    def gradient(run: Callable[[Tensor, Tensor], Tensor]) -> None:
        run(torch.randn(2, 0, requires_grad=True), torch.zeros(17, 0)).sum().backward()

    with pytest.raises(RuntimeError, match="id=-3") as eager:
        gradient(function)
    compiled = stator.compile(function, backend="aot_eager", fullgraph=True, options={"strict": True})
    with pytest.raises(RuntimeError, match="id=-3") as ours:
        gradient(compiled)
    assert str(ours.value) == str(eager.value)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_what_has_no_kernel_in_backward_is_no_fault_where_inputs_were_written() -> None:
    """Eager cannot be asked again: the inputs are no longer what they were."""

    def function(x: Tensor, written: Tensor, half: Tensor) -> Tensor:
        written[0] = 2
        return half * x

    def gradient(run: Callable[..., Tensor]) -> None:
        out = run(torch.randn((), dtype=torch.complex64, requires_grad=True), torch.zeros(2), torch.ones(3).half())
        out.backward(torch.ones_like(out))

    compiled = stator.compile(function, backend="aot_eager", fullgraph=True, options={"strict": True})
    for run in (function, compiled):
        with pytest.raises(NotImplementedError, match="ComplexHalf"):
            gradient(run)


def test_what_eager_raises_in_backward_is_found_by_running_it() -> None:
    @torch.library.custom_op("stator_tests::raises_in_backward", mutates_args=())
    def operator(x: Tensor) -> Tensor:
        return x.clone()

    operator.register_fake(torch.empty_like)

    def backward(context: Any, grad: Tensor) -> Tensor:
        return torch.linalg.cholesky(grad)

    operator.register_autograd(backward)
    compiled = stator.compile(lambda x: operator(x), backend="aot_eager", fullgraph=True, options={"strict": True})
    x = torch.eye(2, requires_grad=True)
    with pytest.raises(torch.linalg.LinAlgError):
        (compiled(x) * -1).sum().backward()


def test_a_class_among_none() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return F.one_hot(x, y.shape[0] - 3).sum() + y

    compiled = stator.compile(program, options={"cache": False}, dynamic=True)
    for size in (6, 5, 3):
        arguments = at(0), torch.ones(size)
        wanted, found = outcome(program, arguments), outcome(compiled, arguments)
        assert type(found) is type(wanted), size
