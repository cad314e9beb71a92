"""Random programs of views, writes and `requires_grad_()`: what each tensor says of its history, as in eager.

`python -m tests.aot.histories --examples 1000 --seed 1` prints what differs. A program is called as one graph and with
breaks; either may be refused. Zeros for None are no difference here.
Neighbours: `test_histories.py`; `separate.py` (writes between the call and backward).
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import stator
from stator.base import faults
from stator.base.errors import CaptureError, DataDependent, FallbackWarning, Unsupported

VIEWS = ("{}[1:]", "{}.view(-1)", "{}.t()", "{}[0]", "{}.view_as({})", "{}.unsqueeze(0)", "{}.detach()", "{}.data")
WRITES = ("{}.detach().mul_(2)", "{}.data.mul_(2)", "with torch.no_grad(): {}.mul_(2)", "{}.mul_(2)")
MADE = ("x * 2", "torch.ones(3, 3)", "y.clone()", "x + y", "y * 1")
COMPUTED = ("{} * 2", "{} + y.sum()", "{}.sum()")


class Program(NamedTuple):
    """Statements on x and y, and names that are returned."""

    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    #: How x and y take part in autograd: "" (not), "leaf" or "inner"; whether x is a view of something itself.
    gradients: tuple[str, str] = ("", "")
    is_view: bool = False

    @property
    def source(self) -> str:
        return "def f(x, y):\n" + "".join(f"    {line}\n" for line in (*self.lines, f"return {self.outputs}"))

    def function(self) -> Callable[..., Any]:
        namespace: dict[str, Any] = {"torch": torch}
        exec(self.source.replace("'", ""), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def inputs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What is passed, and the leaf behind it."""
        made = []
        for number, gradient in enumerate(self.gradients, 1):
            leaf = torch.arange(9.0).view(3, 3) + number
            if self.is_view and number == 1:
                leaf = torch.zeros(3, 7)[:, 1::2].copy_(leaf)
            leaf.requires_grad_(gradient != "")
            made.append((leaf * 1 if gradient == "inner" else leaf, leaf))
        return made


def generate(rng: random.Random) -> Program:
    """A program of a few statements."""
    lines: list[str] = []
    names: list[str] = []
    flags: list[str] = []
    operands = ["x"] if rng.random() < 0.3 else []
    for _ in range(rng.randint(3, 9)):
        kind = rng.choices(
            ("make", "view", "take", "stop", "write", "compute", "ask", "backward"), (2, 6, 3, 1, 3, 1, 1, 1)
        )[0]
        before = "with torch.no_grad(): " * (rng.random() < 0.25)
        tensor = rng.choice(names + operands) if names + operands else ""
        if kind == "make" or not names:
            kind, text = "make", rng.choice(MADE)
        else:
            texts = {"view": VIEWS, "write": WRITES, "compute": COMPUTED, "take": ("{}.requires_grad_()",)}
            texts |= {"stop": ("{}.requires_grad_(False)",), "backward": ("{}.sum().backward(retain_graph=True)",)}
            texts |= {"ask": ("({}.requires_grad, {}.is_leaf, {}.grad_fn is None)",)}
            text = rng.choice(texts[kind])
            text = text.format(*[tensor] * text.count("{}"))
        if kind == "ask":
            flags.append(f"f{len(flags)}")
            lines.append(f"{flags[-1]} = {text}")
        elif kind in ("make", "view", "compute"):
            names.append(f"v{len(names)}")
            lines.append(f"{before}{names[-1]} = {text}")
        else:
            lines.append(text)
    outputs = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
    gradients = rng.choice(("", "", "leaf", "inner")), rng.choice(("", "leaf", "inner"))
    return Program(tuple(lines), (*outputs, *flags), gradients, rng.random() < 0.3)


def seen(function: Callable[..., Any], program: Program) -> Any:
    """All that a caller sees of a call; the exception that it raises."""
    built = program.inputs()
    try:
        out = function(*[given for given, _ in built])
    except Exception as error:
        return error
    results = [item for item in out if isinstance(item, torch.Tensor)]
    inputs = [tensor for pair in built for tensor in dict.fromkeys(pair)]
    facts: list[Any] = [item for item in out if not isinstance(item, torch.Tensor)]
    facts += [(tensor.tolist(), asked(state, tensor)) for tensor in (*results, *inputs)]
    facts += [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in (*results, *inputs)] for a in results]
    for result in results:
        targets = [*inputs, *[other for other in results if other is not result and asked(leaf, other) is True]]
        facts += [
            asked(gradient, result, target) for target in targets if result.requires_grad and target.requires_grad
        ]
    for result in results:
        facts.append(asked(differentiate, result) if result.requires_grad else None)
    facts += [asked(accumulated, tensor) for tensor in (*results, *inputs)]
    return facts


def asked(question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return question(*args, **kwargs)
    except RuntimeError as error:
        return str(error)[:30]


def state(tensor: torch.Tensor) -> tuple[bool, bool, bool]:
    return tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None


def leaf(tensor: torch.Tensor) -> bool:
    return tensor.is_leaf


def gradient(of: torch.Tensor, target: torch.Tensor) -> Any:
    found = torch.autograd.grad(of.sum(), target, retain_graph=True, allow_unused=True)[0]
    return None if found is None or not found.any() else found.tolist()


def differentiate(of: torch.Tensor) -> None:
    of.sum().backward(retain_graph=True)


def accumulated(tensor: torch.Tensor) -> Any:
    found = tensor.grad if tensor.is_leaf else None
    return None if found is None or not found.any() else found.tolist()


def difference(program: Program, fullgraph: bool, backend: str = "aot_eager") -> str | None:
    """What differs from eager; "" if nothing does, None if eager raises or the program is refused."""
    want = seen(program.function(), program)
    if isinstance(want, Exception):
        return None
    stator.reset()
    options = {"strict": True} | ({"cache": False} if backend == "inductor" else {})
    compiled = stator.compile(program.function(), backend=backend, fullgraph=fullgraph, options=options)
    before = faults.total()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        got = seen(compiled, program)
    if faults.total() != before:
        return "; ".join(map(str, faults.recent(before)))
    if isinstance(got, Exception):
        refused = isinstance(got, CaptureError | Unsupported | DataDependent)
        return None if refused else f"raises {got!r}"
    return "" if got == want else "; ".join(f"{a}, eager {b}" for a, b in zip(got, want, strict=False) if a != b)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for number in range(given.seed, given.seed + given.examples):
        program = generate(random.Random(number))
        for fullgraph in (True, False):
            why = difference(program, fullgraph)
            verdict = "unusable or refused" if why is None else "right" if not why else "wrong"
            counts[verdict] += 1
            if verdict == "wrong":
                print(f"# seed {number}, fullgraph={fullgraph}: {why}\n{program.source}{program}", flush=True)
    print(dict(counts))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
