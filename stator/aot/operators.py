"""The functional form of mutating overloads: `add_.Tensor` is `add.Tensor`, `add.out` too.

Found by name and schema; `IRREGULAR` has those whose name does not follow the rule. Neighbour: `tracer.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from stator.fake.execute import plan_of

aten = torch.ops.aten


def _overload(name: str) -> Any:
    """The overload of a qualified name ("normal_functional.default"), or None if this PyTorch lacks it."""
    packet_name, _, overload_name = name.partition(".")
    packet = getattr(aten, packet_name, None)
    return getattr(packet, overload_name, None) if packet is not None else None


IRREGULAR: dict[Any, Any] = {
    _overload(mutating): _overload(functional)
    for mutating, functional in (
        ("bernoulli_.float", "bernoulli.p"),
        ("normal_.default", "normal_functional.default"),
        ("fill_.Scalar", "fill.Scalar"),
        ("fill_.Tensor", "fill.Tensor"),
        ("squeeze_.default", "squeeze.default"),
        ("t_.default", "t.default"),
    )
}

#: Operators that draw random numbers although their tags may not say so.
_RANDOM_NAMES = ("bernoulli", "rand", "dropout", "multinomial", "normal_functional", "poisson", "rrelu_with_noise")


class Form:
    """A functional overload, and how the arguments of the mutating one become its arguments."""

    __slots__ = ("dropped", "func", "first_out")

    def __init__(self, func: Any, dropped: frozenset[str], first_out: int) -> None:
        self.func = func
        self.dropped = dropped
        self.first_out = first_out

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Without the tensors that only receive results (`out=`)."""
        if not self.dropped:
            return args, kwargs
        return args[: self.first_out], {name: value for name, value in kwargs.items() if name not in self.dropped}


@cache
def functional_form(func: Any) -> Form | None:
    """The functional overload of a mutating one, or None."""
    if func in IRREGULAR:
        return Form(IRREGULAR[func], frozenset(), 0)
    namespace, _, name = func._schema.name.partition("::")
    packets = getattr(torch.ops, namespace)
    overload = func._overloadname
    if name.endswith("_") and not name.endswith("__"):
        packet = getattr(packets, name[:-1], None)
        found = getattr(packet, overload, None) if packet is not None else None
        return Form(found, frozenset(), 0) if found is not None else None
    return _from_out(func, getattr(packets, name))


def _from_out(func: Any, packet: Any) -> Form | None:
    """The overload with the same parameters less the written ones."""
    written = plan_of(func).written or []
    parameters = func._schema.arguments
    dropped = frozenset(parameters[i].name for i in written)
    kept = [(p.name, str(p.type)) for p in parameters if p.name not in dropped]
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        if candidate is not func and [(p.name, str(p.type)) for p in candidate._schema.arguments] == kept:
            return Form(candidate, dropped, min(written, default=0))
    return None


@cache
def is_random(func: Any) -> bool:
    """Whether the results depend on a random generator."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    name = func._schema.name.partition("::")[2]
    return any(part in name for part in _RANDOM_NAMES) or any(p.name == "generator" for p in func._schema.arguments)
