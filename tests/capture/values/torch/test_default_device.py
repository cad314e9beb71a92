"""A default device that is set around compiled functions: guarded, and no concern of what is made for ourselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import stator


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.layer(x)).relu() + torch.arange(3, device=x.device)).softmax(-1)


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_tensors_are_made_where_the_default_is_now() -> None:
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = stator.compile(lambda x: (torch.ones(2), torch.zeros_like(x), x.new_ones(2)), backend=backend)
    x = torch.ones(3)
    for device in ("cpu", "meta", "cpu", None, "meta"):
        with torch.device(device) if device else torch.no_grad():
            made, like, new = compiled(x)
        assert (made.device.type, like.device.type, new.device.type) == (device or "cpu", "cpu", "cpu")
    assert len(graphs) == 3
    torch.set_default_device("meta")
    try:
        assert compiled(x)[0].device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert len(graphs) == 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_step_of_training_under_a_device_where_nothing_can_be_computed(dynamic: bool | None) -> None:
    net = Net()
    parameters = list(net.parameters())

    def loss(x: torch.Tensor) -> torch.Tensor:
        return net(x).pow(2).sum()

    compiled = stator.compile(loss, dynamic=dynamic, options={"strict": True})
    for size in (4, 5, 6):
        x = torch.randn(size, 3)
        with torch.device("meta"):
            found = compiled(x)
            grads = torch.autograd.grad(found, parameters)
        expected = loss(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(grads, torch.autograd.grad(expected, parameters))


def test_other_modes_still_see_the_program() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    compiled = stator.compile(lambda x: torch.sin(x))
    with Mode(), torch.device("cpu"), pytest.warns(UserWarning, match="function mode"):
        compiled(torch.ones(2))
    assert torch.sin in seen
