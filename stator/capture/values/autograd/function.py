"""`MyFunction.apply(…)`: one call of the graph, in which the user's `forward` and `backward` run as they are.

They run while capturing, on fakes, and again on real tensors. So they may only compute: what they read of the world is
guarded, and what could act on it, or cannot be guarded, is refused.
Neighbours: `tensor.call_graph`, `torch/functions.is_leaf`.
"""

from __future__ import annotations

import builtins
import dis
import math
import types
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.bytecode.opcodes import having
from stator.capture.source import ConstSource, FunctionClosureSource, ItemSource
from stator.capture.values import watch
from stator.capture.values.lookup import look_up
from stator.capture.values.registry import LITERALS, handles
from stator.capture.values.torch.functions import is_leaf
from stator.capture.values.torch.tensor import call_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value

#: Methods of an autograd function that run.
METHODS = ("forward", "backward", "setup_context", "vjp", "jvp", "vmap")

#: Builtins that act on the world or look at it.
ACTING = frozenset({"print", "open", "input", "exec", "eval", "globals", "locals", "setattr", "delattr", "vars"})

#: What decides whether backward sees zeros for nothing; the trace looks for it in `forward` and `setup_context`.
MATERIALIZE = "set_materialize_grads"

#: Instructions that change what is not theirs, or read it without a name.
CHANGING = having("outward")


#: Functions of torch around methods of an autograd function, by their code.
WRAPPERS = frozenset(
    {
        torch.autograd.function.once_differentiable(lambda ctx: None).__code__,
        torch.amp.custom_fwd(lambda ctx: None, device_type="cpu").__code__,
        torch.amp.custom_bwd(lambda ctx: None, device_type="cpu").__code__,
    }
)


class Applied:
    """`cls.apply` as the target of a graph node: callable, and named so that the printed graph runs."""

    def __init__(self, cls: type[torch.autograd.Function]) -> None:
        self.cls = cls
        self.__name__ = f"{cls.__name__}_apply"

    def __call__(self, *args: Any) -> Any:
        return self.cls.apply(*args)


@handles(torch.autograd.Function.__dict__["apply"].__func__)
def call_autograd_function(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`MyFunction.apply(…)`."""
    cls, *rest = args
    applied = cls.constant()
    for name in METHODS:
        method = look_up(tx, applied, name)
        function = unwrapped(tx, getattr(method, "__func__", method))
        if isinstance(function, types.FunctionType) and not function.__module__.startswith("torch."):
            check_function(tx, function, set())
    return call_graph(tx, "call_function", Applied(applied), rest, kwargs)


def unwrapped(tx: Machine, function: Any) -> Any:
    """What the user wrote of a method of an autograd function."""
    while isinstance(function, types.FunctionType) and function.__code__ in WRAPPERS:
        watch.code(tx, ConstSource(function), function)
        function = next(f for cell in function.__closure__ or () if callable(f := cell.cell_contents))
    return function


def check_function(tx: Machine, function: types.FunctionType, seen: set[types.FunctionType]) -> None:
    """Guards what a function reads of the world; refuses what may act on it."""
    if function in seen:
        return
    seen.add(function)
    watch.code(tx, ConstSource(function), function)
    check_defaults(tx, function)
    for index, (name, cell) in enumerate(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)):
        if cell == types.CellType():
            raise refusal(function, f"{name} has no value yet")
        check_value(tx, function, name, cell.cell_contents, FunctionClosureSource(ConstSource(function), index), seen)
    if len(seen) > 1 and MATERIALIZE in function.__code__.co_names:
        raise refusal(function, f"{MATERIALIZE} is called by something else than forward")
    for instruction in instructions(function.__code__):
        if instruction.opname in CHANGING:
            raise refusal(function, "it changes variables that are not its own")
        if instruction.opname == "LOAD_GLOBAL":
            check_global(tx, function, instruction.argval, seen)


def instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function and of those inside it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from instructions(constant)


def check_global(tx: Machine, function: types.FunctionType, name: str, seen: set[types.FunctionType]) -> None:
    """A name that a function reads."""
    namespace = function.__globals__
    if name not in namespace:
        if name in ACTING or not hasattr(builtins, name):
            raise refusal(function, f"it uses {name}")
        tx.guard("ABSENT", ConstSource(namespace), name)
        return
    check_value(tx, function, name, namespace[name], ItemSource(ConstSource(namespace), name), seen)


def check_defaults(tx: Machine, function: types.FunctionType) -> None:
    """The values of parameters that are not given."""
    defaults, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    if not all(type(value) in LITERALS for value in (*defaults, *named.values())):
        raise refusal(function, "it has defaults that are more than literals")
    if defaults or named:
        tx.guard("CALL", ConstSource(function), (defaults_of, defaults_of(function)))


def defaults_of(function: types.FunctionType) -> tuple[Any, ...]:
    """All defaults of a function, as one constant."""
    return function.__defaults__, tuple((function.__kwdefaults__ or {}).items())


def check_value(
    tx: Machine,
    function: types.FunctionType,
    name: str,
    value: Any,
    source: Source,
    seen: set[types.FunctionType],
) -> None:
    """What a function finds under a name that is not its own."""
    tx.guard("EQUALS" if type(value) in LITERALS else "ID", source, value)
    match value:
        case types.ModuleType():
            harmless = value is math or value.__name__.partition(".")[0] == "torch"
        case types.FunctionType() if not is_leaf(value):
            check_function(tx, value, seen)
            harmless = True
        case type():
            harmless = value.__module__.partition(".")[0] in ("torch", "builtins") or name == function.__qualname__
        case _:
            harmless = type(value) in LITERALS or is_leaf(value)
    if not harmless:
        raise refusal(function, f"it uses {name}")


def refusal(function: types.FunctionType, why: str) -> GraphBreak:
    """Why an autograd function is not captured."""
    return GraphBreak(f"{function.__qualname__} of an autograd function does more than compute: {why}")
