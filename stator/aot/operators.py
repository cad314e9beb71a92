"""The functional form of mutating overloads: `add_.Tensor` is `add.Tensor`, `add.out` too.

Found by name and schema; `IRREGULAR` has those whose name does not follow the rule. Neighbour: `tracer.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from stator.fake.execute import plan_of
from stator.fake.overloads import overload

aten = torch.ops.aten


IRREGULAR: dict[Any, Any] = {
    overload(mutating): overload(functional)
    for mutating, functional in (
        ("bernoulli_.float", "bernoulli.p"),
        ("normal_.default", "normal_functional.default"),
        ("fill_.Scalar", "fill.Scalar"),
        ("fill_.Tensor", "fill.Tensor"),
        ("squeeze_.default", "squeeze.default"),
        ("t_.default", "t.default"),
        ("__ilshift__.Tensor", "__lshift__.Tensor"),
        ("__ilshift__.Scalar", "__lshift__.Scalar"),
        ("__irshift__.Tensor", "__rshift__.Tensor"),
        ("__irshift__.Scalar", "__rshift__.Scalar"),
    )
}


class Form:
    """A functional overload, and how the arguments of the mutating one become its arguments."""

    __slots__ = ("defaults", "dropped", "first_out", "func")

    def __init__(self, func: Any, mutating: Any, dropped: frozenset[str] = frozenset(), first_out: int = 0) -> None:
        self.func = func
        self.dropped = dropped
        self.first_out = first_out
        #: Arguments that only the mutating overload has defaults for: (position, name, default).
        positional = [p for p in mutating._schema.arguments if not p.kwarg_only]
        self.defaults = [
            (i, own.name, given.default_value)
            for i, (own, given) in enumerate(zip(func._schema.arguments, positional, strict=False))
            if given.has_default_value() and own.name == given.name and not own.has_default_value()
        ]

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Without the tensors that only receive results (`out=`), with the defaults that the dispatcher left out."""
        for position, name, value in self.defaults:
            if position >= len(args) and name not in kwargs:
                kwargs = {**kwargs, name: value}
        if not self.dropped:
            return args, kwargs
        return args[: self.first_out], {name: value for name, value in kwargs.items() if name not in self.dropped}


@cache
def functional_form(func: Any) -> Form | None:
    """The functional overload of a mutating one, or None."""
    if func in IRREGULAR:
        return Form(IRREGULAR[func], func)
    namespace, _, name = func._schema.name.partition("::")
    packets = getattr(torch.ops, namespace)
    overload = func._overloadname
    if name.endswith("_") and not name.endswith("__"):
        packet = getattr(packets, name[:-1], None)
        found = _of_same_types(func, packet, overload) if packet is not None else None
        return Form(found, func) if found is not None else None
    return _from_out(func, getattr(packets, name))


def _of_same_types(func: Any, packet: Any, name: str) -> Any:
    """The functional overload called like the mutating one, if it takes the same; else any that does.

    `pow_.Scalar` raises a tensor to a number, but `pow.Scalar` a number to a tensor.
    """
    wanted = [str(p.type) for p in func._schema.arguments]
    found = [getattr(packet, variant) for variant in packet.overloads()]
    same = [o for o in found if [str(p.type) for p in o._schema.arguments][: len(wanted)] == wanted]
    named = [o for o in same if o._overloadname == name]
    return next(iter([*named, *same]), None)


def _from_out(func: Any, packet: Any) -> Form | None:
    """The overload with the same parameters less the written ones."""
    written = plan_of(func).written or []
    parameters = func._schema.arguments
    dropped = frozenset(parameters[i].name for i in written)
    kept = [(p.name, str(p.type)) for p in parameters if p.name not in dropped]
    for variant in packet.overloads():
        candidate = getattr(packet, variant)
        if candidate is not func and [(p.name, str(p.type)) for p in candidate._schema.arguments] == kept:
            return Form(candidate, func, dropped, min(written, default=0))
    return None
