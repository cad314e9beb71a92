"""Operators that write to memory which another operand reads: what eager refuses, and what it leaves to chance.

What PyTorch checks of such memory depends on how it lies there, so the kernel is asked: it runs on zeros that lie in
memory as the operands do. It checks little of tensors that have gaps, and nothing of matrices that it multiplies: then
it reads some of what it has already written, as the order of its loops has it. No graph of values says that, so such a
call is not captured. Elementwise operators may read each element where they write it; others may share nothing.

Invariant: nothing of the program is read or written, and what is decided of symbolic numbers is recorded as a guard.
Neighbour: `refusals.py` asks this for operators that write.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.execute import OperatorFacts, argument
from stator.fake.symbolic import size_of
from stator.fake.tensor import FakeTensor, Memory
from stator.sizes import hint
from stator.sizes.strides import span

#: Runs an operator on real arguments that stand for fakes: the error that it raises, or None.
Run = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[[Any], Any]], Exception | None]
#: What memory is filled with: positions are in range, and if that will not do, no divisor is zero.
VALUES = (0, 1)
#: Elementwise operators that no tag calls so.
ELEMENTWISE = {
    *("copy", "masked_fill", "where", "floor_divide", "_add_relu", "__iand__", "__ior__", "__irshift__", "__rshift__"),
    *("greater", "greater_equal", "less", "less_equal", "not_equal", "multiply", "subtract", "divide", "arctan2"),
}
#: Whose number is read before anything is written, where it is a tensor.
FILLING = {"fill", "masked_fill", "index_fill"}
#: What is said where it is refused.
WHY = "it reads memory that it writes to, so that its result depends on the order of its loops"
HINT = "clone the operand that shares memory with what is written to"
#: How many elements are looked up one by one.
MOST = 1 << 16

#: Sizes, strides, offset: in units that the tensors that are compared have in common.
Place = tuple[Sequence[Any], Sequence[Any], Any]


def check(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> None:
    """Raises what the operator raises for operands that share memory; where it raises nothing, a refusal."""
    assert plan.written is not None
    targets = [argument(func, args, kwargs, position) for position in plan.written]
    operands = list(_operands(func, plan, args, kwargs))
    for target in targets:
        if not isinstance(target, FakeTensor):
            continue
        others = [item for item in targets if item is not target] + operands
        shared = shared_memory(_name(func), others, target)
        if shared or _repeats(target):
            error = _run_in_place(func, args, kwargs, run)
            if error is not None:
                raise error
        if any(not are_disjoint(item, target) for item in shared):
            raise Unsupported(func, WHY, HINT)


def shared_memory(name: str, operands: Iterable[Any], target: FakeTensor) -> list[FakeTensor]:
    """Which operands share memory with what is written to, less those that are read element by element as it is."""
    shared = [item for item in operands if isinstance(item, FakeTensor) and _share_memory(item, target)]
    return [item for item in shared if not (_is_elementwise(name) and _same_place(item, target))]


def _operands(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[FakeTensor]:
    """The tensors that are read, other than by being written to."""
    for position, parameter in enumerate(func._schema.arguments):
        if position in (plan.written or ()) or (parameter.name == "value" and _name(func) in FILLING):
            continue
        for item in flat([argument(func, args, kwargs, position)]):
            if isinstance(item, FakeTensor):
                yield item


def flat(args: Any) -> Iterator[Any]:
    """The arguments, and those in lists among them."""
    for arg in args:
        if isinstance(arg, (list, tuple)):
            yield from flat(arg)
        else:
            yield arg


def _name(func: Any) -> str:
    """The name of the operator, without the mark of those that write to the first argument."""
    name: str = func._opname
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def _is_elementwise(name: str) -> bool:
    """Whether each element of the result is made of those of the operands at the same place."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return name in ELEMENTWISE or any(torch.Tag.pointwise in overload.tags for overload in overloads)


# ---- where elements lie ----------------------------------------------------------------------------------------------


def _share_memory(item: FakeTensor, target: FakeTensor) -> bool:
    return item is target or (item.memory is not None and item.memory is target.memory)


def _place(tensor: FakeTensor) -> tuple[list[int], list[int], int]:
    """Its size, strides and offset, those of the call at hand where they are symbolic."""
    size, stride = ([hint(size_of(n)) for n in extents] for extents in (tensor.shape, tensor.stride()))
    return size, stride, hint(size_of(tensor.storage_offset()))


def _repeats(tensor: FakeTensor) -> bool:
    """Whether some of its elements are one in memory."""
    size, stride, _ = _place(tensor)
    return any(n > 1 and step == 0 for n, step in zip(size, stride, strict=True))


def _same_place(item: FakeTensor, target: FakeTensor) -> bool:
    """Whether every element lies where the same element of the other does, whatever symbolic sizes become."""
    if item is target:
        return True
    if item.itemsize != target.itemsize or size_of(item.storage_offset()) != size_of(target.storage_offset()):
        return False
    if [size_of(n) for n in item.shape] != [size_of(n) for n in target.shape]:
        return False
    steps = zip(item.shape, item.stride(), target.stride(), strict=True)
    return all(n == 1 or size_of(a) == size_of(b) for n, a, b in steps)


def are_disjoint(item: FakeTensor, target: FakeTensor) -> bool:
    """Whether no element of one lies where one of the other does; what that takes of symbolic sizes becomes a guard."""
    places = _in_units(item, target, _place)
    symbolic = item._has_symbolic_sizes_strides or target._has_symbolic_sizes_strides
    if any(0 in size for size, _, _ in places):
        found = True
    else:
        steps = [(which, dim) for which, (size, _, _) in enumerate(places) for dim in range(len(size))]
        for first, second in ((0, 1), (1, 0)):
            for period in (None, *steps):
                if _miss(places, first, second, period):
                    return not symbolic or _miss(_in_units(item, target, _symbolic), first, second, period)
        found = _found_apart(*places)
    if found and symbolic:
        _in_units(item, target, _fixed)
    return found


def _in_units(item: FakeTensor, target: FakeTensor, place: Callable[[FakeTensor], Place]) -> list[Place]:
    """Where both lie, in elements; in bytes, where elements are of different lengths."""
    places = [place(item), place(target)]
    if item.itemsize == target.itemsize:
        return places
    return [
        ([*size, tensor.itemsize], [*(step * tensor.itemsize for step in stride), 1], offset * tensor.itemsize)
        for tensor, (size, stride, offset) in zip((item, target), places, strict=True)
    ]


def _symbolic(tensor: FakeTensor) -> Place:
    return list(tensor.shape), list(tensor.stride()), tensor.storage_offset()


def _fixed(tensor: FakeTensor) -> Place:
    """The numbers of the call at hand, which the graph is made for from here on."""
    return [int(n) for n in tensor.shape], [int(n) for n in tensor.stride()], int(tensor.storage_offset())


def _miss(places: list[Place], first: int, second: int, period: tuple[int, int] | None) -> bool:
    """Whether the second begins where the first has ended: in memory, or in each of its periods (a stride of one)."""
    distance = places[second][2] - places[first][2]
    if period is None:
        return bool(distance > _reach(places[first], None))
    which, dim = period
    length = places[which][1][dim]
    if length < 2:
        return False
    distance = distance % length
    reaches = [_reach(places[i], length) for i in (first, second)]
    return bool(distance > reaches[0]) and bool(distance + reaches[1] < length)


def _reach(place: Place, period: Any) -> Any:
    """How far from the first the last element lies, less the steps that are whole periods."""
    size, stride, _ = place
    steps = zip(size, stride, strict=True)
    return sum([(n - 1) * step for n, step in steps if period is None or step % period != 0])


def _found_apart(first: Place, second: Place) -> bool:
    """Whether they have no position in common; where they are many, that they may."""
    if max(math.prod(first[0]), math.prod(second[0])) > MOST:
        return False
    return _positions(first).isdisjoint(_positions(second))


def _positions(place: Place) -> set[int]:
    size, stride, offset = place
    lines = [[i * step for i in range(n)] for n, step in zip(size, stride, strict=True)]
    return {offset + sum(steps) for steps in itertools.product(*lines)}


# ---- the kernel on zeros that lie as the operands do -----------------------------------------------------------------


def _run_in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Exception | None:
    """What the kernel raises for memory of zeros, and for that of other numbers."""
    memories: dict[Memory | int, list[FakeTensor]] = {}
    for arg in flat((args, tuple(kwargs.values()))):
        if isinstance(arg, FakeTensor):
            if arg.device.type != "cpu":
                return None
            memories.setdefault(id(arg) if arg.memory is None else arg.memory, []).append(arg)
    error = None
    for value in VALUES:
        error = run(func, args, kwargs, _Mirrored(memories.values(), value).one)
        if error is None:
            break
    return error


class _Mirrored:
    """Real tensors that lie in memory as fakes do."""

    def __init__(self, memories: Iterable[list[FakeTensor]], value: int) -> None:
        self.memories = memories
        self.value = value
        self.real: dict[int, torch.Tensor] = {}

    def one(self, arg: Any) -> Any:
        """That of an argument."""
        if isinstance(arg, (list, tuple)):
            return [self.one(item) for item in arg]
        if isinstance(arg, torch.Generator):
            return None
        if isinstance(arg, torch.SymInt):
            return hint(size_of(arg))
        if isinstance(arg, FakeTensor):
            if not self.real:
                self._make()
            return self.real[id(arg)]
        return arg

    def _make(self) -> None:
        for views in self.memories:
            places = [(view, _place(view)) for view in views]
            nbytes = max((offset + span(size, stride)) * view.element_size() for view, (size, stride, offset) in places)
            memory = torch.full((nbytes,), self.value, dtype=torch.uint8).untyped_storage()
            for view, (size, stride, offset) in places:
                self.real[id(view)] = torch.empty(0, dtype=view.dtype).set_(memory, offset, size, stride)
