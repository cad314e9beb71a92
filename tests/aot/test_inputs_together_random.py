"""Random groups of inputs in one memory, and random programs that write to them: all is as in eager.

A group is two or three views of one tensor (rows, columns, steps, other orders, other dtypes, detached, `.data`, made
where nothing is recorded), of which some need gradients; a program writes to some of them, recorded or not. Extents of
one are left out: kernels need not keep their strides, which nobody can see in a value.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.graphs.lineage import count_together
from tests.aot.relations import Function, Inputs, differences, flat, gradients, observe

View = Callable[[random.Random, torch.Tensor], torch.Tensor]
#: One step from a tensor of two dimensions, or of one, to a view of it.
STEPS: dict[str, View] = {
    "row": lambda r, x: x[r.randrange(x.shape[0])] if x.dim() > 1 else x,
    "rows": lambda r, x: x[(start := r.randrange(x.shape[0] - 1)) : r.randint(start + 2, x.shape[0])],
    "steps": lambda r, x: x[..., ::2] if x.shape[-1] > 2 else x,
    "columns": lambda r, x: x[..., : max(2, x.shape[-1] - 1)],
    "turned": lambda r, x: x.t() if x.dim() == 2 else x,
    "flat": lambda r, x: x.view(-1) if x.is_contiguous() else x,
}
#: What autograd knows of a view; the first is that it is one.
TIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x,
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "whole numbers": lambda x: x.detach().view(torch.int32),
    "narrower": lambda x: x.detach().view(torch.int16) if x.stride(-1) == 1 else x.detach(),
}
LIKELY = ["view"] * 4 + list(TIES)


def group(seed: int) -> list[torch.Tensor]:
    """Inputs in one memory, those made of a leaf with the leaf hung on them."""
    r = random.Random(seed)
    kind = r.choice(["plain", "leaf", "inner", "inner", "turned"])
    rows, columns = r.randint(2, 4), r.randint(2, 5)
    leaf = (torch.arange(float(rows * columns)).view(rows, columns) / 7 + 1).requires_grad_(kind != "plain")
    whole = {"plain": leaf, "leaf": leaf, "inner": leaf * 1, "turned": leaf.t() * 1}[kind]
    made: list[torch.Tensor] = []
    for _ in range(r.randint(2, 3)):
        view: Any = whole
        with torch.set_grad_enabled(r.random() < 0.9):
            for step in r.choices(list(STEPS), k=r.randint(0, 2)):
                view = STEPS[step](r, view)
        view = TIES[r.choice(LIKELY)](view)
        view = view.view(view.shape) if any(view is other for other in made) else view
        if kind != "plain" and view is not leaf:
            view.made_from = leaf
        made.append(view)
    return made


def statement(r: random.Random, names: list[str], inputs: list[torch.Tensor]) -> list[str]:
    """One write, through an input, part of it, what is detached from it, or where nothing is recorded."""
    i = r.randrange(len(names))
    target = names[i] + r.choice(["", "", ".detach()"]) + r.choice(["", "", "[0:1]"])
    numbers = inputs[i].is_floating_point()
    other = f".copy_({names[i - 1]}.float().sum())"
    text = target + r.choice([".add_(1)", ".mul_(2)", ".zero_()", other] if numbers else [".zero_()"])
    return ["with torch.no_grad():", "    " + text] if r.random() < 0.3 else [text]


def program(seed: int) -> tuple[Function, str]:
    """A function of the group of this number, and its text."""
    r = random.Random(seed + 1)
    inputs = group(seed)
    names = [f"x{i}" for i in range(len(inputs))]
    first = r.choice(names)
    steps = [f"z = {first} * {r.choice(['2', first])}"]
    for _ in range(r.randint(1, 3)):
        steps += statement(r, names, inputs)
    results = [
        text.format(r.choice(names)) for text in r.choices(["{}", "{} * 3", "{}[..., None]", "({} * 2).sum()"], k=2)
    ]
    text = "\n    ".join([f"def f({', '.join(names)}):", *steps, f"return ({', '.join(['z', *results])},)"])
    scope: dict[str, Any] = {"torch": torch}
    exec(text, scope)
    return scope["f"], text


def written_before_backward(function: Function, make: Inputs) -> list[Any]:
    """The gradients where one input was written to between call and backward, for each input."""
    found = []
    for position in range(len(make())):
        inputs = make()
        try:
            outputs = [out for out in flat(function(*inputs)) if isinstance(out, torch.Tensor)]
            with torch.no_grad():
                inputs[position].zero_()
        except RuntimeError as error:
            found.append(type(error).__name__)
        else:
            found.append(gradients(inputs, outputs))
    return found


def compare(seed: int, backend: str) -> bool:
    """Whether the program of this number became a graph; it is as in eager in any case."""
    function, text = program(seed)
    make: Inputs = lambda: group(seed)  # noqa: E731
    compiled = stator.compile(function, backend=backend)
    expected = observe(function, make)
    if "error" in expected:  # what is raised in the middle leaves the inputs half written, in eager as well
        with pytest.raises(RuntimeError):
            compiled(*make())
        return False
    with log.collect() as recorder:
        got = observe(compiled, make)
    # What is written through `.data` after the call goes unnoticed into eager's gradients.
    noticed = all(count_together(a, b) for a, b in pairwise(make()))
    seen = expected if noticed else {name: expected[name] for name in expected if name != "later"}
    found = differences({name: got.get(name) for name in seen}, seen)
    if noticed:
        ours, theirs = written_before_backward(compiled, make), written_before_backward(function, make)
        for mine, right in zip(ours, theirs, strict=True):
            found += differences(mine, right) if right != "RuntimeError" else []
    assert not found, f"{text}\n{'; '.join(found)[:900]}"
    return [span.name for span in recorder.spans].count("backend") == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(0, 400, 50))
def test_random_programs(start: int) -> None:
    graphs = [compare(seed, "aot_eager") for seed in range(start, start + 50)]
    assert sum(graphs) > 25  # eager itself raises for about ten


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(1000, 1060, 15))
def test_random_programs_in_kernels(start: int) -> None:
    graphs = [compare(seed, "inductor") for seed in range(start, start + 15)]
    assert sum(graphs) > 7
