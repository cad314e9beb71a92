"""`flex_attention` in a graph: scores by functions of the program, masks, heads that share keys, gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import stator
from stator.capture.values.autograd import flexible

RANDOM = torch.Generator().manual_seed(0)
SLOPES, BIAS = torch.rand(4, generator=RANDOM), torch.randn(4, 24, 24, generator=RANDOM)


@pytest.fixture(autouse=True)
def unfused() -> Iterator[None]:
    """Eager warns that it is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def shifted(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return score + SLOPES[h] * (n - m)


def biased(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return torch.tanh(score + BIAS[h, m, n]) * 2


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


MASK = create_block_mask(causal, None, None, 24, 24, device="cpu")
CALLS: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v: flex_attention(q, k, v),
    "slopes": lambda q, k, v: flex_attention(q, k, v, shifted),
    "bias": lambda q, k, v: flex_attention(q, k, v, score_mod=biased, scale=0.3),
    "mask": lambda q, k, v: flex_attention(q, k, v, block_mask=MASK),
    "both": lambda q, k, v: flex_attention(q, k, v, shifted, MASK) * 2,
    "shared keys": lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2], shifted, enable_gqa=True),
}


def tensors(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 4, 24, 16).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_graph_gives_eager_s_result(name: str, dtype: torch.dtype) -> None:
    stator.reset()
    explained = stator.explain(CALLS[name])(*tensors(dtype))
    assert len(explained.graphs) == 1 and not explained.breaks
    wanted = CALLS[name](*tensors(dtype))
    assert explained.result.dtype == wanted.dtype
    step = torch.finfo(dtype).eps * 8
    torch.testing.assert_close(explained.result, wanted, rtol=step, atol=step)


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name: str) -> None:
    stator.reset()
    given = [x.requires_grad_() for x in tensors()]
    wide = [x.detach().double().requires_grad_() for x in given]
    stator.compile(CALLS[name], fullgraph=True)(*given).sin().sum().backward()
    formula(name, *wide).sin().sum().backward()
    for ours, exact in zip(given, wide, strict=True):
        torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)


def formula(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a case is, without `flex_attention`."""
    if name == "shared keys":
        k, v = (x[:, :2].repeat_interleave(2, 1) for x in (k, v))
    scores = q @ k.mT * (0.3 if name == "bias" else 0.25)
    apart = torch.arange(24) - torch.arange(24)[:, None]
    if name in ("slopes", "both", "shared keys"):
        scores = scores + SLOPES.double()[:, None, None] * apart
    if name == "bias":
        scores = torch.tanh(scores + BIAS.double()) * 2
    if name in ("mask", "both"):
        scores = scores.masked_fill(apart > 0, -torch.inf)
    return scores.softmax(-1) @ v * (2 if name == "both" else 1)


def test_more_than_the_result_ends_the_graph() -> None:
    stator.reset()
    explained = stator.explain(lambda q, k, v: flex_attention(q, k, v, return_lse=True)[0] + 1)(*tensors())
    assert "return_lse" in str(explained.breaks)
    torch.testing.assert_close(explained.result, flex_attention(*tensors()) + 1)


@pytest.mark.parametrize("wrong", [lambda q, k, v: (q[0], k, v), lambda q, k, v: (q, k[:, :2], v[:, :2])])
def test_what_eager_refuses_is_refused(wrong: Callable[..., Any]) -> None:
    stator.reset()
    given = wrong(*tensors())
    with pytest.raises((ValueError, NotImplementedError)) as expected:
        flex_attention(*given)
    with pytest.raises(expected.type) as found:
        stator.compile(CALLS["plain"])(*given)
    assert str(found.value) == str(expected.value)


def near(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (m - n < 100)


def of_documents(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m // 50 == n // 50) & (m != 7)


@pytest.mark.parametrize("name", ["slopes", "bias", "both", "mask", "shared keys"])
def test_functions_of_half_types_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a graph for a GPU has, run where there is none: the operators of attention, with what is between them."""
    monkeypatch.setattr(flexible, "HOST", "meta")
    stator.reset()
    explained = stator.explain(CALLS[name])(*tensors(torch.bfloat16))
    assert explained.externs == ("stator.attend.default",) and len(explained.graphs) == 1
    wanted = CALLS[name](*tensors(torch.bfloat16))
    torch.testing.assert_close(explained.result, wanted, rtol=0.05, atol=0.05)
    given = [x.requires_grad_() for x in tensors(torch.bfloat16)]
    assert "stator.attend.default" not in stator.explain(CALLS[name])(*given).externs


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["slopes", "bias", "both", "mask", "shared keys"])
def test_functions_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel."""
    monkeypatch.setitem(globals(), "SLOPES", SLOPES.cuda())
    monkeypatch.setitem(globals(), "BIAS", BIAS.cuda())
    monkeypatch.setitem(globals(), "MASK", create_block_mask(causal, None, None, 24, 24, device="cuda"))
    stator.reset()
    given = [x.cuda() for x in tensors(torch.bfloat16)]
    explained = stator.explain(CALLS[name])(*given)
    print(explained)
    assert not explained.externs
    exact = CALLS[name](*[x.double() for x in given])
    assert (explained.result - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [None, causal, near, of_documents])
@pytest.mark.parametrize("shared", [False, True])
def test_masks_on_a_gpu(mask: Callable[..., Any] | None, shared: bool) -> None:
    """No scores are in memory where no function changes them, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    stator.reset()
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4 if i == 0 or not shared else 2, 300, 64, device="cuda").bfloat16() for i in range(3))
    blocks = None if mask is None else create_block_mask(mask, None, None, 300, 300, device="cuda")

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=blocks, enable_gqa=shared)

    given = [x.clone().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        explained = stator.explain(step)(*given)
        explained.result.float().square().sum().backward()
    print(mask, explained)
    assert not [name for name in explained.externs if "bmm" in name or "attention" in name]
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    exact = step(*wide)
    exact.square().sum().backward()
    assert (explained.result - exact).abs().max() < 0.02 * exact.abs().max()
    for ours, theirs in zip(given, wide, strict=True):
        assert (ours.grad - theirs.grad).abs().max() < 0.03 * theirs.grad.abs().max()
