"""Rows of figures, and the table that is made of them: what `docs/models.md` shows.

Neighbours: `measure.py` makes the rows, `__main__.py` reads and writes them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.markdown import figure, head, line, power
from benchmarks.models.peers import FROZEN, MODES

OURS, PEER, EAGER, OPENVINO = "stator", "torch.compile", "eager", "openvino"
Figures = dict[str, float]


class Row(NamedTuple):
    """What was measured of a model in a mode, by compiler: a figure that is missing is of one that failed."""

    model: str
    mode: str
    #: Milliseconds a call: a median for each round, in which all were called in turn.
    rounds: dict[str, list[float]] = {}  # noqa: RUF012  (never written to)
    #: Seconds of the first call, with an empty cache and with one that was filled.
    cold: Figures = {}  # noqa: RUF012
    warm: Figures = {}  # noqa: RUF012
    #: MiB that the first call takes at most, in all processes, besides what was there before it.
    memory: Figures = {}  # noqa: RUF012
    #: The largest relative error against float64.
    error: Figures = {}  # noqa: RUF012
    #: What was told, and why some have no figures.
    told: dict[str, list[str]] = {}  # noqa: RUF012
    failed: dict[str, str] = {}  # noqa: RUF012
    #: In training: `memory` until forward had ended, so without gradients.
    compiling: Figures = {}  # noqa: RUF012

    def ms(self, compiler: str) -> float:
        """Milliseconds a call."""
        return statistics.median(self.rounds[compiler]) if compiler in self.rounds else math.nan

    def speed(self, other: str, ours: str = OURS) -> float:
        """How many times as fast as the other ours is: the median over rounds."""
        if not {ours, other} <= self.rounds.keys():
            return math.nan
        pairs = zip(self.rounds[other], self.rounds[ours], strict=True)
        return statistics.median(theirs / mine for theirs, mine in pairs)


class LayersRow(NamedTuple):
    """Seconds of the first call of an encoder of so many layers, with an empty cache, by compiler."""

    layers: int
    mode: str
    cold: Figures


def ratio(figures: Figures, other: str = PEER) -> float:
    """How many times as much as stator the other takes."""
    return figures[other] / figures[OURS] if {OURS, other} <= figures.keys() else math.nan


def mean(values: Iterable[float]) -> float:
    """The geometric mean of those that are numbers."""
    logarithms = [math.log(value) for value in values if not math.isnan(value)]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


def page(rows: list[Row]) -> str:
    """Two tables for each mode: speed, and what the first call takes."""
    parts = []
    for mode in MODES:
        if found := [row for row in rows if row.mode == mode]:
            parts += [f"### {mode}: {_SAID[mode]}", speed_table(found), first_table(found), *_troubles(found)]
    return "\n\n".join(parts)


_SAID = {
    "inference": "float32, no gradients",
    "bfloat16": "parameters and inputs of bfloat16, no gradients",
    "training": "float32, forward and backward, with dropout",
}


def speed_table(rows: list[Row]) -> str:
    """Milliseconds a call, and how many times as fast as the others stator is."""
    compilers = [name for name in (EAGER, PEER, OPENVINO, OURS, FROZEN) if any(name in row.rounds for row in rows)]
    ratios = [(OURS, other) for other in (EAGER, PEER) if other in compilers]
    ratios += [(FROZEN, other) for other in (PEER, OPENVINO) if {FROZEN, other} <= set(compilers)]
    names = [f"{'freezing: ' * (ours == FROZEN)}times {other}'s speed" for ours, other in ratios]
    lines = head(["model", *[f"{name} ms" for name in compilers], *names])
    for row in rows:
        times = [figure(row.ms(name), 1) for name in compilers]
        lines.append(line([row.model, *times, *[figure(row.speed(other, ours), 2) for ours, other in ratios]]))
    means = [figure(mean(row.speed(other, ours) for row in rows), 2) for ours, other in ratios]
    worst = [figure(min((row.speed(other, ours) for row in rows), key=_last), 2) for ours, other in ratios]
    lines.append(line(["geometric mean", *[""] * len(compilers), *means]))
    lines.append(line(["least", *[""] * len(compilers), *worst]))
    return "\n".join(lines)


def first_table(rows: list[Row]) -> str:
    """Seconds and memory of the first call, and errors; how many times as much torch.compile takes, and has."""
    kinds = [("cold s", "cold", 2), ("warm s", "warm", 2), ("MiB", "memory", 0)]
    if any(row.compiling for row in rows):
        kinds.append(("MiB before backward", "compiling", 0))
    names = [name for kind, _, _ in kinds for name in (kind, f"{PEER}: {kind}", "times")]
    lines = head(["model", *names, "error", f"{PEER}: error", "stator's / its"])
    for row in rows:
        cells = [row.model]
        for _, field, digits in kinds:
            figures: Figures = getattr(row, field)
            cells += [figure(figures.get(name, math.nan), digits) for name in (OURS, PEER)]
            cells.append(figure(ratio(figures), 1))
        cells += [power(row.error.get(name, math.nan)) for name in (OURS, PEER)]
        lines.append(line([*cells, figure(1 / ratio(row.error), 2)]))
    means = [["", "", figure(mean(ratio(getattr(row, field)) for row in rows), 1)] for _, field, _ in kinds]
    errors = figure(mean(1 / ratio(row.error) for row in rows), 2)
    lines.append(line(["geometric mean", *[cell for three in means for cell in three], "", "", errors]))
    return "\n".join(lines)


def layers_table(rows: list[LayersRow]) -> str:
    """Seconds of the first call against layers, with the slopes."""
    compilers = [name for name in (OURS, PEER) if any(name in row.cold for row in rows)]
    modes = [mode for mode in MODES if any(row.mode == mode for row in rows)]
    columns = [(mode, name) for mode in modes for name in compilers]
    seconds = {(row.layers, row.mode, name): value for row in rows for name, value in row.cold.items()}
    counts = sorted({row.layers for row in rows})
    lines = head(["layers", *[f"{mode}: {name}" for mode, name in columns]])
    for count in counts:
        found = [seconds.get((count, *column), math.nan) for column in columns]
        lines.append(line([str(count), *[figure(value, 2) for value in found]]))
    slopes = [
        slope({n: seconds[n, mode, name] for n in counts if (n, mode, name) in seconds}) for mode, name in columns
    ]
    lines.append(line(["seconds a layer", *[figure(value, 3) for value in slopes]]))
    return "\n".join(lines)


def slope(points: dict[int, float]) -> float:
    """Of the line with the least squares through the points."""
    return statistics.linear_regression(list(points), list(points.values())).slope if len(points) > 1 else math.nan


def _troubles(rows: list[Row]) -> list[str]:
    """What was told, and what failed, each with its model."""
    told = [f"- {row.model}: {name} told: {text}" for row in rows for name, texts in row.told.items() for text in texts]
    failed = [
        f"- {row.model}: {name} failed: {text.splitlines()[-1]}" for row in rows for name, text in row.failed.items()
    ]
    return ["\n".join([*told, *failed])] if told or failed else []


def _last(value: float) -> float:
    return math.inf if math.isnan(value) else value
