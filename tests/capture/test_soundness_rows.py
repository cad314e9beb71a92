"""Changes between two calls, as tables of programs: each file of `rows/` is one, and this runs them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.capture.changing import Rows, check
from tests.capture.rows import builtins, classes, holders, identity, objects, state, tensors

pytestmark = pytest.mark.filterwarnings("ignore::Warning")

#: What is changed → the rows.
TABLES: dict[str, Rows] = {
    "builtins": builtins.rows, "classes": classes.rows, "holders": holders.rows, "identity": identity.rows,
    "objects": objects.rows, "state": state.rows, "tensors": tensors.rows,
}  # fmt: skip

ROWS = [
    pytest.param(kind, case, id=f"{kind}-{table}-{case.__name__}")
    for table, rows in TABLES.items()
    for kind, case in rows
]


@pytest.fixture(autouse=True)
def _flags_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own test modules, which other tests import, freeze the flags of backends for the whole process."""
    flags = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", True)


@pytest.mark.parametrize(("kind", "case"), ROWS)
def test_change(kind: str, case: Any) -> None:
    check(kind, case)
