"""Verdicts in a few bytes, to be kept under version control and compared with.

One line an entry: `name verdict: dtypes; verdict: dtypes`. The first line names the release of torch, because entries
and kernels change with it. Neighbours: `workers.py` makes the rows; `tests/coverage` holds the compiler to the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch

HEAD = "torch "


def text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The record of these rows."""
    entries: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        entries[row["entry"]][row["verdict"]].append(row["dtype"])
    lines = [
        f"{entry} " + "; ".join(f"{verdict}: {' '.join(sorted(dtypes))}" for verdict, dtypes in sorted(found.items()))
        for entry, found in sorted(entries.items())
    ]
    release = ".".join(torch.__version__.split(".")[:2])
    return "\n".join([HEAD + release, *lines, ""])


def read(record: str) -> tuple[str, dict[tuple[str, str], str]]:
    """The release of torch, and the verdict of every (entry, dtype)."""
    head, *lines = record.splitlines()
    found = {}
    for line in lines:
        entry, _, rest = line.partition(" ")
        for group in rest.split("; "):
            verdict, _, dtypes = group.partition(": ")
            found.update({(entry, dtype): verdict for dtype in dtypes.split()})
    return head.removeprefix(HEAD), found
