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

Inputs = dict[str, Any]


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


def states(config: Any, seed: int, labels: bool) -> Inputs:
    """Random token ids, [1, 32]: few, as each is a step of a loop."""
    return tokens(config, seed, labels, 32)


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
    """Random images, [2, 3, side, side], and a class label each."""
    generator = torch.Generator().manual_seed(seed)
    side = getattr(config, "side", None) or getattr(config, "image_size", 224)
    given = {"pixel_values": torch.randn(2, 3, side, side, generator=generator)}
    if labels:
        given["labels"] = torch.randint(0, config.num_labels, (2,), generator=generator)
    return given


def scene(config: Any, seed: int, labels: bool) -> Inputs:
    """One random image, and a class label for each of its pixels."""
    generator = torch.Generator().manual_seed(seed)
    given = {"pixel_values": torch.randn(1, 3, config.side, config.side, generator=generator)}
    if labels:
        given["labels"] = torch.randint(0, config.num_labels, (1, config.side, config.side), generator=generator)
    return given


def speech(config: Any, seed: int, labels: bool) -> Inputs:
    """Random features of sound, [1, bins, frames], and decoder ids, [1, 32]."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (1, 32), generator=generator)
    frames = 2 * config.max_source_positions
    given = {"input_features": torch.randn(1, config.num_mel_bins, frames, generator=generator)}
    return given | {"decoder_input_ids": ids} | ({"labels": ids.clone()} if labels else {})


def captions(config: Any, seed: int, labels: bool) -> Inputs:
    """Four captions and four images, each of which belongs to one."""
    generator = torch.Generator().manual_seed(seed)
    text, side = config.text_config, config.vision_config.image_size
    ids = torch.randint(0, text.vocab_size - 1, (4, min(32, text.max_position_embeddings)), generator=generator)
    ids[:, -1] = text.eos_token_id
    given = {"input_ids": ids, "pixel_values": torch.randn(4, 3, side, side, generator=generator)}
    return given | ({"return_loss": True} if labels else {})


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


#: What makes a transformer tiny, by the names that most configurations use.
TINY = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000,
}  # fmt: skip


@register("roberta", token_class)
def roberta(size: str) -> torch.nn.Module:
    """RoBERTa base with a classification head."""
    config = transformers.RobertaConfig(num_labels=4, **(TINY if size == "tiny" else {"vocab_size": 50265}))
    return transformers.RobertaForSequenceClassification(config)


@register("distilbert", token_class)
def distilbert(size: str) -> torch.nn.Module:
    """DistilBERT base with a classification head."""
    tiny = {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": 1000}
    config = transformers.DistilBertConfig(num_labels=4, **(tiny if size == "tiny" else {}))
    return transformers.DistilBertForSequenceClassification(config)


@register("albert", token_class)
def albert(size: str) -> torch.nn.Module:
    """ALBERT base, whose twelve layers share their weights."""
    base = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    config = transformers.AlbertConfig(num_labels=4, **(TINY | {"embedding_size": 32} if size == "tiny" else base))
    return transformers.AlbertForSequenceClassification(config)


@register("electra", token_class)
def electra(size: str) -> torch.nn.Module:
    """ELECTRA small with a classification head."""
    config = transformers.ElectraConfig(num_labels=4, **(TINY | {"embedding_size": 32} if size == "tiny" else {}))
    return transformers.ElectraForSequenceClassification(config)


@register("opt", tokens)
def opt(size: str) -> torch.nn.Module:
    """OPT of 125 million parameters."""
    tiny = {**TINY, "ffn_dim": 128, "word_embed_proj_dim": 64}
    return transformers.OPTForCausalLM(transformers.OPTConfig(**(tiny if size == "tiny" else {})))


@register("mistral", tokens)
def mistral(size: str) -> torch.nn.Module:
    """Mistral of 8 layers, 768 wide, with grouped key-value heads and a sliding window of 64."""
    shape = {"hidden_size": 768, "intermediate_size": 2688, "num_hidden_layers": 8, "num_attention_heads": 12}
    shape = {**shape, "num_key_value_heads": 4, "vocab_size": 32000}
    tiny = {**TINY, "num_key_value_heads": 2}
    config = transformers.MistralConfig(sliding_window=64, **(tiny if size == "tiny" else shape))
    return transformers.MistralForCausalLM(config)


@register("qwen", tokens)
def qwen(size: str) -> torch.nn.Module:
    """Qwen3 of 8 layers, 768 wide, whose queries and keys have norms."""
    shape = {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 8, "num_attention_heads": 12}
    shape = {**shape, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}
    tiny = {**TINY, "num_key_value_heads": 2, "head_dim": 16}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**(tiny if size == "tiny" else shape)))


@register("mamba", states)
def mamba(size: str) -> torch.nn.Module:
    """Mamba of 4 layers, 512 wide: without kernels of its own its scan is a loop over the tokens."""
    shape = {"hidden_size": 512, "num_hidden_layers": 4, "vocab_size": 32000}
    tiny = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 1000, "state_size": 8}
    config = transformers.MambaConfig(use_cache=False, **(tiny if size == "tiny" else shape))
    return transformers.MambaForCausalLM(config)


@register("bart", pairs)
def bart(size: str) -> torch.nn.Module:
    """BART base."""
    shape = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "vocab_size": 50265}
    layers, heads = (2, 4) if size == "tiny" else (6, 12)
    if size == "tiny":
        shape = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 1000}
    config = transformers.BartConfig(
        encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads,
        **shape,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config)


@register("whisper", speech)
def whisper(size: str) -> torch.nn.Module:
    """Whisper tiny, for ten seconds of sound."""
    shape = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "max_source_positions": 500}
    layers, heads, vocab = (2, 4, 1000) if size == "tiny" else (4, 6, 51865)
    if size == "tiny":
        shape = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_source_positions": 32}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(
        encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads,
        vocab_size=vocab, **shape, **special,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


@register("clip", captions)
def clip(size: str) -> torch.nn.Module:
    """CLIP with a ViT-B/32."""
    text, vision = {}, {}
    if size == "tiny":
        text = {**TINY, "projection_dim": 32}
        vision = {**TINY, "projection_dim": 32, "image_size": 32, "patch_size": 8}
        del vision["vocab_size"]
    marks = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = transformers.CLIPConfig(
        text_config={**text, **marks}, vision_config=vision, projection_dim=32 if text else 512
    )
    return transformers.CLIPModel(config)


@register("swin", images)
def swin(size: str) -> torch.nn.Module:
    """Swin-T, 224×224."""
    tiny = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    config = transformers.SwinConfig(num_labels=10, **(tiny if size == "tiny" else {}))
    return transformers.SwinForImageClassification(config)


@register("convnext", images)
def convnext(size: str) -> torch.nn.Module:
    """ConvNeXt-T, 224×224."""
    tiny = {"image_size": 32, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 2, 1]}
    config = transformers.ConvNextConfig(num_labels=10, **(tiny if size == "tiny" else {}))
    return transformers.ConvNextForImageClassification(config)


@register("mobilenet", images)
def mobilenet(size: str) -> torch.nn.Module:
    """MobileNetV2, 224×224."""
    tiny = {"image_size": 64, "depth_multiplier": 0.25, "min_depth": 8}
    config = transformers.MobileNetV2Config(num_labels=10, **(tiny if size == "tiny" else {}))
    return transformers.MobileNetV2ForImageClassification(config)


@register("efficientnet", images)
def efficientnet(size: str) -> torch.nn.Module:
    """EfficientNet-B0, 224×224."""
    shape = {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
    tiny = {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.5, "hidden_dim": 320}
    config = transformers.EfficientNetConfig(num_labels=10, **(tiny if size == "tiny" else shape))
    model = transformers.EfficientNetForImageClassification(config)
    for module in model.modules():  # by the library's own initialisation images fade to zero on the way
        match module:
            case torch.nn.Conv2d():
                torch.nn.init.kaiming_normal_(module.weight)
            case torch.nn.BatchNorm2d():
                torch.nn.init.ones_(module.weight)
    return model


@register("segformer", scene)
def segformer(size: str) -> torch.nn.Module:
    """SegFormer-B0, 256×256, a class for each pixel."""
    tiny = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32}
    config = transformers.SegformerConfig(num_labels=19, **(tiny if size == "tiny" else {}))
    config.side = 64 if size == "tiny" else 256
    return transformers.SegformerForSemanticSegmentation(config)


def encoder(layers: int) -> torch.nn.Module:
    """A BERT-like encoder of any number of layers, 256 wide."""
    shape = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 1000}
    config = transformers.BertConfig(num_labels=4, num_hidden_layers=layers, **shape)
    return transformers.BertForSequenceClassification(config)


def entry(name: str) -> Model:
    """The model `name`; `encoder-12` is an encoder of 12 layers."""
    kind, _, layers = name.partition("-")
    if kind == "encoder":
        return Model(name, lambda size: encoder(int(layers)), token_class)
    return MODELS[name]


def build(name: str, size: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.nn.Module:
    """The model `name` in eval mode with weights drawn from `seed`."""
    torch.manual_seed(seed)
    return entry(name).build(size).eval().to(dtype)


def inputs(name: str, model: torch.nn.Module, seed: int, *, labels: bool, device: str = "cpu") -> Inputs:
    """Random keyword arguments for `model`; floating tensors take the parameters' dtype."""
    dtype = next(model.parameters()).dtype
    given = entry(name).inputs(model.config, seed, labels)
    return {name: _placed(value, device, dtype) for name, value in given.items()}


def _placed(value: Any, device: str, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)
