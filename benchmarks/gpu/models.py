"""The models that a GPU is measured with: batches and lengths as they are trained and served with.

Transformers are those of `transformers`, made from a config; image models those of `timm`. All have random weights,
drawn on the device from a seed, so that every process has the same. `shallow` keeps two layers of each run of equal
ones, for errors of gradients, which every layer adds to alike.
Neighbours: `step.py` makes steps of them; `benchmarks/registry.py` has the small batches of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks import registry

INFERENCE, TRAINING = "inference", "training"
TASKS = (INFERENCE, TRAINING)


@dataclass(frozen=True, slots=True)
class Model:
    """`inputs(model, batch)` are its keyword arguments without labels, on the device that is current for factories.

    `loss(model output, labels)` is None for a model that computes its own from `labels`; `classes` are what labels
    count, one a row, and 0 where the labels are the token ids themselves.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[nn.Module, int], dict[str, Tensor]]
    batch: int
    training_batch: int
    classes: int = 0
    loss: Callable[[Any, Tensor], Tensor] | None = None
    #: Roughly, of training: how much of the device's memory is taken, so that not too many run side by side.
    gib: int = 6


def _registered(name: str) -> Callable[[], nn.Module]:
    return lambda: registry.MODELS[name].build("base")


def _tokens(length: int, masked: bool = False) -> Callable[[nn.Module, int], dict[str, Tensor]]:
    """Random token ids, [batch, length]; with a mask rows end after at least half of their length."""

    def inputs(model: nn.Module, batch: int) -> dict[str, Tensor]:
        given = {"input_ids": torch.randint(2, model.config.vocab_size, (batch, length))}
        if masked:
            ends = torch.randint(length // 2, length + 1, (batch, 1))
            given["attention_mask"] = (torch.arange(length)[None, :] < ends).long()
        return given

    return inputs


def _pairs(length: int) -> Callable[[nn.Module, int], dict[str, Tensor]]:
    """Encoder ids and decoder ids, [batch, length] each."""

    def inputs(model: nn.Module, batch: int) -> dict[str, Tensor]:
        names = ("input_ids", "decoder_input_ids")
        return {name: torch.randint(2, model.config.vocab_size, (batch, length)) for name in names}

    return inputs


def _images(model: nn.Module, batch: int) -> dict[str, Tensor]:
    return {"x": torch.randn(batch, 3, 224, 224)}


def _timm(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm  # only machines with a GPU need it

        model: nn.Module = timm.create_model(name)
        for layer in model.modules():  # a head of zeros would hide whatever comes before it
            if isinstance(layer, nn.Linear) and not layer.weight.any():
                nn.init.normal_(layer.weight, std=0.02)
        return model

    return build


def _llama_1b() -> nn.Module:
    """The published shape of Llama 3.2 1B: 16 layers, 2048 wide, 8 key-value heads, tied embeddings."""
    config = transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128256, tie_word_embeddings=True, max_position_embeddings=8192,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def _image_model(name: str, timm_name: str, batch: int = 32) -> Model:
    return Model(name, _timm(timm_name), _images, batch, batch, 1000, nn.functional.cross_entropy)


_ALL = (
    Model("bert", _registered("bert"), _tokens(512), 16, 16, 4, gib=8),
    _image_model("resnet50", "resnet50"),
    Model("gpt2", _registered("gpt2"), _tokens(512), 8, 8),
    Model("llama-160m", _registered("llama"), _tokens(512), 8, 8),
    _image_model("vit-b", "vit_base_patch16_224"),
    _image_model("convnext-t", "convnext_tiny"),
    Model("t5-small", _registered("t5"), _pairs(256), 16, 16),
    _image_model("mobilenetv3", "mobilenetv3_large_100"),
    _image_model("swin-t", "swin_tiny_patch4_window7_224"),
    Model("distilbert", _registered("distilbert"), _tokens(128, masked=True), 32, 32, 4),
    _image_model("efficientnet-b0", "efficientnet_b0"),
    Model("albert", _registered("albert"), _tokens(256, masked=True), 16, 16, 4),
    _image_model("mixer-b", "mixer_b16_224"),
    Model("opt", _registered("opt"), _tokens(256), 16, 16),
    Model("llama-1b", _llama_1b, _tokens(512), 8, 4, gib=26),
)
MODELS: dict[str, Model] = {model.name: model for model in _ALL}


def labels(model: Model, given: dict[str, Tensor], batch: int) -> Tensor:
    """What the loss is taken against."""
    if model.classes:
        return torch.randint(0, model.classes, (batch,))
    return given.get("decoder_input_ids", given["input_ids"]).clone()


def shallow(module: nn.Module) -> nn.Module:
    """The module with at most two of each run of layers that have parameters of the same shapes."""
    for part in module.modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            _shorten(part)
    config = getattr(module, "config", None)
    for name in ("num_hidden_layers", "n_layers"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(2, getattr(config, name)))
    return module


def _shorten(part: nn.ModuleList | nn.Sequential) -> None:
    shapes = [tuple([tuple(p.shape) for p in child.parameters()]) for child in part]
    surplus = [i for i in range(2, len(shapes)) if shapes[i] and shapes[i] == shapes[i - 1] == shapes[i - 2]]
    for i in reversed(surplus):
        del part[i]
