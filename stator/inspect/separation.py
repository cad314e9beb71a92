"""Why two steps of a compiled graph are not one kernel, asked by name after the fact.

Steps are named as the artifacts name them: a node of a graph (`mul_3`, `sum_2`), or a kernel (`softmax_k0`), which
stands for what it writes. What has no memory of its own is computed where it is read, and that is told, and asked,
instead.
Neighbours: `loop/apart.py` has the reasons, `pipeline.why` schedules the graph anew, `question.py` asks it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from stator.base.errors import UnknownStep
from stator.loop.kernel import Launch, Schedule

#: The two halves of a graph, and what is taken out under freezing: nodes and schedule of each.
Halves = Mapping[str, tuple[fx.Graph, Schedule]]


def tell(halves: Halves, one: str, other: str) -> str:
    """The reason, of each half that has both steps. A name may begin with that of its half: `backward.mul_3`."""
    places = [{half for half in halves if _within(halves, half, name)} for name in (one, other)]
    for name, found in zip((one, other), places, strict=True):
        if not found:
            raise UnknownStep(name, [step for half in halves for step in _names(*halves[half])])
    both = [half for half in halves if half in places[0] & places[1]]
    if not both:
        first, second = (" and ".join(sorted(found)) for found in places)
        return f"{one} is in the {first} graph and {other} in the {second} graph, and no kernel is part of two"
    return "\n".join([f"{half}: {_reason(*halves[half], _bare(half, one), _bare(half, other))}" for half in both])


def _bare(half: str, name: str) -> str:
    return name.removeprefix(f"{half}.")


def _within(halves: Halves, half: str, name: str) -> bool:
    """Whether a half has a step of this name, or an input."""
    return _bare(half, name) in _names(*halves[half])


def _names(graph: fx.Graph, schedule: Schedule) -> list[str]:
    """All steps of a half: nodes, buffers, kernels."""
    assert schedule.apart is not None, "the schedule was just made"
    return [*[node.name for node in graph.nodes if node.op != "output"], *schedule.apart.names, *schedule.names]


def _reason(graph: fx.Graph, schedule: Schedule, one: str, other: str) -> str:
    """Why two steps of a half are not one kernel, or that they are."""
    apart = schedule.apart
    assert apart is not None, "the schedule was just made"
    told, asked = [], []
    for name in (one, other):
        places = _places(name, graph, schedule)
        if not places:
            return f"{name} is no step that runs: it is an input, or nobody needs it"
        if places != [name]:
            told.append(f"{name} {'writes' if name in schedule.names else 'is computed with'} {', '.join(places)}")
        asked.append(places)
    if not set(asked[0]).isdisjoint(asked[1]):
        return "; ".join([*told, f"{one} and {other} are in one kernel"])
    told += [apart.why(first, second) for first in asked[0] for second in asked[1]]
    return "; ".join(told)


def _places(name: str, graph: fx.Graph, schedule: Schedule) -> list[str]:
    """The buffers that are written where a step is computed: its own, or those of its nearest readers with one."""
    assert schedule.apart is not None, "the schedule was just made"
    buffers = schedule.apart.names
    if name in buffers:
        return [name]
    if name in schedule.names:
        kernel = schedule.kernels[schedule.names.index(name)]
        launch = next(step for step in schedule.steps if isinstance(step, Launch) and step.kernel is kernel)
        written = [at.buffer for at, param in zip(launch.args, kernel.params, strict=True) if param.role != "in"]
        return written[:1]
    found: dict[str, None] = {}
    waiting = [node for node in graph.nodes if node.name == name and node.op == "call_function"]
    seen = set(waiting)
    for node in waiting:
        for user in node.users:
            if user.name in buffers:
                found.setdefault(user.name)
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
    return list(found)
