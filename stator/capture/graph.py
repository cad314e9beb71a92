"""The fx graph under construction.

`call` runs the function once on fake tensors and appends the node, so every node knows its result
(`meta["val"]`) and the user's line (`meta["location"]`). Tensors that come from outside are
placeholders (by source) or, when they belong to a module, `get_attr` nodes on the live object.
Invariant: placeholders come first, in order of first use; nothing is removed or reordered here, so
in-place calls keep their program order. Grad and autocast modes of the interpreted program are held
here and are in force only during a fake call: abandoning a capture leaves the process as it was.
Neighbours: `values/torch/tensor.py` (calls), `frames.py` (takes the module), `fake/`.
"""

from __future__ import annotations

import operator
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from stator.capture.default_device import default_device
from stator.capture.dynamic import Sizes
from stator.capture.source import SizeSource, StrideSource
from stator.fake import FakeMode
from stator.fake.symbolic import size_of, symfloat, symint
from stator.graphs import composite
from stator.graphs.nodes import add_node
from stator.graphs.nodes import module as graph_module
from stator.sizes import OPERATIONS, Extent, Size, Symbol, fold
from stator.sizes.real import FUNCTIONS, Number, Real, from_bits, plain, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stator.capture.source import Source
    from stator.fake import FakeTensor
    from stator.fake.mode import Geometry

#: A place in the user's program.
Location = tuple[str, int]

_UNFIT = re.compile(r"[^0-9A-Za-z]+")

#: Steps of a path that say nothing to a reader.
_NOISE = re.compile(r"^L\['self'\]|\.__dict__\['_(?:modules|parameters|buffers)'\]")


def sanitise(text: str, taken: set[str] | dict[str, Any]) -> str:
    """A Python identifier for `text`, different from those in `taken`."""
    stem = _UNFIT.sub("_", text).strip("_").lower() or "value"
    if stem[0].isdigit():
        stem = "_" + stem
    name, count = stem, 1
    while name in taken:
        name = f"{stem}_{count}"
        count += 1
    return name


class Input(NamedTuple):
    """One placeholder: where its tensor (or symbolic int) comes from, what was met at capture, and its node."""

    source: Source
    example: Any
    node: fx.Node


class Leaf(NamedTuple):
    """A tensor that existed before: an input, or a parameter or buffer."""

    source: Source
    example: torch.Tensor
    fake: FakeTensor
    #: Whether the program changes it in place.
    changed: bool


class Late(NamedTuple):
    """A leaf is changed when the graph has run, which cannot express it: nothing in it may use it after `step`."""

    users: frozenset[fx.Node]
    #: How often the program had asked for gradients; of a random state, how many numbers it had drawn.
    asked: int
    location: Location
    step: int


#: Functions that write some operand without telling autograd: running statistics.
HIDDEN_WRITES = {
    *(torch.batch_norm, torch.instance_norm, torch.native_batch_norm),
    *(torch.nn.functional.batch_norm, torch.nn.functional.instance_norm),
    *(torch.fused_moving_avg_obs_fake_quant, torch._fused_moving_avg_obs_fq_helper),
}

SYM_SIZE = torch.ops.aten.sym_size.int
SYM_STRIDE = torch.ops.aten.sym_stride.int

#: What computes with symbolic ints in the graph.
SIZE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "max": torch.sym_max, "min": torch.sym_min,
}  # fmt: skip


class GraphBuilder:
    """Collects the torch calls of one conversion."""

    def __init__(self, mode: FakeMode | None = None, sizes: Sizes | None = None) -> None:
        self.graph = fx.Graph()
        self.mode = mode or FakeMode()
        #: The symbols of this capture.
        self.sizes = sizes or Sizes()
        self.sizes.graph = self
        self.inputs: list[Input] = []
        #: Calls that are made before the graph runs: a live function and its arguments.
        self.earlier: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self.attributes: dict[str, torch.Tensor] = {}
        #: Objects that values stand for: alive while the graph is built.
        self.kept: list[Any] = []
        #: Which instruction of the outermost frame is being run.
        self.step = 0
        self.grad_enabled = torch.is_grad_enabled()
        #: Whether the program is inside of an inference mode of its own, and the first call that entered one.
        self.inference = False
        self.entered: fx.Node | None = None
        #: By identity, what such a mode has made that is no inference tensor: views of others.
        self.plain_views: set[int] = set()
        #: The default devices that the program has set, around them the one that is set outside; the last one counts.
        self.devices: list[torch.device] = [device] if (device := default_device()) is not None else []
        #: Argument tuples of the autocast contexts that the program is inside of.
        self.autocasts: list[tuple[Any, ...]] = []
        #: Values of the contexts in the graph that the program is inside of, the innermost last.
        self.open_contexts: list[Any] = []
        #: How many functions the program is inside of that `torch.vmap` maps, and how many it has been.
        self.mapping = 0
        self.mapped = 0
        #: How many calls of `flex_attention` it is inside of, whose functions index by tensors of no dims.
        self.scoring = 0
        #: Leaves that take gradients, or take none any more, from the start of the frame on: the program says so.
        self.grad_flags: dict[fx.Node, bool] = {}
        #: What the program has done to the state of random numbers after the graph has drawn some, and how many draws.
        self.late_state: Late | None = None
        #: Leaves that are given other flags, or other memory, when the graph has run.
        self.late: dict[fx.Node, Late] = {}
        #: By the identity of their fakes, values that the program has made take gradients.
        self.made: dict[int, Any] = {}
        #: Whether the program has asked for gradients.
        self.differentiated = False
        #: Which of the program's checkpointed calls it is inside of, the outermost; and how many it has made.
        self.region: int | None = None
        self.regions = 0
        self._attribute_nodes: dict[int, tuple[fx.Node, Any]] = {}
        self._names: set[str] = set()
        self._symbol_nodes: dict[Symbol, fx.Node] = {}
        self._size_calls: dict[tuple[Any, ...], fx.Node] = {}
        self._first_body_node: fx.Node | None = None
        self._switches: set[fx.Node] = set()

    # -- leaves ----------------------------------------------------------------------------------------

    def placeholder(
        self, source: Source, tensor: torch.Tensor, location: Location, geometry: Geometry | None = None
    ) -> tuple[fx.Node, Any]:
        """The node and the fake of a tensor that each call passes anew."""
        return self._input(source, tensor, self.mode.from_real(tensor, geometry=geometry), location)

    def _input(self, source: Source, example: Any, fake: Any, location: Location) -> tuple[fx.Node, Any]:
        name = sanitise(str(source), self._names)
        self._names.add(name)
        if self._first_body_node is None:
            node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_before(self._first_body_node):
                node = self.graph.placeholder(name)
        node.meta["val"] = fake
        node.meta["location"] = location
        node.meta["source"] = source
        self.inputs.append(Input(source, example, node))
        return node, fake

    def attribute(self, source: Source, tensor: torch.Tensor, location: Location) -> tuple[fx.Node, Any]:
        """The node and the fake of a parameter or buffer, registered as the live object."""
        made = self._attribute_nodes.get(id(tensor))
        if made is not None:
            return made
        fake = self.mode.from_real(tensor)
        name = sanitise(_NOISE.sub("", str(source)), self.attributes)
        self.attributes[name] = tensor
        node = self._append("get_attr", name, (), {}, fake, location)
        node.meta["source"] = source
        self._attribute_nodes[id(tensor)] = node, fake
        return node, fake

    # -- sizes -----------------------------------------------------------------------------------------

    def size_node(self, size: Extent) -> Any:
        """The node of a symbolic int, computed from the sizes of inputs; a plain int as it is."""
        size = self.sizes.fitting(size, "an operation takes it")
        if not isinstance(size, Size):
            return size
        return fold(size, self._size_leaf, self._size_call)

    def _size_leaf(self, leaf: Symbol | int) -> Any:
        if isinstance(leaf, int):
            return leaf
        node = self._symbol_nodes.get(leaf)
        if node is None:
            place: Any = self.sizes.places[leaf][0]
            location = self.sizes.locate() or ("", 0)
            if isinstance(place, SizeSource | StrideSource):
                tensor = next(entry.node for entry in self.inputs if entry.source is place.base)
                target = SYM_SIZE if isinstance(place, SizeSource) else SYM_STRIDE
                node = self._append_size(target, (tensor, place.dim), leaf.size)
            else:
                node, _ = self._input(place, leaf.hint, symint(leaf.size, self.sizes), location)
            self._symbol_nodes[leaf] = node
        return node

    def _size_call(self, op: str, left: Any, right: Any) -> Any:
        key = op, left, right
        node = self._size_calls.get(key)
        if node is None:
            values = [size_of(side.meta["val"]) if isinstance(side, fx.Node) else side for side in (left, right)]
            node = self._append_size(SIZE_FUNCTIONS[op], (left, right), OPERATIONS[op](*values))
            self._size_calls[key] = node
        return node

    def float_node(self, number: Number) -> Any:
        """The node of a symbolic float, which the graph computes as the program does; a plain one as it is."""
        number = self._fitted(number)
        if not isinstance(number, Real):
            return self.size_node(number) if isinstance(number, Size) else number
        key = "float", written(number)
        node = self._size_calls.get(key)
        if node is None:
            value = symfloat(number, self.sizes)
            location = self.sizes.locate() or ("", 0)
            symbol = plain(number)
            if symbol is not None:
                place: Any = self.sizes.places[symbol][0]
                node, _ = self._input(place, from_bits(symbol.hint), value, location)
            else:
                args = tuple([self.float_node(arg) for arg in number.args])
                node = self._append("call_function", FUNCTIONS[number.op], args, {}, value, location)
                node.meta["is_size"] = True
            self._size_calls[key] = node
        return node

    def _fitted(self, number: Number) -> Number:
        """The number with sizes that 64 bits do not hold as the ints that they are."""
        if isinstance(number, Size):
            return self.sizes.fitting(number, "an operation takes it")
        if not isinstance(number, Real) or number.op == "bits":
            return number
        args = tuple([self._fitted(arg) for arg in number.args])
        if any(isinstance(arg, Real | Size) for arg in args):
            return Real(number.op, args)
        result: float | int = FUNCTIONS[number.op](*args)
        return result

    def _append_size(self, target: Any, args: tuple[Any, ...], extent: Extent) -> fx.Node:
        value = symint(extent, self.sizes)
        node = self._append("call_function", target, args, {}, value, self.sizes.locate() or ("", 0))
        node.meta["is_size"] = True
        return node

    # -- calls -----------------------------------------------------------------------------------------

    def call(
        self,
        kind: str,
        target: Any,
        node_arguments: tuple[Sequence[Any], dict[str, Any]],
        fake_arguments: tuple[Sequence[Any], dict[str, Any]],
        location: Location,
    ) -> tuple[fx.Node, Any]:
        """Appends `target(*args, **kwargs)` ("call_function") or `args[0].target(…)` ("call_method")."""
        function = getattr(torch.Tensor, target) if kind == "call_method" else target
        result = self.run(function, *fake_arguments)
        if self.inference:
            made = [fake for fake in tree_leaves(result) if isinstance(fake, torch.Tensor) and not fake.is_inference()]
            self.plain_views.update(map(id, made))
        args, kwargs = node_arguments
        return self._append(kind, target, tuple(args), kwargs, result, location), result

    def getitem(self, node: fx.Node, index: int, fake: Any, location: Location) -> fx.Node:
        """One part of a call that gave several tensors."""
        args = (node, index)
        return self._append("call_function", operator.getitem, args, {}, fake, location)

    def record(
        self, target: Callable[..., Any], args: tuple[Any, ...], location: Location, result: Any = None
    ) -> fx.Node:
        """Appends a call that is not run on fakes; without a result, it switches a mode."""
        node = self._append("call_function", target, args, {}, result, location)
        if result is None:
            self._switches.add(node)
        return node

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Runs `function` on fake tensors, under the modes of the interpreted program."""
        if self.inference and not torch.is_inference_mode_enabled():
            with torch.inference_mode():
                return self.run(function, args, kwargs)
        before = torch.is_grad_enabled()
        if before is not self.grad_enabled:
            torch._C._set_grad_enabled(self.grad_enabled)
        call = composite.call if self.sizes.places else composite.call_plainly
        try:
            if self.autocasts:
                with ExitStack() as stack:
                    for device_type, dtype, enabled, cache in self.autocasts:
                        stack.enter_context(torch.autocast(device_type, dtype, enabled, cache))
                    with self.mode:
                        return call(function, args, kwargs)
            with self.mode:
                return call(function, args, kwargs)
        finally:
            if before is not self.grad_enabled:
                torch._C._set_grad_enabled(before)

    def set_grad_enabled(self, enabled: bool, location: Location) -> None:
        """Switches the grad mode of the interpreted program."""
        if enabled is not self.grad_enabled:
            self.grad_enabled = enabled
            self.record(torch._C._set_grad_enabled, (enabled,), location)

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """The calls made inside are to be computed again in backward, from what they read of others."""
        outer = self.region
        if outer is None:
            self.region, self.regions = self.regions, self.regions + 1
        try:
            yield
        finally:
            self.region = outer

    def _append(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any, location: Location
    ) -> fx.Node:
        # What is an attribute's name already needs no other made of it.
        node = add_node(self.graph, kind, target, args, kwargs, target if kind == "get_attr" else None)
        meta = node.meta
        meta["val"] = value
        meta["location"] = location
        meta["step"] = self.step
        if isinstance(value, torch.Tensor) and value._base is not None:  # of a view, how often it had been written to
            meta["version"] = value._version
        if self.region is not None:
            meta["recompute"] = self.region
        if self._first_body_node is None:
            self._first_body_node = node
        return node

    def cut(
        self, after: fx.Node | None, elements: Sequence[fx.Node], outputs: Sequence[fx.Node]
    ) -> tuple[fx.GraphModule, list[fx.Node]]:
        """Takes out the calls behind a node: a graph of its own over `elements`, and what else of this one it reads."""
        nodes = list(self.graph.nodes)
        behind = nodes[nodes.index(after) + 1 :] if after is not None else nodes
        calls = [n for n in behind if n.op.startswith("call_") and "is_size" not in n.meta and n not in elements]
        inputs = dict.fromkeys(source for node in calls for source in node.all_input_nodes) | dict.fromkeys(outputs)
        read = [node for node in inputs if node not in calls and node not in elements]
        body = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in (*elements, *read):
            copies[node] = body.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        for node in calls:
            copies[node] = body.node_copy(node, copies.__getitem__)
        body.output(tuple(copies[node] for node in outputs))
        for node in (*reversed(calls), *elements):
            self.graph.erase_node(node)
        self._first_body_node = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        return graph_module(body, "mapped"), read

    def leaves(self) -> list[Leaf]:
        """All tensors that come from outside."""
        tensors = [entry for entry in self.inputs if isinstance(entry.example, torch.Tensor)]
        found = [(entry.source, entry.example, entry.node) for entry in tensors]
        for node, _ in self._attribute_nodes.values():
            found.append((node.meta["source"], self.attributes[str(node.target)], node))
        return [Leaf(source, example, node.meta["val"], self.is_changed(node)) for source, example, node in found]

    def set_flag(self, node: fx.Node, flag: bool, was: bool, location: Location) -> bool:
        """Whether a leaf takes gradients from here on, which it did or not before the frame; whether from the start."""
        if node in self.late or node.users or self.is_changed(node):
            self.set_late(node, location)
            return False
        if flag is was:
            del self.grad_flags[node]
        else:
            self.grad_flags[node] = flag
        return True

    def set_late(self, node: fx.Node, location: Location) -> None:
        """What the program has just done to a leaf is done after the graph."""
        self.late.setdefault(node, Late(frozenset(node.users), self.asked(), location, self.step))

    def set_late_state(self, location: Location) -> None:
        """The program has given PyTorch's default generator a state: it is given it after the graph."""
        if self.late_state is None:
            self.late_state = Late(frozenset(), self.mode.draws, location, self.step)

    def asked(self) -> int:
        """How often the program has asked for gradients."""
        return sum(node.target is torch.autograd.grad for node in self.graph.nodes)

    def flagged(self) -> list[tuple[Source, bool]]:
        """Those of `grad_flags`, by their sources."""
        return [(node.meta["source"], flag) for node, flag in self.grad_flags.items()]

    @contextmanager
    def flags_set(self) -> Iterator[None]:
        """For who compiles the graph, parameters take gradients as they will when it runs."""
        flags = {self.attributes[str(node.target)]: flag for node, flag in self.grad_flags.items() if self.is_own(node)}
        for tensor, flag in flags.items():
            tensor.requires_grad_(flag)
        try:
            yield
        finally:
            for tensor, flag in flags.items():
                tensor.requires_grad_(not flag)

    def is_own(self, node: fx.Node) -> bool:
        """Whether a leaf is part of the graph: a parameter or buffer."""
        return node.op == "get_attr"

    def is_changed(self, node: fx.Node) -> bool:
        """Whether a call so far has changed the tensor at a leaf."""
        value = node.meta["val"]
        return bool(value._version) or (value.memory is not None and value.memory.written)

    # -- the result --------------------------------------------------------------------------------------

    @property
    def computes(self) -> bool:
        """Whether it does anything but switching modes."""
        return any(
            node.op in ("call_function", "call_method") and "is_size" not in node.meta and node not in self._switches
            for node in self.graph.nodes
        )

    @property
    def calls(self) -> int:
        """How many nodes compute something."""
        nodes = (node for node in self.graph.nodes if "is_size" not in node.meta)
        return sum(node.op in ("call_function", "call_method") for node in nodes)

    def module(self, outputs: Sequence[fx.Node], name: str = "graph") -> fx.GraphModule:
        """Closes the graph with a flat tuple of tensors and makes the module that a backend takes."""
        self.graph.output(tuple(outputs))
        root = torch.nn.Module()
        for attribute, tensor in self.attributes.items():
            if isinstance(tensor, torch.nn.Parameter):
                root.register_parameter(attribute, tensor)
            else:
                root.register_buffer(attribute, tensor)
        module = graph_module(self.graph, name, root)
        if self.sizes.symbolic:
            module.meta["sizes"] = self.sizes
        module.meta["written"] = frozenset(self._written())
        return module

    def drop_unused_inputs(self, outputs: Sequence[Any]) -> None:
        """Inputs of which only facts were used need not be passed."""
        needed = set(outputs)
        for entry in self.inputs:
            if not entry.node.users and entry.node not in needed:
                self.graph.erase_node(entry.node)
                self.inputs = [other for other in self.inputs if other is not entry]

    def _written(self) -> Iterator[str]:
        """The leaves that the graph writes, by the names of their nodes."""
        leaves = [entry.node for entry in self.inputs if isinstance(entry.example, torch.Tensor)]
        leaves += [node for node, _ in self._attribute_nodes.values()]
        yield from (node.name for node in leaves if self.is_changed(node))
        for node in self.graph.nodes:
            if node.target in HIDDEN_WRITES:
                yield from (source.name for source in node.all_input_nodes if source in leaves)

    @property
    def examples(self) -> list[Any]:
        """The tensors and ints met at capture, one a placeholder."""
        return [self._with_flag(entry) if entry.node in self.grad_flags else entry.example for entry in self.inputs]

    def _with_flag(self, entry: Input) -> torch.Tensor:
        """The same memory, as a tensor that takes gradients or not as the graph has it."""
        example, flag = entry.example.detach(), self.grad_flags[entry.node]
        if isinstance(entry.example, torch.nn.Parameter):
            return torch.nn.Parameter(example, flag)
        return example.requires_grad_(flag)
