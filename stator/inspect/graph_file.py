"""Graphs as Python files: to read, to run alone on random inputs of the right form, and to edit.

    captured    the torch calls of the user's program, as capture gives them to a backend
    functional  the ATen operators of a joint, forward or backward graph

Every line carries what is known of its value, and the user's line that it comes from stands above it. Nothing in
stator reads these files. Neighbours: the driver and the pipeline write them (`base/artifacts.py`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST
from stator.sizes import symbols

TORCH_PLAIN = (torch.dtype, torch.layout, torch.memory_format)


def captured(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> str:
    """The file of a captured graph; its parameters and buffers are arguments after the inputs."""
    inputs = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=False))
    for node in gm.graph.find_nodes(op="get_attr"):
        value: Any = gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        inputs[node] = value
    title = f"The graph captured from {type(gm).__name__}"
    return "\n".join(_file(title, "graph", gm.graph, inputs, torch.is_grad_enabled())) + "\n"


def functional(graph: fx.Graph, name: str) -> str:
    """The file of a graph of ATen operators."""
    inputs = {node: node.meta.get("val") for node in graph.find_nodes(op="placeholder")}
    return "\n".join(_file(f"The {name} graph", name, graph, inputs, False)) + "\n"


def _file(title: str, name: str, graph: fx.Graph, inputs: dict[fx.Node, Any], grad: bool) -> list[str]:
    calls = sum(node.op in ("call_function", "call_method") for node in graph.nodes)
    body, modules = _body(graph)
    made = [f"        {_random(value)},  # {node.name}" for node, value in inputs.items()]
    return [
        f'"""{title}: {calls} calls. Run as a program, it makes random inputs and times itself."""',
        "",
        *[f"import {module}" for module in sorted({"torch", *modules})],
        "",
        "from stator.runtime.link import random_input, time_call",
        *_symbols(inputs.values()),
        "",
        "",
        f"def {name}(",
        *[f"    {node.name},  # {describe(value)}" for node, value in inputs.items()],
        "):",
        *[line and "    " + line for line in body],
        "",
        "",
        "def inputs():",
        *(["    return [", *made, "    ]"] if made else ["    return []"]),
        "",
        "",
        'if __name__ == "__main__":',
        f"    torch.set_grad_enabled({grad})",
        f"    print(f'{{time_call(lambda values: {name}(*values), inputs()) * 1e6:.1f}} us a call')",
    ]


def _symbols(values: Iterable[Any]) -> list[str]:
    """The symbols among the sizes of inputs, as what they were in the call met first."""
    found: dict[str, int] = {}
    for value in values:
        shown = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
        for number in shown:
            if isinstance(number, torch.SymInt):
                found.update((symbol.name, symbol.hint) for symbol in symbols(number.node.size))
    return ["", *[f"{name} = {hint}" for name, hint in sorted(found.items())]] if found else []


def _body(graph: fx.Graph) -> tuple[list[str], set[str]]:
    """The lines of the function, and the modules that they need."""
    lines: list[str] = []
    modules: set[str] = set()
    place = None
    for node in graph.nodes:
        match node.op:
            case "call_function":
                callee = _callee(node.target, modules)
                value = f"{callee}({_arguments(node.args, node.kwargs, modules)})"
            case "call_method":
                owner, *rest = node.args
                value = f"{_expression(owner, modules)}.{node.target}({_arguments(rest, node.kwargs, modules)})"
            case "output":
                lines.append(f"return {_expression(node.args[0], modules)}")
                continue
            case _:
                continue
        location = node.meta.get("location")
        if location is not None and location != place:
            lines += [*([""] if lines else []), f"# {location[0]}:{location[1]}"]
            place = location
        known = describe(node.meta.get("val"))
        lines.append(f"{node.name} = {value}{known and '  # '}{known}")
    return lines, modules


def describe(value: Any) -> str:
    """A tensor in a few words: float32 [2, 3] strides (3, 1)."""
    if isinstance(value, torch.Tensor):
        text = f"{_word(value.dtype)} {list(value.shape)} strides {tuple(value.stride())}"
        return text if value.device.type == HOST else f"{text} {value.device}"
    if isinstance(value, (tuple, list)):
        return ", ".join(describe(item) or "None" for item in value)
    if isinstance(value, torch.SymInt):
        return f"int {value}"
    return "" if value is None else type(value).__name__


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _random(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    made = f"random_input({tuple(value.shape)}, {tuple(value.stride())}, {value.dtype}, {str(value.device)!r})"
    return f"{made}.requires_grad_()" if value.requires_grad and value.is_leaf else made


# -- expressions ---------------------------------------------------------------------------------------------


def _callee(target: Any, modules: set[str]) -> str:
    """The expression that gives a function, by which it can be imported."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        if namespace == "stator":
            modules.add("stator.prims")  # defines them
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{target}"
    for module, name in _names(target):
        owner: Any = sys.modules.get(module)
        for part in name.split("."):
            owner = getattr(owner, part, None)
        if owner is target:
            modules.add(module)
            return f"{module}.{name}"
    return f"NotImplemented[{getattr(target, '__qualname__', target)!r}]"  # has no name that could be imported


def _names(target: Any) -> Iterable[tuple[str, str]]:
    """Where a function may be found: what it says itself, then torch's public places."""
    name = str(getattr(target, "__qualname__", None) or getattr(target, "__name__", ""))
    module = getattr(target, "__module__", None) or ""
    yield {"_operator": "operator"}.get(module, module), name
    plain = str(getattr(target, "__name__", name))
    for place in ("torch", "torch.nn.functional", "torch.Tensor", "torch._C", "torch._C._nn", "builtins"):
        yield ("torch", f"Tensor.{plain}") if place == "torch.Tensor" else (place, plain)


def _arguments(args: Iterable[Any], kwargs: dict[str, Any], modules: set[str]) -> str:
    parts = [_expression(arg, modules) for arg in args]
    return ", ".join([*parts, *[f"{key}={_expression(value, modules)}" for key, value in kwargs.items()]])


def _expression(value: Any, modules: set[str]) -> str:
    match value:
        case fx.Node():
            return value.name
        case tuple():
            items = ", ".join(_expression(item, modules) for item in value)
            return f"({items}{',' * (len(value) == 1)})"
        case list():
            return f"[{', '.join(_expression(item, modules) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_expression(item, modules)}' for key, item in value.items())}}}"
        case slice():
            return f"slice({', '.join(_expression(part, modules) for part in (value.start, value.stop, value.step))})"
        case float() if not math.isfinite(value):
            return f"float({str(value)!r})"
        case torch.device():
            return f"torch.device({str(value)!r})"
        case None | bool() | int() | float() | complex() | str() | bytes():
            return repr(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, TORCH_PLAIN):
        return str(value)
    return _callee(value, modules) if callable(value) else repr(value)
