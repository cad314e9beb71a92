"""Which attention is ours on a GPU: by rule, as was measured, and what is a library's whatever was measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from stator.loop.nest import Extern
from stator.lowering import attention, lower
from stator.lowering.product import TAKES_LOOP
from stator.targets import typical
from tests.codegen.test_attention import EFFICIENT, EFFICIENT_BACK, FLASH, Graph, heads

CUDNN = torch.ops.aten._scaled_dot_product_cudnn_attention
CUDNN_BACK = torch.ops.aten._scaled_dot_product_cudnn_attention_backward


def lowered(
    op: Any, inputs: list[Tensor], *args: Any, measured: bool | None = None, parts: int = 1, rounds: bool = True
) -> list[str]:
    """The kernels and calls of one operator."""
    made = Graph()
    node = made.call(op, *map(made.given, inputs), *args)
    del node.meta[TAKES_LOOP]
    if measured is not None:
        node.meta[TAKES_LOOP] = measured
    made.graph.output(tuple([made.part(node, i) for i in range(parts)]))
    program = lower(fx.GraphModule({}, made.graph), "test", typical("cuda"), rounds)
    return [node.target for node in program.nodes if isinstance(node, Extern)]


def qkv(width: int = 64, dtype: torch.dtype = torch.bfloat16, queries: int = 40, keys: int = 40) -> list[Tensor]:
    return [heads(2, 2, n, width, dtype) for n in (queries, keys, keys)]


def test_by_rule_and_by_measurement() -> None:
    ours, library = ["stator.attention_forward"], ["aten._scaled_dot_product_flash_attention.default"]
    assert lowered(FLASH, qkv()) == ours
    assert lowered(FLASH, qkv(), measured=False) == library
    bias = torch.zeros(2, 2, 40, 40, dtype=torch.bfloat16)
    assert lowered(EFFICIENT, [*qkv(), bias], False) == ours
    assert lowered(CUDNN, [*qkv(), bias], False) == ["aten._scaled_dot_product_cudnn_attention.default"]
    assert lowered(CUDNN, [*qkv(), bias], False, measured=True) == ours


REFUSED: dict[str, tuple[list[Tensor], tuple[Any, ...]]] = {
    "dropout": (qkv(), (0.1, False)),
    "rows too wide": (qkv(264), (0.0, False)),
    "a diagonal that ends elsewhere": (qkv(queries=40, keys=50), (0.0, True)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_library_keeps(name: str) -> None:
    inputs, args = REFUSED[name]
    assert lowered(FLASH, inputs, *args, measured=True) == ["aten._scaled_dot_product_flash_attention.default"]


def test_gradients_of_a_bias_are_a_library_s() -> None:
    q, k, v = qkv()
    bias, logs = torch.zeros(2, 2, 40, 40, dtype=torch.bfloat16), torch.zeros(2, 2, 64)
    inputs = [q, q, k, v, bias, q, logs, torch.zeros(()), torch.zeros(())]
    asked = 0.0, [True, True, True, True], False
    name = "aten._scaled_dot_product_efficient_attention_backward.default"
    assert lowered(EFFICIENT_BACK, inputs, *asked, parts=4) == [name]
    ours = lowered(EFFICIENT_BACK, inputs, *asked, parts=3)
    assert ours == ["stator.attention_keys", "stator.attention_queries"]


@pytest.mark.parametrize("keys", [attention.FEW_KEYS, attention.FEW_KEYS + 1])
def test_gradients_without_roundings_are_ours_where_keys_are_few(keys: int) -> None:
    """What one kernel finds out the other one takes, so it runs first."""
    q, k, v = qkv(keys=keys)
    inputs = [q, q, k, v, q, torch.zeros(2, 2, 40, 1), torch.zeros(()), torch.zeros(())]
    asked = None, None, None, 40, keys, 0.0, False
    library = ["aten._scaled_dot_product_cudnn_attention_backward.default"]
    assert lowered(CUDNN_BACK, inputs, *asked, parts=3) == library
    ours = ["stator.attention_queries", "stator.attention_keys"] if keys <= attention.FEW_KEYS else library
    assert lowered(CUDNN_BACK, inputs, *asked, parts=3, rounds=False) == ours
    assert lowered(CUDNN_BACK, inputs, *asked, parts=3, rounds=False, measured=False) == library
    assert lowered(CUDNN_BACK, inputs, *asked, parts=1, rounds=False) == ours[:1]


def test_only_gradients_that_are_read_are_computed() -> None:
    q, k, v = qkv()
    inputs = [q, q, k, v, torch.zeros(2, 2, 40, 40, dtype=torch.bfloat16), q, torch.zeros(2, 2, 64)]
    inputs += [torch.zeros(()), torch.zeros(())]
    asked = 0.0, [True, True, True, False], False
    assert lowered(EFFICIENT_BACK, inputs, *asked, parts=1) == ["stator.attention_queries"]
