"""The grammar of programs, kernels and schedules, as checks. Each raises `GrammarError` with the object's name.

Checked: names are defined before use and written once where they must be; dtypes agree; every axis belongs to its
nest; every access lies inside its buffer by `bounds()`, or at its points where these are too wide (those under a mask
aside: the mask says more than bounds do); a memory plan never gives two live buffers the same bytes. With symbolic
sizes all of it is checked for given values of the symbols, or for their hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice, product
from math import prod

from stator.loop import scalar
from stator.loop.collision import MODES, scatters
from stator.loop.expr import SPECIAL, Expr, postorder, scans
from stator.loop.index import Axis, Index
from stator.loop.kernel import Call, Kernel, Launch, MemoryPlan, Schedule, Step
from stator.loop.memory import extents, lifetimes
from stator.loop.nest import Buffer, Extern, Nest, Program, View
from stator.loop.resize import program_at, schedule_at
from stator.sizes import Extent, Symbol, hint

#: Points of an index that are asked one by one, at most.
_POINTS = 1 << 14


class GrammarError(ValueError):
    """A program, kernel or schedule breaks its own rules."""


def _require(condition: object, where: str, message: str) -> None:
    if not condition:
        raise GrammarError(f"{where}: {message}")


# -- expressions -----------------------------------------------------------------------------------


def verify_values(
    roots: Iterable[Expr], axes: frozenset[Axis], dtypes: Mapping[str, tuple[str, Extent]], where: str
) -> None:
    """Ops, dtypes, axes, and loads within `dtypes` (buffer name -> dtype, elements)."""
    roots = list(roots)
    unmasked = _reached_without_mask(roots)
    for node in postorder(roots):
        _require(node.axes <= axes, where, f"{node} uses axes {sorted(a.name for a in node.axes - axes)} of no loop")
        if node.op == "load":
            name, index = node.attr
            _require(name in dtypes, where, f"loads from unknown buffer {name}")
            dtype, elements = dtypes[name]
            _require(node.dtype == dtype, where, f"loads {name} as {node.dtype}, but it is {dtype}")
            if node in unmasked:
                _verify_bounds(index, elements, f"{where}: load of {name}")
        elif node.op not in SPECIAL:
            _require(node.op in scalar.OPS, where, f"unknown operator {node.op}")
            given = scalar.result_dtype(node.op, tuple(a.dtype for a in node.args))
            _require(given == node.dtype, where, f"{node} has dtype {node.dtype}, its operands give {given}")


def _reached_without_mask(roots: Iterable[Expr]) -> set[Expr]:
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend((node.args[0], node.args[2]) if node.op == "masked" else node.children)
    return seen


def _verify_bounds(index: Index, elements: Extent, where: str) -> None:
    if not index.within(elements) and not _stays_inside(index, elements):
        low, high = index.bounds()
        raise GrammarError(f"{where}: index {index} in {low} … {high} leaves 0 … {elements - 1}")


def _stays_inside(index: Index, elements: Extent) -> bool:
    """Whether no point is outside, where bounds cannot tell: in `x // 2 - 3*y` they take x and y for independent.

    Of an index with many points those are asked where axes begin, end or are half done, and their neighbours.
    """
    axes = sorted(index.axes(), key=lambda axis: axis.name)
    if index.has_indirect or any(type(axis.size) is not int for axis in axes):
        return False
    sizes = [hint(axis.size) for axis in axes]
    chosen = [range(size) if prod(sizes) <= _POINTS else _marks(size) for size in sizes]
    values = (dict(zip(axes, point, strict=True)) for point in product(*chosen))
    return all(0 <= index.evaluate(value) < elements for value in islice(values, _POINTS))


def _marks(size: int) -> list[int]:
    return sorted({at for mark in (0, size // 2, size - 1) for at in (mark - 1, mark, mark + 1) if 0 <= at < size})


# -- programs --------------------------------------------------------------------------------------


def verify_program(program: Program, values: Mapping[Symbol, int] | None = None) -> None:
    """Raise GrammarError unless the program is well formed."""
    if program.symbols:
        program = program_at(program, values or {symbol: symbol.hint for symbol in program.symbols})
        _require(not program.symbols, program.name, "a symbol has no value")
    known: dict[str, tuple[str, Extent]] = {}
    for buffer in program.inputs:
        _require(buffer.name not in known, program.name, f"input {buffer.name} given twice")
        known[buffer.name] = buffer.dtype, buffer.span
    inputs = frozenset(known)
    _require(set(program.mutated) <= inputs, program.name, "mutated names must be inputs")
    for node in program.nodes:
        if isinstance(node, Nest):
            _verify_nest(node, known)
            name = node.buffer.name
            _require(name not in inputs or name in program.mutated, name, "an input is written but not in mutated")
            known.setdefault(name, (node.buffer.dtype, node.buffer.span))
        else:
            _verify_extern(node, known)
    _verify_views(_views(program.outputs), known, f"{program.name} outputs")


def _verify_nest(nest: Nest, known: Mapping[str, tuple[str, Extent]]) -> None:
    where = f"nest {nest.buffer.name}"
    axes = nest.axes + nest.reduce_axes
    _require(len(set(axes)) == len(axes) == len({a.name for a in axes}), where, "an axis occurs twice")
    _require(nest.value.dtype == nest.buffer.dtype, where, f"value is {nest.value.dtype}, buffer {nest.buffer.dtype}")
    _require(nest.mode in MODES and nest.mode != "sum", where, f"mode {nest.mode} is none of a nest's")
    _require(nest.mode == "store" or nest.buffer.name in known, where, "changes a buffer that nothing initialised")
    scanning = scans([nest.value])
    reducing = scanning or nest.value.level > 0
    _require(bool(nest.reduce_axes) == reducing, where, "reduce axes without a reduction, or the reverse")
    if scanning:
        _require(nest.mode == "store", where, "what is scanned is stored")
    else:
        _verify_outer(nest.value, frozenset(nest.reduce_axes), where)
    _require(nest.index.axes() <= frozenset(nest.points), where, "the store's index uses axes of no outer loop")
    if all(axis.size for axis in axes):
        indirect = [atom.expr for atom in nest.index.indirects()]
        verify_values([nest.value, *indirect], frozenset(axes), known, where)  # type: ignore[list-item]
        _verify_bounds(nest.index, nest.buffer.span, where)


def _verify_outer(value: Expr, reduced: frozenset[Axis], where: str) -> None:
    """Outside of reductions nothing may depend on the reduce axes."""
    stack, seen = [value], set()
    while stack:
        node = stack.pop()
        if node in seen or node.op == "reduce":
            continue
        seen.add(node)
        below = node.children
        _require(below or reduced.isdisjoint(node.axes), where, f"{node} uses a reduce axis outside of a reduction")
        stack.extend(below)


def _verify_extern(extern: Extern, known: dict[str, tuple[str, Extent]]) -> None:
    _verify_views(extern.views(), known, f"extern {extern.name}")
    for buffer in extern.outputs:
        _require(buffer.name not in known, f"extern {extern.name}", f"output {buffer.name} exists already")
        known[buffer.name] = buffer.dtype, buffer.span


def _views(outputs: Iterable[object]) -> list[View]:
    return [output for output in outputs if isinstance(output, View)]


def _verify_views(views: Iterable[View], known: Mapping[str, tuple[str, Extent]], where: str) -> None:
    for view in views:
        _require(view.buffer in known, where, f"unknown buffer {view.buffer}")
        span = Buffer(view.buffer, "u8", view.size, view.stride).span
        inside = span == 0 or (view.offset >= 0 and view.offset + span <= known[view.buffer][1])
        _require(inside, where, f"view of {view.buffer} leaves its buffer")


# -- kernels and schedules -------------------------------------------------------------------------


def verify_kernel(kernel: Kernel) -> None:
    """Raise GrammarError unless the kernel is well formed and canonical in its names."""
    where = "kernel"
    if kernel.attention is not None:
        _require(not kernel.axes and not kernel.stores, where, "attention has no loops of its own")
        count = len(kernel.attention.tensors) + len(kernel.attention.loads) + kernel.attention.spares
        _require(len(kernel.params) == count, where, "one param for each tensor")
        return
    _require([p.name for p in kernel.params] == [f"p{i}" for i in range(len(kernel.params))], where, "params are p0, …")
    for prefix, group in (("x", kernel.axes), ("r", kernel.reduce_axes)):
        _require(
            [a.name for a in group] == [f"{prefix}{i}" for i in range(len(group))], where, f"axes are {prefix}0, …"
        )
    axes = frozenset(kernel.axes + kernel.reduce_axes)
    known = {p.name: (p.dtype, p.numel) for p in kernel.params}
    roles = {p.name: p.role for p in kernel.params}
    stored = {store.buffer for store in kernel.stores}
    runs = all(axis.size for axis in axes)  # a loop of no iterations touches nothing
    if runs:
        verify_values([root for store in kernel.stores for root in store.roots], axes, known, where)
    for store in kernel.stores:
        _require(store.buffer in known, where, f"stores to unknown {store.buffer}")
        _require(store.value.dtype == known[store.buffer][0], where, f"store to {store.buffer} has another dtype")
        _require(store.mode in MODES and store.space in ("outer", "inner"), where, "mode and space")
        if runs:
            _verify_bounds(store.index, known[store.buffer][1], f"{where}: store to {store.buffer}")
        inner = store.value in kernel.inner or kernel.is_inner(store.index)
        _require(not inner or store.space == "inner", where, f"{store.buffer} depends on reduce axes, in outer space")
    loaded = {node.attr[0] for node in kernel.nodes if node.op == "load"}
    for name, role in roles.items():
        kept = any(store.buffer == name and scatters(store) for store in kernel.stores)
        expected = ("inout" if name in loaded or kept else "out") if name in stored else "in"
        _require(role == expected, where, f"{name} is {expected}, not {role}")


def verify_schedule(schedule: Schedule, values: Mapping[Symbol, int] | None = None) -> None:
    """Raise GrammarError unless kernels, steps and memory fit each other."""
    if schedule.symbols:
        schedule = schedule_at(schedule, values or {symbol: symbol.hint for symbol in schedule.symbols})
    for kernel in schedule.kernels:
        verify_kernel(kernel)
    known = {buffer.name for buffer in schedule.inputs}
    for step in schedule.steps:
        match step:
            case Launch():
                _verify_launch(step, schedule, known)
            case Call(extern=extern):
                for view in extern.views():
                    _require(view.buffer in known, extern.name, f"{view.buffer} is read before it is written")
                known.update(buffer.name for buffer in extern.outputs)
    for view in _views(schedule.outputs):
        _require(view.buffer in known, schedule.name, f"output {view.buffer} is never written")
    verify_memory(
        schedule.steps, schedule.buffers, schedule.memory, {b.name for b in schedule.inputs}, schedule.outputs
    )


def _verify_launch(step: Launch, schedule: Schedule, known: set[str]) -> None:
    _require(step.kernel in schedule.kernels, schedule.name, "launches a kernel that is not listed")
    _require(len(step.args) == len(step.kernel.params), schedule.name, "one argument for each param")
    bound = [pointer.buffer for pointer in step.args]
    for pointer, param in zip(step.args, step.kernel.params, strict=True):
        name = pointer.buffer
        buffer = schedule.buffers[name]
        _require(buffer.dtype == param.dtype, name, f"is {buffer.dtype}, the kernel takes {param.dtype}")
        inside = param.numel == 0 or (pointer.offset >= 0 and pointer.offset + param.numel <= buffer.span)
        _require(inside, name, f"has {buffer.span} elements, the kernel takes {param.numel} from {pointer.offset} on")
        _require(param.role == "in" or bound.count(name) == 1, name, "is bound twice and written")
        _require(param.role == "out" or name in known, name, "is read before it is written")
        if param.role != "in":
            known.add(name)


def verify_memory(
    steps: Iterable[Step],
    buffers: Mapping[str, Buffer],
    memory: MemoryPlan,
    inputs: set[str],
    outputs: Iterable[object],
) -> None:
    """No two buffers that live at once share bytes, but for the declared in-place pairs at their own step."""
    steps = list(steps)
    live = lifetimes(steps, [view.buffer for view in _views(outputs)])
    for name in live:
        homes = (name in inputs) + (name in memory.offsets) + (name in memory.allocated) + (name in memory.returned)
        _require(homes == 1, name, f"has {homes} places in memory")
    for view in _views(outputs):
        _require(view.buffer not in memory.offsets, view.buffer, "is an output and lives in the arena")
    pairs = set(memory.aliases)
    for one, other in pairs:
        _require(live[one][0] == live[other][1], one, f"takes the memory of {other}, which something reads later")
    placed = [(name, *extents(buffers[name], offset)) for name, offset in memory.offsets.items()]
    for i, (one, start, end) in enumerate(placed):
        _require(end <= memory.arena_bytes, one, "leaves the arena")
        for other, begin, stop in placed[:i]:
            if start >= stop or begin >= end:
                continue
            (first, last), (born, dead) = live[one], live[other]
            if last < born or dead < first:
                continue
            in_place = ((one, other) in pairs and first == dead) or ((other, one) in pairs and born == last)
            _require(in_place, one, f"shares bytes with {other} while both live")
