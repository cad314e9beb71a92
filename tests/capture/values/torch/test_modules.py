"""nn.Module: parameters as graph attributes, submodules, buffers, hooks, modes."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.capture.values.harness import capture, check, refused, same


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("offset", torch.zeros(width))
        self.register_buffer("steps", torch.tensor(0))
        self.drop = nn.Dropout(0.5)
        self.rate = 0.5

    def forward(self, t: torch.Tensor, twice: bool = False) -> torch.Tensor:
        t = self.drop(self.norm(F.relu(self.linear(t)))) * self.scale + self.offset
        return t * 2 if twice else t


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.head = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))
        self.calls = 0

    def forward(self, t: torch.Tensor) -> Any:
        self.calls += 1
        for index, block in enumerate(self.blocks):
            t = block(t, twice=index == 1)
        for name in self.named:
            t = self.named[name](t)
        count = sum(p.numel() for p in self.parameters())
        return (
            self.head(t),
            self.blocks[-1].rate,
            len(self.blocks),
            count,
            self.training,
            [n for n, _ in self.named_children()],
        )


def x() -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def test_net() -> None:
    for training in (True, False):
        check(Net.forward, Net().train(training), x())


def test_attributes_are_the_live_parameters() -> None:
    block = Block().eval()
    captured = capture(Block.forward, block, x())
    module = captured.entry.graphs[0].module
    assert {id(p) for p in module.parameters()} == {id(p) for p in block.parameters()}
    with torch.no_grad():
        block.scale.mul_(3)
    torch.testing.assert_close(captured.run(block, x()), block(x()))


def test_gradients_reach_the_parameters() -> None:
    block = Block().eval()
    captured = capture(Block.forward, block, x())
    captured.run(block, x()).sum().backward()
    got = [p.grad.clone() for p in block.parameters()]  # type: ignore[union-attr]
    block.zero_grad()
    block(x()).sum().backward()
    for mine, p in zip(got, block.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad)


def test_one_guard_of_metadata_a_parameter() -> None:
    guards = capture(Block.forward, Block(), x()).guards
    assert sum("['weight'] is Parameter" in guard for guard in guards) == 2
    assert sum("'scale'" in guard and " is " in guard for guard in guards) == 2  # identity and metadata


def test_batch_norm_counts() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return self.norm(t)

    module = M()
    check(M.forward, module, x())
    assert module.norm.num_batches_tracked.item() == 1
    check(M.forward, M().eval(), x())


def test_buffers_can_be_replaced() -> None:
    class M(Block):
        def forward(self, t: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            self.steps = self.steps + 1
            self.offset += t.sum(0)
            return t + self.steps

    check(M.forward, M(), x())


def test_tied_parameters_are_one_attribute() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(t))

    captured = check(M.forward, M(), x())
    assert len(list(captured.entry.graphs[0].module.parameters())) == 1


def test_hooks_run() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return self.inner(t)

    module = M()
    module.inner.register_forward_hook(lambda module, args, output: output * 2)
    module.inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    check(M.forward, module, x())


def test_absence_of_hooks_is_guarded() -> None:
    guards = capture(Net.forward, Net(), x()).guards
    assert any("'_forward_hooks'" in guard and "not any" in guard for guard in guards)
    assert any("_global_forward_hooks" in guard for guard in guards)


def test_forward_replaced_on_the_instance() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return self.inner(t)

    module = M()
    module.inner.forward = lambda t: t * 7  # type: ignore[method-assign]
    check(M.forward, module, x())


def test_modules_made_inside() -> None:
    def f(t: torch.Tensor, target: torch.Tensor) -> Any:
        return nn.CrossEntropyLoss()(t, target), nn.functional.mse_loss(t, t * 2), nn.ReLU()(t)

    check(f, x(), torch.tensor([0, 1, 3]))


def test_missing_attributes() -> None:
    def f(m: nn.Module, t: torch.Tensor) -> Any:
        return hasattr(m, "nothing"), getattr(m, "nothing", 3), hasattr(m, "weight"), t + 1

    check(f, nn.Linear(2, 2), x())


def test_modes_of_modules() -> None:
    def f(m: nn.Module, t: torch.Tensor) -> Any:
        return [type(inner).__name__ for inner in m.modules()], [n for n, _ in m.named_parameters()], m.training, t + 1

    check(f, Net(), x())


def test_parameters_cannot_be_made_inside() -> None:
    def f(t: torch.Tensor) -> Any:
        return nn.Linear(4, 4)(t)

    assert refused(f, x())


def test_recurrent_layers() -> None:
    def f(m: nn.Module, t: torch.Tensor) -> Any:
        return m(t)

    for layer in (nn.LSTM(4, 3), nn.GRU(4, 3, num_layers=2), nn.GRUCell(4, 3)):
        check(f, layer, x() if isinstance(layer, nn.GRUCell) else x()[None])


def test_attention_and_parametrised_layers() -> None:
    def f(m: nn.Module, t: torch.Tensor) -> Any:
        return m(t)

    check(f, nn.TransformerEncoderLayer(4, 2, batch_first=True), x()[None])
    check(f, nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), x())
    check(
        f,
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        torch.randn(1, 3, 8, 8),
    )


def test_after_torchs_own_compiler_has_run() -> None:
    """It exchanges `Module.__init__` for one that takes notes, in the whole process and for good."""
    torch.compile(lambda t: t + 1, backend="eager")(x())

    def f(t: torch.Tensor) -> Any:
        layers = nn.ModuleList([nn.ReLU(), nn.Identity()])
        return nn.MSELoss()(layers[0](t), t)

    check(f, x())


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_dict_of_hooks_is_one_object_however_it_is_reached() -> None:
    """The handle of a hook refers to it weakly, which ends the graph where it is made."""

    def removed(m: nn.Module, t: torch.Tensor) -> Any:
        handle = m.register_forward_hook(lambda module, args, result: result + 5)
        first = m(t)
        handle.remove()
        return first, m(t), len(m._forward_hooks)

    def by_reference(m: nn.Module, t: torch.Tensor) -> Any:
        reference = weakref.ref(m._forward_hooks)
        stator.graph_break()
        hooks = reference()
        assert hooks is not None
        hooks[3] = lambda module, args, result: result * 2
        first = m(t)
        del m._forward_hooks[3]
        return first, m(t), len(hooks), hooks is m._forward_hooks

    for function in (removed, by_reference):
        compiled = stator.compile(function, backend="eager", options={"strict": True})
        layer = nn.Linear(4, 4)
        for _ in range(2):
            given = x()
            same(compiled(layer, given), function(layer, given))
