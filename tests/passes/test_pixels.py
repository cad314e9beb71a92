"""Convolutions with windows of one pixel as products: which they are, what multiplies, and eager's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator.base import log
from stator.graphs.pixels import MULTIPLY_PIXELS
from stator.passes import convolutions, pixels
from stator.targets.cpu import record
from tests.lowering.test_convolution import agree

OPTIONS: dict[str, Any] = {"freezing": True, "strict": True, "cache": False}
LIBRARIES = {"mkl": "mkl._mkl_linear.default", "onednn": "mkldnn._linear_pointwise.default"}
CONVOLUTION = "mkldnn._convolution_pointwise.default"

pytestmark = pytest.mark.skipif(not record.onednn_convolves(), reason="convolutions are another library's")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Products in the order of one library, on a machine that has both, and whatever copies cost."""
    has = {"mkl": torch.backends.mkl.is_available(), "onednn": torch.backends.mkldnn.is_available()}
    if not has[request.param]:
        pytest.skip("PyTorch was built without")
    _gaining(monkeypatch)
    blas = request.param == "mkl"
    read = record.read
    monkeypatch.setattr(record, "read", lambda *args: replace(read(*args), blas_packs=blas, onednn_products=not blas))
    for name in ("_LOOP_PIXELS", "_MANY_PIXELS"):
        monkeypatch.setattr(pixels, name, 1 << 40)
    return LIBRARIES[request.param]


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops multiply, of however few pixels."""
    _gaining(monkeypatch)
    for name in ("_LOOP_PIXELS", "_MANY_PIXELS"):
        monkeypatch.setattr(pixels, name, 1)


def _gaining(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CALL", "_COPY", "_TURNED"):
        monkeypatch.setattr(convolutions, name, 0.0)


def run(model: nn.Module, x: Tensor, **others: Any) -> tuple[Any, list[str], list[str]]:
    """What it gives, the kernels, and the calls of libraries."""
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS, **others)(x)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    return found, list(facts["names"]), list(facts["externs"])


def same(model: nn.Module, x: Tensor, found: Tensor) -> None:
    with torch.no_grad():
        wanted = model(x)
        agree(found, wanted, model.double()(x.double()))
        model.to(wanted.dtype)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv2d(6, 8, 1), "no bias": lambda: nn.Conv2d(6, 8, 1, bias=False),
    "odd": lambda: nn.Conv2d(6, 35, 1), "dilated": lambda: nn.Conv2d(6, 8, 1, dilation=3),
    "named": lambda: nn.Conv2d(6, 8, 1, padding="same"),
}  # fmt: skip
FORMS = {
    "plain": (3, 6, 9, 11), "one image": (1, 6, 9, 11), "one row": (2, 6, 1, 7), "innermost": (3, 6, 9, 11),
    "sliced": (3, 9, 9, 22), "shifted": (3, 6, 10, 11),
}  # fmt: skip


def given(form: str, dtype: torch.dtype) -> Tensor:
    x = torch.randn(FORMS[form], dtype=dtype)
    match form:
        case "innermost":
            return x.contiguous(memory_format=torch.channels_last)
        case "sliced":
            return x[:, 3:, :, ::2]
        case "shifted":
            return x.contiguous(memory_format=torch.channels_last)[:, :, 1:]
    return x


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("form", FORMS)
def test_by_a_library(kind: str, form: str, library: str) -> None:
    model, x = nn.Sequential(LAYERS[kind](), nn.ReLU6()), given(form, torch.float32)
    found, _, calls = run(model, x)
    assert calls == [library]
    same(model, x, found)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("loops")
def test_as_a_loop(kind: str, form: str) -> None:
    model, x = nn.Sequential(LAYERS[kind](), nn.Hardswish()), given(form, torch.float32)
    found, kernels, calls = run(model, x)
    assert calls == [] and len(kernels) <= 3
    same(model, x, found)


@pytest.mark.skipif(not record.onednn_multiplies_halves(), reason="no instructions for bfloat16")
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("loops")
def test_halves_are_onednns(kind: str, form: str) -> None:
    model, x = nn.Sequential(LAYERS[kind](), nn.ReLU6()).bfloat16(), given(form, torch.bfloat16)
    found, _, calls = run(model, x)
    assert calls == [LIBRARIES["onednn"]]
    same(model, x, found)


class Block(nn.Module):
    """Wide, each channel alone, narrow again, and added: as mobile networks are built."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.wide, self.norm = nn.Conv2d(narrow, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.alone, self.narrow = nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.Conv2d(wide, narrow, 1)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu6(self.norm(self.wide(x)))
        return x + self.narrow(nn.functional.relu6(self.alone(y)))


@pytest.mark.parametrize("innermost", [False, True])
def test_blocks_by_a_library(innermost: bool, library: str) -> None:
    model, x = nn.Sequential(*[Block(8, 24) for _ in range(3)]).eval(), torch.randn(2, 8, 9, 10)
    x = x.contiguous(memory_format=torch.channels_last) if innermost else x
    found, _, calls = run(model, x)
    assert calls == [library] * 6
    same(model, x, found)


@pytest.mark.usefixtures("loops")
def test_what_follows_is_part_of_the_loop() -> None:
    model, x = nn.Sequential(*[Block(8, 24) for _ in range(3)]).eval(), torch.randn(2, 8, 9, 10)
    found, kernels, calls = run(model, x)
    assert calls == [] and len(kernels) <= 3 * 3 + 2  # the image with the channel innermost, and back
    same(model, x, found)


CHANNELS = {"few": (24, 32), "many": (384, 512)}


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("side", [6, 10, 24])
@pytest.mark.parametrize("read", [False, True])
def test_which_are_loops(channels: str, side: int, read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with a weight that a core's cache holds, of many pixels, or of fewer where a kernel reads them."""
    _gaining(monkeypatch)
    known = record.read
    monkeypatch.setattr(record, "read", lambda *args: replace(known(*args), cache_bytes=1 << 19))
    narrow, wide = CHANNELS[channels]
    after = nn.Conv2d(wide, narrow, 3, padding=1)
    model, x = nn.Sequential(nn.Conv2d(narrow, wide, 1), *[nn.ReLU()] * read, after), torch.randn(2, narrow, side, side)
    found, _, calls = run(model, x)
    loop = channels == "few" and 2 * side * side >= (64 if read else 512)
    assert len(calls) == 2 - loop
    same(model, x, found)


STAYS: dict[str, Callable[[], nn.Module]] = {
    "border": lambda: nn.Conv2d(6, 8, 1, padding=1),
    "groups": lambda: nn.Conv2d(6, 8, 1, groups=2), "window": lambda: nn.Conv2d(6, 8, (1, 3)),
}  # fmt: skip


@pytest.mark.parametrize("kind", STAYS)
def test_what_stays(kind: str, library: str) -> None:
    model, x = nn.Sequential(STAYS[kind](), nn.ReLU()), torch.randn(2, 6, 9, 9)
    found, _, calls = run(model, x)
    assert calls == [CONVOLUTION]
    same(model, x, found)


@pytest.mark.parametrize("steps", [2, (1, 3)])
@pytest.mark.parametrize("innermost", [False, True])
def test_steps_over_pixels(steps: Any, innermost: bool, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is copied first, which pays for few pixels and was measured with MKL."""
    model, x = nn.Sequential(nn.ReLU(), nn.Conv2d(6, 8, 1, steps), nn.ReLU6()), torch.randn(2, 6, 9, 8)
    x = x.contiguous(memory_format=torch.channels_last) if innermost else x
    found, _, calls = run(model, x)
    assert calls == [library if library == LIBRARIES["mkl"] else CONVOLUTION]
    same(model, x, found)
    monkeypatch.setattr(pixels, "_STEP_PIXELS", 20)
    assert run(model, x)[2] == [CONVOLUTION]


def test_many_pixels_stay(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setattr(pixels, "_FEW_PIXELS", 161)
    model, x = nn.Conv2d(6, 8, 1), torch.randn(2, 6, 9, 9)
    assert run(model, x)[2] == [CONVOLUTION]
    assert run(model, x[..., 1:])[2] == [library]


def test_sizes_that_change(library: str) -> None:
    model = nn.Sequential(nn.Conv2d(6, 8, 1), nn.ReLU())
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    for batch in (1, 2, 3, 5):
        with torch.no_grad():
            found = compiled(x := torch.randn(batch, 6, 7, 9))
        same(model, x, found)


def test_new_weights(library: str) -> None:
    model, x = Block(8, 24).eval(), torch.randn(2, 8, 9, 10)
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        for layer in (model.wide, model.norm, model.narrow):
            same(model, x, compiled(x))
            layer.weight.mul_(-1.5)
    with torch.no_grad():
        same(model, x, compiled(x))


def test_special_values_stay(library: str) -> None:
    model, x = nn.Sequential(nn.Conv2d(6, 8, 1), nn.ReLU6()), torch.randn(2, 6, 5, 5)
    x[0, 2, 1, 1], x[1, 3, 2, 2] = float("nan"), float("inf")
    found, _, calls = run(model, x)
    with torch.no_grad():
        wanted = model(x)
    assert calls == [library] and wanted.isnan().sum() >= 8
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_the_operator_is_a_convolution() -> None:
    x, layer = torch.randn(2, 6, 5, 4), nn.Conv2d(6, 8, 1)
    found = MULTIPLY_PIXELS(x, layer.weight.flatten(1), layer.bias, None, "loop")
    torch.testing.assert_close(found, layer(x))
