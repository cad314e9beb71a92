"""Attention as models write it becomes scaled-dot-product attention: values, gradients and NaN are eager's."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import stator
from stator.patterns import attention
from tests.patterns.compiling import agree, compiled

B, H, T, S, D = 2, 3, 40, 50, 16
KERNEL = "aten._scaled_dot_product_flash_attention_for_cpu.default"


@pytest.fixture
def however_small(monkeypatch):
    monkeypatch.setattr(attention, "LARGE", -(1 << 40))
    monkeypatch.setattr(attention, "HEADS", 0)


def operands(*, keys=S, grad=False):
    shapes = (B, T, H, D), (B, keys, H, D), (B, keys, H, D)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


def heads(q, k, v):
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def merge(out):
    return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)


def bert(q, k, v, mask):
    q, k, v = heads(q, k, v)
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(D) + mask
    probabilities = F.dropout(F.softmax(scores, dim=-1), p=0.1, training=False)
    return merge(torch.matmul(probabilities, v))


def gpt2(q, k, v, mask):
    q, k, v = heads(q, k, v)
    weights = torch.matmul(q, k.transpose(-1, -2)) * (D**-0.5)
    keep = torch.ones(T, S, dtype=torch.bool).tril(S - T)[None, None]
    weights = torch.where(keep, weights, torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)) + mask
    weights = F.softmax(weights, dim=-1).type(v.dtype)
    return merge(torch.matmul(weights, v))


def t5(q, k, v, bias):
    q, k, v = heads(q, k, v)
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias
    weights = F.softmax(scores.float() if scores.dtype is torch.float32 else scores, dim=-1).type_as(scores)
    return merge(torch.matmul(F.dropout(weights, p=0.1, training=False), v))


def llama(q, k, v, mask):
    q, k, v = heads(q, k, v)
    k, v = (x[:, :1][:, :, None].expand(B, 1, H, S, D).reshape(B, H, S, D) for x in (k, v))
    weights = torch.matmul(q, k.transpose(2, 3)) * 0.25 + mask
    weights = F.softmax(weights, dim=-1, dtype=weights.dtype).to(q.dtype)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def scaled_before(q, k, v, mask):
    q, k, v = heads(q * D**-0.5, k, v)
    return (torch.softmax(mask + q @ k.permute(0, 1, 3, 2), -1) @ v).transpose(1, 2).contiguous()


def keys_turned(q, k, v, mask):
    return torch.softmax(q.transpose(1, 2) @ k.permute(0, 2, 3, 1) + mask, -1) @ v.permute(0, 2, 1, 3)


MASKS = {
    "keys": lambda: torch.where(torch.rand(B, 1, 1, S) > 0.3, 0.0, torch.finfo(torch.float32).min),
    "bias": lambda: torch.randn(1, H, T, S),
    "causal": lambda: torch.full((T, S), -math.inf).triu(S - T + 1),
    "nothing left": lambda: torch.full((B, 1, T, S), -math.inf).masked_fill(torch.rand(B, 1, T, 1) > 0.2, 0.0),
}


def test_a_mask_keeps_eagers_gradients(however_small) -> None:
    """Also of rows that it leaves nothing of, which the kernel's gradients are not."""

    def text(q, k, v, mask):
        q, k, v = heads(q, k, v)
        return torch.softmax(q @ k.mT * 0.25 + mask, -1) @ v

    mask = torch.zeros(B, 1, 1, S)
    mask[0] = torch.finfo(torch.float32).min
    assert agree(text, *operands(grad=True), mask) == []


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("model", [bert, gpt2, t5, llama, scaled_before, keys_turned])
def test_models(however_small, model, grad, mask) -> None:
    replaced = agree(model, *operands(grad=grad), MASKS[mask]())
    grouped = ["grouped heads, mask"] if model is llama else []
    assert replaced == [] if grad else replaced[0].startswith("attention") and replaced[1:] == grouped


def test_without_a_mask(however_small) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        return merge((q @ k.mT / 4).softmax(-1) @ v)

    for grad in (False, True):
        assert agree(text, *operands(grad=grad)) == ["attention"]


@pytest.mark.parametrize("low", [-math.inf, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_masked_by_a_condition(however_small, low, grad) -> None:
    def text(q, k, v, mask):
        q, k, v = heads(q, k, v)
        scores = (q @ k.transpose(-2, -1) * 0.25).masked_fill(mask == 0, low)
        return torch.softmax(scores, -1) @ v

    mask = (torch.rand(T, S) > 0.3).float()
    mask[3] = 0.0  # nothing is left for this one
    assert agree(text, *operands(grad=grad), mask) == ([] if grad else ["attention, condition"])


def test_a_mask_that_leaves_some_weight(however_small) -> None:
    def text(q, k, v, mask):
        q, k, v = heads(q, k, v)
        return torch.softmax((q @ k.mT).masked_fill(mask, -5.0), -1) @ v

    result, replaced, refused = compiled(text, *(given := (*operands(), torch.rand(T, S) > 0.5)))
    assert not replaced and refused == ["scores that are masked keep some weight"]
    torch.testing.assert_close(result, text(*given))


@pytest.mark.parametrize("repeat", ["expand", "repeat_interleave"])
def test_grouped_heads_without_a_mask(however_small, repeat) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        if repeat == "expand":
            k, v = (x[:, :, None, :, :].expand(B, 3, 4, S, D).reshape(B, 12, S, D) for x in (k, v))
        else:
            k, v = (x.repeat_interleave(4, dim=1) for x in (k, v))
        return torch.softmax(q @ k.mT * 0.25, -1) @ v

    _, k, v = operands()
    expected = ["attention", "grouped heads"] if repeat == "expand" else ["attention"]
    assert agree(text, torch.randn(B, T, 12, D), k, v) == expected


def test_heads_repeated_in_another_order(however_small) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        k, v = (x[:, None].expand(B, 4, 3, S, D).reshape(B, 12, S, D) for x in (k, v))
        return torch.softmax(q @ k.mT * 0.25, -1) @ v

    _, k, v = operands()
    assert agree(text, torch.randn(B, T, 12, D), k, v) == ["attention"]


def test_two_masks(however_small) -> None:
    def text(q, k, v, bias, mask):
        q, k, v = heads(q, k, v)
        return merge(torch.softmax(q @ k.mT * 0.25 + bias + mask, -1) @ v)

    lowest = torch.finfo(torch.float32).min
    masks = torch.full((1, 1, T, S), lowest).triu(11), torch.where(torch.rand(B, 1, 1, S) > 0.1, 0.0, lowest)
    assert agree(text, *operands(), *masks) == ["attention, two masks"]


def test_a_mask_without_infinities_costs_no_more(however_small) -> None:
    def text(q, k, v, keep):
        q, k, v = heads(q, k, v)
        mask = torch.where(keep, 0.0, torch.finfo(torch.float32).min)[:, None, None, :].expand(B, 1, T, S)
        return torch.softmax(q @ k.mT + mask, -1) @ v

    given = (*operands(), torch.rand(B, S) > 0.5)
    result, replaced, _ = compiled(text, *given)
    assert replaced == ["attention, finite mask"]
    torch.testing.assert_close(result, text(*given))


def refused(text, *given):
    """It is right, and this is why it was left as it is."""
    stator.reset()
    result, replaced, why = compiled(text, *given)
    assert not replaced
    torch.testing.assert_close(result, text(*given))
    return why


def plain(q, k, v):
    q, k, v = heads(q, k, v)
    return torch.softmax(q @ k.mT, -1) @ v


def test_probabilities_that_somebody_reads(however_small) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        probabilities = torch.softmax(q @ k.mT, -1)
        return probabilities @ v, probabilities

    assert refused(text, *operands()) == ["a value inside, softmax, is read by output too"]


def test_half_types_are_rounded_as_eager_rounds_them(however_small) -> None:
    why = refused(plain, *[x.bfloat16() for x in operands()])
    assert why == ["only float32 and float64 are computed without rounding between"]


def test_autocast_is_left_as_it_is(however_small) -> None:
    def text(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(q, k, v)

    assert all("float32" in why for why in refused(text, *operands()))


def test_a_bias_that_takes_gradients(however_small) -> None:
    def text(q, k, v, bias):
        q, k, v = heads(q, k, v)
        return torch.softmax(q @ k.mT + bias, -1) @ v

    bias = torch.randn(1, H, T, S, requires_grad=True)
    assert refused(text, *operands(grad=True), bias) == [
        "where a mask leaves nothing of a row, the kernel's gradients are not eager's"
    ]
    with torch.no_grad():
        stator.reset()
        assert compiled(text, *operands(), bias)[1] == ["attention, mask"]


def test_active_dropout_is_left_as_it_is(however_small) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        return F.dropout(torch.softmax(q @ k.mT, -1), 0.5, True) @ v

    result, replaced, _ = compiled(text, *operands())
    assert not replaced and result.shape == (B, H, T, D)


def test_small_ones_are_left_as_they_are(monkeypatch) -> None:
    assert refused(plain, *operands()) == []  # nobody looks for more than a softmax
    monkeypatch.setattr(attention, "LARGE", 4 * B * H * T * S)
    assert refused(lambda *given: plain(*given) * 1.0, *operands(grad=True)) == [
        "it is small: its scores stay in caches"
    ]
    stator.reset()
    assert compiled(plain, *operands())[1] == ["attention"]


def test_softmax_over_another_dim(however_small) -> None:
    def text(q, k, v):
        q, k, v = heads(q, k, v)
        return torch.softmax(q @ k.mT, -2) @ v

    assert refused(text, *operands()) == []


def test_symbolic_sizes(however_small) -> None:
    stator.reset()
    function = stator.compile(bert, dynamic=True, fullgraph=True)
    for keys in (30, 41, 50):
        given = (*operands(keys=keys), torch.randn(B, 1, 1, keys))
        torch.testing.assert_close(function(*given), bert(*given), rtol=2e-5, atol=2e-5)


def test_double_backward_runs_what_the_program_has(however_small) -> None:
    q, k, v = operands(grad=True)
    found = torch.autograd.grad(stator.compile(plain)(q, k, v).sin().sum(), q, create_graph=True)[0]
    expected = torch.autograd.grad(plain(q, k, v).sin().sum(), q, create_graph=True)[0]
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    second = [torch.autograd.grad(first.square().sum(), k)[0] for first in (found, expected)]
    torch.testing.assert_close(*second, rtol=1e-4, atol=1e-4)
