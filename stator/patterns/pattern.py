"""What a pattern is: two functions, traced once, when the first graph is met that might have it.

Both are traced with stand-ins for their arguments, so they see no numbers of sizes; then both run on fakes like the
examples, which say of each argument what it stands for: a tensor of that kind of dtype and that rank, of any size, or a
number. Everything that is wrong with a pattern is told then, as `InvalidPattern`.
Neighbours: `registry.py` keeps patterns, `matcher.py` finds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from stator.base.errors import InvalidPattern
from stator.base.records import dataclass
from stator.fake.effects import operator_effects
from stator.fake.mode import FakeMode
from stator.graphs import composite
from stator.graphs.calls import drops_nothing
from stator.patterns.normal import COMMON, form, tensor

if TYPE_CHECKING:
    from stator.patterns.matcher import Match

Function = Callable[..., Any]
#: Gives whether the pattern is to be replaced there, or in words why not.
Check = Callable[["Match"], bool | str]


@dataclass(slots=True)
class Traced:
    """One of the functions as a graph whose nodes have the fakes that the examples give."""

    graph: fx.Graph
    inputs: list[fx.Node]
    result: fx.Node


@dataclass(frozen=True, eq=False)
class Pattern:
    """A search and its replacement.

    `any_rank` names inputs that may have another rank than their examples: those that are broadcast. `anchored` is the
    operator by which graphs are searched; where it is given, a graph without it does not have the pattern traced, nor
    is the pattern looked for around one that is not `worth` it.
    """

    name: str
    search: Function
    replace: Function
    examples: tuple[Any, ...]
    check: Check | None = None
    any_rank: frozenset[str] = field(default=frozenset())
    anchored: str = ""
    worth: Callable[[fx.Node], bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, in order."""
        return tuple(inspect.signature(self.search).parameters)

    @cached_property
    def searched(self) -> Traced:
        """The search, traced; checked against the replacement."""
        found = self._trace(self.search, "search")
        unused = [node.name for node in found.inputs if not node.users]
        if unused:
            raise InvalidPattern(self.name, f"search() does not use its argument {unused[0]!r}")
        if form(found.result) is None:
            raise InvalidPattern(self.name, "what search() gives is no result of an operator on tensors")
        return found

    @cached_property
    def replaced(self) -> Traced:
        """The replacement, traced."""
        found, searched = self._trace(self.replace, "replace"), self.searched
        before, after = tensor(searched.result), tensor(found.result)
        if after is None:
            raise InvalidPattern(self.name, "search() gives one tensor, replace() does not")
        if before is not None and _shown(before) != _shown(after):
            raise InvalidPattern(self.name, f"search() gives {_shown(before)} and replace() {_shown(after)}")
        return found

    @cached_property
    def anchor(self) -> str:
        """The operator by which graphs are searched: one that few graphs have."""
        if self.anchored:
            return self.anchored
        calls = [found.op for node in self.searched.graph.nodes if (found := form(node)) is not None]
        return next((op for op in calls if op not in COMMON), calls[-1])

    @cached_property
    def computes_numbers(self) -> bool:
        """Whether it computes with sizes, which are compared once it is known what its arguments are."""
        nodes = [node for node in self.searched.graph.nodes if node.op not in ("placeholder", "output")]
        forms = [form(node) for node in nodes]
        return any(found is None or found.op in ("reshape", "expand") for found in forms)

    def _trace(self, function: Function, what: str) -> Traced:
        try:
            graph = fx.Tracer().trace(_plain(function))
        except Exception as error:
            why = f"{what}() cannot be traced: {type(error).__name__}: {error}"
            raise InvalidPattern(
                self.name, why, "its arguments are stand-ins while it is traced: no `if` on them"
            ) from error
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        output = next(iter(reversed(graph.nodes)))
        result = output.args[0]
        if tuple(node.name for node in inputs) != self.names or len(inputs) != len(self.examples):
            raise InvalidPattern(self.name, f"search{self.names}, {what}() and the examples differ in their arguments")
        if not isinstance(result, fx.Node):
            raise InvalidPattern(self.name, f"{what}() gives {type(result).__name__}, not one tensor")
        if any(node.op in ("get_attr", "call_module") for node in graph.nodes):
            raise InvalidPattern(self.name, f"{what}() uses a tensor or a module that is not among its arguments")
        try:
            fakes = run(graph, self.examples, self._refuse_effects)
        except InvalidPattern:
            raise
        except Exception as error:
            raise InvalidPattern(
                self.name, f"{what}() fails on the examples: {type(error).__name__}: {error}"
            ) from error
        for node, value in fakes.items():
            node.meta["val"] = value
        return Traced(graph, inputs, result)

    def _refuse_effects(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        effects = operator_effects(func)
        if effects and not drops_nothing(func, args, kwargs):
            why = f"{func} has an effect ({effects[0].name.lower()}), which has to stay where the program has it"
            raise InvalidPattern(self.name, why)


def run(graph: fx.Graph, inputs: Sequence[Any], hook: Function | None = None) -> dict[fx.Node, Any]:
    """What every node of a graph of torch calls gives, on fakes."""
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    with FakeMode(hook) as mode, torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                value = next(given)
                values[node] = mode.from_real(value) if isinstance(value, torch.Tensor) else value
            elif node.op != "output":
                values[node] = call(node, values)
    return values


def call(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """The value of one call, within a mode of fakes."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
    if isinstance(node.target, str) and not isinstance(args[0], torch.Tensor):
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return composite.call(function, args, kwargs)


def _plain(function: Function) -> Function:
    """The function without defaults, which would become those of placeholders."""
    if not inspect.isfunction(function):
        return function
    copy = type(function)(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    copy.__kwdefaults__ = None
    return copy


def _shown(value: torch.Tensor) -> str:
    """A tensor in words, without strides: the matcher restores those."""
    name = str(value.dtype).removeprefix("torch.")
    return f"{name}{list(value.shape)}"


def kind(dtype: torch.dtype) -> str:
    """What a dtype is an example of."""
    if dtype.is_floating_point:
        return "floating"
    return "complex" if dtype.is_complex else "bool" if dtype is torch.bool else "integer"
