"""`python -m tests.aot.separate`: random programs whose results are written to and differentiated one by one.

A program is a list of operations on two leaves, a tensor in the middle of a history and a buffer. A scenario is what
the caller does with it: writes to inputs and results that autograd does not record, and gradients of one result or of
several, with and without `retain_graph`. Each step has to give what it gives in eager: gradients, or the same error.
"""

from __future__ import annotations

import argparse
import collections
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import stator
from stator.base.errors import CaptureError, DataDependent, Unsupported

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "exp": lambda a: (a * 0.1).exp(),
    "exp of a half": lambda a: torch.exp(a.clamp(-3, 3)),
    "tanh": torch.tanh,
    "softmax": lambda a: torch.softmax(a, -1),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "double": lambda a: a * 2,
    "more": lambda a: a + 1,
    "square": torch.square,
    "view": lambda a: a.view(4, 4),
    "transposed": lambda a: a.t(),
    "copied": lambda a: a.clone().detach(),
    "detached": lambda a: a.detach(),
    "cloned": torch.clone,
    "norm": lambda a: torch.nn.functional.layer_norm(a, (4,)),
    "mean": lambda a: a - a.mean(),
    "largest": lambda a: a.amax(1, keepdim=True),
    "cumulated": lambda a: a.cumsum(0),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (b.square() + 1),
    "matmul": lambda a, b: a @ b.expand(4, 4),
    "where": lambda a, b: torch.where(a > b, a, b),
    "maximum": torch.maximum,
    "masked": lambda a, b: a.masked_fill(b > 0, 0.5),
    "atan2": torch.atan2,
}
INPUTS = ("x", "w", "h", "buffer")


@dataclass(frozen=True)
class Program:
    """Operations on values by number, the inputs first; then which values are returned."""

    steps: tuple[tuple[str, tuple[int, ...]], ...]
    results: tuple[int, ...]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for name, operands in self.steps:
            function: Any = UNARY.get(name) or BINARY[name]
            found = function(*[values[i] for i in operands])
            values.append(found.expand(4, 4) if found.shape != (4, 4) else found)
        return tuple([values[i] for i in self.results])


@dataclass(frozen=True)
class Act:
    """A step of the caller: "write" to an input or result, or the "gradient" of the sum of some results."""

    kind: str
    places: tuple[int, ...]
    retain: bool = False


def generate(source: random.Random) -> tuple[Program, tuple[Act, ...]]:
    """A program, and what is done with its results."""
    steps: list[tuple[str, tuple[int, ...]]] = []
    for number in range(source.randint(2, 8)):
        table: Any = source.choice((UNARY, BINARY))
        name = source.choice(sorted(table))
        # What came last is read more often.
        known = len(INPUTS) + number
        operands = [max(source.randrange(known), source.randrange(known)) for _ in range(1 + (table is BINARY))]
        steps.append((name, tuple(operands)))
    made = range(len(INPUTS), len(INPUTS) + len(steps))
    results = tuple(source.sample(made, min(len(made), source.randint(2, 4))))
    acts = []
    for _ in range(source.randint(2, 5)):
        if source.random() < 0.4:
            acts.append(Act("write", (source.randrange(len(INPUTS) + len(results)),)))
        else:
            count = source.choice((1, 1, 1, 2))
            acts.append(Act("gradient", tuple(source.sample(range(len(results)), count)), source.random() < 0.4))
    return Program(tuple(steps), results), (*acts, Act("gradient", (0,)), Act("gradient", (len(results) - 1,)))


def played(function: Callable[..., Any], acts: tuple[Act, ...]) -> list[Any]:
    """What each act gives: gradients, or the kind of error. One that fails has freed what it came to by then."""
    torch.manual_seed(0)
    x, w = (torch.randn(4, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    inputs = [x, w, torch.randn(4, 4, dtype=torch.float64).requires_grad_() * 1, torch.randn(4, 4, dtype=torch.float64)]
    results = function(*inputs)
    found: list[Any] = [[result.detach().clone() for result in results]]
    for act in acts:
        if act.kind == "write":
            found.append(_written([*inputs, *results][act.places[0]]))
            continue
        outputs = [results[i] for i in act.places if results[i].requires_grad]
        if not outputs:
            found.append(None)
            continue
        grads = [torch.full_like(output, 0.5 + i) for i, output in enumerate(outputs)]
        try:
            found.append(torch.autograd.grad(outputs, inputs[:3], grads, retain_graph=act.retain, allow_unused=True))
        except RuntimeError as error:
            found.append(type(error).__name__)
            if not act.retain:
                break
    return found


def _written(tensor: Tensor) -> str:
    """A write that autograd counts and does not record."""
    try:
        with torch.no_grad():
            tensor.mul_(0.5)
    except RuntimeError as error:  # to an expanded tensor
        return type(error).__name__
    return ""


def differences(got: list[Any], want: list[Any]) -> str:
    """How two scenarios came out differently."""
    if len(got) != len(want):
        return f"{got[-1]!r} after {len(got)} acts, in eager {want[-1]!r} after {len(want)}"[:400]
    for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if isinstance(mine, str) or isinstance(theirs, str) or mine is None or theirs is None:
            if isinstance(mine, str) != isinstance(theirs, str) or mine != theirs:
                return f"act {number} gives {mine!r}, in eager {theirs!r}"[:400]
            continue
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if (a is None) != (b is None):
                return f"act {number}: {i} is {a}, in eager {b}"[:400]
            if a is not None and not torch.allclose(a, b, equal_nan=True, rtol=1e-7, atol=1e-9):
                return f"act {number}: {i} is {a.tolist()}, in eager {b.tolist()}"[:400]
    return ""


def judge(program: Program, acts: tuple[Act, ...], backend: str) -> tuple[str, str]:
    """Right, refused or wrong, and why."""
    want = played(program, acts)
    options = {"strict": True, "cache": False} if backend == "inductor" else {"strict": True}
    stator.reset()
    compiled = stator.compile(lambda *inputs: program(*inputs), backend=backend, fullgraph=True, options=options)
    try:
        got = played(compiled, acts)
    except (CaptureError, DataDependent, Unsupported) as error:
        return "refused", str(error).split("\n")[0]
    why = differences(got, want)
    return ("wrong", why) if why else ("right", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="aot_eager")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    for number in range(given.seed, given.seed + given.examples):
        program, acts = generate(random.Random(number))
        verdict, why = judge(program, acts, given.backend)
        counts[verdict] += 1
        if verdict != "right":
            print(f"{verdict} {number}: {why}\n  {program}\n  {acts}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
