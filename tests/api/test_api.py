"""The public interface: forms of `compile`, its errors at call time, markers, and a cheap import."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator.api import decide
from stator.base.errors import InvalidArgument, InvalidOption, UnknownBackend, UnknownMode, UnknownOption
from stator.base.markers import DISABLED, DYNAMIC


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def test_all_public_names_exist_and_are_documented() -> None:
    for name in stator.__all__:
        assert getattr(stator, name).__doc__, name
        assert name in dir(stator)
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = stator.nothing_like_this


def test_importing_stator_imports_neither_torch_nor_a_package_but_isolation() -> None:
    code = "import sys, stator; print(*sorted(m for m in sys.modules if m == 'torch' or m.startswith('stator.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stator.base", "stator.base.isolation"]


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"backend": "inducter"}, UnknownBackend, "inductor"),
        ({"mode": "max-autotun"}, UnknownMode, "max-autotune"),
        ({"options": {"numeric": "fast"}}, UnknownOption, "numerics"),
        ({"options": {"numerics": "fats"}}, InvalidOption, "fast"),
        ({"backend": 3}, InvalidArgument, "backend="),
    ],
)
def test_mistakes_are_told_when_compile_is_called(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    for call in (lambda: stator.compile(f, **arguments), lambda: stator.compile(**arguments)):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("model", [3, "f", torch.nn.Linear], ids=str)
def test_only_functions_and_modules_can_be_compiled(model: Any) -> None:
    with pytest.raises(InvalidArgument, match="takes a function or a module"):
        stator.compile(model)


def test_options_reach_the_settings() -> None:
    options = {"activation_memory_budget": 0.5}
    settings = decide("aot_eager", fullgraph=True, options=options, dynamic=True)
    assert (settings.backend_name, settings.fullgraph) == ("aot_eager", True)
    assert (settings.options.activation_memory_budget, settings.options.dynamic) == (0.5, "always")


def test_options_of_a_backend_of_the_users_own_are_passed_on() -> None:
    seen = {}

    def mine(gm: Any, example_inputs: Any, options: Any = None) -> Any:
        seen.update(options)
        return gm.forward

    settings = decide(mine, options={"level": 3, "recompile_limit": 1})
    settings.backend(torch.fx.symbolic_trace(f), [])
    assert seen == {"level": 3} and settings.options.recompile_limit == 1


def test_disable_argument_gives_the_program_back() -> None:
    assert stator.compile(f, disable=True) is f


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_every_form_of_compile_computes_what_python_computes(backend: str) -> None:
    x = torch.randn(7, 5)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.GELU())

    @stator.compile(backend=backend)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return f(x)

    torch.testing.assert_close(decorated(x), f(x))
    torch.testing.assert_close(stator.compile(f, backend=backend, fullgraph=True)(x), f(x))
    compiled = stator.compile(module, backend=backend)
    torch.testing.assert_close(compiled(x), module(x))
    compiled(x).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_a_backend_of_the_users_own_gets_the_graph() -> None:
    graphs = []

    def mine(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        graphs.append((gm, example_inputs))
        return gm.forward

    x = torch.randn(3)
    compiled = stator.compile(f, backend=mine)
    torch.testing.assert_close(compiled(x), f(x))
    compiled(x)
    ((gm, inputs),) = graphs
    assert isinstance(gm, torch.fx.GraphModule) and [tuple(t.shape) for t in inputs] == [(3,)]


def test_reset_compiles_anew() -> None:
    calls = []

    def mine(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        calls.append(gm)
        return gm.forward

    compiled = stator.compile(f, backend=mine)
    x = torch.randn(3)
    compiled(x)
    compiled(x)
    assert len(calls) == 1
    stator.reset()
    compiled(x)
    assert len(calls) == 2


def test_disable_marks_functions_and_modules() -> None:
    @stator.disable(reason="it prints")
    def shown(x: int) -> int:
        """Doubles."""
        return 2 * x

    assert shown(3) == 6 and shown.__doc__ == "Doubles." and getattr(shown, DISABLED) == "it prints"
    module = torch.nn.Linear(2, 2)
    x = torch.randn(1, 2)
    expected = module(x)
    assert stator.disable(module) is module
    assert getattr(module.forward, DISABLED) and torch.equal(module(x), expected)
    with pytest.raises(InvalidArgument):
        stator.disable(3)  # type: ignore[call-overload]


def test_mark_dynamic_notes_dimensions_and_checks_them() -> None:
    x = torch.randn(4, 5)
    stator.mark_dynamic(x, -1, max=8)
    stator.mark_dynamic(x, [0])
    stator.mark_dynamic(y := torch.randn(3), 0, name="batch")
    assert getattr(x, DYNAMIC) == {1: (2, 8, ""), 0: (2, None, "")} and getattr(y, DYNAMIC) == {0: (2, None, "batch")}
    for arguments in (
        {"dims": 2},
        {"dims": 0, "max": 3},
        {"dims": 0, "min": 5},
        {"dims": 0, "min": 9, "max": 3},
        {"dims": 0, "name": 3},
    ):
        with pytest.raises(InvalidArgument):
            stator.mark_dynamic(x, **arguments)  # type: ignore[arg-type]


def test_markers_do_nothing_in_python() -> None:
    assert stator.is_compiling() is False
    assert stator.graph_break("here") is None


def test_a_program_may_be_the_first_to_name_a_marker() -> None:
    """Public names are fetched when first used, which a captured program must not notice."""
    program = """
import torch, stator, warnings
warnings.simplefilter("error")
@stator.compile(fullgraph=True)
def f(x):
    return x + 1 if stator.is_compiling() else x
assert f(torch.zeros(1)) == 1
@stator.compile
def g(x):
    stator.graph_break()
    return x + 1
try:
    g(torch.zeros(1))
except Warning as warning:
    print("the program asks for a graph break" in str(warning))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(stator.__file__).parents[1])}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program)
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "True", done.stderr
