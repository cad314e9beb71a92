"""`trace`: one pass over a captured graph gives forward and backward as one functional graph.

The captured graph runs on fakes under autograd, inside a `Tracer`; then the autograd engine itself runs on fakes for
the gradients. Sizes that the placeholders describe by symbols stay symbols. What comes out is a `Joint`: the graph, the
live tensors it was lifted over, and the description of inputs and outputs. Invariant: the joint graph's outputs are
`(values…, gradients…)` and its only mutating nodes are the `copy_`s into inputs at the end of the forward.

Neighbours: `interpreter.py` runs the captured graph, `tracer.py` records; `outputs.py` describes the results;
`partition.py` splits the joint graph.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from stator.aot import casts
from stator.aot.aliased_inputs import Base, Member, join, relate, storage_of, view_bases
from stator.aot.attributes import lifted
from stator.aot.functional import Cell, Handle
from stator.aot.interpreter import Interpreter
from stator.aot.kept import Kept, fates, is_large, looked_at, only_in_regions
from stator.aot.metadata import Ints, Metadata, Output, TensorSpec, Value
from stator.aot.outputs import Results, describe, own_memory, view_of
from stator.aot.symbols import extent_of, origins
from stator.aot.tangents import GivenTangents, Reachability
from stator.aot.tracer import Tracer
from stator.base.errors import StatorError, Unsupported
from stator.fake import FakeTensor, make
from stator.fake.layout import contiguous_strides, is_dense
from stator.fake.mode import inner, is_inner, leaf_like, without_saved_tensor_hooks
from stator.fake.symbolic import extents
from stator.graphs import modes
from stator.graphs.calls import effects_of
from stator.graphs.formulas import as_eager_chooses
from stator.graphs.lineage import whole_of
from stator.graphs.nodes import module
from stator.sizes import Extent
from stator.sizes.strides import may_overlap

aten = torch.ops.aten


@dataclass(slots=True)
class Joint:
    """Forward and backward in one graph."""

    graph: fx.Graph
    #: The live parameters, buffers and constants: the first flat inputs.
    attributes: list[torch.Tensor]
    #: Placeholders of the flat inputs (the seeds last, if any), then of the tangents and the flags of `Metadata`.
    inputs: list[fx.Node]
    tangents: list[fx.Node]
    #: Nodes of the user's values, and of one gradient or None per flat input.
    values: list[fx.Node]
    gradients: list[fx.Node | None]
    #: For each tensor among inputs and values, as bits, the results whose backward in eager checks that the tensor was
    #: not written to since; for all other results the caller may write to it. -1 for tensors that no caller holds.
    looked_at: dict[fx.Node, int]
    #: Complete except for `saved`, which the partition decides.
    metadata: Metadata

    @property
    def module(self) -> fx.GraphModule:
        """The joint graph as a module, to print or run it."""
        return module(self.graph, "joint")


@dataclass(slots=True)
class _Input:
    """One flat input while tracing."""

    real: torch.Tensor
    fake: FakeTensor
    leaf: FakeTensor
    node: fx.Node
    #: Whether it takes part in autograd; a write may make its fake do so.
    requires_grad: bool = False


@dataclass(slots=True)
class _Number:
    """A flat input that is a number: a symbol, or a float that one stands for."""

    fake: torch.SymInt | torch.SymFloat
    node: fx.Node


_Flat = _Input | _Number


def _tensors(flat: Sequence[_Flat]) -> list[tuple[int, _Input]]:
    """The inputs that are tensors, with their numbers."""
    return [(i, entry) for i, entry in enumerate(flat) if isinstance(entry, _Input)]


def trace(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: Mapping[Any, Any],
    random_operators: Mapping[Any, Any] | None = None,
    need_backward: bool = True,
) -> Joint:
    """Trace `gm` on tensors like `example_inputs`.

    `decompositions`: overload → function, applied recursively. `random_operators`: overload → (draw, *args) → value,
    the functional forms of random operators; if empty, these stay in the graph and draw from torch's own generator.
    Without `need_backward`, or where nothing is recorded under the caller's grad mode, only the forward is traced.
    Raises `Unsupported` where only eager gives what the program asks for.
    """
    enabled = torch.is_grad_enabled()
    need_backward = need_backward and not torch.is_inference_mode_enabled()
    with (
        modes.kept(casts.DEVICES),
        torch.inference_mode(False),
        torch.set_grad_enabled(need_backward and enabled),
        torch.autograd.set_multithreading_enabled(False),
        torch.autograd.set_detect_anomaly(False),  # it reads values
    ):
        joined: dict[int, bool] = {}
        while True:
            tracer = Tracer(decompositions, random_operators or {})
            try:
                tracing = _Tracing(tracer, gm, example_inputs, need_backward, enabled, joined)
                with without_saved_tensor_hooks(tracing.keep):
                    return tracing.run()
            except _AliasedWrite as found:
                joined[found.storage] = found.storage in joined
            except RuntimeError as error:
                known = _REFUSED + (_REFUSED_IN_BACKWARD if tracer.phase == "backward" else ())
                refusal = next((why for text, why in known if re.search(text, str(error))), None)
                if refusal is None:
                    raise
                raise Unsupported("this program", refusal) from error


class _AliasedWrite(Exception):
    """A written input shares its storage with another: the trace starts again, with one base for that storage.

    If autograd records such a write, it starts once more, with the inputs as views of one another.
    """

    def __init__(self, storage: int) -> None:
        super().__init__()
        self.storage = storage


_OVERWRITTEN = "what backward needs is overwritten, which eager raises when backward runs"
#: Errors that PyTorch raises while tracing where eager gives a result, or raises only later → why eager has to run it.
_REFUSED = (
    (r"modified by an inplace operation", _OVERWRITTEN),
    (r"Negation, the `-` operator, on a bool", "a gradient negates truth values, which eager raises in backward"),
    (r"derivative for .* is not implemented", "an operator has no derivative, which eager raises when backward runs"),
    (r"has been modified inplace", "one of several views of a tensor, made at once, is used after a write"),
    (r"leaf Variable that requires grad", "a leaf that needs gradients is written to, which eager forbids"),
    (r"is a view and (is being|its base).* modified inplace", "a view is written to that autograd forbids to write to"),
    (r"Cannot call .* on tensor with symbolic", "an operator needs the numbers that sizes are"),
    (
        r"returned an (incorrect number of gradients|invalid gradient)",
        "a backward of its own is wrong, as eager raises",
    ),
    (r"fn_edge\.is_valid\(\) == this_edge\.is_valid", "PyTorch records a write to several views at once wrongly"),
    (r"data is not allocated yet", "an operator reads the values of a tensor to find the size of its result"),
)
#: The same, of errors that would be faults of ours while forward is traced: eager has raised them by then.
_REFUSED_IN_BACKWARD = (
    (r"not implemented for '", "a derivative has no kernel for a dtype, which eager raises when backward runs"),
    (r"isFloatingType\(grad\.", "a derivative is complex where the operand is real, which eager raises in backward"),
)


#: The function by which autograd calls the backward of a custom autograd function.
_USERS_BACKWARD = torch.autograd.function.BackwardCFunction.apply.__code__


class _Tracing:
    """The steps of one trace, in order."""

    def __init__(
        self,
        tracer: Tracer,
        gm: fx.GraphModule,
        examples: Sequence[Any],
        need_backward: bool,
        enabled: bool,
        joined: Mapping[int, bool],
    ) -> None:
        self.tracer = tracer
        self.gm = gm
        self.need_backward = need_backward
        #: The caller's grad mode.
        self.enabled = enabled
        #: The storages whose inputs are traced as views of one base, and whether as views of one another in autograd.
        self.joined = joined
        self.bases: list[Base] = []
        #: Tensors that the caller passes views of and not themselves, and how the runtime gets hold of them.
        self.view_bases: list[_Input] = []
        self.views: list[Member] = []
        self.attributes: list[_Input] = []
        self.inputs: list[_Flat] = []
        #: What autograd saves, and how often the members of the bases had been written to by then.
        self.kept = Kept()
        self.versions: list[tuple[torch.Tensor, list[list[int]]]] = []
        self.looked_at: dict[fx.Node, int] = {}
        #: Of `Metadata`.
        self.reach: tuple[tuple[int, Ints], ...] = ()
        self.inner: tuple[tuple[int, Ints], ...] = ()
        self.flags: tuple[Ints, ...] = ()
        self.fates: tuple[tuple[int, Ints], ...] = ()
        self.casts: casts.Casts = ()
        self._declare(examples)

    def keep(self, tensor: torch.Tensor) -> None:
        """Autograd saves this tensor."""
        self.kept.see(tensor)
        if self.bases:
            self.versions.append((tensor, [base.versions() for base in self.bases]))

    def _declare(self, examples: Sequence[Any]) -> None:
        """Placeholders for attributes, then for the caller's tensors and numbers."""
        self.attributes = [self._input(name, tensor, tensor) for name, tensor in lifted(self.gm).items()]
        nodes = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        for node, example in zip(nodes, examples, strict=True):
            described = node.meta.get("val")
            if isinstance(example, torch.Tensor):
                symbolic = isinstance(described, FakeTensor) and described._has_symbolic_sizes_strides
                self.inputs.append(self._input(node.name, example, described if symbolic else example))
            elif isinstance(described, torch.SymInt | torch.SymFloat):
                self.inputs.append(_Number(described, self.tracer.placeholder(node.name, described)))
            else:
                raise Unsupported(f"the input {node.name}", "it is no tensor")

    def _input(self, name: str, real: torch.Tensor, shape: torch.Tensor) -> _Input:
        """An input like `real`, of the geometry of `shape`, which may be symbolic."""
        tracer = self.tracer
        requires_grad = self.need_backward and real.requires_grad
        if real.layout is not torch.strided:
            raise Unsupported(f"the input {name}", f"its layout is {real.layout}")
        leaf = make(shape.size(), real.dtype, real.device, shape.stride(), shape.storage_offset())
        if isinstance(real, torch.nn.Parameter):
            leaf._is_param = True
        if requires_grad:
            self.tracer.takes_gradients = True
            leaf = leaf_like(leaf, real)
        fake = inner(leaf) if requires_grad and not real.is_leaf else leaf
        node = tracer.placeholder(name, fake)
        entry = _Input(real, fake, leaf, node, requires_grad)
        if not isinstance(real, FakeTensor):
            tracer.declare(real, fake)
        return entry

    # ---- the steps ---------------------------------------------------------------------------------------------------

    def run(self) -> Joint:
        """Forward, write-backs, backward, description."""
        try:
            return self._run()
        finally:
            self.tracer.graph.close()

    def _run(self) -> Joint:
        self._give_handles()
        with self.tracer:
            outputs = Interpreter(self.tracer, self.gm).run([entry.fake for entry in self.inputs])
        flat = self._flat_inputs()
        results = describe(self.tracer, {id(entry.fake): i for i, entry in _tensors(flat)}, outputs)
        mutated, assigned = self._write_back(flat, results)
        gradients, tangents = self._backward(flat, results, assigned) if self.need_backward else ([], [])
        graph = self.tracer.graph
        graph.output((*results.nodes, *gradients))
        _prune(graph)
        return self._joint(flat, results, mutated, assigned, gradients, tangents)

    def _give_handles(self) -> None:
        """Each input has memory of its own, except those in a storage that is written through one of them."""
        aliased: dict[int, dict[int, _Input]] = {}
        for i, entry in _tensors([*self.attributes, *self.inputs]):
            storage = storage_of(entry.real)
            if storage in self.joined:
                aliased.setdefault(storage, {})[i] = entry
            else:
                entry.fake.handle = entry.leaf.handle = Handle(Cell(entry.node), (), entry.node, entry.fake)
        for storage, entries in aliased.items():
            known = {
                i: Member(f"the input {entry.node.name}", i, entry.real, entry.fake) for i, entry in entries.items()
            }
            bases = self._view_bases(known) if self.joined[storage] else {}
            self.bases.append(join(self.tracer, list(known.values())))
            for i, base in bases.items():
                entry = entries[i]
                entry.fake = entry.node.meta["val"] = relate(known[i], base.fake)
                entry.requires_grad = False  # its gradient flows on to the base
                self.tracer.declare(entry.real, entry.fake)
        for _, entry in _tensors([*self.attributes, *self.inputs]):
            whole_of(entry.leaf).handle = entry.leaf.handle  # type: ignore[attr-defined]

    def _view_bases(self, members: dict[int, Member]) -> dict[int, Member]:
        """For each member that is a view, the member that it is a view of, which is added if it is not there yet."""
        found: dict[int, Member] = {}
        by_object = {id(member.real): member for member in reversed(members.values())}
        for i, real in view_bases(members).items():
            if id(real) not in by_object:
                entry = self._input(f"whole_{len(self.view_bases)}", real, real)
                number = len(self.attributes) + len(self.inputs) + len(self.view_bases)
                by_object[id(real)] = members[number] = Member(entry.node.name, number, real, entry.fake)
                self.view_bases.append(entry)
                self.views.append(members[i])
            found[i] = by_object[id(real)]
        return found

    def _flat_inputs(self) -> list[_Flat]:
        """Attributes, constants met while tracing, the caller's inputs, and what these are views of."""
        tracer = self.tracer
        constants: list[_Input] = [
            _Input(real, node.meta["val"], node.meta["val"], node)
            for real, node in zip(tracer.constants, tracer.constant_nodes, strict=True)
        ]
        for base in self.bases:
            for member in base.members:
                member.number += len(constants) if member.number >= len(self.attributes) else 0
        self.attributes += constants
        return [*self.attributes, *self.inputs, *self.view_bases]

    def _write_back(self, flat: list[_Flat], results: Results) -> tuple[list[int], list[tuple[int, int]]]:
        """A `copy_` for every input whose memory was written to, or a value where autograd must see the write.

        And where it is on the host, whose memory the kernels of a GPU do not write.
        """
        tracer = self.tracer
        mutated: list[int] = []
        assigned: list[tuple[int, int]] = []
        tensors = _tensors(flat)
        owners = Counter(storage_of(entry.real) for _, entry in tensors)
        for i, entry in tensors:
            if entry.requires_grad and not entry.fake.requires_grad:
                raise Unsupported(f"the input {entry.node.name}", "it is detached in place")
            if not entry.fake.handle.cell.version:
                continue
            aliased = any(entry.fake.handle.cell is base.cell for base in self.bases)
            if not aliased:
                self._check_written(entry, owners)
            seen = entry.fake.grad_fn is not None and not is_inner(entry.fake.grad_fn)
            if seen and entry.fake is entry.leaf and entry.requires_grad:
                raise Unsupported(f"the input {entry.node.name}", "a leaf that is a view itself gets a history")
            if seen or (not aliased and self._elsewhere(entry)):
                if aliased and entry.fake._is_view():
                    continue  # its base is assigned
                if aliased and not self.joined[storage_of(entry.real)]:
                    raise _AliasedWrite(storage_of(entry.real))
                assigned.append((i, len(results.fakes)))
                results.nodes.append(own_memory(tracer, entry.fake, results.nodes))
                results.fakes.append(entry.fake)
            elif not aliased:
                mutated.append(i)
                tracer.emit(aten.copy_.default, entry.node, entry.fake.handle.cell.value)
        for position, base in enumerate(self.bases):
            for tensor, versions in self.versions:
                if isinstance(tensor, FakeTensor) and tensor.handle and base.is_spoiled(tensor, versions[position]):
                    raise Unsupported("this program", _OVERWRITTEN)
            if base.cell.version:
                base.write_back(tracer)
                mutated.append(len(flat))
            flat.append(_Input(base.first.real, base.fake, base.fake, base.node))
        return mutated, assigned

    def _elsewhere(self, entry: _Input) -> bool:
        """Whether it is on the host, and the graph is not."""
        if entry.fake.device.type != "cpu":
            return False
        values = [node.meta.get("val") for node in self.tracer.graph.nodes]
        return any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in values)

    def _check_written(self, entry: _Input, owners: Mapping[int, int]) -> None:
        """Of an input that is written to and has a placeholder of its own."""
        name, storage = f"the input {entry.node.name}", storage_of(entry.real)
        if storage and owners[storage] > 1:
            if storage in self.joined:
                raise Unsupported(name, "it is written to and shares memory with a constant")
            raise _AliasedWrite(storage)
        if may_overlap(entry.fake.shape, entry.fake.stride()):
            raise Unsupported(name, "it is written to and holds some elements several times")

    def _backward(
        self, flat: list[_Flat], results: Results, assigned: list[tuple[int, int]]
    ) -> tuple[list[fx.Node | None], list[fx.Node]]:
        tracer = self.tracer
        tracer.phase, tracer.location = "backward", None
        outputs = [fake for fake in results.fakes if fake.requires_grad]
        leaves = {i: entry.leaf for i, entry in _tensors(flat) if entry.requires_grad}
        tangents: list[FakeTensor] = []
        places: list[fx.Node] = []
        for fake in outputs:
            tangent = make(fake.shape, fake.dtype, fake.device, _packed(fake))
            node = tracer.placeholder(f"tangent_{len(tangents)}", tangent)
            tangent.handle = Handle(Cell(node), (), node)
            tangents.append(tangent)
            places.append(node)
            tracer.given.append(tangent.handle.cell)
        if not outputs or not leaves:
            return [None] * len(flat), []
        reach = Reachability(tracer.calls, outputs)
        with self._as_eager_raises(), as_eager_chooses(outputs):
            self.kept.ask(reach.order)
            grads, self.casts = casts.gradients(tracer, outputs, tangents, list(leaves.values()))
        reached = reach.bits(leaves)
        numbers = [i for i, fake in enumerate(results.fakes) if fake.requires_grad]
        self._look(flat, results, assigned, reach, numbers)
        nodes: list[fx.Node | None] = [None] * len(flat)
        for i, grad in zip(leaves, grads, strict=True):
            nodes[i] = tracer.node(grad) if grad is not None else None
        if len(outputs) == 1:
            return nodes, places
        self.inner = tuple([(numbers[k], _chosen(numbers, bits)) for k, bits in reach.inner.items()])
        return self._of_some(nodes, places, reached, numbers, reach.runs)

    def _look(
        self,
        flat: list[_Flat],
        results: Results,
        assigned: list[tuple[int, int]],
        reach: Reachability,
        numbers: Sequence[int],
    ) -> None:
        """What eager's backward looks at, and which results share their fate."""
        kept = self.kept.by(reach.runs, self.tracer.calls.first)
        shared = {base.node for base in self.bases}
        mine = [(entry.node, entry.fake) for _, entry in _tensors(flat) if entry.node not in shared]
        self.looked_at = looked_at(kept, [*mine, *zip(results.nodes, results.fakes, strict=True)])
        own = [results.nodes[value] for _, value in assigned]  # the caller gets what they are copied into
        large = [entry.node for _, entry in _tensors(flat) if is_large(entry.real)]
        self.looked_at |= dict.fromkeys(large, (1 << len(numbers)) - 1)
        again = [node for node, _ in mine if only_in_regions(node)]
        self.looked_at |= dict.fromkeys([*self.tracer.constant_nodes, *own, *again], -1)
        self.fates = tuple(
            [(numbers[k], _chosen(numbers, bits)) for k, bits in enumerate(fates(kept, len(numbers))) if bits]
        )

    @contextmanager
    def _as_eager_raises(self) -> Iterator[None]:
        """Errors of a custom backward become a refusal: eager raises them when backward runs, not in forward."""
        try:
            yield
        except StatorError:
            raise
        except Exception as error:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code is _USERS_BACKWARD]
            if not frames:
                raise
            why = f"it raises {type(error).__name__}, which eager raises when backward runs"
            refusal = Unsupported("the backward of an autograd function", why)
            refusal.refused_at(*self.tracer.calls.of(frames[0].f_locals["self"]))
            raise refusal from error

    def _of_some(
        self,
        gradients: list[fx.Node | None],
        tangents: list[fx.Node],
        reached: dict[int, int],
        numbers: Sequence[int],
        runs: Mapping[Any, int],
    ) -> tuple[list[fx.Node | None], list[fx.Node]]:
        """Gradients that are right when only some tangents are given, and all placeholders that backward then has."""
        given = GivenTangents(self.tracer, tangents, runs)
        gradients = given.guard(gradients, reached)
        everything = (1 << len(numbers)) - 1
        self.flags = tuple([_chosen(numbers, bits) for bits in given.flags])
        self.reach = tuple(
            [
                (i, _chosen(numbers, bits))
                for i, bits in reached.items()
                if gradients[i] is not None and bits != everything
            ]
        )
        return gradients, [*tangents, *given.flags.values()]

    def _joint(
        self,
        flat: list[_Flat],
        results: Results,
        mutated: list[int],
        assigned: list[tuple[int, int]],
        gradients: list[fx.Node | None],
        tangents: list[fx.Node],
    ) -> Joint:
        tracer = self.tracer
        flat = [*flat, *[_Number(node.meta["val"], node) for node in tracer.floats.values()]]
        specs: list[TensorSpec | Extent] = [
            TensorSpec.of(entry.node.meta["val"], entry.requires_grad)
            if isinstance(entry, _Input)
            else extent_of(entry.fake)
            for entry in flat
        ]
        nodes = [entry.node for entry in flat]
        if gradients:
            gradients = [*gradients, *[None] * len(tracer.floats)]
        if tracer.seeds is not None:
            self.looked_at[tracer.seeds] = -1
            specs.append(TensorSpec.of(tracer.seeds.meta["val"], False))
            nodes.append(tracer.seeds)
            gradients = [*gradients, None] if gradients else gradients
        self._in_order(nodes)
        # Where no gradient comes out, results require gradients all the same.
        has_backward = any(fake.requires_grad for fake in results.fakes) and bool(tangents)
        values = tuple([_value(fake, has_backward) for fake in results.fakes])
        restrided = tuple(
            view_of("input_view", i, entry.fake, entry.node.meta["val"])
            for i, entry in _tensors(flat)
            if id(entry.fake) in tracer.restrided
        )
        metadata = Metadata(
            inputs=tuple(specs),
            attributes=len(self.attributes),
            outputs=tuple(results.outputs),
            values=values,
            roots=tuple(results.roots),
            mutated=tuple(mutated),
            writes=tuple(self._writes(flat, restrided, assigned)),
            restrided=restrided,
            assigned=tuple(assigned),
            gradients=tuple(i for i, gradient in enumerate(gradients) if gradient is not None),
            has_backward=has_backward,
            enables_grad=has_backward and not self.enabled,
            reach=self.reach,
            inner=self.inner,
            flags=self.flags,
            fates=self.fates,
            casts=self.casts,
            seed_device=str(tracer.seed_device) if tracer.seeds is not None else "",
            floats=tuple(self._floats()),
            reals=tuple(tracer.floats),
            bases=(*[Output("whole", view.number) for view in self.views], *[base.source() for base in self.bases]),
            symbols=origins([entry.node.meta["val"] for entry in flat]),
        )
        attributes = [entry.real for entry in self.attributes]
        return Joint(tracer.graph, attributes, nodes, tangents, results.nodes, gradients, self.looked_at, metadata)

    def _floats(self) -> Iterator[int]:
        """The flat inputs that are floats."""
        for i, entry in enumerate(self.inputs, len(self.attributes)):
            if isinstance(entry, _Number) and isinstance(entry.fake, torch.SymFloat):
                yield i

    def _writes(
        self, flat: list[_Flat], restrided: tuple[Output, ...], assigned: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """How often inputs count as written, beside what the runtime does to them in place; once for all views."""
        numbers = {id(entry.fake): i for i, entry in _tensors(flat)}
        counts: Counter[int] = Counter()
        for i, entry in _tensors(flat):
            whole = whole_of(entry.fake) if id(whole_of(entry.fake)) in numbers else entry.fake
            counts[numbers[id(whole)]] -= [*[output.index for output in restrided], *dict(assigned)].count(i)
            counts[i] += entry.fake._version if whole is entry.fake else 0
        yield from sorted((+counts).items())

    def _in_order(self, nodes: list[fx.Node]) -> None:
        """Put the placeholders into the order of the flat inputs: constants, floats and seeds were met late."""
        first = next(iter(self.tracer.graph.nodes))
        for node in nodes:
            if node is not first:
                first.prepend(node)
            else:
                first = first.next


def _chosen(numbers: Sequence[int], bits: int) -> Ints:
    return tuple([number for k, number in enumerate(numbers) if bits >> k & 1])


def _value(fake: FakeTensor, has_backward: bool) -> Value:
    version = 0 if fake.is_inference() else fake._version
    return Value(tangent_spec(fake), has_backward and fake.requires_grad, version)


def tangent_spec(value: torch.Tensor) -> TensorSpec:
    """The spec of a value's tangent: the value's geometry, without gaps."""
    return replace(TensorSpec.of(value, False), stride=extents(_packed(value)))


def _packed(value: torch.Tensor) -> tuple[int, ...]:
    """The strides of a value, or contiguous ones where there are holes in it."""
    size, stride = value.shape, value.stride()
    return stride if value.is_contiguous() or is_dense(size, stride) else contiguous_strides(size)


def _prune(graph: fx.Graph) -> None:
    """Remove dead nodes, except those with effects."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not effects_of(node):
            graph.erase_node(node)
