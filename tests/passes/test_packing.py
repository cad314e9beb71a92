"""Weights of products in a library's order: which they are, what is kept of them, and eager's values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base import log
from stator.passes import packing
from stator.targets.cpu import record
from tests.lowering.test_convolution import agree

pytestmark = pytest.mark.usefixtures("matrix_units")

OPTIONS: dict[str, object] = {"freezing": True, "strict": True, "cache": False}
ONEDNN, BLAS = "mkldnn._linear_pointwise.default", "mkl._mkl_linear.default"

blas = pytest.mark.skipif(not record.blas_packs(), reason="PyTorch's BLAS keeps no weights in its order here")
halves = pytest.mark.skipif(not record.onednn_multiplies_halves(), reason="no instructions for bfloat16")


class Network(nn.Module):
    """A function of one input and of these parameters."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.values = nn.ParameterList([torch.randn(shape) / 8 for shape in shapes])

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.values)


def run(model: nn.Module, x: Tensor, **others: Any) -> tuple[Any, list[str], int]:
    """What it gives, the operators that are called, and the bytes that are kept."""
    with log.collect() as recorder, torch.no_grad():
        found = stator.compile(model, fullgraph=True, options=OPTIONS, **others)(x)
    (facts,) = [facts for facts in recorder.of(log.KERNELS) if facts["graph"] == "forward"]
    with torch.no_grad():
        kept = sum(facts["kept"] for facts in stator.explain(model, options=OPTIONS)(x).memory)
    return found, list(facts["externs"]), kept


def same(model: nn.Module, x: Tensor, found: Any) -> None:
    with torch.no_grad():
        wanted = model(x)
        exact = model.double()(x.double())
        model.to(x.dtype)
    for one, other, third in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, wanted, exact)], strict=True):
        assert one.stride() == other.stride()
        agree(one, other, third)


#: A function of x (rows, 256) and its parameters, and their shapes.
BLAS_PACKS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((192, 256), (192,))),
    "no bias": (F.linear, ((192, 256),)),
    "as it is": (torch.matmul, ((256, 192),)),
    "read by a kernel": (lambda x, w, b: F.linear(x, w, b).relu() * 2, ((192, 256), (192,))),
    "a part": (lambda x, w: F.linear(x, w[64:]), ((256, 256),)),
    "computed": (lambda x, w, b: F.linear(x, 1 + w, b * 2), ((192, 256), (192,))),
    "three dims": (lambda x, w: F.linear(x.view(4, -1, 256), w), ((192, 256),)),
}


@blas
@pytest.mark.parametrize("kind", BLAS_PACKS)
@pytest.mark.parametrize("sizes", ["numbers", "symbols"])
def test_weights_in_the_order_of_the_blas(kind: str, sizes: str) -> None:
    function, shapes = BLAS_PACKS[kind]
    model, x = Network(function, *shapes), torch.randn(96, 256)
    found, externs, _ = run(model, x, dynamic=sizes == "symbols")
    assert externs == [BLAS]
    same(model, x, found)


@blas
def test_a_product_writes_into_memory_that_is_there() -> None:
    """No Python runs, and none of PyTorch's operators, unless a profiler is to be told what does."""
    model = Network(lambda x, w, v: F.linear(F.linear(x, w), v[:, 1:]), (192, 256), (256, 193))
    x = torch.randn(64, 256)
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        same(model, x, compiled(x))
        before = compiled(x)
        assert torch.equal(compiled(x), before)
        assert "_multiply_packed" not in functions(lambda: compiled(x))
        with torch.profiler.profile(acc_events=True) as profile:
            assert "_multiply_packed" in functions(lambda: compiled(x))
            assert torch.equal(compiled(x), before)
        assert "mkl::_mkl_linear" in {event.key for event in profile.key_averages()}


def functions(call: Callable[[], object]) -> set[str]:
    """The names of the Python functions that run in a call."""
    names = set()
    sys.setprofile(lambda frame, event, _: names.add(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@blas
def test_other_rows_and_weights_that_change() -> None:
    """The order is for a number of rows; others are multiplied by the weight as it is."""
    model = Network(F.linear, (192, 256), (192,))
    compiled = stator.compile(model, options=OPTIONS, dynamic=True)
    for rows in (96, 1, 300, 96, 3000):
        x = torch.randn(rows, 256)
        with torch.no_grad():
            for _ in range(2):
                agree(compiled(x), model(x), model.double()(x.double()))
                model.float()
                model.values[0].mul_(0.5)
                model.values[1].data.add_(1)


#: What the BLAS multiplies as it is: a function, the shape of x, and those of parameters.
BLAS_LEAVES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "one row": (F.linear, (1, 2048), ((2048, 2048),)),
    "few multiplications": (F.linear, (96, 100), ((200, 100),)),
    "many rows": (F.linear, (2048, 64), ((64, 64),)),
    "turned": (lambda x, w: F.linear(x.t(), w), (256, 96), ((192, 256),)),
    "given": (lambda x: x @ x.t()[:, :192], (256, 256), ()),
}


@blas
@pytest.mark.parametrize("kind", BLAS_LEAVES)
def test_what_the_blas_multiplies_as_it_is(kind: str) -> None:
    function, shape, shapes = BLAS_LEAVES[kind]
    model, x = Network(function, *shapes), torch.randn(shape)
    found, externs, _ = run(model, x)
    assert BLAS not in externs
    same(model, x, found)


def test_the_record_decides() -> None:
    device = replace(record.read(), onednn_products=False, blas_packs=False, onednn_halves=False)
    assert not packing.orders_of(device)
    for field, dtype in (("blas_packs", torch.float32), ("onednn_halves", torch.bfloat16)):
        assert set(packing.orders_of(replace(device, **{field: True}))) == {dtype}


@halves
@pytest.mark.parametrize(
    ("rows", "columns", "packed"), [(256, 192, True), (257, 192, False), (257, 1536, True), (1, 4096, False)]
)
def test_halves_are_packed_where_all_threads_multiply(rows: int, columns: int, packed: bool) -> None:
    model, x = Network(F.linear, (columns, 512)).bfloat16(), torch.randn(rows, 512).bfloat16()
    found, externs, _ = run(model, x)
    assert (ONEDNN in externs) == packed
    same(model, x, found)


@halves
def test_layers_that_share_a_weight_share_what_is_packed() -> None:
    def layers(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = F.linear(x, w).tanh()
        return x

    model, x = Network(layers, (256, 256)).bfloat16(), torch.randn(128, 256).bfloat16()
    found, externs, kept = run(model, x)
    assert externs.count(ONEDNN) == 3 and kept == 2 * 256 * 256
    same(model, x, found)
