"""A fixed part of what eager refuses, compiled; `python -m stator.coverage --errors` runs all of it."""

from __future__ import annotations

import zlib

import pytest
import torch

import stator
from stator.coverage import database, errors

PARTS = 24
#: What is wrong by decision, or elsewhere: entry and label → why.
OPEN: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("name", [n for n in database.all_names() if zlib.crc32(n.encode()) % PARTS == 0])
def test_what_eager_refuses_is_refused(name: str) -> None:
    found = {label: errors.wrong(sample) for label, sample in errors.cases(name) if (name, label) not in OPEN}
    assert not {label: why for label, why in found.items() if why}


def test_a_value_in_place_of_an_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, sample), *_ = [case for case in errors.cases("sub") if case[0] == "bool 0"]
    assert errors.wrong(sample) == ""
    monkeypatch.setattr(stator, "compile", lambda function, options: lambda *args, **kwargs: torch.ones(3))
    assert "does not" in (errors.wrong(sample) or "")
