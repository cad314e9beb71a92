"""The table of models: its figures, its text, the processes that it asks, and the models of the registry."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.models.__main__ import read, tables
from benchmarks.models.measure import Cores, measure
from benchmarks.models.peers import MODES, exact_results, make_step
from benchmarks.models.processes import Peak, Worker, WorkerFailed
from benchmarks.models.table import LayersRow, Row, mean, ratio, slope
from benchmarks.registry import MODELS, build
from benchmarks.worker import error

BERT = Row(
    "bert",
    "inference",
    {"eager": [4.0, 6.0, 8.0], "stator": [2.0, 2.0, 4.0], "torch.compile": [3.0, 3.0, 3.0]},
    {"stator": 2.0, "torch.compile": 30.0},
    {"stator": 1.0, "torch.compile": 6.0},
    {"stator": 100.0, "torch.compile": 300.0},
    {"stator": 1e-6, "torch.compile": 2e-6},
    {"stator": ["SlowWarning: slow"]},
)
ALONE = Row("gpt2", "inference", {"stator": [1.0]}, {"stator": 2.0}, failed={"torch.compile": "first\nit broke"})


def test_speed_is_the_median_of_pairs() -> None:
    assert BERT.ms("eager") == 6.0
    assert BERT.speed("eager") == 2.0 and BERT.speed("torch.compile") == 1.5
    assert math.isnan(ALONE.speed("eager")) and math.isnan(ratio(ALONE.cold))
    assert ratio(BERT.cold) == 15.0


def test_means_leave_out_what_is_missing() -> None:
    assert mean([2.0, 8.0, math.nan]) == pytest.approx(4.0)
    assert math.isnan(mean([]))


def test_slope() -> None:
    assert slope({1: 2.0, 6: 4.5, 12: 7.5}) == pytest.approx(0.5)
    assert math.isnan(slope({1: 2.0}))


def test_tables_of_files(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Of two rows of a model the later counts; models stand as in the registry; losses and failures are shown."""
    layers = [LayersRow(n, "training", {"stator": 1.0 + n / 10, "torch.compile": 2.0 * n}) for n in (1, 6)]
    for number, rows in enumerate([[BERT._replace(cold={}), *layers], [BERT, ALONE]]):
        text = "".join(json.dumps({"threads": 2, "row": row._asdict()}) + "\n" for row in rows)
        (tmp_path / f"{number}.jsonl").write_text(text, encoding="utf-8")
    golden("tables", tables(read([tmp_path / "0.jsonl", tmp_path / "1.jsonl"])))


def test_the_registry_has_twenty_models() -> None:
    assert len(MODELS) >= 20
    assert all(entry.name == name for name, entry in MODELS.items())


@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_in_every_mode(name: str) -> None:
    """It gives numbers that are neither nothing nor infinite, and gradients of what it trains."""
    for mode in MODES:
        found = make_step("eager", name, "tiny", mode, dropout=False)()
        assert found and all(value.isfinite().all() for value in found), mode
        limit = 0.1 if mode == "bfloat16" else 1e-3
        assert error(found, exact_results(name, "tiny", mode, dropout=False)) < limit, mode
        if mode == "training":
            assert len(found) > sum(1 for _ in build(name, "tiny").parameters()) / 2


def test_a_worker_answers(tmp_path: Path) -> None:
    with Worker(["--model", "bert", "--size", "tiny"], tmp_path, 1) as worker:
        assert worker.ask("first")["seconds"] > 0
        assert all(ms > 0 for ms in worker.ask("calls 0.01"))
        worker.ask(f"save {tmp_path / 'results'}")
        (found,) = worker.ask(f"judge {tmp_path / 'results'}")
        assert 0 < found < 1e-4


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    with (
        Worker(["--model", "nothing"], tmp_path, 1) as worker,
        pytest.raises(WorkerFailed, match="KeyError: 'nothing'"),
    ):
        worker.ask("first")


def test_memory_of_processes_below_counts() -> None:
    """64 MiB in a process and 64 MiB in its child, for the third of a second."""
    hold = "x = bytearray(b'1') * (64 << 20); import time; time.sleep(0.4)"
    code = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {hold!r}]); {hold}; child.wait()"
    parent = subprocess.Popen([sys.executable, "-c", f"input(); {code}"], stdin=subprocess.PIPE, env=dict(os.environ))
    with Peak(parent.pid) as peak:
        parent.communicate(b"\n")
    assert 128 <= peak.most() < 192 and peak.most(0.0) == 0.0


def test_steps_of_one_model_are_the_same() -> None:
    first, second = (make_step("eager", "vit", "tiny", "inference")() for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_caches_that_are_kept_make_first_calls_warm(tmp_path: Path) -> None:
    with Cores(1, 1) as pool:
        cold, warm = (
            measure(
                [("bert", "inference")],
                ["eager", "stator"],
                "tiny",
                1,
                pool,
                caches=tmp_path,
                rounds=count,
                brief=brief,
            )[0]
            for count, brief in ((1, False), (2, True))
        )
    assert cold.cold["stator"] > 0 and cold.warm["stator"] > 0 and not cold.failed
    assert not warm.cold and warm.warm["stator"] > 0 and not warm.failed
    assert [len(row.rounds["stator"]) for row in (cold, warm)] == [1, 2]
    assert cold.error and not warm.error


def test_memory_of_compiling_is_without_gradients(tmp_path: Path) -> None:
    with Cores(1, 1) as pool:
        (row,) = measure([("bert", "training")], ["stator"], "tiny", 1, pool, caches=tmp_path, rounds=1, brief=True)
    assert 0 < row.compiling["stator"] <= row.memory["stator"]
