"""The table of decompositions, empty here; the files of `decompositions/` fill it.

A decomposition is a Python function over the arguments of one ATen overload. It calls overloads that are primitives or
decompose further, mutates nothing, never returns one of its arguments itself, gives eager's dtypes and strides, and
returns NotImplemented to decline (then the overload stays in the graph and becomes an extern call).

Most formulas are for real numbers (they use an order, a sign, bits, half types). So an entry declines arguments of
dtypes that no loop computes with, complex ones included unless it is registered with `also_complex`; views decline
nothing. Operands of an elementwise formula meet in one dtype before it starts, as in eager's kernels, unless it is
registered as `mixed`: a 0-dim float64 beside float16 is rounded first. Where eager's kernel writes to memory made like
one of its operands, the result is not of the dtype in which they meet: `alike` leaves such calls to the kernel.
Neighbours: `dtypes.py` has eager's rounding; `stator.aot` looks overloads up while tracing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stator.fake.layout import OPAQUE_DTYPES, promote
from stator.fake.overloads import Function, Respelling, Table, overload
from stator.prims.dtypes import cast

#: Overload → decomposition. Filled by importing `stator.prims.decompositions`.
DECOMPOSITIONS = Table("decomposition")

#: Elementwise gradients that PyTorch does not tag as pointwise.
_UNTAGGED = frozenset(
    overload(f"{name}_backward")
    for name in "hardshrink softshrink hardtanh elu leaky_relu hardsigmoid hardswish log_sigmoid softplus".split()
)
COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))


def is_pointwise(op: Any) -> bool:
    """Whether an overload gives for each element what it computes of those of its operands."""
    return torch.Tag.pointwise in op.tags or op in _UNTAGGED


def decompose(
    *names: str, also_complex: bool = False, mixed: bool = False, alike: bool = False
) -> Callable[[Function], Function]:
    """Registers a function as the decomposition of some overloads; `also_complex`: its formula holds there too.

    `mixed`: operands have dtypes of their own, as a mask has. `alike`: it declines operands of several dtypes.
    """

    def enter(function: Function) -> Function:
        for op in map(overload, names):
            if op is not None:
                meets = is_pointwise(op) and not mixed
                declining = _declining(_meeting(function) if meets else function, also_complex, alike)
                DECOMPOSITIONS.register(op)(function if op.is_view else declining)
        return function

    return enter


def respell(*names: str) -> Callable[[Function], Function]:
    """Registers a function that gives the one primitive that some overloads of views are, and its arguments."""

    def enter(function: Function) -> Function:
        DECOMPOSITIONS.register(*names)(Respelling(function))
        return function

    return enter


def _meeting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on tensors of one dtype, that which all of them promote to."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if len({tensor.dtype for tensor in tensors}) > 1:
            dtype = promote(tensors)
            args = tuple([cast(arg, dtype) if isinstance(arg, torch.Tensor) else arg for arg in args])
        return function(*args, **kwargs)

    return run


def _declining(function: Callable[..., Any], also_complex: bool, alike: bool) -> Callable[..., Any]:
    foreign = OPAQUE_DTYPES - COMPLEX if also_complex else OPAQUE_DTYPES

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _holds(args, foreign, also_complex) or (kwargs and _holds(kwargs.values(), foreign, also_complex)):
            return NotImplemented
        if alike and len({arg.dtype for arg in args if isinstance(arg, torch.Tensor)}) > 1:
            return NotImplemented
        return function(*args, **kwargs)

    return run


def _holds(args: Iterable[Any], foreign: frozenset[torch.dtype], also_complex: bool) -> bool:
    """Whether one of these dtypes, or a complex number that is not wanted, is among the arguments."""
    for arg in args:
        kind = type(arg)
        if isinstance(arg, torch.Tensor):
            found = arg.dtype in foreign
        elif kind is list or kind is tuple:
            found = _holds(arg, foreign, also_complex)
        else:
            found = (kind is complex and not also_complex) or (kind is torch.dtype and arg in foreign)
        if found:
            return True
    return False
