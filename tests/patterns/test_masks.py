"""Masks of positions: which are seen through, and that attention without them gives what it gave with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

import stator
from stator.base import log
from stator.patterns import masks

HEADS, QUERIES = 3, 7


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host stands in for a GPU."""
    monkeypatch.setattr(masks, "HOST", "none")
    yield


def positions(n: int) -> tuple[Tensor, Tensor]:
    q, k = torch.arange(n) + 0, torch.arange(0, n)
    return q[None, None, :, None], k[None, None, None, :]


def everything(x: Tensor) -> Tensor:
    q, _ = positions(x.shape[2])
    return (q.new_ones((), dtype=torch.bool) & (q >= 0)).expand(x.shape[0], -1, -1, x.shape[2])


def causal(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return (q.new_ones((), dtype=torch.bool) & (k <= q)).expand(x.shape[0], -1, -1, -1)


def later(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return (k > q).logical_not().logical_and(k - 1 < q)


def shifted(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return k <= q + 1


def window(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return (k <= q) & (k > q - 3)


def turned(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return (q <= k).transpose(-1, -2) & (q + k >= 0)


def written(x: Tensor) -> Tensor:
    q, _ = positions(x.shape[2])
    mask = (q >= 0).expand(-1, -1, -1, x.shape[2]).contiguous()
    mask[..., 3] = False
    return mask


def of_data(x: Tensor) -> Tensor:
    q, k = positions(x.shape[2])
    return (k <= q) & (x[:, :, :, :1] < 9)


#: Mask → what becomes of it: None if it stays, else whether it is causal.
CASES: dict[Callable[[Tensor], Tensor], bool | None] = {
    everything: False, causal: True, turned: True, later: None, shifted: None, window: None, written: None,
    of_data: None,
}  # fmt: skip


@pytest.mark.parametrize("mask", CASES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_masks(mask: Callable[[Tensor], Tensor], dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    search = masks._found

    def searched(graph: torch.fx.Graph) -> dict[torch.fx.Node, bool]:
        calls = search(graph)
        found.extend(calls.values())
        return calls

    monkeypatch.setattr(masks, "_found", searched)

    def f(x: Tensor) -> Tensor:
        return attention(x, x + 1, x * 2, mask(x), scale=0.3)

    compiled = stator.compile(f, fullgraph=True, dynamic=dynamic or None, options={"cache": False})
    x = torch.randn(2, HEADS, QUERIES, 8)
    with log.collect() as recorder:
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-5)
    told = [facts for facts in recorder.of(log.PATTERN) if facts["name"] == masks._NAME]
    wanted = [] if CASES[mask] is None else [CASES[mask]]
    assert found == wanted and len(told) == len(wanted)
    if dynamic:
        longer = torch.randn(2, HEADS, QUERIES + 4, 8)
        torch.testing.assert_close(compiled(longer), f(longer), rtol=1e-4, atol=1e-5)


def test_a_causal_mask_of_more_keys_than_queries_stays() -> None:
    def f(q: Tensor, k: Tensor) -> Tensor:
        keep = torch.arange(k.shape[1])[None, :] <= torch.arange(q.shape[1])[:, None]
        return attention(q, k, k, keep)

    q, k = torch.randn(2, 5, 8), torch.randn(2, 9, 8)
    with log.collect() as recorder:
        found = stator.compile(f, fullgraph=True, options={"cache": False})(q, k)
    torch.testing.assert_close(found, f(q, k), rtol=1e-4, atol=1e-5)
    assert not [facts for facts in recorder.of(log.PATTERN) if facts["name"] == masks._NAME]
