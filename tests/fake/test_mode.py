"""Fakes behave like the real tensors in everything but data."""

import pytest
import torch
import torch.nn.functional as F

from stator.base.errors import DataDependent
from stator.fake import FakeMode, FakeTensor, make
from stator.fake.execute import execute
from stator.fake.tensor import memory_of

aten = torch.ops.aten


def facts(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_leaf


def check(function, *reals):
    """Run on reals and on fakes, compare every result's metadata."""
    mode = FakeMode()
    expected = function(*reals)
    with mode:
        got = function(*[mode.from_real(real) if isinstance(real, torch.Tensor) else real for real in reals])
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    got = got if isinstance(got, (list, tuple)) else [got]
    assert len(got) == len(expected)
    for fake, real in zip(got, expected, strict=True):
        if isinstance(real, torch.Tensor):
            assert isinstance(fake, FakeTensor)
            assert facts(fake) == facts(real)
        else:
            assert fake == real


def test_from_real_keeps_place_in_autograd():
    mode = FakeMode()
    leaf = torch.randn(3, requires_grad=True)
    inner = leaf * 2
    parameter = torch.nn.Parameter(torch.randn(4, 4)[:, 1:3])
    for real in (leaf, inner, parameter, torch.randn(2)):
        fake = mode.from_real(real)
        assert facts(fake) == facts(real)
        assert fake.storage_offset() == real.storage_offset()
        assert isinstance(fake, torch.nn.Parameter) == isinstance(real, torch.nn.Parameter)
        assert mode.from_real(real) is fake


def test_views_share_storage():
    mode = FakeMode()
    base = torch.randn(4, 4)
    assert memory_of(mode.from_real(base)) is memory_of(mode.from_real(base[1:]))
    with mode:
        x = mode.from_real(base)
        assert memory_of(x.t()) is memory_of(x[1]) is memory_of(x)
        assert memory_of(x + 1) is not memory_of(x)
        assert x[1:].storage_offset() == 4


def test_factories_and_constants():
    with FakeMode():
        assert isinstance(torch.zeros(3), FakeTensor)
        assert isinstance(torch.randn(3, 4), FakeTensor)
        assert torch.tensor(3).item() == 3
        assert (torch.tensor([1, 2]) + 1).tolist() == [2, 3]
        assert int(torch.arange(3).sum()) == 3
        assert torch.full((), 2.5).item() == 2.5
        x = torch.tensor([1.0, 2.0])
        x.add_(1)
        assert x.tolist() == [2.0, 3.0]
        assert torch.tensor([1, 2]).detach()[1].item() == 2


def test_data_dependence_is_refused():
    with FakeMode():
        x = torch.randn(3)
        for bad in (x.sum().item, x.nonzero, lambda: bool((x > 0).any())):
            with pytest.raises(DataDependent):
                bad()


def test_in_place_returns_the_same_object():
    with FakeMode():
        x = torch.zeros(3)
        assert x.add_(1) is x
        assert x.copy_(torch.ones(3)) is x
        y = torch.zeros(2, 3)
        assert y.t_() is y
        assert y.shape == (3, 2) and y.stride() == (1, 3)


def test_list_int_and_bool_results():
    x = torch.randn(4, 6)
    check(lambda x: x.split(2), x)
    check(lambda x: x.unbind(1), x)
    check(lambda x: x.topk(2), x)
    check(lambda x: x > 0, x)
    check(lambda x: x.size(0), x)
    check(lambda x: torch.broadcast_tensors(x, x[0]), x)


def test_attention_takes_the_cpu_kernel():
    seen = []
    mode = FakeMode(hook=lambda func, args, kwargs: seen.append(str(func)))
    q = mode.from_real(torch.randn(1, 2, 8, 16, requires_grad=True))
    with mode:
        out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.shape == q.shape
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in seen


def test_claims_a_device_this_machine_may_not_have():
    mode = FakeMode()
    x = mode.from_real(torch.empty(2, 3))
    with mode:
        y = make((2, 3), torch.float32, torch.device("cuda", 0))
        z = (y @ y.t()).relu().sum()
        assert z.device == torch.device("cuda", 0)
        assert x.device.type == "cpu"
        assert y.new_zeros(3).device.type == "cuda" and torch.zeros_like(y).device.type == "cuda"
        assert (y * torch.tensor(2.0)).device.type == "cuda"


def test_real_tensors_are_converted():
    weight = torch.randn(3, 3, requires_grad=True)
    mode = FakeMode()
    with mode:
        out = F.linear(mode.from_real(torch.randn(2, 3)), weight)
    assert isinstance(out, FakeTensor) and out.requires_grad


def test_module_training_step():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    mode = FakeMode()
    parameters = {name: mode.from_real(p) for name, p in [*net.named_parameters(), *net.named_buffers()]}
    with mode:
        x = torch.randn(3, 4)
        out = torch.func.functional_call(net, parameters, (x,))
        grads = torch.autograd.grad(out.sum(), [p for p in parameters.values() if p.requires_grad])
    assert [g.shape for g in grads] == [p.shape for p in net.parameters()]


def test_fake_outside_a_mode_still_works():
    fake = FakeMode().from_real(torch.randn(3, 4))
    assert (fake + 1).shape == (3, 4)
    assert fake.t().shape == (4, 3)


def test_composite_operators_are_taken_apart_in_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.randn(2, 3, 4)
        with FakeMode() as mode:
            fake = mode.from_real(x)
            moved, same = x.to("cpu", torch.float64), x.to("cpu", torch.float32)
            copied, viewed = x.transpose(0, 1).reshape(6, 4), x.reshape(6, 4)
            made = torch.nn.functional.linear(x, torch.randn(5, 4))
    assert (moved.dtype, moved.device.type, made.shape) == (torch.float64, "cpu", (2, 3, 5))
    assert same is fake and memory_of(viewed) is memory_of(fake)
    assert memory_of(copied) is not memory_of(fake) is not memory_of(moved)


def test_views_in_inference_mode_are_what_their_base_is() -> None:
    x = torch.randn(2, 3)
    with torch.inference_mode(), FakeMode() as mode:
        fake = mode.from_real(x)
        made = fake + 1
        found = [fake.view(-1), fake.t(), fake.reshape(6), *fake.split(1), made, made.view(-1), fake.flatten()]
    assert [tensor.is_inference() for tensor in found] == [False] * 5 + [True, True, False]


def test_operators_on_numbers_alone_are_known():
    with FakeMode():
        half = torch.div(7, 2, rounding_mode="trunc")
        assert half.shape == () and half.dtype is torch.int64
        assert int(half) == 3
        assert float(torch.div(7, 2)) == 3.5
        assert torch.mul(half, torch.add(1, 2)).item() == 9
        with pytest.raises(DataDependent):
            int(torch.add(torch.randint(3, ()), 2))


def test_the_host_has_no_number() -> None:
    with FakeMode():
        made = torch.ones(3, device="cpu:0")
    assert made.device == made.to("cpu").device == torch.ones(3, device="cpu:0").device == torch.device("cpu")


def test_whole_numbers_of_another_device_are_known() -> None:
    """What decides of sizes is; no float, which may be rounded otherwise there."""
    cuda = torch.device("cuda")
    with FakeMode():
        assert torch.cov(make((2, 5), torch.float32, cuda)).shape == (2, 2)
        ones = aten.ones.default([2], dtype=torch.int64, device=cuda)
        assert ones.device.type == "cuda" and torch.equal(ones, ones + 0)
        assert ones.constant.device.type == "cpu"
        assert ones.float().constant is None
        assert (ones // (ones - 1)).constant is None, "nothing raises there"
        with pytest.raises(DataDependent):
            execute(aten.nonzero.default, (ones,), {})
        ones.floor_divide_(ones - 1)
        assert ones.constant is None


def test_what_cudnn_has() -> None:
    cuda = torch.device("cuda")
    with FakeMode():
        images, grid = make((2, 3, 4, 5), torch.float32, cuda), make((2, 6, 7, 2), torch.float32, cuda)
        assert aten.cudnn_grid_sampler(images, grid).shape == (2, 3, 6, 7)
        gradients = aten.cudnn_grid_sampler_backward(images, grid, make((2, 3, 6, 7), torch.float32, cuda))
        assert [g.shape for g in gradients] == [images.shape, grid.shape]
        operands = make((9, 2, 5), torch.float32, cuda), make((6,), torch.int64, cuda), [9, 9], [3, 3]
        assert aten._use_cudnn_ctc_loss(*operands, 0) is False
        with pytest.raises(DataDependent):
            aten._use_cudnn_ctc_loss(operands[0], make((6,), torch.int32, cuda), [9, 9], [3, 3], 0)
