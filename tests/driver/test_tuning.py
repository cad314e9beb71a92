"""Products by measurement: what is timed, that both ways compute the same, and that nobody measures twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator import tuning
from stator.base import log
from stator.base.errors import WithoutEffect

CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (torch.randn(70, 33), torch.randn(40, 33), torch.randn(40))),
    "scores": (lambda q, k: (q @ k.mT * 0.5).softmax(-1), (torch.randn(6, 17, 24), torch.randn(6, 19, 24))),
    "residual": (lambda x, w: x + x @ w, (torch.randn(65, 32), torch.randn(32, 32))),
}


def run(name: str, folder: Path, taken: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The explanation of a case and its result in float64, with one way measured to take a hundredth of the other."""
    times = [1e-6, 1e-4] if taken == "loop" else [1e-4, 1e-6]
    monkeypatch.setattr(
        tuning, "in_turn", lambda ways, clock: [way() and time for way, time in zip(ways, times, strict=True)]
    )
    function, given = CASES[name]
    options = {"autotune": True, "cache_dir": str(folder)}
    explained = stator.explain(function, options=options)(*given)
    return explained, function(*[x.double() for x in given])


@pytest.mark.parametrize("taken", ["loop", "library"])
@pytest.mark.parametrize("name", CASES)
def test_what_was_faster_is_taken(name: str, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explained, exact = run(name, tmp_path, taken, monkeypatch)
    assert len(explained.externs) == (taken == "library")
    (told,) = explained.products
    assert told.endswith(": a loop" if taken == "loop" else ": the library")
    assert told in " ".join(str(explained).split())
    torch.testing.assert_close(explained.result.double(), exact, rtol=1e-4, atol=1e-4)


def test_all_that_is_computed_of_a_product_is_timed_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads it several times too, and up to what another operator reads."""
    monkeypatch.setattr(tuning, "in_turn", lambda ways, clock: [1e-6, 1e-4])

    def readers(fn: Callable[..., Any], *given: Tensor) -> list[str]:
        told = stator.explain(fn, options={"autotune": True, "cache_dir": str(tmp_path)})(*given).products
        return [line.partition(":")[0].split("float32")[1].split() for line in told]

    x, w = torch.randn(65, 32), torch.randn(32, 40)
    assert readers(lambda x, w: F.silu(x @ w), x, w) == [["neg", "exp", "add", "div"]]
    assert readers(lambda x, w: (x @ w).exp().sum(1), x, w) == [["exp"]]
    assert readers(lambda x, w: (x @ w).exp() + (x @ w).sum(1, True), x, w) == [["exp"]]


def test_nobody_measures_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found stays, for other graphs too; a product of other sizes is measured."""
    run("residual", tmp_path, "loop", monkeypatch)

    def other(x: Tensor, w: Tensor) -> Tensor:
        return (x + x @ w).sum(0)

    calls: list[Any] = []
    monkeypatch.setattr(tuning, "in_turn", lambda ways, clock: calls.append(ways) or [1e-6, 1e-4])
    options = {"autotune": True, "cache_dir": str(tmp_path)}
    _, (x, w) = CASES["residual"]
    explained = stator.explain(other, options=options)(x, w)
    assert explained.products and not explained.externs and not explained.cache_hits and not calls
    stator.explain(other, options=options)(x[:60], w)
    assert len(calls) == 1


def test_it_is_said_where_there_is_nothing_to_measure(tmp_path: Path) -> None:
    options = {"autotune": True, "cpu_kernels": "c", "strict": True, "cache_dir": str(tmp_path)}
    with pytest.raises(WithoutEffect, match="no effect in plain C"):
        stator.compile(CASES["residual"][0], options=options)(*CASES["residual"][1])


def test_without_memory_the_rule_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate 9 GiB")

    monkeypatch.setattr(tuning._Part, "arguments", full)
    function, given = CASES["residual"]
    with log.collect() as recorder:
        explained = stator.explain(function, options={"autotune": True, "cache_dir": str(tmp_path)})(*given)
    assert not explained.products
    assert any("not timed: tried to allocate 9 GiB" in note["text"] for note in recorder.of(log.NOTE))
    torch.testing.assert_close(explained.result, function(*given), rtol=1e-4, atol=1e-4)
