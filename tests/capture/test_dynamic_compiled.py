"""Symbolic sizes through every stage: programs compiled once for all sizes give what eager gives, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base import faults, log
from stator.base.errors import FaultWarning, InternalError, MarkedSizeFixed
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import rand, same
from tests.capture.test_dynamic import PROGRAMS

SHAPES = [(4, 6), (5, 7), (9, 8), (12, 3), (33, 40)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_sizes(name: str) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, fullgraph=True)
    with log.collect() as recorder:
        for shape in SHAPES:
            x = rand(*shape)
            same(compiled(x), program(x))
    refusals = [r["reason"] for r in recorder.of(log.RECOMPILE) if "are not symbolic" in r["reason"]]
    assert not refusals
    assert len(versions_of(compiled)) <= 3


def test_training_with_growing_batches() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    compiled = stator.compile(model, fullgraph=True)
    for rows in (2, 3, 7, 64, 5):
        x = torch.randn(rows, 6)
        found = torch.autograd.grad(compiled(x).square().mean(), list(model.parameters()))
        expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert len(versions_of(compiled)) == 2


def test_attention_over_lengths() -> None:
    def f(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        _, t, d = q.shape
        mask = torch.arange(t)[:, None] >= torch.arange(k.size(1))
        scores = (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")) / d**0.5
        return torch.softmax(scores, -1) @ k

    compiled = stator.compile(f, fullgraph=True)
    for batch, length in ((2, 8), (3, 9), (2, 31), (5, 16)):
        q, k = torch.randn(batch, length, 16), torch.randn(batch, length, 16)
        torch.testing.assert_close(compiled(q, k), f(q, k))
    assert len(versions_of(compiled)) == 2


def test_windows_of_an_image_that_is_padded_to_whole_ones() -> None:
    """How Swin cuts its images: windows as large as the image where that is smaller, which no range tells to be any."""

    def attend(x: torch.Tensor, window: int) -> torch.Tensor:
        _, height, width, channels = x.shape
        window = min(window, height, width)
        below, right = (window - height % window) % window, (window - width % window) % window
        x = torch.nn.functional.pad(x, (0, 0, 0, right, 0, below))
        _, tall, wide, _ = x.shape
        cut = x.view(-1, tall // window, window, wide // window, window, channels).transpose(2, 3)
        tokens = cut.reshape(-1, window * window, channels)
        tokens = torch.softmax(tokens @ tokens.transpose(1, 2), -1) @ tokens
        back = tokens.view(-1, tall // window, wide // window, window, window, channels).transpose(2, 3)
        return back.reshape(-1, tall, wide, channels)[:, :height, :width]

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + attend(x, 7)
            _, height, width, _ = x.shape
            x = x[:, : height // 2 * 2 : 2, : width // 2 * 2 : 2]
        return x

    compiled = stator.compile(f, fullgraph=True)
    for height, width in ((60, 52), (100, 66), (88, 60)):
        x = torch.randn(2, height, width, 8)
        stator.mark_dynamic(x, [1, 2])
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-4)
    assert len(versions_of(compiled)) == 1


def test_a_cache_that_grows() -> None:
    def f(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return torch.cat([cache, new], 1)

    compiled = stator.compile(f, fullgraph=True)
    cache = expected = torch.randn(2, 3, 4)
    for _ in range(8):
        new = torch.randn(2, 1, 4)
        cache, expected = compiled(cache, new), f(expected, new)
        torch.testing.assert_close(cache, expected)
    assert len(versions_of(compiled)) == 2


def test_an_int_reaches_the_kernels() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.arange(n) * n + x[:n].sum()

    compiled = stator.compile(f, fullgraph=True)
    for n in (3, 4, 5, 9):
        x = torch.randn(10)
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert len(versions_of(compiled)) == 2


def marked(*shape: int) -> torch.Tensor:
    """A tensor all of whose sizes may change."""
    x = torch.randn(shape)
    stator.mark_dynamic(x, list(range(len(shape))))
    return x


def test_views_whose_sizes_a_condition_relates() -> None:
    """Pairs of rows: that a size is even, or two are equal, is only known by what was recorded."""

    def pairs(x: torch.Tensor) -> torch.Tensor:
        n, m, _ = x.shape
        if m % 2:
            x, m = x[:, 1:], m - 1
        return (x * 2).permute(2, 0, 1).reshape(-1, n * (m // 2), 2).sum(-1) + 1

    def heads(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows, other = x.reshape(-1, x.shape[-1]), y.shape[0]
        return rows.view(other, -1, x.shape[-1]) * y[:, None, None]

    compiled = stator.compile(pairs, fullgraph=True)
    torch.testing.assert_close(compiled(x := marked(3, 8, 5)), pairs(x))
    for shape in ((5, 12, 4), (2, 6, 9)):
        torch.testing.assert_close(compiled(x := torch.randn(shape)), pairs(x))
    assert len(versions_of(compiled)) == 1
    compiled = stator.compile(heads, fullgraph=True)
    for n, make in ((3, marked), (4, torch.randn), (7, torch.randn)):
        x, y = make(n, 4, 5), make(n)
        torch.testing.assert_close(compiled(x, y), heads(x, y))
    assert len(versions_of(compiled)) == 1


def test_positions_of_either_sign() -> None:
    """Of which sign a position is may be open for sizes in range, though not for those of the calls."""

    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        first = n + 1 - (n % 4 + 3) % 4 - 3
        return (x * 2)[first:] + x.select(0, first)

    compiled = stator.compile(f, fullgraph=True)
    for n, make in ((12, marked), (16, torch.randn), (24, torch.randn)):
        torch.testing.assert_close(compiled(x := make(n, 3)), f(x))


#: Ways to resample, and the rank of what is resampled.
RESAMPLED: dict[str, tuple[dict[str, Any], int]] = {
    "nearest": ({"mode": "nearest"}, 4),
    "nearest-exact": ({"mode": "nearest-exact"}, 4),
    "linear": ({"mode": "linear"}, 3),
    "bilinear": ({"mode": "bilinear"}, 4),
    "bilinear, corners": ({"mode": "bilinear", "align_corners": True}, 4),
    "bicubic": ({"mode": "bicubic"}, 4),
    "trilinear": ({"mode": "trilinear"}, 5),
}


@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_to_sizes_that_change(name: str) -> None:
    how, rank = RESAMPLED[name]

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        twice = torch.nn.functional.interpolate(x, scale_factor=2, **how)
        return torch.nn.functional.interpolate(x * 2, size=y.shape[2:], **how) + y + twice.mean()

    compiled = stator.compile(f, fullgraph=True)
    for n, m in ((8, 20), (12, 31), (9, 14)):
        x = torch.randn(2, 3, *[n + i for i in range(rank - 2)], requires_grad=True)
        y = torch.randn(2, 3, *[m + 3 * i for i in range(rank - 2)])
        if n == 8:
            for tensor in (x, y):
                stator.mark_dynamic(tensor, range(2, rank))
        got, want, weight = compiled(x, y), f(x, y), torch.randn(y.shape)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*(torch.autograd.grad((out * weight).sum(), x)[0] for out in (got, want)))
    assert len(versions_of(compiled)) == 1


@pytest.mark.parametrize("weight", [None, torch.rand(5)], ids=["alike", "weighted"])
def test_losses_of_images_whose_sizes_change(weight: torch.Tensor | None) -> None:
    def f(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = torch.nn.functional.cross_entropy(x, labels, weight, ignore_index=2)
        return loss, torch.nn.functional.cross_entropy(x * 2, labels, weight, reduction="none")

    compiled = stator.compile(f, fullgraph=True)
    for n, change in ((6, stator.mark_dynamic), (9, None), (4, None)):
        x, labels = torch.randn(2, 5, n, n + 1, requires_grad=True), torch.randint(0, 5, (2, n, n + 1))
        if change:
            change(x, (2, 3))
            change(labels, (1, 2))
        got, want = compiled(x, labels), f(x, labels)
        torch.testing.assert_close(got, want)
        grads = (torch.autograd.grad(loss + each.sum(), x)[0] for loss, each in (got, want))
        torch.testing.assert_close(*grads)
    assert len(versions_of(compiled)) == 1


#: Functions that are a primitive of ours.
OURS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lgamma": lambda x, y: torch.lgamma(x.abs() + 1),
    "nextafter": lambda x, y: torch.nextafter(x, y),
    "log_ndtr": lambda x, y: torch.special.log_ndtr(x) + torch.i0(y),
}


@pytest.mark.parametrize("name", OURS)
def test_primitives_that_are_not_operators_of_pytorch(name: str) -> None:
    f = OURS[name]
    compiled = stator.compile(f, fullgraph=True)
    for n, make in ((8, marked), (12, torch.randn), (9, torch.randn)):
        x, y = make(n, 3), make(n, 3)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert len(versions_of(compiled)) == 1


def test_a_mark_that_an_operator_cannot_keep_is_an_error() -> None:
    """What capture has no shape for is told as what the backend refuses is."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear")

    with pytest.raises(MarkedSizeFixed):
        stator.compile(f, fullgraph=True)(marked(2, 3, 8, 9))


@pytest.mark.faults
def test_a_fault_with_symbolic_sizes_is_told() -> None:
    """The numbers of the call at hand are compiled then, and results could not show it."""

    def failing(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if any(isinstance(value, torch.SymInt) for value in inputs):
            raise InternalError("schedule", "nothing fits")
        return gm.forward

    failing.dynamic = True  # type: ignore[attr-defined]
    compiled = stator.compile(lambda x, k: x * k, backend=failing)
    before = faults.total()
    assert compiled(torch.ones(2), 3)[0] == 3
    with pytest.warns(FaultWarning, match="nothing fits"):
        assert compiled(torch.ones(2), 4)[0] == 4
    assert faults.total() == before + 1
