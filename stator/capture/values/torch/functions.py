"""Torch's functions: leaves of capture, put into the graph as one call each.

A callable is a leaf when it is a C function of torch, an operator object, or a Python function of a
module in `LEAF_MODULES`. Handlers (`registry.CALLS`, filled by `state.py`) come first: questions
about state, mode switches, checks.
Neighbours: `tensor.py` (`call_graph`), `state.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values import watch
from stator.capture.values.base import PinnedValue
from stator.capture.values.fold import all_constant, ask
from stator.capture.values.python.containers.sequence import SequenceValue, TupleValue
from stator.capture.values.python.library import builtin as _builtin
from stator.capture.values.python.objects import function as _function
from stator.capture.values.python.objects.function import BoundMethodValue, made_function
from stator.capture.values.registry import MAKERS, SPECIAL, builds, handler_of, makes
from stator.capture.values.torch.default_device import with_device
from stator.capture.values.torch.leaves import guard_reads, is_whole
from stator.capture.values.torch.read_float import take
from stator.capture.values.torch.tensor import TensorValue, call_graph, call_tensor_method
from stator.fake import overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value
    from stator.fake.tensor import FakeTensor

#: Modules whose Python functions are leaves.
LEAF_MODULES = frozenset(
    {
        "torch", "torch.functional", "torch.nn.functional", "torch._tensor", "torch.special", "torch.linalg",
        "torch.fft", "torch.signal.windows.windows", "torch._VF", "torch._lowrank", "torch.nested",
        "torch._jit_internal", "torch.sparse", "torch._linalg_utils",
    }
)  # fmt: skip

#: Their makers of function values come before ours (`_leaf_first`).
AFTER = (_builtin, _function)

#: Types of C callables; a leaf if their module is torch's.
_C_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)

#: Operator objects.
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)

#: Of `torch.nn.functional`, by name: not all are in every version.
INLINED_LAYERS = (
    "_pair", "_single", "_triple", "_list_with_default", "_verify_batch_size", "_none_or_dtype", "linear_cross_entropy",
)  # fmt: skip

#: Functions of leaf modules that are ordinary Python and are inlined: they compute sizes, or call what they are given.
INLINED = {
    torch.functional.broadcast_shapes,
    torch.nn.functional._canonical_mask,
    torch.nn.functional.triplet_margin_with_distance_loss,
} | {
    function
    for name, function in vars(torch.nn.functional).items()
    if name in INLINED_LAYERS and isinstance(function, types.FunctionType)
}

#: What cannot be in a graph, and why.
REFUSED: dict[Any, str] = {
    torch.seed: "it changes the random state",
    torch.set_default_dtype: "it changes the state of the process",
    torch.set_default_device: "it changes the state of the process",
    torch.set_num_threads: "it changes the state of the process",
    torch.save: "it writes a file",
    torch.load: "it reads a file",
    torch.compile: "compiling inside of compiled code is not modelled",
    torch.from_numpy: "it comes from outside of torch",
}


def is_leaf(obj: Any) -> bool:
    """Whether calling it is a graph call."""
    kind = type(obj)
    if kind is types.FunctionType:
        return obj.__module__ in LEAF_MODULES and obj not in INLINED
    if kind in _C_TYPES:
        if kind is not types.BuiltinFunctionType:
            return bool(obj.__objclass__ in (torch._C.TensorBase, torch.Tensor))
        module = obj.__module__
        if module is not None:
            return bool(module == "torch" or module.startswith(("torch._C", "torch.")))
        owner = getattr(obj, "__self__", None)
        return bool(getattr(owner, "__name__", "").startswith(("torch", "_VariableFunctions")))
    return kind in _OPERATORS or kind.__name__ == "_VariableFunctionsClass"


#: How the names of functions that only read torch's state begin.
READS = frozenset({"get", "is", "are", "has", "len", "current", "compiled", "typename", "sym"})


#: Modules of torch written in C whose functions are operators.
OPERATOR_MODULES = {f"torch._C.{name}" for name in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")}


def is_about_state(function: Any) -> bool:
    """Whether it is one of torch's functions about the process, not an operator."""
    if isinstance(function, types.FunctionType):
        return function.__module__ == "torch"
    if not isinstance(function, types.BuiltinFunctionType):
        return False
    owner = function.__self__
    if isinstance(owner, types.ModuleType):
        return owner.__name__.startswith("torch._C") and owner.__name__ not in OPERATOR_MODULES
    return type(owner).__name__.startswith("pybind11")


@value_class
class TorchFunctionValue(PinnedValue):
    """A leaf function."""

    kind = "a torch function"

    def descriptor_get(self, tx: Machine, instance: Value | None, cls: type) -> Value:
        """A method descriptor of Tensor binds; a builtin function does not."""
        if instance is None or isinstance(self.obj, types.BuiltinFunctionType):
            return self
        return BoundMethodValue(self, instance)

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        function = self.obj
        handler = handler_of(function)
        if handler is not None:
            return handler(tx, args, kwargs)
        if isinstance(function, types.FunctionType):
            if not is_whole(function, LEAF_MODULES):
                return made_function(function).call(tx, args, kwargs)
            guard_reads(tx, function, LEAF_MODULES)
        kwargs = with_device(tx, function, kwargs)
        if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
            owner, *rest = args
            if not isinstance(owner, TensorValue):
                raise self.refuse(f"calling {function.__name__} without a tensor")
            return call_tensor_method(tx, function.__name__, owner, rest, kwargs)
        if args and isinstance(args[0], TensorValue) and vars(torch.Tensor).get(name_in(function)) is function:
            return call_tensor_method(tx, name_in(function), args[0], args[1:], kwargs)
        try:
            reason = REFUSED.get(function)
        except TypeError:
            reason = None
        if reason is not None:
            raise GraphBreak(f"{name_of(function)}() cannot be in a graph: {reason}")
        if is_about_state(function) and not any(isinstance(arg, TensorValue) for arg in (*args, *kwargs.values())):
            if (
                all_constant(args)
                and all_constant(kwargs.values())
                and function.__name__.lstrip("_").split("_")[0] in READS
            ):
                return ask(tx, function, args, kwargs)
            raise GraphBreak(f"{name_of(function)}() cannot be in a graph: it is about the state of the process")
        if (taken := take(tx, function, args, kwargs)) is not None:
            return taken
        if "out" in kwargs and not kwargs["out"].is_none():
            return call_into(tx, function, args, kwargs)
        return call_graph(tx, "call_function", function, args, kwargs)

    def graph_argument(self) -> tuple[Any, Any]:
        return self.obj, self.obj


def call_into(tx: Machine, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`function(…, out=given)`: the result, copied into what is given."""
    given = kwargs["out"]
    _check_overlap(tx, function, [*args, *[value for name, value in kwargs.items() if name != "out"]], given)
    result = call_graph(tx, "call_function", function, args, {n: v for n, v in kwargs.items() if n != "out"})
    targets, results = ([given], [result]) if isinstance(given, TensorValue) else (given.unpack(tx), result.unpack(tx))
    for target, made in zip(targets, results, strict=True):
        if not isinstance(target, TensorValue) or not isinstance(made, TensorValue):
            raise GraphBreak(f"{name_of(function)}(out=…) gives no tensor")
        facts, wanted = target.fake, made.fake
        if facts.shape != wanted.shape or facts.dtype != wanted.dtype or (facts.requires_grad or wanted.requires_grad):
            why = "its sizes or dtype change, or gradients are recorded"
            raise GraphBreak(f"{name_of(function)}(out=…): {why}", "use the form that returns its result")
        call_graph(tx, "call_method", "copy_", (target, made), {})
    return given if isinstance(given, TensorValue) else TupleValue([*targets], result.python_type())


def _check_overlap(tx: Machine, function: Any, operands: Iterable[Value], given: Value) -> None:
    """`out=` may be an operand only where each element is read where it is written, or eager's loops decide what is."""
    tensors, targets = list(_tensors(tx, operands)), list(_tensors(tx, [given]))
    for target in targets:
        others = [*tensors, *[other for other in targets if other is not target]]
        shared = overlap.shared_memory(name_in(function).partition(".")[0], others, target)
        if any(not overlap.are_disjoint(item, target) for item in shared):
            raise GraphBreak(f"{name_of(function)}(out=…): {overlap.WHY}", overlap.HINT)


def _tensors(tx: Machine, values: Iterable[Value]) -> Iterator[FakeTensor]:
    for value in values:
        if isinstance(value, TensorValue):
            yield value.fake
        elif isinstance(value, SequenceValue):
            yield from _tensors(tx, value.unpack(tx))


def name_in(function: Any) -> str:
    """The name under which a class would have it."""
    return getattr(function, "__name__", "")


def name_of(function: Any) -> str:
    """A readable name."""
    module = getattr(function, "__module__", None) or "torch"
    # The long name of a function written in C names what holds it.
    wanted = "__name__" if isinstance(function, types.BuiltinFunctionType) else "__qualname__"
    name = getattr(function, wanted, None) or getattr(function, "__name__", None) or str(function)
    return f"{module}.{name}"


def build_leaf(tx: Machine, obj: Any, source: Source) -> Value:
    """A leaf is known by identity."""
    watch.identity(tx, source, obj)
    return TorchFunctionValue(obj, source=source)


SPECIAL.append((is_leaf, build_leaf))


def _leaf_first(cls: type) -> None:
    """Functions that folding gives may be leaves, too."""
    otherwise = MAKERS[cls]
    makes(cls)(lambda obj: TorchFunctionValue(obj) if is_leaf(obj) else otherwise(obj))


_leaf_first(types.FunctionType)
_leaf_first(types.BuiltinFunctionType)


@builds(*_OPERATORS)
def build_operator(tx: Machine, obj: Any, source: Source) -> Value:
    """`torch.ops.aten.add` and its overloads."""
    watch.identity(tx, source, obj)
    return TorchFunctionValue(obj, source=source)


makes(*_OPERATORS)(TorchFunctionValue)


@value_class
class NamespaceValue(PinnedValue):
    """`torch.ops`, `torch.ops.aten`, `torch.classes`: what they hold is guarded, for a program may put others there."""

    kind = "a torch namespace"


@builds(type(torch.ops), type(torch.ops.aten))
def build_namespace(tx: Machine, obj: Any, source: Source) -> Value:
    """Torch's operator namespaces."""
    watch.identity(tx, source, obj)
    return NamespaceValue(obj, source=source)


makes(type(torch.ops), type(torch.ops.aten))(NamespaceValue)
