"""What looks into a compiled function or module sees the original: tracers, TorchScript, pickle, `inspect`."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


def scaled(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    return torch.relu(x) * k


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + x


compiled = stator.compile(scaled)
scriptable = stator.compile(plain)


@stator.compile
def decorated(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) - 1


class Method(torch.nn.Module):
    """Its `forward` is compiled in the class."""

    @stator.compile
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scriptable(x) * 3


class Parts(torch.nn.Module):
    """A compiled module and a compiled function among its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = stator.compile(torch.nn.Linear(3, 3))
        self.scale = compiled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.scale(self.layer(x))
        return out


def whole() -> torch.nn.Module:
    return stator.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))


MODULES: dict[str, Callable[[], torch.nn.Module]] = {"whole": whole, "method": Method, "parts": Parts}
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "compiled": compiled, "decorated": decorated, "plain": scriptable,
}  # fmt: skip

TRACERS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "export": lambda m, x: torch.export.export(m, (x,)).module(),
    "export strict": lambda m, x: torch.export.export(m, (x,), strict=True).module(),
    "fx": lambda m, x: torch.fx.symbolic_trace(m),
    "jit.trace": lambda m, x: torch.jit.trace(m, (x,)),
    "copy": lambda m, x: copy.copy(m),
    "deepcopy": lambda m, x: copy.deepcopy(m),
    "pickle": lambda m, x: pickle.loads(pickle.dumps(m)),
    "save": lambda m, x: saved(m),
}


def saved(module: Any) -> Any:
    stream = io.BytesIO()
    torch.save(module, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str, tracer: str, warm: bool) -> None:
    made, x = MODULES[module](), torch.randn(4, 3)
    expected = made(x) if warm else None
    traced = TRACERS[tracer](made, x)
    torch.testing.assert_close(traced(x), made(x) if expected is None else expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("tracer", [name for name in TRACERS if "export" not in name])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function: str, tracer: str) -> None:
    fn, x = FUNCTIONS[function], torch.randn(4, 3)
    torch.testing.assert_close(TRACERS[tracer](fn, x)(x), fn.original(x))  # type: ignore[attr-defined]
    torch.testing.assert_close(fn(x), fn.original(x))  # type: ignore[attr-defined]


def test_a_trace_has_the_operators_of_the_original() -> None:
    graph = torch.fx.symbolic_trace(compiled).graph
    assert [node.op for node in graph.nodes] == [
        "placeholder",
        "placeholder",
        "call_function",
        "call_function",
        "output",
    ]
    exported = torch.export.export(Parts(), (torch.randn(2, 3),)).graph
    assert sum(node.target is torch.ops.aten.relu.default for node in exported.nodes) == 1


def test_torchscript_takes_the_source_of_the_original() -> None:
    with pytest.warns(DeprecationWarning):
        torch.testing.assert_close(torch.jit.script(scriptable)(torch.ones(3)), torch.full((3,), 2.0))
        module = whole()
        torch.testing.assert_close(torch.jit.script(module)(torch.ones(1, 3)), module(torch.ones(1, 3)))


def test_a_compiled_function_is_a_function_to_python() -> None:
    assert isinstance(compiled, types.FunctionType) and inspect.isfunction(compiled)
    assert compiled.__code__ is scaled.__code__ and compiled.__globals__ is scaled.__globals__
    assert inspect.getsource(compiled) == inspect.getsource(scaled)
    assert inspect.signature(compiled) == inspect.signature(scaled)
    compiled.__defaults__ = (5,)
    try:
        assert compiled(torch.ones(1)) == 5 == compiled.original(torch.ones(1))
    finally:
        compiled.__defaults__ = (2,)
    assert type(whole()).forward is torch.nn.Sequential.forward


def test_pickles_name_what_can_be_found_by_name() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(compiled))
    assert again is not compiled and again.original is scaled and again.settings.options == compiled.settings.options
    assert copy.copy(compiled) is compiled is copy.deepcopy(compiled)
