"""Calls of PyTorch's C++ in place of functions of `torch.nn.functional`: the same operators on the same arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import stator
from stator import speed
from stator.capture.entry import versions_of
from stator.graphs.direct import _DIRECT, direct


def ones(*size: int) -> Tensor:
    return torch.ones(size)


X, IMAGES, VOLUMES = torch.randn(4, 8), torch.randn(2, 4, 8, 8), torch.randn(1, 2, 4, 8, 8)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (F.layer_norm, (X, (8,)), {}),
    (F.layer_norm, (X, [4, 8], ones(4, 8)), {"bias": ones(4, 8), "eps": 1e-3}),
    (F.group_norm, (IMAGES, 2), {}),
    (F.group_norm, (IMAGES,), {"num_groups": 4, "weight": ones(4), "bias": ones(4), "eps": 0.1}),
    (F.max_pool1d, (X, 2), {}),
    (F.max_pool2d, (IMAGES, 2), {}),
    (F.max_pool2d, (IMAGES, (3, 2)), {"stride": (2, 1), "padding": 1, "ceil_mode": True}),
    (F.max_pool2d, (IMAGES,), {"kernel_size": 2, "stride": None, "dilation": 2}),
    (F.max_pool3d, (VOLUMES, 2, 1), {}),
    (F.adaptive_avg_pool2d, (IMAGES, 3), {}),
    (F.adaptive_avg_pool2d, (IMAGES,), {"output_size": (2, 3)}),
    (F.adaptive_avg_pool3d, (VOLUMES, [1, 2, 3]), {}),
]


class Operators(TorchDispatchMode):
    """What is called, and with which numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func, [arg if not isinstance(arg, Tensor) else arg.shape for arg in args], kwargs))
        return func(*args, **(kwargs or {}))


def seen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    with Operators() as operators:
        result = function(*args, **kwargs)
    return result, operators.seen


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_the_same_operators_are_called(number: int) -> None:
    function, args, kwargs = CALLS[number]
    found = direct(function, args, kwargs)
    assert found is not None
    (wanted, calls), (got, made) = seen(function, *args, **kwargs), seen(found.target, *found.args)
    assert made == calls and torch.equal(got, wanted)


def test_every_function_is_tried() -> None:
    assert {function for function, _, _ in CALLS} == {*_DIRECT}


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (F.max_pool2d, (IMAGES, 2), {"return_indices": True}),
        (F.adaptive_avg_pool2d, (IMAGES, (None, 3)), {}),
        (F.adaptive_avg_pool2d, (IMAGES, fx.Graph().placeholder("size")), {}),
        (F.relu, (X,), {}),
        ("relu", (X,), {}),
    ],
)
def test_what_does_more_is_left_as_it_is(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert direct(function, args, kwargs) is None


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2)


def test_a_graph_in_eager_makes_such_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than run the function itself."""
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(2.0, 1.0))
    options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
    x = IMAGES.clone().requires_grad_()
    compiled = stator.compile(pooled, options=options, dynamic=False)
    assert torch.equal(compiled(x), pooled(x))
    ((_, function),) = versions_of(compiled)
    assert function is not pooled
    frames: list[str] = []
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" else None)
    try:
        result = compiled(x)
    finally:
        sys.setprofile(None)
    assert torch.equal(result, pooled(x)) and frames in ([], ["pooled"])
