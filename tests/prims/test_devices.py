"""Tensors of the host beside those of a device, by fakes of a device that need not be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import stator
from stator.aot import overrides as overrides  # fills the tracer's table
from stator.aot.functional import Cell, Handle
from stator.aot.tracer import Tracer
from stator.fake import make
from stator.graphs import composite
from stator.prims import DECOMPOSITIONS
from stator.prims.decompositions import indexing

aten = torch.ops.aten
MASK, POSITIONS = torch.tensor([True, False, True]), torch.tensor([2, 1])


def traced(fn: Callable[[Tensor], Tensor], device: str = "cuda:1") -> fx.Graph:
    """What a function of float32[3, 4] on the second device does."""
    tracer = Tracer(DECOMPOSITIONS, {})
    fake = make((3, 4), torch.float32, torch.device(device))
    node = tracer.placeholder("x", fake)
    fake.handle = Handle(Cell(node), (), node, fake)
    with torch.no_grad(), tracer:
        out = composite.call(fn, [fake], {})
    tracer.graph.output((tracer.node(out),))
    return tracer.graph


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.index(x, [POSITIONS]),
        lambda x: aten.index(x, [None, POSITIONS]),
        lambda x: aten.index(x, [POSITIONS.clamp(0, 1).unsqueeze(1), POSITIONS]),
        lambda x: aten.index_put(x, [MASK], aten.select(x, 0, 0)),
        lambda x: aten.index_put(x, [POSITIONS], aten.narrow(x, 0, 0, 2), True),
    ],
)
def test_positions_of_the_host_are_brought_to_the_device(fn: Callable[[Tensor], Tensor]) -> None:
    graph = traced(fn)
    (out,) = graph.output_node().all_input_nodes
    assert out.meta["val"].device == torch.device("cuda:1")
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not aten._to_copy.default:
            devices = {given.meta["val"].device for given in node.all_input_nodes}
            assert len(devices) < 2, f"{node.target} has tensors on {devices}"


@pytest.mark.parametrize("size", [(2, 4), (4,), (1, 4)])
def test_a_gradient_of_values_under_a_mask_is_taken_on_the_device(
    size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mask selects has a known size there, whether the mask is the host's or has been brought."""
    monkeypatch.setattr(indexing, "_size_of_values", lambda: size)
    for fn in (lambda x: aten.index(x, [MASK]), lambda x: aten.index(x, [aten.gt(aten.select(x, 1, 0), 0)])):
        graph = traced(fn)
        (out,) = graph.output_node().all_input_nodes
        assert out.meta["val"].device == torch.device("cuda:1")
        assert not [node for node in graph.nodes if node.target in (aten.index.Tensor, aten.nonzero_static.default)]


def test_a_device_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(x: Tensor) -> Tensor:
        return aten.add(x, aten.arange(4, device="cuda"))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    traced(add)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        traced(add)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.elu_backward(x, 1.0, 1.0, 1.0, False, x),
        lambda x: aten.hardtanh_backward(x, x, -1.0, 1.0),
    ],
)
def test_a_gradient_at_a_nan_is_the_devices(fn: Callable[[Tensor], Tensor]) -> None:
    """A comparison that a NaN fails keeps the whole gradient there, as eager's kernels of a GPU do."""
    compared = {node.target for node in traced(fn).nodes} & {
        aten.le.Scalar,
        aten.ge.Scalar,
        aten.gt.Scalar,
        aten.lt.Scalar,
    }
    assert compared and not compared & {aten.gt.Scalar, aten.lt.Scalar}


@pytest.mark.parametrize("operator", [aten.addcmul.default, aten.addcdiv.default])
def test_a_device_multiplies_a_product_by_the_factor(operator: Any) -> None:
    """And joins that with the sum, where the host multiplies the first of the factors."""
    for device, last in (("cuda:1", True), ("cpu", False)):
        graph = traced(lambda x: operator(x, aten.narrow(x, 0, 0, 1), torch.tensor(1.5), value=0.7), device)
        add = graph.find_nodes(op="call_function", target=aten.add.Tensor)
        assert bool(add and add[0].kwargs.get("alpha") == 0.7) is last


@pytest.mark.parametrize("exponent", [torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float64)], ids=str)
def test_a_power_by_which_ldexp_multiplies_is_on_the_device(exponent: Tensor) -> None:
    """Beside half types it is rounded there, which a number of the host is not."""
    graph = traced(lambda x: aten.ldexp(x, exponent))
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        assert {given.meta["val"].device for given in node.all_input_nodes} == {torch.device("cuda:1")}
    assert graph.find_nodes(op="call_function", target=aten.mul.Tensor)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", [torch.addcmul, torch.addcdiv])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_sums_of_products_on_a_gpu(operator: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Eager's bits of half types, whose steps are float32's."""
    x, a, b = (torch.randn(5000, device="cuda").to(dtype) for _ in range(3))
    given = [(x, a, b), (x, a, b[0]), (x, a, b[0].double())]
    if operator is torch.addcmul:  # of the other eager takes no number of the host
        given.append((x, a, b[0].cpu()))
    half = dtype in (torch.bfloat16, torch.float16)
    close = {"rtol": 0.0, "atol": 0.0} if half else {"rtol": 4 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps}
    for value in (0.7, 1, True, -3):
        compiled = stator.compile(lambda *given, value=value: operator(*given, value=value), options={"strict": True})
        for operands in given:
            torch.testing.assert_close(compiled(*operands), operator(*operands, value=value), **close)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 3.0, float("inf")])
def test_a_distance_passes_over_a_nan_as_the_device_does(order: float) -> None:
    """Vectors of the host carry a NaN on; a GPU's kernels take signs by comparisons."""
    for device, asked in (("cuda:1", False), ("cpu", True)):
        graph = traced(
            lambda x: aten._cdist_backward(aten.narrow(x, 1, 0, 3), x, x, order, aten.narrow(x, 1, 0, 3)), device
        )
        assert bool(graph.find_nodes(op="call_function", target=aten.isnan.default)) is asked
        graph = traced(lambda x: aten._cdist_forward(x, x, 0.0, None), device)
        assert bool(graph.find_nodes(op="call_function", target=aten.isnan.default)) is asked


@pytest.mark.gpu
@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances_of_a_nan_on_a_gpu(order: float) -> None:
    rows = [[1.0, float("nan"), 2.0], [float("inf"), 0.5, 2.0], [1.0, 3.0, -float("inf")], [0.0, 0.5, -2.0]]
    x = torch.tensor(rows, device="cuda", requires_grad=True)
    y = torch.tensor(rows[::-1], device="cuda")

    def both(distance: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        found = distance(x, y)
        grad = torch.arange(1.0, 17.0, device="cuda").view(4, 4)
        return found, *(torch.autograd.grad(found, x, grad) if found.requires_grad else ())

    compiled = stator.compile(lambda x, y: torch.cdist(x, y, p=order), options={"cache": False})
    torch.testing.assert_close(both(compiled), both(lambda x, y: torch.cdist(x, y, p=order)), equal_nan=True)


@pytest.mark.gpu
def test_gradients_at_a_nan_on_a_gpu() -> None:
    x = torch.tensor([float("nan"), -0.5, 0.5, 1.0, -1.0, 2.0], device="cuda", requires_grad=True)
    for fn in (torch.nn.functional.elu, torch.nn.functional.hardtanh):
        (wanted,) = torch.autograd.grad(fn(x).sum(), x)
        (found,) = torch.autograd.grad(stator.compile(fn, options={"cache": False})(x).sum(), x)
        torch.testing.assert_close(found, wanted, equal_nan=True)
