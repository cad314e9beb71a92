"""Processes that compile: how many there are, what becomes of them, and of their jobs. Here they compile nothing."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stator.targets.cuda import worker
from stator.targets.cuda import workers as pool
from stator.targets.cuda.workers import WorkerDied, Workers

#: Answers a job with itself and the worker's number; a job may ask for seconds, or for the worker's end.
PROGRAM = """
    import os, sys, time
    sys.path.insert(0, {folder!r})
    import worker

    def answer(job):
        if job.get("ends"):
            os._exit(3)
        time.sleep(job.get("seconds", 0))
        return {{**job, "worker": os.getpid(), "torch": "torch" in sys.modules}}

    worker.answer = answer
    worker.prepare = lambda target: {prepared}
    worker.main()
"""
TARGET = ("none", 0, 1)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    made: list[Workers] = []

    def make(most: int = 2, prepared: str = "None") -> Workers:
        program = tmp_path / f"program{len(made)}.py"
        program.write_text(textwrap.dedent(PROGRAM).format(folder=str(pool.PROGRAM.parent), prepared=prepared))
        monkeypatch.setattr(pool, "PROGRAM", program)
        made.append(Workers(TARGET, most))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ask(workers: Workers, count: int = 1, **job: Any) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    futures = [workers.submit({"number": i, **job}, taken.append) for i in range(count)]
    found = [future.result(20) for future in futures]
    assert sorted(found, key=str) == sorted(taken, key=str)
    return found


def test_workers_are_few_and_take_one_job_after_the_other(make: Callable[..., Workers]) -> None:
    workers = make(2)
    found = ask(workers, 20, seconds=0.01)
    assert [answer["number"] for answer in found] == list(range(20))
    assert len({answer["worker"] for answer in found}) == 2 and not any(answer["torch"] for answer in found)
    assert ask(workers)[0]["worker"] in {answer["worker"] for answer in found}


def test_cores_are_shared_by_the_processes_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(24))
    for processes, most in (("", 24), ("8", 3), ("100", 1), ("0", 24), ("many", 24)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert Workers(TARGET).most == most
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(500))
    assert Workers(TARGET).most == pool.MOST_WORKERS


def test_one_job_after_the_other_is_one_worker(make: Callable[..., Workers]) -> None:
    workers = make(8)
    assert len({ask(workers)[0]["worker"] for _ in range(5)}) == 1


def test_a_server_that_is_expected_is_the_one_that_is_used(make: Callable[..., Workers]) -> None:
    workers = make()
    workers.expect()
    server = workers._server
    assert server is not None
    ask(workers)
    workers.expect()
    assert workers._server is server and server.poll() is None


def test_a_job_that_ends_its_worker_ends_no_other(make: Callable[..., Workers]) -> None:
    workers = make(1)
    bad = workers.submit({"ends": True}, print)
    good = [workers.submit({"number": i}, lambda answer: None) for i in range(3)]
    with pytest.raises(WorkerDied):
        bad.result(20)
    assert [future.result(20)["number"] for future in good] == [0, 1, 2]


def test_a_worker_that_was_ended_while_idle_costs_no_job(make: Callable[..., Workers]) -> None:
    workers = make(1)
    first = ask(workers)[0]["worker"]
    os.kill(first, signal.SIGKILL)
    time.sleep(0.1)
    assert ask(workers)[0]["worker"] != first


def test_a_server_that_was_ended_is_started_again(make: Callable[..., Workers]) -> None:
    workers = make(1)
    first = ask(workers)[0]["worker"]
    assert workers._server is not None
    workers._server.kill()
    workers._server.wait()
    os.kill(first, signal.SIGKILL)
    time.sleep(0.1)
    assert ask(workers)[0]["worker"] != first


def test_what_cannot_be_started_fails_each_job(make: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch) -> None:
    futures = [make(2, "sys.exit(1)").submit({"number": i}, print) for i in range(4)]
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    futures += [make(2).submit({"number": i}, print) for i in range(4)]
    for future in futures:
        with pytest.raises(WorkerDied):
            future.result(20)


def test_who_has_nothing_to_do_ends(make: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    workers = make(2)
    found = {answer["worker"] for answer in ask(workers, 4, seconds=0.02)}
    for _ in range(100):
        if workers._server is None:
            break
        time.sleep(0.05)
    assert workers._server is None and not workers._connections
    assert ask(workers)[0]["worker"] not in found


def test_nobody_outlives_the_program(make: Callable[..., Workers]) -> None:
    workers = make(2)
    found = {answer["worker"] for answer in ask(workers, 6, seconds=0.01)}
    workers.close()
    for _ in range(100):
        if not any(Path(f"/proc/{number}").exists() for number in found):
            break
        time.sleep(0.05)
    assert not any(Path(f"/proc/{number}").exists() for number in found)


def test_no_place_for_an_answer_is_an_error_of_its_job_alone(make: Callable[..., Workers]) -> None:
    def take(answer: dict[str, Any]) -> None:
        raise OSError("no space left")

    workers = make(1)
    failing, fine = workers.submit({}, take), workers.submit({}, lambda answer: None)
    with pytest.raises(OSError, match="no space left"):
        failing.result(20)
    assert fine.result(20)["worker"]


def test_a_forked_child_has_its_own(make: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    monkeypatch.setattr(pool, "_all", {})
    mine = pool.workers(TARGET)
    before = ask(mine)[0]["worker"]
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, which the child has not
        child = os.fork()
    if child == 0:
        own = pool.workers(TARGET)
        os.write(write, f"{own is mine} {ask(own)[0]['worker']}".encode())
        own.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        same, number = told.read().split()
    assert os.waitpid(child, 0)[1] == 0
    assert same == "False" and int(number) != before == ask(mine)[0]["worker"]
    mine.close()


@pytest.mark.parametrize(("stages", "compiled"), [(4, [4, 3]), (3, [3]), (9, [9, 8, 7, 6, 5, 4, 3]), (None, [None])])
def test_a_kernel_has_no_more_stages_than_shared_memory_holds(
    monkeypatch: pytest.MonkeyPatch, stages: int | None, compiled: list[int | None]
) -> None:
    tried: list[int | None] = []

    def compiling(job: dict[str, Any]) -> dict[str, Any]:
        options = job["launch"]["options"]
        tried.append(options.get("num_stages"))
        assert options["num_warps"] == 8 and job["launch"]["types"] == ("*fp32",)
        return {"shared": 70_000 * (tried[-1] or 5)}

    monkeypatch.setattr(worker, "_compiled", compiling)
    options = {"num_warps": 8} | ({} if stages is None else {"num_stages": stages})
    found = worker.compile_kernel({"launch": {"types": ("*fp32",), "options": options}, "target": ("cuda", 90, 32)})
    assert tried == compiled and found["shared"] == 70_000 * (compiled[-1] or 5)


def test_one_stage_may_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch says so."""
    monkeypatch.setattr(worker, "_compiled", lambda job: {"shared": 1 << 20})
    job = {"launch": {"options": {"num_stages": 2}}, "target": ("cuda", 90, 32)}
    assert worker.compile_kernel(job)["shared"] == 1 << 20
