"""Compiled callables and modules: choosing entries, limits, failures, and what must stay as in the original.

Capture is replaced by a small one that guards what the test names and runs a copy of the function's own code, so these
tests are about entries alone; `test_frames.py` has the whole.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import io
import pickle
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from stator import _native
from stator.base import log
from stator.base.errors import CaptureError, FallbackWarning, InternalError, StatorError
from stator.base.markers import disable, graph_break, is_compiling
from stator.base.options import Options, Settings
from stator.capture import entry, frames
from stator.capture.compiled_module import original_of
from stator.capture.guards import Guard, GuardSet, state_guards
from stator.capture.source import LocalSource


def backend(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    raise AssertionError("the small capture calls no backend")


def settings(fullgraph: bool = False, **options: Any) -> Settings:
    return Settings(backend, "test", fullgraph, Options(**options))


class Captures:
    """The small capture: guards values of plain arguments and metadata of tensors, and counts."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.action: Callable[[], None] = lambda: None

    def __call__(
        self, fn: types.FunctionType, args: Any, kwargs: Any, backend: Any, options: Any, **named: Any
    ) -> frames.Entry:
        bound = _native.Dispatcher(fn, print).bind(*args, **kwargs)
        self.calls.append(list(bound))
        self.action()
        guards = GuardSet(state_guards())
        for name, value in zip(fn.__code__.co_varnames, bound, strict=False):
            kind = "TENSOR" if isinstance(value, torch.Tensor) else "EQUALS"
            if isinstance(value, (torch.Tensor, int, float, str, tuple)):
                guards.add(Guard(kind, LocalSource(name), value))
            elif isinstance(value, torch.nn.Module):
                guards.add(Guard("ID", LocalSource(name), value))
        return frames.Entry(guards, fn.__code__.replace(), [], [])


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captures]:
    small = Captures()
    monkeypatch.setattr(frames, "convert", small)
    yield small
    entry.reset()


def scaled(x: Any, y: Any = 2, *rest: Any, z: int = 1, **extra: int) -> Any:
    """Some text."""
    return x, y, rest, z, extra


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}), ((1, 2), {}), ((), {"x": 1}), ((1,), {"z": 3}), ((1, 2, 3, 4), {}), ((1,), {"k": 5}),
    ((), {"z": 1, "y": 2, "x": 3}), ((1, 2, 3), {"z": 0, "k": 1, "j": 2}),
]  # fmt: skip


def test_every_form_of_call(captures: Captures) -> None:
    compiled: Any = entry.compile_callable(scaled, settings(recompile_limit=20))
    for args, kwargs in CALLS * 2:
        assert compiled(*args, **kwargs) == scaled(*args, **kwargs)
        expected = inspect.signature(scaled).bind(*args, **kwargs)
        expected.apply_defaults()
        values = expected.arguments
        assert compiled.bind(*args, **kwargs) == tuple(values[name] for name in ("x", "y", "z", "rest", "extra"))
    assert len(captures.calls) > 3


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {"x": 2}), ((), {"y": 1}), ((1, 2), {"y": 3})])
def test_wrong_calls_raise_what_python_raises(captures: Captures, args: Any, kwargs: Any) -> None:
    compiled = entry.compile_callable(scaled, settings())
    with pytest.raises(TypeError) as expected:
        scaled(*args, **kwargs)
    with pytest.raises(TypeError) as found:
        compiled(*args, **kwargs)
    assert str(found.value) == str(expected.value)
    assert captures.calls == []


def test_entries_are_reused_and_the_last_used_is_first(captures: Captures) -> None:
    compiled = entry.compile_callable(lambda x: x, settings())
    for value in (1, 2, 1, 2, 2, 1):
        assert compiled(value) == value
    assert len(captures.calls) == 2
    trees = [tree for tree, _ in entry.versions_of(compiled)]
    assert [tree.check(1) for tree in trees] == [True, False]
    compiled(2)
    assert [tree for tree, _ in entry.versions_of(compiled)] == trees[::-1]


def test_defaults_follow_the_original(captures: Captures) -> None:
    def function(x: int = 1, *, y: int = 2) -> tuple[int, int]:
        return x, y

    compiled = entry.compile_callable(function, settings())
    assert compiled() == (1, 2)
    function.__defaults__ = (5,)
    function.__kwdefaults__ = {"y": 6}
    assert compiled() == (5, 6)
    assert compiled(1, y=2) == (1, 2)
    assert len(captures.calls) == 2


def test_new_code_of_the_original_is_seen(captures: Captures) -> None:
    def function(x: int) -> int:
        return x

    compiled = entry.compile_callable(function, settings())
    assert compiled(3) == 3
    function.__code__ = (lambda x: x + 1).__code__
    assert compiled(3) == 4


def test_it_looks_like_the_original(captures: Captures) -> None:
    compiled: Any = entry.compile_callable(scaled, settings())
    assert compiled.__name__ == "scaled" and compiled.__doc__ == "Some text."
    assert compiled.__module__ == __name__ and compiled.__wrapped__ is scaled
    assert inspect.signature(compiled) == inspect.signature(scaled)
    assert callable(compiled) and entry.is_compiled(compiled) and not entry.is_compiled(scaled)
    assert original_of(compiled) is scaled and original_of(3) == 3
    compiled.note = "kept"
    assert compiled.note == "kept"
    assert copy.deepcopy(compiled) is compiled
    assert weakref.ref(compiled)() is compiled
    assert "scaled" in repr(compiled)
    again: Any = entry.compile_callable(compiled, settings())
    assert again.original is scaled


class Counter:
    def __init__(self, start: int) -> None:
        self.start = start

    def plain(self, x: int) -> int:
        return self.start + x

    def __call__(self, x: int) -> int:
        return self.start * x


def test_methods_and_other_callables(captures: Captures) -> None:
    class Local(Counter):
        method = entry.compile_callable(Counter.plain, settings())
        static = entry.compile_callable(staticmethod(scaled), settings())

    assert Local(10).method(1) == 11
    assert Local.method(Local(20), 1) == 21
    assert Local(0).static(1) == scaled(1)
    assert entry.compile_callable(Counter(5).plain, settings())(1) == 6
    assert entry.compile_callable(Counter(5), settings())(2) == 10
    assert entry.compile_callable(functools.partial(scaled, 7), settings())(8) == scaled(7, 8)
    assert entry.compile_callable(len, settings())([1, 2]) == 2  # type: ignore[arg-type]
    assert captures.calls


def test_disabled_functions_are_left_alone(captures: Captures) -> None:
    disabled = disable(scaled)
    assert entry.compile_callable(disabled, settings()) is disabled


# -- limits and failures -------------------------------------------------------------------------------


def test_past_the_limit_one_warning_names_what_changes(captures: Captures) -> None:
    compiled = entry.compile_callable(lambda x, flag: x, settings(recompile_limit=3))
    for value in range(3):
        compiled(value, True)
    with pytest.warns(FallbackWarning, match=r"3 compiled versions.*\n.*L\['x'\] == \d") as caught:
        assert compiled(3, True) == 3
    assert len(caught) == 1
    assert compiled(4, True) == 4
    assert [compiled(value, True) for value in range(3)] == [0, 1, 2]
    assert len(captures.calls) == 3
    entry.reset()
    assert compiled(3, True) == 3
    assert len(captures.calls) == 4


def test_recompiles_are_recorded(captures: Captures) -> None:
    compiled = entry.compile_callable(lambda x: x, settings())
    with log.collect() as recorder:
        compiled(torch.randn(3))
        compiled(torch.randn(4))
    (record,) = recorder.of(log.RECOMPILE)
    assert record["reason"] == "L['x'] is float32[3] strides (1) cpu"
    assert len(recorder.of(log.GUARDS)) == 2


def fail() -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.faults
def test_our_failure_warns_and_gives_the_result(captures: Captures, tmp_path: Path) -> None:
    captures.action = fail
    compiled = entry.compile_callable(scaled, settings(debug=str(tmp_path / "somewhere")))
    with pytest.warns(FallbackWarning, match="a bug(.|\n)*somewhere"):
        assert compiled(1) == scaled(1)
    assert compiled(2) == scaled(2)
    assert len(captures.calls) == 1
    for strict in (settings(strict=True), settings(fullgraph=True)):
        with pytest.raises(InternalError, match="a bug"):
            entry.compile_callable(scaled, strict)(1)


def test_errors_of_the_catalogue_keep_their_form(captures: Captures) -> None:
    def refuse() -> None:
        raise StatorError(message="the compiler is missing")

    captures.action = refuse
    with pytest.warns(FallbackWarning, match="the compiler is missing"):
        entry.compile_callable(scaled, settings())(1)
    with pytest.raises(StatorError, match=r"^the compiler is missing"):
        entry.compile_callable(scaled, settings(strict=True))(1)


def test_capture_errors_surface_without_our_frames(captures: Captures) -> None:
    def refuse() -> None:
        raise CaptureError("no", ("model.py", 7), "do this")

    captures.action = refuse
    with pytest.raises(CaptureError, match=r"(?s)no.*model\.py:7.*do this") as found:
        entry.compile_callable(scaled, settings(fullgraph=True))(1)
    assert found.value.__cause__ is None and found.value.__suppress_context__


def test_exceptions_of_the_program_surface(captures: Captures) -> None:
    def program(x: int) -> float:
        return 1 / x

    compiled = entry.compile_callable(program, settings())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as found:
            compiled(0)
        assert found.value.__context__ is None
    assert len(captures.calls) == 1


@pytest.mark.faults
def test_a_new_entry_that_does_not_match_is_our_failure(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = GuardSet([Guard("EQUALS", LocalSource("x"), "something else")])
    monkeypatch.setattr(frames, "convert", lambda fn, *_, **__: frames.Entry(wrong, fn.__code__, [], []))
    with pytest.raises(InternalError, match="something else"):
        entry.compile_callable(scaled, settings(strict=True))(1)


# -- modes and nesting ---------------------------------------------------------------------------------


def test_nested_compiled_functions_run_their_originals_while_capturing(captures: Captures) -> None:
    inner = entry.compile_callable(lambda x: x + 1, settings())
    captures.action = lambda: seen.append((inner(1), _native.suspended()))
    seen: list[Any] = []
    outer = entry.compile_callable(lambda x: inner(x), settings())
    assert outer(1) == 2
    assert seen[0] == (2, True)
    assert not _native.suspended()
    assert [call[0] for call in captures.calls] == [1, 1]  # outer, and inner when outer ran


def test_suspended(captures: Captures) -> None:
    compiled = entry.compile_callable(scaled, settings())
    with entry.suspended():
        assert compiled(1) == scaled(1)
    assert captures.calls == []
    with pytest.raises(RuntimeError):
        _native.resume()


def test_modes_of_torch_see_the_original(captures: Captures) -> None:
    compiled = entry.compile_callable(lambda x: x + 1, settings())
    x = torch.ones(2)
    with FlopCounterMode(display=False):
        assert torch.equal(compiled(x), x + 1)
    with pytest.warns(FallbackWarning, match="function mode"), BaseTorchFunctionMode():
        assert torch.equal(compiled(x), x + 1)
        compiled(x)
    assert torch.equal(torch.func.vmap(compiled)(x), x + 1)
    assert captures.calls == []
    compiled(x)
    with torch.no_grad():
        compiled(x)
    assert len(captures.calls) == 2


@pytest.mark.usefixtures("few_objects")
def test_compiled_functions_are_collected(captures: Captures) -> None:
    def make() -> weakref.ref[Any]:
        def local(x: int) -> int:
            return x

        compiled: Any = entry.compile_callable(local, settings())
        compiled(1)
        compiled.itself = compiled
        return weakref.ref(compiled)

    gone = make()
    gc.collect()
    assert gone() is None


# -- modules -------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """A net."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, *, double: bool = False) -> torch.Tensor:
        y = self.norm(self.linear(x)) * self.scale
        return y * 2 if double else y

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) + 1


@pytest.fixture
def pair(captures: Captures) -> tuple[Net, Any]:
    net = Net()
    return net, entry.compile_module(net, settings())


def test_a_module_runs_compiled(pair: tuple[Net, Any], captures: Captures) -> None:
    net, compiled = pair
    net.eval()
    x = torch.randn(4, 2)
    for _ in range(2):
        assert torch.equal(compiled(x), net(x))
        assert torch.equal(compiled(x, double=True), net(x, double=True))
        assert torch.equal(compiled.embed(x), net.embed(x))
        assert torch.equal(compiled.forward(x), net(x))
    assert len(captures.calls) == 2 and captures.calls[0][0] is net
    assert len(entry.versions_of(compiled)) == 2
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)


def test_a_module_shares_everything(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    assert isinstance(compiled, Net) and compiled._orig_mod is net and type(compiled).__name__ == "Net"
    assert entry.is_compiled(compiled) and not entry.is_compiled(net) and original_of(compiled) is net
    assert repr(compiled) == repr(net) and compiled.__doc__ == net.__doc__
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in net.named_modules()]
    compiled.eval()
    assert not net.training and not net.norm.training
    net.train()
    assert compiled.training
    net.scale = 5.0
    assert compiled.scale == 5.0
    compiled.extra = torch.nn.Linear(1, 1)
    assert "extra.weight" in net.state_dict()
    compiled.scale = 7.0
    assert net.scale == 7.0
    del net.scale
    assert not hasattr(compiled, "scale")
    assert compiled.double() is compiled and net.linear.weight.dtype == torch.float64
    compiled.load_state_dict(Net().double().state_dict() | {k: v for k, v in net.state_dict().items() if "extra" in k})
    with pytest.raises(AttributeError):
        _ = compiled.missing
    assert entry.compile_module(compiled, settings())._orig_mod is net


def test_hooks_on_either_side_run_once(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    seen: list[str] = []
    net.register_forward_hook(lambda *_: seen.append("original"))
    handle = compiled.register_forward_pre_hook(lambda *_: seen.append("compiled"))
    x = torch.randn(4, 2)
    compiled(x)
    assert seen == ["compiled", "original"]
    net(x)
    assert seen == ["compiled", "original"] * 2
    handle.remove()
    compiled(x)
    assert seen[4:] == ["original"]


def test_forward_may_be_replaced(pair: tuple[Net, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    net, compiled = pair
    x = torch.randn(4, 2)
    compiled(x)
    compiled.forward = lambda x: "on the instance"
    assert compiled(x) == net(x) == "on the instance"
    net.forward = lambda x: "again"  # type: ignore[assignment]
    assert compiled(x) == "again"
    del compiled.forward
    with pytest.raises(AttributeError):
        del compiled.forward
    assert compiled(x).shape == (4, 3)
    monkeypatch.setattr(Net, "forward", lambda self, x: "on the class")
    assert compiled(x) == "on the class"


def save_and_load(obj: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), save_and_load])
def test_copies_are_compiled_and_apart(pair: tuple[Net, Any], captures: Captures, how: Any) -> None:
    net, compiled = pair
    compiled.eval()
    twin = how(compiled)
    assert entry.is_compiled(twin) and isinstance(twin, Net) and twin._orig_mod is not net
    x = torch.randn(4, 2)
    assert torch.equal(twin(x), net(x))
    assert captures.calls[0][0] is twin._orig_mod
    with torch.no_grad():
        twin.linear.weight.zero_()
    twin.scale = 9.0
    assert net.scale == 2.0 and net.linear.weight.any()


def test_shallow_copy_shares_tensors_only(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    twin = copy.copy(compiled)
    assert entry.is_compiled(twin) and twin.linear.weight is net.linear.weight
    twin.scale = 9.0
    assert net.scale == 2.0


def test_a_subclass_hook_of_the_user_is_not_run() -> None:
    made: list[str] = []

    class Registry(torch.nn.Module):
        def __init_subclass__(cls, *, required: int) -> None:
            made.append(cls.__name__)

    class Inner(Registry, required=1): ...

    compiled = entry.compile_module(Inner(), settings())
    assert isinstance(compiled, Inner) and made == ["Inner"]


@pytest.mark.usefixtures("few_objects")
def test_modules_are_collected(captures: Captures) -> None:
    def make() -> weakref.ref[Any]:
        net = Net()
        compiled = entry.compile_module(net, settings())
        compiled(torch.randn(4, 2))
        captures.calls.clear()
        return weakref.ref(net)

    gone = make()
    gc.collect()
    assert gone() is None


def test_optimizers_see_the_parameters(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    before = net.linear.weight.detach().clone()
    compiled(torch.randn(4, 2)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, net.linear.weight)


# -- with the whole capture ----------------------------------------------------------------------------


def run_graph(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward  # type: ignore[no-any-return]


WHOLE = Settings(run_graph, "run_graph", True, Options())


def test_compiled_parts_of_a_program_are_captured_with_it() -> None:
    inner = entry.compile_callable(lambda x, k=2: x * k, WHOLE)
    net = Net()
    part = entry.compile_module(net, WHOLE)

    class Outer(torch.nn.Module):
        method = entry.compile_callable(lambda self, x: x - 1, WHOLE)

        def __init__(self) -> None:
            super().__init__()
            self.part = part
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.method(self.inner(self.part(x), k=3))

    outer = Outer().eval()
    compiled = entry.compile_module(outer, WHOLE)
    x = torch.randn(4, 2)
    expected = net(x) * 3 - 1
    for _ in range(2):
        torch.testing.assert_close(compiled(x), expected)
    ((_, function),) = entry.versions_of(compiled)
    assert function is not Outer.forward
    assert entry.versions_of(inner) == [] and entry.versions_of(part) == []
    assert next(iter(outer.state_dict())) == "part.linear.weight"


def test_changes_that_matter_compile_again() -> None:
    net = Net().eval()
    compiled = entry.compile_module(net, WHOLE)
    x = torch.randn(4, 2)
    compiled(x)
    changes: list[Callable[[], Any]] = [
        lambda: net.train(), lambda: setattr(net, "scale", 3.0), lambda: net.linear.requires_grad_(False),
        lambda: setattr(net.linear, "bias", None),
    ]  # fmt: skip
    for count, change in enumerate(changes, 2):
        change()
        twin = copy.deepcopy(net)
        torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(net.norm.running_mean, twin.norm.running_mean)
        assert len(entry.versions_of(compiled)) == count


def test_markers_in_a_program() -> None:
    left = disable(lambda x: x * 3, reason="it is slow")

    def breaks(x: torch.Tensor) -> torch.Tensor:
        graph_break("here")
        return x + 1

    programs: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "a graph break: here": breaks,
        "it is slow": lambda x: left(x) + 1,
    }
    for reason, program in programs.items():
        with pytest.raises(CaptureError, match=reason) as found:
            entry.compile_callable(program, WHOLE)(torch.ones(2))
        assert found.value.location is not None and found.value.location.file == __file__
    compiled = entry.compile_callable(lambda x: x * 2 if is_compiling() else x, WHOLE)
    assert compiled(torch.ones(1)).item() == 2.0
