"""What the trace records for calls where only some of the results are differentiated, which only backward knows.

`Reachability` finds in autograd's own graph from which results gradients flow to which input: an input that no
differentiated result depends on gets None, not zeros. `GivenTangents` masks gradients of results that are not
differentiated: a missing tangent is passed as zeros, and zeros times an infinity that backward reads would be NaN.
Neighbours: `trace.py` asks; `Metadata.reach` and `Metadata.flags` carry the answers; `runtime.py` acts on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from inspect import unwrap
from math import isfinite
from operator import or_
from typing import Any

import torch
from torch import fx

from stator.aot.budget import bytes_of
from stator.aot.functional import Cell, Handle
from stator.aot.tracer import Calls, Tracer
from stator.base.errors import Unsupported
from stator.fake import make
from stator.fake.mode import is_custom
from stator.graphs.calls import is_view

aten = torch.ops.aten

#: Operators other than views that give zeros for gradients of zeros, whatever their other arguments are.
_KEEP_ZEROS = {
    aten.clone.default,
    aten._to_copy.default,
    aten.neg.default,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.constant_pad_nd.default,
    aten.where.ScalarOther,
    aten.embedding_dense_backward.default,
}
#: Operators that give zeros if all their tensors are zeros.
_PRODUCTS = {aten.mm.default, aten.bmm.default}
#: How many operators back `_masked_bytes` looks for smaller tensors to mask.
_DEPTH = 6


class Reachability:
    """Which gradients there are, for each subset of the outputs that a caller may differentiate.

    A dataflow analysis over autograd's graph, with a bit for each output. Custom functions may return None for an
    input, and so do some of PyTorch's derivatives (of a norm of order 0). For which ones is observed while backward
    runs on fakes, with all tangents: what gives none then gives none for fewer. Make this before that, and call `bits`
    after.
    """

    def __init__(self, calls: Calls, outputs: Sequence[torch.Tensor]) -> None:
        self.calls = calls
        self.outputs = outputs
        self.order = _later_first([out.grad_fn for out in outputs if out.grad_fn is not None])
        #: (number of the function, number of its input) for which backward returned None.
        self.nothing: set[tuple[int, int]] = set()
        #: For each function, as bits, the outputs that lead to it.
        self.runs: dict[Any, int] = {}
        #: By output, bits for the others that are computed from it.
        self.inner: dict[int, int] = {}
        # The hooks hold numbers, not functions: these hold the hooks.
        self._watching = [
            function.register_hook(partial(_see, self.nothing, i))
            for i, function in enumerate(self.order)
            if function.next_functions
        ]

    def bits(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, int]:
        """For each leaf, as bits, the outputs whose differentiation gives it a gradient.

        A function runs if a differentiated output depends on it. Built-in functions return None for None; custom ones
        are given zeros in place of None, and so return gradients whenever they run.
        """
        for handle in self._watching:
            handle.remove()
        runs = self.runs = dict.fromkeys(self.order, 0)
        #: By function and number of its result, the outputs that give this result a gradient.
        comes: dict[Any, dict[int, int]] = {function: {} for function in self.order}
        found = dict.fromkeys(leaves, 0)
        numbers = {id(leaf): i for i, leaf in leaves.items()}
        for k, out in enumerate(self.outputs):
            if out.grad_fn is not None:
                runs[out.grad_fn] |= 1 << k
                _join(comes[out.grad_fn], out.output_nr, 1 << k)
            elif id(out) in numbers:
                found[numbers[id(out)]] |= 1 << k
        for i, function in enumerate(self.order):
            gives = self._gives(function, runs[function], comes[function])
            for k, (parent, result) in enumerate(function.next_functions):
                if parent is not None:
                    runs[parent] |= runs[function]
                    _join(comes[parent], result, 0 if (i, k) in self.nothing else gives)
            variable = getattr(function, "variable", None)
            if variable is not None and id(variable) in numbers:
                found[numbers[id(variable)]] |= gives
        for k, out in enumerate(self.outputs):
            others = comes[out.grad_fn][out.output_nr] & ~(1 << k) if out.grad_fn is not None else 0
            if others:
                self.inner[k] = others
        return found

    def _gives(self, function: Any, runs: int, comes: Mapping[int, int]) -> int:
        """The outputs of which one has to be differentiated for the function to give gradients."""
        anything = reduce(or_, comes.values(), 0)
        if not is_custom(function):
            return anything
        if not _tells_nothing(type(function)._forward_cls):
            return runs
        if any(bits not in (0, anything) for bits in comes.values()):
            refusal = Unsupported(
                f"the backward of {type(function)._forward_cls.__name__}",
                "it is told which of its results are differentiated, and these lead to different results",
            )
            refusal.refused_at(*self.calls.of(function))
            raise refusal
        return anything


def _see(nothing: set[tuple[int, int]], function: int, given: Sequence[Any], _: Any) -> None:
    for k, gradient in enumerate(given):
        if gradient is None:
            nothing.add((function, k))


def _tells_nothing(cls: type[torch.autograd.Function]) -> bool:
    """Whether backward may be given None: `set_materialize_grads` is called (capture refuses it in other places)."""
    codes = [getattr(unwrap(getattr(cls, name)), "__code__", None) for name in ("forward", "setup_context")]
    return any(code is not None and "set_materialize_grads" in code.co_names for code in codes)


def _join(comes: dict[int, int], result: int, bits: int) -> None:
    comes[result] = comes.get(result, 0) | bits


def _later_first(roots: Iterable[Any]) -> list[Any]:
    """The functions reachable from the roots, in topological order: each before those that it gives gradients to."""
    done: dict[Any, None] = {}
    seen: set[Any] = set()
    stack = [(root, False) for root in roots]
    while stack:
        function, left = stack.pop()
        if left:
            done[function] = None
        elif function not in seen:
            seen.add(function)
            stack.append((function, True))
            stack += [(parent, False) for parent, _ in function.next_functions if parent is not None]
    return list(reversed(done))


class GivenTangents:
    """Masks, by `where(given, gradient, 0)`, gradients of missing tangents that are combined with others.

    Not the gradient itself is masked where smaller tensors make it zeros: the gradient of a table of embeddings is
    zeros if that of the rows is, and a product is if both factors are.
    """

    def __init__(self, tracer: Tracer, tangents: Sequence[fx.Node], runs: Mapping[Any, int]) -> None:
        self.tracer = tracer
        self.tangents = tangents
        #: Zeros that are gradients though they are computed from none: there they are where their function runs, and
        #: what is computed from them may be NaN.
        self._constant = {node: runs.get(function, 0) for node, function in tracer.zero_gradients.items()}
        #: By tangents, as bits, the placeholder that says whether any of them is given.
        self.flags: dict[int, fx.Node] = {}
        self._guarded: dict[fx.Node, fx.Node] = {}
        #: For each node of backward the tangents that it depends on, as bits.
        self._bits = {tangent: 1 << k for k, tangent in enumerate(tangents)}
        #: Nodes that are zeros if all tangents that they depend on are.
        self._zeros = set(tangents)

    def guard(self, gradients: list[fx.Node | None], wanted: Mapping[int, int]) -> list[fx.Node | None]:
        """Put the masks into the graph, and return the gradients; `wanted`: the tangents that reach each, as bits."""
        for node in list(self.tracer.graph.nodes):
            if node.op == "call_function":
                self._visit(node)
        return [
            self._only(node, wanted.get(i, 0)) if node is not None and node in self._bits else node
            for i, node in enumerate(gradients)
        ]

    def _visit(self, node: fx.Node) -> None:
        if self._constant.get(node):
            self._bits[node] = self._constant[node]
            self._zeros.add(node)
            return
        parents = [parent for parent in node.all_input_nodes if parent in self._bits]
        if not parents:
            return
        bits = 0
        for parent in parents:
            bits |= self._bits[parent]
        self._bits[node] = bits
        for parent in parents:
            guarded = self._only(parent, bits)
            if guarded is not parent:
                node.replace_input_with(parent, guarded)
        if self._keeps_zeros(node) and all(self._bits[p] != bits or p in self._zeros for p in parents):
            self._zeros.add(node)

    def _keeps_zeros(self, node: fx.Node) -> bool:
        """Whether zeros for every tangent give zeros."""
        if is_view(node) or node.target in _KEEP_ZEROS:
            return True
        others = [arg for arg in node.args[:2] if not isinstance(arg, fx.Node)]
        match node.target:
            case aten.add.Tensor | aten.sub.Tensor:
                return not others and all(arg in self._bits for arg in node.all_input_nodes)
            case aten.mul.Tensor:
                return any(isinstance(other, int | float) and isfinite(other) for other in others)
            case aten.div.Tensor:
                return any(isinstance(other, int | float) and other != 0 and other == other for other in others)
        return False

    def _only(self, node: fx.Node, bits: int) -> fx.Node:
        """The node for a reader that depends on these tangents: masked unless it depends on all of them itself."""
        return node if self._bits[node] & bits == bits else self._or_zeros(node)

    def _or_zeros(self, node: fx.Node) -> fx.Node:
        """The node, masked: zeros if none of its tangents is given."""
        if node not in self._guarded and (node in self._zeros or self._mask_operands(node)):
            return node
        if node not in self._guarded:
            flag = self._flag(self._bits[node])
            with self.tracer.graph.inserting_after(node):
                self._guarded[node] = self.tracer.emit(aten.where.ScalarOther, flag, node, 0)
            self._bits[self._guarded[node]] = self._bits[node]
            self._zeros.add(self._guarded[node])
        return self._guarded[node]

    def _mask_operands(self, node: fx.Node) -> bool:
        """Mask the operands that make the node zeros in its place; False if they are not smaller."""
        read = self._factors(node)
        size = bytes_of(node)
        if read is None or sum([self._masked_bytes(n, _DEPTH) for n in read]) > size - (not is_view(node)):
            return False
        for factor in read:
            if factor in self._bits:
                zeros = self._or_zeros(factor)
                for user in [user for user in factor.users if user is not zeros]:
                    user.replace_input_with(factor, zeros)
                continue
            with self.tracer.graph.inserting_before(node):
                zeros = self.tracer.emit(aten.where.ScalarOther, self._flag(self._bits[node]), factor, 0)
            node.replace_input_with(factor, zeros)
        self._zeros.add(node)
        return True

    def _factors(self, node: fx.Node) -> list[fx.Node] | None:
        """The operands that have to become zeros for the node to be zeros; None if that does not follow."""
        product = node.target in _PRODUCTS
        if not product and not self._keeps_zeros(node):
            return None
        return [n for n in node.all_input_nodes if n not in self._zeros and (product or n in self._bits)]

    def _masked_bytes(self, node: fx.Node, depth: int) -> int:
        """How many bytes are masked to make the node zeros."""
        if node in self._guarded:
            return 0
        read = self._factors(node) if depth and node in self._bits else None
        through = sum([self._masked_bytes(n, depth - 1) for n in read]) if read is not None else bytes_of(node)
        return min(bytes_of(node), through)

    def _flag(self, bits: int) -> fx.Node:
        """The placeholder that says whether any of these tangents is given: the runtime knows, so no kernel asks."""
        if bits not in self.flags:
            first = (bits & -bits).bit_length() - 1
            fake = make((), torch.bool, self.tangents[first].meta["val"].device)
            node = self.flags[bits] = self.tracer.placeholder(f"given_{len(self.flags)}", fake)
            fake.handle = Handle(Cell(node), (), node)
        return self.flags[bits]
