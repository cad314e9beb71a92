"""Forms of call and kinds of result: what comes back has the type, the parts and the sharing that eager's has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from stator.capture.entry import versions_of
from tests.models.library import assert_near, compiled, exact, floating, model_and_inputs, numbered


def same_shape(got: Any, want: Any) -> None:
    """The same types and lengths all the way down; tensors agree to rounding."""
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride() and got.requires_grad is want.requires_grad
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same_shape(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            same_shape(mine, theirs)
    elif isinstance(want, EncoderDecoderCache):
        same_shape(got.self_attention_cache, want.self_attention_cache)
        same_shape(got.cross_attention_cache, want.cross_attention_cache)
        assert got.is_updated == want.is_updated
    elif isinstance(want, Cache):
        assert got.get_seq_length() == want.get_seq_length()
        for mine, theirs in zip(got.layers, want.layers, strict=True):
            same_shape([mine.keys, mine.values], [theirs.keys, theirs.values])


def sharing(output: Any) -> list[tuple[int, int]]:
    """Which tensors of an output lie in the same memory, by their numbers."""
    storages = [tensor.untyped_storage()._cdata for tensor in floating(output)]
    return [(i, storages.index(storage)) for i, storage in enumerate(storages)]


@pytest.mark.parametrize("name", ["gpt2", "bert"])
@torch.no_grad()
def test_positional_and_keyword_arguments(name: str) -> None:
    model, given = model_and_inputs(name)
    ids = given["input_ids"]
    fast = compiled(model)
    same_shape(fast(ids), model(ids))
    same_shape(fast(input_ids=ids), model(input_ids=ids))
    same_shape(fast(ids, return_dict=False), model(ids, return_dict=False))
    mask = {"attention_mask": torch.ones_like(ids)}
    same_shape(fast(ids, **mask), model(ids, **mask))


@pytest.mark.parametrize("name", ["gpt2", "vit", "t5"])
@torch.no_grad()
def test_hidden_states(name: str) -> None:
    model, given = model_and_inputs(name)
    got, want = compiled(model)(**given, output_hidden_states=True), model(**given, output_hidden_states=True)
    same_shape(got, want)
    assert sharing(got) == sharing(want)
    assert len(floating(got)) > 3


def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y, y[1:], x, x.t(), x.detach(), y.view(-1), x.view(torch.int32), y.detach()


def detached_first(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y.detach(), y, y[0]


def cut_from_what_is_not_returned(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y.detach()[0], y[1:], y[:2].t(), y.detach()


def of_another_width(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.expand(2, 3, 4), (x + 1).view(torch.float16).isnan(), x[1:, ::2]


@pytest.mark.parametrize(
    "function", [parts, detached_first, cut_from_what_is_not_returned, of_another_width], ids=lambda f: f.__name__
)
def test_parts_share_memory_as_in_eager(function: Any) -> None:
    """Shared memory, views, gradients: each result is what it is in eager, whatever else is returned."""
    results = []
    for run in (compiled(function), function):
        torch.manual_seed(0)
        x = torch.randn(3, 4, requires_grad=True)
        out = run(x)
        facts = [(t.requires_grad, t.is_leaf, t._is_view(), t is x) for t in out]
        sum((t * t).sum() for t in out if t.requires_grad and not t.is_leaf).backward()
        changed = out[-1].detach().add_(1)
        results.append([out, x.grad, facts, sharing(out), changed])
    for got, want in zip(*results, strict=True):
        same_shape(got, want)
        assert isinstance(got, (torch.Tensor, tuple)) or got == want


@pytest.mark.parametrize("name", ["llama", "bert"])
@torch.no_grad()
def test_padding(name: str) -> None:
    """A mask of padding is data: one version serves every pattern of it."""
    model, given = model_and_inputs(name)
    truth, precise = exact(model, given)
    fast = compiled(model)
    ids = given["input_ids"][:, :64].expand(2, -1)
    precise = {**precise, "input_ids": ids}
    for padded in (3, 20):
        mask = torch.ones_like(ids)
        mask[1, : padded if name == "llama" else None] = 0
        mask[1, padded:] = 1
        outputs = [m(input_ids=ids, attention_mask=mask) for m in (fast, model, truth)]
        kept = [{"logits": o.logits[mask.bool()] if name == "llama" else o.logits} for o in outputs]
        assert_near(*kept)
    assert len(versions_of(fast)) == 1


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_a_cache_serves_the_next_call(name: str) -> None:
    model, given = model_and_inputs(name)
    truth, _ = exact(model, given)
    ids = given["input_ids"][:, :40]
    fast = compiled(model)
    outputs = []
    for m in (fast, model, truth):
        first = m(ids[:, :32])
        second = m(ids[:, 32:39], past_key_values=first.past_key_values)
        third = m(ids[:, 39:], past_key_values=second.past_key_values)
        assert type(third.past_key_values) is DynamicCache
        assert third.past_key_values is first.past_key_values
        assert third.past_key_values.get_seq_length() == 40
        outputs.append(floating([first.logits, second.logits, third.logits, third.past_key_values.layers[1].keys]))
    assert_near(*map(numbered, outputs))
    whole = model(ids).logits
    torch.testing.assert_close(torch.cat(outputs[0][:3], 1), whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_generation() -> None:
    """The library's own loop over the compiled model."""
    model, given = model_and_inputs("gpt2")
    ids = given["input_ids"][:, :8]
    fast = compiled(model, options={"recompile_limit": 16})
    arguments: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    arguments["attention_mask"] = torch.ones_like(ids)
    assert torch.equal(fast.generate(ids, **arguments), model.generate(ids, **arguments))
    assert versions_of(fast)
