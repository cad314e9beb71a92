"""`python -m stator.coverage`: run the operator database through the compiler, and write what became of it.

Rows go to the result file (`--out`, a line of JSON each) as they are made; entries that it has already are not run
again, so a run can be stopped and continued. `--write` makes the page of the rows, beside those of another compiler
(`--peer`, a file of the same form, which `benchmarks/coverage_peer.py` makes); `--record` makes what CI compares with.
`--derived` runs the database on values that the graph makes itself and knows something of (`derived.py`); its rows,
those with `--dynamic` and those of a GPU belong in files of their own.
With `--device cuda` everything happens on the GPU, which the processes share.
Neighbours: `workers.py`, `report.py`, `record.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from stator.coverage import database, errors, layouts, record, report, special, workers


def main(arguments: Sequence[str], engine: str = "") -> int:
    """The command; its status is 1 where something fails, 2 where it cannot run."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.device == "cuda" and given.samples >= 0 and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device on this machine")
    if given.errors:
        return int(errors.run(given.match) > 0)
    if given.layouts:
        return int(layouts.run(given.match) > 0)
    if given.special:
        return int(sum(special.run(given.match, dtype) for dtype in given.dtypes) > 0)
    rows = workers.read(given.out)
    known = {(row["entry"], row["dtype"]) for row in rows}
    tasks = [(name, dtype) for dtype in given.dtypes for name in database.names(dtype, given.match, given.device)]
    todo = [task for task in tasks if task not in known and given.samples >= 0]
    with given.out.open("a", encoding="utf-8") as out:

        def done(row: workers.Row) -> None:
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            if row["verdict"] == "fails" or given.verbose:
                why = row["why"][0] if row["why"] else ""
                print(f"{row['verdict']:9} {row['dtype']:8} {row['entry']}{row['at']}: {why[:300]}", flush=True)

        kind = engine or f"stator.coverage.judge:{'Dynamic' if given.dynamic else 'Stator'}"
        workers.run(todo, kind, given.samples, given.jobs, done, given.timeout, given.device, given.derived)
    wanted = [row for row in rows if row["dtype"] in given.dtypes and re.search(given.match, row["entry"])]
    totals = Counter(row["verdict"] for row in wanted)
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.most_common()))
    if given.write:
        peer = workers.read(given.peer) if given.peer else []
        given.write.write_text(report.page(wanted, peer, given.device), encoding="utf-8")
    if given.record:
        given.record.write_text(record.text(wanted), encoding="utf-8")
    return int(totals["fails"] > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stator.coverage", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--match", default="", help="a regular expression over entries (name.variant)")
    parser.add_argument(
        "--dtypes", nargs="+", choices=[*database.DTYPES, *database.FURTHER], default=list(database.DTYPES)
    )
    parser.add_argument("--device", choices=list(report.PAGES), default="cpu", help="where samples are made and run")
    parser.add_argument("--samples", type=int, default=0, help="samples of an entry; 0 is all, -1 runs nothing")
    parser.add_argument(
        "--derived", type=int, default=0, metavar="N", help="make each sample's tensors inside the graph, in N ways"
    )
    parser.add_argument("--dynamic", action="store_true", help="with symbolic sizes")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--timeout", type=float, default=workers.TIMEOUT, help="seconds that a sample may take")
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"), help="the file of results, added to")
    parser.add_argument("--peer", type=Path, help="another compiler's results, for the page")
    parser.add_argument("--write", type=Path, help="the page to write (docs/coverage.md)")
    parser.add_argument("--record", type=Path, help="the record to write (tests/coverage/recorded.txt)")
    parser.add_argument("--errors", action="store_true", help="run what eager refuses instead, and print what differs")
    parser.add_argument("--layouts", action="store_true", help="compare how results lie in memory instead, on fakes")
    parser.add_argument("--special", action="store_true", help="zeros, infinities, NaN and denormals among the numbers")
    parser.add_argument("--verbose", action="store_true", help="print every verdict, not failures only")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
