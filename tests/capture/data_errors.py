"""Random programs that write, draw, and meet errors: `python -m tests.capture.data_errors --count 500 [--refused]`.

Each is called with good and bad indices in turn; or, `--refused`, what raises is a statement that eager refuses for the
sizes, dtypes or objects that it meets, and sizes change between the calls. After every call all that a program can
reach must be as in eager: the result or the exception, inputs and buffers with their versions, what Python objects
hold, and the random state.
"""

from __future__ import annotations

import argparse
import random
import textwrap
import time
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import torch

import stator
from stator.base import faults
from stator.base.errors import StatorWarning

#: Statements that change something; `a`, `b` are inputs, `m` a module with a buffer and a parameter, `seen` a list.
WRITES = (
    "a.add_(1)", "a.mul_(b)", "b[1:].sub_(0.5)", "b.copy_(a.sin())", "a[0] = b[1]", "m.buffer.add_(a.sum(0))",
    "m.buffer[1] = 0.25", "a.index_add_(0, good, b[:3])", "a.t()[1].mul_(2)", "b.clamp_(-1, 1)", "a.data.mul_(0.5)",
    "torch.add(a, 1, out=b)", "a.copy_(b.abs())", "m.count += 1", "m.note = len(seen)",
    "with torch.no_grad(): m.weight.mul_(1.5)",
)  # fmt: skip

#: Statements that do something else that can be seen.
EFFECTS = (
    "seen.append(len(seen))", "seen.append(a.sum())", "table['k'] = b * 2", "c = c + torch.rand(3)",
    "c = c + torch.nn.functional.dropout(c, 0.5)", "a.add_(torch.randn(4, 3))", "b.bernoulli_(0.5)",
    "c = c * a[0] + m.weight", "c = (c @ a.t() @ b).tanh()", "table['v'] = b[0]",
)  # fmt: skip

#: What raises for some values of `i` (positions) or `y` (classes).
RAISING = (
    "c = c + w[i].sum()", "c = c + w.gather(0, i).sum()", "c = c + torch.index_select(w, 0, i).mean()",
    "c = c + torch.nn.functional.embedding(i, table_w).sum()", "c = c + w.take(i).sum()",
    "c = c + torch.nn.functional.nll_loss(a.log_softmax(1), y)", "a[i.clamp(max=9) // 2] = 1",
    "w.scatter_(0, i, 1.0)", "w.index_add_(0, i, torch.ones(2))", "w[i] += 1", "a.add_(w[i].sum())",
    "b[:2, 0].add_(w[i])", "c = c + w.index_put((i,), torch.ones(2)).sum()",
    "c = c + torch.nn.functional.one_hot(y, 3).sum()",
)  # fmt: skip

#: What raises whatever the numbers are: always, or for some sizes of `a` and `b`, or from some call on.
REFUSED = (
    "c = c + (a @ b).sum()", "a.add_(torch.ones(5, 3))", "c = c + a.view(2, 6).sum()", "a[:, 5] = 1", "c = c + a[4]",
    "c = c + a[5].sin()", "a.add_(1j)", "a.bitwise_and_(1)", "c = torch.cat([c, a])", "c = c + w.view(-1, 2)[0, 0]",
    "c = c + seen[9]", "c = c + table['none']", "c = c + undefined", "c = c + None", "c = c.nothing()",
    "c = c + 1 // 0", "c = c + int('x')", "raise ValueError(f'{len(seen)} seen')", "assert len(seen) > 3, 'few'",
    "c = m(c)", "good.add_(0.5)", "c.requires_grad_().add_(1)", "m.weight.add_(1)", "(c * m.weight).backward()",
    "bool(a)", "c = c + a.item()", "c = c + float(a)", "torch.add(c, c, out=good)", "c = c + torch.linalg.inv(a)",
    "c = c.expand(2)", "c, d = a", "next(iter(()))", "c = c.squeeze(5)",
    "c = c + torch.nn.functional.linear(a, b.t())", "c = c.sum(3)", "c = c + torch.ones(-1)",
    "c = c.unflatten(0, (2, 2))", "a.copy_(torch.ones(5))", "a.t().add_(torch.ones(5))",
    "torch._foreach_add_([a, b], [torch.ones(3), torch.ones(7)])", "c = c + torch.nn.functional.conv1d(a, b).sum()",
    "c = c + torch.stack([a, b[1:]]).sum()", "b[1:].copy_(a)", "a.index_copy_(0, good, b)",
    "w.scatter_(0, good, c.double())", "c = c + a.reshape(3, 4).sum(1)", "c = c + a.chunk(2)[1][1]", "a.mul_(b[:4])",
    "c = c + torch.dot(c, w)", "torch.add(a, b[:4], out=a)", "c = c + a.to('nowhere')",
    "c = c + torch.zeros(3).index_select(0, c)", "c = c + torch.where(a, 1, 2)", "c = c + torch.softmax(good, 0)",
    "c = c + ~a", "a.squeeze_(7)", "c += torch.ones(2, 3)", "c = torch.max(c, 0)[2]", "m.weight = torch.ones(3)",
    "m.buffer = 'text'", "del m.nothing", "a.data = good", "if a.shape[0] > 4: raise KeyError(a.shape[0])",
    "if len(seen) > 2: c = c.view(7)", "c = c + (a - 1).clamp()", "a.sub_(b).view(-1, 5).zero_()",
    "c = c + torch.einsum('ij,jk->ik', a, b).sum()", "a.normal_(std=-1)", "c = c + torch.full((3,), 'x')",
    "c = c + a.std(dim='x')", "c = c + torch.randint(5, 2, (3,))", "c = c + torch.tensor(a.shape[0] // 0)",
    "a.masked_fill_(b, 1)", "a[b] = 1", "c = c + a.max(0, 1, 2)", "c = c + torch.zeros(3)[good]",
    "b[good] += torch.ones(2, 3)", "with torch.no_grad(): a.mul_(torch.ones(9))",
    "c = c + a.diagonal(9).sum() + a.diagonal(0, 1, 1)", "a.unsqueeze_(4)",
)  # fmt: skip

HEADER = """
def f(a, b, w, i, y, good, table_w, m, seen, table):
    c = torch.zeros(3)
"""

#: Positions and classes of each call: right, out of range, negative, right.
CALLS = (
    ([0, 4], [0, 1, 2, 1]), ([1, 7], [0, 1, 2, 1]), ([2, 3], [2, 1, 0, 0]), ([0, 1], [0, 5, 2, 1]),
    ([-9, 1], [0, 1, 2, 2]), ([3, 3], [1, 1, 1, 1]),
)  # fmt: skip

#: How many rows `a` and `b` have in each call, where that changes.
ROWS = (4, 4, 5, 6, 4, 8)


class State(torch.nn.Module):
    """What a program has beside its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.linspace(0, 1, 3))
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 3))
        self.count = 0
        self.note = 0


def program(rng: random.Random, refused: bool = False) -> str:
    """The text of one."""
    raising = REFUSED if refused else RAISING
    lines = [rng.choice(WRITES + EFFECTS) for _ in range(rng.randint(1, 4))]
    body = [rng.choice(WRITES + EFFECTS) for _ in range(rng.randint(0, 2))]
    body.insert(rng.randint(0, len(body)), rng.choice(raising))
    after = [rng.choice(WRITES + EFFECTS + raising) for _ in range(rng.randint(0, 2))]
    match rng.choice(("plain", "plain", "handled", "finally", "nested", "ungraded", "cast")):
        case "plain":
            lines += body
        case "handled":
            caught = rng.choice(("IndexError", "RuntimeError", "(IndexError, RuntimeError)", "Exception", "KeyError"))
            handler = [
                rng.choice(WRITES + EFFECTS),
                rng.choice(("c = c - 1", "return a * 10", "raise ValueError('bad')")),
            ]
            lines += ["try:", *indented(body), f"except {caught}:", *indented(handler)]
        case "finally":
            lines += ["try:", *indented(body), "finally:", *indented([rng.choice(WRITES), rng.choice(EFFECTS)])]
        case "nested":
            lines += ["def inner(c):", *indented([*body, "return c"]), "try:", *indented(["c = inner(c)"])]
            lines += ["except IndexError as error:", *indented(["seen.append(str(error))", rng.choice(WRITES)])]
        case "ungraded":
            lines += ["with torch.no_grad():", *indented(body)]
        case "cast":
            lines += ["with torch.autocast('cpu', torch.bfloat16):", *indented(body)]
    return HEADER + textwrap.indent("\n".join([*lines, *after, "return c, a + b"]), "    ")


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def run(function: Any, seed: int, rows: Sequence[int] = ()) -> list[Any]:
    """What is seen after each call; with `rows`, `a` and `b` are new ones of so many rows each."""
    torch.manual_seed(seed)
    tensors = [torch.randn(4, 3), torch.randn(4, 3), torch.arange(5.0), torch.randn(5, 2), torch.tensor([0, 2, 3])]
    a, b, w, table_w, good = tensors
    m, seen, table = State(), [], {}
    found = []
    for number, (i, y) in enumerate(CALLS):
        if rows:
            a, b = tensors[:2] = [torch.randn(rows[number], 3) for _ in range(2)]
            y = [0] * rows[number]
        try:
            result: Any = function(a, b, w, torch.tensor(i), torch.tensor(y), good, table_w, m, seen, table)
        except Exception as error:
            result = type(error), str(error)
        kept = [(tensor.detach().clone(), tensor._version) for tensor in (*tensors, m.buffer, m.weight)]
        objects = [item.clone() if isinstance(item, torch.Tensor) else item for item in seen]
        items = {key: item.clone() for key, item in table.items()}
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        found.append([result, kept, objects, items, m.count, m.note, torch.get_rng_state(), modes])
    return found


def same(mine: Any, theirs: Any) -> bool:
    """Whether two of what `run` sees are equal, floats nearly."""
    match mine:
        case torch.Tensor():
            close = isinstance(theirs, torch.Tensor) and mine.dtype is theirs.dtype and mine.shape == theirs.shape
            return close and torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)
        case list() | tuple():
            return type(mine) is type(theirs) and len(mine) == len(theirs) and all(map(same, mine, theirs))
        case dict():
            return list(mine) == list(theirs) and same(list(mine.values()), list(theirs.values()))
    return bool(mine == theirs)


def differences(text: str, backend: str, seed: int, rows: Sequence[int] = (), **arguments: Any) -> list[str]:
    """How the compiled program differs from eager, call by call; faults of ours are differences."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    want = run(namespace["f"], seed, rows)
    stator.reset()
    before = faults.total()
    options = {} if backend == "eager" else {"eager_random": True}
    compiled = stator.compile(namespace["f"], backend=backend, options=options, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        got = run(compiled, seed, rows)
    names = ("result", "tensors", "list", "dict", "count", "note", "random state", "modes")
    found = [
        f"call {number}: {name} is {mine}, not {theirs}"
        for number, (ours, eager) in enumerate(zip(got, want, strict=True))
        for name, mine, theirs in zip(names, ours, eager, strict=True)
        if not same(mine, theirs)
    ]
    return [*found, *map(str, faults.recent(before))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--refused", action="store_true")
    arguments = parser.parse_args()
    rows = ROWS if arguments.refused else ()
    wrong, start = 0, time.perf_counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        text = program(random.Random(seed), arguments.refused)
        try:
            found = differences(text, arguments.backend, seed, rows)
        except Exception:
            found = [traceback.format_exc()[-800:]]
        if found:
            wrong += 1
            print(f"# seed {seed}{text}\n#   {found[0][:600]}", flush=True)
    print(f"{arguments.count} programs, {wrong} wrong, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
