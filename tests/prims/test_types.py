"""The type rules of the primitive set, against what ATen's kernels give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx
from torch._ops import OpOverload

from stator.prims import PRIMITIVES, TypeMismatch, verify
from stator.prims.set import TABLE
from stator.prims.types import TYPE_RULES, left_open
from stator.prims.verify import bound

aten = torch.ops.aten
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
ROWS, ROW = torch.tensor([[0, 1, 2, 3]] * 4), torch.tensor([0, 2, 1, 3])
Example = Callable[[torch.Tensor, Any], tuple[Any, ...]]
#: Arguments of the primitives that take more than one or two operands: x is of the dtype tried, y any second operand.
EXAMPLES: dict[str, Example] = {
    "div.Tensor_mode": lambda x, y: (x, y, {"rounding_mode": "floor"}),
    "where.self": lambda x, y: (x != 2, x, y), "where.ScalarSelf": lambda x, y: (x != 2, y, x),
    "where.ScalarOther": lambda x, y: (x != 2, x, y), "clamp": lambda x, y: (x, y, None),
    "_to_copy": lambda x, y: (x, {"dtype": y.dtype}), "logcumsumexp": lambda x, y: (x, 0),
    "sum.dim_IntList": lambda x, y: (x, [0], False, {"dtype": y.dtype}), "cumprod": lambda x, y: (x, 0),
    "cummax": lambda x, y: (x, 0), "cummin": lambda x, y: (x, 0),
    "mean.dim": lambda x, y: (x, [0], False), "prod.dim_int": lambda x, y: (x, 0), "amax": lambda x, y: (x, [0]),
    "amin": lambda x, y: (x, [0]), "any.dims": lambda x, y: (x, [0]), "view": lambda x, y: (x, [16]),
    "permute": lambda x, y: (x, [1, 0]), "expand": lambda x, y: (x, [2, 4, 4]), "select.int": lambda x, y: (x, 0, 1),
    "unsqueeze": lambda x, y: (x, 0), "squeeze.dims": lambda x, y: (x, [0]), "view.dtype": lambda x, y: (x, y.dtype),
    "as_strided": lambda x, y: (x, [4], [1]), "unfold": lambda x, y: (x, 0, 2, 1), "cat": lambda x, y: ([x, y],),
    "view_as_complex": lambda x, y: (x.reshape(4, 2, 2),), "constant_pad_nd": lambda x, y: (x, [1, 1], 1),
    "flip": lambda x, y: (x, [0]), "index.Tensor": lambda x, y: (x, [ROW]), "index_select": lambda x, y: (x, 0, ROW),
    "gather": lambda x, y: (x, 0, ROWS), "slice_scatter": lambda x, y: (x, x[:2], 0, 0, 2),
    "select_scatter": lambda x, y: (x, x[0], 0, 1), "index_put": lambda x, y: (x, [ROW], x),
    "copy_": lambda x, y: (x, y),
    "scatter.src": lambda x, y: (x, 0, ROWS, x), "scatter_add": lambda x, y: (x, 0, ROWS, x),
    "scatter_reduce.two": lambda x, y: (x, 0, ROWS, x, "amax"), "index_add": lambda x, y: (x, 0, ROW, x),
    "index_copy": lambda x, y: (x, 0, ROW, x), "index_reduce": lambda x, y: (x, 0, ROW, x, "amax"),
    "searchsorted.Tensor": lambda x, y: (torch.arange(4.0), x, {"out_int32": y.dtype is torch.int32}),
    "full": lambda x, y: ([4], x.flatten()[0].item()), "full_like": lambda x, y: (x, 1, {"dtype": y.dtype}),
    "arange.start_step": lambda x, y: (0, x.real.flatten()[0].item(), 1), "addmm": lambda x, y: (x, x, x),
    "mm": lambda x, y: (x, x), "bmm": lambda x, y: (x[None], x[None]), "cumsum": lambda x, y: (x, 0),
    "convolution": lambda x, y: (x[None], x[:, :, None], None, [1], [0], [1], False, [0], 1),
    "convolution_backward": lambda x, y: (
        x[None], x[None], x[:, :, None], None, [1], [0], [1], False, [0], 1, [True, True, False]),
    "_scaled_dot_product_flash_attention_for_cpu": lambda x, y: (x[None, None],) * 3,
    "embedding_dense_backward": lambda x, y: (x, ROW, 4, -1, False), "sort.stable": lambda x, y: (x, {"stable": True}),
    "max_pool2d_with_indices": lambda x, y: (x[None], [2, 2]),
    "max_pool2d_with_indices_backward": lambda x, y: (
        x[None, :2, :2], x[None], [2, 2], [2, 2], [0, 0], [1, 1], False, ROWS[None, :2, :2]),
}  # fmt: skip
#: Attention that is only on CUDA, and the gradient of attention, which wants what the forward has kept.
ELSEWHERE = {op for op in PRIMITIVES if "attention" in op.name() and not op.name().endswith("for_cpu")}
OPERATORS = [
    op for op, known in PRIMITIVES.items() if op.namespace == "aten" and op not in ELSEWHERE and known.kind != "check"
]


def example(op: OpOverload, x: torch.Tensor, y: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = op.name().removeprefix("aten::")
    made = EXAMPLES.get(name)
    if made is not None:
        args = made(x, y)
    elif len([a for a in op._schema.arguments if str(a.type) in ("Tensor", "number")]) > 1:
        args = (x, y)
    else:
        args = (x,)
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})


def operands(op: OpOverload) -> Iterator[tuple[torch.Tensor, Any]]:
    for dtype in DTYPES:
        x = torch.randint(1, 5, (4, 4)).to(dtype)
        scalars = "Scalar" in op.name() or op in (aten.clamp.default,)
        wrapped = op.name().partition(".")[0].removeprefix("aten::") in ("add", "sub", "mul", "div")
        seconds: list[Any] = [2, 1.5, True] if scalars or wrapped else []
        if not scalars:
            dtypes = DTYPES if PRIMITIVES[op].kind == "pointwise" else DTYPES[:6:5]
            seconds += [torch.randint(1, 5, (4,) * n).to(other) for n in (2, 0) for other in dtypes]
        for y in seconds:
            yield x, y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_eager_gives_what_the_rule_says(op: OpOverload) -> None:
    compared = 0
    for x, y in operands(op):
        args, kwargs = example(op, x, y)
        try:
            results = op(*args, **kwargs)
        except (RuntimeError, NotImplementedError, IndexError):  # a kernel that does not take this dtype
            continue
        results = results if isinstance(results, tuple) else (results,)
        for result, rule in itertools.zip_longest(results, PRIMITIVES[op].types, fillvalue=left_open):
            wanted = rule(bound(op, args, kwargs))
            assert rule is left_open or result is None or result.dtype is wanted, (op, x.dtype, y, wanted)
        compared += 1
    assert compared >= 2


def test_every_rule_is_used_and_explained() -> None:
    used = {rule for primitive in PRIMITIVES.values() for rule in primitive.types}
    assert used == set(TYPE_RULES.values())
    assert all(rule.__doc__ for rule in used)


def test_a_wrong_dtype_in_a_graph_is_named() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(3, dtype=torch.int64)
    root = graph.call_function(aten.sqrt.default, (x,))
    root.meta["val"] = torch.ones(3, dtype=torch.float32)
    graph.output(root)
    verify(graph)
    root.meta["val"] = torch.ones(3, dtype=torch.int64)
    with pytest.raises(TypeMismatch, match=r"sqrt.*is torch.int64, its type rule says torch.float32"):
        verify(graph)


def test_the_set_fits_its_screens() -> None:
    assert sum(len(lines.strip().splitlines()) for lines in TABLE.values()) <= 120
