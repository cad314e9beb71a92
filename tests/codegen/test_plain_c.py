"""Plain C: its text for each kind of loop; the generator's suites run it too (`harness.Batch`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.base.options import Options
from stator.codegen import c
from stator.codegen.c.emit import function_text
from stator.kernel.strategies import serial
from stator.loop.kernel import Kernel
from stator.runtime import Cpp
from tests.kernel.test_serial import KERNELS


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_the_text_of_a_kernel(make: Callable[[], Kernel], golden: Callable[[str, str], None]) -> None:
    golden(f"c_{make.__name__}", function_text(serial(make(), make.__name__)))


def attention(x: Tensor, weight: Tensor) -> Tensor:
    q, k, v = (x @ weight).chunk(3, -1)
    scores = (q @ k.mT) * 0.25 + torch.full((x.shape[1], x.shape[1]), -1e4).triu(1)
    return torch.nn.functional.layer_norm(scores.softmax(-1) @ v + x, x.shape[-1:]).sum((0, 1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_program_with_gradients(dynamic: bool) -> None:
    torch.manual_seed(0)
    compiled = stator.compile(
        attention, dynamic=dynamic, fullgraph=True, options={"cpu_kernels": "c", "strict": True, "verify": True}
    )
    for batch, length in ((3, 9), (2, 14)):
        x, weight = torch.randn(batch, length, 16, requires_grad=True), torch.randn(16, 48, requires_grad=True)
        found, expected = compiled(x, weight), attention(x, weight)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        ours, theirs = (torch.autograd.grad(r.square().sum(), (x, weight)) for r in (found, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_index_out_of_range_is_an_error() -> None:
    compiled = stator.compile(lambda x, at: x[at] + 1, fullgraph=True, options={"cpu_kernels": "c"})
    with pytest.raises((IndexError, RuntimeError), match=r"out of range|out of bounds"):
        compiled(torch.randn(5), torch.tensor([1, 7]))


def test_nothing_is_of_one_compiler_only() -> None:
    """Plain C is standard C: pedantic warnings are errors here."""
    strict = (*[flag for flag in c.FLAGS if flag != "-w"], "-pedantic-errors", "-Werror=vla")
    Cpp(Options.from_user()).build(c.emit([make() for make in KERNELS]), strict)
