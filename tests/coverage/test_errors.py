"""A fixed part of what eager refuses, compiled; `python -m stator.coverage --errors` runs all of it."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import torch

import stator
from stator.coverage import database, errors, record

PARTS = 24
#: Every entry, without an import of the database.
NAMES = sorted({name for name, _ in record.read(Path(__file__).with_name("recorded.txt").read_text("utf-8"))[1]})
#: What is wrong by decision, or elsewhere: entry and label → why.
OPEN: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("name", [n for n in NAMES if zlib.crc32(n.encode()) % PARTS == 0])
def test_what_eager_refuses_is_refused(name: str) -> None:
    if name not in database.all_names():
        pytest.skip("the operator database of this PyTorch has no such entry")
    found = {label: errors.wrong(sample) for label, sample in errors.cases(name) if (name, label) not in OPEN}
    assert not {label: why for label, why in found.items() if why}


def test_a_value_in_place_of_an_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, sample), *_ = [case for case in errors.cases("sub") if case[0] == "bool 0"]
    assert errors.wrong(sample) == ""
    monkeypatch.setattr(stator, "compile", lambda function, options: lambda *args, **kwargs: torch.ones(3))
    assert "does not" in (errors.wrong(sample) or "")
