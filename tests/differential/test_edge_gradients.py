"""Operators and their gradients at NaN, infinities, zeros, denormals, the largest numbers and knots, against eager.

Eager is asked twice, for elements with gaps between them and for many side by side: where its vector instructions and
the rest behind them disagree, either answer is right. What differs by decision is in the table of `docs/numerics.md`,
and nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from tests.differential.edge_functions import BINARY, UNARY, WIDE_ONLY

PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
#: Times the input they have one plus a value near minus one, which is known to a rounding error of one.
FROM_ONE = {"gelu of tanh"}
#: Operator → what of it differs by decision.
DECIDED = {
    name: set(re.findall("value|gradient", differs))
    for name, differs in re.findall(
        r"^\| `([^`]+)` \| ((?:value|gradient)[a-z, ]*) \|", PAGE.read_text(encoding="utf-8"), re.M
    )
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
#: Eager's kernels work on so many elements and fewer at once.
MANY = 64
#: So many functions are compiled in one graph.
GROUP = 12
#: What a gradient is multiplied by; where it is passed over, an infinity or NaN shows whether before or after.
COTANGENTS = (1.0, torch.inf, torch.nan, 0.0, -1e30)
SIDES = (torch.inf, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 6.0, 20.0, 89.0)

Functions = dict[str, Callable[..., Tensor]]


def points(dtype: torch.dtype) -> Tensor:
    """The edges of a dtype, and the knots of the operators."""
    limits = torch.finfo(dtype)
    sides = (*SIDES[:2], limits.tiny, limits.tiny / 4, limits.max, *SIDES[2:])
    return torch.tensor([torch.nan, *sides, *[-side for side in sides]], dtype=dtype)


def observed(run: Callable[..., Any], count: int, inputs: Sequence[Tensor], cotangent: Tensor) -> list[list[Tensor]]:
    """The value of each function, and the gradient of each of its operands; every one has leaves of its own."""
    leaves = [[x.detach().requires_grad_() for x in inputs] for _ in range(count)]
    values = run(leaves)
    found = [[value.detach()] for value in values]
    smooth = [i for i, value in enumerate(values) if value.requires_grad]
    wanted = [leaf for i in smooth for leaf in leaves[i]]
    cotangents = [cotangent] * len(smooth)
    grads = torch.autograd.grad([values[i] for i in smooth], wanted, cotangents, materialize_grads=True)
    for k, grad in enumerate(grads):
        found[smooth[k // len(inputs)]].append(grad)
    return found


def eager_answers(
    run: Callable[..., Any], count: int, inputs: Sequence[Tensor], cotangent: Tensor
) -> list[list[list[Tensor]]]:
    """What eager gives for elements with gaps between them, and for many of each side by side."""
    apart = [x.repeat_interleave(2)[::2] for x in (*inputs, cotangent)]
    many = [x.repeat_interleave(MANY) for x in (*inputs, cotangent)]
    together = observed(run, count, many[:-1], many[-1])
    return [observed(run, count, apart[:-1], apart[-1]), [[part[::MANY] for part in parts] for parts in together]]


def agrees(mine: Tensor, theirs: Tensor, terms: Tensor) -> Tensor:
    """Where two answers are the same up to a few roundings, of terms of some size; denormals count as zeros."""
    limits = torch.finfo(mine.dtype)
    a, b = mine.double(), theirs.double()
    same = (a == b) | (a.isnan() & b.isnan())
    close = (a - b).abs() <= limits.eps * (32 * b.abs() + 4 * terms) + 4 * limits.tiny
    return same | (close & a.isfinite() & b.isfinite())


def wrong(functions: Functions, inputs: Sequence[Tensor]) -> Iterator[tuple[str, str, str]]:
    """(function, value or gradient, where) of what differs from both of eager's answers."""

    def run(given: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return [function(*leaves) for function, leaves in zip(functions.values(), given, strict=True)]

    pairs = [len(inputs[0]), len(COTANGENTS)]
    inputs = [x[:, None].expand(pairs).flatten() for x in inputs]
    cotangent = torch.tensor(COTANGENTS, dtype=inputs[0].dtype).expand(pairs).flatten()
    stator.reset()
    compiled = stator.compile(run, fullgraph=True, options={"cache": False, "strict": True})
    mine = observed(compiled, len(functions), inputs, cotangent)
    answers = eager_answers(run, len(functions), inputs, cotangent)
    terms = cotangent.double().abs().nan_to_num(1.0, 1.0)
    sizes = inputs[0].double().abs().nan_to_num(1.0, 1.0)
    for name, parts, *theirs in zip(functions, mine, *answers, strict=True):
        for number, part in enumerate(parts):
            near = terms if number else sizes * (name in FROM_ONE)
            bad = ~torch.stack([agrees(part, answer[number], near) for answer in theirs]).any(0)
            for at in bad.nonzero().flatten().tolist()[:3]:
                at_point = ", ".join(str(x[at].item()) for x in (*inputs, cotangent))
                told = f"at {at_point}: {part[at].item()}, eager {theirs[0][number][at].item()}"
                yield name, "gradient" if number else "value", told


def groups(functions: Sequence[str]) -> list[Sequence[str]]:
    return [functions[i : i + GROUP] for i in range(0, len(functions), GROUP)]


def undecided(functions: Functions, inputs: Sequence[Tensor]) -> list[tuple[str, str, str]]:
    return [found for found in wrong(functions, inputs) if found[1] not in DECIDED.get(found[0], set())]


@pytest.mark.parametrize("names", groups([*UNARY]), ids=" ".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unary(names: Sequence[str], dtype: torch.dtype) -> None:
    taken = [name for name in names if dtype is not torch.bfloat16 or name not in WIDE_ONLY]
    assert not undecided({name: UNARY[name] for name in taken}, [points(dtype)])


@pytest.mark.parametrize("names", groups([*BINARY]), ids=" ".join)
def test_binary(names: Sequence[str]) -> None:
    ours = points(torch.float32)[::2]
    pairs = [x.flatten() for x in torch.meshgrid(ours, ours, indexing="ij")]
    assert not undecided({name: BINARY[name] for name in names}, pairs)


def test_zeros_have_no_sign_that_eager_does_not_give() -> None:
    zeros = torch.tensor([-0.0, 0.0])
    for function in (torch.sign, torch.sgn):
        compiled = stator.compile(function, options={"cache": False})
        assert torch.equal(torch.signbit(compiled(zeros)), torch.signbit(function(zeros)))


def test_every_decision_is_about_a_tested_operator() -> None:
    assert DECIDED.keys() <= UNARY.keys() | BINARY.keys()
