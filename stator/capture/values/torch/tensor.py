"""Tensors: a fake tensor for the facts, an fx node for the graph.

What the fake knows (sizes, dtype, device, …) is a constant; everything else is a graph call. What only
the data knows (`bool(t)`, `t.item()`) is a graph break, unless the fake remembers a small constant.
Invariant: a call that gives one of its own arguments back (in-place operators) gives the same value.
Neighbours: `graph.py`, `functions.py` (calls of functions), `fake/`.
"""

from __future__ import annotations

import operator
import types
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from stator.base.errors import DataDependent, GraphBreak, Undecided, Unsupported
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.lookup import MISSING, is_data_descriptor, look_up
from stator.capture.values.methods import COMPARE, UNARY
from stator.capture.values.python.constant import NONE, boolean
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.sequence import SequenceValue, TupleValue
from stator.capture.values.python.operators import BINARY, INPLACE, METHODS, UNARY_METHODS
from stator.capture.values.python.unknown_text import UnknownTextValue
from stator.capture.values.registry import fresh, wrap
from stator.capture.values.torch.indexing import WHOLE, looked_up, selected
from stator.capture.values.torch.tensor_class import (
    DATA_METHODS,
    FACTS,
    QUESTIONS,
    UNGUARDED_FACTS,
    UNMAPPED,
    VIEWS,
    call_override,
    is_kind_of,
    override,
    own_method,
)
from stator.fake import FakeTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import fx

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler

#: Methods that cannot be in a graph, and why.
REFUSED_METHODS = {
    "numpy": "it leaves torch",
    "__array__": "it leaves torch",
    "register_hook": "hooks run outside of the graph",
    "register_post_accumulate_grad_hook": "hooks run outside of the graph",
    "retain_grad": "it changes the autograd graph from inside",
    "is_set_to": "storages are not modelled",
    "is_pinned": "storages are not modelled",
    "is_shared": "storages are not modelled",
    "data_ptr": "the address is not known at capture",
    "untyped_storage": "storages are not modelled",
    "storage": "storages are not modelled",
    "set_": "storages are not modelled",
    "resize_": "storages are not modelled",
    "share_memory_": "storages are not modelled",
    "__reduce_ex__": "it leaves torch",
    "__dlpack__": "it leaves torch",
    "as_subclass": "tensor subclasses are not modelled",
}


#: Builtin functions that compute, as operators do, and the special methods behind them.
COMPUTING: dict[Any, str] = {abs: "__abs__", round: "__round__", divmod: "__divmod__", pow: "__pow__"}


class DataDependentValue(GraphBreak):
    """The program needs a tensor's data as a Python object."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} depends on the data of a tensor",
            "keep the value in a tensor (torch.where, masks), or do this outside of the compiled function",
        )


@value_class
class TensorValue(Object):
    """A tensor."""

    kind = "a tensor"
    in_graph = True

    node: fx.Node
    fake: Any
    cls: type = torch.Tensor
    real: torch.Tensor | None = None
    #: Attributes that the program has set, `grad` among them.
    attributes: dict[str, Value] = part(init=False, default_factory=dict)

    def __repr__(self) -> str:
        return f"TensorValue({self.node}, {self.fake!r})"

    def python_type(self) -> type:
        return self.cls

    def is_pinned(self) -> bool:
        return self.node.op == "get_attr"

    def real_object(self) -> Any:
        return self.real

    def is_kind_of(self, tx: Machine, wanted: Any) -> bool | None:
        return is_kind_of(tx, self, wanted)

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value | None:
        if function is len:
            return fresh(self.extent(tx))
        if function in (str, repr):
            return UnknownTextValue.here(tx)
        if function is float:
            return None if override(tx, self, "__float__") is not None else READS_FLOAT[0](tx, self)
        if function not in COMPUTING:
            return None
        written = call_override(tx, self, COMPUTING[function], *args)
        return written or call_graph(tx, "call_function", function, (self, *args), kwargs)

    def graph_argument(self) -> tuple[Any, Any]:
        return self.node, self.fake

    def is_same(self, other: Value) -> bool:
        return self is other or (isinstance(other, TensorValue) and other.fake is self.fake)

    def reconstruct(self, out: Assembler) -> None:
        out.load_output(self.node)

    # -- from the data ---------------------------------------------------------------------------------

    def data(self, what: str) -> torch.Tensor:
        """The small real tensor behind it, if its value is known at capture."""
        constant = self.fake.constant
        if constant is None:
            raise DataDependentValue(what)
        return constant

    def truth(self, tx: Machine) -> bool:
        if (written := call_override(tx, self, "__bool__")) is not None:
            return written.truth(tx)
        if self.fake.numel() != 1:
            text = "Boolean value of Tensor with more than one value is ambiguous"
            if self.fake.numel() == 0:
                text = "Boolean value of Tensor with no values is ambiguous"
            tx.raise_roughly(RuntimeError, text)
        return bool(self.data("bool()"))

    # -- attributes ------------------------------------------------------------------------------------

    def get_attr(self, tx: Machine, name: str) -> Value:
        if override(tx, self, "__getattribute__") is not None:
            raise self.refuse("reading attributes by a __getattribute__ of the program's")
        replacement = override(tx, self, name)
        if replacement is not None:
            found = None if is_data_descriptor(tx, look_up(tx, self.cls, name)) else self._own_attribute(tx, name)
            return replacement if found is None else found
        if name in FACTS:
            if name in UNMAPPED:
                refuse_mapped(tx, name)
            if name in UNGUARDED_FACTS and self.real is not None and self.source is not None:
                return wrap(tx, getattr(self.real, name), AttrSource(self.source, name))
            return fresh(self.fake.numel() * self.fake.itemsize if name == "nbytes" else getattr(self.fake, name))
        if name in VIEWS:
            return call_graph(tx, "call_function", getattr, (self, fresh(name)), {})
        if name == "__class__":
            return fresh(self.cls)
        if name in self.attributes:
            return self.attributes[name]
        if name == "data":
            refuse_mapped(tx, name)
            return call_graph(tx, "call_function", getattr, (self, fresh(name)), {})
        if (found := self._own_attribute(tx, name)) is not None:
            return found
        if name in ("grad", "grad_fn", "_base", "_version", "_grad", "_backward_hooks"):
            return self._autograd_attribute(tx, name)
        raw = look_up(tx, self.cls, name)
        if raw is not MISSING and callable(getattr(self.cls, name, None)):
            return TensorMethod(self, name)
        if raw is MISSING and (hook := override(tx, self, "__getattr__")) is not None:
            return hook.call(tx, (fresh(name),), {})
        if raw is MISSING:
            tx.raise_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        raise self.refuse(f"reading attribute {name!r}")

    def _own_attribute(self, tx: Machine, name: str) -> Value | None:
        """What the program has set on it, or what stands in its own dict."""
        if name in self.attributes:
            return self.attributes[name]
        if self.real is None or self.source is None:
            return None
        if name in self.real.__dict__:
            return wrap(tx, self.real.__dict__[name], AttrSource(self.source, name))
        watch.no_instance_attribute(tx, self.source, name)
        return None

    def _autograd_attribute(self, tx: Machine, name: str) -> Value:
        if name == "grad_fn":
            refuse_mapped(tx, name)
            if self.real is not None and self.source is not None and self.fake.requires_grad:
                watch.equals(tx, AttrSource(self.source, "is_leaf"), self.real.is_leaf)
            return NONE if not self.fake.requires_grad or self.fake.is_leaf else OpaqueValue("an autograd node")
        if self.source is None and name in ("grad", "_backward_hooks"):
            return NONE
        if name == "grad" and self.source is not None and self.real is not None and self.real.is_leaf:
            return wrap(tx, self.real.grad, AttrSource(self.source, name))
        if name in ("_base", "_version"):
            return SPECIAL_METHODS[name](tx, self)
        raise self.refuse(f"reading attribute {name!r}")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if name == "requires_grad":
            SPECIAL_METHODS["requires_grad_"](tx, self, value)
            return
        if name == "data" and value is self:
            return  # it has that memory and that geometry; `Module.to` does so where nothing is to be converted
        if name == "data" and isinstance(value, TensorValue) and can_move(self, value):
            tx.graph.set_late(self.node, tx.location())
            tx.effects.call(set_data, self, value)
            return
        if name != "grad" and look_up(tx, self.cls, name) is not MISSING:
            raise self.refuse(f"setting attribute {name!r}")
        if name == "grad" and not (value.is_none() or isinstance(value, TensorValue)):
            tx.raise_roughly(TypeError, "assigned grad expected to be a Tensor or None")
        if name == "grad" and not self.fake.is_leaf:
            raise self.refuse("setting the gradient in the middle of a graph")
        self.attributes[name] = value
        tx.effects.change(self)

    def write_back(self, out: Assembler) -> None:
        """Emit the assignments of attributes."""
        for name, value in self.attributes.items():
            out.call(setattr, self, fresh(name), value)
            out.pop()

    # -- containers ------------------------------------------------------------------------------------

    def length(self, tx: Machine) -> int:
        return int(self.extent(tx))

    def extent(self, tx: Machine) -> int | torch.SymInt:
        """`len()`, which may be symbolic."""
        if (written := call_override(tx, self, "__len__")) is not None:
            return int(written.constant())
        if self.fake.dim() == 0:
            tx.raise_roughly(TypeError, "len() of a 0-d tensor")
        size: int | torch.SymInt = self.fake.shape[0]
        return size

    def unpack(self, tx: Machine) -> list[Value]:
        if (written := call_override(tx, self, "__iter__")) is not None:
            return written.unpack(tx)
        if self.fake.dim() == 0:
            tx.raise_roughly(TypeError, "iteration over a 0-d tensor")
        return call_graph(tx, "call_method", "unbind", (self, fresh(0)), {}).unpack(tx)

    def iterate(self, tx: Machine) -> Value:
        written = call_override(tx, self, "__iter__")
        return TupleValue(self.unpack(tx)).iterate(tx) if written is None else written

    def get_item(self, tx: Machine, key: Value) -> Value:
        if (written := call_override(tx, self, "__getitem__", key)) is not None:
            return written
        if tx.graph.scoring and (found := looked_up(tx, self, key, call_graph)) is not None:
            return found
        tensor, rest = selected(tx, self, key, call_graph)
        if rest is WHOLE:
            return tensor
        return call_graph(tx, "call_function", operator.getitem, (tensor, rest), {})

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        if call_override(tx, self, "__setitem__", key, value) is None:
            tensor, rest = selected(tx, self, key, call_graph)
            call_graph(tx, "call_function", operator.setitem, (tensor, rest, value), {})

    def contains(self, tx: Machine, item: Value) -> Value:
        if (written := call_override(tx, self, "__contains__", item)) is not None:
            return boolean(written.truth(tx))
        raise DataDependentValue("the 'in' operator")

    # -- operators -------------------------------------------------------------------------------------

    def unary(self, tx: Machine, op: str) -> Value:
        written = call_override(tx, self, UNARY_METHODS[op])
        return written or call_graph(tx, "call_function", UNARY[op], (self,), {})

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, ("binary", op), BINARY[op], other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, ("binary_reflected", op), BINARY[op], other)

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, ("inplace", op), INPLACE[op], other)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, ("compare", op), COMPARE[op], other)

    def _operator(
        self, tx: Machine, operation: tuple[str, str], function: Callable[..., Any], other: Value
    ) -> Value | None:
        written = call_override(tx, self, METHODS[operation], other)
        if written is not None:
            return None if written.is_constant() and written.constant() is NotImplemented else written
        if not is_operand(other):
            return None
        operands = (other, self) if operation[0] == "binary_reflected" else (self, other)
        return call_graph(tx, "call_function", function, operands, {})


def can_move(owner: TensorValue, memory: TensorValue) -> bool:
    """Whether a tensor from outside may be given the memory of another one when the graph has run."""
    if owner.source is None or owner.real is None or owner.real.is_inference():
        return False
    mine, given = owner.fake, memory.fake
    facts = [(fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.device) for fake in (mine, given)]
    return facts[0] == facts[1] and not any(has_view(node.meta["val"], mine) for node in owner.node.users)


def has_view(value: Any, base: Any) -> bool:
    """Whether autograd takes some of the tensors for views of one."""
    return any(isinstance(tensor, torch.Tensor) and tensor._base is base for tensor in tree_leaves(value))


def set_data(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """`tensor.data = memory`."""
    tensor.data = memory


@value_class
class OpaqueValue(Object):
    """An object of which only is known that it is there."""

    kind = "an object of torch"

    what: str

    def get_attr(self, tx: Machine, name: str) -> Value:
        raise self.refuse(f"reading attribute {name!r} of {self.what}")

    def truth(self, tx: Machine) -> bool:
        return True


def refuse_mapped(tx: Machine, what: str) -> None:
    """Ends the graph before a call of `torch.vmap` whose function asks this."""
    if tx.graph.mapping:
        raise GraphBreak(f"a function that torch.vmap maps asks for {what} of a tensor")


def is_operand(value: Value) -> bool:
    """Whether a tensor operator takes it. Of the scalars of NumPy only those are modelled that are Python's too."""
    if isinstance(value, TensorValue):
        return True
    kind = value.python_type()
    if not value.is_constant() or issubclass(kind, int | float | complex):
        return value.is_constant()
    if kind.__module__ == "numpy":
        raise value.refuse("an operation with a tensor")
    return False


@value_class
class TensorMethod(Object):
    """`tensor.name`, to be called."""

    kind = "a tensor's method"

    owner: TensorValue = part()
    name: str

    def python_type(self) -> type:
        return type(torch.empty)

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return call_tensor_method(tx, self.name, self.owner, args, kwargs)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        return fresh(getattr(getattr(torch.Tensor, self.name), name))

    def unbound(self) -> tuple[Value, Value] | None:
        method = getattr(self.owner.cls, self.name)
        return (fresh(method), self.owner) if isinstance(method, types.MethodDescriptorType) else None

    def reconstruct(self, out: Assembler) -> None:
        out.call(getattr, self.owner, fresh(self.name))


def call_tensor_method(
    tx: Machine, name: str, owner: TensorValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """`owner.name(*args, **kwargs)`."""
    if name == "storage_offset":
        for leaf in tx.graph.leaves():
            watch.offset(tx, leaf.source, leaf.example)
    if name in QUESTIONS:
        if name in UNMAPPED:
            refuse_mapped(tx, name)
        return answer(tx, getattr(torch.Tensor, name), (owner, *args), kwargs)
    if name in DATA_METHODS:
        try:
            return fresh(getattr(owner.data(f"{name}()"), name)())
        except (ValueError, TypeError, RuntimeError) as error:
            tx.raise_real(error)
    if name in REFUSED_METHODS:
        raise GraphBreak(f"Tensor.{name}() cannot be in a graph: {REFUSED_METHODS[name]}")
    special = SPECIAL_METHODS.get(name)
    if special is not None:
        return special(tx, owner, *args, **kwargs)
    return call_graph(tx, "call_method", name, (owner, *args), kwargs)


#: `read` of `read_float.py`, which builds on this file.
READS_FLOAT: list[Callable[[Machine, TensorValue], Value | None]] = []


def answer(tx: Machine, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A question about tensors that the fakes answer; nothing goes into the graph."""
    fakes = [arg.graph_argument()[1] for arg in args]
    named = {name: arg.graph_argument()[1] for name, arg in kwargs.items()}
    try:
        return fresh(tx.graph.run(function, fakes, named))
    except (TypeError, RuntimeError, IndexError, ValueError) as error:
        failed(tx, function, error)


#: Methods that are not one call of the graph; `tensor_methods.py` adds more, `autograd/` those about autograd.
SPECIAL_METHODS: dict[str, Callable[..., Value]] = {
    "__len__": lambda tx, owner: fresh(owner.extent(tx)),
    "__iter__": lambda tx, owner: owner.iterate(tx),
    "__getitem__": lambda tx, owner, key: owner.get_item(tx, key),
    "__setitem__": lambda tx, owner, key, value: owner.set_item(tx, key, value) or NONE,
    "__contains__": lambda tx, owner, item: owner.contains(tx, item),
}


# -- graph calls ---------------------------------------------------------------------------------------

#: What operations on tensors raise about their arguments; of an operation on fakes, the program raises it.
OF_OPERATIONS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError, ArithmeticError)
#: What torch says of an operator that reads the memory of a fake, such as that of split points in a tensor.
NO_DATA = "its data is not allocated yet"


#: `draw` of `random_generator.py`, which builds on this file: a call that is given a generator.
DRAWN: list[Callable[..., Value]] = []


def call_graph(tx: Machine, kind: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Puts a call into the graph; the value of its result."""
    if "generator" in kwargs and not kwargs["generator"].is_none():
        (draw,) = DRAWN
        return draw(tx, kind, target, args, kwargs)
    if "requires_grad" in kwargs and kwargs["requires_grad"].truth(tx):
        others = {name: arg for name, arg in kwargs.items() if name != "requires_grad"}
        return SPECIAL_METHODS["requires_grad_"](tx, call_graph(tx, kind, target, args, others))
    if kind == "call_method" and (own := own_method(target)) is not None:
        kind, target = "call_function", own
    nodes, fakes = [], []
    for arg in (*args, *kwargs.values()):
        read_items(tx, arg)
    for arg in args:
        node, fake = arg.graph_argument()
        nodes.append(node)
        fakes.append(fake)
    named_nodes: dict[str, Any] = {}
    named_fakes: dict[str, Any] = {}
    for name, arg in kwargs.items():
        named_nodes[name], named_fakes[name] = arg.graph_argument()
    location = tx.location()
    try:
        node, result = tx.graph.call(kind, target, (nodes, named_nodes), (fakes, named_fakes), location)
    except Undecided:
        raise
    except Unsupported as error:
        raise GraphBreak(error.message, error.hint) from error
    except OF_OPERATIONS as error:
        failed(tx, target, error)
    given = dict(reversed([*given_tensors(tx, (*args, *kwargs.values()))]))
    return given.get(id(result)) or result_value(tx, node, result, given)


def given_tensors(tx: Machine, args: Iterable[Value]) -> Iterator[tuple[int, Value]]:
    """By the identity of their fakes the tensors among values, and in their containers."""
    for arg in args:
        if isinstance(arg, TensorValue):
            yield id(arg.fake), arg
        elif isinstance(arg, SequenceValue):
            yield from given_tensors(tx, arg.values(tx))


def failed(tx: Machine, target: Any, error: Exception) -> NoReturn:
    """An operation on fakes has raised: the program does, unless it is that the operation knows numbers only."""
    if tx.graph.sizes.symbolic and not isinstance(error, RecursionError):
        what, _, _ = str(error).partition("\n")
        raise Undecided(f"what {getattr(target, '__name__', target)} gives ({what})") from error
    if NO_DATA in str(error):
        raise DataDependent(getattr(target, "__name__", target)) from error
    tx.raise_of_fakes(error)


def read_items(tx: Machine, value: Value) -> None:
    """Reads the tensors of a container that nobody has looked into."""
    if isinstance(value, SequenceValue):
        for item in value.values(tx):
            read_items(tx, item)


def result_value(tx: Machine, node: fx.Node, result: Any, given: Mapping[int, Value] = MappingProxyType({})) -> Value:
    """The value of what a graph call gave: tensors, tuples of them, or Python objects; what it was `given` is that."""
    if isinstance(result, torch.Tensor):
        if not isinstance(result, FakeTensor):
            raise GraphBreak(f"{node.target} gave a {type(result).__name__}, which is not modelled")
        return TensorValue(node, result)
    if isinstance(result, list | tuple) and type(result) is not torch.Size:
        items = []
        for index, item in enumerate(result):
            if id(item) in given:
                items.append(given[id(item)])
            elif isinstance(item, torch.Tensor | list | tuple):
                part = tx.graph.getitem(node, index, item, node.meta["location"])
                items.append(result_value(tx, part, item, given))
            else:
                items.append(fresh(item))
        return ListValue(items) if type(result) is list else TupleValue(items, type(result))
    if result is None:
        return NONE
    tx.graph.graph.erase_node(node)
    if node.op == "call_method":
        raise GraphBreak(f"what Tensor.{node.target}() answers is not known at capture")
    return fresh(result)


# -- from objects --------------------------------------------------------------------------------------


def tensor_flag(value: Value) -> Value:
    """`torch.is_tensor`."""
    return boolean(issubclass(value.python_type(), torch.Tensor))
