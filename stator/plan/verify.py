"""What every plan keeps to; `verify` raises ValueError with the step where one does not.

Names are declared before they are used, once, and not used after they are let go; pieces lie in the arena or in a
block; kernels are the plan's, and what they take lies on their device; symbols are told; failure speaks of steps that
there are. What is printed as it is, names and constants of torch, is no other code. Neighbour: `order.py` (effects and
streams).
"""

from __future__ import annotations

import re
from typing import Any

from stator.base.dtypes import NBYTES
from stator.plan import ir
from stator.plan.order import verify_effects, verify_streams
from stator.sizes.strides import span

#: The records that are a tensor.
TENSORS = (ir.Whole, ir.Turned, ir.Reread)
#: What may be read of the geometry of an input.
GEOMETRY = ("size", "stride")
#: How a constant of torch is written.
CONSTANT = re.compile(r"torch\.\w+|torch\.device\('\w+(:\d+)?'\)")


def verify(plan: ir.Plan) -> None:
    """ValueError where the plan is not well formed."""
    known = [given.name for given in plan.inputs] + [piece.name for piece in plan.arena.pieces]
    if len(set(known)) != len(known):
        raise ValueError(f"{plan.name}: inputs and pieces of the arena have a name in common")
    _verify_symbols(plan)
    for name in (*known, *plan.kernels):
        _named(name, plan.name)
    for piece in plan.arena.pieces:
        if not _lies_in(plan.arena, piece):
            raise ValueError(f"{plan.name}: {piece.name} does not lie in the arena")
    names = set(known)
    _let_go(plan.unused, names, f"{plan.name}: the start")
    for number, step in enumerate(plan.steps):
        _verify_step(step, names, plan, f"{plan.name}: step {number}")
    _used(plan.results, names, f"{plan.name}: the results")
    verify_effects(plan)
    verify_streams(plan)
    _verify_devices(plan)
    failure, end = plan.failure, len(plan.steps)
    if not 0 <= failure.begin <= failure.unsure <= end or not failure.unsure <= (failure.spoiled or end) <= end:
        raise ValueError(f"{plan.name}: {failure} is not about its {end} steps")


def _verify_symbols(plan: ir.Plan) -> None:
    told = ir.symbols_in(tuple([given.number for given in plan.inputs])) | {read.symbol for read in plan.reads}
    inputs = {given.name for given in plan.inputs if given.form is not None}
    for read in plan.reads:
        if read.name not in inputs or read.what not in GEOMETRY:
            raise ValueError(f"{plan.name}: {read} is no read of an input")
    used = ir.symbols_in((plan.arena.pieces, plan.arena.blocks, plan.steps, plan.results))
    if not used <= told:
        raise ValueError(f"{plan.name}: nothing tells {', '.join(sorted(used - told))}")


def _verify_devices(plan: ir.Plan) -> None:
    """What a kernel takes lies where it runs."""
    places, streams = plan.places, (plan.device, *plan.streams)
    for number, step in enumerate(plan.steps):
        if not isinstance(step, ir.Launch):
            continue
        for address in step.addresses:
            name, wanted = address.tensor.name, streams[step.stream]
            if places[name] != wanted:
                raise ValueError(f"{plan.name}: step {number}: {name} is on {places[name]}, the kernel on {wanted}")


def _lies_in(arena: ir.Arena, piece: ir.Piece) -> bool:
    if arena.blocks:
        return piece.block is not None and 0 <= piece.block < len(arena.blocks)
    end = piece.start + span(piece.form.size, piece.form.stride) * NBYTES[piece.form.dtype]
    return piece.block is None and piece.start >= 0 and end <= arena.nbytes


def _verify_step(step: ir.Step, names: set[str], plan: ir.Plan, where: str) -> None:
    match step:
        case ir.Allocate(name):
            _declare(name, names, where)
        case ir.Reuse(name, donor):
            _used(ir.Whole(donor), names, where)
            _declare(name, names, where)
        case ir.Launch(kernel, addresses):
            if kernel not in plan.kernels:
                raise ValueError(f"{where}: there is no kernel {kernel}")
            _used(addresses, names, where)
        case ir.Invoke():
            written = (step.into.tensor,) if step.into is not None else ()
            _used((step.args, step.kwargs, written), names, where)
            for key, _ in step.kwargs:
                _named(key, where)
            if written and step.results:
                raise ValueError(f"{where}: {step.target} writes to memory that it is given, and makes results")
            for result in step.results:
                _declare(result.name, names, where)
        case ir.Release(released):
            _let_go(released, names, where)


def _named(name: str, where: str) -> None:
    if not name.isidentifier():
        raise ValueError(f"{where}: {name!r} is no name")


def _declare(name: str, names: set[str], where: str) -> None:
    _named(name, where)
    if name in names:
        raise ValueError(f"{where}: {name} is declared twice")
    names.add(name)


def _let_go(released: tuple[str, ...], names: set[str], where: str) -> None:
    for name in released:
        if name not in names:
            raise ValueError(f"{where}: {name} is let go, and was not there")
        names.remove(name)


def _used(item: Any, names: set[str], where: str) -> None:
    """Tensors, constants of torch, and tuples of these, among what has no names."""
    kind = type(item)
    if kind is tuple:
        for part in item:
            _used(part, names, where)
    elif kind is ir.Address:
        _used(item.tensor, names, where)
    elif kind is ir.Torch:
        if not CONSTANT.fullmatch(item.expression):
            raise ValueError(f"{where}: {item.expression!r} is no constant of torch")
    elif kind in TENSORS and item.name not in names:
        raise ValueError(f"{where}: {item.name} is used, and is not there")
