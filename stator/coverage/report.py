"""The page of a device: totals, side by side with another compiler where its rows are given, then every entry.

A row is what `workers.py` writes. Entries are grouped by verdict, and dtypes of an entry with the same verdict stand
together; an entry is compared with the peer's only where both have been run. Neighbours: `__main__.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from stator.coverage.database import DTYPES, FURTHER
from stator.coverage.judge import DECLARED, VERDICTS

Row = dict[str, Any]
#: Right results, whatever they took.
RIGHT = ("generated", "extern", "breaks")
SHOWN = VERDICTS[1:]
MEANINGS = {
    "generated": "right, and no kernel of PyTorch but those of the class *extern* of the primitive set",
    "extern": "right, with other kernels of PyTorch",
    "breaks": "right; a part runs in eager PyTorch, with a reason",
    "fails": "a wrong result, an error or a crash",
}


#: Where the rows of a device are from, and the options that made its page.
PAGES = {
    "cpu": ("the CPU", "--write docs/coverage.md"),
    "cuda": ("an NVIDIA GPU", "--device cuda --write docs/coverage-cuda.md"),
}


def page(rows: Sequence[Row], peer: Sequence[Row], device: str = "cpu") -> str:
    """The whole page."""
    used = [row for row in rows if row["verdict"] != "unusable"]
    parts = [_head(used, device), _totals(used)]
    if peer:
        parts.append(_side_by_side(used, [row for row in peer if row["verdict"] != "unusable"]))
    parts += [_entries(used, verdict) for verdict in reversed(SHOWN)]
    return "\n".join(part for part in parts if part)


def _head(rows: Sequence[Row], device: str) -> str:
    place, options = PAGES[device]
    return "\n".join(
        [
            "# Operators",
            "",
            f"PyTorch's operator database through `stator.compile` on {place}, forward and backward, against eager.",
            f"Written by `python -m stator.coverage {options}`; an entry is as its worst sample.",
            f"{len(rows)} pairs of entry and dtype, {_amount(rows)}.",
            "",
            *[f"- *{verdict}*: {meaning}" for verdict, meaning in MEANINGS.items()],
            "",
            f"The class *extern*: {', '.join(f'`{name}`' for name in sorted(DECLARED))}.",
            "",
        ]
    )


def _totals(rows: Sequence[Row]) -> str:
    lines = ["## Totals", "", f"| dtype | {' | '.join(SHOWN)} | all |", "|---|" + "---:|" * (len(SHOWN) + 1)]
    for dtype in [*DTYPES, *FURTHER, "all"]:
        counts = Counter(row["verdict"] for row in rows if dtype in (row["dtype"], "all"))
        if counts:
            lines.append(f"| {dtype} | {' | '.join(_share(counts, v) for v in SHOWN)} | {counts.total()} |")
    return "\n".join([*lines, ""])


def _share(counts: Counter[str], verdict: str) -> str:
    return f"{counts[verdict]} ({counts[verdict] / max(counts.total(), 1):.1%})"


def _amount(rows: Sequence[Row]) -> str:
    """How much was run of each pair."""
    counts = [int(row["samples"]) for row in rows]
    return f"{sum(counts)} samples, at most {max(counts, default=0)} of a pair"


def _side_by_side(rows: Sequence[Row], peer: Sequence[Row]) -> str:
    theirs = {(row["entry"], row["dtype"]): row for row in peer}
    both = [(row, theirs[key]) for row in rows if (key := (row["entry"], row["dtype"])) in theirs]
    pairs = [(row, other["verdict"]) for row, other in both]
    passed = [row for row, verdict in pairs if verdict in RIGHT]
    right = sum(row["verdict"] in RIGHT for row in passed)
    ours, other = Counter(row["verdict"] for row, _ in pairs), Counter(verdict for _, verdict in pairs)
    lines = [
        "## Beside torch.compile",
        "",
        f"Of {len(pairs)} pairs that both have run, torch.compile passes {len(passed)}; of these stator passes "
        f"{right} ({right / max(len(passed), 1):.1%}). Kernels are counted the same way.",
        f"Stator ran {_amount([row for row, _ in both])}; torch.compile {_amount([row for _, row in both])}. "
        f"{len(rows) - len(both)} pairs that torch.compile has not run are left out here.",
        "",
        "| | " + " | ".join(SHOWN) + " |",
        "|---|" + "---:|" * len(SHOWN),
        "| stator | " + " | ".join(_share(ours, v) for v in SHOWN) + " |",
        "| torch.compile | " + " | ".join(_share(other, v) for v in SHOWN) + " |",
        "",
    ]
    worse = [row for row, verdict in pairs if VERDICTS.index(row["verdict"]) > VERDICTS.index(verdict)]
    if worse:
        lines += ["Where torch.compile does better:", ""]
        lines += [f"- {line}" for line in _lines(worse, lambda row: f"{row['verdict']}, {_why(row)}")]
        lines.append("")
    return "\n".join(lines)


def _entries(rows: Sequence[Row], verdict: str) -> str:
    chosen = [row for row in rows if row["verdict"] == verdict]
    if not chosen:
        return ""
    title = f"## {verdict.capitalize()}: {len(chosen)}\n"
    if verdict == "generated":
        names = _lines(chosen, lambda row: "")
        return "\n".join([title, ", ".join(names) + ".", ""])
    return "\n".join([title, *[f"- {line}" for line in _lines(chosen, _why)], ""])


def _lines(rows: Iterable[Row], said: Any) -> list[str]:
    """One text an entry and reason: the dtypes where not all are meant, and the reason."""
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        grouped[row["entry"], said(row)].append(row["dtype"])
    return [
        f"`{entry}` ({', '.join(dtypes)})" + (f": {why}" if why else "")
        for (entry, why), dtypes in sorted(grouped.items())
    ]


def _why(row: Row) -> str:
    text = "; ".join(row["why"]).replace("\n", " ").replace("|", "\\|")
    return text if len(text) < 160 else text[:157] + "…"
