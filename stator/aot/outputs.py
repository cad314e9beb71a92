"""The description of what the function returns: computed values, inputs, views of either, constants.

Results that share memory in eager share it here: views of an input are made from the live input at each call, views of
a value from that value, which is then a result of the forward graph even if the program does not return it.
Neighbours: `trace.py`; `metadata.Output` is the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.aot.functional import Cell, leaves_operand, viewed
from stator.aot.metadata import Output
from stator.aot.results import OLDER, UNCOUNTED
from stator.aot.tracer import Tracer
from stator.base.errors import Unsupported
from stator.fake import FakeTensor
from stator.fake.mode import is_custom
from stator.fake.symbolic import extents, size_of
from stator.graphs.calls import root
from stator.graphs.lineage import UNRECORDED, count_together, creation
from stator.sizes.strides import may_overlap

aten = torch.ops.aten


@dataclass(slots=True)
class Results:
    """The description of each result, of their roots, and the values that the forward graph computes for them."""

    outputs: list[Output]
    roots: list[Output]
    fakes: list[FakeTensor]
    nodes: list[fx.Node]


def describe(tracer: Tracer, inputs: Mapping[int, int], outputs: list[Any]) -> Results:
    """Sort the results into inputs, views and values. `inputs`: the identity of an input's fake → its number."""
    bases = _bases(outputs)
    results = Results([], [], [], [])
    views = _Views(outputs, results.roots)
    numbers: dict[int, int] = {}

    def value(fake: FakeTensor) -> int:
        if id(fake) not in numbers:
            numbers[id(fake)] = len(results.fakes)
            results.fakes.append(fake)
            results.nodes.append(own_memory(tracer, fake, results.nodes))
        return numbers[id(fake)]

    for out in outputs:
        if isinstance(out, torch.SymInt):
            results.outputs.append(Output("number", offset=size_of(out)))
            continue
        if isinstance(out, torch.SymFloat):
            raise Unsupported("a result", "it is a float that differs from call to call")
        if not isinstance(out, torch.Tensor):
            results.outputs.append(Output("constant", constant=out))
            continue
        fake: FakeTensor = tracer.fakes((out,))[0]
        origin: FakeTensor | None = fake.handle.origin
        base = bases.get(fake.handle.cell) if origin is None else origin
        recorded = base if fake is not base and fake.grad_fn is not None else None
        if recorded is not None and may_overlap(recorded.shape, recorded.stride()):
            raise Unsupported("a result", "it is a view of a tensor that holds some elements several times")
        if recorded is not None and leaves_operand(fake):
            raise Unsupported(
                "a result", "as_strided reads elements that its operand does not hold, and needs gradients"
            )
        if base is not None and fake.itemsize != base.itemsize and not (_in_parts(fake, base) or _in_a_row(base)):
            raise Unsupported("a result", "it reads the memory of another as elements of another size")
        if base is not None and base is not fake:
            _check_way(tracer, fake, base)
        if base is None or not _can_rename(fake, base) or (base is fake and origin is None):
            results.outputs.append(Output("value", value(fake)))
        elif base is fake:
            results.outputs.append(Output("input", inputs[id(base)]))
        elif origin is not None:
            results.outputs.append(views.cut("input_view", inputs[id(base)], fake, base))
        else:
            results.outputs.append(views.cut("output_view", value(base), fake, base))
    return results


class _Views:
    """Describes results that are views; those that are views of one tensor in autograd hang on one at run time."""

    def __init__(self, outputs: list[Any], roots: list[Output]) -> None:
        self.roots = roots
        #: The identity of what results are views of in autograd → how many are, and its number among the roots.
        distinct = {id(out): out for out in outputs if isinstance(out, FakeTensor)}
        self.uses = Counter(id(_whole(fake)) for fake in distinct.values())
        self.numbers: dict[int, int] = {}

    def cut(self, kind: str, index: int, fake: FakeTensor, base: FakeTensor) -> Output:
        """`fake` as a view of `base`, or of a root that is cut from that."""
        root = _whole(fake)
        related = root is _whole(base) or root.requires_grad or self.uses[id(root)] < 2
        if related or not isinstance(root, FakeTensor) or root.itemsize != base.itemsize or _pending(root):
            return view_of(kind, index, fake, base)
        if id(root) not in self.numbers:
            self.numbers[id(root)] = len(self.roots)
            self.roots.append(view_of(kind, index, root, base))
        number = self.numbers[id(root)]
        return Output("root", number) if root is fake else view_of("root_view", number, fake, root)


def _bases(outputs: list[Any]) -> dict[Cell, FakeTensor]:
    """For memory that several results share: the tensor as views of which the others are made at run time.

    It is a result that covers the memory, or else a tensor that one of them is a view of and that is no result itself;
    if possible one that requires gradients, and that the most of them are views of.
    """
    sharing: dict[Cell, dict[int, FakeTensor]] = {}
    for out in outputs:
        if isinstance(out, FakeTensor) and out.handle is not None:
            sharing.setdefault(out.handle.cell, {})[id(out)] = out
    bases: dict[Cell, FakeTensor] = {}
    for cell, group in sharing.items():
        if len(group) == 1 and not any(map(_lies_elsewhere, group.values())):
            continue
        if cell.restrided:
            raise Unsupported("a result", "it shares memory with another whose shape was changed in place")
        whole = [fake for fake in group.values() if not fake.handle.steps]
        whole += [fake.handle.steps[0].parent for fake in group.values() if fake.handle.steps]
        whole += [_whole(fake) for fake in group.values() if _unrecorded(fake)]  # type: ignore[misc]
        # Autograd records nothing of these, so it would record nothing of their views either.
        whole = [fake for fake in whole if not _unrecorded(fake)]
        views = Counter(id(_whole(fake)) for fake in group.values())
        whole.sort(key=lambda fake: (not fake.requires_grad, -views[id(fake)]))
        if whole and whole[0].handle.cell is cell and not whole[0].handle.steps and not _pending(whole[0]):
            bases[cell] = whole[0]
    return bases


def _lies_elsewhere(fake: FakeTensor) -> bool:
    """Whether what computes it alone would not put it where it is in eager, inside of what it is a view of.

    A part that is seen as another dtype would be memory of its own, which begins where the part does.
    """
    steps = fake.handle.steps
    seen = any(step.func is aten.view.dtype for step in steps[1:])
    seen = seen and (fake.itemsize == steps[0].parent.itemsize or _in_a_row(steps[0].parent))
    return bool(_pending(fake)) or _unrecorded(fake) or seen


def _can_rename(fake: FakeTensor, base: FakeTensor) -> bool:
    """Whether a view of the base has the gradient that the tensor has."""
    return base.requires_grad or not fake.requires_grad


def _check_way(tracer: Tracer, fake: FakeTensor, base: FakeTensor) -> None:
    """Refuse a view whose history contains a custom autograd function: a view made at run time would lack it."""
    ways = [_custom(tensor) for tensor in (fake, base)]
    for function in [*ways[0], *ways[1]]:
        if ways[0] != ways[1]:
            refusal = Unsupported("a result", "it shares memory, and an autograd function gives it its gradient")
            refusal.refused_at(*tracer.calls.of(function))
            raise refusal


def _custom(tensor: FakeTensor) -> list[Any]:
    """The custom autograd functions in the history, back to the tensor that this is a view of."""
    found, functions = tensor.grad_fn, []
    while found is not None and (found is tensor.grad_fn or found is not _whole(tensor).grad_fn):
        functions += [found] if is_custom(found) else []
        found = next((function for function, _ in found.next_functions if function is not None), None)
    return functions


def _in_parts(fake: FakeTensor, base: FakeTensor) -> bool:
    """Whether one of two tensors has the real and imaginary parts of the other as its elements."""
    whole, part = (fake.dtype, base.dtype) if fake.dtype.is_complex else (base.dtype, fake.dtype)
    return whole.is_complex and whole.to_real() is part


def _in_a_row(base: FakeTensor) -> bool:
    """Whether a computed value lies in memory without gaps, so that its bytes can be read as elements of any size."""
    computed = base.handle.origin is None and not base.handle.steps
    return computed and base.storage_offset() == 0 and base.is_contiguous()


def _pending(fake: FakeTensor) -> str:
    """The lazy operations of the tensor, which eager applies when it is read: "conj" and "neg"."""
    return " ".join(["conj"] * fake.is_conj() + ["neg"] * fake.is_neg())


def _unrecorded(fake: FakeTensor) -> bool:
    """Whether it claims to need gradients, as what it is cut from does, though nothing is recorded of the cut."""
    return fake.requires_grad and fake.grad_fn is None and fake._is_view()


def view_of(kind: str, index: int, fake: FakeTensor, base: FakeTensor) -> Output:
    """`fake` as a view of `base`, number `index` of its `kind`; offsets count from where `base` begins."""
    start, origin = size_of(fake.storage_offset()), size_of(base.storage_offset())
    if fake.dtype.is_complex != base.dtype.is_complex:
        start, origin = (start * 2, origin) if fake.dtype.is_complex else (start, origin * 2)
    link = _link(fake, base)
    return Output(
        kind,
        index,
        extents(fake.shape),
        extents(fake.stride()),
        start - origin,
        dtype=str(fake.dtype).removeprefix("torch.") if fake.dtype is not base.dtype else "",
        link=_age(fake, base) + link,
        pending=_pending(fake),
        version=fake._version if link in UNCOUNTED and not fake.is_inference() else 0,
    )


def _age(fake: FakeTensor, base: FakeTensor) -> str:
    """Whether it was made before a write, which matters once the base begins to take gradients."""
    born = fake.handle.born
    related = _whole(fake) is _whole(base) and not base.requires_grad and not fake.requires_grad
    return OLDER if related and born is not None and born < fake._version else ""


def _link(fake: FakeTensor, base: FakeTensor) -> str:
    """How autograd relates a view to its base: a key of `results.LINKS`."""
    if _whole(fake) is not _whole(base):
        if _flows(fake, base):
            raise Unsupported(
                "a result", "it shares the memory of a tensor that autograd does not take it to be a view of"
            )
        kind = "detached" if count_together(fake, base) else "data"
        return f"view of {kind}" if fake._is_view() else kind
    if base.requires_grad and fake.grad_fn is None:
        return "unrecorded"
    made = creation(fake) if fake._is_view() else None
    if made == UNRECORDED and not (base._is_view() and creation(base) == made):
        if fake.grad_fn is not None:
            raise Unsupported("a result", "it is cut from a view that autograd has not recorded")
        return "unrecorded"
    return "sibling" if made == torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE else ""


def _flows(fake: FakeTensor, base: FakeTensor) -> bool:
    """Whether gradients of one tensor reach the other; as they share memory, few functions are in between."""
    found = fake.grad_fn
    while found is not None and found is not base.grad_fn:
        if getattr(found, "variable", None) is base:
            return True
        found = next((function for function, _ in found.next_functions if function is not None), None)
    return found is not None


def _whole(fake: FakeTensor) -> torch.Tensor:
    """The tensor that this is a view of, according to autograd; itself if it is no view."""
    base: torch.Tensor | None = fake._base
    return fake if base is None else base


def own_memory(tracer: Tracer, fake: FakeTensor, others: list[fx.Node]) -> fx.Node:
    """The result's node, copied if it would otherwise be the memory of an input or of another result."""
    node = tracer.node(fake)
    if root(node).op != "placeholder" and node not in others:
        return node
    if may_overlap(fake.shape, fake.stride()):  # a copy of it would not
        return viewed(tracer.emit(aten.clone.default, fake.handle.cell.value), fake.handle, tracer.emit)
    return tracer.emit(aten.clone.default, node)
