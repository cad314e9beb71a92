"""Autotuning and heuristics: what is timed, kept, pruned, reset and restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.errors import AutotunerError, LaunchError


def bench(times: dict[int, float], runs: list[int]) -> Callable[..., Any]:
    """A `do_bench` that calls once and says what a table says for the block that has run last."""

    def time(call: Callable[[], None], quantiles: Any) -> list[float]:
        call()
        return [times[runs[-1]]] * 3

    return time


def tuned(runs: list[int], times: dict[int, float] | None = None, hook: Any = None, **options: Any) -> Any:
    """A kernel that adds 1, and notes the block of each run."""
    configs = [triton.Config({"BLOCK": size}, num_warps=size // 4, pre_hook=hook) for size in (4, 8, 16)]
    options.setdefault("do_bench", bench(times or {4: 3.0, 8: 1.0, 16: 2.0}, runs))

    @triton.autotune(configs=configs, key=["n"], **options)
    @triton.heuristics({"EVEN": lambda args: runs.append(args["BLOCK"]) or args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(x + i, tl.load(x + i) + 1)
        else:
            tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    return kernel


def launch(kernel: Any, x: torch.Tensor) -> Any:
    return kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, len(x))


@pytest.mark.usefixtures("way")
def test_the_fastest_configuration_is_kept_for_a_key() -> None:
    runs: list[int] = []
    kernel, x = tuned(runs), torch.zeros(20)
    launch(kernel, x)
    assert runs == [4, 8, 16, 8] and x.tolist() == [4.0] * 20
    assert kernel.best_config.kwargs == {"BLOCK": 8} and kernel.best_config.num_warps == 2
    launch(kernel, x)
    assert runs == [4, 8, 16, 8, 8] and len(kernel.cache) == 1
    launch(kernel, torch.zeros(24))
    launch(kernel, torch.zeros(20, dtype=torch.float64))
    assert len(kernel.cache) == 3 and [time[0] for time in kernel.configs_timings.values()] == [3.0, 1.0, 2.0]


def test_what_runs_change_is_reset_or_restored() -> None:
    for options, expected in (({"reset_to_zero": ["x"]}, 1.0), ({"restore_value": ["x"]}, 6.0)):
        x = torch.full((16,), 5.0)
        launch(tuned([], **options), x)
        assert x.tolist() == [expected] * 16


def test_hooks() -> None:
    seen: list[Any] = []
    options = {
        "pre_hook": lambda args, reset_only=False: seen.append(("before", reset_only)),
        "post_hook": lambda args, exception: seen.append(("after", exception)),
    }
    launch(tuned([], hook=lambda args: seen.append(args["BLOCK"]), **options), torch.zeros(16))
    once = [("before", False), ("after", None)]
    assert seen == [4, *once, 8, *once, 16, *once, ("before", True), 8]


def test_configurations_are_pruned() -> None:
    runs: list[int] = []
    early = {"early_config_prune": lambda configs, args, **meta: [c for c in configs if c.kwargs["BLOCK"] != 8]}
    launch(tuned(runs, prune_configs_by=early), torch.zeros(16))
    assert runs == [4, 16, 16]
    runs.clear()
    model = {"perf_model": lambda BLOCK, **others: -BLOCK, "top_k": 2}
    launch(tuned(runs, prune_configs_by=model), torch.zeros(16))
    assert runs == [16, 8, 8]
    with pytest.raises(AutotunerError, match="leaves no configuration of kernel"):
        launch(tuned([], prune_configs_by={"early_config_prune": lambda *_, **__: []}), torch.zeros(16))
    with pytest.raises(AutotunerError, match="top_k is a part"):
        launch(tuned([], prune_configs_by={**model, "top_k": 1.5}), torch.zeros(16))


def test_results_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("STATOR_CACHE_DIR", str(tmp_path))
    runs: list[int] = []
    launch(tuned(runs, cache_results=True), torch.zeros(16))
    assert runs == [4, 8, 16, 8]
    runs.clear()
    again = tuned(runs, cache_results=True)
    launch(again, torch.zeros(16))
    assert runs == [8] and again.configs_timings[again.best_config] == [1.0] * 3
    runs.clear()
    launch(tuned(runs, cache_results=True, hook=lambda args: None), torch.zeros(16))
    assert runs == [4, 8, 16, 8]


def test_configurations_that_cannot_be_used_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(call: Callable[[], None], quantiles: Any) -> list[float]:
        raise triton.OutOfResources(100, 50, "shared memory")

    with pytest.raises(AutotunerError, match="no configuration of kernel can be used"):
        launch(tuned([], do_bench=failing), torch.zeros(16))


def test_what_autotune_refuses() -> None:
    with pytest.raises(LaunchError, match="no parameter 'm'"):
        triton.autotune([triton.Config({"BLOCK": 4})], key=["m"])(tuned([]).fn)
    with pytest.raises(LaunchError, match="BLOCK is both passed and tuned"):
        tuned([])[(1,)](torch.zeros(16), 16, BLOCK=4)
    with pytest.raises(LaunchError, match="use_cuda_graph is not supported"):
        triton.autotune([], key=[], use_cuda_graph=True)
    with pytest.raises(LaunchError, match="ir_override is not supported"):
        triton.Config({}, ir_override="x")


def test_configurations_compare_by_what_they_say() -> None:
    a, b = triton.Config({"A": 1}, num_warps=8), triton.Config({"A": 1}, num_warps=8)
    assert a == b and hash(a) == hash(b) and a != triton.Config({"A": 1})
    assert str(a) == "A: 1, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"
    assert a.all_kwargs() == {"A": 1, "num_warps": 8, "num_ctas": 1, "num_stages": 3}


def test_one_configuration_is_not_timed() -> None:
    calls: list[int] = []

    @triton.autotune([triton.Config({"BLOCK": 4})], key=["n"], do_bench=lambda *_, **__: calls.append(1))
    @triton.jit
    def kernel(x, n, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), n)

    x = torch.zeros(4)
    kernel[(1,)](x, 7)
    assert x.tolist() == [7.0] * 4 and not calls
    assert "ptr[f32]" in kernel.warmup(x, 7, grid=(1,))[0].asm["tir"]
