"""Whole optimizer steps as operators (`aten._fused_adam_` and its kin): values, versions and refusals as eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import CaptureError

ADAM = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False}
SGD = {
    "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2, "nesterov": False, "maximize": False, "is_first_step": False
}  # fmt: skip
ADAGRAD = {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}

#: Name, how many lists of state are as large as the parameters, whether steps are counted, options.
CASES: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
    "adam": ("_fused_adam_", 2, True, ADAM),
    "adam amsgrad": ("_fused_adam_", 3, True, {**ADAM, "amsgrad": True}),
    "adam plain": ("_fused_adam_", 2, True, {**ADAM, "weight_decay": 0.0, "maximize": True}),
    "adamw": ("_fused_adamw_", 2, True, ADAM),
    "adamw amsgrad": ("_fused_adamw_", 3, True, {**ADAM, "amsgrad": True, "maximize": True}),
    "sgd": ("_fused_sgd_", 1, False, SGD),
    "sgd first": ("_fused_sgd_", 1, False, {**SGD, "is_first_step": True}),
    "sgd nesterov": ("_fused_sgd_", 1, False, {**SGD, "nesterov": True, "maximize": True, "dampening": 0.0}),
    "sgd plain": ("_fused_sgd_", 0, False, {**SGD, "momentum": 0.0}),
    "adagrad": ("_fused_adagrad_", 1, True, ADAGRAD),
    "adagrad maximize": ("_fused_adagrad_", 1, True, {**ADAGRAD, "maximize": True}),
}
SIZES = ((5, 7), (33,), ())


def arguments(case: str, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    """Parameters, gradients, state, counters."""
    name, states, counted, options = CASES[case]
    torch.manual_seed(3)
    lists = [[torch.randn(size, dtype=dtype) for size in SIZES] for _ in range(2)]
    state = [[torch.rand(size, dtype=dtype) for size in SIZES] for _ in range(states)]
    if (name.startswith("_fused_adam") and not options["amsgrad"]) or (name == "_fused_sgd_" and not states):
        state.append([])
    return [*lists, *state, *([[torch.tensor(4.0) for _ in SIZES]] if counted else [])]


def apply(case: str, lists: list[list[torch.Tensor]], compiling: Any, **more: Any) -> None:
    name, _, _, options = CASES[case]
    operator = getattr(torch, name)

    def step(lists: list[list[torch.Tensor]], more: dict[str, Any]) -> None:
        operator(*lists, **options, **more)

    with torch.no_grad():
        compiling(step)(lists, more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", ["number", "tensor"])
@pytest.mark.parametrize("case", CASES)
def test_steps(case: str, rate: str, dtype: torch.dtype) -> None:
    lr = 0.1 if rate == "number" else torch.tensor(0.1)
    eager, compiled = arguments(case, dtype), arguments(case, dtype)
    versions = [tensor._version for tensors in compiled for tensor in tensors]
    apply(case, eager, lambda step: step, lr=lr)
    with log.collect() as seen:
        apply(case, compiled, lambda step: stator.compile(step, fullgraph=True), lr=lr)
    torch.testing.assert_close(compiled, eager)
    assert not torch.equal(compiled[0][0], arguments(case, dtype)[0][0])
    versions[: len(compiled[0])] = [version + 1 for version in versions[: len(compiled[0])]]
    assert [tensor._version for tensors in compiled for tensor in tensors] == versions
    (kernels,) = seen.of(log.KERNELS)
    assert not kernels["externs"] and len(kernels["names"]) <= 6


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("case", ["adamw", "sgd nesterov", "adagrad"])
def test_scaled_gradients_with_or_without_an_infinity_among_them(case: str, found: float) -> None:
    more = {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(found)}
    eager, compiled = arguments(case, torch.float32), arguments(case, torch.float32)
    apply(case, eager, lambda step: step, lr=0.1, **more)
    apply(case, compiled, lambda step: stator.compile(step, fullgraph=True), lr=0.1, **more)
    torch.testing.assert_close(compiled, eager)
    assert torch.equal(compiled[0][0], arguments(case, torch.float32)[0][0]) == bool(found)


def test_half_types_are_left_to_the_kernel() -> None:
    lists = arguments("adamw", torch.bfloat16)
    with pytest.raises(CaptureError, match="rounds constants"):
        apply("adamw", lists, lambda step: stator.compile(step, fullgraph=True), lr=0.1)
