"""The check of speed: what is told, what is done about it, and that nobody can see it happen."""

from __future__ import annotations

import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import driver, speed
from stator.base import announce, log
from stator.base.errors import SlowWarning
from stator.base.store import Store
from stator.capture.entry import versions_of
from stator.graphs.nodes import LazyModule
from stator.runtime import toolchain

MODES = ("off", "measure", "warn", "eager", "auto")


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.sin(x) + 1, -1)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    announce.forget()
    yield
    toolchain._store.cache_clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Compiled code that takes 20 milliseconds more; gives the number of its calls."""
    calls: list[int] = []
    link = driver._linked
    monkeypatch.setattr(speed, "LONG", 0.0)
    monkeypatch.setattr(speed, "SHARE", 1000.0)  # the machine may be busy

    def linked(*args: Any) -> Callable[..., Any]:
        call = link(*args)

        def late(*inputs: Any) -> Any:
            calls.append(1)
            time.sleep(0.02)
            return call(*inputs)

        return late

    monkeypatch.setattr(driver, "_linked", linked)
    yield calls


def start(mode: str, folder: Path, fn: Callable[..., Any] = f, *inputs: Any) -> tuple[Any, list[str], log.Recorder]:
    """A compiled function after its first call, what was told, and what was recorded."""
    inputs = inputs or (torch.randn(4, 8),)
    with warnings.catch_warnings(record=True) as caught, log.collect() as recorder:
        warnings.simplefilter("always")
        compiled = stator.compile(fn, options={"check_speed": mode, "cache_dir": str(folder), "strict": True})
        torch.testing.assert_close(compiled(*inputs), fn(*inputs))
    assert all(isinstance(item.message, SlowWarning) and item.filename == __file__ for item in caught)
    return compiled, [str(item.message) for item in caught], recorder


@pytest.mark.parametrize("mode", MODES)
def test_what_each_mode_does_about_slow_code(mode: str, slow: list[int], tmp_path: Path) -> None:
    compiled, told, recorder = start(mode, tmp_path)
    measured = recorder.of(log.SPEED)
    assert len(measured) == (mode != "off") and len(told) == (mode in ("warn", "eager", "auto"))
    for facts in measured:
        assert facts["slower"] and facts["graph"] == "f" and facts["compiled"] > 1e-2 > facts["eager"] > 0
    for text in told:
        assert "\n" not in text and text.startswith("f ") and ("runs in eager PyTorch" in text) is (mode == "eager")
        assert "check_speed" in text or mode == "eager"
    before, x = len(slow), torch.randn(4, 8)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))
    assert len(slow) - before == (0 if mode == "eager" else 3)


def test_what_compiled_quickly_is_not_measured_unasked(tmp_path: Path) -> None:
    with log.collect() as recorder:
        stator.compile(f, options={"check_speed": "auto", "cache_dir": str(tmp_path)})(torch.randn(4, 8))
    assert not recorder.of(log.SPEED)


def with_gradients(fn: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The result, and the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    made = fn(*leaves)
    return [made.detach(), *torch.autograd.grad(made.square().sum(), leaves)]


@pytest.mark.parametrize("mode", ["auto", "measure"])
def test_small_graphs_with_gradients_run_in_eager_where_it_is_faster(
    mode: str, slow: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "LONG", 1e9)
    x = torch.randn(4, 8)
    for _ in range(2):  # the second finds it in the store
        with log.collect() as recorder:
            compiled = stator.compile(f, options={"check_speed": mode, "cache_dir": str(tmp_path), "strict": True})
            compiled(x.clone().requires_grad_())
        (facts,) = recorder.of(log.SPEED)
        assert facts["runs_eager"] and facts["compiled"] > facts["eager"]
        before = len(slow)
        torch.testing.assert_close(with_gradients(compiled, x), with_gradients(f, x), rtol=0, atol=0)
        assert len(slow) == before, "the compiled graph is not called"


@pytest.mark.parametrize("factor", [0.9, 1.02, 1.1])
def test_how_much_faster_eager_has_to_be(factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(factor, 1.0))
    with log.collect() as recorder:
        options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
        stator.compile(f, options=options)(torch.randn(4, 8, requires_grad=True))
    assert [facts["runs_eager"] for facts in recorder.of(log.SPEED)] == [factor > speed.CLEARLY]


def test_graphs_of_views_alone_run_in_eager_where_it_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(1.1, 1.0))
    options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
    x = torch.randn(1, 1, 4, 4)
    with log.collect() as recorder:
        made = stator.compile(lambda x: x.permute(0, 2, 3, 1).contiguous(), options=options)(x)
        stator.compile(lambda x: x + 1, options=options)(x)
    assert [facts["runs_eager"] for facts in recorder.of(log.SPEED)] == [True], "what computes is not asked"
    assert made.data_ptr() == x.data_ptr() and made.shape == (1, 4, 4, 1)


def test_graphs_of_library_calls_alone_run_in_eager_where_it_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(1.1, 1.0))
    options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
    x = torch.randn(16, 16)
    with log.collect() as recorder:
        made = stator.compile(lambda x: torch.sort(x @ x), options=options)(x)
        stator.compile(lambda x: torch.sort(x @ x)[0] + 1, options=options)(x)
    assert [facts["runs_eager"] for facts in recorder.of(log.SPEED)] == [True], "what has a kernel of ours is not asked"
    torch.testing.assert_close(made, torch.sort(x @ x), rtol=0, atol=0)


def test_what_runs_in_eager_needs_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(2.0, 1.0))
    asked: list[object] = []
    recompile = LazyModule.real_recompile
    monkeypatch.setattr(LazyModule, "real_recompile", lambda self: (asked.append(self), recompile(self))[1])
    options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
    compiled = stator.compile(f, options=options)
    x = torch.randn(4, 8, requires_grad=True)
    for _ in range(2):
        assert compiled(x).grad_fn.name() == f(x).grad_fn.name()
    assert not asked


def scaled(x: torch.Tensor, factor: int = 2) -> torch.Tensor:
    return x.softmax(-1) * factor


def inner(x: torch.Tensor, factor: int = 2) -> torch.Tensor:
    return scaled(x, factor)


def test_a_function_that_is_one_graph_in_eager_runs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(2.0, 1.0))
    options = {"check_speed": "auto", "cache_dir": str(tmp_path), "strict": True}
    x = torch.randn(4, 8, requires_grad=True)
    compiled, nested = (stator.compile(fn, options=options, dynamic=False) for fn in (scaled, inner))
    for fn in (compiled, nested):
        assert torch.equal(fn(x), scaled(x))
    ((tree, function),), ((deep, _),) = versions_of(compiled), versions_of(nested)
    assert function is scaled and versions_of(nested)[0][1] is not inner
    assert tree.check(x, 2) and not tree.check(x, 3) and not tree.check(torch.randn(4, 9, requires_grad=True), 2)
    with torch.no_grad():
        assert not tree.check(x, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert not tree.check(x, 2)
    # What the function finds by itself needs no guard.
    monkeypatch.setattr(torch.Tensor, "softmax", lambda self, dim: self + dim)
    assert tree.check(x, 2) and not deep.check(x, 2)
    for fn in (compiled, nested):
        assert torch.equal(fn(x), (x - 1) * 2)
    assert len(versions_of(compiled)) == 1 and len(versions_of(nested)) == 2
    monkeypatch.undo()
    monkeypatch.setattr(scaled, "__code__", (lambda x, factor=2: x - factor).__code__)
    assert torch.equal(compiled(x), x - 2)
    with pytest.raises(RuntimeError, match="softmax"):
        monkeypatch.setattr(scaled, "__code__", (lambda x, factor=2: raises(x)).__code__)
        compiled(x)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no softmax")


def long(x: torch.Tensor) -> torch.Tensor:
    for _ in range(speed.FEW):
        x = x.sin() + 1
    return x


@pytest.mark.parametrize(
    ("fn", "shape", "dynamic"),
    [(long, (4, 8), None), (f, (speed.SMALL,), None), (f, (4, 8), True)],
    ids=["many operators", "large", "symbolic"],
)
def test_other_graphs_with_gradients_stay_compiled(
    fn: Callable[..., Any], shape: tuple[int, ...], dynamic: bool | None, slow: list[int],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(speed, "LONG", 1e9)
    options = {"check_speed": "auto", "cache_dir": str(tmp_path)}
    with log.collect() as recorder:
        stator.compile(fn, options=options, dynamic=dynamic)(torch.randn(shape, requires_grad=True))
    assert not recorder.of(log.SPEED) and len(slow) == 1


@pytest.mark.parametrize("mode", MODES)
def test_fast_code_is_not_told(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(1.0, 1.0))
    monkeypatch.setattr(speed, "LONG", 0.0)
    _, told, recorder = start(mode, tmp_path)
    assert not told and [facts["slower"] for facts in recorder.of(log.SPEED)] == [False] * (mode != "off")


def test_a_function_is_told_once(slow: list[int], tmp_path: Path) -> None:
    compiled, told, _ = start("warn", tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (3, 5, 7):
            compiled(torch.randn(n, 8).double())
    assert len(told) == 1


def test_a_warning_made_an_error_is_the_users(slow: list[int], tmp_path: Path) -> None:
    for dynamic in (None, True):
        announce.forget()
        with warnings.catch_warnings(), pytest.raises(SlowWarning, match="slower than eager"):
            warnings.simplefilter("error")
            options = {"check_speed": "warn", "cache_dir": str(tmp_path)}
            stator.compile(f, options=options, dynamic=dynamic)(torch.randn(4, 8))


def test_what_was_measured_is_told_at_a_warm_start(slow: list[int], tmp_path: Path) -> None:
    assert len(start("auto", tmp_path)[1]) == 1
    toolchain._store.cache_clear()
    announce.forget()
    before = len(slow)
    assert len(start("auto", tmp_path)[1]) == 1
    assert len(slow) == before + 1, "told, and not measured again"


def test_sizes_that_change(slow: list[int], tmp_path: Path) -> None:
    compiled, told, _ = start("eager", tmp_path, lambda x, k: x.repeat(2) * k + x.shape[0], torch.randn(4), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        for n in (5, 6, 7):
            x = torch.randn(n)
            torch.testing.assert_close(compiled(x, n), x.repeat(2) * n + n)
    assert len(told) == 1


def test_explain_measures_and_says_so(slow: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_CHECK_SPEED", "auto")
    explanation = stator.explain(f)(torch.randn(4, 8))
    (found,) = explanation.speed
    assert found.slower and found.compiled > found.eager
    assert "slower than eager: f takes" in str(explanation)
    noise = stator.explain(lambda x: x + torch.rand_like(x))(torch.zeros(3))
    assert "not timed against eager: it draws random numbers" in str(noise)
    assert not stator.explain(f, options={"check_speed": "off"})(torch.randn(4, 8)).speed
    trained = stator.explain(f)(torch.randn(4, 8, requires_grad=True))
    assert trained.speed[0].runs_eager and "runs in eager PyTorch, which is faster" in str(trained)


def test_many_threads(slow: list[int], tmp_path: Path) -> None:
    results: list[bool] = []

    def work(compiled: Any, seed: int) -> None:
        x = torch.randn(3 + seed % 3, 8, generator=torch.Generator().manual_seed(seed))
        results.extend(torch.allclose(compiled(x), f(x), 1e-5, 1e-6) for _ in range(5))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        compiled = stator.compile(f, options={"check_speed": "eager", "cache_dir": str(tmp_path)})
        threads = [threading.Thread(target=work, args=(compiled, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 30


# -- it cannot be seen -----------------------------------------------------------------------------------------


def test_gradients_hooks_and_random_numbers_see_nothing(tmp_path: Path) -> None:
    x, w = torch.randn(4, 8, requires_grad=True), torch.nn.Parameter(torch.randn(8, 8))
    seen: list[str] = []

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append("saved")
        return tensor

    w.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    state, versions = torch.get_rng_state(), (x._version, w._version)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled = stator.compile(step, options={"check_speed": "warn", "cache_dir": str(tmp_path)})
        with warnings.catch_warnings(), log.collect() as recorder:
            warnings.simplefilter("ignore", SlowWarning)
            result = compiled(x, w)
    (facts,) = recorder.of(log.SPEED)
    assert facts["eager"] > 0
    assert x.grad is None and w.grad is None and (x._version, w._version) == versions
    assert torch.equal(torch.get_rng_state(), state)
    once = list(seen)
    assert set(once) == {"saved"} and len(once) <= 3, "what the one call saves"
    result.backward()
    assert seen == [*once, "accumulated"]
    expected = torch.autograd.grad(step(x, w), w)[0]
    torch.testing.assert_close(w.grad, expected)


def writes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * w


def draws(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * w + torch.rand_like(x)


def reads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * w


@pytest.mark.parametrize("fn, why", [(writes, "writes"), (draws, "random")], ids=["writes", "draws"])
@pytest.mark.parametrize("exact", [False, True], ids=["ours", "eager's stream"])
def test_graphs_with_effects_run_once(fn: Callable[..., Any], why: str, exact: bool, tmp_path: Path) -> None:
    def results(call: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        x = torch.zeros(5)
        return [call(x, torch.ones(5)), x, torch.rand(2)]

    options = {"cache_dir": str(tmp_path), "eager_random": exact}
    with log.collect() as recorder:
        checked = results(stator.compile(fn, options={**options, "check_speed": "eager"}))
    (facts,) = recorder.of(log.SPEED)
    assert why in facts["why"]
    stator.reset()
    for a, b in zip(checked, results(stator.compile(fn, options={**options, "check_speed": "off"})), strict=True):
        assert torch.equal(a, b)


def test_a_tensor_with_hooks_is_left_alone(tmp_path: Path) -> None:
    w = torch.ones(5, requires_grad=True)
    seen: list[torch.Tensor] = []
    w.register_hook(seen.append)
    with log.collect() as recorder:
        options = {"check_speed": "warn", "cache_dir": str(tmp_path)}
        stator.compile(reads, options=options)(torch.ones(5), w).sum().backward()
    assert len(seen) == 1 and "hooks" in recorder.of(log.SPEED)[0]["why"]


def test_code_of_the_user_runs_once(tmp_path: Path) -> None:
    calls: list[int] = []

    @stator.allow_in_graph
    def opaque(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    counts = []
    for mode in ("off", "warn"):
        calls.clear()
        options = {"check_speed": mode, "cache_dir": str(tmp_path)}
        stator.compile(lambda x: opaque(x) + 1, options=options)(torch.ones(3))
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_auto_stays_within_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []

    def call() -> None:
        calls.append(1)
        now[0] += 0.02

    monkeypatch.setattr(speed, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    assert speed._in_turn(call, call, (0.03, 0.03), 0) is None and len(calls) == 1
    start = now[0]
    assert speed._in_turn(call, call, (0.2, 0.2), 0) == pytest.approx((0.02, 0.02, True))
    assert now[0] - start <= 0.2
    calls.clear()
    assert speed._in_turn(call, call, (0.0, 0.0), speed.LEAST) is not None, "asked for, it is measured"
    assert len(calls) == 2 + 2 * speed.LEAST


@pytest.mark.parametrize("disturbed", [3, 1000])
def test_what_is_disturbed_is_timed_for_longer_and_not_kept(
    disturbed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first calls of eager wait for a core, each for another time: eager is the faster one nevertheless."""
    now, waits = [0.0], iter(range(disturbed))

    def compiled() -> None:
        now[0] += 2e-4

    def eager() -> None:
        wait = next(waits, None)
        now[0] += 1e-4 if wait is None else 8e-3 * 0.7**wait

    monkeypatch.setattr(speed, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    found = speed._in_turn(compiled, eager, (speed.BRIEFLY, speed.PATIENTLY), speed.LEAST)
    assert found is not None and now[0] <= speed.PATIENTLY
    known = speed.Known(Store(tmp_path), "place")
    known.write(found)
    if disturbed == 3:
        assert found == pytest.approx((2e-4, 1e-4, True)) and known.read() == found
    else:
        assert not found.settled and known.read() is None


def test_an_error_in_the_graph_is_left_to_the_call(tmp_path: Path) -> None:
    options = {"check_speed": "warn", "cache_dir": str(tmp_path)}
    compiled = stator.compile(lambda x, i: x[i] + 1, options=options)
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
