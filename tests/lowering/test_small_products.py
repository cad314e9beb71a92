"""Products of few elements that loops compute, in every layout, with and without what reads them; many in one graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.inspect.statistics import summary


class Case(NamedTuple):
    """A product of rows, columns and terms, either operand turned over or not, and what becomes of it."""

    sizes: tuple[int, int, int]
    turned: tuple[bool, bool]
    function: Callable[[Tensor, Tensor, Tensor], Tensor]


FUNCTIONS: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [
    lambda a, b, c: a @ b,
    lambda a, b, c: torch.addmm(c, a, b),
    lambda a, b, c: F.gelu(a @ b),
    lambda a, b, c: torch.addmm(c, a, b).relu() * 2,
    lambda a, b, c: torch.addmm(c, a.sigmoid(), b, beta=2),
    lambda a, b, c: ((a.tanh() @ b.sin()) @ (a.tanh() @ b.sin()).t()).sum(0),
]


def cases(count: int, seed: int) -> list[Case]:
    """Random products, some with more terms than loops take, none without elements."""
    rng = random.Random(seed)
    sizes = [tuple(int(2 ** rng.uniform(0, 6)) for _ in range(3)) for _ in range(count)]
    turned = [(rng.random() < 0.5, rng.random() < 0.5) for _ in range(count)]
    return [Case(s, t, rng.choice(FUNCTIONS)) for s, t in zip(sizes, turned, strict=True)]  # type: ignore[arg-type]


def operands(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Both operands, laid out as the case says, and a bias."""
    rows, columns, terms = case.sizes
    a = torch.randn(terms, rows, dtype=dtype).t() if case.turned[0] else torch.randn(rows, terms, dtype=dtype)
    b = torch.randn(columns, terms, dtype=dtype).t() if case.turned[1] else torch.randn(terms, columns, dtype=dtype)
    return [a, b, torch.randn(columns, dtype=dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(3))
def test_products_and_their_gradients(seed: int, dtype: torch.dtype) -> None:
    chosen = cases(30, seed)

    def function(*tensors: Tensor) -> list[Tensor]:
        return [case.function(*tensors[3 * i : 3 * i + 3]) for i, case in enumerate(chosen)]

    torch.manual_seed(seed)
    leaves = [x.requires_grad_() for case in chosen for x in operands(case, dtype)]
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    found = []
    for run, inputs in ((compiled, leaves), (function, [x.detach().double().requires_grad_() for x in leaves])):
        results = run(*inputs)
        gradients = torch.autograd.grad(sum(r.sigmoid().sum() for r in results), inputs, allow_unused=True)
        found.append([*results, *[g for g in gradients if g is not None]])
    got, want = found
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    for ours, exact in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance * 10)


def test_few_multiplications_need_no_library() -> None:
    def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, b))

    given = torch.randn(2, 16), torch.randn(32, 16), torch.randn(32)
    assert not stator.explain(linear)(*given).externs
    assert stator.explain(linear)(torch.randn(20, 16), *given[1:]).externs


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_bfloat16(turned: bool) -> None:
    """More of them are loops; sums are float32's, rounded once."""
    torch.manual_seed(0)
    x, b = torch.randn(2, 1152).bfloat16(), torch.randn(48).bfloat16()
    w = torch.randn(1152, 48).bfloat16().t() if turned else torch.randn(48, 1152).bfloat16()
    for function in (F.linear, lambda x, w, b: x @ w.t(), lambda x, w, b: (F.linear(x, w, b) @ w).sigmoid()):
        compiled = stator.compile(function, fullgraph=True, options={"strict": True})
        assert not stator.explain(function)(x, w, b).externs
        got, eager, exact = compiled(x, w, b), function(x, w, b), function(x.double(), w.double(), b.double())
        assert got.dtype is torch.bfloat16 and got.stride() == eager.stride()
        error, allowed = [(value.double() - exact).abs().mean() for value in (got, eager)]
        assert error <= 1.25 * allowed
    assert stator.explain(F.linear)(torch.randn(300, 1152).bfloat16(), w, b).externs


RESULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matrix and vector": lambda a, b: a @ b[0],
    "matrices": lambda a, b: a @ b,
    "linear": lambda a, b: F.linear(a, b),
    "addmm": lambda a, b: torch.addmm(a[0], a, b),
    "of batches": lambda a, b: a.expand(2, 3, 3) @ b,
    "outer": lambda a, b: torch.outer(a[0], b[0]),
    "convolution": lambda a, b: F.conv1d(a.expand(2, 3, 3), b.expand(2, 3, 3)),
    "sorted": lambda a, b: (a + b).sort(0)[0],
    "summed": lambda a, b: (a @ b).sum(0),
}
WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scatter": lambda x, at, y: x.scatter_(0, at, 0.5),
    "of another": lambda x, at, y: x.scatter_(0, at, y),
    "scatter_add": lambda x, at, y: x.scatter_add_(0, at, y),
    "scatter_reduce": lambda x, at, y: x.scatter_reduce_(0, at, y, "amax"),
    "index_add": lambda x, at, y: x.index_add_(0, at.flatten()[:1], y[:1]),
    "index_copy": lambda x, at, y: x.index_copy_(0, at.flatten()[:1], y[:1]),
    "index_fill": lambda x, at, y: x.index_fill_(0, at.flatten()[:1], 2.0),
    "index_put": lambda x, at, y: x.index_put_((at.flatten()[:1],), y[:1], accumulate=True),
    "put": lambda x, at, y: x.put_(at.flatten()[:1], y.flatten()[:1]),
    "masked": lambda x, at, y: x.masked_scatter_(at > 0, y.contiguous()),
}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("result", RESULTS)
def test_results_of_calls_that_are_written_to(result: str, write: str, rows: int) -> None:
    """Their memory may have other dims than they."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        made = RESULTS[result](a, b)
        at = torch.zeros_like(made, dtype=torch.int64)
        return WRITES[write](made, at, made * 0.5 + 1)

    random = torch.Generator().manual_seed(3)
    a, b = torch.randn(3, 3, generator=random)[:rows], torch.randn(3, 3, generator=random)
    got = stator.compile(function, fullgraph=True, options={"strict": True})(a, b)
    torch.testing.assert_close(got, function(a, b))


@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_that_changes_is_as_one_of_known_size(turned: bool) -> None:
    """What each product of a batch takes decides, not how many there are."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v

    def operands(batch: int) -> list[Tensor]:
        if turned:
            return [torch.randn(batch, 24, 33).transpose(1, 2) for _ in range(3)]
        return [torch.randn(batch, 33, 24) for _ in range(3)]

    counts = []
    for mark in (False, True):
        before = summary()
        compiled = stator.compile(attend, fullgraph=True)
        for batch in (6, 2, 17) if mark else (6,):
            given = operands(batch)
            if mark:
                for x in given:
                    stator.mark_dynamic(x, 0)
            got, want = compiled(*given), attend(*[x.double() for x in given])
            torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
        counts.append({name: count - before[name] for name, count in summary().items()})
    assert counts[0] == counts[1]
    assert counts[0]["externs"] == 0
