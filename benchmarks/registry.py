"""The models that are measured: name → how to build it, its inputs and its loss.

Every model is made from a `transformers` config with random weights, so nothing is downloaded.
`size="base"` is the published architecture, `size="tiny"` a few layers for tests. Inputs are random
and drawn from a seed; labels are part of the inputs, so that the model's own loss is what trains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Model:
    """One entry: `build(size)` gives the module, `inputs(config, seed, labels)` its keyword arguments."""

    name: str
    build: Callable[[str], torch.nn.Module]
    inputs: Callable[[Any, int, bool], Inputs]


MODELS: dict[str, Model] = {}


def register(name: str, inputs: Callable[[Any, int, bool], Inputs]) -> Callable[..., Callable[[str], torch.nn.Module]]:
    """Enter a builder under `name`."""

    def enter(build: Callable[[str], torch.nn.Module]) -> Callable[[str], torch.nn.Module]:
        MODELS[name] = Model(name, build, inputs)
        return build

    return enter


def tokens(config: Any, seed: int, labels: bool, length: int = 128) -> Inputs:
    """Random token ids, [1, length]; the labels are the ids."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (1, min(length, 128)), generator=generator)
    return {"input_ids": ids, "labels": ids.clone()} if labels else {"input_ids": ids}


def token_class(config: Any, seed: int, labels: bool) -> Inputs:
    """Token ids and one class label a sequence, [2, 64]."""
    generator = torch.Generator().manual_seed(seed)
    given = {"input_ids": torch.randint(0, config.vocab_size, (2, 64), generator=generator)}
    if labels:
        given["labels"] = torch.randint(0, config.num_labels, (2,), generator=generator)
    return given


def pairs(config: Any, seed: int, labels: bool) -> Inputs:
    """Encoder ids and decoder ids, [1, 64] each."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, config.vocab_size, (2, 1, 64), generator=generator)
    given = {"input_ids": ids[0], "decoder_input_ids": ids[1]}
    if labels:
        given["labels"] = ids[1].clone()
    return given


def images(config: Any, seed: int, labels: bool) -> Inputs:
    """Random images, [2, 3, side, side]."""
    generator = torch.Generator().manual_seed(seed)
    side = getattr(config, "image_size", 224) if config.model_type != "resnet" else getattr(config, "side", 224)
    given = {"pixel_values": torch.randn(2, 3, side, side, generator=generator)}
    if labels:
        given["labels"] = torch.randint(0, config.num_labels, (2,), generator=generator)
    return given


@register("gpt2", tokens)
def gpt2(size: str) -> torch.nn.Module:
    """GPT-2 small: 12 layers, 768 wide."""
    tiny = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000, "n_positions": 128}
    config = transformers.GPT2Config(**(tiny if size == "tiny" else {}))
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # its class name is not in the library's table; unset, every call would warn
    return model


@register("bert", token_class)
def bert(size: str) -> torch.nn.Module:
    """BERT base with a classification head."""
    tiny = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    config = transformers.BertConfig(num_labels=4, **({"vocab_size": 1000, **tiny} if size == "tiny" else {}))
    return transformers.BertForSequenceClassification(config)


@register("llama", tokens)
def llama(size: str) -> torch.nn.Module:
    """Llama of 12 layers, 768 wide, with grouped key-value heads."""
    shape = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
    if size == "tiny":
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    vocab = 1000 if size == "tiny" else 32000
    heads = shape["num_attention_heads"] // 2
    config = transformers.LlamaConfig(num_key_value_heads=heads, vocab_size=vocab, **shape)
    return transformers.LlamaForCausalLM(config)


@register("t5", pairs)
def t5(size: str) -> torch.nn.Module:
    """T5 small."""
    tiny = {"num_layers": 2, "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "vocab_size": 1000}
    config = transformers.T5Config(**(tiny if size == "tiny" else {"d_model": 512, "d_ff": 2048, "d_kv": 64}))
    return transformers.T5ForConditionalGeneration(config)


@register("vit", images)
def vit(size: str) -> torch.nn.Module:
    """ViT base, 224×224."""
    tiny = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
        "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    config = transformers.ViTConfig(num_labels=10, **(tiny if size == "tiny" else {}))
    return transformers.ViTForImageClassification(config)


@register("resnet", images)
def resnet(size: str) -> torch.nn.Module:
    """ResNet-50, 224×224."""
    tiny = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "basic"}
    config = transformers.ResNetConfig(num_labels=10, **(tiny if size == "tiny" else {}))
    config.side = 64 if size == "tiny" else 224
    return transformers.ResNetForImageClassification(config)


def build(name: str, size: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.nn.Module:
    """The model `name` in eval mode with weights drawn from `seed`."""
    torch.manual_seed(seed)
    return MODELS[name].build(size).eval().to(dtype)


def inputs(name: str, model: torch.nn.Module, seed: int, *, labels: bool, device: str = "cpu") -> Inputs:
    """Random keyword arguments for `model`; floating tensors take the parameters' dtype."""
    dtype = next(model.parameters()).dtype
    given = MODELS[name].inputs(model.config, seed, labels)
    return {k: v.to(device, dtype) if v.is_floating_point() else v.to(device) for k, v in given.items()}
