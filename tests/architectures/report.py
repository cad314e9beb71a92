"""Writes the page about architectures from what the command found: `report a.json b.json`, one file a stack."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

#: How many characters of a reason a cell shows.
WIDTH = 150

#: The last architecture of the list as it was first written, before anything had been run; and what was moved since.
LAST_OF_FIRST = "git"
MOVED = ("nystromformer",)

NOTES = """
The first part of the list, to *git* and with nystromformer, was chosen before any result was seen, but for focalnet.
As it was first written it had 105 entries. Two of them were left out after the first run, and count in no share:
prophetnet (eager itself gives nan), and cvt, which ended in an IndexError that was not looked into, and in whose place
focalnet came. The rest was added later.

*Fails* is a difference from eager, or an error. paligemma and nystromformer compute something else, or raise, when
`torch.compiler.is_compiling()` is true: in plain eager too if it is made true there, and under `torch.compile`.
mask2former fails on Python 3.12 because scipy is not installed there.
What is not whole in the first part depends on the data: led and vilt look at a mask, switch_transformers calls the
experts that were hit, by names made of their numbers. Most breaks of led are ours all the same: it divides two ints
by `torch.div`, whose result is taken for unknown.
"""

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

    def totals(self) -> list[str]:
        """A line for the first part of the list, and one for all of it."""
        names = list(dict.fromkeys(name for name, _ in self.verdicts))
        first = [*names[: names.index(LAST_OF_FIRST) + 1], *(name for name in MOVED if name in names)]
        return [f"- {self.stack}, {what}: {self.share(part)}" for what, part in (("first part", first), ("all", names))]

    def share(self, names: list[str]) -> str:
        """How many of these are whole and right."""
        found = {name: [v for (other, _), v in self.verdicts.items() if other == name] for name in names}
        whole = [name for name in names if all(v["whole"] and not v["wrong"] for v in found[name])]
        wrong = [name for name in names if any(v["wrong"] for v in found[name])]
        share = 100 * len(whole) / len(names)
        return f"{len(whole)} of {len(names)} whole and right in both modes ({share:.1f}%), {len(wrong)} fail"


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
    lines = [HEAD.format(count=len(names)), *(line for run in runs for line in run.totals()), NOTES]
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
