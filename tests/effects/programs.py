"""Random programs of calls with effects and without, and what a caller sees of one: values, gradients, effects.

Programs take a matrix and a weight that want gradients, memory that they may write, and positions. Calls are often
equal, or unused. A statement is a template in which `a`, `b` are values of before, and `n` is a fresh number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import stator
from tests.effects import operations
from tests.effects.operations import LOG

#: Templates of statements: those that make a value, as expressions, and others.
VALUES = (
    "a + b", "a * b", "a.sin()", "a - b.mean(1, keepdim=True)", "a @ w", "a.softmax(1)", "plain(a)", "a[positions]",
    "told(a, n)", "heard(a, n)", "drawn(a, n)", "torch.bernoulli(a.detach().sigmoid())", "torch.rand(4, 5) + a",
    "torch.nn.functional.dropout(a, 0.5)", "a * told(torch.tensor(2.0), n)",
)  # fmt: skip
ACTIONS = (
    "note(a, n)", "note(a * b, n)", "told(a, n)", "drawn(a, n)", "memory.add_(a.detach())", "memory.mul_(0.5)",
    "torch._assert_async((a * 0).sum() == 0)", "fill(a.detach(), memory, n)", "torch.rand(3)", "other.copy_(memory)",
    "out = torch.empty(4, 5); fill(b.detach(), out, n); note(out, n)",
)  # fmt: skip


OPTIONS = {"eager_random": True, "strict": True}


@dataclass(frozen=True)
class Program:
    """Its lines, and which values it returns."""

    lines: tuple[str, ...]
    returned: tuple[str, ...]

    def __str__(self) -> str:
        body = [*self.lines, f"return ({', '.join(self.returned)},)"]
        return "def program(x, w, memory, other, positions):\n" + "".join([f"    {line}\n" for line in body])

    def function(self) -> Callable[..., Any]:
        names = {name: getattr(operations, name) for name in ("note", "told", "heard", "fill", "drawn", "plain")}
        namespace: dict[str, Any] = {"torch": torch, **names}
        exec(compile(str(self), "<program of effects>", "exec"), namespace)
        function: Callable[..., Any] = namespace["program"]
        return function


def generate(seed: int, most: int = 14) -> Program:
    """A program."""
    rng = random.Random(seed)
    values, lines = ["x"], []
    for number in range(rng.randint(3, most)):
        acts = rng.random() < 0.5
        template = rng.choice(ACTIONS if acts else VALUES)
        words = {"a": rng.choice(values), "b": rng.choice(values), "n": str(number)}
        text = _filled(template, words)
        for _ in range(2 if rng.random() < 0.3 else 1):  # equal calls
            if acts:
                lines.append(text)
            else:
                values.append(f"v{len(values)}")
                lines.append(f"{values[-1]} = {text}")
    returned = sorted({rng.choice(values[1:] or values) for _ in range(rng.randint(1, 3))})
    return Program(tuple(lines), tuple([f"{name} * 1" for name in returned]))


def _filled(template: str, words: dict[str, str]) -> str:
    """The template with names in place of its letters, where these are words."""
    found, word = [], ""
    for letter in f"{template} ":
        if letter.isalnum() or letter in "_.":
            word += letter
            continue
        head, dot, rest = word.partition(".")
        found.append(f"{words.get(head, head)}{dot}{rest}{letter}")
        word = ""
    return "".join(found).strip()


@dataclass
class Seen:
    """What a caller sees of a call and its gradients."""

    tensors: list[Tensor]
    log: list[tuple[str, int, float]]
    state: Tensor
    failed: bool = False


def observe(function: Callable[..., Any], positions: tuple[int, ...] = (0, 3, 1, 1)) -> Seen:
    """Call it on equal inputs, from an equal random state."""
    torch.manual_seed(7)
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)
    memory, other = torch.randn(4, 5), torch.zeros(4, 5)
    LOG.clear()
    try:
        results = list(function(x, w, memory, other, torch.tensor(positions)))
        wanted = [result for result in results if result.requires_grad]
        grads = torch.autograd.grad([r.sum() for r in wanted], (x, w), allow_unused=True) if wanted else ()
    except IndexError:
        return Seen([memory, other], LOG[:], torch.get_rng_state(), failed=True)
    found = [*results, *[g for g in grads if g is not None], memory, other]
    return Seen([t.detach() for t in found], LOG[:], torch.get_rng_state())


def compare(seed: int, backend: str = "inductor") -> int:
    """The program does the same compiled, at the first call and the next one; how many effects were seen."""
    program = generate(seed)
    function = program.function()
    want = observe(function)
    options = OPTIONS | {"activation_memory_budget": seed % 2}
    compiled = stator.compile(function, fullgraph=True, options=options, backend=backend)
    for _ in range(2):
        found = observe(compiled)
        assert [entry[:2] for entry in found.log] == [entry[:2] for entry in want.log], program
        sums = [torch.tensor([entry[2] for entry in seen.log]) for seen in (found, want)]
        torch.testing.assert_close(*sums, rtol=1e-4, atol=1e-4, msg=str(program))
        torch.testing.assert_close(found.tensors, want.tensors, rtol=1e-4, atol=1e-4, msg=str(program))
        assert found.state.equal(want.state), program
    return len(want.log)


def fail(seed: int) -> bool:
    """With a position out of range: effects that cannot be taken back are not done twice; whether it raised."""
    program = generate(seed)
    function = program.function()
    want = observe(function, (0, 3, 9, 1))
    compiled = stator.compile(function, fullgraph=True, options=OPTIONS | {"activation_memory_budget": seed % 2})
    for _ in range(2):
        found = observe(compiled, (0, 3, 9, 1))
        assert found.failed == want.failed, program
        for name, number, _ in want.log:
            if name in ("note", "told", "heard"):
                done = [sum(entry[:2] == (name, number) for entry in seen.log) for seen in (found, want)]
                assert done[0] <= done[1] or not want.failed, program
    return want.failed
