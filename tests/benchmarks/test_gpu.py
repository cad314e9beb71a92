"""Models on a GPU: how records become tables, what is cut off a model, and a run of it on the host."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.measure import Book, Budget, Job, Plan, Rows, gib
from benchmarks.gpu.models import MODELS, shallow
from benchmarks.gpu.processes import TookTooLong
from benchmarks.gpu.step import COMPILERS, EAGER, FAST, PEER, STATOR, Program, Row
from benchmarks.gpu.table import merge, page, times
from benchmarks.gpu.worker import Session, Spec, root_mean_square
from stator.base import faults

BERT, GPT2 = Row("bert", "inference"), Row("gpt2", "training", True)


def record(row: Row, compiler: str, **figures: object) -> dict[str, object]:
    return {**row._asdict(), "compiler": compiler, "device": "a GPU", **figures}


RECORDS = [
    record(BERT, EAGER, ms=[4.0, 6.0], host=[3.0], cold=0.25),
    record(BERT, STATOR, failed="out of memory", stage="first"),
    record(BERT, STATOR, ms=[2.0, 2.0], host=[1.0], cold=2.0, warm=1.0, error=1e-3, rms=2e-4, peak_mib=100.0),
    record(BERT, STATOR, warm=1.0, jobs=1),
    record(BERT, STATOR, warm=9.0, jobs=14),
    record(BERT, PEER, ms=[3.0, 3.0], host=[2.5], cold=20.0, warm=6.0, error=2e-3, rms=2e-4, peak_mib=110.0),
    record(GPT2, STATOR, ms=[5.0], told=["SlowWarning: slow"], peak_mib=100.0, reserved_mib=300.0),
    record(GPT2, PEER, peak_mib=10.0, reserved_mib=400.0),
    record(GPT2, PEER, failed="RuntimeError: overwritten", stage="calls"),
    record(GPT2._replace(graphs=False), EAGER, ms=[7.0], host=[6.0], error=1e-3, rms=1e-3),
    record(GPT2._replace(graphs=False), FAST, error=1e-3, rms=5e-4),
    record(GPT2._replace(graphs=False), PEER, left_out="errors"),
    record(GPT2._replace(graphs=False), PEER, error=2e-3, rms=1e-3),
    record(GPT2._replace(graphs=False), PEER, left_out="calls"),
]


def test_later_records_complete_earlier_ones() -> None:
    rows = merge(RECORDS)
    plain = GPT2._replace(graphs=False)
    assert set(rows) == {BERT, GPT2, plain} and set(rows[BERT]) == {EAGER, STATOR, PEER}
    assert rows[BERT][STATOR]["warm"] == 1.0  # which was made alone
    assert rows[plain][PEER]["left_out"] == "calls" and rows[plain][PEER]["rms"] == 1e-3
    assert rows[GPT2][EAGER]["ms"] == [7.0] and times(rows[GPT2], EAGER) == 1.4  # it has no CUDA graphs
    assert times(rows[BERT], EAGER) == 2.5 and times(rows[BERT], PEER) == 1.5
    assert math.isnan(times(rows[GPT2], PEER))


def test_tables(golden: Callable[[str, str], None]) -> None:
    golden("gpu", page(merge(RECORDS)) + "\n")


def test_failures_are_records_with_their_traceback(tmp_path: Path) -> None:
    from benchmarks.gpu.processes import WorkerFailed

    book = Book(tmp_path / "records.jsonl", {"torch": "2"})
    with book.failures(BERT, STATOR, "first", tmp_path / "bert.log"):
        raise WorkerFailed("Traceback\n  somewhere\nValueError: wrong\n")
    (kept,) = command.read([tmp_path / "records.jsonl"])
    assert (kept["failed"], kept["stage"], kept["torch"]) == ("ValueError: wrong", "first", "2")
    assert "somewhere" in (tmp_path / "bert.first.failed").read_text()


def test_memory_is_shared_out() -> None:
    budget = Budget(10.0)
    with budget.taking(6.0), budget.taking(4.0):
        assert budget.free == 0.0
    assert budget.free == 10.0 and gib(Row("llama-1b", "training")) > gib(Row("bert", "training"))


def test_shallow_models_keep_two_of_equal_layers() -> None:
    layers = nn.Sequential(nn.Linear(3, 4), *[nn.Linear(4, 4) for _ in range(5)], nn.ReLU(), nn.Linear(4, 2))
    model = shallow(layers)
    assert [tuple(p.shape) for p in model.parameters() if p.dim() == 2] == [(4, 3), (4, 4), (4, 4), (2, 4)]
    assert model(torch.randn(2, 3)).shape == (2, 2)


def test_errors_in_the_mean_square() -> None:
    exact = [torch.tensor([3.0, 4.0]), torch.tensor([0.0])]
    assert root_mean_square([torch.tensor([3.0, 4.5]), torch.tensor([0.0])], exact) == pytest.approx(0.1 / 2**0.5)
    assert root_mean_square(exact[:1], exact) == math.inf


def test_every_model_has_its_rows() -> None:
    options = command.parser().parse_args([])
    rows = command.rows(options)
    assert len(rows) == 4 * len(MODELS) == 60 and [row.graphs for row in rows] == [False] * 30 + [True] * 30


def plan(folder: Path, **given: Any) -> Plan:
    return Plan(COMPILERS, [EAGER, STATOR, PEER], "cuda", folder, folder, 14, 1, 3, 0.1, **given)


def test_what_is_asked_of_a_row(tmp_path: Path) -> None:
    """The compilers side by side; errors of all; with CUDA graphs only what is another there."""
    rows = Rows(plan(tmp_path), Book(None, {}))
    asked = {
        (row, stage): [job.compiler for job in rows._checks(row) if job.stage == stage]
        for row in (BERT, BERT._replace(graphs=True), GPT2._replace(graphs=False), GPT2)
        for stage in ("first", "errors")
    }
    assert list(asked.values()) == [
        *([STATOR, FAST, PEER], [EAGER]),  # whose first calls are compared too
        *([STATOR, FAST, PEER], []),
        *([STATOR, FAST, PEER], [STATOR, FAST, PEER, EAGER]),
        *([], [STATOR, FAST, PEER]),
    ]
    assert [rows.plan.compilers(row) for row in (BERT, GPT2)] == [[EAGER, STATOR, PEER], [STATOR, PEER]]


def test_some_first_calls_are_made_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first rows, as long as the seconds last; then all others."""
    rows = Rows(plan(tmp_path, alone=1.0), Book(None, {}))
    made: list[tuple[int, str, Row, str]] = []

    def done(job: Job) -> None:
        made.append((rows.side_by_side, job.stage, job.row, job.compiler))
        time.sleep(0.6 * (rows.side_by_side == 1))

    monkeypatch.setattr(rows, "_done", done)
    plain = GPT2._replace(graphs=False)
    rows.check([plain, BERT])
    assert made[:3] == [(1, "first", plain, STATOR), (1, "first", plain, FAST), (1, "first", plain, PEER)]
    assert {entry[0] for entry in made[3:]} == {14} and len(made) == len(set(made)) == 11


def test_first_calls_share_the_machine_with_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many at once as is asked for, before all else."""
    rows = Rows(plan(tmp_path, firsts=3), Book(None, {}))
    made: list[tuple[int, str]] = []
    monkeypatch.setattr(rows, "_done", lambda job: made.append((rows.side_by_side, job.stage)))
    rows.check([BERT, GPT2._replace(graphs=False)])
    assert made[:6] == [(3, "first")] * 6 and set(made[6:]) == {(14, "errors")} and len(made) == 11
    assert rows.side_by_side == 3  # of which each has its part of the cores, when calls are timed


def test_caches_with_graphs_are_those_without(tmp_path: Path) -> None:
    rows = Rows(plan(tmp_path), Book(None, {}))
    plain = GPT2._replace(graphs=False)
    assert rows._caches(GPT2, PEER) == rows._caches(plain, PEER) != rows._caches(plain, STATOR)
    assert rows._mark(GPT2, PEER) != rows._mark(plain, PEER)


def test_what_there_is_no_time_for_is_told(tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    rows = Rows(plan(tmp_path, end=0.0), Book(out, {}))
    rows.check([BERT])
    rows.time([BERT])
    told = [(record["compiler"], record["left_out"]) for record in command.read([out])]
    side_by_side = {(STATOR, "first"), (PEER, "first"), (EAGER, "errors"), (FAST, "first")}
    assert set(told[:4]) == side_by_side and told[4:] == [(EAGER, "calls"), (STATOR, "calls"), (PEER, "calls")]
    with Rows(plan(tmp_path), rows.book).book.failures(GPT2, PEER, "first", tmp_path / "log"):
        raise TookTooLong("first took longer than 3 s")
    assert command.read([out])[-1]["left_out"] == "first"


def test_a_run_on_the_host(tmp_path: Path) -> None:
    """Every process starts, compiles, is compared and timed."""
    task = "inference"
    out = tmp_path / "rows.jsonl"
    given = ["distilbert", "--tasks", task, "--graphs", "off", "--device", "cpu", "--scale", "32", "--rounds", "1"]
    given += [
        "--draws",
        "2",
        "--seconds",
        "0.01",
        "--compilers",
        "eager",
        "stator",
        "--out",
        str(out),
        "--logs",
        str(tmp_path),
    ]
    ran = subprocess.run([sys.executable, "-m", "benchmarks.gpu", *given], capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "| distilbert |" in ran.stdout, ran.stdout + ran.stderr
    found = merge([json.loads(line) for line in out.read_text().splitlines()])[Row("distilbert", task)]
    assert {"cold", "warm", "ms", "host", "error"} <= set(found[STATOR]) and "failed" not in found[STATOR]
    assert "cold" in found[EAGER]
    means = found[STATOR]["of_draws"]
    assert len(means) == 2 and means[0] != means[1] and max(means) < 5e-2
    assert found[STATOR]["rms"] == sum(means) / 2


def test_what_ran_in_eager_is_no_figure_of_a_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = faults.Fault("compile", "BertModel.forward", None, "ValueError: too many values")
    for count in (0, 1):
        monkeypatch.setattr(faults, "total", lambda count=count: count)
        monkeypatch.setattr(faults, "recent", lambda: [fault])
        Session(Spec(BERT, EAGER, "cpu"))._check_faults()
        told = pytest.raises(RuntimeError, match=r"eager ran: compile of BertModel.forward: ValueError: too many")
        with told if count else nullcontext():
            Session(Spec(BERT, FAST, "cpu"))._check_faults()


def test_a_program_takes_the_weights_and_inputs_of_another_draw() -> None:
    row = Row("distilbert", "inference")
    one, other = (Program(row, EAGER, "cpu", scale=32, draw=draw) for draw in (0, 1))
    one.compile()
    other.compile()
    before, want = one.step(), other.step()
    one.take(other)
    for got, wanted, old in zip(one.step(), want, before, strict=True):
        assert torch.equal(got, wanted) and not torch.equal(got, old)
