"""Writes that autograd does not notice: backward reads the new values where eager saved that tensor, and only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

#: Functions whose gradient needs their operand, what forward computed of it, or both.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "logsigmoid": F.logsigmoid, "exp": torch.exp, "silu": F.silu, "softplus": F.softplus, "abs": torch.abs,
    "log softmax": lambda x: F.log_softmax(x, 1), "a maximum": lambda x: x.amax(1), "variance": lambda x: x.var(1),
    "norm": lambda x: x.norm(3, 1), "layer norm": lambda x: F.layer_norm(x, (4,)), "hardswish": F.hardswish,
    "distances": lambda x: torch.cdist(x, x + 1), "powers": lambda x: x**3, "cumprod": lambda x: x.cumprod(0),
}  # fmt: skip


#: Eager has no distances of half types.
CASES = [(name, torch.float64) for name in FUNCTIONS]
CASES += [(name, torch.float16) for name in FUNCTIONS if name != "distances"]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_a_write_between_a_function_and_its_gradient(name: str, dtype: torch.dtype) -> None:
    def program(x: Tensor) -> Tensor:
        unseen = x.data
        y = FUNCTIONS[name](x)
        unseen.add_(1)
        return y * 2

    def run(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        x = torch.tensor([[-0.5, -0.25, 0.5, -2.0], [0.3, -1.1, 1.3, 0.9], [2.0, -0.7, 0.1, -0.9]], dtype=dtype)
        x.requires_grad_()
        out = function(x)
        return out.detach(), x.detach(), torch.autograd.grad(out, x, torch.ones_like(out))[0]

    rough = {"rtol": 2e-3, "atol": 2e-3} if dtype is torch.float16 else {"rtol": 1e-12, "atol": 1e-12}
    for found, want in zip(run(stator.compile(program, options={"strict": True})), run(program), strict=True):
        torch.testing.assert_close(found, want, equal_nan=True, **rough)
