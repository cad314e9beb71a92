"""Extern calls: operators that an outside kernel computes, and every operator without a lowering.

Tensors among the arguments are given as strided views of buffers. Other constants are plain: dtypes,
layouts, memory formats and devices are the Python expression that gives them, as a string that starts
with "torch." ("torch.float32", "torch.device('cpu')"). `outputs` are the tensors among the results that
the graph reads, in order: kernels leave some undefined that their shape functions promise, and nothing is
relied on that nobody reads. `OUT_VARIANTS` lists the operators that write their result into memory the
caller gives without a hidden copy. Neighbours: `product.py`, `scatter.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from stator.base.dtypes import OPAQUE
from stator.base.effects import Effect
from stator.base.errors import Unsupported
from stator.fake.effects import OURS
from stator.fake.execute import plan_of
from stator.graphs.calls import effects_of
from stator.loop.nest import Argument, Buffer, Extern, Text
from stator.lowering.context import Context
from stator.lowering.value import LazyTensor, Place, Spec, over, placed
from stator.sizes import Size, hint
from stator.sizes.real import Bits
from stator.sizes.strides import is_dense

#: Functional target → its out variant, for contiguous results.
OUT_VARIANTS = {
    "aten.mm.default": "aten.mm.out",
    "aten.mm.dtype": "aten.mm.dtype_out",
    "aten.bmm.default": "aten.bmm.out",
    "aten.bmm.dtype": "aten.bmm.dtype_out",
    "aten.addmm.default": "aten.addmm.out",
    "aten.cumsum.default": "aten.cumsum.out",
    "mkl._mkl_linear.default": "mkl._mkl_linear.out",
}

#: Target → the arguments that it takes in the strides of the program alone: rows of a bias are padded to be aligned.
AS_TRACED = {
    "aten._scaled_dot_product_efficient_attention.default": (3,),
    "aten._scaled_dot_product_efficient_attention_backward.default": (4,),
}

#: Operators of PyTorch that take all values: no element of what they are given makes them raise. Any other may.
TOTAL = frozenset(
    "mm bmm addmm baddbmm convolution convolution_backward sort topk cumsum clone _to_copy max_pool2d_with_indices "
    "max_pool2d_with_indices_backward embedding_dense_backward _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_efficient_attention_backward".split()
)

#: Operators of PyTorch whose results lie in memory that they have made, and that nobody else has.
FRESH = frozenset(
    "mm bmm addmm baddbmm convolution convolution_backward max_pool2d_with_indices_backward "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention".split()
)


def target_name(target: Any) -> str:
    """An overload as "namespace.name.overload"."""
    return f"{target.namespace}.{target._opname}.{target._overloadname}"


def argument(context: Context, value: Any) -> Argument:
    """An argument of an fx node as data."""
    match value:
        case LazyTensor():
            return context.view(value)
        case str():
            return Text(value)
        case None | bool() | int() | float() | complex() | Size() | Bits():
            return value
        case list() | tuple():
            return tuple([argument(context, item) for item in value])
        case torch.device():
            return f"torch.device({str(value)!r})"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(value)
    raise Unsupported(context.node.target if context.node is not None else "a call", f"it takes {value!r}")


def call(
    context: Context,
    target: str,
    results: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    effects: tuple[Effect, ...] = (),
) -> Any:
    """A call of `target`; `results` are Specs, None or numbers, in the structure of what it returns."""
    views = tuple([argument(context, a) for a in args])
    named = tuple([(key, argument(context, a)) for key, a in kwargs.items()])
    single = not isinstance(results, list)
    read = {0} if single else read_results(context.node, len(results))
    buffers: list[Buffer] = []
    taken: list[int] = []
    values: list[Any] = []
    for i, spec in enumerate([results] if single else results):
        if not isinstance(spec, Spec) or i not in read:
            values.append(None if isinstance(spec, Spec) else spec)
            continue
        taken.append(i)
        size, stride, dtype, device = spec.numbers
        known_as = spec.dtype if spec.dtype in OPAQUE else ""
        buffer = context.buffer(size, stride, dtype, device, exact=True, opaque=known_as)
        buffers.append(buffer)
        value = placed(size, Place(buffer, buffer.stride))
        values.append(over(value, known_as) if known_as else value)
    out = OUT_VARIANTS.get(target)
    if out is not None and not (single and is_row_major(buffers[0]) and buffers[0].device == context.device.kind):
        out = None
    node = context.node
    hint = node.name if node is not None else target
    namespace, name, _ = target.split(".")
    fails, foreign = namespace != "aten" or name not in TOTAL, namespace not in OURS
    fresh = namespace == "aten" and name in FRESH
    made = Extern(hint, target, views, named, tuple(buffers), out, effects, tuple(taken), fails, foreign, fresh)
    context.nodes.append(made)
    return values[0] if single else tuple(values)


def read_results(node: Node | None, count: int) -> set[int]:
    """Which results of the call being lowered something reads."""
    if node is None or any(user.target is not operator.getitem for user in node.users):
        return set(range(count))
    return {user.args[1] for user in node.users if user.users}  # type: ignore[misc]


def is_row_major(buffer: Buffer) -> bool:
    return is_dense(buffer.size, buffer.stride) and list(buffer.stride) == sorted(buffer.stride, key=hint, reverse=True)


def extern(context: Context, out: Any, *args: Any, **kwargs: Any) -> Any:
    """The node being lowered, as a call of its own overload."""
    assert context.node is not None
    target: Any = context.node.target
    name = target_name(target)
    if plan_of(target).view:  # its result must not lie in memory that others take over
        name = f"{target.namespace}.{target._opname}_copy.{target._overloadname}"
    for place in AS_TRACED.get(name, ()):
        if isinstance(args[place], LazyTensor):
            context.own_place(args[place])  # and not where the same values lie otherwise
    results = list(out) if isinstance(out, tuple) and not isinstance(out, Spec) else out
    return call(context, name, results, args, kwargs, effects_of(context.node))
