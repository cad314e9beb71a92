"""Attention whose scores a function of the program changes: one kernel, which has no scores in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stator.graphs.scores import ATTEND, SCORES
from stator.kernel.attention import Rows
from stator.loop.kernel import Launch, Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace
from tests.codegen import tiled
from tests.codegen.test_attention import close, heads
from tests.codegen.test_attention import exact as attention_exact

#: Batches, heads of queries, heads of keys, rows of queries, rows of keys, elements of a row.
SIZES = 2, 4, 2, 24, 30, 32
SLOPES, TABLE = torch.rand(4), torch.randn(4, 24, 30)
WORDS = torch.randint(0, 3, (30,))
#: A GPU whose text has no instructions of its own, which a CPU runs.
RECORD = replace(typical("cuda", 2), assembly="")


def places() -> tuple[Tensor, Tensor, Tensor]:
    """Heads, rows of queries and rows of keys."""
    return torch.arange(4)[:, None, None], torch.arange(24)[:, None], torch.arange(30)


def sloped(scores: Tensor) -> Tensor:
    _, m, n = places()
    return scores + SLOPES[:, None, None] * (n - m)


def capped(scores: Tensor) -> Tensor:
    return torch.tanh(scores / 2) * 2 + TABLE


def masked(scores: Tensor) -> Tensor:
    _, m, n = places()
    return torch.where((m >= n - 3) & (m != 5), scores * 2, -torch.inf)


CHANGES = {"sloped": sloped, "capped": capped, "masked": masked}


def tensors(dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    batches, count, shared, queries, keys, width = SIZES
    sizes = (count, queries, True), (shared, keys, False), (shared, keys, True)
    return [heads(batches, many, rows, width, dtype, inside) for many, rows, inside in sizes]


def attended(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        plain = SCORES(q, k, 0.3)
        return ATTEND(change(plain), plain, q, k, v, 0.3)

    return fn


def scheduled(fn: Callable[..., Any], *inputs: Tensor) -> tuple[Schedule, list[Tensor]]:
    gm, given = trace(fn, inputs, DECOMPOSITIONS)
    return schedule(lower(tiled.on_a_device(gm), "test", RECORD), RECORD), given


def exact(change: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.double().repeat_interleave(2, 1) for x in (k, v))
    return torch._safe_softmax(change(q.double() @ k.mT * 0.3), -1) @ v


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_one_kernel(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    given = tensors(dtype)
    made, inputs = scheduled(attended(CHANGES[name]), *given)
    assert len(made.steps) == 1 and not [b for b in made.buffers.values() if tuple(b.size) == (2, 4, 24, 30)]
    (found,) = tiled.run(made, inputs, tmp_path, record=RECORD)
    close(found, exact(CHANGES[name], *given))


def behind(scores: Tensor) -> Tensor:
    return torch.where(torch.arange(40)[:, None] >= torch.arange(40), scores, -torch.inf)


def near(scores: Tensor) -> Tensor:
    m, n = torch.arange(40)[:, None], torch.arange(40)
    return torch.where((n <= m) & (m - n < 9), torch.tanh(scores), -torch.inf)


def before(scores: Tensor) -> Tensor:
    return torch.where(torch.arange(40) < torch.arange(40)[:, None], scores * 2, -torch.inf)


def ahead(scores: Tensor) -> Tensor:
    return torch.where(torch.arange(40) <= torch.arange(40)[:, None] + 1, scores, -torch.inf)


@pytest.mark.parametrize(("change", "causal", "plain"), [(behind, 1, 1), (near, 1, 0), (before, 1, 0), (ahead, 0, 0)])
def test_what_is_behind_the_diagonal_is_not_walked(
    change: Callable[[Tensor], Tensor], causal: int, plain: int, tmp_path: Path
) -> None:
    """A mask that no row sees a later one by is part of how blocks are walked, whatever else it says."""
    given = [heads(2, count, 40, 32, torch.bfloat16) for count in (4, 2, 2)]
    made, inputs = scheduled(attended(change), *given)
    (kernel,) = made.kernels
    assert kernel.attention is not None
    assert kernel.attention.causal == bool(causal) and (kernel.attention.score is None) == bool(plain)
    shapes = {kernel: Rows(16, 16, 2, 1)}
    close(tiled.run(made, inputs, tmp_path, shapes, RECORD)[0], exact(change, *given))


def test_a_mask_as_a_bias_is_the_diagonal_too(tmp_path: Path) -> None:
    """As `scaled_dot_product_attention` makes one of a mask."""
    q, k, v = (heads(2, 2, 40, 32, torch.bfloat16) for _ in range(3))

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        kept = torch.arange(40)[:, None] >= torch.arange(40)
        bias = torch.where(kept, 0.0, -torch.inf).to(q.dtype).expand(2, 2, 40, 40)
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, False)[0]

    made, inputs = scheduled(fn, q, k, v)
    (kernel,) = made.kernels
    assert kernel.attention is not None and kernel.attention.causal and kernel.attention.score is None
    wide = [x.double() for x in (q, k, v)]
    shapes = {kernel: Rows(16, 16, 2, 1)}
    close(tiled.run(made, inputs, tmp_path, shapes, RECORD)[0], attention_exact(*wide, None, True, None)[0])


def test_scores_that_something_else_reads_are_in_memory(tmp_path: Path) -> None:
    """Beside those of the kernel, which are the same."""
    given = tensors()

    def both(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        plain = SCORES(q, k, 0.3)
        return ATTEND(sloped(plain), plain, q, k, v, 0.3), plain.amax(-1)

    made, inputs = scheduled(both, *given)
    assert all(isinstance(step, Launch) for step in made.steps)
    found, most = tiled.run(made, inputs, tmp_path, record=RECORD)
    close(found, exact(sloped, *given))
    q, k = (x.double() for x in given[:2])
    close(most, (q @ k.repeat_interleave(2, 1).mT * 0.3).amax(-1))


def test_a_reduction_of_scores_is_a_kernel_before(tmp_path: Path) -> None:
    def change(scores: Tensor) -> Tensor:
        return scores - scores.amax(-1, keepdim=True) * 0.5

    given = tensors()
    made, inputs = scheduled(attended(change), *given)
    assert len(made.steps) == 3
    close(tiled.run(made, inputs, tmp_path, record=RECORD)[0], exact(change, *given))


@pytest.mark.parametrize("change", [lambda scores: scores + SLOPES[WORDS], lambda scores: scores.flip(-1)])
def test_what_is_not_of_each_product_is_eager_s(change: Callable[[Tensor], Tensor]) -> None:
    """A look-up, or another place: the operator runs, on scores in memory."""
    made, _ = scheduled(attended(change), *tensors())
    externs = [step.extern.target for step in made.steps if not isinstance(step, Launch)]
    assert externs == ["stator.attend.default"], made.text()


def test_operators_are_eager_s_formula() -> None:
    for change in CHANGES.values():
        given = tensors(torch.float16)
        close(attended(change)(*given), exact(change, *given))
