"""Records as tables: what docs/benchmarks.md shows of models on a GPU.

Neighbours: `measure.py` makes the records, `__main__.py` reads them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.gpu.models import INFERENCE, MODELS, TASKS
from benchmarks.gpu.step import COMPILERS, EAGER, PEER, STATOR, Row
from benchmarks.markdown import figure, head, line, power
from benchmarks.models.table import mean

Record = dict[str, Any]
Figures = dict[str, Any]
#: Stage → what it gives.
_GIVES = {"first": ("cold", "warm"), "warm": ("warm",), "errors": ("error",), "calls": ("ms",), "memory": ("peak_mib",)}
_SAID = {
    INFERENCE: "inference, parameters and inputs of bfloat16, no gradients",
    "training": "training under autocast to bfloat16: forward, backward and a step of fused AdamW",
}


def merge(records: Iterable[Record]) -> dict[Row, dict[str, Figures]]:
    """The figures of each row and compiler: of several of a kind the latest; a success ends a failure at its stage."""
    rows: dict[Row, dict[str, Figures]] = {}
    for record in records:
        figures = rows.setdefault(Row(record["model"], record["task"], record["graphs"]), {})
        figures = figures.setdefault(record["compiler"], {})
        if any(name in record for name in _GIVES.get(figures.get("stage", ""), ())):
            del figures["failed"], figures["stage"]
        figures.update({name: value for name, value in record.items() if name not in ("model", "task", "graphs")})
    return rows


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
                parts += [f"### {_SAID[task]}{', with CUDA graphs' * graphs}", speed(shown), first(shown)]
                parts += troubles(shown)
    return "\n\n".join(parts)


def speed(rows: dict[Row, dict[str, Figures]]) -> str:
    """Milliseconds a step, of the device and of the host alone, and how many times as fast as the others stator is."""
    compilers = [name for name in COMPILERS if any("ms" in by.get(name, {}) for by in rows.values())]
    lines = head(["model", *[f"{name} ms" for name in compilers], "times eager's speed", "times torch.compile's",
                   *[f"{name} host ms" for name in compilers]])  # fmt: skip
    for row, by in rows.items():
        cells = [figure(_ms(by, name), 2) for name in compilers]
        cells += [figure(times(by, name), 2) for name in (EAGER, PEER)]
        cells += [figure(_median(by.get(name, {}).get("host")), 2) for name in compilers]
        lines.append(line([row.model, *cells]))
    columns = [[times(by, name) for by in rows.values()] for name in (EAGER, PEER)]
    for name, of in (("geometric mean", mean), ("least", _least)):
        empty = [""] * len(compilers)
        lines.append(line([name, *empty, *[figure(of(column), 2) for column in columns], *empty]))
    return "\n".join(lines)


def first(rows: dict[Row, dict[str, Figures]]) -> str:
    """First calls in seconds, errors against float64, and memory: stator's, torch.compile's, and the ratio."""
    kinds: list[tuple[str, str, Callable[[float], str], bool]] = [
        ("cold s", "cold", lambda x: figure(x, 1), True), ("warm s", "warm", lambda x: figure(x, 2), True),
        ("error", "error", power, False), ("mean error", "rms", power, False),
        ("peak MiB", "peak_mib", lambda x: figure(x, 0), False),
    ]  # fmt: skip
    lines = head(["model", *[cell for name, *_ in kinds for cell in (name, f"{PEER}'s", "ratio")]])
    ratios: dict[str, list[float]] = {}
    for row, by in rows.items():
        cells = [row.model]
        for _, field, shown, inverse in kinds:
            ours, theirs = [float(by.get(name, {}).get(field, math.nan)) for name in (STATOR, PEER)]
            ratio = (theirs / ours if inverse else ours / theirs) if ours and theirs else math.nan
            ratios.setdefault(field, []).append(ratio)
            cells += [shown(ours), shown(theirs), figure(ratio, 2)]
        lines.append(line(cells))
    means = [cell for values in ratios.values() for cell in ("", "", figure(mean(values), 2))]
    lines.append(line(["geometric mean", *means]))
    return "\n".join(lines)


def times(by: dict[str, Figures], other: str) -> float:
    """How many times as fast as the other stator is: the median over rounds."""
    ours, theirs = [by.get(name, {}).get("ms") or [] for name in (STATOR, other)]
    pairs = list(zip(ours, theirs, strict=False))
    return statistics.median([b / a for a, b in pairs]) if pairs else math.nan


def troubles(rows: dict[Row, dict[str, Figures]]) -> list[str]:
    """What failed, and what was told."""
    lines = []
    for row, by in rows.items():
        for name, figures in by.items():
            if "failed" in figures:
                lines.append(f"- {row.model}: {name} failed ({figures['stage']}): {figures['failed']}")
            lines += [f"- {row.model}: {name} told: {text}" for text in figures.get("told", ())]
    return ["\n".join(lines)] if lines else []


def _ms(by: dict[str, Figures], name: str) -> float:
    return _median(by.get(name, {}).get("ms"))


def _median(values: Sequence[float] | None) -> float:
    return statistics.median(values) if values else math.nan


def _least(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return min(known) if known else math.nan
