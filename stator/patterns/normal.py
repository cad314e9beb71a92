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
from typing import Any, NamedTuple

import torch
from torch import fx

from stator.graphs.calls import RESTRIDING

#: Sizes that tell the dims of a probe from one another.
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


class Form(NamedTuple):
    """A call: its operands are nodes, forms of calls that no node makes, and plain values."""

    op: str
    args: tuple[Any, ...]


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
_KEYWORDS = frozenset({"and_", "or_", "not_", "is_"})
#: Calls that change the geometry of their operand, or its memory.
RESHAPING = RESTRIDING | {"resize_", "resize_as_", "set_"}
_ATTRIBUTES = {"T": "permute", "mT": "permute", "H": "permute", "mH": "permute"}


def spelled(node: fx.Node) -> str:
    """The name under which the call is written, without the underscores of Python's operators; "" if it is no call."""
    if node.op == "call_method":
        return str(node.target)
    return _function_name(node.target) if node.op == "call_function" else ""


@cache
def _function_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        space, _, name = str(target).partition(".")
        return name.partition(".")[0] if space == "aten" else str(target)
    name = getattr(target, "__name__", "") or type(target).__name__
    if not is_torch(target):
        return f"{name} of {getattr(target, '__module__', '')}, {id(target)}"
    return name.strip("_") if name.startswith("__") else name


def is_torch(target: Any) -> bool:
    """Whether a function is PyTorch's or Python's own, which its name then says all about."""
    package = str(getattr(target, "__module__", "") or "").partition(".")[0]
    known = package in ("torch", "_operator", "", "builtins")
    return known and not isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)


def name_of(node: fx.Node) -> str:
    """The name of the operator, the same for all spellings; "" if the node is no call."""
    return canonical(spelled(node))


@cache
def canonical(name: str) -> str:
    """The operator of a spelling; one in place computes what the other does."""
    plain = name[:-1] if name.endswith("_") and not name.startswith("_") and name not in _KEYWORDS else name
    return _NAMES.get(plain, plain)


def writes(node: fx.Node) -> bool:
    """Whether the call is spelled as one that may write to its first operand, or to an `out`."""
    name = spelled(node)
    written = name in _IN_PLACE or (name.endswith("_") and not name.startswith("_") and name not in _KEYWORDS)
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


class Call(NamedTuple):
    """One call of a program; its first operand is by position, whatever it is called."""

    node: fx.Node
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by position or by name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


def form(node: fx.Node) -> Form | None:
    """The normal form of the node's call; None where it is no call of a tensor operator."""
    name, args, kwargs = name_of(node), node.args, node.kwargs
    if name == "getattr":
        name = _ATTRIBUTES.get(str(args[1]), name)
    if name in ("", "getattr") or (tensor(node) is None and not isinstance(node.meta.get("val"), list | tuple)):
        return None
    if not args and "input" in kwargs:
        args, kwargs = (kwargs["input"],), {name: value for name, value in kwargs.items() if name != "input"}
    call = Call(node, name, args, kwargs)
    read = _READERS.get(name)
    found = read(call) if read is not None and args else None
    return found or Form(name, _bound(call))


def _bound(call: Call) -> tuple[Any, ...]:
    """The arguments of any call, in the order of its parameters, its defaults among them."""
    node, name, args, kwargs = call
    if not kwargs and isinstance(node.target, types.BuiltinFunctionType) and node.target.__module__ == "_operator":
        return args
    if isinstance(node.target, types.FunctionType):
        try:
            bound = inspect.signature(node.target).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return (*args, *sorted(kwargs.items()))
        bound.apply_defaults()
        return tuple([_dims(args, name, value) for name, value in bound.arguments.items() if name[0] != "_"])
    for parameters in (*_schemas(spelled(node)), *_schemas(name)):
        names = [parameter.name for parameter in parameters]
        if len(args) > sum(not parameter.kwarg_only for parameter in parameters) or not set(kwargs) <= set(
            names[len(args) :]
        ):
            continue
        numbers = [(p, arg) for p, arg in zip(parameters, args, strict=False) if isinstance(arg, int)]
        if any((str(p.type) == "bool") is not isinstance(arg, bool) for p, arg in numbers):
            continue
        rest = parameters[len(args) :]
        if all(p.name in kwargs or p.has_default_value() for p in rest):
            given = (*args, *[kwargs.get(p.name, p.default_value) for p in rest])
            return tuple([_dims(args, name, value) for name, value in zip(names, given, strict=True)])
    return (*args, *sorted(kwargs.items()))


def _dims(args: tuple[Any, ...], name: str, value: Any) -> Any:
    """Dims counted from the front."""
    first = tensor(args[0]) if args and name == "dim" else None
    if first is None or not first.dim():
        return value
    if isinstance(value, list | tuple):
        return [_dims(args, name, dim) for dim in value]
    return value % first.dim() if isinstance(value, int) else value


@cache
def _schemas(name: str) -> tuple[Sequence[Any], ...]:
    """The parameters of the overloads of an operator."""
    if not hasattr(torch.ops.aten, name):
        return ()
    packet = getattr(torch.ops.aten, name)
    return tuple(getattr(packet, overload)._schema.arguments for overload in packet.overloads())


# ---- operators with a form of their own -----------------------------------------------------------------------------


def _matmul(call: Call) -> Form | None:
    return Form("matmul", (call.args[0], call.argument(1, "mat2" if "mat2" in call.kwargs else "other")))


def _baddbmm(call: Call) -> Form | None:
    if len(call.args) != 3:
        return None
    bias, *factors = call.args
    beta, alpha = number(call.kwargs.get("beta", 1)), number(call.kwargs.get("alpha", 1))
    product = Form("matmul", tuple(factors))
    if alpha is None or beta is None:
        return None
    scaled = product if alpha == 1 else Form("scale", (product, float(alpha)))
    if beta == 0:
        return scaled
    return Form("add", (bias if beta == 1 else Form("scale", (bias, float(beta))), scaled))


def _sum(call: Call) -> Form | None:
    other = call.argument(1, "other")
    plain = len(call.args) <= 2 and number(call.kwargs.get("alpha", 1)) == 1
    return Form(call.name, (call.args[0], other)) if plain and other is not None else None


def _product(call: Call) -> Form | None:
    """`x * 2`, `2 * x`, `x / 0.5`  -->  `scale(x, 2.0)`, of numbers with a fraction."""
    left, right = call.args[0], call.argument(1, "other")
    if right is None or len(call.args) > 2 or call.kwargs.get("rounding_mode"):
        return None
    divides = call.name == "div"
    if number(left) is not None and not divides:
        left, right = right, left
    factor, value = number(right), tensor(left)
    whole = tensor(call.node)
    if factor is None or value is None or whole is None or value.dtype is not whole.dtype:
        return Form(call.name, (call.args[0], call.argument(1, "other")))
    if not value.is_floating_point() or (isinstance(right, fx.Node) and value.dim() == 0):
        return None
    if divides and (factor == 0 or math.isinf(1 / factor)):
        return None
    if isinstance(right, fx.Node) and tensor(right) is None:  # a number that a pattern is given, or computes
        return Form("scale", (left, Form("reciprocal", (right,)) if divides else right))
    return Form("scale", (left, 1 / factor if divides else float(factor)))


def _softmax(call: Call) -> Form | None:
    value, dim = tensor(call.args[0]), call.argument(1, "dim")
    place = 3 if isinstance(call.node.target, types.FunctionType) else 2  # in torch.nn.functional, behind a stack level
    dtype = call.argument(place, "dtype")
    if value is None or not isinstance(dim, int) or not value.dim():
        return None
    return Form("softmax", (call.args[0], dim % value.dim(), None if dtype is value.dtype else dtype))


def _where(call: Call) -> Form | None:
    if len(call.args) != 3 or call.kwargs:
        return None
    condition, yes, no = call.args
    return _chosen(condition, yes, no)


def _masked_fill(call: Call) -> Form | None:
    condition, filled = call.argument(1, "mask"), call.argument(2, "value")
    return _chosen(condition, filled, call.args[0]) if isinstance(condition, fx.Node) else None


def _chosen(condition: Any, yes: Any, no: Any) -> Form:
    """`where`, whose condition is not negated."""
    negated = form(condition) if isinstance(condition, fx.Node) else None
    if negated is not None and negated.op == "logical_not":
        return _chosen(negated.args[0], no, yes)
    return Form("where", (condition, yes, no))


def _not(call: Call) -> Form | None:
    value = tensor(call.args[0])
    return Form("logical_not", (call.args[0],)) if value is not None and value.dtype is torch.bool else None


def _dropout(call: Call) -> Form | None:
    rate = call.argument(1, "p", 0.5)
    active = call.argument(2, "train" if "train" in call.kwargs else "training", True)
    return Form("same", (call.args[0],)) if active is False or rate == 0 else Form("dropout", (call.args[0], rate))


def _converted(call: Call) -> Form | None:
    """A conversion to what the operand is already gives the operand, or a copy."""
    before, after = tensor(call.args[0]), tensor(call.node)
    if before is None or after is None:
        return None
    if before.dtype is after.dtype and before.device == after.device:
        return Form("same", (call.args[0],))
    return Form("to", (call.args[0], after.dtype, after.device if after.device != before.device else None))


def _reshaped(call: Call) -> Form | None:
    """A view of other sizes in the same order; which sizes is compared by what the nodes give."""
    before, after = tensor(call.args[0]), tensor(call.node)
    if before is None or after is None or before.dtype is not after.dtype:  # `view(dtype)`
        return None
    return Form("reshape", (call.args[0],))


def _indexed(call: Call) -> Form | None:
    """`x[:, None]` is a reshape."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    whole = slice(None, None, None)
    if tensor(call.args[0]) is not None and all(i is None or i is Ellipsis or i == whole for i in index):
        return Form("reshape", (call.args[0],))
    return None


def _expanded(call: Call) -> Form | None:
    return Form("expand", (call.args[0],))


def _permuted(call: Call) -> Form | None:
    value, whole = tensor(call.args[0]), tensor(call.node)
    if value is None or whole is None or value.is_complex() or value.dim() > len(_PRIMES):
        return None
    probe = torch.empty(_PRIMES[: value.dim()], device="meta")
    if spelled(call.node) == "getattr":
        turned = getattr(probe, str(call.args[1]))
    elif call.node.op == "call_method":
        turned = getattr(probe, str(call.node.target))(*call.args[1:], **call.kwargs)
    else:
        turned = call.node.target(probe, *call.args[1:], **call.kwargs)  # type: ignore[operator]
    order = tuple([_PRIMES.index(size) for size in turned.shape])
    return permuted(call.args[0], order)


def permuted(value: Any, order: tuple[int, ...]) -> Form:
    """`value` with its dims in another order; a permutation of a permutation is one."""
    while isinstance(value, Form) or form(value) is not None:
        below = value if isinstance(value, Form) else form(value)
        if below is None or below.op != "permute":
            break
        value, first = below.args
        order = tuple([first[dim] for dim in order])
    return Form("permute", (value, order))


_READERS: dict[str, Callable[[Call], Form | None]] = {
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
