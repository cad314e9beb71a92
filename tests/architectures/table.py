"""The architectures: name → family, class, configuration and inputs.

Configurations are the library's own with every size made small: `SMALL` names the fields that most of them share, an
entry adds what is its own. Nothing is downloaded. Inputs are random and drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers

Inputs = dict[str, torch.Tensor]

#: Fields that many configurations have, made small; applied where the configuration has them.
SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "d_model": 32, "n_embd": 32, "embedding_size": 32, "dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "hidden_dim": 48,
    "max_position_embeddings": 64, "image_size": 32, "patch_size": 8, "num_labels": 3,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "drop_path_rate": 0, "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
    "apply_spec_augment": False, "mask_time_prob": 0.0,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0,
}  # fmt: skip


class Architecture(NamedTuple):
    """One entry."""

    name: str
    family: str
    #: The model's class in `transformers`, by name.
    model: str
    inputs: Callable[[Any, torch.Generator], Inputs]
    #: Configuration fields of its own; a dict in it configures a part.
    fields: dict[str, Any]

    def config(self) -> Any:
        """The small configuration."""
        return small(getattr(transformers, self.model).config_class, self.fields)

    def build(self) -> Any:
        """The model, in evaluation mode."""
        torch.manual_seed(0)
        return getattr(transformers, self.model)(self.config()).eval()


TABLE: dict[str, Architecture] = {}


def small(kind: Any, fields: dict[str, Any]) -> Any:
    """A configuration of this class with small sizes; parts are configured by the dicts among the fields."""
    other_names = getattr(kind, "attribute_map", {})
    known = vars(kind()) | other_names
    parts = getattr(kind, "sub_configs", {})
    given = {other_names.get(name, name) for name in fields}
    chosen = {
        name: value for name, value in SMALL.items() if name in known and other_names.get(name, name) not in given
    }
    for name, part in parts.items():
        own = fields.get(name, {})
        if name in fields and isinstance(own, dict) and hasattr(part, "from_dict") and "model_type" not in own:
            chosen[name] = small(part, own).to_dict()
    rest = {name: value for name, value in fields.items() if name not in chosen}
    return kind(**chosen, **rest)


def add(name: str, family: str, model: str, inputs: Callable[[Any, torch.Generator], Inputs], **fields: Any) -> None:
    """Enter an architecture."""
    TABLE[name] = Architecture(name, family, model, inputs, fields)


# -- inputs --------------------------------------------------------------------------------------------


def text(config: Any, generator: torch.Generator) -> Inputs:
    """Token ids [2, 12] and their mask."""
    vocabulary = getattr(config, "vocab_size", None) or config.text_config.vocab_size
    ids = torch.randint(3, vocabulary, (2, 12), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def ids_only(config: Any, generator: torch.Generator) -> Inputs:
    """Token ids [2, 12]."""
    return {"input_ids": text(config, generator)["input_ids"]}


def pairs(config: Any, generator: torch.Generator) -> Inputs:
    """Encoder and decoder ids."""
    return {
        **text(config, generator),
        "decoder_input_ids": torch.randint(3, config.vocab_size, (2, 8), generator=generator),
    }


def images(config: Any, generator: torch.Generator) -> Inputs:
    """Images [2, channels, side, side]."""
    side = getattr(config, "image_size", None) or 32
    side = side if isinstance(side, int) else side[0]
    return {"pixel_values": torch.randn(2, getattr(config, "num_channels", 3), side, side, generator=generator)}


def video(config: Any, generator: torch.Generator) -> Inputs:
    """Frames [1, frames, channels, side, side]."""
    return {"pixel_values": torch.randn(1, config.num_frames, 3, 32, 32, generator=generator)}


def waves(config: Any, generator: torch.Generator) -> Inputs:
    """Samples [2, 1600]."""
    return {"input_values": torch.randn(2, 1600, generator=generator)}


def spectra(config: Any, generator: torch.Generator) -> Inputs:
    """Log-mel features [2, bins, 2·positions] and decoder ids."""
    features = torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions, generator=generator)
    return {
        "input_features": features,
        "decoder_input_ids": torch.randint(3, config.vocab_size, (2, 8), generator=generator),
    }


def spectrogram(config: Any, generator: torch.Generator) -> Inputs:
    """A spectrogram [2, frames, bins]."""
    return {"input_values": torch.randn(2, config.max_length, config.num_mel_bins, generator=generator)}


def both(config: Any, generator: torch.Generator) -> Inputs:
    """Token ids and images, as many of each."""
    return {**text(config.text_config, generator), **images(config.vision_config, generator)}


def joint(config: Any, generator: torch.Generator) -> Inputs:
    """Token ids and images of one configuration."""
    return {**text(config, generator), **images(config, generator)}


def joint_parts(config: Any, generator: torch.Generator) -> Inputs:
    """Token ids of the configuration itself and images of its vision part."""
    return {**text(config, generator), **images(config.vision_config, generator)}


# -- text, encoders --------------------------------------------------------------------------------------

for name, model in {
    "bert": "BertForSequenceClassification", "roberta": "RobertaForSequenceClassification",
    "albert": "AlbertForSequenceClassification", "distilbert": "DistilBertForSequenceClassification",
    "electra": "ElectraForSequenceClassification", "mpnet": "MPNetForSequenceClassification",
    "deberta": "DebertaForSequenceClassification", "deberta-v2": "DebertaV2ForSequenceClassification",
    "convbert": "ConvBertForSequenceClassification", "mobilebert": "MobileBertForSequenceClassification",
    "squeezebert": "SqueezeBertForSequenceClassification", "fnet": "FNetForSequenceClassification",
    "layoutlm": "LayoutLMForSequenceClassification", "roformer": "RoFormerForSequenceClassification",
    "rembert": "RemBertForSequenceClassification", "camembert": "CamembertForSequenceClassification",
    "xlm-roberta": "XLMRobertaForSequenceClassification", "ernie": "ErnieForSequenceClassification",
    "megatron-bert": "MegatronBertForSequenceClassification", "funnel": "FunnelForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
}.items():  # fmt: skip
    own: dict[str, Any] = {
        "mobilebert": {"intra_bottleneck_size": 16, "true_hidden_size": 16},
        "squeezebert": {"q_groups": 2, "k_groups": 2, "v_groups": 2, "intermediate_groups": 2, "output_groups": 2},
        "funnel": {"block_sizes": [1, 1], "d_inner": 48},
        "modernbert": {"cls_token_id": 1, "sep_token_id": 2},
    }.get(name, {})
    add(name, "text", model, ids_only if name == "fnet" else text, **own)

# -- text, decoders --------------------------------------------------------------------------------------

for name, model in {
    "gpt2": "GPT2LMHeadModel", "gpt_neo": "GPTNeoForCausalLM", "gpt_neox": "GPTNeoXForCausalLM",
    "gptj": "GPTJForCausalLM", "opt": "OPTForCausalLM", "bloom": "BloomForCausalLM", "codegen": "CodeGenForCausalLM",
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM", "falcon": "FalconForCausalLM", "mpt": "MptForCausalLM",
    "stablelm": "StableLmForCausalLM", "starcoder2": "Starcoder2ForCausalLM", "cohere": "CohereForCausalLM",
    "olmo": "OlmoForCausalLM", "olmo2": "Olmo2ForCausalLM", "granite": "GraniteForCausalLM", "glm": "GlmForCausalLM",
    "persimmon": "PersimmonForCausalLM", "nemotron": "NemotronForCausalLM", "xglm": "XGLMForCausalLM",
    "biogpt": "BioGptForCausalLM", "helium": "HeliumForCausalLM", "smollm3": "SmolLM3ForCausalLM",
    "mamba": "MambaForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
}.items():  # fmt: skip
    own = {
        "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
        "gptj": {"rotary_dim": 4, "n_positions": 64},
        "codegen": {"rotary_dim": 4, "n_positions": 64},
        "gpt2": {"n_positions": 64},
        "opt": {"word_embed_proj_dim": 32},
        "phi3": {"original_max_position_embeddings": 64},
        "mpt": {"expansion_ratio": 2, "max_seq_len": 64},
        "xglm": {"attention_heads": 4},
        "mamba": {"state_size": 4, "time_step_rank": 4},
        "qwen2_moe": {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24},
        "deepseek_v3": {
            "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "kv_lora_rank": 8,
            "q_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
            "head_dim": 4,
        },
    }.get(name, {})  # fmt: skip
    add(name, "text", model, ids_only if name == "mamba" else text, **own)

# -- text, encoder and decoder ---------------------------------------------------------------------------

for name, model in {
    "t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration", "umt5": "UMT5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration", "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration", "blenderbot": "BlenderbotForConditionalGeneration",
    "marian": "MarianMTModel", "m2m_100": "M2M100ForConditionalGeneration", "led": "LEDForConditionalGeneration",
    "longt5": "LongT5ForConditionalGeneration",
    "switch_transformers": "SwitchTransformersForConditionalGeneration",
}.items():  # fmt: skip
    own = {
        "led": {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4},
        "switch_transformers": {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    }.get(name, {})  # fmt: skip
    add(name, "text", model, pairs, **own)

# -- vision ----------------------------------------------------------------------------------------------

for name, model, own in (
    ("vit", "ViTForImageClassification", {}),
    ("deit", "DeiTForImageClassification", {}),
    ("beit", "BeitForImageClassification", {}),
    (
        "swin",
        "SwinForImageClassification",
        {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4},
    ),
    (
        "swinv2",
        "Swinv2ForImageClassification",
        {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4},
    ),
    (
        "convnext",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
    ),
    (
        "convnextv2",
        "ConvNextV2ForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
    ),
    ("resnet", "ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    (
        "regnet",
        "RegNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4},
    ),
    (
        "poolformer",
        "PoolFormerForImageClassification",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
        },
    ),
    ("mobilenet_v2", "MobileNetV2ForImageClassification", {}),
    (
        "efficientnet",
        "EfficientNetForImageClassification",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
    ),
    (
        "segformer",
        "SegformerForImageClassification",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "num_attention_heads": [1, 2],
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    (
        "mobilevit",
        "MobileViTForImageClassification",
        {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32], "patch_size": 2},
    ),
    ("dinov2", "Dinov2ForImageClassification", {}),
    (
        "levit",
        "LevitForImageClassification",
        {
            "hidden_sizes": [16, 24, 32],
            "depths": [1, 1, 1],
            "num_attention_heads": [2, 2, 2],
            "key_dim": [8, 8, 8],
            "image_size": 64,
            "patch_size": 16,
        },
    ),
    (
        "focalnet",
        "FocalNetForImageClassification",
        {
            "embed_dim": 8,
            "depths": [1, 1],
            "patch_size": 4,
            "hidden_sizes": [8, 16],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
    ),
    (
        "pvt_v2",
        "PvtV2ForImageClassification",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "num_attention_heads": [1, 2],
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "mlp_ratios": [2, 2],
        },
    ),
):
    add(name, "vision", model, images, **own)
add("videomae", "vision", "VideoMAEForVideoClassification", video, num_frames=4)
add("timesformer", "vision", "TimesformerForVideoClassification", video, num_frames=2)

# -- audio -----------------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 4), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
}  # fmt: skip
for name, model in {
    "wav2vec2": "Wav2Vec2ForSequenceClassification", "hubert": "HubertForSequenceClassification",
    "wavlm": "WavLMForSequenceClassification", "unispeech": "UniSpeechForSequenceClassification",
    "sew": "SEWForSequenceClassification", "data2vec-audio": "Data2VecAudioForSequenceClassification",
}.items():  # fmt: skip
    own = {"sew": {"squeeze_factor": 2}, "data2vec-audio": {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}}
    add(name, "audio", model, waves, **{**CONVOLUTIONS, **own.get(name, {})})
add(
    "whisper", "audio", "WhisperForConditionalGeneration", spectra,
    num_mel_bins=16, max_source_positions=20, max_target_positions=20,
)  # fmt: skip
add(
    "audio-spectrogram-transformer", "audio", "ASTForAudioClassification", spectrogram,
    num_mel_bins=16, max_length=24, frequency_stride=8, time_stride=8,
)  # fmt: skip

# -- several modes ---------------------------------------------------------------------------------------

for name, model in {"clip": "CLIPModel", "siglip": "SiglipModel", "chinese_clip": "ChineseCLIPModel"}.items():
    add(name, "multi-modal", model, both, text_config={"eos_token_id": 2}, vision_config={})
add(
    "blip",
    "multi-modal",
    "BlipForImageTextRetrieval",
    both,
    text_config={},
    vision_config={},
    image_text_hidden_size=16,
)
add("vilt", "multi-modal", "ViltForQuestionAnswering", joint, max_image_length=16)
add("altclip", "multi-modal", "AltCLIPModel", both, text_config={}, vision_config={})
add("git", "multi-modal", "GitForCausalLM", joint_parts, vision_config={})
