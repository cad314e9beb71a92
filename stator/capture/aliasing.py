"""Guards on what is one object and what is two, asked for once the frame has been run.

Two ways that led to two objects while capturing may lead to one in a later call. That matters only for what the program
changes: a tensor in place, a container, an object, a closure cell. Everything else that depends on identity is guarded
where it is asked (`operators.identical`), and two ways to one object where they meet (`watch.again`).
Neighbours: `frames.py` (calls this), `effects.py` (what has changed), `graph.py` (the tensors).
"""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak, Undecided
from stator.capture.conditions import Operand
from stator.capture.guards import Guard
from stator.capture.source import AttrSource, ConstSource, EarlierSource, InstanceDictSource, LocalSource, StorageSource
from stator.capture.values.python.objects.function import CellValue, FunctionValue
from stator.capture.values.torch.nn_module import ModuleValue, RegistryValue
from stator.fake import starts
from stator.fake.mode import is_inner, views_constant
from stator.graphs.calls import RESTRIDING
from stator.graphs.lineage import UNRECORDED, base_requires_grad, creation, lineage, together, whole_of

if TYPE_CHECKING:
    from types import CodeType

    from torch import fx

    from stator.capture.graph import GraphBuilder, Leaf
    from stator.capture.guards import GuardSet
    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


class SharedMemory(GraphBreak):
    """A tensor that is changed in place shares memory with another one."""


class WrittenOutside(GraphBreak):
    """An inference tensor is changed in place where PyTorch forbids it, which eager says."""


def guard_aliasing(machine: Machine, guards: GuardSet) -> None:
    """Adds the guards that what the program changes needs."""
    guard_memory(machine.graph, guards)
    guard_starts(machine.graph, guards)
    guard_flags(machine.graph, guards)
    guard_leaves(machine.graph, guards)
    changed = list(machine.effects.changed)
    if not changed:
        return
    by_source = {value.source: value for value in list(machine.values.values()) if value.source is not None}
    for value in changed:
        if isinstance(value, CellValue):
            pin_functions(machine, by_source)
        elif value.source is not None and value.source is not LocalSource(keywords_name(machine.code)):
            guard_object(value.source, value, by_source, guards)


# -- tensors -------------------------------------------------------------------------------------------


def guard_memory(graph: GraphBuilder, guards: GuardSet) -> None:
    """A graph that changes tensors in place is only right while these share memory as they do now, or share none."""
    leaves = [leaf for leaf in graph.leaves() if not isinstance(leaf.source, EarlierSource)]  # others are new
    written = [leaf for leaf in leaves if leaf.changed]
    if not torch.is_inference_mode_enabled() and any(leaf.example.is_inference() for leaf in written):
        raise WrittenOutside("an inference tensor is changed in place outside of inference mode")
    if len(leaves) == 1 or not written:
        return
    storages: dict[int, list[Leaf]] = {}
    for leaf in leaves:
        storages.setdefault(leaf.example.untyped_storage()._cdata, []).append(leaf)
    apart: list[Source] = []
    shared: list[Source] = []
    changed: list[Source] = []
    for group in storages.values():
        is_changed = any(leaf.changed for leaf in group)
        if len(group) > 1 and is_changed:
            guard_together(group, guards)
        if len(group) == 1 or is_changed:
            apart.append(group[0].source)
        else:
            shared += [leaf.source for leaf in group]
        changed += [group[0].source] if is_changed else []
    if len(apart) > 1:
        guards.add(Guard("NOT_ALIASED", None, apart))
    for source in shared:
        for other in changed:
            guards.add(Guard("NOT_ALIASED", None, (source, other)))


def guard_together(group: list[Leaf], guards: GuardSet) -> None:
    """What is changed through one of several tensors in a storage is seen in the others just where it is now."""
    first = group[0]
    for leaf in group:
        if leaf.fake._has_symbolic_sizes_strides:
            raise Undecided(f"where the memory of {leaf.source}, which is changed in place, is that of another tensor")
    guards.add(Guard("ALIASED", None, [leaf.source for leaf in group]))
    for leaf in group[1:]:
        operands = Operand(leaf.source, "offset"), Operand(first.source, "offset")
        widths = [each.example.element_size() for each in (leaf, first)]
        distance = leaf.example.storage_offset() * widths[0] - first.example.storage_offset() * widths[1]
        starts = [[("operand", i), ("const", width), ("*",)] for i, width in enumerate(widths)]
        program = (*starts[0], *starts[1], ("-",), ("const", distance), ("==",))
        guards.add(Guard("CONDITION", None, (operands, program)))
    if any(leaf.fake.grad_fn is not None and not is_inner(leaf.fake.grad_fn) for leaf in group):
        guard_lineage(group, guards)


def guard_lineage(group: list[Leaf], guards: GuardSet) -> None:
    """A change that autograd records gives all views of one tensor a new history: these are such views as now."""
    wholes: list[Source] = []
    for positions in together([leaf.example for leaf in group]):
        family = [group[position] for position in positions]
        starts = [leaf for leaf in family if leaf.fake.requires_grad and not leaf.example.requires_grad]
        if starts and len(family) > 1:
            text = f"{starts[0].source} begins to need gradients, and so do views of the same tensor"
            raise SharedMemory(text, "pass a clone, or make the function return the new value")
        whole = whole_of(family[0].example)
        whole_ones = [leaf.source for leaf in family if leaf.example is whole]
        wholes.append(whole_ones[0] if whole_ones else AttrSource(family[0].source, "_base"))
        for leaf in family:
            guards.add(Guard("CALL", leaf.source, (lineage, lineage(leaf.example))))
            if leaf.example is not whole and AttrSource(leaf.source, "_base") is not wholes[-1]:
                guards.add(Guard("SAME", AttrSource(leaf.source, "_base"), wholes[-1]))
    for i, source in enumerate(wholes):
        for other in wholes[:i]:
            guards.add(Guard("NOT_SAME", source, other))


def guard_flags(graph: GraphBuilder, guards: GuardSet) -> None:
    """A view says that it requires gradients when its base does: none is a view of what begins, or ceases, to do so."""
    changing = dict.fromkeys((*graph.grad_flags, *graph.late))
    if not changing:
        return
    leaves = {entry.node: (entry.source, entry.example) for entry in graph.inputs if hasattr(entry.example, "_base")}
    own = [node for node in changing if graph.is_own(node)]
    leaves |= {node: (node.meta["source"], graph.attributes[str(node.target)]) for node in own}
    for leaf in graph.leaves():
        if leaf.example._base is not None and any(leaf.example._base is leaves[node][1] for node in changing):
            text = f"requires_grad_() on a tensor of which {leaf.source} is a view"
            raise SharedMemory(text, "call it before the compiled function is called")
    storages: dict[int, list[tuple[Source, torch.Tensor]]] = {}
    for source, example in leaves.values():
        storages.setdefault(example.untyped_storage()._cdata, []).append((source, example))
    firsts = [group[0][0] for group in storages.values()]
    if len(firsts) > 1:
        guards.add(Guard("NOT_ALIASED", None, firsts))
    for flagged, begins in (leaves[node] for node in changing):
        for group in storages.values():
            for source, example in group:
                if source is flagged:
                    continue
                if example.untyped_storage()._cdata == begins.untyped_storage()._cdata:
                    guards.add(Guard("NOT_SAME", AttrSource(source, "_base"), flagged))
                elif source not in firsts:
                    guards.add(Guard("NOT_ALIASED", None, (flagged, source)))


def guard_leaves(graph: GraphBuilder, guards: GuardSet) -> None:
    """A leaf that is written to where nothing records it is no view, where it would matter.

    After a write PyTorch makes the history of an older view anew, as that of a view of the base. The graph takes a leaf
    to be its own base. If that takes no gradients in truth, nothing comes through such a view any more; if it does, it
    gets those of the leaf as well.
    """
    unrecorded = views_of_nothing(graph)
    for leaf in graph.leaves():
        real = leaf.example
        if id(whole_of(leaf.fake)) in unrecorded and not isinstance(real, torch.nn.Parameter):
            guard_base(leaf, guards)
        if not leaf.changed or not real.requires_grad or isinstance(real, torch.nn.Parameter):
            continue
        if not real.is_leaf:
            guard_result(leaf, guards)
            continue
        older = any(is_older(node, leaf.fake) for node in graph.graph.nodes)
        if base_requires_grad(real) or (older and real._is_view()):
            kind = "view that autograd has not recorded" if base_requires_grad(real) else "leaf that is a view itself"
            text = f"{leaf.source}, a {kind}, is changed in place"
            raise SharedMemory(text, "pass a clone, or make the function return the new value")
        question = base_requires_grad if real._is_view() else torch.Tensor._is_view
        guards.add(Guard("CALL", leaf.source, (question, False)))


def views_of_nothing(graph: GraphBuilder) -> set[int]:
    """The identities of what the program has made views of that autograd does not record."""
    views = [node.meta["val"] for node in graph.graph.nodes if "version" in node.meta]
    return {id(view._base) for view in views if creation(view) == UNRECORDED}


def guard_base(leaf: Leaf, guards: GuardSet) -> None:
    """Views that autograd does not record require gradients if the base does, which may be another than the leaf."""
    if not leaf.fake.requires_grad:
        return
    found = views_constant(leaf.example)
    if found is not views_constant(leaf.fake) or whole_of(leaf.fake).requires_grad is found:
        text = f"a view that autograd does not record of {leaf.source}, which is a view of a tensor without gradients"
        raise SharedMemory(text, "pass a clone of it, or detach() it")
    guards.add(Guard("CALL", leaf.source, (views_constant, found)))


def guard_result(leaf: Leaf, guards: GuardSet) -> None:
    """A result that is written to is no view of what takes no gradients: its history is made anew, and ends there."""
    if views_constant(leaf.example):
        text = f"{leaf.source}, a view of a leaf that is a view itself, is changed in place"
        raise SharedMemory(text, "pass a clone, or make the function return the new value")
    guards.add(Guard("CALL", leaf.source, (views_constant, False)))


def is_older(node: fx.Node, leaf: Any) -> bool:
    """Whether it made a view of the leaf before a write: PyTorch makes the history of such a view anew."""
    fake: Any = node.meta.get("val")
    made = node.meta.get("version")
    if made is None or fake is leaf or fake._base is not whole_of(leaf):
        return False
    return bool(fake.requires_grad and fake._version > made)


#: Operators whose offset counts from the start of a storage.
STRIDED = frozenset(operator._opname for operator in starts.COUNTING)

#: Operators whose results begin in memory where their operand does, which matters to those.
KEEPING = frozenset(operator._opname for operator in starts.KEEPING)


def guard_starts(graph: GraphBuilder, guards: GuardSet) -> None:
    """What is cut from a storage at some offset is what it is only for tensors that begin where they do now.

    A tensor whose geometry changes in place does not show the symbols of its sizes where calls pass it.
    """
    names = {node: str(getattr(node.target, "__name__", node.target)).partition(".")[0] for node in graph.graph.nodes}
    counting = STRIDED | KEEPING if STRIDED.intersection(names.values()) else STRIDED
    for node, name in names.items():
        if name not in counting and name not in RESTRIDING:
            continue
        operand: Any = node.args[0] if node.args else node.kwargs["input"]
        fake = operand.meta["val"]
        for leaf in graph.leaves():
            if isinstance(leaf.source, EarlierSource):
                continue
            if name in RESTRIDING and leaf.fake is fake and fake._has_symbolic_sizes_strides:
                raise Undecided(f"the shape of {leaf.source} after {name}")
            if name in counting and leaf.fake.memory is fake.memory:
                program = ("operand", 0), ("const", leaf.example.storage_offset()), ("==",)
                guards.add(Guard("CONDITION", None, ((Operand(leaf.source, "offset"),), program)))


def keywords_name(code: CodeType) -> str:
    """The name of `**kwargs`, a dict that each call makes anew; empty without one."""
    plain = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    return code.co_varnames[plain] if code.co_flags & CO_VARKEYWORDS else ""


# -- Python objects ------------------------------------------------------------------------------------


def guard_object(source: Source, value: Value, by_source: dict[Source, Value], guards: GuardSet) -> None:
    """An object that the program changes is none of the others of its type that it has met."""
    place: Source = source.base if isinstance(source, InstanceDictSource | StorageSource) else source
    owner = by_source.get(place, value)
    kind = owner.python_type()
    for other_source, other in by_source.items():
        if other is owner or other_source is place or (is_pinned(owner) and is_pinned(other)):
            continue
        if other.python_type() is kind and not (isinstance(other, RegistryValue) and isinstance(owner, RegistryValue)):
            guards.add(Guard("NOT_SAME", place, other_source))
    if not isinstance(source, InstanceDictSource):
        return
    for other_source, other in by_source.items():  # the object's dict may be passed on its own, too
        apart = isinstance(other, RegistryValue) or isinstance(other_source, InstanceDictSource | ConstSource)
        if other.python_type() is dict and not apart:
            guards.add(Guard("NOT_SAME", source, other_source))


def is_pinned(value: Value) -> bool:
    """Whether a value is guarded by identity already."""
    return value.is_constant() or (isinstance(value, ModuleValue) and value.pinned)


def pin_functions(machine: Machine, by_source: dict[Any, Value]) -> None:
    """A function that may be exchanged for one with the same code could bring a cell that has changed."""
    for value in by_source.values():
        if isinstance(value, FunctionValue):
            value.pin(machine)
