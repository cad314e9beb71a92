"""Products of bfloat16 by weights that lie in pairs of terms: which they are, what is part of them, and eager's values.

What tiles multiply where there are some, vectors do here otherwise: kernels are the same, but for the instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base import log, pairs
from stator.base.device import Device
from stator.kernel import decisions
from stator.kernel import pairs as pair_kernels
from stator.loop import layout
from stator.loop.fusion import FusionPlan
from stator.loop.kernel import Kernel
from stator.passes import convolutions
from stator.passes import pairs as weights
from stator.targets.cpu import record
from tests.passes.test_convolutions import halves
from tests.passes.test_packing import Network, same

OPTIONS: dict[str, object] = {"freezing": True, "strict": True, "cache": False}


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose kernels multiply pairs, of however few rows, and whatever copies of images cost."""
    monkeypatch.setattr(weights, "LEAST_ROWS", 2)
    read = record.read
    monkeypatch.setattr(record, "read", lambda *args: replace(read(*args), multiplies_pairs=True, widens_halves=False))
    for name in ("_CALL", "_COPY", "_TURNED"):
        monkeypatch.setattr(convolutions, name, 0.0)


def run(model: nn.Module, x: Tensor, **others: Any) -> tuple[Any, list[str]]:
    """What it gives, and the calls of libraries."""
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS, **others)(x)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    return found, list(facts["externs"])


#: A function of x (rows, terms) and its parameters, x's shape and theirs.
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "whole tiles": (F.linear, (64, 96), ((64, 96), (64,))),
    "no bias": (F.linear, (64, 96), ((64, 96),)),
    "parts of tiles": (F.linear, (33, 70), ((37, 70), (37,))),
    "odd terms": (F.linear, (5, 33), ((17, 33), (17,))),
    "two rows, terms and columns": (F.linear, (2, 2), ((2, 2), (2,))),
    "few rows, many columns": (F.linear, (3, 40), ((200, 40), (200,))),
    "many columns": (F.linear, (100, 300), ((520, 300), (520,))),
    "as it is": (torch.matmul, (40, 48), ((48, 80),)),
    "read by a kernel": (lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2, (40, 48), ((80, 48), (80,))),
    "added": (lambda x, w, v: F.linear(F.relu(F.linear(x, w)), v) + x, (40, 48), ((80, 48), (48, 80))),
    "of one operand": (lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), (40, 48), ((80, 48), (80, 48))),
    "three dims": (lambda x, w: F.linear(x.view(4, -1, 48), w), (40, 48), ((80, 48),)),
    "a part of x": (lambda x, w: F.linear(x[::2, 8:40], w), (40, 48), ((80, 32),)),
    "normalised": (lambda x, w: F.layer_norm(F.linear(x, w), (80,)), (40, 48), ((80, 48),)),
    "shared": (lambda x, w: F.linear(F.linear(x, w), w), (40, 48), ((48, 48),)),
    "summed": (lambda x, w: F.linear(x, w).sum(1), (40, 48), ((80, 48),)),
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_matrices(kind: str) -> None:
    torch.manual_seed(0)
    function, given, shapes = PRODUCTS[kind]
    model, x = Network(function, *shapes).bfloat16(), torch.randn(given).bfloat16()
    found, externs = run(model, x)
    assert externs == []
    same(model, x, found)


@pytest.mark.parametrize("kind", ["turned", "symbolic"])
def test_what_a_library_multiplies(kind: str) -> None:
    """Terms that do not lie side by side, and rows that change."""
    model = Network(lambda x, w: F.linear(x.t() if kind == "turned" else x, w), (2048, 96)).bfloat16()
    x = torch.randn(96, 96).bfloat16()
    found, externs = run(model, x, dynamic=kind == "symbolic")
    assert externs
    same(model, x, found)


class Mixed(nn.Module):
    """Tokens as an image and back, as between the products of SegFormer: eager has these with tokens side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 24)
        self.mix = nn.Conv2d(48, 48, 3, padding=1, groups=48)

    def forward(self, x: Tensor, kept: bool = False) -> Any:
        n, tokens, _ = x.shape
        image = self.up(x).transpose(1, 2).view(n, 48, 6, tokens // 6)
        mixed = F.gelu(self.mix(image).flatten(2).transpose(1, 2))
        made = x + self.down(mixed)
        return (made, mixed) if kept else made


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
def test_rows_that_eager_has_turned_over(kept: bool, count: int) -> None:
    """A kernel that computes them writes terms side by side, or copies what the program returns as eager has it."""
    torch.manual_seed(0)
    model, x = Mixed().eval().bfloat16(), torch.randn(count, 48, 24).bfloat16()
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS)(x, kept)
        wanted = model(x, kept)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    assert facts["externs"] == []
    for one, other in zip(found, wanted, strict=True) if kept else [(found, wanted)]:
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


class Block(nn.Module):
    """A convolution with windows of one pixel, what is known of its results, and one back."""

    def __init__(self, channels: int, results: int, stride: int, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, results, 1, stride=stride, bias=bias)
        self.norm = nn.BatchNorm2d(results)
        self.last = nn.Conv2d(results, channels, 1, bias=bias)
        with torch.no_grad():
            self.norm.running_mean.normal_()  # type: ignore[operator,union-attr]
            self.norm.running_var.uniform_(0.5, 2)  # type: ignore[operator,union-attr]

    def forward(self, x: Tensor) -> Tensor:
        step = self.first.stride[0]
        return self.last(torch.relu(self.norm(self.first(x)))) + x[..., ::step, ::step]


@halves
@pytest.mark.parametrize("innermost", [True, False])
@pytest.mark.parametrize("sizes", [(24, 40, 1, False), (17, 33, 1, True), (32, 64, 2, True), (96, 16, 3, False)])
def test_images(sizes: tuple[int, int, int, bool], innermost: bool) -> None:
    torch.manual_seed(0)
    model = Block(*sizes).eval().bfloat16()
    x = torch.randn(2, sizes[0], 9, 11).bfloat16()
    x = x.to(memory_format=torch.channels_last) if innermost else x
    found, externs = run(model, x)
    assert externs == []
    same(model, x, found)


class Patches(nn.Module):
    """Windows side by side, of the image as it is or of what is computed of it, and a step that is another one."""

    def __init__(self, channels: int, side: tuple[int, int], bias: bool) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, 40, side, stride=side, bias=bias)
        self.last = nn.Conv2d(40, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.embed(torch.relu(x) + 1)))


@halves
@pytest.mark.parametrize("innermost", [True, False])
@pytest.mark.parametrize("side", [(2, 2), (4, 2), (1, 4), (8, 8)])
@pytest.mark.parametrize("channels", [3, 16])
def test_windows_side_by_side(channels: int, side: tuple[int, int], innermost: bool) -> None:
    torch.manual_seed(0)
    model = Patches(channels, side, bias=channels == 3).eval().bfloat16()
    x = torch.randn(2, channels, 16, 24).bfloat16()
    x = x.to(memory_format=torch.channels_last) if innermost else x
    found, externs = run(model, x)
    assert externs == []
    same(model, x, found)


@pytest.mark.parametrize("changes", [{"stride": 3}, {"padding": 1}, {"dilation": 2}, {"groups": 2}], ids=str)
def test_other_windows_are_the_librarys(changes: dict[str, int]) -> None:
    model = nn.Conv2d(16, 32, 2, **({"stride": 2} | changes)).eval().bfloat16()  # type: ignore[arg-type]
    x = torch.randn(2, 16, 17, 24).bfloat16().to(memory_format=torch.channels_last)
    found, externs = run(model, x)
    assert len(externs) == 1
    same(model, x, found)


@pytest.mark.parametrize("terms", [2, 3, 4])
@pytest.mark.parametrize("rows", [2, 8, 16, 17])
def test_rows_of_few_terms_are_no_pairs(rows: int, terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two terms lie as a weight of two terms does, but end where they do."""
    made: list[pair_kernels.Pairs] = []
    find = pair_kernels.pairs_of

    def noted(kernel: Kernel, deps: Any, device: Device) -> pair_kernels.Pairs | None:
        if (found := find(kernel, deps, device)) is not None:
            made.append(found)
        return found

    monkeypatch.setattr(decisions, "pairs_of", noted)
    model, x = Network(F.linear, (2, terms), (2,)).bfloat16(), torch.randn(rows, terms).bfloat16()
    found, _ = run(model, x)
    same(model, x, found)
    assert bool(made) is (terms > 2)
    for factors in [factors for product in made for factors in product.sums.values()]:
        assert factors.left.attr[1].stride(made[0].rows) == terms


def test_infinities_stay_in_their_rows() -> None:
    """What fills a weight up meets no number of the next row, nor of none. Eager's own product may meet one."""
    model = Network(F.linear, (20, 33), (20,)).bfloat16()
    x = torch.randn(35, 33).bfloat16()
    x[3], x[34, 5] = torch.inf, torch.nan
    found, _ = run(model, x)
    with torch.no_grad():
        wanted = model.double()(x.double()).bfloat16()
    assert torch.equal(found.isfinite(), wanted.isfinite())
    rows = [row for row in range(35) if row not in (3, 34)]
    torch.testing.assert_close(found[rows], wanted[rows], rtol=0.05, atol=0.05)


def test_weights_that_are_written_to() -> None:
    model, x = Network(F.linear, (64, 96), (64,)).bfloat16(), torch.randn(64, 96).bfloat16()
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    for _ in range(3):
        with torch.no_grad():
            same(model, x, compiled(x))
            model.values[0].mul_(0.5)


def test_how_a_weight_lies() -> None:
    """Each element at its place, zeros elsewhere."""
    columns, terms = 37, 45
    graph = torch.fx.Graph()
    value = torch.arange(1.0, columns * terms + 1).view(columns, terms)
    matrix = graph.placeholder("matrix")
    matrix.meta["val"] = value
    end = graph.output(matrix)
    with graph.inserting_before(end):
        laid = weights.lay(end, matrix)
    end.args = (laid,)
    made = torch.fx.GraphModule({}, graph)(value)
    assert made.shape == pairs.shape(columns, terms)
    for column in (0, 15, 16, 36):
        for term in (0, 1, 31, 32, 44):
            assert made.view(-1)[pairs.place(column, term, terms)] == value[column, term]
    assert made.count_nonzero() == columns * terms


def _residual(x: Tensor, *given: Tensor) -> Tensor:
    """Two layers of T5: what is added to a product is read by rows, and by the next product."""
    w, table, v = given
    x = table[torch.arange(len(x)) % len(table)] + F.linear(x, w)
    return x + F.linear(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6), v)


#: A function of x and its parameters, x's shape and theirs, and how many kernels it is.
LINES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, ...], ...], int]] = {
    "a batch": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (2, 64, 128), ((512, 128), (512,)), 1),
    "a batch, normalised": (
        lambda x, w, b: F.layer_norm(F.gelu(F.linear(x, w, b)), (512,)),
        (2, 64, 128),
        ((512, 128), (512,)),
        2,
    ),
    "added": (_residual, (64, 512), ((512, 512), (32, 512), (512, 512)), 3),
}


@pytest.mark.parametrize("kind", LINES)
def test_results_lie_by_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products give columns side by side and read whole lines: no result is turned over, and readers are part of it."""
    decide = layout.decide

    def none_chosen(plan: FusionPlan, device: Device) -> list[layout.Choice]:
        chosen = decide(plan, device)
        assert chosen == []
        return chosen

    monkeypatch.setattr(layout, "decide", none_chosen)
    function, given, shapes, kernels = LINES[kind]
    model, x = Network(function, *shapes).bfloat16(), torch.randn(given).bfloat16()
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS)(x)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    assert facts["externs"] == [] and len(facts["names"]) == kernels
    same(model, x, found)


def test_what_lies_between_products_has_terms_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a kernel beside them would rather read: each product goes in blocks."""
    found: list[object] = []
    in_blocks = decisions._in_blocks

    def counted(made: decisions.LoopPlan, device: Device) -> decisions.LoopPlan:
        found.append(made)
        return in_blocks(made, device)

    monkeypatch.setattr(decisions, "_in_blocks", counted)

    def block(x: Tensor, *given: Tensor) -> Tensor:
        for up, down in zip(given[::2], given[1::2], strict=True):
            x = F.layer_norm(F.linear(F.gelu(F.linear(x, up)), down) + x, (64,))
        return x

    model, x = Network(block, *[(256, 64), (64, 256)] * 2).bfloat16(), torch.randn(32, 64).bfloat16()
    compiled, externs = run(model, x)
    assert externs == [] and len(found) == 2  # both layers are the same two kernels
    same(model, x, compiled)
