"""Every question of torch about its own state is guarded, left to eager, or about something that cannot change.

The questions are found by introspection: whatever in torch's modules has a name that asks and can be called without
arguments. One that capture answers must come with a guard that asks again, or be listed with the reason.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from stator.capture import frames
from stator.capture.values.registry import handler_of
from stator.capture.values.torch import state as torch_state
from stator.graphs.modes import ATTENTION_KERNELS, SWITCHES

MODULES = (
    "", "cuda", "cuda.memory", "cuda.random", "cuda.amp", "backends", "backends.cuda", "backends.cudnn", "backends.mkl",
    "backends.mkldnn", "backends.openmp", "backends.cpu", "backends.mps", "backends.quantized", "backends.nnpack",
    "autograd", "autograd.graph", "autograd.profiler", "compiler", "distributed", "mps", "xpu", "cpu", "accelerator",
    "random", "utils.deterministic", "overrides", "_utils", "amp", "_C._functorch", "_C._autograd", "_C",
)  # fmt: skip

#: Names that ask.
ASKS = re.compile(
    r"^_*(is|get|are|has|len|current|enabled|allow|can|initial|device|default|num|preferred|list|version|available|max|"
    r"memory|check|compiled|query)(_|[a-z]*$)|_enabled$|_initialized$|available$|_mode$|_precision$"
)

#: Answers that a guard of another kind holds, or that are those of a compiler at work.
ELSEWHERE = {
    torch.is_grad_enabled: "STATE grad_mode",
    torch.is_inference_mode_enabled: "STATE keys_included",
    torch._C._get_tracing_state: "nothing is traced by torch.jit while capturing",
    torch.compiler.is_compiling: "STATE attention",
    torch.compiler.is_dynamo_compiling: "STATE attention",
    **{SWITCHES[name].read: "STATE attention" for name in ATTENTION_KERNELS},
}

#: C functions whose answer was fixed when torch was built.
BUILT = {"_nnpack_available", "is_vulkan_available"}


def modules() -> Iterator[Any]:
    for name in MODULES:
        found: Any = torch
        for part in filter(None, name.split(".")):
            found = getattr(found, part, None)
        if found is not None:
            yield found


def questions() -> dict[str, Callable[[], Any]]:
    """The functions that ask and answer without arguments, each once."""
    found: dict[int, tuple[str, Any]] = {}
    for module in modules():
        for name in sorted(dir(module)):
            function = getattr(module, name, None)
            if ASKS.search(name) and callable(function) and not isinstance(function, type) and answers(function):
                found.setdefault(id(function), (f"{module.__name__}.{name}", function))
    return dict(found.values())


def answers(function: Callable[[], Any]) -> bool:
    try:
        return not isinstance(function(), torch.Tensor)
    except BaseException:  # whatever one of a thousand functions raises without arguments
        return False


def listed(function: Any) -> bool:
    tables = (torch_state.READ_STATE, dict(torch_state.ANSWERS), ELSEWHERE)
    return any(function in table for table in tables) or getattr(function, "__name__", "") in BUILT


def captured(function: Any) -> Any:
    program = eval("lambda y: (y * 2, f())", {"f": function})
    return frames.convert(program, (torch.ones(2),), {}, lambda gm, inputs: gm.forward)


@pytest.mark.filterwarnings("ignore::Warning")
def test_every_question_is_guarded_or_left_to_eager() -> None:
    asked = questions()
    assert len(asked) > 150
    unguarded = []
    for name, function in asked.items():
        entry = captured(function)
        if entry.breaks or any(guard.kind == "CALL" for guard in entry.guards):
            continue
        interpreted = isinstance(function, types.FunctionType) and handler_of(function) is None
        if not interpreted and not listed(function):
            unguarded.append(name)
    assert unguarded == []


def test_what_is_taken_for_constant_says_why() -> None:
    assert all(torch_state.READ_STATE.values())
