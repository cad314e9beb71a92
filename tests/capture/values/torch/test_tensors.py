"""Tensors: facts are constants, calls go into the graph, data is not looked at."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator
from stator.base.errors import Unsupported
from stator.fake import FakeMode
from tests.capture.values.harness import capture, check, refused


def x() -> torch.Tensor:
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


def test_facts_are_constants() -> None:
    def f(t: torch.Tensor) -> Any:
        facts = [
            t.shape, t.size(), t.size(-1), t.dim(), t.ndim, t.numel(), t.stride(), t.stride(0), t.dtype, t.device,
            t.is_contiguous(), t.is_floating_point(), t.element_size(), t.requires_grad, t.is_cuda, t.layout, len(t),
            t.device.type, t.shape[1:], t.shape.numel(), (*t.shape[:-1], -1), t.storage_offset(), t.type(), t.is_leaf,
        ]  # fmt: skip
        b, c, d = t.shape
        return facts, b * c + d, t + 1

    captured = check(f, x())
    assert captured.targets == [operator.add]


def test_operators() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        c = 2 - a * b / 3 + a**2 @ b.mT @ b
        return (
            c,
            -a,
            abs(a),
            a // 0.5,
            a % 2,
            1 / (a.abs() + 1),
            a < b,
            a <= 0.5,
            (a > 0) & ~(b > 0),
            a == b,
            a != 1,
            2**a,
        )

    check(f, x(), x()[:, :, :4].clone())


def test_inplace_gives_the_same_object() -> None:
    def f(a: torch.Tensor) -> Any:
        b = a.add_(1)
        a *= 2
        a[0, 1] = 5.0
        a[:, 0] += a[:, 1]
        return b is a, b, a.sum()

    captured = capture(f, x())
    mine, theirs = x(), x()
    got, expected = captured.run(mine), f(theirs)
    assert got[0] is expected[0] is True
    assert got[1] is mine
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(got[2], expected[2])


def test_indexing() -> None:
    def f(a: torch.Tensor, i: torch.Tensor) -> Any:
        n = 2
        return a[0], a[..., 1:], a[:, None, ::2], a[i], a[:, i], a[:, i, 0], a[-1, [0, 2]], a[:n], a[i, i], a.unbind(1)

    check(f, x(), torch.tensor([1, 0]))


def test_several_results() -> None:
    def f(a: torch.Tensor) -> Any:
        values, indices = a.max(dim=-1)
        top = a.topk(2)
        p, _, _, s = a.split(1, dim=-1)
        q2, _ = torch.chunk(a, 2, dim=-1)
        return values, indices, top.values, top.indices + 1, p + s, q2, a.sort(), [row.sum() for row in a]

    check(f, x())


def test_functions_are_leaves() -> None:
    def f(a: torch.Tensor, w: torch.Tensor) -> Any:
        b = F.layer_norm(F.gelu(F.linear(a, w)), (5,))
        b = torch.cat([b, torch.zeros(2, 3, 1, dtype=a.dtype, device=a.device)], dim=-1)
        return (
            F.softmax(b, dim=-1),
            torch.einsum("bij,bkj->bik", b, b),
            torch.where(b > 0, b, 0.0),
            torch.linalg.norm(b),
        )

    captured = check(f, x(), torch.randn(5, 4))
    assert F.layer_norm in captured.targets


def test_factories_and_conversions() -> None:
    def f(a: torch.Tensor) -> Any:
        e = torch.arange(a.shape[-1], device=a.device)
        return (
            a.to(torch.float64),
            a.half().float(),
            a.new_zeros(3),
            torch.full_like(a, 2),
            e.to(a),
            torch.tensor([1, 2]),
            a.T.shape,
        )

    check(f, torch.randn(3, 4))


def test_random_functions_are_calls() -> None:
    def f(a: torch.Tensor) -> Any:
        return F.dropout(a, 0.5) + torch.rand_like(a), torch.randint(0, 5, (2,))

    check(f, x())


def test_autograd_through_the_graph() -> None:
    def f(a: torch.Tensor) -> Any:
        with torch.no_grad():
            scale = a.abs().max()
        b = a * 2
        return (b / scale).sum(), b.detach(), b.requires_grad, scale.requires_grad

    captured = check(f, x().requires_grad_())
    assert torch._C._set_grad_enabled in captured.targets


def test_grad_modes() -> None:
    @torch.no_grad()
    def inner(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    def f(a: torch.Tensor) -> Any:
        with torch.no_grad(), torch.enable_grad():
            on = torch.is_grad_enabled()
        with torch.set_grad_enabled(False):
            off = torch.is_grad_enabled()
            c = a * 3
        return inner(a), on, off, torch.is_grad_enabled(), c

    check(f, x().requires_grad_())


def test_data_is_not_looked_at() -> None:
    def branch(a: torch.Tensor) -> Any:
        return a + 1 if a.sum() > 0 else a

    def item(a: torch.Tensor) -> Any:
        return a * a.sum().item()

    def show(a: torch.Tensor) -> Any:
        return f"{a}"

    def shapes(a: torch.Tensor) -> Any:
        return a[a > 0]

    assert "depends on the data" in refused(branch, x())
    assert "depends on the data" in refused(item, x())
    assert "depends on its data" in refused(show, x())
    assert "data" in refused(shapes, x())


def test_known_small_values() -> None:
    def f(a: torch.Tensor) -> Any:
        n = torch.tensor(3)
        return a * n.item(), int(n), bool(torch.tensor(False))

    check(f, x())


def test_questions_of_torch() -> None:
    def f(a: torch.Tensor) -> Any:
        answers = (
            torch.is_tensor(a), torch.is_tensor(1), torch.get_default_dtype(), torch.finfo(a.dtype).min,
            torch.is_floating_point(a), torch.numel(a), torch.Size([1, 2]), torch.device("cpu"), isinstance(a,
            torch.Tensor),
            type(a) is torch.Tensor, torch.result_type(a, 1), torch.jit.is_tracing(), torch.broadcast_shapes((1, 2),
            (3, 1)),
        )  # fmt: skip
        return answers, a * 2

    check(f, x())


def test_a_compiler_says_that_it_compiles() -> None:
    def f(a: torch.Tensor) -> Any:
        return torch.compiler.is_compiling(), torch.compiler.is_exporting(), a + 1

    assert capture(f, x()).run(x())[:2] == (True, False)


def test_methods_by_class() -> None:
    def f(a: torch.Tensor) -> Any:
        return torch.Tensor.add(a, 1), torch.Tensor.size(a, 0), torch.ops.aten.relu.default(a), torch.relu(input=a)

    check(f, x())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_one_shape_are_refused() -> None:
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    layer = torch.nn.Module()
    for layout, why in ((torch.strided, "nested tensors are not modelled"), (torch.jagged, "class NestedTensor")):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        layer.register_buffer("rows", nested)
        assert why in refused(lambda t: t * 2, nested)
        assert why in refused(lambda m: m.rows * 2, layer)
    with pytest.raises(Unsupported, match="it is a nested tensor"):
        FakeMode().from_real(torch.nested.nested_tensor(rows))


def test_out_of_graph_methods_are_refused() -> None:
    for method in ("numpy", "data_ptr", "retain_grad", "register_hook"):

        def f(a: torch.Tensor, method: str = method) -> Any:
            return getattr(a * 2, method)()

        assert method in refused(f, x())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, by: float) -> torch.Tensor:
        ctx.save_for_backward(a)
        return a * by

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 7, None


def test_autograd_functions_are_leaves() -> None:
    def f(a: torch.Tensor) -> Any:
        return Doubled.apply(a, 2.0).sum()

    captured = check(f, x().requires_grad_())
    a = x().requires_grad_()
    captured.run(a).backward()
    assert a.grad is not None and bool((a.grad == 7).all())


def test_autocast() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            on = torch.is_autocast_enabled("cpu")
            c = a @ b
            with torch.autocast("cpu", enabled=False):
                d = a @ b
        return c, d, c.dtype, d.dtype, on, torch.is_autocast_enabled("cpu"), a @ b

    check(f, torch.randn(3, 3), torch.randn(3, 3))


NEW: dict[str, Any] = {
    "a shape": lambda x: x.new(x.shape).fill_(2),
    "a size": lambda x: x.new(x.size()).fill_(2),
    "a size that is made": lambda x: x.new(x.shape[:1] + (4,)).fill_(2),  # noqa: RUF005
    "no dims": lambda x: x.new(x[0, 0].shape).fill_(2),
    "a known size": lambda x: x.new(torch.Size((2, 1))).fill_(2),
    "of the class": lambda x: torch.Tensor.new(x, x.shape).fill_(2),
    "numbers": lambda x: x.new(2, 3).fill_(2),
    "data": lambda x: x.new([2, 3]),
    "data in a tuple": lambda x: x.new((2.5, 3)),
    "a copy": lambda x: x.new(x),
}


@pytest.mark.parametrize("name", NEW)
def test_new_tells_sizes_from_data(name: str) -> None:
    program = NEW[name]
    compiled = stator.compile(program, backend="aot_eager")
    for size in (2, 3, 5):
        x = torch.rand(size, 3).double()
        ours, theirs = compiled(x), program(x)
        assert torch.equal(ours, theirs) and ours.dtype is theirs.dtype
