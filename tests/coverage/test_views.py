"""Whether results are views, and of what: asked inside of a compiled function, and of what one returns.

`python -m tests.coverage.test_views [match]` asks all samples of the operators whose names match.
"""

from __future__ import annotations

import re
import sys
import warnings
import zlib
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import stator
from stator.base import log
from stator.coverage import database
from stator.coverage.layouts import FATAL

#: In CI, one of so many parts is asked.
PARTS = 12


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout is torch.strided]


def related(results: list[Tensor], given: list[Tensor]) -> list[Any]:
    """Of each result: whether it is a view, and which of the results and of what was given it is one of, or is."""
    return [
        (
            result._is_view(),
            result._base is None,
            [result._base is other for other in (*given, *results)],
            [result is other for other in given],
        )
        for result in results
    ]


def inside(sample: database.Sample) -> Any:
    """A program that asks about results of an operator whose operands it has computed."""

    def program(*leaves: Any) -> Any:
        leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
        results = tensors_of(sample.function(*args, **kwargs))
        return related(results, tensors_of(leaves))

    return program


def run(program: Any, leaves: list[Any]) -> Any:
    torch.manual_seed(0)
    try:
        return program(*leaves)
    except Exception as error:
        return error


def differing(sample: database.Sample) -> tuple[Any, Any] | None:
    """What the program answers and what eager does, if that differs; what the operator itself breaks is not asked."""
    program = inside(sample)
    leaves = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in sample.leaves]
    with warnings.catch_warnings(), log.collect() as recorder:
        warnings.simplefilter("ignore")
        expected = run(program, leaves)
        found = run(stator.compile(program, backend="eager", options={"cache": False}), leaves)
    breaks = [facts["reason"] for facts in recorder.of(log.BREAK)]
    if isinstance(expected, Exception) or (breaks and not re.search("_base|_is_view|a view", breaks[0])):
        return None
    return None if found == expected and not breaks else (breaks or found, expected)


def samples(names: list[str], limit: int) -> list[tuple[str, database.Sample]]:
    return [
        (name, sample)
        for name in names
        if name not in FATAL
        for sample in database.samples(name, "float32", limit)
        if sample.usable
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_program_asks() -> None:
    names = [name for name in database.names("float32") if zlib.crc32(name.encode()) % PARTS == 0]
    asked = samples(names, limit=1)
    assert len(asked) > 40
    assert not {name: why for name, sample in asked if (why := differing(sample)) is not None}


def program_of_views(x: Tensor) -> list[Tensor]:
    y = x * 2
    product, rows = torch.einsum("ij,jk->ik", x, x), (x + 1).unflatten(0, (3, 1))
    return [y.t(), y[0], product, x.repeat_interleave(2), rows, x.view(-1), x[1]]


def test_what_a_compiled_function_returns() -> None:
    """It is a view of an input, or of what another result shares memory with, or none (docs/autograd.md)."""
    x = torch.randn(3, 3)
    expected, found = program_of_views(x), stator.compile(program_of_views, fullgraph=True)(x)
    assert [result._is_view() for result in expected] == [True] * 7
    assert [result._is_view() for result in found] == [True, True, False, False, False, True, True]
    assert found[0]._base is found[1]._base
    assert found[5]._base is x and found[6]._base is x
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
        mine.add_(1)  # none of them is one that autograd forbids to write to
        theirs.add_(1)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def bases(x: Tensor) -> list[Any]:
    y = x * 2
    view = y.t()
    row = view[0]
    with torch.no_grad():
        plain = y[1]
    return [
        *(view._base is y, row._base is y, y._base is None, plain._is_view(), plain.detach()._is_view()),
        *(x._is_view(), x.t()._is_view(), x.contiguous()._is_view(), x.t().reshape(-1)._is_view()),
        *(torch.einsum("ij,jk->ik", x, x)._base.shape, row._base.sum(), x[0].data._is_view()),
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_one_graph_holds_the_answers(backend: str) -> None:
    compiled = stator.compile(bases, fullgraph=True, backend=backend)
    for x in (torch.randn(3, 3), torch.randn(3, 3, requires_grad=True), torch.randn(4, 3)[1:], torch.randn(3, 3)):
        torch.testing.assert_close(compiled(x), bases(x))


def test_a_write_to_the_base() -> None:
    def program(x: Tensor) -> Tensor:
        view = (x * 2)[0]
        view._base.add_(1)  # type: ignore[union-attr]
        return view * 3

    for backend in ("inductor", "aot_eager"):
        x = torch.randn(2, 3, requires_grad=True)
        torch.testing.assert_close(stator.compile(program, fullgraph=True, backend=backend)(x), program(x))


if __name__ == "__main__":
    chosen = samples(database.names("float32", "".join(sys.argv[1:])), limit=6)
    wrong = 0
    for name, sample in chosen:
        why = differing(sample)
        wrong += why is not None
        if why is not None:
            print(f"{name}: is {why[0]}, eager's {why[1]}", flush=True)
    print(f"{len(chosen)} samples, {wrong} answer otherwise")
