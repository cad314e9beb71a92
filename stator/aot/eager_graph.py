"""A captured graph that is to run in eager: its calls, for the C core, which makes them without a frame of Python.

Invariant: the same operators on the same arguments as the text of the graph calls, and a value is let go of after the
last call that takes it. What the core has no word for (slices of values, modules, very many calls) runs as text.
Neighbours: `csrc/eager.c`; `stator/speed.py`, which decides what runs in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from stator._native import EagerGraph
from stator.aot.attributes import attribute
from stator.graphs.direct import direct
from stator.graphs.nodes import forward_of

#: More values than this run as text: what Python adds to so many calls does not matter.
MOST_VALUES = 256

Operand = int | tuple[Any]


class _NoWord(Exception):
    """The core cannot make this call."""


def runner(gm: fx.GraphModule) -> Callable[..., tuple[Any, ...]]:
    """What runs the graph in eager, of its placeholders by position."""
    try:
        return _Calls(gm).graph()
    except _NoWord:
        return forward_of(gm)


class _Calls:
    """The calls of a graph so far, and the numbers of values."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        #: (kind, target, operands, names of the last operands).
        self.calls: list[tuple[str, Any, tuple[Operand, ...], tuple[str, ...]]] = []
        self.values: dict[fx.Node, Operand] = {}
        self.inputs = 0

    def graph(self) -> EagerGraph:
        """The whole graph."""
        results: tuple[Operand, ...] = ()
        for node in self.gm.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node] = self.inputs
                    self.inputs += 1
                case "get_attr":
                    self.values[node] = (attribute(self.gm, node.target),)
                case "call_function" | "call_method":
                    target, args, kwargs = node.target, node.args, node.kwargs
                    if (found := direct(target, args, kwargs)) is not None:
                        target, args, kwargs = found.target, found.args, {}
                    operands = tuple([self.operand(value) for value in (*args, *kwargs.values())])
                    self.values[node] = self.call(node.op.removeprefix("call_"), target, operands, (*kwargs,))
                case "output" if isinstance(node.args[0], (list, tuple)):
                    results = tuple([self.operand(value) for value in node.args[0]])
                case _:
                    raise _NoWord
        if self.inputs + len(self.calls) > MOST_VALUES:
            raise _NoWord
        return EagerGraph(self.inputs, tuple(self.with_ends(results)), results)

    def call(self, kind: str, target: Any, operands: tuple[Operand, ...], names: tuple[str, ...] = ()) -> int:
        """One more call; the number of what it gives."""
        self.calls.append((kind, target, operands, names))
        return self.inputs + len(self.calls) - 1

    def operand(self, value: Any) -> Operand:
        """An argument: a value, a constant, or a list or tuple of such, which is made by a call of its own."""
        match value:
            case fx.Node():
                return self.values[value]
            case list() | tuple() if any(holds_values(item) for item in value):
                if type(value) not in (list, tuple, immutable_list):
                    raise _NoWord
                kind = "tuple" if isinstance(value, tuple) else "list"
                return self.call(kind, None, tuple([self.operand(item) for item in value]))
            case _ if holds_values(value):
                raise _NoWord
        return (plain(value),)

    def with_ends(self, results: tuple[Operand, ...]) -> Iterator[tuple[Any, ...]]:
        """The calls, each with the values that nothing takes after it."""
        last = {number: number for number in range(self.inputs, self.inputs + len(self.calls))}
        for number, (_, _, operands, _) in enumerate(self.calls, self.inputs):
            last.update({operand: number for operand in operands if isinstance(operand, int)})
        kept = {*range(self.inputs), *[result for result in results if isinstance(result, int)]}
        for number, call in enumerate(self.calls, self.inputs):
            yield (*call, tuple([value for value, end in last.items() if end == number and value not in kept]))


def holds_values(value: Any) -> bool:
    """Whether an argument has nodes in it."""
    match value:
        case fx.Node():
            return True
        case list() | tuple():
            return any(map(holds_values, value))
        case dict():
            return any(map(holds_values, value.values()))
        case slice():
            return any(map(holds_values, (value.start, value.stop, value.step)))
    return False


def plain(value: Any) -> Any:
    """A constant as the text of the graph writes it: `fx` holds lists and dicts that cannot be written to."""
    match value:
        case immutable_list():
            return [plain(item) for item in value]
        case immutable_dict():
            return {name: plain(item) for name, item in value.items()}
        case tuple() if type(value) is tuple:
            return tuple([plain(item) for item in value])
    return value
