"""The normal form of a captured call: what it computes, whatever way the program has of writing it.

Methods, functions and operators of one meaning have one name; permutations are one permutation of what lies below
them; views that keep the order of elements are one `reshape`; a product with a number is `scale`, a division by one
too; `masked_fill` is `where`. Calls that give their operand's values again (conversions to the dtype that it has,
`contiguous`, a dropout that drops nothing) are `same`. Patterns and programs are read alike, so what a pattern's author
need not write twice is decided here and only here. Neighbours: `matcher.py` compares forms.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx

#: Sizes that tell the dims of a probe from one another.
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


class Form(NamedTuple):
    """A call: its operands are nodes, forms of calls that no node makes, and plain values."""

    op: str
    args: tuple[Any, ...]


Operand: TypeAlias = "fx.Node | Form"

#: Other names of an operator, those of Python's operators among them.
_NAMES = {
    "bmm": "matmul", "mm": "matmul", "imatmul": "matmul", "iadd": "add", "isub": "sub", "subtract": "sub",
    "imul": "mul", "multiply": "mul", "truediv": "div", "itruediv": "div", "true_divide": "div", "divide": "div",
    "negative": "neg", "bitwise_not": "logical_not", "invert": "logical_not", "float": "to", "double": "to",
    "half": "to", "bfloat16": "to", "type": "to", "type_as": "to", "clone": "contiguous", "view": "reshape",
    "flatten": "reshape", "unflatten": "reshape", "squeeze": "reshape", "unsqueeze": "reshape", "view_as": "reshape",
    "reshape_as": "reshape", "expand_as": "expand", "broadcast_to": "expand", "t": "permute", "transpose": "permute",
    "swapaxes": "permute", "swapdims": "permute", "movedim": "permute", "moveaxis": "permute", "adjoint": "permute",
    "absolute": "abs",
}  # fmt: skip
#: Operators of two operands that may be exchanged.
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or"})
#: What nearly every graph has: no pattern is looked for because of these, if it has any other operator.
COMMON = frozenset({
    "matmul", "linear", "add", "sub", "mul", "div", "scale", "neg", "permute", "reshape", "expand", "same", "to",
    "where", "getitem", "contiguous", "logical_not",
})  # fmt: skip
#: Python's operators that write to their left operand.
_IN_PLACE = frozenset({"iadd", "isub", "imul", "itruediv", "imatmul", "iand", "ior", "ixor", "ipow", "setitem"})
_ATTRIBUTES = {"T": "permute", "mT": "permute", "H": "permute", "mH": "permute"}


def spelled(node: fx.Node) -> str:
    """The name under which the call is written, without the underscores of Python's operators; "" if it is no call."""
    if node.op == "call_method":
        return str(node.target)
    return _function_name(node.target) if node.op == "call_function" else ""


@cache
def _function_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name.partition("::")[2])
    name = getattr(target, "__name__", "") or type(target).__name__
    return name.strip("_") if name.startswith("__") else name


def name_of(node: fx.Node) -> str:
    """The name of the operator, the same for all spellings; "" if the node is no call."""
    return canonical(spelled(node))


@cache
def canonical(name: str) -> str:
    """The operator of a spelling; one in place computes what the other does."""
    plain = name[:-1] if name.endswith("_") and not name.startswith("_") else name
    return _NAMES.get(plain, plain)


def writes(node: fx.Node) -> bool:
    """Whether the call is spelled as one that may write to its first operand, or to an `out`."""
    name = spelled(node)
    written = name in _IN_PLACE or (name.endswith("_") and not name.startswith("_"))
    return written or "out" in node.kwargs or node.kwargs.get("inplace") is True


def number(value: Any) -> Any:
    """The number that a value is, a tensor of one known number included; None for others."""
    if isinstance(value, fx.Node):
        value = value.meta.get("val")
        if isinstance(value, torch.Tensor):
            known = getattr(value, "constant", None)
            return known.item() if known is not None and known.dim() == 0 and not known.is_complex() else None
    return value if isinstance(value, int | float) else None


def tensor(node: Any) -> torch.Tensor | None:
    """What a node gives, if it is one tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def form(node: fx.Node) -> Form | None:
    """The normal form of the node's call; None where it is no call of a tensor operator."""
    name = name_of(node)
    if name == "getattr":
        name = _ATTRIBUTES.get(str(node.args[1]), name)
    if not name or (tensor(node) is None and not isinstance(node.meta.get("val"), list | tuple)):
        return None
    read = _READERS.get(name)
    found = read(node) if read is not None else None
    return found or Form(name, _bound(node))


def _bound(node: fx.Node) -> tuple[Any, ...]:
    """The arguments of any call, in the order of its parameters, its defaults among them."""
    if not node.kwargs and isinstance(node.target, types.BuiltinFunctionType) and node.target.__module__ == "_operator":
        return node.args
    if isinstance(node.target, types.FunctionType):
        try:
            bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
        except (TypeError, ValueError):
            return (*node.args, *sorted(node.kwargs.items()))
        bound.apply_defaults()
        return tuple([_dims(node, name, value) for name, value in bound.arguments.items() if name[0] != "_"])
    for parameters in _schemas(spelled(node)):
        names = [parameter.name for parameter in parameters]
        if len(node.args) > len(names) or not set(node.kwargs) <= set(names[len(node.args) :]):
            continue
        rest = parameters[len(node.args) :]
        if all(p.name in node.kwargs or p.has_default_value() for p in rest):
            given = (*node.args, *[node.kwargs.get(p.name, p.default_value) for p in rest])
            return tuple([_dims(node, name, value) for name, value in zip(names, given, strict=True)])
    return (*node.args, *sorted(node.kwargs.items()))


def _dims(node: fx.Node, name: str, value: Any) -> Any:
    """Dims counted from the front."""
    first = tensor(node.args[0]) if node.args and name == "dim" else None
    if first is None or not first.dim():
        return value
    if isinstance(value, list | tuple):
        return [_dims(node, name, dim) for dim in value]
    return value % first.dim() if isinstance(value, int) else value


@cache
def _schemas(name: str) -> tuple[Sequence[Any], ...]:
    """The parameters of the overloads of an operator."""
    if not hasattr(torch.ops.aten, name):
        return ()
    packet = getattr(torch.ops.aten, name)
    return tuple(getattr(packet, overload)._schema.arguments for overload in packet.overloads())


def _argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


# ---- operators with a form of their own -----------------------------------------------------------------------------


def _matmul(node: fx.Node) -> Form | None:
    return Form("matmul", (node.args[0], _argument(node, 1, "mat2" if "mat2" in node.kwargs else "other")))


def _baddbmm(node: fx.Node) -> Form | None:
    if len(node.args) != 3:
        return None
    bias, *factors = node.args
    beta, alpha = number(node.kwargs.get("beta", 1)), number(node.kwargs.get("alpha", 1))
    product = Form("matmul", tuple(factors))
    if alpha is None or beta is None:
        return None
    scaled = product if alpha == 1 else Form("scale", (product, float(alpha)))
    if beta == 0:
        return scaled
    return Form("add", (bias if beta == 1 else Form("scale", (bias, float(beta))), scaled))


def _sum(node: fx.Node) -> Form | None:
    other = _argument(node, 1, "other")
    plain = len(node.args) <= 2 and number(node.kwargs.get("alpha", 1)) == 1
    return Form(name_of(node), (node.args[0], other)) if plain and other is not None else None


def _product(node: fx.Node) -> Form | None:
    """`x * 2`, `2 * x`, `x / 0.5`  -->  `scale(x, 2.0)`, of numbers with a fraction."""
    left, right = node.args[0], _argument(node, 1, "other")
    if right is None or len(node.args) > 2 or node.kwargs.get("rounding_mode"):
        return None
    divides = name_of(node) == "div"
    if number(left) is not None and not divides:
        left, right = right, left
    factor, value = number(right), tensor(left)
    whole = tensor(node)
    if factor is None or value is None or whole is None or value.dtype is not whole.dtype:
        return Form(name_of(node), (node.args[0], _argument(node, 1, "other")))
    if not value.is_floating_point() or (isinstance(right, fx.Node) and value.dim() == 0):
        return None
    if divides and (factor == 0 or math.isinf(1 / factor)):
        return None
    if isinstance(right, fx.Node) and tensor(right) is None:  # a number that a pattern is given, or computes
        return Form("scale", (left, Form("reciprocal", (right,)) if divides else right))
    return Form("scale", (left, 1 / factor if divides else float(factor)))


def _softmax(node: fx.Node) -> Form | None:
    value, dim = tensor(node.args[0]), _argument(node, 1, "dim")
    dtype = node.kwargs.get(
        "dtype", None if spelled(node) == "softmax" and _is_python(node) else _argument(node, 2, "dtype")
    )
    if value is None or not isinstance(dim, int) or not value.dim():
        return None
    return Form("softmax", (node.args[0], dim % value.dim(), None if dtype is value.dtype else dtype))


def _is_python(node: fx.Node) -> bool:
    return isinstance(node.target, types.FunctionType)


def _where(node: fx.Node) -> Form | None:
    if len(node.args) != 3 or node.kwargs:
        return None
    condition, yes, no = node.args
    return _chosen(condition, yes, no)


def _masked_fill(node: fx.Node) -> Form | None:
    condition, filled = _argument(node, 1, "mask"), _argument(node, 2, "value")
    return _chosen(condition, filled, node.args[0]) if isinstance(condition, fx.Node) else None


def _chosen(condition: Any, yes: Any, no: Any) -> Form:
    """`where`, whose condition is not negated."""
    negated = form(condition) if isinstance(condition, fx.Node) else None
    if negated is not None and negated.op == "logical_not":
        return _chosen(negated.args[0], no, yes)
    return Form("where", (condition, yes, no))


def _not(node: fx.Node) -> Form | None:
    value = tensor(node.args[0])
    return Form("logical_not", (node.args[0],)) if value is not None and value.dtype is torch.bool else None


def _dropout(node: fx.Node) -> Form | None:
    rate, active = (
        _argument(node, 1, "p", 0.5),
        _argument(node, 2, "train" if "train" in node.kwargs else "training", True),
    )
    return Form("same", (node.args[0],)) if active is False or rate == 0 else Form("dropout", (node.args[0], rate))


def _converted(node: fx.Node) -> Form | None:
    """A conversion to what the operand is already gives the operand, or a copy."""
    before, after = tensor(node.args[0]), tensor(node)
    if before is None or after is None or before.dtype is not after.dtype or before.device != after.device:
        return None
    return Form("same", (node.args[0],))


def _reshaped(node: fx.Node) -> Form | None:
    """A view of other sizes in the same order; which sizes is compared by what the nodes give."""
    before, after = tensor(node.args[0]), tensor(node)
    if before is None or after is None or before.dtype is not after.dtype:  # `view(dtype)`
        return None
    return Form("reshape", (node.args[0],))


def _indexed(node: fx.Node) -> Form | None:
    """`x[:, None]` is a reshape."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    whole = slice(None, None, None)
    if tensor(node.args[0]) is not None and all(i is None or i is Ellipsis or i == whole for i in index):
        return Form("reshape", (node.args[0],))
    return None


def _expanded(node: fx.Node) -> Form | None:
    return Form("expand", (node.args[0],))


def _permuted(node: fx.Node) -> Form | None:
    value, whole = tensor(node.args[0]), tensor(node)
    if value is None or whole is None or value.is_complex() or value.dim() > len(_PRIMES):
        return None
    probe = torch.empty(_PRIMES[: value.dim()], device="meta")
    if spelled(node) == "getattr":
        turned = getattr(probe, str(node.args[1]))
    elif node.op == "call_method":
        turned = getattr(probe, str(node.target))(*node.args[1:], **node.kwargs)
    else:
        turned = node.target(probe, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    order = tuple([_PRIMES.index(size) for size in turned.shape])
    return permuted(node.args[0], order)


def permuted(value: Any, order: tuple[int, ...]) -> Form:
    """`value` with its dims in another order; a permutation of a permutation is one."""
    while isinstance(value, Form) or form(value) is not None:
        below = value if isinstance(value, Form) else form(value)
        if below is None or below.op != "permute":
            break
        value, first = below.args
        order = tuple([first[dim] for dim in order])
    return Form("permute", (value, order))


_READERS: dict[str, Callable[[fx.Node], Form | None]] = {
    "matmul": _matmul,
    "baddbmm": _baddbmm,
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _product,
    "softmax": _softmax,
    "where": _where,
    "masked_fill": _masked_fill,
    "logical_not": _not,
    "dropout": _dropout,
    "to": _converted,
    "contiguous": _converted,
    "reshape": _reshaped,
    "getitem": _indexed,
    "expand": _expanded,
    "permute": _permuted,
}
