"""Views that get another geometry in place, and are written to afterwards: gradients are those of eager.

Matrices are square, so that a gradient of the view as it was before has the shape of the right one.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning, StatorError

SIDE = 4
#: Views of a matrix that are matrices, changes in place that keep it one, and writes to it.
VIEWS = ("{}[:]", "{}.t()", "{}.view(2, 2, {n}).flatten(0, 1)", "{}.unsqueeze(1).squeeze(1)", "{}.transpose(0, 1)")
CHANGES = (
    *("{}.t_()", "{}.transpose_(0, 1)", "{}.swapaxes_(0, 1)", "{}.swapdims_(1, 0)", "torch.Tensor.t_({})"),
    *("{}.unsqueeze_(0).squeeze_(0)", "{}.as_strided_(({n}, {n}), (1, {n}))"),
    "{}.unsqueeze_(2).transpose_(0, 2).squeeze_(0).t_()",
)  # fmt: skip
WRITES = ("{}.mul_(w)", "{}[1].mul_(w[0])", "{}.add_(w.sin())", "{}[:, 2:].copy_(w[:, :2])", "{} += w.t()")


def program(seed: int) -> str:
    """Lines of a function of `x` and `w`, which takes views, changes them in place and writes to them."""
    draw = random.Random(seed)
    names = ["x"]
    lines = ["x = x * 1"]
    for _ in range(draw.randint(3, 9)):
        kind = draw.choice("vcw" if len(names) > 1 else "vw")
        if kind == "v":
            name = f"v{len(names)}"
            lines.append(f"{name} = {draw.choice(VIEWS).format(draw.choice(names), n=SIDE)}")
            names.append(name)
        elif kind == "c":
            lines.append(draw.choice(CHANGES).format(draw.choice(names[1:]), n=SIDE))
        else:
            lines.append(draw.choice(WRITES).format(draw.choice(names)))
    lines.append(f"return {', '.join(draw.sample(names, min(2, len(names))))}, x.sin()")
    return "\n    ".join(["def f(x, w):", *lines])


def function(text: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The function that a text defines."""
    space: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {}
    exec(compile(text, "<program>", "exec"), {"torch": torch}, space)
    return space["f"]


def run(call: Callable[..., tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
    """Results and gradients."""
    source = torch.Generator().manual_seed(0)
    x, w = (torch.randn(SIDE, SIDE, generator=source).div(3).requires_grad_() for _ in "xw")
    outs = call(x, w)
    factors = torch.arange(SIDE * SIDE).view(SIDE, SIDE) + 1.0
    gradients = torch.autograd.grad(sum((out * factors).sum() for out in outs), (x, w), materialize_grads=True)
    return [*outs, *gradients]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    text = program(seed)
    expected = run(function(text))
    got = run(stator.compile(function(text), backend="aot_eager", fullgraph=True))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, msg=lambda why: f"{text}\n{why}")


def written(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v.t_()
    v.mul_(w)
    return (x.sin(),)


def test_inputs_that_are_views_of_another_one() -> None:
    call = stator.compile(written, backend="aot_eager")
    expected = run(lambda x, w: written(y := x * 1, y[:], w.detach()))
    with pytest.warns(FallbackWarning, match="geometry of an input that is a view of another one"):
        got = run(lambda x, w: call(y := x * 1, y[:], w.detach()))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_view_changed_where_nothing_is_recorded() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x * 1
        v = x[:]
        with torch.no_grad():
            v.t_()
        return (v * w,)

    with pytest.raises(StatorError, match="geometry of a view that needs gradients"):
        run(stator.compile(function, backend="aot_eager", fullgraph=True))
