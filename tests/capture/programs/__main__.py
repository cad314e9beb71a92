"""`python -m tests.capture.programs [part of a name …]`: runs the suite, prints what it gives and what is wrong."""

from __future__ import annotations

import sys
import warnings

from tests.capture.programs import PROGRAMS
from tests.capture.programs.runner import Outcome, check
from tests.capture.programs.table import Program


def main(names: list[str]) -> int:
    """Prints a table; the number of wrong programs."""
    warnings.simplefilter("ignore")
    chosen = [item for item in PROGRAMS if not names or any(name in item.name for name in names)]
    results = [(item, check(item)) for item in chosen]
    free = [(item, outcome) for item, outcome in results if not item.breaks]
    wrong = [(item, outcome) for item, outcome in results if outcome.difference]
    parted = [(item, outcome) for item, outcome in free if not outcome.whole]
    otherwise = [(item, text) for item, outcome in results if (text := unlike(item, outcome))]
    for item, outcome in parted:
        print(f"not one graph  {item.name}: {outcome.graphs} graphs; {' '.join(outcome.why.split())}")
    for item, text in otherwise:
        print(f"not as stated  {item.name}: {text}")
    for item, outcome in wrong:
        print(f"WRONG          {item.name}: {outcome.difference}")
    whole = len(free) - len(parted)
    print(f"programs {len(results)}, without inherent break {len(free)}, of these one graph {whole}", end="")
    print(f" ({whole / max(len(free), 1):.1%}), wrong {len(wrong)}, not as stated {len(otherwise)}")
    return len(wrong)


def unlike(item: Program, outcome: Outcome) -> str:
    """How the counts differ from those stated."""
    if item.graphs is not None and item.graphs != outcome.graphs:
        return f"{outcome.graphs} graphs, not {item.graphs}"
    if item.operators is not None and item.operators != outcome.operators:
        return f"{outcome.operators} operators, not {item.operators}"
    return ""


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
