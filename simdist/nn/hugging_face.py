"""Hugging Face: the shapes of models that a config.json of its library transformers describes."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from simdist.errors import ArgumentError, DataError, unknown_name
from simdist.file import read_file
from simdist.nn.shape import Shape

__all__ = ["HUGGING_FACE", "read_shape", "shape_from_config"]

HUGGING_FACE = ".json"
"""The suffix of such files."""

_MOST_BYTES = 1 << 20  # such files have a few thousand
_MOST_BASE = 1e30
_MISSING = object()
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "vocab_size")


class _Settings:
    """The settings of a config; what is missing or has the wrong type is an ArgumentError that names it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def number(self, name: str, default: Any = _MISSING) -> Any:
        """A whole number; if it is missing, the default, where one is given."""
        found = self._given.get(name)
        if found is None and default is not _MISSING:
            return default
        if not isinstance(found, int) or isinstance(found, bool):
            told = "missing" if name not in self._given else repr(found)
            raise ArgumentError(f"{name} of the model's config is {told}; needs a whole number")
        return found

    def only(self, name: str, *possible: Any) -> None:
        """Raise ArgumentError unless a setting has one of these values, the first of which is the default."""
        found = self._given.get(name, possible[0])
        if found not in possible:
            needs = " or ".join(map(repr, possible))
            raise ArgumentError(f"{name} of the model's config is {found!r}; a Shape has only {needs}")

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether something is so."""
        found = self._given.get(name)
        if found is not None and not isinstance(found, bool):
            raise ArgumentError(f"{name} of the model's config is {found!r}; needs true or false")
        return default if found is None else found

    def tied(self, default: bool) -> bool:
        """Whether logits come from the table of tokens."""
        return self.flag("tie_word_embeddings", default)

    def rope_base(self) -> float:
        """The base of RoPE's angles, which newer configs have among their rope_parameters."""
        inside = self._given.get("rope_parameters")
        found = inside.get("rope_theta") if isinstance(inside, Mapping) else None
        found = self._given.get("rope_theta", 10_000.0) if found is None else found
        if not isinstance(found, int | float) or isinstance(found, bool) or not 1 < found < _MOST_BASE:
            raise ArgumentError(f"rope_theta of the model's config is {found!r}; needs a number between 1 and 1e30")
        return float(found)


def _gpt2(of: _Settings) -> Shape:
    of.only("activation_function", "gelu_new", "gelu_pytorch_tanh")
    layers, width, heads = (of.number(name) for name in ("n_layer", "n_embd", "n_head"))
    context, vocabulary, inside = of.number("n_positions"), of.number("vocab_size"), of.number("n_inner", None)
    return Shape(layers, width, heads, context, vocabulary, tied=of.tied(default=True), ffn_width=inside)


def _gpt_neox(of: _Settings) -> Shape:
    of.only("hidden_act", "gelu", "gelu_fast")
    layers, width, heads, context, vocabulary = (of.number(name) for name in _SIZES)
    inside = of.number("intermediate_size")
    return Shape(layers, width, heads, context, vocabulary, tied=of.tied(default=False), ffn_width=inside)


def _llama(of: _Settings, gate: tuple[str, ...] = ("silu",), tied: bool = False, **more: Any) -> Shape:
    """What all models of Llama's blocks have in common, whichever of these functions their MLPs' gates have."""
    of.only("hidden_act", *gate)
    of.only("mlp_bias", False)
    if "qkv_bias" not in more:
        of.only("attention_bias", False)
    common: dict[str, Any] = {"block": "llama", "tied": of.tied(default=tied), "rope_base": of.rope_base()}
    common |= {"ffn_width": None if "ffn_width" in more else of.number("intermediate_size")}
    if "kv_latent_width" not in more:
        common |= {"kv_heads": of.number("num_key_value_heads", None), "head_width": of.number("head_dim", None)}
    return Shape(*(of.number(name) for name in _SIZES), **common | more)


_gemma = partial(_llama, gate=("gelu_pytorch_tanh", "gelu"), tied=True)


def _mixtral(of: _Settings, experts: str = "num_local_experts", **more: Any) -> Shape:
    return _llama(of, experts=of.number(experts), top_k=of.number("num_experts_per_tok"), **more)


def _experts(of: _Settings, experts: str, inside: str, every: str, dense: str) -> dict[str, Any]:
    """The experts of a mixture, by names of settings: how many, how large, in every n-th block, and the other MLPs."""
    sizes = {"experts": of.number(experts), "top_k": of.number("num_experts_per_tok"), "ffn_width": of.number(inside)}
    step = of.number(every, 1)
    return sizes | ({} if step == 1 else {"expert_every": step, "dense_ffn_width": of.number(dense)})


def _qwen_experts(of: _Settings) -> dict[str, Any]:
    of.only("mlp_only_layers", [], None)
    return _experts(of, "num_experts", "moe_intermediate_size", "decoder_sparse_step", "intermediate_size")


def _llama4(of: _Settings) -> Shape:
    mixture = _experts(
        of, "num_local_experts", "intermediate_size", "interleave_moe_layer_step", "intermediate_size_mlp"
    )
    shape = _llama(of, shared_experts=1, **mixture)
    of.only("moe_layers", None, list(range(shape.expert_every - 1, shape.layers, shape.expert_every)))
    return shape


def _qwen2_moe(of: _Settings) -> Shape:
    mixture = _qwen_experts(of)
    shared, uneven = divmod(of.number("shared_expert_intermediate_size"), mixture["ffn_width"])
    if uneven:
        raise ArgumentError(
            f"shared_expert_intermediate_size of the model's config leaves {uneven} over when divided by "
            f"moe_intermediate_size, {mixture['ffn_width']}; a Shape has a whole number of shared experts"
        )
    return _llama(of, qkv_bias=True, shared_experts=shared, **mixture)


def _qwen3_moe(of: _Settings) -> Shape:
    return _llama(of, qk_norm=True, **_qwen_experts(of))


def _deepseek(of: _Settings) -> Shape:
    of.only("moe_layer_freq", 1)
    width = of.number("v_head_dim")
    of.only("qk_nope_head_dim", width)
    return _llama(
        of,
        head_width=width,
        rope_width=of.number("qk_rope_head_dim"),
        kv_latent_width=of.number("kv_lora_rank"),
        query_latent_width=of.number("q_lora_rank", None),
        **_deepseek_experts(of),
    )


def _deepseek_experts(of: _Settings) -> dict[str, Any]:
    dense = of.number("first_k_dense_replace")
    return {
        "experts": of.number("n_routed_experts"),
        "top_k": of.number("num_experts_per_tok"),
        "shared_experts": of.number("n_shared_experts", 0),
        "ffn_width": of.number("moe_intermediate_size"),
        "dense_layers": dense,
        "dense_ffn_width": of.number("intermediate_size") if dense else None,
    }


def _glm4_moe(of: _Settings) -> Shape:
    return _llama(of, qkv_bias=of.flag("attention_bias"), qk_norm=of.flag("use_qk_norm"), **_deepseek_experts(of))


_KINDS: dict[str, Callable[[_Settings], Shape]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "mixtral": _mixtral,
    "olmoe": partial(_mixtral, experts="num_experts", qk_norm=True),
    "gemma": _gemma,
    "gemma2": _gemma,
    "gemma3_text": partial(_gemma, qk_norm=True),
    "qwen2": partial(_llama, qkv_bias=True),
    "qwen2_moe": _qwen2_moe,
    "qwen3": partial(_llama, qk_norm=True),
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "glm4_moe": _glm4_moe,
    "llama4_text": _llama4,
}


def shape_from_config(config: Mapping[str, Any]) -> Shape:
    """The shape of the model that a config of transformers describes, by its model_type.

    The context is the model's longest. What RoPE does beyond the texts of training is left out (rope_scaling), and what
    `published` leaves out, too.

    Raises:
        UnknownNameError: no shape is known for its model_type.
        ArgumentError: a setting is missing, or no Shape has it.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](_Settings(config))
    if "text_config" in config:
        raise ArgumentError(f"model_type is {kind!r}, of more than texts; give what its text_config holds")
    raise unknown_name("model_type", kind, _KINDS)


def read_shape(path: str | Path) -> Shape:
    """The same from a config.json.

    Raises:
        DataError: the file cannot be read, or is not a config.
        UnknownNameError, ArgumentError: as for `shape_from_config`.
    """
    content = read_file(path, "the model's config", _MOST_BYTES)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} is no model's config; needs a JSON object")
    try:
        return shape_from_config(found)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
