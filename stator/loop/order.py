"""Decide: the order in which groups run, so that little memory lives at once.

Two orders are made and the one with the lower peak is kept: the program's own, and a greedy one that always runs the
ready group after which the least memory lives. What writes the caller's memory waits for what may fail (`failing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from stator.loop.failing import waiting
from stator.loop.fusion import FusionPlan, Group
from stator.sizes import hint

_LOOK = 24  # ready groups that the greedy order compares, oldest first


def order(plan: FusionPlan) -> list[Group]:
    """The groups, each after all it needs."""
    graph = _Graph(plan)
    straight, greedy = graph.straight(), graph.greedy()
    best = straight if graph.peak(straight) <= graph.peak(greedy) else greedy
    return [plan.groups[i] for i in best]


class _Graph:
    """Edges between groups by number, and what each group allocates and reads."""

    def __init__(self, plan: FusionPlan) -> None:
        facts = plan.facts
        self.groups = plan.groups
        number = {member: i for i, group in enumerate(plan.groups) for member in group.members}
        self.needs: list[set[int]] = []
        self.feeds: list[list[int]] = [[] for _ in plan.groups]
        for i, group in enumerate(plan.groups):
            self.needs.append({number[earlier] for member in group.members for earlier in facts.before[member]} - {i})
        for i, more in waiting(facts, plan.groups, self.needs).items():
            self.needs[i] |= more
        for i, needs in enumerate(self.needs):
            for earlier in sorted(needs):
                self.feeds[earlier].append(i)
        buffers = facts.program.buffers
        free = facts.kept | {buffer.name for buffer in facts.program.inputs}  # not ours to place
        self.size: dict[str, int] = {}
        self.makes: list[list[str]] = [[] for _ in plan.groups]
        self.takes: list[list[str]] = [[] for _ in plan.groups]
        self.readers: dict[str, set[int]] = {}
        for name, writers in facts.writers.items():
            if name in free:
                continue
            readers = {number[reader] for reader in facts.readers.get(name, ())} | {number[w] for w in writers}
            if len(readers) == 1:
                continue  # it stays inside of one kernel
            self.size[name] = hint(buffers[name].nbytes)
            self.makes[number[writers[0]]].append(name)
            self.readers[name] = readers
            for reader in readers:
                self.takes[reader].append(name)

    def straight(self) -> list[int]:
        """By the last member: each group as late as its youngest nest."""
        last = [group.members[-1] for group in self.groups]
        waiting = [len(needs) for needs in self.needs]
        ready = [(last[i], i) for i, count in enumerate(waiting) if count == 0]
        heapify(ready)
        result: list[int] = []
        while ready:
            _, i = heappop(ready)
            result.append(i)
            for later in self.feeds[i]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    heappush(ready, (last[later], later))
        return result

    def greedy(self) -> list[int]:
        """The ready group that leaves the least memory, the oldest among equals."""
        waiting = [len(needs) for needs in self.needs]
        ready = [i for i, count in enumerate(waiting) if count == 0]
        left = {name: len(readers) for name, readers in self.readers.items()}
        result: list[int] = []
        while ready:
            best = min(ready[:_LOOK], key=lambda i: self._growth(i, left))
            ready.remove(best)
            result.append(best)
            for name in self.takes[best]:
                left[name] -= 1
            for later in self.feeds[best]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    ready.append(later)
        return result

    def _growth(self, i: int, left: dict[str, int]) -> int:
        freed = sum([self.size[name] for name in self.takes[i] if left[name] == 1])
        return sum([self.size[name] for name in self.makes[i]]) - freed

    def peak(self, sequence: Sequence[int]) -> int:
        """The most bytes alive at once."""
        left = {name: len(readers) for name, readers in self.readers.items()}
        alive = most = 0
        for i in sequence:
            alive += sum([self.size[name] for name in self.makes[i]])
            most = max(most, alive)
            for name in self.takes[i]:
                left[name] -= 1
                if left[name] == 0:
                    alive -= self.size[name]
        return most
