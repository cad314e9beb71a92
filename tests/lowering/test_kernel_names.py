"""Kernels are named by what the program calls what they compute, as a person finds them in a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.base import log
from stator.loop.kernel import MOST_OF_A_NAME, kernel_name


def names_of(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> list[str]:
    """The kernels that a first call and its backward launch, and that the results are right."""
    with log.collect() as seen:
        compiled = stator.compile(function, fullgraph=True, options={"cache": False, **options})
        results = [compiled(*inputs), function(*inputs)]
        if results[0].requires_grad:
            leaves = [x for x in inputs if x.requires_grad]
            results += [torch.cat([g.flatten() for g in torch.autograd.grad(r.sum(), leaves)]) for r in results]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[2::2], results[3::2])
    return [name for graph in seen.of(log.KERNELS) for name in graph["names"]]


def block(x: Tensor, weight: Tensor) -> Tensor:
    return (F.layer_norm(F.gelu(x @ weight) + x, [8]).softmax(-1) * 2).transpose(0, 1)


@pytest.mark.parametrize(
    ("language", "names"),
    [("c++", ["matmul_gelu_add_k0", "layer_norm_softmax_mul_k1"]), ("c", ["gelu_add_layer_norm_softmax_mul_k0"])],
)
def test_what_is_fused_is_in_the_name(language: str, names: list[str]) -> None:
    """In C++ a product of many rows and few terms is a loop, with what reads it row by row."""
    assert names_of(block, torch.randn(2000, 8), torch.randn(8, 8), cpu_kernels=language) == names


def test_backward_says_whose_it_is() -> None:
    found = names_of(block, torch.randn(200, 8, requires_grad=True), torch.randn(8, 8))
    assert found[0] == "gelu_add_layer_norm_softmax_mul_k0"
    assert "softmax_backward_layer_norm_backward" in found[1]


def test_what_lies_in_memory_is_another_kernel() -> None:
    """A value that several kernels read is computed in the first one, which has its name."""
    found = names_of(lambda x: torch.cumsum(x.exp(), 1).sort(-1)[0].sin().sum(0), torch.randn(4, 8))
    assert found == ["exp_cumsum_k0", "sin_sum_k1"]


def test_inputs_may_have_the_names_of_kernels() -> None:
    def function(exp_k0: Tensor, k0: Tensor, exp_k0_1: Tensor) -> Tensor:
        return (exp_k0 + k0 * exp_k0_1[1:]).exp()

    assert names_of(function, torch.randn(3), torch.randn(3), torch.randn(4)) == ["mul_add_exp_k0"]


def test_long_names_are_cut() -> None:
    assert kernel_name(3) == "k3" and kernel_name(3, ("gelu", "add")) == "gelu_add_k3"
    name = kernel_name(12, [f"operator{i}" for i in range(20)])
    assert len(name) <= MOST_OF_A_NAME + 3 and name.endswith("operator18_operator19_k12")
