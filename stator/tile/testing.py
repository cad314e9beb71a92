"""Timing and comparing what programs compute: `do_bench`, tables of timings, `assert_close`.

Times are of this process's clock, in milliseconds, since kernels run on the CPU; what needs a GPU is refused.
Neighbours: `autotune.py` times configurations with `do_bench`.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stator.tile.errors import LaunchError

_MODES: dict[str, Callable[[Sequence[float]], Any]] = {
    "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median, "all": list,
}  # fmt: skip


def _milliseconds(fn: Callable[[], Any]) -> float:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # what a GPU does goes on when a launch has returned
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        fn()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    fn()
    return 1000 * (time.perf_counter() - start)


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """How long a call takes, in milliseconds: by `return_mode`, or as many quantiles as are asked for."""
    if return_mode not in _MODES:
        raise LaunchError(f"there is no return_mode {return_mode!r}", "valid: " + ", ".join(_MODES))
    first = _milliseconds(fn)
    for _ in range(_times(warmup, first)):
        fn()
    times = []
    for _ in range(_times(rep, first)):
        for item in grad_to_none or ():
            item.grad = None
        times.append(_milliseconds(fn))
    if quantiles is not None:
        found = [float(value) for value in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return _MODES[return_mode](times)


def _times(milliseconds: float, one: float) -> int:
    return max(1, int(milliseconds / max(one, 1e-3)))


def _array(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if "float" in str(value.dtype) and value.element_size() < 4 else value
        return value.numpy()
    return np.asarray(value)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Fails unless two tensors, arrays or numbers have one shape and close values; a NaN is close to a NaN."""
    left, right = _array(x), _array(y)
    atol, rtol = 1e-2 if atol is None else atol, 0.0 if rtol is None else rtol
    if left.size > 1 or right.size > 1:
        np.testing.assert_allclose(left, right, atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)
    elif not np.allclose(left, right, atol=atol, rtol=rtol, equal_nan=True):
        raise AssertionError(f"{err_msg} {left} is not close to {right} (atol={atol}, rtol={rtol})".strip())


# ---- tables of timings


@dataclass
class Benchmark:
    """What a report varies: the arguments `x_names` along its rows, `line_arg` along its columns."""

    x_names: list[str]
    x_vals: list[Any]
    line_arg: str
    line_vals: list[Any]
    line_names: list[str]
    plot_name: str
    args: dict[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: list[tuple[str, str]] | None = None

    def points(self) -> list[dict[str, Any]]:
        """The arguments of each row."""
        found = []
        for value in self.x_vals:
            values = value if isinstance(value, list | tuple) else [value] * len(self.x_names)
            if len(values) != len(self.x_names):
                raise LaunchError(f"{self.plot_name}: {value!r} is not {len(self.x_names)} values")
            found.append(dict(zip(self.x_names, values, strict=True)))
        return found


@dataclass
class Table:
    """A report's numbers: rows under columns."""

    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)

    def __str__(self) -> str:
        texts = [[f"{item:.6g}" if isinstance(item, float) else str(item) for item in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *texts, strict=True)]
        lines = [self.columns, *texts]
        padded = [[item.rjust(width) for item, width in zip(line, widths, strict=True)] for line in lines]
        return "\n".join("  ".join(line) for line in padded)

    def to_csv(self, path: Path) -> None:
        """Writes the table as a file of comma-separated values."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.columns, *self.rows])


class Mark:
    """A function that is timed by reports."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **named: Any,
    ) -> Any:
        """Times every row and column; prints the tables, writes them as CSV, or gives them."""
        if show_plots:
            raise LaunchError("reports draw no plots", "use print_data=True, or save_path for files of numbers")
        several = not isinstance(self.benchmarks, Benchmark)
        benchmarks = list(self.benchmarks) if not isinstance(self.benchmarks, Benchmark) else [self.benchmarks]
        tables = [self._table(benchmark, named) for benchmark in benchmarks]
        for benchmark, table in zip(benchmarks, tables, strict=True):
            if print_data:
                print(f"{benchmark.plot_name}:\n{table}")
            if save_path:
                Path(save_path).mkdir(parents=True, exist_ok=True)
                table.to_csv(Path(save_path) / f"{benchmark.plot_name}.csv")
        return (tables if several else tables[0]) if return_df else None

    def _table(self, benchmark: Benchmark, named: Mapping[str, Any]) -> Table:
        unit = f" ({benchmark.ylabel})" if benchmark.ylabel else ""
        table = Table([*benchmark.x_names, *[f"{name}{unit}" for name in benchmark.line_names]])
        for point in benchmark.points():
            row: list[Any] = list(point.values())
            for line in benchmark.line_vals:
                found = self.fn(**point, **{benchmark.line_arg: line}, **benchmark.args, **named)
                row.append(found[0] if isinstance(found, list | tuple) else found)
            table.rows.append(row)
        return table


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Makes a function of a benchmark's arguments one that is timed by `.run()`."""
    return lambda fn: Mark(fn, benchmarks)


def _refuse(name: str) -> Any:
    raise LaunchError(f"testing.{name} is not supported: it asks a GPU, and kernels run on the CPU")


def do_bench_cudagraph(fn: Callable[[], Any], **named: Any) -> Any:
    """Refused: times a CUDA graph."""
    return _refuse("do_bench_cudagraph")


def get_dram_gbps(device: Any = None) -> Any:
    """Refused: the bandwidth of a GPU's memory."""
    return _refuse("get_dram_gbps")


def get_max_tensorcore_tflops(dtype: Any, clock_rate: Any, device: Any = None) -> Any:
    """Refused: the peak of a GPU's tensor cores."""
    return _refuse("get_max_tensorcore_tflops")


def get_max_simd_tflops(dtype: Any, clock_rate: Any, device: Any = None) -> Any:
    """Refused: the peak of a GPU's vector units."""
    return _refuse("get_max_simd_tflops")


def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> Any:
    """Refused: fixes a GPU's clocks."""
    return _refuse("set_gpu_clock")


def cuda_memcheck(**target_kwargs: Any) -> Any:
    """Refused: runs a test under a checker of GPUs' memory."""
    return _refuse("cuda_memcheck")


def nvsmi(attrs: Sequence[str]) -> Any:
    """Refused: asks a GPU's driver."""
    return _refuse("nvsmi")
