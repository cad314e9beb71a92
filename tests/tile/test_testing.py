"""Timing and comparing: `do_bench`, reports, `assert_close`, and what programs ask of the driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stator.tile as triton
from stator.tile.errors import LaunchError


def test_do_bench_calls_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], [0]

    def call() -> None:
        calls[0] += 1
        now[0] += 0.002 if calls[0] > 1 else 0.005

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    assert triton.testing.do_bench(call, warmup=11, rep=21) == pytest.approx(2.0)
    assert calls[0] == 1 + 2 + 4
    assert triton.testing.do_bench(call, warmup=1, rep=5, return_mode="all") == pytest.approx([2.0, 2.0])
    assert triton.testing.do_bench(call, quantiles=[0.5, 0.2]) == pytest.approx([2.0, 2.0])
    assert triton.testing.do_bench(call, quantiles=[0.5]) == pytest.approx(2.0)
    for mode in ("min", "max", "median", "mean"):
        assert triton.testing.do_bench(call, rep=4, return_mode=mode) == pytest.approx(2.0)
    with pytest.raises(LaunchError, match="no return_mode 'best'"):
        triton.testing.do_bench(call, return_mode="best")


def test_do_bench_clears_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    triton.testing.do_bench(lambda: (x * 2).sum().backward(), warmup=0, rep=0, grad_to_none=[x])
    assert x.grad is not None and x.grad.tolist() == [2.0] * 3


def test_assert_close() -> None:
    triton.testing.assert_close(torch.tensor([1.0, float("nan")]), np.array([1.001, float("nan")]))
    triton.testing.assert_close(torch.ones(3, dtype=torch.bfloat16), [1.0, 1.0, 1.0])
    triton.testing.assert_close(1.0, 1.005)
    for x, y, options in (
        (torch.ones(3), torch.tensor([1.0, 1.0, 1.1]), {}),
        (1.0, 1.1, {"err_msg": "they differ"}),
        (torch.ones(3), torch.ones(3) * 1.001, {"atol": 0.0}),
        (torch.ones(3), torch.ones(4), {}),
    ):
        with pytest.raises(AssertionError):
            triton.testing.assert_close(x, y, **options)


def report() -> Any:
    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["n", "m"], x_vals=[1, (2, 3)], line_arg="way", line_vals=["a", "b"], line_names=["A", "B"],
            ylabel="ms", plot_name="times", args={"base": 10},
        )
    )  # fmt: skip
    def time(n: int, m: int, way: str, base: int, more: int = 0) -> Any:
        value = float(base + n * m + (100 if way == "b" else 0) + more)
        return (value, value, value) if way == "b" else value

    return time


def test_reports(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    table = report().run(print_data=True, save_path=str(tmp_path / "new"), return_df=True, more=1)
    assert table.columns == ["n", "m", "A (ms)", "B (ms)"]
    assert table.rows == [[1, 1, 12.0, 112.0], [2, 3, 17.0, 117.0]]
    assert capsys.readouterr().out.splitlines()[:2] == ["times:", "n  m  A (ms)  B (ms)"]
    assert (tmp_path / "new" / "times.csv").read_text().splitlines()[1] == "1,1,12.0,112.0"
    assert report().run() is None
    with pytest.raises(LaunchError, match="draw no plots"):
        report().run(show_plots=True)


def test_the_driver() -> None:
    active = triton.runtime.driver.active
    assert active.get_active_torch_device() == torch.device("cpu")
    assert active.get_current_target().backend == "cpu" and active.get_current_device() == 0
    assert active.get_benchmarker() is triton.testing.do_bench
    with pytest.raises(LaunchError, match=r"driver\.active\.utils is not supported"):
        active.utils  # noqa: B018


def test_small_functions() -> None:
    assert triton.cdiv(7, 2) == 4 and triton.cdiv(8, 2) == 4
    assert [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 17, 2**40 + 1)] == [0, 1, 2, 4, 32, 2**41]
    with pytest.raises(LaunchError, match="an allocator is a function"):
        triton.set_allocator(3)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="only tensors can be reinterpreted"):
        triton.reinterpret(3, torch.float32)
    with pytest.raises(LaunchError, match="no dtype of the language"):
        triton.reinterpret(torch.zeros(2), "float")
