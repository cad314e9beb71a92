"""The functional form of operators of the program that write to arguments and do not return them.

    ent::fill(Tensor x, Tensor(a!) out) -> ()    -->    stator_written::fill__of__ent(Tensor x, Tensor out) -> Tensor

It copies what is written to, runs the operator, and returns what that returns and the copies. Such forms are defined
when they are first met; a warm start, which does not trace, calls the operator itself (`runtime/extern.py` knows the
name). Neighbours: `operators.py` (forms that PyTorch has), `tracer.py` (asks for both).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import torch

from stator.base.effects import WRITTEN
from stator.fake.execute import RULES, execute
from stator.fake.tensor import FakeTensor, make

_LIBRARY = torch.library.Library(WRITTEN, "DEF")
_ALIAS = re.compile(r"\(\w+!?\)")


class Written(NamedTuple):
    """A functional overload and the positions of the arguments whose new values it returns last."""

    func: Any
    positions: tuple[int, ...]


@cache
def written_form(func: Any) -> Written | None:
    """The functional form of an overload that returns none of what it writes to; None if it needs another one."""
    schema = func._schema
    writes = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None]
    plain = all(a.alias_info.is_write and str(a.type) == "Tensor" and not a.kwarg_only for _, a in writes)
    if func.namespace == "aten" or not plain or any(result.alias_info is not None for result in schema.returns):
        return None
    positions = tuple([i for i, _ in writes])
    name = f"{func._opname}__of__{func.namespace}"
    try:
        form = _overload(name, func)
    except AttributeError:
        _define(name, func, positions)
        form = _overload(name, func)
    return Written(form, positions)


def _overload(name: str, func: Any) -> Any:
    return getattr(getattr(getattr(torch.ops, WRITTEN), name), func._overloadname)


def _define(name: str, func: Any, positions: tuple[int, ...]) -> None:
    before, _, returned = _ALIAS.sub("", str(func._schema)).rpartition(" -> ")
    arguments = before[before.index("(") :]
    results = [part for part in [returned.removeprefix("(").removesuffix(")")] if part] + ["Tensor"] * len(positions)
    if func._overloadname != "default":
        name = f"{name}.{func._overloadname}"
    _LIBRARY.define(f"{name}{arguments} -> ({', '.join(results)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for position in positions:
            given[position] = given[position].clone()
        return _joined(func(*given, **kwargs), [given[position] for position in positions])

    def shapes(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for position in positions:
            fake: FakeTensor = given[position]
            given[position] = make(fake.shape, fake.dtype, fake.device, fake.stride())
        out = execute(func, tuple(given), kwargs)
        return _joined(out, [make(t.shape, t.dtype, t.device, t.stride()) for t in map(given.__getitem__, positions)])

    torch.library.impl(_LIBRARY, name, "CompositeExplicitAutograd")(run)
    RULES.register(_overload(name.partition(".")[0], func))(shapes)


def _joined(out: Any, written: list[Any]) -> Any:
    """What the functional form returns."""
    results = (*(() if out is None else out if isinstance(out, tuple | list) else (out,)), *written)
    return results[0] if len(results) == 1 else results
