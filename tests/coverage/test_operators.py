"""A fixed sixth of PyTorch's operator database through the compiler, against eager and against what is recorded.

`recorded.txt` has a line for each entry: its verdict, and the dtypes with another one, of a run of two samples each
with the torch that the first line names. `python -m stator.coverage --samples 2 --record tests/coverage/recorded.txt`
writes it. What got worse fails; with another torch only what fails does. Every plan is run by the C core and as Python,
which have to agree to the bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stator.coverage import database, record
from stator.coverage.judge import VERDICTS
from stator.coverage.workers import Worker

RECORDED = Path(__file__).with_name("recorded.txt")
PARTS = 6
RELEASE, KNOWN = record.read(RECORDED.read_text(encoding="utf-8"))


def part(name: str, dtype: str) -> int:
    """Which of the parts it belongs to, on every machine."""
    return zlib.crc32(f"{name} {dtype}".encode()) % PARTS


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    worker = Worker("tests.plan.both:StatorTwice", life=240)  # half of the part: a process takes seconds to start
    yield worker
    worker.stop()


@pytest.mark.parametrize(("name", "dtype"), [pair for pair in KNOWN if part(*pair) == 0])
def test_an_entry_is_not_worse_than_recorded(worker: Worker, name: str, dtype: str) -> None:
    row = worker.row(name, dtype, 2)
    assert row["verdict"] != "fails" or KNOWN[name, dtype] == "fails", row["why"]
    if torch.__version__.startswith(RELEASE):
        assert VERDICTS.index(row["verdict"]) <= VERDICTS.index(KNOWN[name, dtype]), row["why"]


def test_what_is_recorded_is_the_database() -> None:
    if torch.__version__.startswith(RELEASE):
        assert set(KNOWN) == {(name, dtype) for dtype in database.DTYPES for name in database.names(dtype)}


def test_a_record_is_read_as_it_was_written() -> None:
    rows = [
        {"entry": "add", "dtype": "float32", "verdict": "generated"},
        {"entry": "add", "dtype": "int64", "verdict": "extern"},
        {"entry": "add", "dtype": "bool", "verdict": "generated"},
        {"entry": "erf", "dtype": "float32", "verdict": "breaks"},
    ]
    release, found = record.read(record.text(rows))
    assert torch.__version__.startswith(release)
    assert found == {(row["entry"], row["dtype"]): row["verdict"] for row in rows}
