"""Plans as the C core runs them: names become registers, symbols numbers, operators callables.

`make(plan, kernels)` gives what a linked graph is, from a list of inputs to a tuple, or None where the C core does not
run the plan: on devices that are no target's, with kernels that are not its own, or with a torch whose C interface is
not as it is known.
`plan/text.py` is the same plan as Python, which is run there; both give the same bits.
Neighbours: `extern.py` binds operators, `csrc/executor.c` runs the steps, `csrc/scratch.c` has the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stator import targets
from stator.base.device import HOST, kind_of
from stator.base.dtypes import NBYTES, TORCH
from stator.base.errors import mark_partly_done, mark_step
from stator.base.placement import place
from stator.plan import ir
from stator.plan.places import escapes
from stator.plan.text import step_text
from stator.runtime import extern
from stator.runtime.arena import Piece, allocate, view, views
from stator.runtime.undo import keep, put_back
from stator.sizes import Size
from stator.sizes.real import Bits
from stator.sizes.writing import evaluate, postfix

if TYPE_CHECKING:
    import torch

    from stator._native import Executor

#: Bytes that a graph may touch and keep the GIL: what it computes of them takes some microseconds.
BRIEF = 16 << 10
#: A size for the C core: a number, or a postfix program over numbers.
Extent = int | tuple[tuple[Any, ...], ...]


def make(plan: ir.Plan, kernels: Mapping[str, Any], reuse: bool = True) -> Executor | None:
    """What runs the plan in C, or None; `reuse`: large results take the memory of earlier ones. ValueError where the
    plan's names do not fit together.
    """
    from stator._native import Executor, Kernel  # needs torch, which this package does not

    kinds = _kinds(plan)
    if not all(map(targets.has, kinds)) or any(type(kernel) is not Kernel for kernel in kernels.values()):
        return None
    try:
        return Executor(*_Assembly(plan, kernels, kinds, reuse).arguments())
    except NotImplementedError:
        return None


def _kinds(plan: ir.Plan) -> set[str]:
    """The types of devices that it has memory on."""
    made = [step.device for step in plan.steps if isinstance(step, ir.Allocate)]
    return {kind_of(device) for device in (plan.device, *made, *[given.device for given in plan.inputs])}


def _touched(plan: ir.Plan) -> float:
    """The bytes of all tensors; infinite where sizes are symbolic, or an operator runs code of others."""
    forms = [step.form for step in plan.steps if isinstance(step, ir.Allocate)]
    forms += [piece.form for piece in plan.arena.pieces]
    given = [value.form for value in plan.inputs]
    known = [form for form in (*forms, *given) if form is not None and all(type(n) is int for n in form.size)]
    if plan.externs or len(known) < len(forms) + len(given):
        return math.inf
    return sum(math.prod(map(int, form.size)) * NBYTES[form.dtype] for form in known)


class _Assembly:
    """The arguments of an `Executor` under construction; registers that are let go are taken again."""

    __slots__ = (
        "count",
        "free",
        "kernels",
        "kinds",
        "numbers",
        "operators",
        "places",
        "plan",
        "registers",
        "reuse",
        "torch",
    )

    def __init__(self, plan: ir.Plan, kernels: Mapping[str, Any], kinds: set[str], reuse: bool) -> None:
        import torch  # the package itself does not need torch

        self.plan, self.kernels, self.kinds, self.reuse, self.torch = plan, kernels, kinds, reuse, torch
        self.registers: dict[str, int] = {}
        self.free: list[int] = []
        self.count = 0
        #: The number of each symbol.
        self.numbers: dict[str, int] = {}
        #: The numbers of allocations for which a caller may have memory.
        self.places = {step.name: number for number, step in enumerate(escapes(plan).places)}
        #: Operators that are bound already, by how.
        self.operators: dict[tuple[str, str], Callable[..., Any]] = {}

    def arguments(self) -> Iterator[Any]:
        """In the order in which `Executor` takes them."""
        plan = self.plan
        for piece in plan.arena.pieces:  # the first registers
            self._declare(piece.name)
        inputs = tuple([self._input(given) for given in plan.inputs])
        reads = tuple([self._read(read) for read in plan.reads])
        unused = self._release(plan.unused)
        kept: tuple[int, ...] = ()
        steps = []
        for number, step in enumerate(plan.steps):
            if number == plan.failure.begin:
                kept = tuple([self._register(name) for name in plan.failure.kept])
            steps.append(self._step(step))
        results = tuple([self._argument(result) for result in plan.results])
        yield from (self.count, len(self.numbers), inputs, reads, unused, self._scratch(), tuple(steps), results)
        yield from (view, _Failing(plan).tell, keep if kept else None, kept, plan.failure.begin)
        yield next(iter(self.kinds)) if len(self.kinds) == 1 else ""
        yield self.kinds == {HOST} and _touched(plan) <= BRIEF

    # -- names

    def _declare(self, name: str) -> int:
        if name in self.registers:
            raise ValueError(f"{self.plan.name}: {name} is declared twice")
        if self.free:
            register = self.free.pop()
        else:
            register, self.count = self.count, self.count + 1
        self.registers[name] = register
        return register

    def _register(self, name: str) -> int:
        found = self.registers.get(name)
        if found is None:
            raise ValueError(f"{self.plan.name}: {name} is used, and is not there")
        return found

    def _release(self, names: Sequence[str]) -> tuple[int, ...]:
        released = tuple([self._register(name) for name in names])
        for name in names:
            del self.registers[name]
        self.free.extend(released)
        return released

    def _input(self, given: ir.Input) -> int:
        if given.form is not None:
            return self._declare(given.name)
        return ~self.numbers.setdefault(given.name, len(self.numbers))

    def _read(self, read: ir.Read) -> tuple[int, int, bool, int]:
        number = self.numbers.setdefault(read.symbol, len(self.numbers))
        return number, self._register(read.name), read.what == "stride", read.dim

    # -- sizes

    def _extent(self, extent: Any) -> Extent:
        if not isinstance(extent, Size):
            return int(extent)
        return postfix(extent, {symbol: self.numbers[symbol.name] for symbol in extent.symbols})

    def _extents(self, extents: Sequence[Any]) -> tuple[Extent, ...]:
        return tuple([n if type(n) is int else self._extent(n) for n in extents])

    # -- steps

    def _step(self, step: ir.Step) -> tuple[Any, ...]:
        match step:
            case ir.Allocate(name, form):
                shape = self._extents(form.size), self._extents(form.stride)
                device = self.torch.device(step.device)
                place = device, device.type, targets.toolchain(step.device).number(step.device)
                kept = step.large, step.large and self.reuse
                number = self.places.get(name, -1)
                return "allocate", self._declare(name), self._dtype(form.dtype), *shape, *kept, *place, number
            case ir.Reuse(name, donor, form):
                taken = self._register(donor)
                if form is None:
                    return "reuse", self._declare(name), taken
                return "reuse", self._declare(name), taken, self._extents(form.size), self._extents(form.stride)
            case ir.Launch(kernel, addresses, sizes):
                registers = tuple([self._start(address.tensor) for address in addresses])
                moves = tuple([address.moved for address in addresses])
                return "launch", self.kernels[kernel], registers, moves, self._extents(sizes)
            case ir.Invoke():
                return self._invoke(step)
            case ir.Release(names):
                return "release", self._release(names)
            case ir.Wait():
                raise NotImplementedError("the C core has one stream")

    def _start(self, tensor: ir.Tensor) -> int:
        """The register of what a kernel takes, of which it asks the address only."""
        if isinstance(tensor, ir.Reread) and tensor.offset != 0:
            raise ValueError(f"{self.plan.name}: a kernel takes {tensor}, which begins somewhere else")
        return self._register(tensor.name)

    def _invoke(self, step: ir.Invoke) -> tuple[Any, ...]:
        arguments = [self._argument(value) for value in step.args]
        arguments += [self._argument(value) for _, value in step.kwargs]
        names = [name for name, _ in step.kwargs]
        if step.into is not None:
            arguments.append(self._argument(step.into.tensor))
            operator = self._bound("into", step.into.target)
            return "call", step.into.target, operator, tuple(arguments), (*names, "out"), (), False, None
        wanted = tuple([result.position for result in step.results])
        operator = self._bound("recording" if extern.wants_workspace(step.target, wanted) else "plain", step.target)
        promises = []
        for result in step.results:
            form = self._extents(result.size), self._extents(result.stride)
            promises.append((result.position, self._declare(result.name), *form))
        settle = extern.Settling(step.target, wanted)
        single = extern.gives_one(step.target)
        return "call", step.target, operator, tuple(arguments), tuple(names), tuple(promises), single, settle

    def _bound(self, how: str, target: str) -> Callable[..., Any]:
        found = self.operators.get((how, target))
        if found is None:
            found = self.operators[how, target] = getattr(extern, how)(target)
        return found

    # -- arguments

    def _argument(self, value: ir.Argument) -> Any:
        match value:
            case ir.Whole(name):
                return "whole", self._register(name)
            case ir.Turned(name):
                return "turned", self._register(name)
            case ir.Reread(name, form, offset, casts):
                shown = (self._register(name), self._extents(form.size), self._extents(form.stride))
                if casts:
                    return "retyped", *shown, self._extent(offset), self._dtype(form.dtype)
                return "view", *shown, self._extent(offset)
            case ir.Torch(expression):
                return self._constant(expression)
            case Size():
                return "number", self._extent(value)
            case Bits(size):
                return "bits", self._extent(size)
            case tuple():
                return [self._argument(item) for item in value]
        return value

    def _constant(self, expression: str) -> Any:
        """The constant of torch that is written `torch.float32` or `torch.device('cpu')`."""
        name = expression.removeprefix("torch.")
        if name.startswith("device("):
            return self.torch.device(name.removeprefix("device('").removesuffix("')"))
        return getattr(self.torch, name)

    def _dtype(self, name: str) -> torch.dtype:
        found: torch.dtype = getattr(self.torch, TORCH[name])
        return found

    # -- memory

    def _scratch(self) -> tuple[Any, ...] | None:
        """How many pieces there are, the numbers that they depend on, and what places and shows them."""
        arena = self.plan.arena
        if not arena.pieces:
            return None
        told = tuple([self.numbers[name] for name in self.plan.told])
        layout = _Layout(self.plan, [getattr(self.torch, TORCH[piece.form.dtype]) for piece in arena.pieces])
        shown = views if layout.shown else None
        toolchain = targets.toolchain(self.plan.device)
        number, stream = toolchain.number(self.plan.device), toolchain.stream_getter()
        made = partial(allocate, device=f"{kind_of(self.plan.device)}:{number}" if stream else self.plan.device)
        return len(arena.pieces), told, layout.lay_out, shown, made, number, stream


class _Layout:
    """Where the pieces of a plan lie for values of its symbols, and which are needed as tensors."""

    __slots__ = ("arena", "dtypes", "names", "shown")

    def __init__(self, plan: ir.Plan, dtypes: list[torch.dtype]) -> None:
        self.arena, self.dtypes = plan.arena, dtypes
        self.names = plan.told
        calls = [(step.args, step.kwargs, step.into) for step in plan.steps if isinstance(step, ir.Invoke)]
        #: The names of pieces that operators take, or that are results.
        self.shown = ir.names_in((tuple(calls), plan.results)) & {piece.name for piece in plan.arena.pieces}

    def lay_out(self, *sizes: int) -> tuple[int, tuple[int, ...], list[Piece | None]]:
        """Bytes in all, where each piece starts, and as what it is shown."""
        values = dict(zip(self.names, sizes, strict=True))
        arena = self.arena
        nbytes, starts = arena.nbytes, [0] * len(arena.blocks)
        if arena.blocks:
            starts, nbytes = place([(_evaluate(b.nbytes, values), b.first, b.last) for b in arena.blocks])
        found, pieces = [], []
        for piece, dtype in zip(arena.pieces, self.dtypes, strict=True):
            start = _evaluate(piece.start, values) + (0 if piece.block is None else starts[piece.block])
            size, stride = [tuple([_evaluate(n, values) for n in s]) for s in (piece.form.size, piece.form.stride)]
            found.append(start)
            pieces.append(Piece(start, dtype, size, stride) if piece.name in self.shown else None)
        return nbytes, tuple(found), pieces


def _evaluate(extent: Any, values: Mapping[str, int]) -> int:
    """The value of a size for values of its symbols, by name."""
    return (
        extent if type(extent) is int else evaluate(extent, {symbol: values[symbol.name] for symbol in extent.symbols})
    )


class _Failing:
    """What happens where a step raises: memory is put back, and the error says which step it was."""

    __slots__ = ("plan",)

    def __init__(self, plan: ir.Plan) -> None:
        self.plan = plan

    def tell(self, number: int, error: BaseException, kept: Any) -> None:
        """`number`: of the step, or how many there are for the results; `kept`: what `keep` gave, or None."""
        failure = self.plan.failure
        if kept is not None and number < failure.unsure:
            put_back(kept)
        if failure.spoiled is not None and number >= failure.spoiled:
            mark_partly_done(error)
        if number < len(self.plan.steps):
            mark_step(error, self.plan.name, number)
            error.add_note(f"in step {number} of the compiled graph {self.plan.name}: {step_text(self.plan, number)}")
