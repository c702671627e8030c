"""Small models of every family with random weights, at two sizes."""

import warnings

import pytest
import torch

VOCABULARY = 31


def _config(T, family: str, size: int):
    d, odd = (24, 40)[size], bool(size)
    small = {"hidden_size": d, "vocab_size": VOCABULARY, "num_hidden_layers": 2}
    plain = {**small, "intermediate_size": 16, "num_attention_heads": (3, 5)[size]}
    grouped = {**small, "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    ssd = {"mamba_n_heads": (6, 8)[size], "mamba_d_head": (8, 10)[size], "mamba_n_groups": 2}
    latent = {
        **plain, "num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 4, "v_head_dim": 5,
        "q_lora_rank": (None, 7)[size], "kv_lora_rank": 6, "qk_rope_head_dim": 2,
    }  # fmt: skip
    delta = {
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 5,
        "linear_value_head_dim": (6, 7)[size], "linear_conv_kernel_dim": 3,
        "layer_types": ["linear_attention", "full_attention"],
    }  # fmt: skip
    scan = {"state_size": (4, 7)[size], "conv_kernel": (3, 4)[size], "time_step_rank": 2}
    return {
        "bert": (T.BertModel, T.BertConfig(**plain)),
        "gpt2": (T.GPT2Model, T.GPT2Config(n_embd=d, n_head=(3, 5)[size], n_layer=2, vocab_size=VOCABULARY)),
        "gpt_neox": (T.GPTNeoXModel, T.GPTNeoXConfig(**plain, attention_bias=odd)),
        # one value for all heads; one for each two, and no ALiBi
        "falcon": (
            T.FalconModel,
            T.FalconConfig(
                **{**plain, "num_attention_heads": 4}, num_kv_heads=2, bias=odd, new_decoder_architecture=odd,
                multi_query=True, alibi=not odd, ffn_hidden_size=16, attn_implementation="eager",
            ),
        ),
        "phi3": (T.Phi3Model, T.Phi3Config(**grouped, pad_token_id=0)),
        "llama": (T.LlamaModel, T.LlamaConfig(**grouped, attention_bias=odd)),
        "mistral": (T.MistralModel, T.MistralConfig(**grouped, sliding_window=5)),
        "gpt_oss": (
            T.GptOssModel,
            T.GptOssConfig(
                **grouped, head_dim=6, sliding_window=5, num_local_experts=2, num_experts_per_tok=1
            ),
        ),
        "mamba": (T.MambaModel, T.MambaConfig(**small, **scan, use_bias=odd)),
        "mamba2": (
            T.Mamba2Model,
            T.Mamba2Config(
                **small, state_size=5, conv_kernel=3, num_heads=(6, 8)[size], head_dim=(8, 10)[size],
                n_groups=2, chunk_size=4, use_bias=odd,
            ),
        ),
        "jamba": (
            T.JambaModel,
            T.JambaConfig(
                **grouped, num_experts=1, num_experts_per_tok=1, mamba_d_state=5, mamba_d_conv=3,
                mamba_dt_rank=3, attn_layer_period=2, attn_layer_offset=1, mamba_proj_bias=odd,
            ),
        ),
        "bamba": (
            T.BambaModel,
            T.BambaConfig(**grouped, **ssd, mamba_d_state=5, mamba_chunk_size=4, attn_layer_indices=[1]),
        ),
        "recurrent_gemma": (
            T.RecurrentGemmaModel,
            T.RecurrentGemmaConfig(
                **{**grouped, "num_key_value_heads": 1, "num_hidden_layers": 3}, lru_width=d, head_dim=6,
                attention_window_size=6,
            ),
        ),
        "qwen3_next": (
            T.Qwen3NextModel,
            T.Qwen3NextConfig(
                **grouped, head_dim=6, linear_num_key_heads=2, linear_num_value_heads=4, num_experts=0,
                linear_key_head_dim=5, linear_value_head_dim=(6, 7)[size], linear_conv_kernel_dim=3,
                layer_types=["linear_attention", "full_attention"], mlp_only_layers=[0, 1],
            ),
        ),
        "qwen3_5": (T.Qwen3_5TextModel, T.Qwen3_5TextConfig(**grouped, **delta, head_dim=6)),
        "olmo_hybrid": (  # beta up to one, or up to two
            T.OlmoHybridModel,
            T.OlmoHybridConfig(**grouped, **delta, linear_allow_neg_eigval=odd, pad_token_id=0),
        ),
        "kimi_linear": (
            T.KimiLinearModel,
            T.KimiLinearConfig(
                **latent, linear_num_heads=(2, 3)[size], linear_head_dim=(6, 5)[size], pad_token_id=0,
                linear_conv_kernel_dim=3, layer_types=delta["layer_types"], mlp_layer_types=["dense"] * 2,
            ),
        ),
        "falcon_h1": (  # the gate alone, or with a norm
            T.FalconH1Model,
            T.FalconH1Config(
                **grouped, mamba_d_ssm=(48, 80)[size], mamba_n_heads=(6, 8)[size], mamba_d_head=(8, 10)[size],
                mamba_n_groups=2, mamba_d_state=5, mamba_chunk_size=4, mamba_rms_norm=odd, head_dim=6,
                ssm_in_multiplier=0.7, ssm_multipliers=[0.5, 0.6, 0.7, 0.8, 0.9],
            ),
        ),
        "lfm2": (
            T.Lfm2Model,
            T.Lfm2Config(
                **grouped, layer_types=["conv", "full_attention"], conv_L_cache=(3, 4)[size], conv_bias=odd,
                block_auto_adjust_ff_dim=False,
            ),
        ),
        "deepseek_v3": (
            T.DeepseekV3Model,
            T.DeepseekV3Config(**latent, first_k_dense_replace=2, attention_bias=odd),
        ),
        "modernbert": (
            T.ModernBertModel,
            T.ModernBertConfig(
                **plain, local_attention=6, global_attn_every_n_layers=2, attention_bias=odd, pad_token_id=0,
            ),
        ),
        "albert": (T.AlbertModel, T.AlbertConfig(**plain, embedding_size=9)),
    }[family]  # fmt: skip


def _build(family: str, size: int = 0, seed: int = 0):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    kind, config = _config(transformers, family, size)
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        model = kind(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="session")
def build():
    """build(family, size=0, seed=0): a model with random weights everywhere, no parameter one or zero."""
    return _build


@pytest.fixture(scope="session")
def ids():
    """ids(n, seed=0): n token ids."""
    return lambda *shape, seed=0: torch.randint(
        0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed)
    )
