"""The judge tells right from wrong, and the workers outlive what they run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

from stator.coverage import __main__ as command
from stator.coverage import report, workers
from stator.coverage.database import Sample
from stator.coverage.judge import Engine, judge
from stator.coverage.workers import Row, Worker
from tests.coverage import engines


def sample() -> Sample:
    x = torch.linspace(-1, 1, 12, requires_grad=True).detach().requires_grad_()
    leaves, spec = pytree.tree_flatten(((x,), {}))
    return Sample(torch.exp, spec, tuple(leaves))


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [
        (engines.Eager(), "generated"),
        (engines.Products(), "generated"),
        (engines.Extern(), "extern"),
        (engines.Refusing(), "breaks"),
        (engines.Off(), "fails"),
        (engines.Detached(), "fails"),
    ],
)
def test_verdicts(engine: Engine, verdict: str) -> None:
    assert judge(engine, "exp", sample()).verdict == verdict


@pytest.mark.parametrize(("engine", "verdict"), [(engines.Extern(), "extern"), (engines.Off(), "fails")])
def test_complex_results_are_compared_by_their_parts(engine: Engine, verdict: str) -> None:
    z = torch.complex(torch.linspace(-1, 1, 12), torch.linspace(2, 3, 12)).requires_grad_()
    leaves, spec = pytree.tree_flatten(((z,), {}))
    for function in (torch.exp, torch.conj):
        assert judge(engine, "exp", Sample(function, spec, tuple(leaves))).verdict == verdict


@pytest.mark.parametrize(("engine", "verdict"), [(engines.Exact(), "generated"), (engines.Off(), "fails")])
def test_floats_of_whole_numbers_may_be_nearer_than_eagers(engine: Engine, verdict: str) -> None:
    whole = torch.arange(-9, 10)
    leaves, spec = pytree.tree_flatten(((whole,), {}))
    assert not torch.allclose(torch.special.i1(whole), torch.special.i1(whole.double()).float(), rtol=2e-7)
    assert judge(engine, "special.i1", Sample(torch.special.i1, spec, tuple(leaves))).verdict == verdict


def test_a_process_that_dies_or_hangs_is_a_failure_of_its_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATOR_TEST_DEADLY", str(tmp_path / "calls"))
    worker = Worker("tests.coverage.engines:Deadly", timeout=5)
    try:
        row = worker.row("exp", "float32", 3)
    finally:
        worker.stop()
    assert (row["verdict"], row["samples"], row["at"]) == ("fails", 3, [0, 1])
    assert row["why"] == ["the process died", "it took more than 5 s"]


def test_a_device_that_refuses_everything_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TEST_DEADLY", str(tmp_path / "calls"))
    worker = Worker("tests.coverage.engines:Unusable", timeout=60)
    try:
        first = worker.process.pid
        row = worker.row("exp", "float32", 3)
        assert worker.process.pid != first
    finally:
        worker.stop()
    assert (row["verdict"], row["samples"], row["at"]) == ("fails", 3, [0])
    assert row["why"] == ["RuntimeError: it was left unusable"]


def test_entries_are_shared_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By samples, and the rows are what one worker gives."""
    entries = [("exp", "float32"), ("add", "int64")]
    alone = Worker("tests.coverage.engines:Off")
    try:
        wanted = [alone.row(*entry, 0) for entry in entries]
    finally:
        alone.stop()
    monkeypatch.setattr(workers, "SHARE", 2)
    found: list[Row] = []
    workers.run(entries, "tests.coverage.engines:Off", 0, 2, found.append)
    by_entry = {(row["entry"], row["dtype"]): row for row in found}
    assert len(found) == len(entries) and wanted[0]["samples"] > 2 and wanted[1]["samples"] > 4
    for row in wanted:
        same = by_entry[row["entry"], row["dtype"]]
        assert {**row, "seconds": 0} == {**same, "seconds": 0}


@pytest.mark.gpu
def test_an_assertion_on_the_device_is_a_failure_of_its_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TEST_DEADLY", str(tmp_path / "calls"))
    worker = Worker("tests.coverage.engines:OutOfRange", device="cuda")
    try:
        row = worker.row("exp", "float32", 3)
    finally:
        worker.stop()
    assert (row["verdict"], row["samples"], row["at"]) == ("fails", 3, [0])
    assert "device-side assert" in row["why"][0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--device", "cuda"])
    assert ended.value.code == 2 and "finds no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize("device", list(report.PAGES))
def test_a_page_says_which_device_it_is_of(device: str) -> None:
    row = {"entry": "add", "dtype": "float16", "verdict": "generated", "samples": 2, "why": []}
    page = report.page([row], [], device)
    assert report.PAGES[device][0] in page and report.PAGES[device][1] in page
    assert "| float16 | 1 (100.0%) |" in page
