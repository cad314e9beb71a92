"""Gradients and constants where sizes change: no number of the call that was compiled, or of torch's, is left in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.base.errors import InternalError
from stator.fake.execute import on_cpu
from stator.fake.symbolic import symfloat, symint
from stator.sizes import Environment
from stator.sizes.real import Real
from tests.aot import changing

BATCHES = (4, 5, 6)

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, w: (x * w).mean(),
    "mean of a dim": lambda x, w: (x * w).mean(0).sum(),
    "sum over a size": lambda x, w: (x * w).sum() / x.shape[0],
    "times a size": lambda x, w: (x * w).sum() * (1 / x.shape[0]),
    "l1_loss": lambda x, w: F.l1_loss(x * w, torch.zeros_like(x)),
    "mse_loss": lambda x, w: F.mse_loss(x * w, x),
    "var": lambda x, w: (x * w).var(),
    "std of a dim": lambda x, w: (x * w).std(0).sum(),
    "cross entropy": lambda x, w: F.cross_entropy(x * w, x.argmax(1)),
    "a factor of ones": lambda x, w: ((x * w).sum(1) * (torch.ones(3).sum() * x.shape[0])).sum(),
}


@pytest.mark.parametrize(("name", "dynamic"), [("mean", None), *[(name, True) for name in LOSSES]])
def test_backward_inside(name: str, dynamic: bool | None) -> None:
    loss = LOSSES[name]

    def step(x: Tensor, w: Tensor) -> None:
        w.grad = None
        loss(x, w).backward()

    compiled = stator.compile(step, dynamic=dynamic, options={"strict": True})
    for batch in BATCHES:
        x = torch.randn(batch, 3)
        w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        compiled(x, w)
        step(x, v)
        torch.testing.assert_close(w.grad, v.grad)


# ---- constants and numbers that change -------------------------------------------------------------------------------

CONSTANTS: list[Callable[[], Tensor]] = [
    lambda: torch.full((), 2.0),
    lambda: torch.ones(2, 3) * 4,
    lambda: torch.tensor([1, 2, 5]),
]

OPERATIONS: dict[str, Callable[[Tensor, Any], Any]] = {
    "add": lambda t, n: t + n,
    "radd": lambda t, n: n + t,
    "sub": lambda t, n: t - n,
    "rsub": lambda t, n: n - t,
    "mul": lambda t, n: t * n,
    "div": lambda t, n: t / n,
    "rdiv": lambda t, n: n / t,
    "floordiv": lambda t, n: t // n,
    "rfloordiv": lambda t, n: n // t,
    "mod": lambda t, n: t % n,
    "fmod": lambda t, n: torch.fmod(t, n),
    "pow": lambda t, n: t.double() ** n,
    "rpow": lambda t, n: n**t,
    "eq": lambda t, n: t == n,
    "lt": lambda t, n: t < n,
    "ge": lambda t, n: n >= t,
    "clamp": lambda t, n: t.clamp(max=n),
    "clamp_min": lambda t, n: t.clamp(min=n - 3),
    "where": lambda t, n: torch.where(t > 1, t, n),
    "rwhere": lambda t, n: torch.where(t > 1, n, t),
    "full_like": lambda t, n: torch.full_like(t, n),
    "new_full": lambda t, n: t.new_full((2,), n),
    "full": lambda t, n: t * torch.full((), n),
    "masked_fill": lambda t, n: t.double().masked_fill(t > 1, n),
    "addcmul": lambda t, n: torch.addcmul(t.double(), t.double(), t.double(), value=n),
    "add alpha": lambda t, n: torch.add(t.double(), t.double(), alpha=n),
    "lerp": lambda t, n: t.double().lerp(2 * t.double(), n),
    "fill": lambda t, n: t.clone().fill_(n),
    "index": lambda t, n: _filled(t, n),
    "divided": lambda t, n: t.sum() / n,
    "scaled": lambda t, n: (t * n).sum().sqrt(),
    "float_power": lambda t, n: torch.float_power(t, n),
    "xlogy": lambda t, n: torch.special.xlogy(t, n),
    "rounded": lambda t, n: torch.div(t, n, rounding_mode="floor"),
    "softplus": lambda t, n: F.softplus(t.double(), beta=n),
    "logit": lambda t, n: torch.logit(t / (t + n)),
    "threshold": lambda t, n: F.threshold(t.double(), 1.5, n),
    "cumsum": lambda t, n: (t.double().reshape(-1) * n).cumsum(0),
    "cat": lambda t, n: torch.cat([t.reshape(-1), (t * n).reshape(-1)]),
    "leaky": lambda t, n: F.leaky_relu(-t.double(), n),
    "scalar_tensor": lambda t, n: t + torch.scalar_tensor(n),
    "hypot": lambda t, n: torch.hypot(t.double(), t.double() * n),
}

NUMBERS: dict[str, Callable[[Tensor, int, float], Any]] = {
    "size": lambda x, k, a: x.numel(),
    "int": lambda x, k, a: k + x.shape[0] // 2,
    "float": lambda x, k, a: a,
    "computed": lambda x, k, a: a * x.shape[0] + k / 3,
}


def _filled(t: Tensor, n: Any) -> Tensor:
    found = t.double().reshape(-1)
    found[0] = n
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_constants_and_numbers(number: str) -> None:
    """Whatever is computed from constants and a number that changes has that number of each call."""

    def program(x: Tensor, k: int, a: float) -> list[Any]:
        n = NUMBERS[number](x, k, a)
        return [operation(make(), n) for operation in OPERATIONS.values() for make in CONSTANTS]

    compiled = stator.compile(program, dynamic=True, fullgraph=True, options={"strict": True})
    names = [f"{name} of constant {at}" for name in OPERATIONS for at in range(len(CONSTANTS))]
    for size, k, a in ((4, 5, 0.25), (5, 7, 0.5), (8, 4, 0.125)):
        x = torch.randn(size, 2)
        for name, mine, theirs in zip(names, compiled(x, k, a), program(x, k, a), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


#: Parts of rows that are one long for some of the sizes below, by an extent that says so to none of its readers.
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "every fourth": lambda x: x[:, ::4],
    "every other of a half": lambda x: x[:, x.shape[1] // 2 :][:, ::2],
    "a third": lambda x: x[:, : x.shape[1] // 3],
    "pooled": lambda x: F.avg_pool1d(x, 3),
    "windows": lambda x: x.unfold(1, 3, 3)[..., 0],
    "a piece": lambda x: x.chunk(3, 1)[-1],
    "a rest": lambda x: x[:, : x.shape[1] % 3 + 1],
    "padded": lambda x: F.pad(x, (0, 3 - x.shape[1])) if x.shape[1] == 4 else x[:, ::3],
}
READERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": lambda x, part: x + part,
    "chosen": lambda x, part: torch.where(x > 0, part, x),
    "expanded": lambda x, part: part.expand_as(x) * 2 if part.shape[1] == 1 else part * 2,
    "scanned": lambda x, part: (x * part).cummax(0) if part.shape[1] == 1 else part.cummax(0),
    "reduced": lambda x, part: (part.sum(1), part.amax(0), (part - part.mean(1, True)).square().sum()),
    "joined": lambda x, part: torch.cat([x, part, part], 1),
    "turned": lambda x, part: part.t().contiguous() @ x,
    "viewed": lambda x, part: part.squeeze(1) if part.shape[1] == 1 else part.reshape(-1),
    "written": lambda x, part: torch.select_scatter(x, part[:, 0], 1, 0),
    "of itself": lambda x, part: part * part.flip(1),
}


@pytest.mark.parametrize("part", PARTS)
def test_extents_that_come_to_one(part: str) -> None:
    """Whatever asks, dims that are broadcast in a call are so in all that the same code serves."""

    def program(x: Tensor) -> dict[str, Any]:
        piece = PARTS[part](x)
        fits = piece.shape[1] in (1, x.shape[1])
        return {name: read(x, piece) for name, read in READERS.items() if fits or name not in ("sum", "chosen")}

    compiled = stator.compile(program, dynamic=True, fullgraph=True, options={"strict": True})
    for width in (4, 3, 5, 8, 4):
        x = torch.randn(6, width, generator=torch.Generator().manual_seed(width))
        torch.testing.assert_close(compiled(x), program(x), msg=lambda text, width=width: f"{width}: {text}")


def test_a_real_kernel_is_never_given_a_symbolic_number() -> None:
    """torch would compute with 7777777 or with nan in its place."""
    environment = Environment()
    size = environment.symbol(5, "a size")
    for number in (symint(size.size * 3, environment), symfloat(Real("sqrt", (size.size,)), environment)):
        for args, kwargs in (((torch.ones(()), number), {}), ((torch.ones(()), torch.ones(())), {"alpha": number})):
            with pytest.raises(InternalError, match="symbolic number"):
                on_cpu(torch.ops.aten.add.Tensor, args, kwargs)
    assert not environment.conditions


# ---- the operator database -------------------------------------------------------------------------------------------

#: What is run here of the database: `python -m tests.aot.changing` runs all of it.
ENTRIES = (
    "diagonal", "logsumexp", "nn.functional.cross_entropy", "nn.functional.group_norm",
    "nn.functional.scaled_dot_product_attention", "std",
)  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_an_operator_at_three_sizes(name: str) -> None:
    found = changing.samples(name, "float32", 1)
    assert found, "the database has no such entry, or no gradients for it"
    verdicts = list(changing.judge(found[0], "inside"))
    assert all(verdict in ("right", "unusable") for verdict, _ in verdicts), verdicts
    assert ("right", "") in verdicts


def _attention(x: Tensor, count: Tensor) -> Tensor:
    count.add_(1)
    return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_attention_at_lengths_that_change(backend: str, grad: bool) -> None:
    """Its scale is a float that the trace has computed; what the call writes is written once."""
    compiled = stator.compile(_attention, backend=backend, options={"strict": True})
    count = torch.zeros(())
    for n, length in enumerate((4, 6, 8, 5), 1):
        x = torch.randn(2, 2, length, 8, requires_grad=grad)
        mine, theirs = compiled(x, count), _attention(x, torch.zeros(()))
        torch.testing.assert_close(mine, theirs)
        assert count.item() == n
        if grad:
            torch.testing.assert_close(*[torch.autograd.grad(y.square().sum(), x)[0] for y in (mine, theirs)])
