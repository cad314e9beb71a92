"""Runs the lowerings over an fx graph and closes the program.

The graph holds functional ATen overloads with `meta["val"]`; its only mutations are the final
`copy_` nodes. They are kept back: first every output is put in memory with the strides eager gives
it, then every value that a mutation would spoil, then the writes happen. So nothing in the program
can see a mutated input by accident.

Neighbours: `table.py` (what is run), `context.py` (the state), `stator.loop.nest` (what comes out).
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from stator.base.device import Device
from stator.base.dtypes import OPAQUE
from stator.base.errors import InternalError, Unsupported
from stator.fake.symbolic import environment_of
from stator.loop import expr as e
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Extern, Nest, Number, Operator, Output, Program, View, views_in
from stator.lowering import opaque, uses
from stator.lowering.context import Context, loop_axes
from stator.lowering.convolution import channels_last, follows, wants_innermost
from stator.lowering.extern import call, extern
from stator.lowering.table import LOWERINGS, REPLACEMENTS
from stator.lowering.value import (
    LazyTensor,
    Place,
    Spec,
    broadcast,
    extent,
    numbers,
    over,
    placed,
    pointwise,
    with_strides,
)
from stator.lowering.view import REMAPPED
from stator.sizes import Size
from stator.sizes.real import Bits
from stator.sizes.strides import Shape, contiguous, is_dense, same_layout, span

COPY = torch.ops.aten.copy_.default
MOVE = torch.ops.aten._to_copy.default


def lower(gm: GraphModule, name: str, device: Device, rounds: bool = True) -> Program:
    """The program that computes what the graph computes, on `device`, rounded as eager rounds it if `rounds`."""
    return Lowering(Context(device, uses.find(gm.graph), _number(gm, device.kind), rounds)).run(gm, name)


def _number(gm: GraphModule, kind: str) -> int | None:
    """Which device of its kind the graph is on; None where nothing tells."""
    values = [node.meta.get("val") for node in gm.graph.nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    tensors += [leaf for value in values if type(value) in (tuple, list) for leaf in tree_leaves(value)]
    found = {value.device for value in tensors if isinstance(value, torch.Tensor)}
    found = {device for device in found if device.index is not None}
    if len(found) > 1:
        places = " and ".join(sorted(map(str, found)))
        raise Unsupported("a graph on several devices", f"its tensors are on {places}")
    return next((place.index for place in found if place.type == kind), None)


def _without_spare(nodes: list[Nest | Extern], spare: set[str], outputs: tuple[Output, ...]) -> list[Nest | Extern]:
    """The nodes but for those that compute what may be left out and nothing reads."""
    if not spare:
        return nodes
    read = {view.buffer for output in outputs for view in views_in(output)}
    for node in nodes:
        if isinstance(node, Extern):
            read.update([view.buffer for view in node.views()])
        else:
            roots = [node.value, *[atom.expr for atom in node.index.indirects()]]
            read.update([expr.attr[0] for expr in postorder(roots) if expr.op == "load"])  # type: ignore[arg-type]
    return [node for node in nodes if isinstance(node, Extern) or node.buffer.name not in spare - read]


class Lowering:
    """One pass over one graph."""

    __slots__ = ("context", "writes")

    def __init__(self, context: Context) -> None:
        self.context = context
        #: The mutations kept back: (input, its new value).
        self.writes: list[tuple[LazyTensor, LazyTensor]] = []

    def run(self, gm: GraphModule, name: str) -> Program:
        context = self.context
        values: dict[Node, Any] = {}
        outputs: tuple[Output, ...] = ()
        for node in gm.graph.nodes:
            context.node = node
            match node.op:
                case "placeholder":
                    values[node] = self._input(node)
                case "call_function":
                    values[node] = self._lowered(node, values)
                case "output":
                    outputs = self._outputs(node, values)
                case _:
                    raise InternalError("lowering", f"a {node.op} node in a graph of ATen overloads: {node.name}")
        context.node = None
        environment = environment_of([node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"])
        return Program(
            name,
            context.device.kind,
            tuple(context.inputs),
            tuple(_without_spare(context.nodes, context.spare, outputs)),
            outputs,
            tuple([_buffer(target).name for target, _ in self.writes]),
            tuple(context.numbers),
            context.number,
            environment.parts() if environment is not None else {},
        )

    # -- nodes -------------------------------------------------------------------------------------

    def _input(self, node: Node) -> Any:
        value = node.meta.get("val")
        context = self.context
        if not isinstance(value, torch.Tensor):
            found = extent(value)
            if isinstance(found, Bits):
                found = found.size
            if isinstance(found, int | Size):
                position = len(context.inputs) + len(context.numbers)
                context.numbers.append(Number(context.number_name(node.name, found), position, found))
            return found
        spec = Spec.of(value)
        size, stride, dtype, device = spec.numbers
        known_as = spec.dtype if spec.dtype in OPAQUE else ""
        made = Buffer(context.name(node.name), dtype, size, stride, device, known_as)
        context.inputs.append(made)
        context.buffers[made.name] = made
        found = placed(made.size, Place(made, made.stride))
        return over(found, known_as) if known_as else found

    def _lowered(self, node: Node, values: dict[Node, Any]) -> Any:
        """The value of a call; what is refused is refused where the program has it."""
        nests = self.context.nodes
        before = len(nests)
        operators = _operators(node, values)
        try:
            result = self._call(node, values)
        except Unsupported as error:
            error.refused_at(node.meta.get("location"), node.meta.get("step"))
            raise
        if isinstance(result, LazyTensor) and result.base is None:
            result.operators = operators
            if result.innermost is not None and not result.innermost.operators:
                result.innermost.operators = operators
        for i in range(before, len(nests)):
            nest = nests[i]
            if isinstance(nest, Nest) and not nest.operators:
                nests[i] = replace(nest, operators=operators)
        return result

    def _call(self, node: Node, values: dict[Node, Any]) -> Any:
        args, kwargs = _fill(node.args, values), _fill(node.kwargs, values)
        target: Any = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if target is COPY:
            self.writes.append((numbers(args[0]), numbers(args[1])))
            return args[1]
        out = _specs(node.meta["val"])
        function = LOWERINGS.get(target)
        if function is None:
            named = {key: self._at_home(node.kwargs[key], value) for key, value in kwargs.items()}
            given, instead = self._at_home(node.args, args), REPLACEMENTS.get(target)
            made = instead(self.context, out, *given, **named) if instead is not None else None
            return extern(self.context, out, *given, **named) if made is None else made
        if not self.context.device.host:
            if target in REMAPPED and (there := self._viewed_there(function, out, args, kwargs)) is not None:
                return there
            args = self._on_device(args)
            if target is not MOVE:
                out, kwargs = self._computed_here(out, kwargs)
        if opaque.touches(out) or opaque.touches(args):
            result = opaque.lower(self.context, target, out, args, kwargs)
            if isinstance(result, LazyTensor):
                self._settle(node, numbers(result), out.numbers.stride)
            return result
        result = function(self.context, out, *args, **kwargs)
        if isinstance(result, LazyTensor):
            fresh = result.place is None and result.base is None and result.innermost is None
            if fresh and wants_innermost(node, out, args):
                self._settle(node, result, channels_last(out.size))
                return with_strides(result, out.stride)
            stride = follows(node, out, values) if fresh else None
            self._settle(node, result, out.stride if stride is None else stride)
        return result

    def _settle(self, node: Node, result: LazyTensor, stride: Shape) -> None:
        """Strides and name of a value that lies nowhere yet, and whether to put it in memory now."""
        if result.place is None:
            if result.base is None:
                result.stride = stride
            result.name = result.name or node.name
            self.context.consider(node, result)

    # -- devices: what has a lowering is computed on the program's device, whichever it is on for the caller ---------

    def _viewed_there(self, function: Any, out: Spec, args: Any, kwargs: dict[str, Any]) -> LazyTensor | None:
        """A view of what lies on the host, where it lies there as well: nothing computes it."""
        if out.device == self.context.device.kind or self._device_of(args[0]) != out.device or args[0].place is None:
            return None
        found: LazyTensor = function(self.context, out, *args, **kwargs)
        return None if found.place is None else found

    def _on_device(self, args: Any) -> Any:
        """Host tensors read by a kernel of another device are carried over first."""
        if isinstance(args, tuple | list):
            return tuple([self._on_device(a) for a in args])
        if isinstance(args, LazyTensor):
            return self._carried(args, self.context.device.kind)
        return args

    def _computed_here(self, out: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What a lowering is asked for, on the program's device."""
        device = self.context.device.kind
        if isinstance(out, Spec):
            out = out._replace(device=device)
        elif isinstance(out, tuple):
            out = tuple([self._computed_here(one, {})[0] for one in out])
        elsewhere = isinstance(given := kwargs.get("device"), torch.device) and given.type != device
        return out, kwargs | {"device": self.context.torch_device(device)} if elsewhere else kwargs

    def _at_home(self, nodes: Any, args: Any) -> Any:
        """Arguments of a kernel of PyTorch's, each on the device where the caller's program has it."""
        if isinstance(nodes, tuple | list):
            return [self._at_home(node, arg) for node, arg in zip(nodes, args, strict=True)]
        if isinstance(args, LazyTensor) and isinstance(nodes, Node):
            return self._carried(args, nodes.meta["val"].device.type)
        return args

    def _carried(self, value: LazyTensor, device: str) -> LazyTensor:
        """The value on a device: itself, or a copy, in its strides where no element is left out and none shared."""
        if self.context.device.host or device == self._device_of(value):
            return value
        context, row_major = self.context, {"memory_format": torch.contiguous_format}
        options: dict[str, Any] = {"device": context.torch_device(device)}
        if value.raw is not None:
            spec = Spec(value.size, contiguous(value.size), value.dtype, device)
            return self._copy(spec, value, options | row_major)
        place = context.place(value)
        if is_dense(value.size, place.stride):
            spec = Spec(value.size, place.stride, value.dtype, device)
            return self._copy(spec, placed(value.size, place), options)
        once = tuple([1 if step == 0 else n for n, step in zip(value.size, place.stride, strict=True)])
        spec = Spec(once, contiguous(once), value.dtype, device)
        moved = self._copy(spec, placed(once, place), options | row_major).place
        assert moved is not None
        stride = [step and own for step, own in zip(place.stride, moved.stride, strict=True)]
        return placed(value.size, Place(moved.buffer, tuple(stride)))

    def _copy(self, spec: Spec, value: LazyTensor, options: dict[str, Any]) -> LazyTensor:
        made: LazyTensor = call(self.context, "aten._to_copy.default", spec, (value,), options)
        return made

    def _device_of(self, value: LazyTensor) -> str:
        """Where the value lies, or will."""
        place = numbers(value).place
        return self.context.device.kind if place is None else place.buffer.device

    # -- the end -----------------------------------------------------------------------------------

    def _outputs(self, node: Node, values: dict[Node, Any]) -> tuple[Output, ...]:
        wanted = node.args[0]
        nodes = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
        mutated = {_buffer(target).name for target, _ in self.writes}
        outputs: list[Output] = []
        for item in nodes:
            value = values[item] if isinstance(item, Node) else item
            outputs.append(self._output(item, value, mutated) if isinstance(value, LazyTensor) else _constant(value))
        self._mutate(mutated)
        return tuple(outputs)

    def _output(self, node: Any, value: LazyTensor, mutated: set[str]) -> View:
        """A view with eager's strides on memory that the end of the program leaves alone."""
        context = self.context
        spec = Spec.of(node.meta["val"])
        known_as = spec.dtype if spec.dtype in OPAQUE else ""
        spec, value = spec.numbers, numbers(value)
        moves = not context.device.host and spec.device != self._device_of(value)
        place = context.place(value) if moves else context.own_place(value)
        spoiled = place.buffer.name in mutated and not moves
        if spoiled or not same_layout(spec.size, place.stride, spec.stride):
            context.node = node
            # Eager leaves holes in a few results (those of select_scatter and the like); overlaps it never makes.
            buffer = context.buffer(spec.size, spec.stride, value.dtype, exact=0 not in spec.stride, opaque=known_as)
            context.write(buffer, self._on_device(value))
            place = Place(buffer, buffer.stride)
        if not context.device.host and spec.device != place.buffer.device:
            place = self._moved(place, spec, known_as)
        stride = spec.stride if same_layout(spec.size, place.stride, spec.stride) else place.stride
        return View(place.buffer.name, spec.size, stride, place.offset, known_as)

    def _moved(self, place: Place, spec: Spec, known_as: str) -> Place:
        """A value of this geometry on its device: what lies between its first and its last element is copied."""
        width = OPAQUE[known_as][1] if known_as else 1
        count = span(spec.size, place.stride)
        if width > 1:
            between = placed((count // width, width), Place(place.buffer, (width, 1), place.offset))
        else:
            between = placed((count,), Place(place.buffer, (1,), place.offset))
        moved = numbers(self._carried(over(between, known_as) if known_as else between, spec.device)).place
        assert moved is not None
        return Place(moved.buffer, place.stride)

    def _mutate(self, mutated: set[str]) -> None:
        """Write the kept-back values, after copying those that read what another write changes."""
        context = self.context
        secured = []
        for target, value in self.writes:
            if _buffer(target).device != context.device.kind:
                raise Unsupported("a write to a tensor of the host", f"the graph computes on {context.device.kind}")
            element, _, position = _written(target, value)
            if _spoiled(element, mutated, _buffer(target).name, position):
                value = pointwise(value.size, value.dtype, value.load, value.weight)
                context.realize(value)
            secured.append((target, value))
        for target, value in secured:
            element, axes, position = _written(target, value)
            buffer = _buffer(target)
            if element.op != "load" or element.attr != (buffer.name, position):
                made = e.cast(element, buffer.dtype)
                context.nodes.append(Nest(buffer, axes, (), made, position, operators=value.operators))


def _operators(node: Node, values: dict[Node, Any]) -> tuple[Operator, ...]:
    """The operators of the program that a node computes, with those of operands that lie nowhere yet."""
    found: dict[Operator, None] = {}
    for operand in node.all_input_nodes:
        value: Any = values[operand]
        if type(value) is not LazyTensor:
            continue
        while value.base is not None:
            value = value.base
        if value.place is None and value.operators:
            found.update(dict.fromkeys(value.operators))
    own = node.meta.get("operator")
    if own:
        found[Operator(own, node.meta.get("location"))] = None
    return tuple(found)


def _constant(value: Any) -> Output:
    value = extent(value)
    if value is None or isinstance(value, bool | int | float | Size):
        return value
    raise InternalError("lowering", f"an output that is neither a tensor nor a number: {value!r}")


def _buffer(target: LazyTensor) -> Buffer:
    assert target.place is not None, "only inputs are mutated, and they lie in memory"
    return target.place.buffer


def _written(target: LazyTensor, value: LazyTensor) -> tuple[Expr, tuple[Axis, ...], Index]:
    """(the new element, the loops over the target, where it is written)."""
    place = target.place
    assert place is not None
    axes, at = loop_axes(target.size, place.stride)
    return broadcast(value, at), axes, place.position(at)


def _spoiled(element: Expr, mutated: set[str], own: str, position: Index) -> bool:
    """Whether it reads mutated memory anywhere but the place it is written to."""
    for node in postorder([element]):
        if node.op == "load" and node.attr[0] in mutated and node.attr != (own, position):
            return True
    return False


def _fill(args: Any, values: dict[Node, Any]) -> Any:
    """The arguments with nodes replaced by their values."""
    if isinstance(args, Node):
        return values[args]
    if isinstance(args, tuple | list):
        filled = [values[a] if type(a) is Node else _fill(a, values) for a in args]
        return tuple(filled) if isinstance(args, tuple) else filled
    if isinstance(args, dict):
        return {key: _fill(a, values) for key, a in args.items()}
    return extent(args)


def _specs(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Spec.of(value)
    if isinstance(value, tuple | list):
        return tuple([_specs(v) for v in value])
    return value
