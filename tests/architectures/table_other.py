"""Further architectures: detection, segmentation, depth, time series, speech, and images among the tokens of a text.

Neighbours: `table.py`, which it adds to; `catalogue.py` has them all.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.architectures.table import CONVOLUTIONS, Inputs, add, images, text, waves

#: A tiny ResNet, where a backbone is asked for.
BACKBONE: dict[str, Any] = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"],
}  # fmt: skip
#: A tiny Swin, likewise.
SWIN: dict[str, Any] = {
    "model_type": "swin", "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 2,
    "patch_size": 4, "image_size": 64, "drop_path_rate": 0.0, "out_features": ["stage1", "stage2", "stage3", "stage4"],
}  # fmt: skip

#: The parts that see and that speak of models which join two.
EYES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
WORDS: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip

# -- inputs --------------------------------------------------------------------------------------------


def square(side: int) -> Any:
    """Images of another size."""

    def given(config: Any, generator: torch.Generator) -> Inputs:
        return {"pixel_values": torch.randn(2, 3, side, side, generator=generator)}

    return given


def series(config: Any, generator: torch.Generator) -> Inputs:
    """Values of the past [2, length, channels]."""
    return {"past_values": torch.randn(2, config.context_length, config.num_input_channels, generator=generator)}


def forecast(config: Any, generator: torch.Generator) -> Inputs:
    """The past and the future of one series with what is known of its times."""
    past, ahead = config.context_length + max(config.lags_sequence), config.prediction_length
    features = config.num_time_features
    return {
        "past_values": torch.randn(2, past, generator=generator),
        "past_time_features": torch.randn(2, past, features, generator=generator),
        "past_observed_mask": torch.ones(2, past),
        "future_values": torch.randn(2, ahead, generator=generator),
        "future_time_features": torch.randn(2, ahead, features, generator=generator),
    }


def with_image(count: int, side: int = 32) -> Any:
    """Token ids of which `count` stand for the parts of one image, and the image."""

    def given(config: Any, generator: torch.Generator) -> Inputs:
        ids = torch.randint(3, 90, (2, 6 + count), generator=generator)
        token = getattr(config, "image_token_id", None)
        ids[:, 1 : 1 + count] = config.image_token_index if token is None else token
        pixels = torch.randn(2, 3, side, side, generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}

    return given


def mel(config: Any, generator: torch.Generator) -> Inputs:
    """Features [2, 40, bins]."""
    bins = getattr(config, "input_feat_per_channel", None) or getattr(config, "num_mel_bins", None)
    return {"input_features": torch.randn(2, 40, bins or config.feature_projection_input_dim, generator=generator)}


def translation(config: Any, generator: torch.Generator) -> Inputs:
    """Features of speech and decoder ids."""
    return {
        **mel(config, generator),
        "decoder_input_ids": torch.randint(3, config.vocab_size, (2, 8), generator=generator),
    }


# -- vision ------------------------------------------------------------------------------------------------

add("mobilenet_v1", "vision", "MobileNetV1ForImageClassification", images, depth_multiplier=0.25)
add("mobilevitv2", "vision", "MobileViTV2ForImageClassification", square(64), width_multiplier=0.5, patch_size=2)
add(
    "bit",
    "vision",
    "BitForImageClassification",
    images,
    embedding_size=8,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    num_groups=4,
)
add(
    "pvt",
    "vision",
    "PvtForImageClassification",
    images,
    hidden_sizes=[8, 16, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 2],
    patch_size=4,
)
add("vit_msn", "vision", "ViTMSNForImageClassification", images)
add("ijepa", "vision", "IJepaForImageClassification", images)
add("dinov2_with_registers", "vision", "Dinov2WithRegistersForImageClassification", images)
add("dinov3_vit", "vision", "DINOv3ViTModel", images)
add("data2vec-vision", "vision", "Data2VecVisionForImageClassification", images)
add(
    "swiftformer",
    "vision",
    "SwiftFormerForImageClassification",
    images,
    depths=[1, 1, 1, 1],
    embed_dims=[8, 16, 24, 32],
)
add(
    "vivit",
    "vision",
    "VivitForVideoClassification",
    lambda config, generator: {"pixel_values": torch.randn(1, 4, 3, 32, 32, generator=generator)},
    num_frames=4,
    tubelet_size=[2, 8, 8],
)
add(
    "glpn",
    "vision",
    "GLPNForDepthEstimation",
    square(64),
    hidden_sizes=[8, 16, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 2],
    decoder_hidden_size=8,
)
add(
    "dpt",
    "vision",
    "DPTForDepthEstimation",
    images,
    num_hidden_layers=4,
    backbone_out_indices=[0, 1, 2, 3],
    neck_hidden_sizes=[8, 8, 16, 16],
    fusion_hidden_size=8,
)
add(
    "segformer-segmentation",
    "vision",
    "SegformerForSemanticSegmentation",
    square(64),
    hidden_sizes=[8, 16, 16, 16],
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 2],
    decoder_hidden_size=8,
)
add(
    "upernet",
    "vision",
    "UperNetForSemanticSegmentation",
    square(64),
    backbone_config=SWIN,
    hidden_size=8,
    use_auxiliary_head=False,
)
add("yolos", "vision", "YolosForObjectDetection", square(32), image_size=[32, 32], num_detection_tokens=4)
add(
    "detr",
    "vision",
    "DetrForObjectDetection",
    square(64),
    use_timm_backbone=False,
    backbone=None,
    backbone_config={**BACKBONE, "out_features": ["stage4"]},
    num_queries=5,
)
add(
    "conditional_detr",
    "vision",
    "ConditionalDetrForObjectDetection",
    square(64),
    use_timm_backbone=False,
    backbone=None,
    backbone_config={**BACKBONE, "out_features": ["stage4"]},
    num_queries=5,
)
add(
    "deformable_detr",
    "vision",
    "DeformableDetrForObjectDetection",
    square(64),
    use_timm_backbone=False,
    backbone=None,
    backbone_config=BACKBONE,
    num_queries=5,
)
add(
    "rt_detr",
    "vision",
    "RTDetrForObjectDetection",
    square(64),
    encoder_hidden_dim=32,
    encoder_in_channels=[16, 24, 32],
    decoder_in_channels=[32, 32, 32],
    num_queries=5,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    num_denoising=0,
    backbone_config={
        "model_type": "rt_detr_resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
        "out_features": ["stage2", "stage3", "stage4"],
    },
)
add(
    "mask2former",
    "vision",
    "Mask2FormerForUniversalSegmentation",
    square(64),
    backbone_config=SWIN,
    feature_size=32,
    mask_feature_size=32,
    hidden_dim=32,
    encoder_feedforward_dim=32,
    dim_feedforward=32,
    num_attention_heads=2,
    num_queries=5,
    decoder_layers=2,
    encoder_layers=1,
)
add(
    "swin2sr",
    "vision",
    "Swin2SRForImageSuperResolution",
    square(16),
    embed_dim=8,
    depths=[1, 1],
    num_heads=[2, 2],
    window_size=4,
    image_size=16,
    patch_size=1,
    upscale=2,
)

# -- time series --------------------------------------------------------------------------------------------

add(
    "patchtst",
    "time series",
    "PatchTSTForPrediction",
    series,
    context_length=16,
    prediction_length=4,
    num_input_channels=3,
    patch_length=4,
    patch_stride=4,
)
add(
    "patchtsmixer",
    "time series",
    "PatchTSMixerForPrediction",
    series,
    context_length=16,
    prediction_length=4,
    num_input_channels=3,
    patch_length=4,
    patch_stride=4,
)
add(
    "time_series_transformer",
    "time series",
    "TimeSeriesTransformerForPrediction",
    forecast,
    context_length=8,
    prediction_length=4,
    lags_sequence=[1, 2],
    num_time_features=2,
)
add(
    "informer",
    "time series",
    "InformerForPrediction",
    forecast,
    context_length=8,
    prediction_length=4,
    lags_sequence=[1, 2],
    num_time_features=2,
)

# -- audio ---------------------------------------------------------------------------------------------------

add("unispeech-sat", "audio", "UniSpeechSatForSequenceClassification", waves, **CONVOLUTIONS)
add("sew-d", "audio", "SEWDForSequenceClassification", waves, squeeze_factor=2, **CONVOLUTIONS)
add("wav2vec2-conformer", "audio", "Wav2Vec2ConformerForSequenceClassification", waves, **CONVOLUTIONS)
add(
    "wav2vec2-bert",
    "audio",
    "Wav2Vec2BertForSequenceClassification",
    mel,
    feature_projection_input_dim=16,
    classifier_proj_size=8,
)
add(
    "speech_to_text",
    "audio",
    "Speech2TextForConditionalGeneration",
    translation,
    input_feat_per_channel=16,
    max_source_positions=40,
    max_target_positions=40,
    conv_channels=16,
)
add(
    "moonshine",
    "audio",
    "MoonshineForConditionalGeneration",
    lambda config, generator: {
        "input_values": torch.randn(2, 1600, generator=generator),
        "decoder_input_ids": torch.randint(3, 90, (2, 8), generator=generator),
    },
    encoder_num_hidden_layers=2,
    decoder_num_hidden_layers=2,
    encoder_num_attention_heads=4,
    decoder_num_attention_heads=4,
    encoder_num_key_value_heads=4,
    decoder_num_key_value_heads=4,
)
add(
    "seamless_m4t",
    "audio",
    "SeamlessM4TForSpeechToText",
    translation,
    feature_projection_input_dim=16,
    speech_encoder_layers=2,
    speech_encoder_attention_heads=4,
    speech_encoder_intermediate_size=48,
    adaptor_kernel_size=2,
    adaptor_stride=2,
)
add(
    "encodec",
    "audio",
    "EncodecModel",
    lambda config, generator: {"input_values": torch.randn(1, 1, 640, generator=generator)},
    num_filters=4,
    hidden_size=16,
    upsampling_ratios=[4, 2],
    codebook_size=16,
    num_lstm_layers=1,
)
add("clap", "audio", "ClapTextModelWithProjection", text, projection_dim=16)
add(
    "dac",
    "audio",
    "DacModel",
    lambda config, generator: {"input_values": torch.randn(1, 1, 640, generator=generator)},
    encoder_hidden_size=8,
    downsampling_ratios=[2, 4],
    decoder_hidden_size=32,
    upsampling_ratios=[4, 2],
    n_codebooks=2,
    codebook_size=16,
    codebook_dim=4,
)

# -- several modes ---------------------------------------------------------------------------------------------

add(
    "llava",
    "multi-modal",
    "LlavaForConditionalGeneration",
    with_image(16),
    vision_config={"model_type": "clip_vision_model", **EYES},
    text_config={"model_type": "llama", **WORDS},
    image_token_index=95,
)
add(
    "paligemma",
    "multi-modal",
    "PaliGemmaForConditionalGeneration",
    with_image(16),
    vision_config={"model_type": "siglip_vision_model", **EYES, "projection_dim": 32},
    text_config={"model_type": "gemma", **WORDS, "head_dim": 8},
    image_token_index=95,
    projection_dim=32,
)
add(
    "idefics3",
    "multi-modal",
    "Idefics3ForConditionalGeneration",
    lambda config, generator: {
        "input_ids": torch.where(
            torch.arange(12).expand(2, 12).sub(1).ge(0) & torch.arange(12).expand(2, 12).lt(5),
            95,
            torch.randint(3, 90, (2, 12), generator=generator),
        ),
        "pixel_values": torch.randn(2, 1, 3, 32, 32, generator=generator),
    },
    vision_config=EYES,
    text_config={"model_type": "llama", **WORDS, "pad_token_id": 0},
    image_token_id=95,
    scale_factor=2,
)
add(
    "blip-2",
    "multi-modal",
    "Blip2ForConditionalGeneration",
    with_image(4),
    vision_config=EYES,
    qformer_config={
        "vocab_size": 96,
        "hidden_size": 32,
        "encoder_hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    text_config={
        "model_type": "opt",
        "vocab_size": 96,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
        "pad_token_id": 0,
    },
    num_query_tokens=4,
    image_token_index=95,
)
add("siglip2-text", "multi-modal", "Siglip2TextModel", text)
add(
    "clipseg",
    "multi-modal",
    "CLIPSegForImageSegmentation",
    lambda config, generator: {
        "input_ids": torch.randint(3, 90, (2, 12), generator=generator),
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
    },
    text_config={"eos_token_id": 2},
    vision_config={},
    extract_layers=[0, 1],
    reduce_dim=16,
    projection_dim=32,
    decoder_num_attention_heads=2,
    decoder_intermediate_size=16,
)
add(
    "groupvit",
    "multi-modal",
    "GroupViTModel",
    lambda config, generator: {
        "input_ids": torch.randint(3, 90, (2, 12), generator=generator),
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
    },
    text_config={"eos_token_id": 2},
    vision_config={"depths": [1, 1], "num_group_tokens": [4, 0], "num_output_groups": [4, 4]},
    projection_dim=32,
    projection_intermediate_dim=32,
)
add(
    "owlvit",
    "multi-modal",
    "OwlViTModel",
    lambda config, generator: {
        "input_ids": torch.randint(3, 90, (2, 12), generator=generator),
        "attention_mask": torch.ones(2, 12, dtype=torch.int64),
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
    },
    text_config={},
    vision_config={},
    projection_dim=32,
)
add("align", "multi-modal", "AlignTextModel", text)
add("flava", "multi-modal", "FlavaTextModel", text)
add(
    "layoutlmv3",
    "multi-modal",
    "LayoutLMv3ForSequenceClassification",
    lambda config, generator: {
        **text(config, generator),
        "bbox": torch.randint(0, 10, (2, 12, 4), generator=generator).sort(-1).values,
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
    },
    input_size=32,
    coordinate_size=6,
    shape_size=4,
    max_2d_position_embeddings=64,
    patch_size=8,
)
add(
    "visual_bert",
    "multi-modal",
    "VisualBertModel",
    lambda config, generator: {**text(config, generator), "visual_embeds": torch.randn(2, 4, 16, generator=generator)},
    visual_embedding_dim=16,
)
add(
    "lxmert",
    "multi-modal",
    "LxmertModel",
    lambda config, generator: {
        **text(config, generator),
        "visual_feats": torch.randn(2, 4, 16, generator=generator),
        "visual_pos": torch.rand(2, 4, 4, generator=generator),
    },
    visual_feat_dim=16,
    l_layers=1,
    x_layers=1,
    r_layers=1,
)
add("trocr", "multi-modal", "TrOCRForCausalLM", text)
add(
    "decision_transformer",
    "multi-modal",
    "DecisionTransformerModel",
    lambda config, generator: {
        "states": torch.randn(2, 5, 6, generator=generator),
        "actions": torch.randn(2, 5, 3, generator=generator),
        "rewards": torch.randn(2, 5, 1, generator=generator),
        "returns_to_go": torch.randn(2, 5, 1, generator=generator),
        "timesteps": torch.arange(5).expand(2, 5),
        "attention_mask": torch.ones(2, 5, dtype=torch.int64),
    },
    state_dim=6,
    act_dim=3,
    max_ep_len=16,
    n_inner=48,
)
