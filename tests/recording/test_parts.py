"""Plans of which some steps are not recorded: the others are, in parts, and results are those of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stator import targets
from stator.base import log
from stator.base.errors import RecordingWarning
from stator.lowering.product import ONEDNN
from stator.plan import ir, verify
from stator.plan.parts import ARENA, barriers, ending, split
from stator.recording.policy import TRIES
from tests.recording.conftest import Machine
from tests.recording.fake import Recorder
from tests.recording.programs import Count, Kept, close, steps, twins

#: Products are called, whatever their sizes, and so are refused here.
REFUSED = dict.fromkeys(
    ["aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.convolution.default", ONEDNN], "told"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    fake = Recorder(REFUSED=dict(REFUSED))
    monkeypatch.setattr(targets, "recorder", lambda device: fake)
    made = Machine("cpu", fake)
    yield made
    made.settle()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(self.norm(x)).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / 8).softmax(-1)
        return x + F.gelu(self.out(weights @ v))


def networks() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]]:
    return {
        "blocks": (lambda: nn.Sequential(Attention(), Attention()), lambda: torch.randn(4, 40, 64)),
        "mlp": (
            lambda: nn.Sequential(nn.Linear(300, 400), nn.GELU(), nn.LayerNorm(400), nn.Linear(400, 300)),
            lambda: torch.randn(64, 300),
        ),
        "images": (
            lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3)),
            lambda: torch.randn(4, 3, 24, 24),
        ),
    }


@pytest.mark.parametrize("name", networks())
def test_training_in_parts(machine: Machine, name: str, recordings: Count) -> None:
    make, batch = networks()[name]
    model, twin = twins(machine, make)
    batches = [batch() for _ in range(6)]
    with log.collect() as recorder:
        found = steps(model, machine.compile(model), batches)
    torch.testing.assert_close(found, steps(twin, twin, batches), atol=1e-4, rtol=1e-3)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        close(mine, theirs)
    sentences = [str(facts["told"]) for facts in recorder.of(log.RECORDING)]
    assert any(": told" in sentence for sentence in sentences), sentences
    assert recordings() >= 2


@pytest.mark.parametrize("name", networks())
def test_results_of_parts_are_kept(machine: Machine, name: str) -> None:
    make, batch = networks()[name]
    model = make().eval()
    compiled = machine.compile(model)
    kept: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        for _ in range(6):
            x = batch()
            kept.append((compiled(x), model(x)))
    for found, expected in kept:
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_writes_in_parts(machine: Machine) -> None:
    def fn(x: Tensor, w: Tensor, state: Tensor) -> Tensor:
        state.add_(x.sum(0))
        y = x @ w
        state.mul_(0.5)
        return y + state

    compiled = machine.compile(fn)
    w = torch.randn(300, 300)
    state, twin = torch.zeros(300), torch.zeros(300)
    for _ in range(6):
        x = torch.randn(64, 300)
        torch.testing.assert_close(compiled(x, w, state), fn(x, w, twin), atol=1e-3, rtol=1e-3)
        close(state, twin)


def test_sizes_that_change_are_not_cut(machine: Machine) -> None:
    """The arena of a symbolic plan is placed anew for each size: it is told, and runs as it is."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return ((x.softmax(-1) @ w).softmax(0) @ w).sin()

    w = torch.randn(300, 300)
    compiled = machine.compile(fn, strict=False, dynamic=True)
    with pytest.warns(UserWarning, match="placed anew for each size"):
        compiled(torch.randn(64, 300), w)
    for rows in (64, 65, 66):
        x = torch.randn(rows, 300)
        torch.testing.assert_close(compiled(x, w), fn(x, w), atol=1e-4, rtol=1e-3)


# ---- steps that turn out not to be recorded --------------------------------------------------------------------------

_recorder: list[Recorder] = []


@torch.library.custom_op("tests_recording::refused_by_the_device", mutates_args=())
def refused_by_the_device(x: Tensor) -> Tensor:
    """Nothing tells it before it is recorded."""
    if any(recorder.recording for recorder in _recorder):
        raise RuntimeError("not while something is being captured")
    return x * 2


@refused_by_the_device.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def told(machine: Machine) -> Iterator[None]:
    assert machine.fake is not None
    _recorder.append(machine.fake)
    yield
    _recorder.clear()


@pytest.mark.usefixtures("told")
def test_a_step_that_fails_is_cut_out(machine: Machine, recordings: Count) -> None:
    def fn(x: Tensor) -> Tensor:
        y = (x * 2).sin()
        z = refused_by_the_device(y)
        u = (z + y).cos().softmax(-1)
        return refused_by_the_device(u).cumsum(0)

    compiled = machine.compile(fn)
    kept = Kept()
    for _ in range(9):
        x = torch.randn(6, 30)
        kept.take(compiled(x), fn(x))
    kept.check()
    assert recordings() >= 2


def test_a_call_that_fails_for_no_step_runs_as_it_is(machine: Machine) -> None:
    assert machine.fake is not None
    machine.fake.fails = RuntimeError("the device is out of order\nfor today")
    compiled = machine.compile(lambda x: x * 2, strict=False)
    with pytest.warns(RecordingWarning, match="run as they are.*RuntimeError: the device is out of order$") as caught:
        for _ in range(6):
            x = torch.randn(5)
            close(compiled(x), x * 2)
    assert len(caught) == 1
    assert machine.fake.captures == TRIES


# ---- what a part is --------------------------------------------------------------------------------------------------


def form(*size: int) -> ir.Form:
    stride = tuple([int(torch.tensor(size[i + 1 :]).prod()) for i in range(len(size))])
    return ir.Form("f32", size, stride)


def plan() -> ir.Plan:
    """k0(x, a); b = mm(a, w); k1(b, out), with `a` in the arena."""
    return ir.Plan(
        "forward",
        "cpu",
        ("k0", "k1"),
        (ir.Input("x", form(4, 4)), ir.Input("w", form(4, 4))),
        (
            ir.Launch("k0", (ir.Address(ir.Whole("x")), ir.Address(ir.Whole("a"), 4, True))),
            ir.Release(("x",)),
            ir.Invoke(
                "aten.mm.default", (ir.Whole("a"), ir.Whole("w")), (), (ir.Result(0, "b", (4, 4), (4, 1)),)
            ),
            ir.Allocate("out", form(4, 4)),
            ir.Launch("k1", (ir.Address(ir.Whole("b")), ir.Address(ir.Whole("out"), 0, True))),
        ),
        (ir.Whole("out"), ir.Whole("b")),
        arena=ir.Arena(128, (ir.Piece("a", form(4, 4), 64),)),
    )  # fmt: skip


def test_barriers_are_operators_that_are_refused_or_touch_the_host() -> None:
    assert barriers(plan(), {}) == {}
    assert barriers(plan(), {"aten.mm.default": "why"}) == {2: "aten.mm.default: why"}


def test_a_check_is_a_barrier_unless_the_device_makes_it() -> None:
    check = ir.Invoke("aten._assert_async.msg", (ir.Whole("x"), "no"), (), effects=(0,))
    checked = replace(plan(), steps=(check, *plan().steps), effects=(ir.Effect("check"),))
    assert list(barriers(checked, {})) == [0]
    assert barriers(checked, {}, {"aten._assert_async.msg"}) == {}


def test_parts_take_and_give_what_others_have() -> None:
    first, product, last = split(plan(), {2: "why"})
    assert [part.barrier for part in (first, product, last)] == ["", "why", ""]
    assert (first.takes, first.gives) == (("x", ARENA), ())
    assert (product.takes, product.gives) == (("w", ARENA), ("b",))
    assert (last.takes, last.gives) == (("b",), ("out",))
    assert product.plan.steps[0].args[0] == ir.Reread(ARENA, form(4, 4), 16, True)  # type: ignore[union-attr]
    assert first.plan.steps[0].addresses[1] == ir.Address(ir.Whole(ARENA), 68, True)  # type: ignore[union-attr]
    verify(ending(plan()))
    verify(last.plan)


def test_the_results_of_a_plan_have_a_plan() -> None:
    found = ending(plan())
    assert not found.steps and found.results == plan().results
    assert {given.name for given in found.inputs} == {"out", "b"}
