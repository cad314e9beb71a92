"""Records as tables: what docs/benchmarks.md shows of models on a GPU.

Neighbours: `measure.py` makes the records, `__main__.py` reads them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.gpu.models import INFERENCE, MODELS, TASKS
from benchmarks.gpu.step import COMPILERS, EAGER, FAST, PEER, STATOR, Row
from benchmarks.markdown import figure, head, line, power
from benchmarks.models.table import mean

Record = dict[str, Any]
Figures = dict[str, Any]
#: Stage → what it gives.
_GIVES = {
    "first": ("cold", "warm", "kernels_kept"), "warm": ("warm",), "errors": ("error",), "calls": ("ms",),
    "memory": ("peak_mib",),
}  # fmt: skip
_FIRST = ("cold", "warm")
#: What is shown of memory without and with CUDA graphs, whose pools are no tensors (`worker.Session.memory`).
_MEMORY = {False: ("peak MiB", "peak_mib"), True: ("reserved MiB", "reserved_mib")}
#: What of eager's holds with CUDA graphs too, which it has not.
_EAGERS = ("ms", "host", "error", "rms", "peak_mib")
_SAID = {
    INFERENCE: "inference, parameters and inputs of bfloat16, no gradients",
    "training": "training under autocast to bfloat16: forward, backward and a step of fused AdamW",
}


def merge(records: Iterable[Record]) -> dict[Row, dict[str, Figures]]:
    """The figures of each row and compiler: of several of a kind the latest; a success ends a failure at its stage.

    Of first calls it is the latest of those that were made beside the fewest others. With CUDA graphs eager's figures
    are those without.
    """
    rows: dict[Row, dict[str, Figures]] = {}
    for record in records:
        of_row = rows.setdefault(Row(record["model"], record["task"], record["graphs"]), {})
        figures = of_row.setdefault(record["compiler"], {})
        record = {name: value for name, value in record.items() if not _is_behind(name, record, figures)}
        if any(name in record for name in _GIVES.get(figures.get("stage", ""), ())):
            del figures["failed"], figures["stage"]
        if any(name in record for name in _GIVES.get(figures.get("left_out", ""), ())):
            del figures["left_out"]
        figures.update({name: value for name, value in record.items() if name not in ("model", "task", "graphs")})
        figures.update({f"{name}_beside": record["jobs"] for name in _FIRST if name in record and "jobs" in record})
    for row, by in rows.items():
        plain = rows.get(row._replace(graphs=False), {}).get(EAGER, {})
        if row.graphs and EAGER not in by and plain:
            by[EAGER] = {name: value for name, value in plain.items() if name in _EAGERS}
    return rows


def _is_behind(name: str, record: Record, figures: Figures) -> bool:
    """Whether there is a first call that fewer others ran beside."""
    return name in _FIRST and f"{name}_beside" in figures and figures[f"{name}_beside"] < record.get("jobs", 0)


def page(rows: dict[Row, dict[str, Figures]]) -> str:
    """Two tables for each task, without and with CUDA graphs: speed, and what else is promised."""
    parts = []
    order = list(MODELS)
    for task in TASKS:
        for graphs in (False, True):
            found = sorted(
                [row for row in rows if row.task == task and row.graphs is graphs], key=lambda r: order.index(r.model)
            )
            if found:
                shown = {row: rows[row] for row in found}
                parts += [f"### {_SAID[task]}{', with CUDA graphs' * graphs}", speed(shown)]
                parts += [first(shown, ours) for ours in _of_ours(shown, *_FIRST, _MEMORY[graphs][1])]
                parts += [*errors(shown), *troubles(shown)]
    return "\n\n".join(parts)


def _of_ours(rows: dict[Row, dict[str, Figures]], *kinds: str) -> list[str]:
    """The ways of stator's that have figures of some kind."""
    return [
        name for name in (STATOR, FAST) if any(not by.get(name, {}).keys().isdisjoint(kinds) for by in rows.values())
    ]


def speed(rows: dict[Row, dict[str, Figures]]) -> str:
    """Milliseconds a step, of the device and of the host alone, and how many times as fast as the others stator is."""
    compilers = [name for name in COMPILERS if any("ms" in by.get(name, {}) for by in rows.values())]
    pairs = [(ours, other) for ours in _of_ours(rows, "ms") or [STATOR] for other in (EAGER, PEER)]
    said = {(STATOR, EAGER): "times eager's speed", (STATOR, PEER): "times torch.compile's",
            (FAST, EAGER): "fast: times eager's", (FAST, PEER): "fast: times torch.compile's"}  # fmt: skip
    lines = head(["model", *[f"{name} ms" for name in compilers], *[said[pair] for pair in pairs],
                  *[f"{name} host ms" for name in compilers]])  # fmt: skip
    for row, by in rows.items():
        cells = [figure(_ms(by, name), 2) for name in compilers]
        cells += [figure(times(by, other, ours), 2) for ours, other in pairs]
        cells += [figure(_median(by.get(name, {}).get("host")), 2) for name in compilers]
        lines.append(line([row.model, *cells]))
    columns = [[times(by, other, ours) for by in rows.values()] for ours, other in pairs]
    for name, of in (("geometric mean", mean), ("least", _least)):
        empty = [""] * len(compilers)
        lines.append(line([name, *empty, *[figure(of(column), 2) for column in columns], *empty]))
    return "\n".join(lines)


def first(rows: dict[Row, dict[str, Figures]], ours: str = STATOR) -> str:
    """First calls in seconds, and memory: stator's in one of its ways, torch.compile's, and the ratio.

    A star is on first calls that were made beside others. What eager's takes, loading what libraries need, is part of
    the compilers' too. The rows are all with CUDA graphs, or all without.
    """
    title, memory = _MEMORY[any(row.graphs for row in rows)]
    kinds: list[tuple[str, str, Callable[[float], str], bool]] = [
        ("cold s", "cold", lambda x: figure(x, 1), True), ("warm s", "warm", lambda x: figure(x, 2), True),
        (title, memory, lambda x: figure(x, 0), False),
    ]  # fmt: skip
    titles = [cell for name, *_ in kinds for cell in (name, f"{PEER}'s", "ratio")]
    lines = head([f"model{', numerics=fast' * (ours == FAST)}", f"{EAGER}'s first s", *titles])
    ratios: dict[str, list[float]] = {}
    for row, by in rows.items():
        cells = [row.model, figure(float(by.get(EAGER, {}).get("cold", math.nan)), 2)]
        for _, field, shown, inverse in kinds:
            taken, theirs = [float(by.get(name, {}).get(field, math.nan)) for name in (ours, PEER)]
            ratio = (theirs / taken if inverse else taken / theirs) if taken and theirs else math.nan
            ratios.setdefault(field, []).append(ratio)
            beside = "*" * (ratio == ratio and by[ours].get(f"{field}_beside", 1) > 1)
            cells += [shown(taken), shown(theirs), figure(ratio, 2) + beside]
        lines.append(line(cells))
    worst = {field: _least if inverse else _most for _, field, _, inverse in kinds}
    for name, of in (("geometric mean", dict.fromkeys(worst, mean)), ("worst", worst)):
        found = [cell for field, values in ratios.items() for cell in ("", "", figure(of[field](values), 2))]
        lines.append(line([name, "", *found]))
    return "\n".join(lines)


def errors(rows: dict[Row, dict[str, Figures]]) -> list[str]:
    """Errors against float64, in the mean square and of the worst element; stator's as parts of torch.compile's."""
    compilers = [name for name in COMPILERS if any("rms" in by.get(name, {}) for by in rows.values())]
    ours = [name for name in (STATOR, FAST) if name in compilers]
    kinds = (("mean error", "rms"), ("worst", "error"))
    titles = [
        cell for what, _ in kinds for cell in (*[f"{what}: {c}" for c in compilers], *[f"{c}, part" for c in ours])
    ]
    lines = head(["model", *titles])
    parts: dict[tuple[str, str], list[float]] = {}
    for row, by in rows.items():
        cells = [row.model]
        for _, field in kinds:
            found = {name: float(by.get(name, {}).get(field, math.nan)) for name in COMPILERS}
            cells += [power(found[name]) for name in compilers]
            for name in ours:
                parts.setdefault((field, name), []).append(found[name] / found[PEER] if found[PEER] else math.nan)
                cells.append(figure(parts[field, name][-1], 2))
        lines.append(line(cells))
    empty = [""] * len(compilers)
    most = [[figure(_most(parts[field, name]), 2) for name in ours] for _, field in kinds]
    lines.append(line(["most", *[cell for found in most for cell in (*empty, *found)]]))
    return ["\n".join(lines)] if compilers else []


def times(by: dict[str, Figures], other: str, ours: str = STATOR) -> float:
    """How many times as fast as the other stator is: the median over rounds."""
    taken, theirs = [by.get(name, {}).get("ms") or [] for name in (ours, other)]
    pairs = list(zip(taken, theirs, strict=False))
    return statistics.median([b / a for a, b in pairs]) if pairs else math.nan


def troubles(rows: dict[Row, dict[str, Figures]]) -> list[str]:
    """What failed, what was told, and what there was no time for."""
    lines = []
    for row, by in rows.items():
        for name, figures in by.items():
            if "left_out" in figures:
                lines.append(f"- {row.model}: no time was left for {name} ({figures['left_out']})")
            if "failed" in figures:
                lines.append(f"- {row.model}: {name} failed ({figures['stage']}): {figures['failed']}")
            lines += [f"- {row.model}: {name} told: {text}" for text in figures.get("told", ())]
    return ["\n".join(lines)] if lines else []


def _ms(by: dict[str, Figures], name: str) -> float:
    return _median(by.get(name, {}).get("ms"))


def _median(values: Sequence[float] | None) -> float:
    return statistics.median(values) if values else math.nan


def _most(values: Iterable[float]) -> float:
    return -_least([-value for value in values])


def _least(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return min(known) if known else math.nan
