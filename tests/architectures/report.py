"""Writes the page about architectures from what the command found: `report a.json b.json`, one file a stack."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

#: How many characters of a reason a cell shows.
WIDTH = 150

HEAD = """# Architectures of `transformers`

Tiny models with random weights, {count} architectures, each in inference and in training (one forward and backward,
with gradients). *Whole*: `fullgraph=True` accepts it; otherwise the number of graphs is given. Results, gradients and
buffers are compared with eager's, by their distance from the same model in float64.

The page is written by

    python -m tests.architectures --jobs 2 --out verdicts.json
    python -m tests.architectures.report verdicts.json > docs/architectures.md
"""


class Run(NamedTuple):
    """What one stack found: its versions, and the verdicts by architecture and mode."""

    stack: str
    verdicts: dict[tuple[str, str], dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Run:
        data = json.loads(path.read_text())
        return cls(data["stack"], {(verdict["name"], verdict["mode"]): verdict for verdict in data["verdicts"]})

    def totals(self) -> str:
        """One line."""
        names = {name for name, _ in self.verdicts}
        whole = {
            n for n in names if all(v["whole"] and not v["wrong"] for (m, _), v in self.verdicts.items() if m == n)
        }
        wrong = {name for (name, _), verdict in self.verdicts.items() if verdict["wrong"]}
        share = 100 * len(whole) / len(names)
        head = f"- {self.stack}: {len(whole)} of {len(names)} whole and right in both modes ({share:.1f}%)"
        return f"{head}, {len(wrong)} fail"


def state(verdict: dict[str, Any] | None) -> str:
    """A cell: the graphs."""
    if verdict is None:
        return "–"
    if verdict["wrong"]:
        return "fails"
    return "whole" if verdict["whole"] else f"{verdict['graphs']} graphs"


def reasons(verdict: dict[str, Any]) -> list[str]:
    """Why it is not whole, or how it fails; files without their folders."""
    texts = [verdict["wrong"]] if verdict["wrong"] else list(verdict["breaks"][1:] or verdict["breaks"])
    return [" ".join(word.rsplit("/", 1)[-1] for word in text.replace("|", "/").split())[:WIDTH] for text in texts]


def page(runs: list[Run]) -> str:
    """The whole page."""
    first = runs[0]
    names = list(dict.fromkeys(name for name, _ in first.verdicts))
    lines = [HEAD.format(count=len(names)), *(run.totals() for run in runs), ""]
    stacks = [run.stack for run in runs]
    lines.append("| family | architecture | " + " | ".join(f"{s}: inference | training" for s in stacks) + " |")
    lines.append("|---|---" + "|---|---" * len(runs) + "|")
    rest: list[str] = []
    for name in names:
        family = first.verdicts[name, "inference"]["family"]
        found = [run.verdicts.get((name, mode)) for run in runs for mode in ("inference", "training")]
        lines.append(f"| {family} | {name} | " + " | ".join(map(state, found)) + " |")
        why = dict.fromkeys(text for verdict in found if verdict for text in reasons(verdict))
        rest += [f"- **{name}**: {text}" for text in why]
    return "\n".join([*lines, "", "## What is not whole, and why", "", *rest, ""])


if __name__ == "__main__":
    print(page([Run.read(Path(path)) for path in sys.argv[1:]]), end="")
