"""Whole models of transformers, small and with random weights: one graph, the results of eager, effects included."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from tests.capture.values.harness import capture, same

IDS = torch.arange(32).reshape(2, 16) % 97
SMALL: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


def gpt2() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=99, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS}, IDS


def bert() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.BertConfig(vocab_size=99, **SMALL)
    return transformers.BertForMaskedLM(config), {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, IDS


def bert_classifier() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.BertConfig(vocab_size=99, **SMALL)
    return transformers.BertForSequenceClassification(config), {"input_ids": IDS}, torch.tensor([0, 1])


def llama() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **SMALL)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}, IDS


def t5() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.T5Config(
        num_layers=2, d_model=32, d_kv=8, num_heads=4, d_ff=64, vocab_size=99, decoder_start_token_id=0
    )
    return (
        transformers.T5ForConditionalGeneration(config),
        {"input_ids": IDS, "decoder_input_ids": IDS[:, :8].clone()},
        IDS[:, :8].clone(),
    )


def vit() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **SMALL)
    return (
        transformers.ViTForImageClassification(config),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
        torch.tensor([1, 3]),
    )


def resnet() -> tuple[Any, dict[str, Any], Any]:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
    return (
        transformers.ResNetForImageClassification(config),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
        torch.tensor([1, 3]),
    )


@pytest.mark.parametrize("labels", [False, True], ids=["plain", "labels"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("make", [gpt2, bert, bert_classifier, llama, t5, vit, resnet])
def test_model(make: Callable[[], tuple[Any, dict[str, Any], Any]], training: bool, labels: bool) -> None:
    torch.manual_seed(0)
    model, inputs, targets = make()
    model.train(training)
    if labels:
        inputs = {**inputs, "labels": targets}
    forward = type(model).forward
    captured = capture(forward, model, **inputs)
    reference = copy.deepcopy(model)
    torch.manual_seed(1)
    expected = forward(reference, **inputs)
    torch.manual_seed(1)
    same(captured.run(model, **inputs), expected)
    same(model, reference)


def test_outputs_of_every_layer() -> None:
    model, inputs, _ = gpt2()
    model.eval()
    inputs = {**inputs, "output_hidden_states": True}
    captured = capture(type(model).forward, model, **inputs)
    got, expected = captured.run(model, **inputs), model(**inputs)
    assert len(got.hidden_states) == 3
    same(got, expected)


def test_decoding_with_a_cache() -> None:
    model, inputs, _ = llama()
    model.eval()
    with torch.no_grad():
        cache = model(**inputs).past_key_values
        other = copy.deepcopy(cache)
        step = {"input_ids": IDS[:, :1].clone()}
        captured = capture(type(model).forward, model, past_key_values=cache, **step)
        got = captured.run(model, past_key_values=cache, **step)
        same(got, model(past_key_values=other, **step))
    assert got.past_key_values is cache
    assert cache.get_seq_length() == 17
