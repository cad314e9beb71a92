"""The soundness suite as a table: `python -m tests.capture.soundness`.

Runs the files `test_soundness_*.py` and prints, for each, how many changes between two calls gave eager's results (and
how many of them compiled again), and how many irrelevant ones left what was compiled in use. Cases that this version
does not capture whole are counted apart, and so are the aliasing cases, where two objects become one or one two.
Leaves with pytest's status.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.capture import changing

FOLDER = Path(__file__).parent
HEADINGS = {"changes": "changes", "keeps": "irrelevant", "breaks": "not captured whole", "others": "aliasing"}


class Collector:
    """Counts the tests of a run by file and kind."""

    def __init__(self) -> None:
        self.passed: Counter[tuple[str, str]] = Counter()
        self.total: Counter[tuple[str, str]] = Counter()
        self.recompiled: Counter[str] = Counter()
        self.failures: list[str] = []
        self.again = False

    def observe(self, calls: changing.Calls) -> None:
        """What a case did, told by `changing.check`."""
        self.again = any(calls.captured[1:])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One phase of one test; its parameters begin with the kind of the case."""
        if report.when != "call" and not report.failed:
            return
        path, _, test = report.nodeid.partition("::")
        file = Path(path).stem.removeprefix("test_soundness_")
        kind, _, name = test.partition("[")[2].partition("-")
        kind = kind if kind in HEADINGS else "others"
        if file == "rows":  # one table each
            file = f"rows_{name.partition('-')[0]}"
        self.total[file, kind] += 1
        self.passed[file, kind] += report.passed
        self.recompiled[file] += report.passed and kind == "changes" and self.again
        self.again = False
        if report.failed:
            self.failures.append(report.nodeid)

    def table(self) -> Table:
        """`N of N` for each file and kind."""
        shown = Table(title="soundness: one change between two calls, each call compared with eager")
        shown.add_column("file")
        for kind, heading in HEADINGS.items():
            shown.add_column(heading, justify="right")
            if kind == "changes":
                shown.add_column("recompiled", justify="right")
        for file in sorted({file for file, _ in self.total}):
            shown.add_row(file, *self.cells([file]))
        shown.add_section()
        shown.add_row("all", *self.cells(sorted({file for file, _ in self.total})))
        return shown

    def cells(self, files: list[str]) -> list[str]:
        """The numbers of some files together."""
        found = []
        for kind in HEADINGS:
            total = sum(self.total[file, kind] for file in files)
            passed = sum(self.passed[file, kind] for file in files)
            found.append(f"{passed} of {total}" if total else "")
            if kind == "changes":
                found.append(str(sum(self.recompiled[file] for file in files)) if total else "")
        return found


def main() -> int:
    """Runs all and prints the totals."""
    collector = Collector()
    changing.observers.append(collector.observe)
    paths = [str(path) for path in sorted(FOLDER.glob("test_soundness_*.py"))]
    with contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *paths], plugins=[collector])
    console = Console(width=max(Console().width, 110))
    console.print(collector.table())
    for name in collector.failures:
        console.print(f"failed: {name}", markup=False)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
