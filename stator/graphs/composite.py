"""Torch functions that PyTorch composes of other operators by plain numbers, composed here for symbolic sizes.

`matmul` and `linear` are taken apart in C++ before any mode sees them. Where that code reads sizes as numbers (which
functions do depends on the version of PyTorch), every size would become fixed. Invariant: sizes, strides and dtypes of
the results are eager's, and so are the operators that do the work. So are functions whose gradient asks for data.
Neighbours: `capture/graph.py` and `aot/interpreter.py` run the calls of a program through `call`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stator.fake.execute import any_symbolic
from stator.fake.tensor import FakeTensor
from stator.graphs import literals
from stator.graphs.formulas import as_eager_chooses
from stator.graphs.recurrent import lstm, packed
from stator.graphs.short_time import istft, stft


def call_plainly(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What `call` does while programs are captured and all sizes are numbers."""
    if function in _ASKING:
        return call(function, args, kwargs)
    return function(*args, **kwargs)


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function(*args, **kwargs)` on fakes."""
    other = _OTHERS.get(function)
    if other is not None:
        out = other(*args, **kwargs)
        if out is not NotImplemented:
            return out
    form = _FORMS.get(function)
    composed = isinstance(function, FunctionType) and function.__globals__ is vars(F)
    # Asked last: an item of a list of many results has all of them for an argument.
    if (form is None and not composed) or not any_symbolic((*args, *kwargs.values())):
        return function(*args, **kwargs)
    if form is not None:
        out = form(*args, **kwargs)
        if out is not NotImplemented:
            return out
    if composed:
        function = _functions()[function.__name__]
    return function(*args, **kwargs)


@cache
def _functions() -> dict[str, Any]:
    """The functions of `torch.nn.functional` as they are, but calling one another, and the forms, through here."""
    names = dict(vars(F))
    for name, function in vars(F).items():
        if isinstance(function, FunctionType) and function.__globals__ is vars(F):
            twin = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
            twin.__kwdefaults__ = function.__kwdefaults__
            names[name] = twin
        elif _is_form(function):
            names[name] = partial(_composed, function)
    return names


def _is_form(function: Any) -> bool:
    return isinstance(function, BuiltinFunctionType) and function in _FORMS


def _composed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return call(function, args, kwargs)


def _matmul(a: Any, b: Any = None, **named: Any) -> Any:
    b = named.pop("other", b)
    if named or not (isinstance(a, FakeTensor) and isinstance(b, FakeTensor)) or not a.dim() or not b.dim():
        return NotImplemented
    return _product(a, b) if max(a.dim(), b.dim()) > 2 else NotImplemented


def _linear(x: Any, weight: Any = None, bias: Any = None, **named: Any) -> Any:
    weight, bias = named.pop("weight", weight), named.pop("bias", bias)
    if named or not isinstance(x, FakeTensor) or x.dim() < 3 or weight.dim() != 2:
        return NotImplemented
    if bias is None:
        return _product(x, weight.t())
    if bias.dim() == 1 and x.is_contiguous():
        rows = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
        return rows.view(*x.shape[:-1], weight.shape[0])
    product = _product(x, weight.t())
    return product + bias.to(product.dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`, of which one at least has more than two dims; the result is contiguous."""
    if b.dim() <= 2 and _folds(a, b):
        return _folded(a, b)
    if a.dim() <= 2 and _folds(b.mT, a):
        product = _folded(b.mT, a if a.dim() == 1 else a.t())
        return product if a.dim() == 1 else product.mT.contiguous()
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    count = 1
    for extent in batch:
        count = count * extent
    left = left.expand(*batch, rows, inner).reshape(count, rows, inner)
    right = right.expand(*batch, right.shape[-2], columns).reshape(count, right.shape[-2], columns)
    size = [*batch, *([rows] if a.dim() > 1 else []), *([columns] if b.dim() > 1 else [])]
    return torch.bmm(left, right).view(size)


def _folds(many: Tensor, few: Tensor) -> bool:
    """Whether all dims of `many` but the last become rows: an expanded `few` would cost its gradient, or a copy."""
    return few.requires_grad or many.is_contiguous()


def _folded(many: Tensor, few: Tensor) -> Tensor:
    rows = many.reshape(-1, many.shape[-1])
    return torch.matmul(rows, few).view(*many.shape[:-1], *few.shape[1:])


def _linspace(start: Any, end: Any = None, steps: Any = None, **options: Any) -> Any:
    """From both ends to the middle, as eager."""
    dtype = options.get("dtype") or torch.get_default_dtype()
    numbers = isinstance(start, int | float) and isinstance(end, int | float) and isinstance(steps, torch.SymInt)
    if not numbers or not dtype.is_floating_point or options.keys() - {"dtype", "device"} or steps < 2:
        return NotImplemented
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    number = torch.arange(steps, device=options.get("device"))
    exact = number.to(wide)
    step = (end - start) / (steps - 1)
    return torch.where(number < steps // 2, exact * step + start, end - (steps - 1 - exact) * step).to(dtype)


def _filled(in_place: bool, x: Any, dim: Any = None, index: Any = None, value: Any = None, **named: Any) -> Any:
    """`index_fill` with a differentiable value. PyTorch's formula for its gradient removes double indices first."""
    differentiable = isinstance(value, FakeTensor) and value.requires_grad and value.dim() == 0
    if named or not differentiable or type(dim) is not int or value.dtype is not x.dtype:
        return NotImplemented
    extent, shape = (x.shape[dim], [-1] + [1] * ((-1 - dim) % x.dim())) if x.dim() else (1, [])
    chosen = torch.zeros(extent, dtype=torch.bool, device=x.device).index_fill(0, index, True).view(shape)
    return (x if in_place else x.clone()).masked_fill_(chosen, value)


def gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    grad_outputs: Sequence[Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    only_inputs: bool,
    allow_unused: bool,
) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad` of what the program has checked: the engine alone, in this thread whatever the device."""
    run_backward = torch.autograd.Variable._execution_engine.run_backward
    roots = tuple(outputs), tuple(grad_outputs), retain_graph, create_graph, tuple(inputs)
    with torch.autograd.set_multithreading_enabled(False), as_eager_chooses(outputs):
        found: tuple[Tensor | None, ...] = run_backward(*roots, allow_unused, accumulate_grad=False)
    return found


def _max_pool1d(function: Any, *args: Any, **named: Any) -> Any:
    """Without a history eager has a kernel for rows, whose result is contiguous; of fakes it makes images."""
    x = args[0] if args else named.get("input")
    if not isinstance(x, FakeTensor) or (x.requires_grad and torch.is_grad_enabled()):
        return NotImplemented
    out = function(*args, **named)
    return out.clone(memory_format=torch.contiguous_format) if isinstance(out, Tensor) else out


#: Functions whose gradient has, by PyTorch's formula, steps whose sizes depend on data: others with the same values.
#: And the entry to the engine, which on its way imports SymPy to compare shapes that have been compared; and LSTMs
#: and pooled rows, which PyTorch takes apart where it sees a mode; and tensors made of numbers, which it fixes.
_OTHERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.index_fill, torch.Tensor.index_fill), partial(_filled, False)),
    torch.Tensor.index_fill_: partial(_filled, True),
    torch.autograd.grad: gradients,
    torch.lstm: lstm,
    **dict.fromkeys((torch.istft, torch.Tensor.istft), istft),
    **dict.fromkeys((torch.tensor, torch.as_tensor, torch.asarray), literals.tensor),
    torch.Tensor.new_tensor: literals.tensor_like,
    **{function: partial(_max_pool1d, function) for function in (torch.max_pool1d, F.max_pool1d)},
}

#: Those that ask for data where they are called.
_ASKING = frozenset({torch.istft, torch.Tensor.istft})

#: The operators of modes, for inputs of three dims, four and five; None where there is no such.
_RESAMPLING: dict[str, tuple[str | None, ...]] = {
    "nearest": ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    "nearest-exact": ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    "linear": ("upsample_linear1d", None, None),
    "bilinear": (None, "upsample_bilinear2d", None),
    "trilinear": (None, None, "upsample_trilinear3d"),
    "bicubic": (None, "upsample_bicubic2d", None),
}


def _interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """To a size, or by a whole factor: what the function calls takes numbers, and the operator behind that sizes."""
    nearest = mode in ("nearest", "nearest-exact")
    if recompute_scale_factor or antialias or (nearest and align_corners is not None):
        return NotImplemented
    given = size if scale_factor is None else scale_factor if size is None else None
    if given is None or not isinstance(x, FakeTensor) or not 3 <= x.dim() <= 5:
        return NotImplemented
    each = list(given) if isinstance(given, Sequence) else [given] * (x.dim() - 2)
    operator = _RESAMPLING.get(mode, (None,) * 3)[x.dim() - 3]
    if operator is None or len(each) != x.dim() - 2:
        return NotImplemented
    scales: list[float] = []
    if size is None:
        if not all(isinstance(scale, int | float) and scale == int(scale) > 0 for scale in each):
            return NotImplemented
        scales = [float(scale) for scale in each]
        each = [extent * int(scale) for extent, scale in zip(x.shape[2:], scales, strict=True)]
    how = () if nearest else (bool(align_corners),)
    return getattr(torch.ops.aten, operator).default(x, each, *how, *scales)


_FORMS: dict[Any, Callable[..., Any]] = {
    F.interpolate: _interpolate,
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, operator.matmul), _matmul),
    torch.ops.aten.matmul.default: _matmul,
    torch.Tensor.__rmatmul__: lambda a, b: _matmul(b, a),
    **dict.fromkeys((F.linear, torch.ops.aten.linear.default), _linear),
    torch.linspace: _linspace,
    **dict.fromkeys((torch.stft, torch.Tensor.stft), stft),
    **{getattr(torch, name): partial(packed, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}
