"""Mutation and aliasing: results, who shares memory with whom, versions, gradients and later writes are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import stator
from stator.base import log
from stator.base.errors import CaptureError, Unsupported
from tests.aot.relations import Function, Inputs, differences, observe


def plain() -> list[torch.Tensor]:
    return [torch.arange(24.0).view(4, 6) / 7 + 1, torch.arange(24.0, 48.0).view(4, 6) / 5]


def leaf() -> list[torch.Tensor]:
    return [t.requires_grad_() for t in plain()]


def inner() -> list[torch.Tensor]:
    """Tensors in the middle of the caller's autograd graph."""
    made = []
    for source in leaf():
        tensor: Any = source * 1
        tensor.made_from = source
        made.append(tensor)
    return made


def mixed() -> list[torch.Tensor]:
    """The first is written to, the second takes part in autograd."""
    return [plain()[0], leaf()[1]]


def no_grad_write(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    with torch.no_grad():
        x.add_(1)
    return z * 2


def no_grad_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.no_grad():
        v = x[0]
    return v, x * y


def no_grad_middle(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    with torch.no_grad():
        z[0].zero_()
    return z, z * 2


def ends(*steps: str) -> Function:
    """A function of `x` and `y` from statements; the last is its result."""
    body = "\n    ".join([*steps[:-1], f"return {steps[-1]}"])
    names: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, y):\n    {body}", names)
    return names["f"]


#: Results that share memory; nothing is written.
VIEWS: dict[str, Function] = {
    text: ends(text)
    for text in (
        "x", "(x, x)", "(x, y, x)", "x.t()", "x[0]", "x[1:, ::2]", "x.view(-1)", "x.view(3, 8)", "x.unsqueeze(1)",
        "x.diagonal()", "x.expand(2, 4, 6)", "x.detach()", "x.data", "x.alias() if hasattr(x, 'alias') else x",
        "x.chunk(2)", "x.split(3, 1)", "x.unbind(0)", "(x[0], x[0])", "(x.t(), x)", "(x[:2], x[1:])",
        "x.as_strided((2, 2), (1, 6), 3)", "x.view_as(y)", "x.reshape(24)", "x.contiguous()", "x.to(torch.float32)",
        "x.t().contiguous()", "x.select(1, 2)[1:]", "x.t()[1:].t()", "(x * 2)", "(x * 2).t()", "(x * 2)[1:]",
        "(x + y, x)", "(x * y, x.t(), y[0])", "x.requires_grad", "torch.broadcast_tensors(x, y)", "x.squeeze()",
        "x.movedim(0, 1)", "x.unfold(1, 2, 2)", "x.narrow(0, 1, 2)", "x.flatten()", "torch.atleast_3d(x)",
    )
}  # fmt: skip
VIEWS |= {
    "; ".join(steps): ends(*steps)
    for steps in (
        ("z = x * 2", "(z, z)"),
        ("z = x * 2", "(z, z.t())"),
        ("z = x * 2", "(z.t(), z[0])"),
        ("z = x * 2", "(z[0], z[0])"),
        ("z = x * 2", "(z.detach(), z)"),
        ("z = x * 2", "z.detach()"),
        ("z = x * 2", "(z[0].detach(), z[0])"),
        ("z = (x * 2).t()", "(z, z.t())"),
        ("z = x + y", "z.chunk(2)"),
        ("z = x + y", "(z.view(-1)[3:9], z)"),
        ("z = x.t()", "(z, z)"),
        ("z = x.t()", "(z, z[0], z * 2)"),
        ("z = x * 2", "w = z * 3", "(w, z[1:], w[1:])"),
    )
}
VIEWS["no_grad_view"] = no_grad_view

#: Writes to inputs, to views of them and to values of the function.
WRITES: dict[str, Function] = {
    "; ".join(steps): ends(*steps)
    for steps in (
        ("x.add_(1)", "x"),
        ("x.add_(1)", "x * 2"),
        ("x.add_(y)", "None"),
        ("x.mul_(y).add_(1)", "x.t()"),
        ("x.fill_(3)", "x + y"),
        ("x.zero_()", "(x, y * 2)"),
        ("x.copy_(y)", "x * y"),
        ("x.copy_(y[0])", "x"),
        ("x.copy_(y.t().reshape(4, 6))", "x"),
        ("x[0] = 1", "x * 2"),
        ("x[0] = y[1]", "(x, y)"),
        ("x[:, 1:3] = y[:, :2]", "x[0]"),
        ("x[1, 2] = 5", "x"),
        ("x[:, ::2] += 1", "x"),
        ("x[torch.tensor([0, 2])] = y[:2]", "x"),
        ("x[y > 6] = 0", "x"),
        ("x.index_put_((torch.tensor([1, 1]),), y[:2], accumulate=True)", "x"),
        ("x.index_add_(0, torch.tensor([3, 0]), y[:2])", "x"),
        ("x.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), y)", "x"),
        ("x.masked_fill_(y > 6, 2.0)", "x"),
        ("x.t().add_(1)", "x"),
        ("x.view(-1)[3:9].mul_(2)", "x"),
        ("x[1:][:, 2].zero_()", "x"),
        ("x.diagonal().fill_(0)", "x"),
        ("v = x[0]", "v.mul_(2)", "(v, x)"),
        ("v = x[0]", "x.mul_(2)", "(v, v * 2)"),
        ("v = x.t()", "w = v[1:]", "w.add_(1)", "(x, v, w)"),
        ("v = x[:2]", "w = x[1:]", "v.mul_(2)", "(w * 1, w)"),
        ("x.detach().mul_(2)", "x * 1"),
        ("x.data.mul_(2)", "x * 1"),
        ("x.data = y", "x * 1"),
        ("d = x.detach()", "d.add_(1)", "(d, y * 1)"),
        ("x.relu_()", "x"),
        ("x.clamp_(0, 2)", "x[1]"),
        ("torch.add(x, y, out=x)", "x"),
        ("z = torch.empty(4, 6)", "torch.mul(x, 2, out=z)", "z"),
        ("z = torch.zeros(4, 6)", "z[1] = x[0]", "(z, z[1])"),
        ("z = torch.zeros(4, 6)", "z[1:].add_(x[1:])", "z * y"),
        ("z = x * 2", "z.add_(1)", "z"),
        ("z = x * 2", "v = z[0]", "z.add_(1)", "(v, z)"),
        ("z = x * 2", "v = z[0]", "v.add_(1)", "(z, v)"),
        ("z = x * 2", "v = z[0]", "v.add_(1)", "z * 3"),
        ("z = x * 2", "z[:, 1].copy_(y[:, 0])", "z.t()"),
        ("z = x.clone()", "z.t_()", "z"),
        ("x.t_()", "x * 2"),
        ("x.t_()", "None"),
        ("x.unsqueeze_(0)", "x * 2"),
        ("x.transpose_(0, 1)", "x.add_(1)", "None"),
        ("x.squeeze_(0)", "x * y"),
        ("x.add_(1)", "x.t_()", "None"),
        ("v = x[0]", "x.t_()", "(v, x * 1)"),
        ("x.add_(1)", "y.add_(x)", "x * y"),
        ("x.add_(1)", "z = x * 1", "x.add_(1)", "(z, x * 1)"),
        ("x.swapaxes_(0, 1)", "y.mul_(2)", "(x, y)"),
        ("x.add_(1)", "(x, x)"),
        ("x.add_(1)", "(x[0], x[1:], x.t())"),
        ("x.add_(1)", "x.detach()"),
        ("x.requires_grad_()", "x * 2"),
        ("x.resize_(2, 3)", "x * 2"),
        ("x.set_(y)", "x * 2"),
        ("x.swap = 1", "x * 2"),
        ("z = x * y", "z.detach_()", "z * 2"),
        ("z = x * y", "z.detach().zero_()", "z * 2"),
        ("torch.nn.init.zeros_(x)", "x + y"),
        ("x.bernoulli_(0.0)", "x + y"),
        ("x.exp_()", "x * y"),
        ("x.sigmoid_()", "x[1:].sum()"),
        ("x.cumsum_(0)", "x"),
        ("torch._foreach_add_([x, y], 1)", "x * y"),
        ("x += y", "x"),
        ("x **= 2", "x"),
        ("x.lerp_(y, 0.5)", "x"),
        ("x.addcmul_(y, y)", "x"),
        ("x.div_(y, rounding_mode='floor')", "x"),
    )
}
WRITES |= {"no_grad_write": no_grad_write, "no_grad_middle": no_grad_middle}

KINDS: dict[str, Inputs] = {"plain": plain, "leaf": leaf, "inner": inner}


def check(function: Function, make: Inputs, backend: str = "aot_eager") -> None:
    """The compiled function does to the world what the function does."""
    expected = observe(function, make)
    found = differences(observe(stator.compile(function, backend=backend), make), expected)
    assert not found, "; ".join(found)[:600]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VIEWS)
def test_results_share_memory_as_in_eager(name: str, kind: str) -> None:
    check(VIEWS[name], KINDS[kind])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_seen_as_in_eager(name: str, kind: str) -> None:
    check(WRITES[name], {**KINDS, "mixed": mixed}[kind])


KERNELS = (
    "x.add_(1); x * 2", "x[:, 1:3] = y[:, :2]; x[0]", "v = x[0]; v.mul_(2); (v, x)", "x.data.mul_(2); x * 1",
    "z = x * 2; v = z[0]; v.add_(1); (z, v)", "x.t_(); x * 2", "x.add_(1); (x[0], x[1:], x.t())",
    "v = x[:2]; w = x[1:]; v.mul_(2); (w * 1, w)", "x.diagonal().fill_(0); x",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_write_as_eager_does(name: str, kind: str) -> None:
    check(WRITES[name], {**KINDS, "mixed": mixed}[kind], "inductor")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["x.add_(1); x * 2", "x.t(); x", "x.detach().mul_(2); x * 1", "z = x * 2; (z, z.t())"])
def test_these_are_one_graph(name: str) -> None:
    """What the tables hold is captured, not left to eager PyTorch."""
    function = {**VIEWS, **WRITES}.get(name) or ends(*name.split("; "))
    with log.collect() as recorder:
        stator.compile(function, backend="aot_eager", fullgraph=True)(*inner())
    assert [span.name for span in recorder.spans].count("backend") == 1


class Statistics(torch.nn.Module):
    """Parameters and buffers that are written while gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("count", torch.zeros(3))
        self.scale = torch.nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm(x * self.scale)
        self.count[1:] += 1
        with torch.no_grad():
            self.scale.data.mul_(0.5)
        return out


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_buffers_and_parameters(backend: str) -> None:
    torch.manual_seed(0)
    first, second = Statistics(), Statistics()
    second.load_state_dict(first.state_dict())
    compiled = stator.compile(second, backend=backend)
    for _ in range(3):
        x = torch.randn(4, 6)
        expected, got = first(x), compiled(x)
        torch.testing.assert_close(got, expected)
        (expected * x).sum().backward()
        (got * x).sum().backward()
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad)
        for (name, a), (_, b) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
            torch.testing.assert_close(b, a, msg=name)
        for (name, a), (_, b) in zip(first.named_buffers(), second.named_buffers(), strict=True):
            assert (a._version > 0) == (b._version > 0), name


@pytest.mark.filterwarnings("ignore")  # forward mode loads TorchScript, which is deprecated
def test_forward_mode_is_refused() -> None:
    compiled = stator.compile(lambda x: x * x, backend="aot_eager")
    with forward_ad.dual_level():
        assert compiled(torch.ones(3)).tolist() == [1, 1, 1]
        with pytest.raises(Unsupported, match="forward-mode"):
            compiled(forward_ad.make_dual(torch.ones(3), torch.ones(3)))


def test_memory_around_what_is_seen_as_another_dtype() -> None:
    """A tensor seen as another dtype has memory of its own; eager's has that of the tensor it is a part of."""

    def part(x: torch.Tensor, offset: int) -> torch.Tensor:
        return x.narrow(0, 4, 8).view(torch.int32).as_strided((4,), (2,), offset) + 1

    def as_wide(x: torch.Tensor, offset: int) -> torch.Tensor:
        return x.float()[4:12].view(torch.int32).as_strided((4,), (1,), offset) + 1

    x = torch.arange(64)
    for fn, inside, outside in ((part, (8, 17), (2, 7, 18)), (as_wide, (4, 8), (0, 3, 9))):
        for offset in inside:
            assert torch.equal(stator.compile(fn, fullgraph=True)(x, offset), fn(x, offset))
        for offset in outside:
            with pytest.raises(CaptureError, match="reads memory outside of the tensor"):
                stator.compile(fn, fullgraph=True)(x, offset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_part_that_is_seen_as_another_dtype_lies_where_it_does_in_eager(dtype: torch.dtype) -> None:
    """So what reads around it later, by absolute offsets, reads what it does in eager."""
    whole = torch.int32 if dtype is torch.float32 else torch.int16
    programs = {
        "a part": lambda x: (x * 2)[4:12].view(whole),
        "as it was": lambda x: (x * 2).view(whole)[2:8].view(dtype),
        "turned": lambda x: (x * 2).view(4, 4).t()[1:].view(whole),
        "written to": lambda x: (x * 2)[4:12].view(whole).add_(1),
    }
    for name, function in programs.items():
        for taped in (False, True):
            x = torch.arange(16, dtype=dtype).requires_grad_(taped)
            want, found = function(x), stator.compile(function, options={"strict": True})(x)
            places = [(t.storage_offset(), t.stride(), t.requires_grad, t._is_view()) for t in (want, found)]
            around = [t.as_strided((3,), (1,), 1).tolist() for t in (want, found)]
            assert torch.equal(found, want) and places[0] == places[1] and around[0] == around[1], name
