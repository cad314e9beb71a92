"""What is in memory at the step of a graph at which it is most, for people.

Counted are what the graph makes, wherever it lies, and what it is given, each until its last reader, as a backward
graph lets go of what was saved for it; whoever keeps an input otherwise (parameters) keeps it longer. What takes the
memory of another is counted from the step behind.
Neighbours: `memory.py` has the lives, `footprint.py` what both graphs take.
"""

from __future__ import annotations

from collections import Counter

from stator.loop.kernel import Launch, Schedule
from stator.loop.memory import lifetimes
from stator.loop.nest import View
from stator.sizes import hint

#: How many lines are for what is alive; the rest is one line.
_LINES = 16
GIVEN, WITHIN, RESULT = "given", "within", "result"


def lines(schedule: Schedule) -> list[str]:
    """A line with the step and the bytes, and one for each kind of buffers there, the most bytes first."""
    count = len(schedule.steps)
    kinds = _kinds(schedule)
    lives = lifetimes(schedule.steps, [name for name, kind in kinds.items() if kind is RESULT])
    taken = dict(schedule.memory.aliases)
    spans = {}
    for name, (first, last) in lives.items():
        kind = kinds.get(name, WITHIN)
        begin = 0 if kind is GIVEN else first + (taken.get(name) in lives)
        spans[name] = begin, last, kind
    totals = [0] * (count + 1)
    for name, (begin, last, _) in spans.items():
        for step in range(begin, last + 1):
            totals[step] += hint(schedule.buffers[name].nbytes)
    if not any(totals):
        return []
    most = max(totals)
    at = totals.index(most)
    sums, numbers = Counter[str](), Counter[str]()
    for name, (begin, last, kind) in spans.items():
        if begin <= at <= last:
            buffer = schedule.buffers[name]
            what = f"{buffer.dtype}[{', '.join(map(str, buffer.size))}] {kind}"
            sums[what] += hint(buffer.nbytes)
            numbers[what] += 1
    shown = [f"  {_mib(nbytes)} {numbers[what]:4} x {what}" for what, nbytes in sums.most_common(_LINES)]
    rest = most - sum([nbytes for _, nbytes in sums.most_common(_LINES)])
    return [f"memory: at most{_mib(most)} at step {at} of {count}, {_name(schedule, at)}", *shown,
            *([f"  {_mib(rest)} of others"] if rest else [])]  # fmt: skip


def _kinds(schedule: Schedule) -> dict[str, str]:
    kinds = {output.buffer: RESULT for output in schedule.outputs if isinstance(output, View)}
    return kinds | {buffer.name: GIVEN for buffer in schedule.inputs}


def _name(schedule: Schedule, at: int) -> str:
    if at == len(schedule.steps):
        return "when it returns"
    step = schedule.steps[at]
    if isinstance(step, Launch):
        return schedule.names[schedule.kernels.index(step.kernel)]
    return step.extern.target


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:9.1f} MiB"
