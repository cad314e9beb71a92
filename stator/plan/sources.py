"""What of the user's program a kernel computes, line by line, for people who read the artifacts.

What is compiled and kept in the store says nothing of it: it is found again for an equal graph of another file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stator.loop.kernel import Kernel, Launch, Schedule


def launch_remarks(schedule: Schedule) -> list[list[str]]:
    """For each launch in order, `file:line: operator, operator` in the order of the kernel's operators."""
    return [_remarks(step) for step in schedule.steps if isinstance(step, Launch)]


def kernel_remarks(schedule: Schedule) -> dict[str, str]:
    """For each kernel by its name the same of its first launch, in a line."""
    return {name: "; ".join(remarks) for name, remarks in _kernel_remarks(schedule).items()}


def unit_text(source: str, kernels: Sequence[str], schedule: Schedule, mark: str) -> str:
    """The source of a unit with comments, which begin with `mark`: over each kernel, where it is a function in Python's
    grammar, else over all of them as a list.
    """
    remarks, listed = _kernel_remarks(schedule), list[str]()
    for name in kernels:
        defined = re.search(rf"^(@\S+\n)*def {name}\(", source, re.MULTILINE)
        if defined is None:
            listed += [f"{mark} {line}" for line in (name, *[f"  {remark}" for remark in remarks[name]])]
            continue
        start, lines = defined.start(), [f"{mark} {remark}\n" for remark in remarks[name]]
        source = "".join([source[:start], *lines, source[start:]])
    return "\n".join([*listed, "", source]) if listed else source


def _kernel_remarks(schedule: Schedule) -> dict[str, list[str]]:
    """The same for each kernel by its name: of its first launch, and how many more launches there are."""
    names = dict(zip(schedule.kernels, schedule.names, strict=True))
    launches: dict[Kernel, list[Launch]] = {}
    for step in schedule.steps:
        if isinstance(step, Launch):
            launches.setdefault(step.kernel, []).append(step)
    found = {}
    for kernel, (first, *others) in launches.items():
        again = [f"and {len(others)} more"] if others else []
        found[names[kernel]] = [*_remarks(first), *again]
    return found


def _remarks(launch: Launch) -> list[str]:
    places: dict[str, list[str]] = {}
    for operator in launch.operators:
        place = "somewhere" if operator.place is None else f"{operator.place[0]}:{operator.place[1]}"
        names = places.setdefault(place, [])
        if operator.name not in names:
            names.append(operator.name)
    return [f"{place}: {', '.join(names)}" for place, names in places.items()]
