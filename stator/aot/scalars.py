"""Floats that come of symbolic sizes: in a graph they are tensors of one number, computed from sizes.

A graph knows sizes, which are integers; `x * (1 / x.numel())` needs more. As a float64 tensor without dimensions such a
number takes part in promotion and rounding as the number itself would, and lowering has nothing new to learn.
Neighbours: `tracer.py` asks for every operator; `fake/symbolic.py` has the expressions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.aot.functional import Emit
from stator.fake.symbolic import FloatNode, Real, symint
from stator.sizes import Size

aten = torch.ops.aten

_OPERATORS = {
    "add": aten.add.Tensor,
    "sub": aten.sub.Tensor,
    "mul": aten.mul.Tensor,
    "truediv": aten.div.Tensor,
    "float_truediv": aten.div.Tensor,
    "neg": aten.neg.default,
    "sqrt": aten.sqrt.default,
}
#: Overloads that take a number, and those that take a tensor in its place.
_WITH_TENSOR = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.pow.Tensor_Scalar: aten.pow.Tensor_Tensor,
    aten.eq.Scalar: aten.eq.Tensor,
    aten.ne.Scalar: aten.ne.Tensor,
    aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor,
    aten.gt.Scalar: aten.gt.Tensor,
    aten.ge.Scalar: aten.ge.Tensor,
}


def with_tensors(func: Any, args: tuple[Any, ...]) -> Any:
    """The overload that takes tensors where these arguments are symbolic floats; None if there is none."""
    func = _WITH_TENSOR.get(func, func)
    parameters = func._schema.arguments
    fits = all(str(parameters[i].type) == "Tensor" for i, arg in enumerate(args) if isinstance(arg, torch.SymFloat))
    return func if fits and any(isinstance(arg, torch.Tensor) for arg in args) else None


def as_tensor(number: torch.SymFloat, like: torch.Tensor, emit: Emit) -> fx.Node:
    """A node with the value of a symbolic float, to meet `like`."""
    node: FloatNode = number.node
    kind = torch.float64 if like.is_floating_point() or like.is_complex() else torch.get_default_dtype()

    def build(value: Any) -> Any:
        match value:
            case Size():
                size = symint(value, node.environment)
                return emit(aten.full.default, [], size, dtype=torch.float64, device=like.device)
            case Real(op, args):
                return emit(_OPERATORS[op], *_tensor_first([build(arg) for arg in args], emit, like))
        return value

    made: fx.Node = build(node.value)
    return made if kind is torch.float64 else emit(aten._to_copy.default, made, dtype=kind)


def _tensor_first(args: list[Any], emit: Emit, like: torch.Tensor) -> list[Any]:
    """Operators on tensors have a tensor in front."""
    if isinstance(args[0], fx.Node):
        return args
    return [emit(aten.full.default, [], args[0], dtype=torch.float64, device=like.device), *args[1:]]
