"""Freezing: what is computed of parameters alone is kept, and is never stale, whoever writes to them and how."""

from __future__ import annotations

import copy
import ctypes
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

import stator
from stator.aot import frozen
from stator.base import announce, log
from stator.base.errors import OptionWarning, WithoutEffect
from stator.targets.cpu.record import has_tiles

OPTIONS = {"freezing": True, "check_speed": "off", "strict": True}


class Scaled(nn.Module):
    """A product with arithmetic of parameters before it, and a buffer in it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 64))
        self.gain = nn.Parameter(torch.randn(6))
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight * (1 + self.gain)[:, None]).t() + self.shift.exp()


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x[:, :, None, None])).flatten(1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For every time that a prologue ran, whether what it gave was kept."""
    found: list[bool] = []
    native = frozen.Frozen

    def noting(forward: Any, attributes: Any, hold: Any, compute: Any, samples: Any) -> Any:
        return native(forward, attributes, hold, lambda *seen: (found.append(seen[0]), compute(*seen))[1], samples)

    monkeypatch.setattr(frozen, "Frozen", noting)
    yield found


def check(compiled: Callable[..., Tensor], eager: Callable[..., Tensor], x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)


def by_numpy(p: Tensor) -> None:
    p.detach().numpy()[...] += 1


def by_fused(kind: type[torch.optim.Optimizer]) -> Callable[[Tensor], None]:
    """A step that changes one element alone, which nobody who looks at some elements sees."""

    def write(p: Tensor) -> None:
        p.grad = torch.zeros_like(p)
        p.grad.view(-1)[5] = 1
        kind([p], lr=0.5, fused=True).step()  # type: ignore[call-arg]

    return write


def by_compiled_step(p: Tensor) -> None:
    p.grad = torch.zeros_like(p)
    p.grad.view(-1)[5] = 1
    step = torch.optim.SGD([p], lr=0.5, fused=True).step
    stator.compile(step, options={"check_speed": "off"})()


def by_collective(call: Callable[[Tensor], Any]) -> Callable[[Tensor], None]:
    """As if another process had sent it: one element is written to out of PyTorch's sight, in the call or before."""

    def write(p: Tensor) -> None:
        address, size = p.data_ptr(), p.numel()
        (ctypes.c_float * size).from_address(address)[5] += 1
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        try:
            call(p.detach())
        finally:
            distributed.destroy_process_group()

    return write


def by_optimizer(p: Tensor) -> None:
    optimizer = torch.optim.SGD([p], 0.5)
    p.grad = torch.ones_like(p)
    optimizer.step()


def by_inference_mode(p: Tensor) -> None:
    with torch.inference_mode():
        p.mul_(2)


def by_new_data(p: Tensor) -> None:
    p.data = p.detach() * 3


def by_two_swaps(p: Tensor) -> None:
    for _ in range(2):
        torch.utils.swap_tensors(p, nn.Parameter(torch.randn_like(p)))


def by_compiled_code(p: Tensor) -> None:
    with torch.no_grad():
        stator.compile(lambda w: w.add_(1), options={"check_speed": "off"})(p)


def by_functional(p: Tensor) -> None:
    functional = torch.ops._c10d_functional
    functional.wait_tensor(functional.broadcast_(p, 0, distributed.group.WORLD.group_name))


#: Ways to write to a parameter.
WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda p: p.detach().add_(1), "data": lambda p: p.data.copy_(torch.randn(p.shape)),
    "one element of data": lambda p: p.data.view(-1)[1:2].zero_(), "data of a view": lambda p: p.view(-1).data.neg_(),
    "numpy": by_numpy, "optimizer": by_optimizer, "new data": by_new_data,
    "inference mode": by_inference_mode, "swapped": by_two_swaps, "compiled": by_compiled_code,
    "set_": lambda p: p.detach().set_(torch.randn(p.shape)),
    "fused SGD": by_fused(torch.optim.SGD), "fused Adam": by_fused(torch.optim.Adam),
    "fused AdamW": by_fused(torch.optim.AdamW), "fused Adagrad": by_fused(torch.optim.Adagrad),
    "broadcast": by_collective(lambda p: distributed.broadcast(p, 0)),
    "all_reduce": by_collective(distributed.all_reduce),
    "async": by_collective(lambda p: distributed.broadcast(p, 0, async_op=True).wait()),
    "compiled step": by_compiled_step, "functional": by_collective(by_functional),
    "storage": lambda p: p.untyped_storage().copy_(torch.randn(p.shape).untyped_storage()),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_parameter_is_seen(write: str, runs: list[bool]) -> None:
    model, x = Scaled(), torch.randn(3, 64)
    compiled = stator.compile(model, options=OPTIONS)
    for _ in range(2):
        check(compiled, model, x)
        check(compiled, model, x)
        WRITES[write](model.weight)
    check(compiled, model, x)
    assert all(runs) and len(runs) <= 3


def test_nothing_is_computed_twice(runs: list[bool]) -> None:
    model = Scaled()
    compiled = stator.compile(model, options=OPTIONS)
    for _ in range(3):
        check(compiled, model, torch.randn(3, 64))
    assert runs == [True]
    with torch.no_grad():
        for _ in range(2):
            for parameter in model.parameters():
                parameter.mul_(1.5)
            check(compiled, model, torch.randn(3, 64))
    model.load_state_dict(Scaled().state_dict())
    check(compiled, model, torch.randn(3, 64))
    assert runs == [True] * 4


def test_two_functions_of_one_model(runs: list[bool]) -> None:
    """What one computes again is nothing to the other, but what is written is."""
    model, x = Scaled(), torch.randn(3, 64)
    compiled = [stator.compile(model, options=OPTIONS | {"numerics": how}) for how in ("eager", "fast")]
    for count in (2, 4):
        for _ in range(3):
            for function in compiled:
                check(function, model, x)
        assert runs == [True] * count
        model.weight.data = torch.randn(6, 64)
    for function in compiled:
        check(function, model, x)


@pytest.mark.parametrize("write", ["shift", "gain"])
def test_memory_that_others_hold(write: str, runs: list[bool]) -> None:
    """Whoever holds it may write without a trace: what depends on it is computed at each call, and that is told."""
    model, x = Scaled(), torch.randn(3, 64)
    array = getattr(model, write).detach().numpy()
    announce.forget()
    compiled = stator.compile(model, options=OPTIONS)
    with pytest.warns(OptionWarning, match="held by others") as caught:
        for number in range(12):
            check(compiled, model, x)
            array[2] = number
    assert runs == [False] * 12 and len(caught) == 1
    del array
    check(compiled, model, x)
    check(compiled, model, x)
    assert runs == [False] * 12 + [True]


def test_statistics_that_training_writes(runs: list[bool]) -> None:
    """Batch norm's kernel does not count its writes."""
    model, x = Norms().eval(), torch.randn(3, 4)
    compiled = stator.compile(model, options=OPTIONS)
    for _ in range(3):
        check(compiled, model, x)
        with torch.no_grad():
            nn.functional.batch_norm(torch.randn(9, 6), model.norm.running_mean, model.norm.running_var, training=True)
    check(compiled, model, x)
    assert runs == [True] * 4
    model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptionWarning)
        stator.compile(model, options=OPTIONS | {"strict": False})(x)
    check(compiled, model.eval(), x)
    assert runs == [True] * 5


def test_what_the_graph_writes_is_not_frozen(runs: list[bool]) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            out = x * self.count.exp() + self.weight.exp()
            self.count.add_(1)
            return out

    model, twin = Counts(), Counts()
    twin.load_state_dict(model.state_dict())
    compiled = stator.compile(model, options=OPTIONS)
    for _ in range(3):
        check(compiled, twin, torch.randn(2, 4))
    assert runs == [True] and torch.equal(model.count, twin.count)


def test_parameters_that_are_shared(runs: list[bool]) -> None:
    model, x = nn.Sequential(Scaled(), nn.Linear(6, 64), Scaled()), torch.randn(3, 64)
    model[2].weight, model[2].gain = model[0].weight, model[0].gain
    compiled = stator.compile(model, options=OPTIONS)
    check(compiled, model, x)
    model[0].gain.detach().add_(1)
    check(compiled, model, x)
    assert runs == [True, True]


def test_results_are_the_callers_own(runs: list[bool]) -> None:
    class Values(Scaled):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            w, gain = self.weight, self.gain
            return w.exp(), gain[:, None].expand(6, 2), (w * 2).t()[1:], x + gain.sin()[0], w.exp().view(-1)

    model = Values()
    compiled = stator.compile(model, options=OPTIONS)
    with torch.no_grad():
        for _ in range(2):
            for found, want in zip(compiled(torch.ones(1)), model(torch.ones(1)), strict=True):
                torch.testing.assert_close(found, want)
                assert found.stride() == want.stride()
                if found.untyped_storage()._cdata != model.gain.untyped_storage()._cdata:
                    found.zero_()
    assert runs == [True]


def test_calls_with_several_results(runs: list[bool]) -> None:
    class Largest(Scaled):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            values, places = self.weight.max(0)
            first, order = self.gain.sort()
            return values, x + places, x[:, 0, None] + first[order]

    model, x = Largest(), torch.randn(3, 64)
    compiled = stator.compile(model, options=OPTIONS)
    for _ in range(2):
        with torch.no_grad():
            for found, want in zip(compiled(x), model(x), strict=True):
                torch.testing.assert_close(found, want)
                found.zero_()
            model.gain.neg_()
    assert runs == [True, True]


def test_sizes_that_change(runs: list[bool]) -> None:
    model = Scaled()
    compiled = stator.compile(model, options=OPTIONS, dynamic=True)
    for rows in (3, 5, 9):
        check(compiled, model, torch.randn(rows, 64))
    assert runs == [True]


def test_halves_and_other_conversions() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    compiled = stator.compile(model, options=OPTIONS)
    x = torch.randn(3, 8)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        model.to(dtype)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x.to(dtype)), model(x.to(dtype)), rtol=2e-2, atol=2e-2)


def moved(function: Callable[..., Any], *inputs: Tensor) -> tuple[set[str], set[str]]:
    """The operators of prologue and main graph, externs and kernels by what they are called."""
    with log.collect() as recorder, torch.no_grad():
        stator.compile(function, options=OPTIONS | {"cache": False})(*inputs)
    launched = {facts["graph"]: facts for facts in recorder.of(log.KERNELS)}
    parts = [launched.get(name, {"names": [], "externs": []}) for name in ("forward_prologue", "forward")]
    return tuple({*part["names"], *part["externs"]} for part in parts)  # type: ignore[return-value]


class Holder(nn.Module):
    """A function of an input and of a module that holds parameters: those of the program's closures are inputs."""

    def __init__(self, held: nn.Module | nn.Parameter, function: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.held, self.function = held, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.held)


def test_conversions_and_arithmetic_of_parameters_move() -> None:
    weight, x = nn.Parameter(torch.randn(64, 64)), torch.randn(64, 64)

    def cast(x: Tensor, linear: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x)

    programs = [
        (Holder(weight, lambda x, w: x @ w.t().contiguous()), 0),
        (nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), 0),
        (Holder(weight, lambda x, w: x @ (1 + w)), 0),
        (Holder(nn.Linear(64, 128), cast), 1 + has_tiles()),  # of the input; where the processor has tiles, the product
    ]
    for program, left in programs:
        prologue, main = moved(program, x)
        assert prologue and sum("." not in name for name in main) == left, (prologue, main)
    prologue, main = moved(Holder(weight, lambda x, w: x @ w.t()), x)
    assert not prologue


def test_what_grows_stays() -> None:
    program = Holder(nn.Parameter(torch.randn(1024)), lambda x, row: x + (row[:, None] * row[None, :]))
    assert not moved(program, torch.randn(1024, 1024))[0]


def test_training_and_strict() -> None:
    model, x = Scaled(), torch.randn(3, 64)
    announce.forget()
    with pytest.warns(OptionWarning, match="'freezing' has no effect where gradients are wanted"):
        compiled = stator.compile(model, options=OPTIONS | {"strict": False})
        compiled(x).sum().backward()
    assert model.weight.grad is not None
    with pytest.raises(WithoutEffect):
        stator.compile(model, options=OPTIONS, fullgraph=True)(x)
    model.requires_grad_(False)
    torch.testing.assert_close(stator.compile(model, options=OPTIONS)(x), model(x))


SCRIPT = """
import sys, torch, stator
from stator.base import log
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
x = torch.randn(2, 3, 6, 6)
with torch.no_grad(), log.collect() as recorder:
    compiled = stator.compile(model, options={"freezing": True, "strict": True})
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        model[1].weight.mul_(2)
    torch.testing.assert_close(compiled(x), model(x))
hits = [facts["hit"] for facts in recorder.of(log.CACHE) if facts["what"] == "graph"]
print(hits, recorder.of(log.MEMORY)[0]["kept"], "stator.pipeline" in sys.modules)
"""


def test_a_warm_start(tmp_path: Path) -> None:
    told = []
    for seed in "12":  # the parameters are others
        environment = {**os.environ, "STATOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", SCRIPT, seed]
        told.append(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)
    kept = 4 * (4 * 27 + 4)
    assert told == [f"[False] {kept} True\n", f"[True] {kept} False\n"]


SLOW = """
import torch, stator
linear = torch.nn.Linear(4, 4)
compiled = stator.compile(torch.nn.utils.parametrizations.weight_norm(linear), options={"freezing": True})
x = torch.randn(2, 4)
with torch.no_grad():
    for _ in range(9):
        torch.testing.assert_close(compiled(x), linear(x))
        linear.parametrizations.weight.original0.data[1] += 1
"""


def test_without_the_memory_of_tensors() -> None:
    """Nothing is kept for another call where versions are not found, and that is told."""
    environment = {**os.environ, "STATOR_SLOW_TENSORS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", SLOW], env=environment, stderr=subprocess.PIPE, text=True, check=True)
    assert ran.stderr.count("at each call in spite of freezing") == 1


def test_threads(runs: list[bool]) -> None:
    """Two call while a third writes; each result is that of the parameters before or after a write."""
    weight = nn.Parameter(torch.zeros(256))
    compiled = stator.compile(Holder(weight, lambda x, w: x + (w * 2)), options=OPTIONS)
    x = torch.zeros(256)
    with torch.no_grad():
        compiled(x)
    seen: list[list[float]] = [[], []]

    def call(mine: list[float]) -> None:
        with torch.no_grad():
            for _ in range(3000):
                mine.append(float(compiled(x)[0]))

    threads = [threading.Thread(target=call, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    with torch.no_grad():
        for number in range(200):
            weight.fill_(number)
    for thread in threads:
        thread.join()
    with torch.no_grad():
        assert torch.equal(compiled(x), torch.full((256,), 398.0))
    assert all(mine == sorted(mine) for mine in seen) and runs


def test_a_function_that_is_gone_is_not_looked_for() -> None:
    model = Scaled()
    for _ in range(3):
        check(stator.compile(copy.deepcopy(model), options=OPTIONS), model, torch.randn(3, 64))
    stator.reset()
    model.weight.data.add_(1)
