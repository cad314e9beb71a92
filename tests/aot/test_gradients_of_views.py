"""Gradients of views of views, of inputs that lie in memory in many ways, against eager: `chain` writes them at random.

A result that shares memory with an input is made outside of the graph, and its history then too. Run this file as a
command for more: `python -m tests.aot.test_gradients_of_views --examples 5000 --seed 1`.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch

import stator
from tests.differential.__main__ import judge
from tests.differential.inputs import LAYOUTS, Input
from tests.differential.programs import Program

#: How a view is made, of a tensor `x` with some number of dims at least; the other letters are numbers.
VIEWS: tuple[tuple[int, str], ...] = (
    (1, "{x}.select({d}, {i})"), (1, "{x}.narrow({d}, {i}, 1)"), (1, "{x}[1:]"), (1, "{x}[..., ::2]"),
    (2, "{x}.diagonal({o}, 0, 1)"), (1, "{x}.unfold({d}, 2, 1)"), (1, "{x}.unfold({d}, 2, 2)"),
    (2, "{x}.transpose(0, {d})"), (1, "{x}.unsqueeze({d})"), (0, "{x}.expand(2, *{x}.shape)"), (1, "{x}.squeeze({d})"),
    (0, "{x}.as_strided(({m}, {n}), ({s}, 1), {k})"), (0, "{x}.as_strided(({m},), ({s},), {x}.storage_offset())"),
    (0, "{x}.as_strided(({m},), ({s},))"), (0, "{x}.view(-1)"), (0, "{x}.reshape(-1)"), (1, "{x}.flatten()"),
    (2, "{x}.movedim(0, {d})"), (0, "{x}.detach()"), (0, "{x}.view_as({x})"), (1, "{x}.chunk(2, {d})[0]"),
    (1, "{x}.select_scatter({x}.select({d}, {i}) * 2, {d}, {i})"), (2, "{x}.diagonal_scatter({x}.diagonal() * 2)"),
    (1, "{x}.slice_scatter({x}[1:] * 2, 0, 1)"), (1, "torch.view_as_complex({x}.unflatten(-1, (-1, 2)))"),
    (0, "torch.view_as_real({x})"), (0, "{x}.real"), (0, "{x}.imag"), (0, "{x}.conj()"), (0, "torch._neg_view({x})"),
    (0, "{x} * 2"), (0, "{x}.as_strided_scatter({x}.as_strided((2,), ({s},)) * 2, (2,), ({s},))"),
)  # fmt: skip


def chain(rng: random.Random) -> Program | None:
    """A few views, one of the other, that eager runs with a gradient."""
    size = rng.choice(((4, 6), (2, 3, 4), (2, 3, 2, 4), (8,)))
    dtype = rng.choice((torch.float32, torch.float32, torch.complex64))
    given = Input(size, dtype, rng.choice(LAYOUTS), "normal", rng.choice(("leaf", "inner")))
    program = Program((given,), (), ())
    names = ["x0"]
    for number in range(rng.randint(1, 4)):
        dims, template = rng.choice(VIEWS)
        text = template.format(
            x=names[-1] if rng.random() < 0.8 else rng.choice(names), d=rng.randrange(max(dims, 1)), i=rng.randrange(2),
            o=rng.randrange(-1, 2), m=rng.randint(1, 3), n=rng.randint(1, 3), s=rng.randint(0, 5), k=rng.randint(0, 4),
        )  # fmt: skip
        name = f"v{number}"
        longer = Program((given,), (*program.lines, f"{name} = {text}"), (name,))
        if "as_strided(" in text and re.search(r"(slice|select|diagonal)_scatter", longer.source):
            continue  # decided: ours start at the beginning of their memory (docs/numerics.md), eager's where `x` does
        try:
            longer.function()(*[recipe.build()[0] for recipe in longer.inputs])
        except (RuntimeError, IndexError):
            continue
        program = longer
        names.append(name)
    outputs = tuple(dict.fromkeys([names[-1], rng.choice(names[1:] or names)]))
    return Program(program.inputs, program.lines, outputs) if program.lines else None


def found(number: int) -> str:
    """What is wrong with the program of a seed, or ""."""
    program = chain(random.Random(number))
    if program is None:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict, why = judge(program, "aot_eager")
    return f"{number}: {why}\n{program}" if verdict == "wrong" else ""


@pytest.mark.parametrize("part", range(4))
def test_gradients_of_chains_of_views(part: int) -> None:
    assert [why for number in range(60 * part, 60 * part + 60) if (why := found(number))] == []


def test_what_an_operand_does_not_hold_gets_no_gradient() -> None:
    """Its result is made outside of the graph by one cut of the input, whose gradient is another: refused."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        return x.select(-1, 0).as_strided((2,), (1,), 1)

    x = torch.randn(2, 17, requires_grad=True)
    with pytest.warns(stator.base.errors.FallbackWarning, match="as_strided reads elements"):
        y = stator.compile(cut)(x)
    assert not torch.autograd.grad(y.sum(), x)[0].any()
    scaled = stator.compile(lambda x: cut(x) * 2, fullgraph=True, options={"strict": True})(x)
    assert not torch.autograd.grad(scaled.sum(), x)[0].any()
    with torch.no_grad():
        assert torch.equal(stator.compile(cut, fullgraph=True, options={"strict": True})(x), x[0, 1:3])


def failures(seed: int, examples: int) -> Iterator[str]:
    """What is wrong with some programs."""
    for number in range(seed, seed + examples):
        if why := found(number):
            yield why


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    count = 0
    for text in failures(arguments.seed, arguments.examples):
        count += 1
        print(text, flush=True)
    print(f"{arguments.examples} programs, {count} wrong")
    sys.exit(count > 0)
