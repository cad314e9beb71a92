"""Layouts that nobody would choose: any order of the digits of any buffer that is free, for tests to force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from stator.base.device import Device
from stator.loop import demands, fusion, layout
from stator.loop.deps import Facts, analyse
from stator.loop.digits import Layout
from stator.loop.fusion import FusionPlan
from stator.loop.layout import Choice


def any_layouts(facts: Facts, device: Device, source: random.Random) -> dict[str, Layout]:
    """A layout drawn for each buffer that no extern has a say in."""
    drawn: dict[str, Layout] = {}
    with mock.patch.dict(demands.DEMANDS, clear=True):
        for name, digits in layout.free(facts, device).items():
            drawn[name] = Layout(digits, tuple(source.sample(range(len(digits)), len(digits))))
    return drawn


@contextmanager
def forced(seed: int) -> Iterator[list[int]]:
    """Whatever is scheduled gets any layouts; how many is told."""
    source, counts = random.Random(seed), []

    def settle(plan: FusionPlan, device: Device) -> tuple[FusionPlan, tuple[Choice, ...]]:
        drawn = any_layouts(plan.facts, device, source)
        counts.append(len(drawn))
        changed = layout.apply(plan.facts.program, drawn)
        buffers = plan.facts.program.buffers
        choices = [Choice(buffers[name], found, "drawn") for name, found in drawn.items()]
        return fusion.decide(analyse(changed), device), tuple(choices)

    with mock.patch.object(layout, "settle", settle):
        yield counts
