"""Shapes from configs of transformers, beside those of the same models by name."""

import json
from dataclasses import replace

import pytest

from simdist.errors import ArgumentError, DataError, UnknownNameError
from simdist.nn import published, read_shape, shape_from_config
from simdist.nn.formulas import num_parameters


def llama(kind, layers, width, heads, kv_heads, inside, vocabulary, **more):
    return {
        "model_type": kind,
        "hidden_act": "silu",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inside,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    } | more


QWEN3_MOE = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1}
DEEPSEEK = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
LITE = {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
V3 = {"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
AIR = {"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408}
CONFIGS = {
    "gpt2": {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "n_ctx": 1024,
        "vocab_size": 50_257,
    },
    "pythia-6.9b": {
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 16_384,
        "max_position_embeddings": 2048,
        "vocab_size": 50_432,
        "tie_word_embeddings": False,
    },
    "phi3-mini-3.8b": llama("phi3", 32, 3072, 32, 32, 8192, 32_064, max_position_embeddings=4096, rope_theta=10000.0),
    "olmoe-7b": llama(
        "olmoe",
        *(16, 2048, 16, 16, 1024, 50_304),
        num_experts=64,
        num_experts_per_tok=8,
        max_position_embeddings=4096,
    ),
    "gemma-7b": llama(
        "gemma",
        *(28, 3072, 16, 16, 24_576, 256_000),
        hidden_act="gelu",
        head_dim=256,
        tie_word_embeddings=None,  # absent there
        max_position_embeddings=8192,
    ),
    "gemma3-1b": llama(
        "gemma3_text",
        *(26, 1152, 4, 1, 6912, 262_144),
        hidden_act="gelu_pytorch_tanh",
        head_dim=256,
        tie_word_embeddings=None,
        max_position_embeddings=32_768,
        rope_theta=1_000_000,
    ),
    "llama3-8b": llama(
        "llama", 32, 4096, 32, 8, 14_336, 128_256, max_position_embeddings=8192, rope_theta=500000.0, mlp_bias=False
    ),
    "mistral-7b": llama(
        "mistral", 32, 4096, 32, 8, 14_336, 32_000, max_position_embeddings=32_768, sliding_window=4096
    ),
    "mixtral-8x7b": llama(
        "mixtral",
        *(32, 4096, 32, 8, 14_336, 32_000),
        max_position_embeddings=32_768,
        rope_theta=1e6,
        num_local_experts=8,
        num_experts_per_tok=2,
    ),
    "qwen2.5-7b": llama(
        "qwen2", 28, 3584, 28, 4, 18_944, 152_064, max_position_embeddings=131_072, rope_theta=1000000.0
    ),
    "qwen3-8b": llama(
        "qwen3",
        *(36, 4096, 32, 8, 12_288, 151_936),
        head_dim=128,
        attention_bias=False,
        max_position_embeddings=40_960,
        rope_parameters={"rope_theta": 1000000, "rope_type": "default"},
    ),
    "qwen3-30b-a3b": llama(
        "qwen3_moe",
        *(48, 2048, 32, 4, 6144, 151_936),
        head_dim=128,
        max_position_embeddings=40_960,
        rope_theta=1e6,
        mlp_only_layers=[],
        **QWEN3_MOE,
    ),
    "deepseek-v2-lite": llama(
        "deepseek_v2",
        *(27, 2048, 16, 16, 10_944, 102_400),
        first_k_dense_replace=1,
        q_lora_rank=None,
        max_position_embeddings=163_840,
        rope_theta=10_000,
        **DEEPSEEK,
        **LITE,
    ),
    "deepseek-v3": llama(
        "deepseek_v3",
        *(61, 7168, 128, 128, 18_432, 129_280),
        first_k_dense_replace=3,
        q_lora_rank=1536,
        max_position_embeddings=163_840,
        rope_theta=10_000,
        **DEEPSEEK,
        **V3,
    ),
    "glm4.5-106b": llama(
        "glm4_moe",
        *(46, 4096, 96, 8, 10_944, 151_552),
        attention_bias=True,
        use_qk_norm=False,
        head_dim=128,
        first_k_dense_replace=1,
        max_position_embeddings=131_072,
        rope_theta=1_000_000,
        **AIR,
    ),
    "llama4-maverick": llama(
        "llama4_text",
        *(48, 5120, 40, 8, 8192, 202_048),
        head_dim=128,
        num_local_experts=128,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        intermediate_size_mlp=16_384,
        max_position_embeddings=1_048_576,
        rope_theta=500_000.0,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_says_what_the_name_says(name, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name]))
    found, known = read_shape(path), published(name)
    assert num_parameters(found) == num_parameters(known)
    given = {"kv_heads": known.kv_heads, "ffn_width": known.ffn_width, "context": known.context}
    assert found.kv_heads in (None, known.num_kv_heads)
    assert found.ffn_features == known.ffn_features
    assert replace(found, **given) == known


def test_shared_experts_of_qwens_are_counted_by_their_size():
    mixture = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "rope_theta": 1e6}
    more = mixture | {"max_position_embeddings": 8192, "shared_expert_intermediate_size": 5632}
    config = llama("qwen2_moe", 24, 2048, 16, 16, 5632, 151_936, **more)
    shape = shape_from_config(config)
    assert shape.shared_experts == 4
    assert num_parameters(shape) == 14_315_784_192 - 24 * 2048  # Qwen1.5-MoE-A2.7B, less the gates of h weights
    other = shape_from_config(config | {"decoder_sparse_step": 2})
    assert (other.expert_every, other.dense_ffn_width) == (2, 5632)
    with pytest.raises(ArgumentError, match="shared_expert_intermediate_size of the model's config leaves 1408 over"):
        shape_from_config(config | {"shared_expert_intermediate_size": 7 * 704, "moe_intermediate_size": 1760})


def test_blocks_with_experts_may_be_listed_if_each_so_many_th_is():
    config = CONFIGS["llama4-maverick"]
    assert shape_from_config(config | {"moe_layers": list(range(1, 48, 2))}) == shape_from_config(config)
    with pytest.raises(ArgumentError, match=r"moe_layers of the model's config is \[0, 1\]; a Shape has only None or"):
        shape_from_config(config | {"moe_layers": [0, 1]})
    with pytest.raises(ArgumentError, match="expert_every is 0"):
        shape_from_config(config | {"interleave_moe_layer_step": 0})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "llama5"}, UnknownNameError, "unknown model_type 'llama5'; did you mean 'llama'"),
        ({"model_type": None}, UnknownNameError, "unknown model_type None"),
        ({"hidden_size": "4096"}, ArgumentError, "hidden_size of the model's config is '4096'; needs a whole number"),
        ({"num_hidden_layers": True}, ArgumentError, "num_hidden_layers .* is True; needs a whole number"),
        ({"hidden_act": "relu"}, ArgumentError, "hidden_act of the model's config is 'relu'; a Shape has only 'silu'"),
        ({"attention_bias": True}, ArgumentError, "attention_bias .* is True; a Shape has only False"),
        ({"model_type": "mistral", "attention_bias": True}, ArgumentError, "attention_bias .* is True; a Shape has"),
        ({"rope_theta": "large"}, ArgumentError, "rope_theta of the model's config is 'large'; needs a number"),
        ({"rope_theta": 10**400}, ArgumentError, "needs a number between 1 and 1e30"),
        (CONFIGS["glm4.5-106b"] | {"use_qk_norm": 1}, ArgumentError, "use_qk_norm .* is 1; needs true or false"),
        ({"tie_word_embeddings": "false"}, ArgumentError, "tie_word_embeddings .* is 'false'; needs true or false"),
        ({"model_type": ["llama"]}, UnknownNameError, "unknown model_type"),
        ({"model_type": "llava", "text_config": {}}, ArgumentError, "is 'llava', of more than texts; give what its"),
        ({"num_key_value_heads": 3}, ArgumentError, "kv_heads is 3 and heads is 32"),
    ],
)
def test_what_no_shape_has(change, error, message):
    with pytest.raises(error, match=message):
        shape_from_config(CONFIGS["llama3-8b"] | change)


def test_where_newer_configs_have_the_base_of_rope():
    config = CONFIGS["llama3-8b"]
    for given in ({"rope_type": "default"}, None):
        assert shape_from_config(config | {"rope_parameters": given}).rope_base == 500_000
    assert shape_from_config(config | {"rope_parameters": {"rope_theta": 7}}).rope_base == 7
    assert shape_from_config(CONFIGS["gpt2"] | {"tie_word_embeddings": None}).tied


def test_what_is_missing_is_named():
    config = dict(CONFIGS["deepseek-v3"])
    del config["kv_lora_rank"]
    with pytest.raises(ArgumentError, match="kv_lora_rank of the model's config is missing; needs a whole number"):
        shape_from_config(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "is no model's config; needs a JSON object"),
        (b" " * (1 << 21), "has 2,097,152 bytes; needs at most 1,048,576"),
    ],
)
def test_other_files(content, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"config.json {message}"):
        read_shape(path)
    with pytest.raises(DataError, match="missing.json: No such file"):
        read_shape(tmp_path / "missing.json")
    with pytest.raises(DataError, match="null"):
        read_shape("a\0.json")


def test_what_is_wrong_in_a_file_is_told_with_its_name(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["llama3-8b"] | {"hidden_size": -64}))
    with pytest.raises(ArgumentError, match="config.json: width is -64; needs at least 1"):
        read_shape(path)
