"""Published: the shapes of models that are known by a name."""

from typing import Any

from simdist.errors import unknown_name
from simdist.nn.shape import Shape
from simdist.words import meant

__all__ = ["is_published", "published", "published_names"]

_LLAMA: dict[str, Any] = {"block": "llama", "tied": False}
_LLAMA3 = {**_LLAMA, "kv_heads": 8, "rope_base": 500_000.0}
_LLAMA4 = {**_LLAMA3, "head_width": 128, "ffn_width": 8192, "top_k": 1, "shared_experts": 1}
_MISTRAL = {**_LLAMA, "kv_heads": 8}
_MIXTRAL = {**_MISTRAL, "rope_base": 1e6, "experts": 8, "top_k": 2}
_QWEN25 = {**_LLAMA, "qkv_bias": True, "rope_base": 1e6}
_QWEN3 = {**_LLAMA, "head_width": 128, "qk_norm": True, "rope_base": 1e6}
_QWEN3_MOE = {**_QWEN3, "kv_heads": 4, "experts": 128, "top_k": 8}

_DEEPSEEK = {**_LLAMA, "head_width": 128, "rope_width": 64, "kv_latent_width": 512}
_DEEPSEEK_V2 = {**_DEEPSEEK, "top_k": 6, "shared_experts": 2, "dense_layers": 1}
_DEEPSEEK_V3 = {**_DEEPSEEK, "query_latent_width": 1536, "top_k": 8, "shared_experts": 1, "dense_ffn_width": 18_432}
_KIMI_K2 = {**_DEEPSEEK_V3, "rope_base": 50_000.0}

_PUBLISHED = {
    # layers, width, heads, context, vocabulary
    "gpt2": Shape(12, 768, 12, 1024, 50_257),
    "gpt2-medium": Shape(24, 1024, 16, 1024, 50_257),
    "gpt2-large": Shape(36, 1280, 20, 1024, 50_257),
    "gpt2-xl": Shape(48, 1600, 25, 1024, 50_257),
    "gpt3-175b": Shape(96, 12_288, 96, 2048, 50_257),
    "mt-nlg-530b": Shape(105, 20_480, 128, 2048, 51_200),
    "llama-7b": Shape(32, 4096, 32, 2048, 32_000, **_LLAMA),
    "llama-13b": Shape(40, 5120, 40, 2048, 32_000, **_LLAMA),
    "llama-30b": Shape(60, 6656, 52, 2048, 32_000, **_LLAMA),
    "llama-65b": Shape(80, 8192, 64, 2048, 32_000, **_LLAMA),
    "llama2-7b": Shape(32, 4096, 32, 4096, 32_000, **_LLAMA),
    "llama2-13b": Shape(40, 5120, 40, 4096, 32_000, **_LLAMA),
    "llama2-70b": Shape(80, 8192, 64, 4096, 32_000, kv_heads=8, ffn_width=28_672, **_LLAMA),
    "llama3.2-1b": Shape(16, 2048, 32, 8192, 128_256, ffn_width=8192, **{**_LLAMA3, "tied": True}),
    "llama3.2-3b": Shape(28, 3072, 24, 8192, 128_256, ffn_width=8192, **{**_LLAMA3, "tied": True}),
    "llama3-8b": Shape(32, 4096, 32, 8192, 128_256, ffn_width=14_336, **_LLAMA3),
    "llama3-70b": Shape(80, 8192, 64, 8192, 128_256, ffn_width=28_672, **_LLAMA3),
    "llama3-405b": Shape(126, 16_384, 128, 8192, 128_256, ffn_width=53_248, **_LLAMA3),
    "llama4-scout": Shape(48, 5120, 40, 8192, 202_048, experts=16, **_LLAMA4),
    "llama4-maverick": Shape(
        48, 5120, 40, 8192, 202_048, experts=128, expert_every=2, dense_ffn_width=16_384, **_LLAMA4
    ),
    "mistral-7b": Shape(32, 4096, 32, 8192, 32_000, ffn_width=14_336, **_MISTRAL),
    "mixtral-8x7b": Shape(32, 4096, 32, 32_768, 32_000, ffn_width=14_336, **_MIXTRAL),
    "mixtral-8x22b": Shape(56, 6144, 48, 65_536, 32_000, ffn_width=16_384, **_MIXTRAL),
    "qwen2.5-7b": Shape(28, 3584, 28, 4096, 152_064, kv_heads=4, ffn_width=18_944, **_QWEN25),
    "qwen2.5-72b": Shape(80, 8192, 64, 4096, 152_064, kv_heads=8, ffn_width=29_568, **_QWEN25),
    "qwen3-8b": Shape(36, 4096, 32, 4096, 151_936, kv_heads=8, ffn_width=12_288, **_QWEN3),
    "qwen3-32b": Shape(64, 5120, 64, 4096, 151_936, kv_heads=8, ffn_width=25_600, **_QWEN3),
    "qwen3-30b-a3b": Shape(48, 2048, 32, 4096, 151_936, ffn_width=768, **_QWEN3_MOE),
    "qwen3-235b-a22b": Shape(94, 4096, 64, 4096, 151_936, ffn_width=1536, **_QWEN3_MOE),
    "deepseek-v2-lite": Shape(
        27, 2048, 16, 4096, 102_400, experts=64, ffn_width=1408, dense_ffn_width=10_944, **_DEEPSEEK_V2
    ),
    "deepseek-v2": Shape(
        60,
        5120,
        128,
        4096,
        102_400,
        experts=160,
        ffn_width=1536,
        dense_ffn_width=12_288,
        query_latent_width=1536,
        **_DEEPSEEK_V2,
    ),
    "deepseek-v3": Shape(61, 7168, 128, 4096, 129_280, experts=256, ffn_width=2048, dense_layers=3, **_DEEPSEEK_V3),
    "kimi-k2": Shape(61, 7168, 64, 4096, 163_840, experts=384, ffn_width=2048, dense_layers=1, **_KIMI_K2),
}
_OTHER_NAMES = {
    "gpt3": "gpt3-175b",
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b",
    "llama3.3-70b": "llama3-70b",
    "mixtral": "mixtral-8x7b",
    "mt-nlg": "mt-nlg-530b",
    "deepseek-r1": "deepseek-v3",
}


def published_names() -> list[str]:
    """The names of all models."""
    return list(_PUBLISHED)


def is_published(name: object) -> bool:
    """Whether `published` knows a model of this name."""
    return meant(name, _PUBLISHED, _OTHER_NAMES) is not None


def published(name: str) -> Shape:
    """The shape of this model, in any spelling: GPT-2, GPT-3, MT-NLG, Llama, Mistral, Qwen, DeepSeek and Kimi.

    Contexts are those of most of the training, as far as reports say, else the configuration's. What changes few
    weights or none is left out: windows of attention (in GPT-3's every other layer, Mistral's, and three quarters of
    Llama 4's), so that it counts as whole; that the other quarter of Llama 4's layers has no RoPE; other ways than that
    of `Experts` to choose and balance experts; numbers that steer the loads of DeepSeek-V3's and Kimi's experts; and
    DeepSeek-V3's module of 14 billion weights that predicts a second token. Llama 3 here is 3, 3.1 and 3.3.

    Raises:
        UnknownNameError: there is no such model.

    Source: the configurations that come with their weights; for GPT-3, Brown et al. 2020, arXiv 2005.14165, table 2.1;
    for MT-NLG, Smith et al. 2022, arXiv 2201.11990, section 3.1.
    """
    found = meant(name, _PUBLISHED, _OTHER_NAMES)
    if found is None:
        raise unknown_name("published model", name, _PUBLISHED)
    return _PUBLISHED[found]
