"""Weights of convolutions in the library's order: which they are, how images between them lie, and eager's values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base import log
from stator.graphs.frozen import CONVOLUTION, library
from stator.passes import convolutions, pixels
from stator.targets.cpu import record
from tests.lowering.test_convolution import Random, agree

OPTIONS: dict[str, object] = {"freezing": True, "strict": True, "cache": False}
#: With windows of one pixel they are products.
PACKED = {"mkldnn._convolution_pointwise.default", "mkl._mkl_linear.default", "mkldnn._linear_pointwise.default"}

pytestmark = pytest.mark.skipif(not record.onednn_convolves(), reason="convolutions are another library's")
halves = pytest.mark.skipif(not record.onednn_multiplies_halves(), reason="no instructions for bfloat16")


@pytest.fixture
def gaining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images pay for no copy: here each convolution gains whatever it costs, and none is a loop."""
    for name in ("_CALL", "_COPY", "_TURNED"):
        monkeypatch.setattr(convolutions, name, 0.0)
    for name in ("_LOOP_PIXELS", "_MANY_PIXELS"):
        monkeypatch.setattr(pixels, name, 1 << 40)


def run(model: nn.Module, x: Tensor, **others: Any) -> tuple[Any, int, int]:
    """What it gives, how many of its convolutions are packed, and how many kernels run."""
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS, **others)(x)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    return found, sum([name in PACKED for name in facts["externs"]]), len(facts["names"])


def same(model: nn.Module, x: Tensor, found: Tensor) -> None:
    with torch.no_grad():
        wanted = model(x)
        agree(found, wanted, model.double()(x.double()))
        model.to(wanted.dtype)


#: A convolution, and its channels where these are not six.
PACKS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv2d(6, 8, 3), "one by one": lambda: nn.Conv2d(6, 8, 1),
    "no bias": lambda: nn.Conv2d(6, 8, 3, bias=False), "groups": lambda: nn.Conv2d(6, 9, 3, groups=3),
    "each alone": lambda: nn.Conv2d(6, 6, 5, padding=2, groups=6), "two of each": lambda: nn.Conv2d(6, 12, 3, groups=6),
    "odd groups": lambda: nn.Conv2d(6, 10, (3, 2), groups=2), "dilated": lambda: nn.Conv2d(6, 7, 3, dilation=2),
    "strides": lambda: nn.Conv2d(6, 8, (3, 1), (2, 3), (1, 0)), "same": lambda: nn.Conv2d(6, 8, 5, padding="same"),
    "valid": lambda: nn.Conv2d(6, 8, 4, padding="valid"), "one row": lambda: nn.Conv2d(6, 8, (9, 1)),
    "reflected": lambda: nn.Conv2d(6, 8, 3, padding=2, padding_mode="reflect"),
    "circular": lambda: nn.Conv2d(6, 8, 3, padding=2, padding_mode="circular"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PACKS)
@pytest.mark.parametrize("form", ["plain", "innermost", "bfloat16", "one image", "sliced"])
@pytest.mark.usefixtures("gaining")
def test_a_convolution(kind: str, form: str) -> None:
    dtype = torch.bfloat16 if form == "bfloat16" and record.onednn_multiplies_halves() else torch.float32
    model, x = PACKS[kind]().to(dtype), torch.randn(1 if form == "one image" else 3, 6, 9, 11, dtype=dtype)
    if form == "innermost":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    elif form == "sliced":
        x = torch.randn(3, 9, 9, 22)[:, 3:, :, ::2]
    found, packed, _ = run(model, x)
    assert packed == 1
    same(model, x, found)


#: What stays as it is: a module, and the shape of what it is given.
STAYS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transposed": (lambda: nn.ConvTranspose2d(6, 8, 3), (2, 6, 9, 9)),
    "three dims": (lambda: nn.Conv3d(6, 8, 3), (2, 6, 5, 5, 5)),
    "no images": (lambda: nn.Conv2d(6, 8, 3), (0, 6, 9, 9)),
    "one pixel": (lambda: nn.Conv2d(6, 8, 3), (2, 6, 3, 3)),
    "doubles": (lambda: nn.Conv2d(6, 8, 3).double(), (2, 6, 9, 9)),
    "half": (lambda: nn.Conv2d(6, 8, 3).half(), (2, 6, 9, 9)),
    "one result": (lambda: nn.Conv2d(6, 1, 3), (2, 6, 9, 9)),
}


@pytest.mark.parametrize("kind", STAYS)
@pytest.mark.usefixtures("gaining")
def test_what_stays(kind: str) -> None:
    build, shape = STAYS[kind]
    model = build()
    x = torch.randn(shape, dtype=next(model.parameters()).dtype)
    found, packed, _ = run(model, x)
    assert packed == 0
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-2, atol=1e-2)


#: Convolutions of one dim, and how many of them are packed.
ROWS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "plain": (lambda: nn.Conv1d(6, 8, 3), 1), "strides": (lambda: nn.Conv1d(6, 8, 5, 2, 3), 1),
    "dilated": (lambda: nn.Conv1d(6, 8, 3, dilation=2, bias=False), 1),
    "groups": (lambda: nn.Conv1d(6, 9, 3, groups=3), 1),
    "two": (lambda: nn.Sequential(nn.Conv1d(6, 8, 3, 1, 1), nn.GELU(), nn.Conv1d(8, 8, 3, 2, 1), nn.ReLU()), 2),
    "each alone": (lambda: nn.Conv1d(6, 6, 3, groups=6), 0), "transposed": (lambda: nn.ConvTranspose1d(6, 8, 3), 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("form", ["plain", "turned", "sliced"])
@pytest.mark.usefixtures("gaining")
def test_of_one_dim(kind: str, form: str) -> None:
    make, packs = ROWS[kind]
    shown: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: torch.randn(2, 6, 31), "turned": lambda: torch.randn(2, 31, 6).transpose(1, 2),
        "sliced": lambda: torch.randn(2, 9, 40)[:, 2:8, 5:36],
    }  # fmt: skip
    model, x = make(), shown[form]()
    found, packed, _ = run(model, x)
    assert packed == (max(packs - 1, 0) if form == "turned" else packs), "as an image its result would lie otherwise"
    assert found.stride() == model(x).stride()
    same(model, x, found)


@pytest.mark.usefixtures("gaining")
def test_nothing_is_copied_between_those_of_one_dim() -> None:
    """What is read is brought into the library's order, and what follows the last one is in eager's."""
    model, x = ROWS["two"][0](), torch.randn(2, 6, 31)
    found, packed, kernels = run(model, x)
    assert packed == 2 and kernels == 3
    same(model, x, found)


@pytest.mark.usefixtures("gaining")
def test_a_weight_that_is_given_stays() -> None:
    class Given(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, x[:1, :, :3, :3])

    assert run(Given(), torch.randn(2, 6, 9, 9))[1] == 0


@pytest.mark.usefixtures("gaining")
def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library("_convolution_pointwise") is CONVOLUTION and library("_no_operator") is None
    read = record.read
    monkeypatch.setattr(record, "read", lambda *args: replace(read(*args), onednn_convolutions=False))
    model, x = nn.Conv2d(6, 8, 3), torch.randn(2, 6, 9, 9)
    found, packed, _ = run(model, x)
    assert packed == 0
    same(model, x, found)


def test_it_must_pay() -> None:
    """A small one between two copies is left alone, unless neighbours need no copy either."""
    alone = nn.Conv2d(16, 16, 1)
    assert run(alone, torch.randn(1, 16, 14, 14))[1] == 0
    many = nn.Sequential(*[nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(8)])
    assert run(many, torch.randn(1, 64, 28, 28))[1] == 8


@pytest.mark.usefixtures("gaining")
def test_nothing_is_copied_between() -> None:
    """The given image is, and the result, which has eager's strides; the sum is in place of neither."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(6, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 6, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            z = torch.cat([y, self.b(y)], 1)
            return self.c(z) + x

    model, x = nn.Sequential(Block(), Block()), torch.randn(2, 6, 8, 8)
    found, packed, kernels = run(model, x)
    # the copy of the image, a bias, a join and a sum of each block; a join is of two kernels where none reads it
    assert packed == 6 and kernels <= 9
    same(model, x, found)


@pytest.mark.usefixtures("gaining")
def test_readers_that_want_eagers_strides() -> None:
    """A result that is returned, and read by an operator of PyTorch's and through a view."""

    class Readers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = nn.Conv2d(6, 8, 3), nn.ConvTranspose2d(8, 4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = self.conv(x)
            z = y.relu()
            return y, z, self.up(z), y.flatten(2).transpose(1, 2), z.as_strided((4, 3), (3, 1), 5), torch.sort(y, 1)[0]

    model, x = Readers(), torch.randn(2, 6, 9, 9)
    found, packed, _ = run(model, x)
    assert packed == 1
    with torch.no_grad():
        for ours, theirs in zip(found, model(x), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("gaining")
def test_a_new_weight_is_packed_again() -> None:
    model, x = (
        nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval(),
        torch.randn(2, 6, 9, 9),
    )
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        for number in range(3):
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            model[number if number < 2 else 3].weight.mul_(-1.5)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


@halves
@pytest.mark.usefixtures("gaining")
def test_under_autocast() -> None:
    model = nn.Sequential(nn.Conv2d(6, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 3))
    x = torch.randn(2, 6, 9, 9)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found, packed, _ = run(model, x)
        wanted = model(x)
    assert packed == 2 and found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=2**-6, atol=2**-6)


@pytest.mark.usefixtures("gaining")
def test_special_values_stay() -> None:
    """NaN goes through activations, which is why the library does not apply these."""
    model, x = nn.Sequential(nn.Conv2d(6, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.ReLU6()), torch.randn(2, 6, 5, 5)
    x[0, 2, 1, 1], x[1, 3, 2, 2] = float("nan"), float("inf")
    found, packed, _ = run(model, x)
    with torch.no_grad():
        wanted = model(x)
    assert packed == 2 and wanted.isnan().sum() >= 4
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("gaining")
def test_random_networks(seed: int) -> None:
    source = random.Random(seed)
    torch.manual_seed(seed)
    dtype = source.choice((torch.float32, torch.float32, torch.bfloat16))
    shape = source.choice((0, 1, 1, 2)), source.choice((1, 3, 6)), source.randint(3, 9), source.randint(3, 9)
    model = Random(source, shape[1]).eval()
    x = torch.randn(shape)
    with torch.no_grad():
        exact = model.double()(x.double())
        model = model.to(dtype)
        wanted = model(x.to(dtype))
    found, _, _ = run(model, x.to(dtype), dynamic=source.random() < 0.2)
    for a, b, c in zip(found, wanted, exact, strict=True):
        agree(a, b, c)


@pytest.mark.usefixtures("gaining")
def test_many_of_them_are_packed() -> None:
    packed = 0
    for seed in range(6):
        source = random.Random(seed)
        packed += run(Random(source, 6).eval(), torch.randn(1, 6, 8, 8))[1]
    assert packed > 5


@pytest.mark.usefixtures("gaining")
def test_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)), torch.randn(2, 6, 9, 9)
    found = []
    with torch.no_grad():
        for _ in range(2):
            found.append(stator.compile(model, fullgraph=True, options=OPTIONS | {"cache": True})(x))
            monkeypatch.setattr(convolutions, "_pack", None)  # nothing is compiled again
    assert torch.equal(*found)
    same(model, x, found[1])


#: Borders before a convolution, and whether they become its own.
BORDERS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "all around": (lambda x: F.pad(x, (1, 1, 1, 1)), True),
    "rows alone": (lambda x: F.pad(x, (0, 0, 2, 2)), True),
    "none": (lambda x: F.pad(x, (0, 0, 0, 0)), True),
    "one side": (lambda x: F.pad(x, (0, 1, 0, 1)), False),
    "cut off": (lambda x: F.pad(x, (-1, -1, -1, -1)), False),
    "ones": (lambda x: F.pad(x, (1, 1, 1, 1), value=1.0), False),
    "channels": (lambda x: F.pad(x, (1, 1, 1, 1, 1, 1))[:, 1:7], False),
    "columns": (lambda x: F.pad(x, (1, 1)), False),
}


@pytest.mark.parametrize("what", BORDERS)
@pytest.mark.parametrize("padding", [0, (2, 1), "same"])
def test_borders(what: str, padding: Any) -> None:
    border, folded = BORDERS[what]

    class Bordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(6, 8, 3, padding=padding)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(border(x))

    model, x = Bordered().double(), torch.randn(2, 6, 7, 8, dtype=torch.float64)
    found, _, kernels = run(model, x)
    assert (kernels == 0) is folded
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))


class Stem(nn.Module):
    """What mobile networks begin with: a border on one side, few channels, many results."""

    def __init__(self, bias: bool = True, **given: Any) -> None:
        super().__init__()
        self.layer = nn.Conv2d(given.pop("channels", 3), given.pop("results", 32), bias=bias, **given)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(torch.nn.functional.pad(x, (0, 1, 0, 1)))) * 2


STEMS: dict[str, dict[str, Any]] = {
    "steps": {"kernel_size": 3, "stride": 2}, "no bias": {"kernel_size": 3, "stride": 2, "bias": False},
    "odd": {"kernel_size": (2, 3), "stride": (1, 3), "results": 37}, "dilated": {"kernel_size": 3, "dilation": (2, 3)},
    "one channel": {"kernel_size": 5, "channels": 1},
}  # fmt: skip
NO_STEMS: dict[str, dict[str, Any]] = {
    "own border": {"kernel_size": 3, "padding": 1}, "many terms": {"kernel_size": 4},
    "many channels": {"kernel_size": 2, "channels": 5},
    "few results": {"kernel_size": 3, "results": record.read().vector_bytes // 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", [*STEMS, *NO_STEMS])
@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=halves)])
@pytest.mark.usefixtures("matrix_units")
def test_few_terms_are_a_loop(kind: str, innermost: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what follows, also of weights that are written to; others, and those of few pixels, are the library's."""
    for name in ("_CALL", "_COPY", "_TURNED"):
        monkeypatch.setattr(convolutions, name, -1e9)
    model = Stem(**(STEMS | NO_STEMS)[kind]).to(dtype)
    x = torch.randn(2, model.layer.in_channels, 41, 44).to(dtype)
    x = x.contiguous(memory_format=torch.channels_last) if innermost else x
    with torch.no_grad():
        compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
        compiled(x)
        model.layer.weight.mul_(-0.5)
        found = compiled(x)
    same(model, x, found)
    assert run(model, x)[1] == (kind in NO_STEMS)
    assert run(model, x[:, :, :14, :15])[1] == 1
