"""Recurrent layers against eager: an LSTM is a call of oneDNN a layer and direction, others go step by step."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch

import stator
from stator.capture.entry import versions_of

FEATURES, HIDDEN = 5, 6


def layer(kind: str, **options: Any) -> torch.nn.Module:
    return getattr(torch.nn, kind)(FEATURES, HIDDEN, **options)  # type: ignore[no-any-return]


def sequence(time: int, batch: int, first: bool, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn((batch, time, FEATURES) if first else (time, batch, FEATURES), dtype=dtype, requires_grad=True)


def outcome(model: torch.nn.Module, x: torch.Tensor, *states: Any) -> list[torch.Tensor]:
    """Results, and the gradients of the input and of every parameter."""
    x = x.detach().clone().requires_grad_(x.requires_grad)
    out, last = model(x, *states)
    results = [out, *(last if isinstance(last, tuple) else (last,))]
    if out.requires_grad:
        total = sum((value.float() * torch.linspace(-1, 1, value.numel()).view(value.shape)).sum() for value in results)
        parameters = list(model.parameters())
        results += torch.autograd.grad(total, [x, *parameters])  # type: ignore[call-overload]
    return results


def check(model: torch.nn.Module, compiled: torch.nn.Module, x: torch.Tensor, *states: Any) -> None:
    for got, want in zip(outcome(compiled, x, *states), outcome(model, x, *states), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5 if x.dtype != torch.bfloat16 else 2e-2, atol=1e-5)
        assert got.stride() == want.stride()


VARIANTS = [
    {},
    {"bidirectional": True, "num_layers": 2},
    {"batch_first": True, "bias": False, "num_layers": 2},
    {"proj_size": 4, "bidirectional": True},
]


@pytest.mark.parametrize(("kind", "options"), [
    (kind, options) for kind, options in itertools.product(("LSTM", "GRU", "RNN"), VARIANTS)
    if kind == "LSTM" or "proj_size" not in options
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_as_eager(kind: str, options: dict[str, Any]) -> None:
    model = layer(kind, **options)
    compiled = stator.compile(copy.deepcopy(model), fullgraph=True, options={"strict": True})
    compiled.load_state_dict(model.state_dict())
    x = sequence(4, 3, options.get("batch_first", False))
    check(model, compiled, x)
    with torch.no_grad():
        check(model, compiled, x)
    with torch.inference_mode():
        check(model.eval(), compiled.eval(), x.detach())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    model = layer("LSTM", num_layers=2).to(dtype)
    compiled = stator.compile(copy.deepcopy(model), fullgraph=True, options={"strict": True})
    check(model, compiled, sequence(4, 3, False, dtype))


def test_given_states_get_gradients() -> None:
    model = layer("LSTM")
    states = [(torch.randn(1, 3, HIDDEN, requires_grad=True), torch.randn(1, 3, HIDDEN, requires_grad=True))]
    x = sequence(4, 3, False)
    found = []
    for module in (model, stator.compile(model, fullgraph=True)):
        out, _ = module(x, states[0])
        found.append(torch.autograd.grad(out.square().sum(), states[0]))
    torch.testing.assert_close(found[1], found[0])


def test_changing_sizes_share_a_graph() -> None:
    model = layer("LSTM", num_layers=2)
    compiled = stator.compile(model, fullgraph=True, options={"strict": True})
    for time, batch in ((4, 3), (7, 2), (5, 5), (9, 4)):
        check(model, compiled, sequence(time, batch, False))
    assert len(versions_of(compiled)) == 2


def test_an_lstm_is_one_call_a_layer_and_direction() -> None:
    model = layer("LSTM", num_layers=2, bidirectional=True).eval()
    with torch.no_grad():
        report = stator.explain(model)(torch.randn(50, 3, FEATURES))
    assert report.externs.count("aten.mkldnn_rnn_layer.default") == 4


def test_a_step_of_a_gru_is_one_kernel_and_one_product() -> None:
    """Gates are chunks that the layer writes to in place: each write was a call of ATen's."""
    model = layer("GRU").eval()
    with torch.no_grad():
        report = stator.explain(model)(torch.randn(20, 3, FEATURES))
    assert not [name for name in report.externs if "copy" in name]
    assert len(report.kernels) + len(report.externs) <= 2 * 20 + 5
