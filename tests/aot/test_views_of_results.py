"""Views of what operators give, recorded and not: they hang on the result as in eager, whatever formula it came from.

A formula may end in a view of memory that it made (`rot90` flips, then permutes); eager's kernel has that memory as its
own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

Function = Callable[[Tensor], Tensor]
OPERATORS: dict[str, Function] = {
    **{f"rot90 by {turns}": lambda x, turns=turns: torch.rot90(x, turns, (0, 1)) for turns in range(4)},
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "tile": lambda x: x.tile(2, 1, 1, 1),
    "repeat": lambda x: x.repeat(2, 1, 1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "kron": lambda x: torch.kron(x, x[:1, :1, :1, :1]),
    "einsum": lambda x: torch.einsum("abcd,abce->dabce", x, x),
    "tensordot": lambda x: torch.tensordot(x, x, ([3], [3])),
    "matmul": lambda x: x @ x.mT,
    "linear": lambda x: F.linear(x, x[0, 0]),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "unfold": lambda x: F.unfold(x, 2),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "cov": lambda x: torch.cov(x[0, 0]),
    "permuted copy": lambda x: torch.permute_copy(x, (1, 0, 2, 3)),
    "masked": lambda x: torch.where(x > 0, x, 0),
    "sort": lambda x: x.sort(0)[0],
    "cumsum": lambda x: x.cumsum(0),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "index": lambda x: x[[1, 0]],
    "indices in two dims": lambda x: x[:, [1, 0], :, [1, 0]],
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(0), 0),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x.diagonal() + 1),
    "conv": lambda x: F.conv2d(x, x[:, :, :2, :2]),
    "transposed conv": lambda x: F.conv_transpose2d(x, x[:, :, :2, :2].transpose(0, 1)),
    "pool": lambda x: F.avg_pool2d(x, 2),
    "softmax": lambda x: x.mT.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x.mT, (4,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "cdist": lambda x: torch.cdist(x, x),
    "trapezoid": lambda x: torch.cumulative_trapezoid(x, dim=0),
    "block_diag": lambda x: torch.block_diag(x[0, 0], x[0, 0]),
}


def recorded(x: Tensor, make: Function) -> tuple[Tensor, Tensor]:
    result = make(x)
    return result, result[-1:]


def unrecorded(x: Tensor, make: Function) -> tuple[Tensor]:
    result = make(x)
    with torch.no_grad():
        return (result[-1:],)


def seen(results: tuple[Tensor, ...]) -> list[object]:
    """What a caller can ask about how results hang together."""
    facts: list[object] = []
    for result in results:
        own = next((i for i, other in enumerate(results) if other is result._base), None)
        memory = next(i for i, r in enumerate(results) if r.untyped_storage()._cdata == result.untyped_storage()._cdata)
        facts.append((result._is_view(), own, memory, result.stride(), result.requires_grad, result.grad_fn is None))
    return facts


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("of", [recorded, unrecorded])
@pytest.mark.parametrize("name", OPERATORS)
def test_views_of_results(name: str, of: Callable[..., tuple[Tensor, ...]], backend: str) -> None:
    for needs in (True,) if of is unrecorded else (False, True):
        x = torch.randn(4, 4, 4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_(needs)
        compiled = stator.compile(of, backend=backend, fullgraph=True, options={"strict": True})
        got, want = compiled(x, OPERATORS[name]), of(x, OPERATORS[name])
        assert seen(got) == seen(want), f"with{'' if needs else 'out'} gradients"
        torch.testing.assert_close(got, want)
