"""ATen operators that plans call, bound once by name.

`into("aten.mm.out")` is called with the operator's arguments and `out=`; `returning("aten.topk.default", …)` gives
always a tuple of the results that are asked for, `returning_sized` the same where the geometry is an argument. The C
core calls `plain` or `recording` operators and looks at the results itself; `Settling` is for what is not in order.
Kernels read results by address, so a result is only given on if it lies in memory as the compiler was told by PyTorch's
shape functions, which are wrong now and then; else it is laid out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import cache
from typing import Any

from stator.base.effects import WRITTEN
from stator.base.errors import InternalError
from stator.base.promised import as_promised
from stator.base.workspaces import WORKSPACES

#: Size and strides that are relied on, for each result up to the last that is asked for; None for one that is not.
Geometry = tuple[tuple[int, ...], tuple[int, ...]] | None


def _overload(target: str) -> Any:
    import torch  # the package itself does not need torch

    namespace, name, overload = target.split(".")
    if namespace == WRITTEN:
        return _Written(target)
    held = getattr(getattr(torch.ops, namespace), name)
    if getattr(held, "_qualified_op_name", None) != f"{namespace}::{name}":  # a program has put something else there
        held = getattr(torch._ops._OpNamespace(namespace), name)
    return getattr(held, overload)


class _Written:
    """`fill__of__ent.default`: `ent::fill` on copies of what it writes to, which are its last results."""

    def __init__(self, target: str) -> None:
        name, _, namespace = target.split(".")[1].partition("__of__")
        func = _overload(f"{namespace}.{name}.{target.split('.')[2]}")
        positions = [i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None]
        self._schema = func._schema

        def run(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            given = list(args)
            for position in positions:
                given[position] = given[position].clone()
            out = func._op(*given, **kwargs)
            results = () if out is None else out if isinstance(out, tuple | list) else (out,)
            return (*results, *[given[position] for position in positions])

        self._op = run


def _multiply_packed(*args: Any, out: Any) -> None:
    """`mkl._mkl_linear`, which has no out variant: the C core calls MKL itself where it finds it (`csrc/packed.c`)."""
    out.copy_(_overload("mkl._mkl_linear.default")._op(*args))


#: Operators that write into `out` in name only.
_COPYING: dict[str, Callable[..., Any]] = {"mkl._mkl_linear.out": _multiply_packed}


def into(target: str) -> Callable[..., Any]:
    """An operator that writes its result into `out`. Torch's own binding costs half of the overload's call."""
    import torch  # the package itself does not need torch

    if target in _COPYING:
        return _COPYING[target]
    namespace, name, overload = target.split(".")
    direct = getattr(torch, name, None) if (namespace, overload) == ("aten", "out") else None
    return direct if direct is not None else _overload(target)._op


def plain(target: str) -> Callable[..., Any]:
    """An operator as it is called, which gives what it makes."""
    found: Callable[..., Any] = _overload(target)._op
    return found


def recording(target: str) -> Callable[..., Any]:
    """The operator as it runs where gradients are recorded, which a compiled graph does not: it makes a workspace."""
    import torch  # the package itself does not need torch

    operator = plain(target)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **kwargs)

    return call


@cache
def gives_one(target: str) -> bool:
    """Whether the operator gives a tensor, and no tuple or list of them."""
    overload = _overload(target)
    returns = overload._schema.returns
    return not isinstance(overload, _Written) and len(returns) == 1 and str(returns[0].type) == "Tensor"


@cache
def may_alias(target: str) -> bool:
    """Whether what the operator gives may share memory with what it is given, as far as its schema is to be trusted."""
    import torch  # the package itself does not need torch

    namespace, name, overload = target.split(".")
    if namespace != "aten":
        return True
    schema = _overload(target)._schema
    key = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(key, "CompositeImplicitAutograd")
    return bool(composite) or any(given.alias_info is not None for given in schema.returns)


def wants_workspace(target: str, positions: Container[int]) -> bool:
    """Whether what backward needs is among the results that are asked for, by their positions."""
    return target in WORKSPACES and WORKSPACES[target] in positions


def returning(target: str, *geometry: Geometry) -> Callable[..., tuple[Any, ...]]:
    """An operator that makes its results, of which it gives those with a geometry."""
    operator = _operator(target, geometry)
    if not geometry:  # it is called for what it does
        return operator
    if gives_one(target) and len(geometry) == 1:
        assert geometry[0] is not None
        size, stride = geometry[0]

        def call_single(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            result = operator(*args, **kwargs)
            if result.stride() == stride and result.shape == size:
                return (result,)
            return (as_promised(target, result, size, stride),)

        return call_single

    return lambda *args, **kwargs: settled(target, operator(*args, **kwargs), geometry)


def _operator(target: str, geometry: Sequence[Geometry]) -> Callable[..., Any]:
    asked = [position for position, promised in enumerate(geometry) if promised is not None]
    return recording(target) if wants_workspace(target, asked) else plain(target)


def returning_sized(target: str) -> Callable[..., tuple[Any, ...]]:
    """An operator that makes its results, called with their geometry in front."""

    by_workspace = {wanted: recording(target) if wanted else plain(target) for wanted in (False, target in WORKSPACES)}

    def call(geometry: Sequence[Geometry], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        asked = [position for position, promised in enumerate(geometry) if promised is not None]
        return settled(target, by_workspace[wants_workspace(target, asked)](*args, **kwargs), geometry)

    return call


def settled(target: str, results: Any, geometry: Sequence[Geometry]) -> tuple[Any, ...]:
    """The results that are asked for, laid out as promised."""
    import torch  # the package itself does not need torch

    every = (results,) if isinstance(results, torch.Tensor) else results
    workspace = WORKSPACES.get(target)
    found = []
    for i, promised in enumerate(geometry):
        if promised is None:
            continue
        result = every[i]
        if result is None:
            raise InternalError("run", f"{target} left its result {i} undefined, its shape function promised a tensor")
        if i != workspace and (result.stride() != promised[1] or result.shape != promised[0]):
            result = as_promised(target, result, *promised)
        found.append(result)
    return tuple(found)


class Settling:
    """Brings results of an operator, of which some positions are asked for, into the form that they were promised."""

    __slots__ = ("positions", "target")

    def __init__(self, target: str, positions: tuple[int, ...]) -> None:
        self.target, self.positions = target, positions

    def __call__(self, results: Any, promised: Sequence[Geometry]) -> tuple[Any, ...]:
        """The results asked for, in the order of `positions`, as `promised` has size and strides of each."""
        geometry: list[Geometry] = [None] * (max(self.positions) + 1)
        for position, form in zip(self.positions, promised, strict=True):
            geometry[position] = form
        found = iter(settled(self.target, results, geometry))
        by_position = {position: next(found) for position in sorted(self.positions)}
        return tuple([by_position[position] for position in self.positions])
