"""Further architectures of text: state-space and recurrent models, experts, older and rarer encoders and decoders.

Neighbours: `table.py`, which it adds to; `catalogue.py` has them all.
"""

from __future__ import annotations

from tests.architectures.table import add, ids_only, pairs, text

# -- text ------------------------------------------------------------------------------------------------

add("rwkv", "text", "RwkvForCausalLM", ids_only, attention_hidden_size=32, context_length=64)
add("mamba2", "text", "Mamba2ForCausalLM", ids_only, num_heads=8, head_dim=8, state_size=8, n_groups=1, chunk_size=4)
add("falcon_mamba", "text", "FalconMambaForCausalLM", ids_only, state_size=4, time_step_rank=4)
add(
    "recurrent_gemma",
    "text",
    "RecurrentGemmaForCausalLM",
    ids_only,
    lru_width=32,
    attention_window_size=8,
    num_hidden_layers=3,
)
add(
    "bamba",
    "text",
    "BambaForCausalLM",
    text,
    mamba_n_heads=8,
    mamba_d_head=8,
    mamba_d_state=8,
    mamba_chunk_size=4,
    attn_layer_indices=[1],
)
add(
    "jamba",
    "text",
    "JambaForCausalLM",
    text,
    attn_layer_period=2,
    attn_layer_offset=1,
    expert_layer_period=2,
    expert_layer_offset=1,
    mamba_d_state=4,
    mamba_dt_rank=4,
    use_mamba_kernels=False,
)
add(
    "zamba2",
    "text",
    "Zamba2ForCausalLM",
    text,
    mamba_d_state=8,
    n_mamba_heads=8,
    mamba_ngroups=1,
    chunk_size=4,
    hybrid_layer_ids=[1],
    num_mem_blocks=1,
    layers_block_type=["mamba", "hybrid"],
    use_mamba_kernels=False,
)
add("xlnet", "text", "XLNetForSequenceClassification", text, d_head=8, d_inner=48)
add("ctrl", "text", "CTRLLMHeadModel", text, dff=48, n_positions=64)
add("openai-gpt", "text", "OpenAIGPTLMHeadModel", text, n_positions=64)
add("gpt_bigcode", "text", "GPTBigCodeForCausalLM", text, n_positions=64)
add("ernie4_5", "text", "Ernie4_5ForCausalLM", text)
add("glm4", "text", "Glm4ForCausalLM", text)
add("cohere2", "text", "Cohere2ForCausalLM", text)
add("qwen3_moe", "text", "Qwen3MoeForCausalLM", text, moe_intermediate_size=24)
add("olmoe", "text", "OlmoeForCausalLM", text)
add("phimoe", "text", "PhimoeForCausalLM", text, router_jitter_noise=0.0, input_jitter_noise=0.0)
add("granitemoe", "text", "GraniteMoeForCausalLM", text)
add("exaone4", "text", "Exaone4ForCausalLM", text, sliding_window=8)
add(
    "deepseek_v2",
    "text",
    "DeepseekV2ForCausalLM",
    text,
    moe_intermediate_size=24,
    first_k_dense_replace=1,
    n_group=2,
    topk_group=1,
    kv_lora_rank=8,
    q_lora_rank=16,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=8,
    num_key_value_heads=4,
    head_dim=4,
)
add("gpt_oss", "text", "GptOssForCausalLM", text, sliding_window=8)
add(
    "gemma3n_text",
    "text",
    "Gemma3nForCausalLM",
    text,
    hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=96,
    laurel_rank=4,
    num_kv_shared_layers=0,
    altup_num_inputs=2,
)
add("bert-generation", "text", "BertGenerationEncoder", text)
add("xmod", "text", "XmodForSequenceClassification", text, languages=["en_XX"], default_language="en_XX")
add("ibert", "text", "IBertForSequenceClassification", text)
add("splinter", "text", "SplinterModel", text)
add(
    "roc_bert",
    "text",
    "RoCBertForSequenceClassification",
    text,
    pronunciation_vocab_size=16,
    pronunciation_embed_dim=8,
    shape_vocab_size=16,
    shape_embed_dim=8,
)
add(
    "nystromformer",
    "text",
    "NystromformerForSequenceClassification",
    ids_only,
    num_landmarks=4,
    segment_means_seq_len=12,
)
add("bigbird", "text", "BigBirdForSequenceClassification", text, attention_type="original_full")
add("mvp", "text", "MvpForConditionalGeneration", pairs)
add("bigbird_pegasus", "text", "BigBirdPegasusForConditionalGeneration", pairs, attention_type="original_full")
add("plbart", "text", "PLBartForConditionalGeneration", pairs)
add("blenderbot-small", "text", "BlenderbotSmallForConditionalGeneration", pairs)
add("fsmt", "text", "FSMTForConditionalGeneration", pairs, src_vocab_size=96, tgt_vocab_size=96, langs=["en", "de"])
add("nllb-moe", "text", "NllbMoeForConditionalGeneration", pairs, encoder_sparse_step=2, decoder_sparse_step=2)
