"""Published: the shapes of models that are known by a name."""

import re
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
_DBRX = {**_MISTRAL, "rope_base": 500_000.0, "experts": 16, "top_k": 4}
_QWEN25 = {**_LLAMA, "qkv_bias": True, "rope_base": 1e6}
_QWEN15_MOE = {**_QWEN25, "shared_experts": 4}
_QWEN3 = {**_LLAMA, "head_width": 128, "qk_norm": True, "rope_base": 1e6}
_GEMMA: dict[str, Any] = {"block": "llama", "head_width": 256}
_GEMMA3 = {**_GEMMA, "qk_norm": True, "rope_base": 1e6}
_PALM: dict[str, Any] = {**_GEMMA, "kv_heads": 1}
_OLMO2 = {**_LLAMA, "qk_norm": True, "rope_base": 500_000.0}
_SMOLLM2 = {**_LLAMA, "tied": True, "rope_base": 100_000.0}
_GPT_OSS = {**_MISTRAL, "head_width": 64, "ffn_width": 2880, "top_k": 4, "rope_base": 150_000.0}
_QWEN3_MOE = {**_QWEN3, "kv_heads": 4, "experts": 128, "top_k": 8}

_DEEPSEEK_MOE = {**_LLAMA, "experts": 64, "top_k": 6, "shared_experts": 2, "dense_layers": 1, "dense_ffn_width": 10_944}
_DEEPSEEK = {**_LLAMA, "head_width": 128, "rope_width": 64, "kv_latent_width": 512}
_DEEPSEEK_V2_LITE = {**_DEEPSEEK, "top_k": 6, "shared_experts": 2, "dense_layers": 1}
_DEEPSEEK_V2 = {**_DEEPSEEK_V2_LITE, "query_latent_width": 1536, "dense_ffn_width": 12_288}
_DEEPSEEK_V3 = {**_DEEPSEEK, "query_latent_width": 1536, "top_k": 8, "shared_experts": 1, "dense_ffn_width": 18_432}
_KIMI_K2 = {**_DEEPSEEK_V3, "rope_base": 50_000.0}
_GLM45 = {**_QWEN25, "kv_heads": 8, "head_width": 128, "top_k": 8, "shared_experts": 1}
_GLM45_AIR = {**_GLM45, "experts": 128, "ffn_width": 1408, "dense_layers": 1, "dense_ffn_width": 10_944}
_GLM45_355B = {**_GLM45, "experts": 160, "ffn_width": 1536, "dense_layers": 3, "dense_ffn_width": 12_288}

_PUBLISHED = {
    # layers, width, heads, context, vocabulary
    "gpt2": Shape(12, 768, 12, 1024, 50_257),
    "gpt2-medium": Shape(24, 1024, 16, 1024, 50_257),
    "gpt2-large": Shape(36, 1280, 20, 1024, 50_257),
    "gpt2-xl": Shape(48, 1600, 25, 1024, 50_257),
    "gpt3-125m": Shape(12, 768, 12, 2048, 50_257),
    "gpt3-350m": Shape(24, 1024, 16, 2048, 50_257),
    "gpt3-760m": Shape(24, 1536, 16, 2048, 50_257),
    "gpt3-1.3b": Shape(24, 2048, 16, 2048, 50_257),
    "gpt3-2.7b": Shape(32, 2560, 32, 2048, 50_257),
    "gpt3-6.7b": Shape(32, 4096, 32, 2048, 50_257),
    "gpt3-13b": Shape(40, 5120, 40, 2048, 50_257),
    "gpt3-175b": Shape(96, 12_288, 96, 2048, 50_257),
    "opt-125m": Shape(12, 768, 12, 2048, 50_272),
    "opt-1.3b": Shape(24, 2048, 32, 2048, 50_272),
    "opt-2.7b": Shape(32, 2560, 32, 2048, 50_272),
    "opt-6.7b": Shape(32, 4096, 32, 2048, 50_272),
    "opt-13b": Shape(40, 5120, 40, 2048, 50_272),
    "opt-30b": Shape(48, 7168, 56, 2048, 50_272),
    "opt-66b": Shape(64, 9216, 72, 2048, 50_272),
    "opt-175b": Shape(96, 12_288, 96, 2048, 50_272),
    "gpt-neox-20b": Shape(44, 6144, 64, 2048, 50_432, tied=False),
    "gpt-j-6b": Shape(28, 4096, 16, 2048, 50_400, tied=False),
    "pythia-70m": Shape(6, 512, 8, 2048, 50_304, tied=False),
    "pythia-160m": Shape(12, 768, 12, 2048, 50_304, tied=False),
    "pythia-410m": Shape(24, 1024, 16, 2048, 50_304, tied=False),
    "pythia-1b": Shape(16, 2048, 8, 2048, 50_304, tied=False),
    "pythia-1.4b": Shape(24, 2048, 16, 2048, 50_304, tied=False),
    "pythia-2.8b": Shape(32, 2560, 32, 2048, 50_304, tied=False),
    "pythia-6.9b": Shape(32, 4096, 32, 2048, 50_432, tied=False),
    "pythia-12b": Shape(36, 5120, 40, 2048, 50_688, tied=False),
    "bloom-560m": Shape(24, 1024, 16, 2048, 250_880),
    "bloom-1.1b": Shape(24, 1536, 16, 2048, 250_880),
    "bloom-1.7b": Shape(24, 2048, 16, 2048, 250_880),
    "bloom-3b": Shape(30, 2560, 32, 2048, 250_880),
    "bloom-7b": Shape(30, 4096, 32, 2048, 250_880),
    "bloom-176b": Shape(70, 14_336, 112, 2048, 250_880),
    "falcon-7b": Shape(32, 4544, 71, 2048, 65_024, kv_heads=1),
    "falcon-40b": Shape(60, 8192, 128, 2048, 65_024, kv_heads=8),
    "falcon-180b": Shape(80, 14_848, 232, 2048, 65_024, kv_heads=8, tied=False),
    "mpt-7b": Shape(32, 4096, 32, 2048, 50_432),
    "mpt-30b": Shape(48, 7168, 64, 8192, 50_432),
    "starcoder-15b": Shape(40, 6144, 48, 8192, 49_152, kv_heads=1),
    "turing-nlg-17b": Shape(78, 4256, 28, 1024, 50_257),
    "mt-nlg-530b": Shape(105, 20_480, 128, 2048, 51_200),
    "nemotron4-15b": Shape(32, 6144, 48, 4096, 256_000, kv_heads=8, tied=False),
    "nemotron4-340b": Shape(96, 18_432, 96, 4096, 256_000, kv_heads=8, tied=False),
    "palm-8b": Shape(32, 4096, 16, 2048, 256_000, ffn_width=16_384, **_PALM),
    "palm-62b": Shape(64, 8192, 32, 2048, 256_000, ffn_width=32_768, **_PALM),
    "palm-540b": Shape(118, 18_432, 48, 2048, 256_000, ffn_width=73_728, **_PALM),
    "llama-7b": Shape(32, 4096, 32, 2048, 32_000, **_LLAMA),
    "llama-13b": Shape(40, 5120, 40, 2048, 32_000, **_LLAMA),
    "llama-30b": Shape(60, 6656, 52, 2048, 32_000, **_LLAMA),
    "llama-65b": Shape(80, 8192, 64, 2048, 32_000, **_LLAMA),
    "llama2-7b": Shape(32, 4096, 32, 4096, 32_000, **_LLAMA),
    "llama2-13b": Shape(40, 5120, 40, 4096, 32_000, **_LLAMA),
    "llama2-70b": Shape(80, 8192, 64, 4096, 32_000, kv_heads=8, ffn_width=28_672, **_LLAMA),
    "codellama-34b": Shape(48, 8192, 64, 16_384, 32_000, kv_heads=8, ffn_width=22_016, **{**_LLAMA, "rope_base": 1e6}),
    "yi-6b": Shape(32, 4096, 32, 4096, 64_000, kv_heads=4, ffn_width=11_008, **{**_LLAMA, "rope_base": 5e6}),
    "yi-34b": Shape(60, 7168, 56, 4096, 64_000, kv_heads=8, ffn_width=20_480, **{**_LLAMA, "rope_base": 5e6}),
    "tinyllama-1.1b": Shape(22, 2048, 32, 2048, 32_000, kv_heads=4, ffn_width=5632, **_LLAMA),
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
    "mistral-nemo-12b": Shape(
        40, 5120, 32, 8192, 131_072, head_width=128, ffn_width=14_336, **{**_MISTRAL, "rope_base": 1e6}
    ),
    "mistral-large-123b": Shape(88, 12_288, 96, 32_768, 32_768, ffn_width=28_672, **{**_MISTRAL, "rope_base": 1e6}),
    "mistral-small-24b": Shape(
        40, 5120, 32, 32_768, 131_072, head_width=128, ffn_width=32_768, **{**_MISTRAL, "rope_base": 1e8}
    ),
    "codestral-22b": Shape(56, 6144, 48, 32_768, 32_768, ffn_width=16_384, **{**_MISTRAL, "rope_base": 1e6}),
    "mixtral-8x7b": Shape(32, 4096, 32, 32_768, 32_000, ffn_width=14_336, **_MIXTRAL),
    "mixtral-8x22b": Shape(56, 6144, 48, 65_536, 32_000, ffn_width=16_384, **_MIXTRAL),
    "dbrx-132b": Shape(40, 6144, 48, 32_768, 100_352, ffn_width=10_752, **_DBRX),
    "grok-1-314b": Shape(64, 6144, 48, 8192, 131_072, ffn_width=32_768, **{**_MIXTRAL, "rope_base": 1e4, "tied": True}),
    "gpt-oss-20b": Shape(24, 2880, 64, 4096, 201_088, experts=32, **_GPT_OSS),
    "gpt-oss-120b": Shape(36, 2880, 64, 4096, 201_088, experts=128, **_GPT_OSS),
    "phi3-mini-3.8b": Shape(32, 3072, 32, 4096, 32_064, ffn_width=8192, **_LLAMA),
    "phi3-medium-14b": Shape(40, 5120, 40, 4096, 32_064, kv_heads=10, ffn_width=17_920, **_LLAMA),
    "phi4-14b": Shape(40, 5120, 40, 4096, 100_352, kv_heads=10, ffn_width=17_920, **{**_LLAMA, "rope_base": 250_000.0}),
    "olmo-1b": Shape(16, 2048, 16, 2048, 50_304, ffn_width=8192, **{**_LLAMA, "tied": True}),
    "olmo-7b": Shape(32, 4096, 32, 2048, 50_304, ffn_width=11_008, **_LLAMA),
    "olmo2-7b": Shape(32, 4096, 32, 4096, 100_352, ffn_width=11_008, **_OLMO2),
    "olmo2-13b": Shape(40, 5120, 40, 4096, 100_352, ffn_width=13_824, **_OLMO2),
    "olmo2-32b": Shape(64, 5120, 40, 4096, 100_352, kv_heads=8, ffn_width=27_648, **_OLMO2),
    "olmoe-7b": Shape(16, 2048, 16, 4096, 50_304, ffn_width=1024, experts=64, top_k=8, qk_norm=True, **_LLAMA),
    "smollm2-135m": Shape(30, 576, 9, 2048, 49_152, kv_heads=3, ffn_width=1536, **_SMOLLM2),
    "smollm2-360m": Shape(32, 960, 15, 2048, 49_152, kv_heads=5, ffn_width=2560, **_SMOLLM2),
    "smollm2-1.7b": Shape(24, 2048, 32, 2048, 49_152, ffn_width=8192, **{**_SMOLLM2, "rope_base": 130_000.0}),
    "gemma-2b": Shape(18, 2048, 8, 8192, 256_000, kv_heads=1, ffn_width=16_384, **_GEMMA),
    "gemma-7b": Shape(28, 3072, 16, 8192, 256_000, ffn_width=24_576, **_GEMMA),
    "gemma2-2b": Shape(26, 2304, 8, 8192, 256_000, kv_heads=4, ffn_width=9216, **_GEMMA),
    "gemma2-9b": Shape(42, 3584, 16, 8192, 256_000, kv_heads=8, ffn_width=14_336, **_GEMMA),
    "gemma2-27b": Shape(46, 4608, 32, 8192, 256_000, kv_heads=16, ffn_width=36_864, **{**_GEMMA, "head_width": 128}),
    "gemma3-1b": Shape(26, 1152, 4, 32_768, 262_144, kv_heads=1, ffn_width=6912, **_GEMMA3),
    "gemma3-4b": Shape(34, 2560, 8, 32_768, 262_208, kv_heads=4, ffn_width=10_240, **_GEMMA3),
    "gemma3-12b": Shape(48, 3840, 16, 32_768, 262_208, kv_heads=8, ffn_width=15_360, **_GEMMA3),
    "gemma3-27b": Shape(62, 5376, 32, 32_768, 262_208, kv_heads=16, ffn_width=21_504, **{**_GEMMA3, "head_width": 128}),
    "qwen1.5-moe-14b": Shape(24, 2048, 16, 8192, 151_936, ffn_width=1408, experts=60, top_k=4, **_QWEN15_MOE),
    "qwen2.5-0.5b": Shape(24, 896, 14, 4096, 151_936, kv_heads=2, ffn_width=4864, **{**_QWEN25, "tied": True}),
    "qwen2.5-1.5b": Shape(28, 1536, 12, 4096, 151_936, kv_heads=2, ffn_width=8960, **{**_QWEN25, "tied": True}),
    "qwen2.5-3b": Shape(36, 2048, 16, 4096, 151_936, kv_heads=2, ffn_width=11_008, **{**_QWEN25, "tied": True}),
    "qwen2.5-7b": Shape(28, 3584, 28, 4096, 152_064, kv_heads=4, ffn_width=18_944, **_QWEN25),
    "qwen2.5-14b": Shape(48, 5120, 40, 4096, 152_064, kv_heads=8, ffn_width=13_824, **_QWEN25),
    "qwen2.5-32b": Shape(64, 5120, 40, 4096, 152_064, kv_heads=8, ffn_width=27_648, **_QWEN25),
    "qwen2.5-72b": Shape(80, 8192, 64, 4096, 152_064, kv_heads=8, ffn_width=29_568, **_QWEN25),
    "qwen3-0.6b": Shape(28, 1024, 16, 4096, 151_936, kv_heads=8, ffn_width=3072, **{**_QWEN3, "tied": True}),
    "qwen3-1.7b": Shape(28, 2048, 16, 4096, 151_936, kv_heads=8, ffn_width=6144, **{**_QWEN3, "tied": True}),
    "qwen3-4b": Shape(36, 2560, 32, 4096, 151_936, kv_heads=8, ffn_width=9728, **{**_QWEN3, "tied": True}),
    "qwen3-8b": Shape(36, 4096, 32, 4096, 151_936, kv_heads=8, ffn_width=12_288, **_QWEN3),
    "qwen3-14b": Shape(40, 5120, 40, 4096, 151_936, kv_heads=8, ffn_width=17_408, **_QWEN3),
    "qwen3-32b": Shape(64, 5120, 64, 4096, 151_936, kv_heads=8, ffn_width=25_600, **_QWEN3),
    "qwen3-30b-a3b": Shape(48, 2048, 32, 4096, 151_936, ffn_width=768, **_QWEN3_MOE),
    "qwen3-235b-a22b": Shape(94, 4096, 64, 4096, 151_936, ffn_width=1536, **_QWEN3_MOE),
    "deepseek-7b": Shape(30, 4096, 32, 4096, 102_400, ffn_width=11_008, **_LLAMA),
    "deepseek-67b": Shape(95, 8192, 64, 4096, 102_400, kv_heads=8, ffn_width=22_016, **_LLAMA),
    "deepseek-moe-16b": Shape(28, 2048, 16, 4096, 102_400, ffn_width=1408, **_DEEPSEEK_MOE),
    "deepseek-v2-lite": Shape(
        27, 2048, 16, 4096, 102_400, experts=64, ffn_width=1408, dense_ffn_width=10_944, **_DEEPSEEK_V2_LITE
    ),
    "deepseek-v2": Shape(60, 5120, 128, 4096, 102_400, experts=160, ffn_width=1536, **_DEEPSEEK_V2),
    "deepseek-v3": Shape(61, 7168, 128, 4096, 129_280, experts=256, ffn_width=2048, dense_layers=3, **_DEEPSEEK_V3),
    "kimi-k2": Shape(61, 7168, 64, 4096, 163_840, experts=384, ffn_width=2048, dense_layers=1, **_KIMI_K2),
    "glm4.5-106b": Shape(46, 4096, 96, 4096, 151_552, **_GLM45_AIR),
    "glm4.5-355b": Shape(92, 5120, 96, 4096, 151_552, qk_norm=True, **_GLM45_355B),
}
_OTHER_NAMES = {
    "gpt2-small": "gpt2",
    "gpt3": "gpt3-175b",
    "gpt3-xl": "gpt3-1.3b",
    "gpt-neox": "gpt-neox-20b",
    "gpt-j": "gpt-j-6b",
    "bloom-1b1": "bloom-1.1b",
    "bloom-1b7": "bloom-1.7b",
    "bloom": "bloom-176b",
    "bloom-7b1": "bloom-7b",
    "starcoder": "starcoder-15b",
    "palm": "palm-540b",
    "llama-33b": "llama-30b",
    "tinyllama": "tinyllama-1.1b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-large": "mistral-large-123b",
    "mistral-small": "mistral-small-24b",
    "codestral": "codestral-22b",
    "dbrx": "dbrx-132b",
    "grok-1": "grok-1-314b",
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b",
    "llama3.3-70b": "llama3-70b",
    "mixtral": "mixtral-8x7b",
    "t-nlg": "turing-nlg-17b",
    "turing-nlg": "turing-nlg-17b",
    "mt-nlg": "mt-nlg-530b",
    "phi3-mini": "phi3-mini-3.8b",
    "phi3-medium": "phi3-medium-14b",
    "phi4": "phi4-14b",
    "olmo2-1124-7b": "olmo2-7b",
    "olmo2-1124-13b": "olmo2-13b",
    "olmo2-0325-32b": "olmo2-32b",
    "olmoe": "olmoe-7b",
    "olmoe-1b-7b": "olmoe-7b",
    "qwen1.5-moe": "qwen1.5-moe-14b",
    "qwen1.5-moe-a2.7b": "qwen1.5-moe-14b",
    "qwen2-0.5b": "qwen2.5-0.5b",
    "qwen2-1.5b": "qwen2.5-1.5b",
    "qwen2-7b": "qwen2.5-7b",
    "qwen2-72b": "qwen2.5-72b",
    "deepseek-r1": "deepseek-v3",
    "glm4.5": "glm4.5-355b",
    "glm4.5-air": "glm4.5-106b",
}
_OF_OTHERS = re.compile(r"(?:[\w-]+/)?(?:meta-)?(.+?)(?:-(?:hf|base|chat|instruct|it|v0\.1))*", re.IGNORECASE)


def published_names() -> list[str]:
    """The names of all models."""
    return list(_PUBLISHED)


def is_published(name: object) -> bool:
    """Whether `published` knows a model of this name."""
    return _known(name) is not None


def _known(name: object) -> str | None:
    """The name here of a model, which may have its owner before it and its variant behind it, as on Hugging Face."""
    found = meant(name, _PUBLISHED, _OTHER_NAMES)
    if found is not None or not isinstance(name, str):
        return found
    within = _OF_OTHERS.fullmatch(name)
    return meant(within[1], _PUBLISHED, _OTHER_NAMES) if within else None


def published(name: str) -> Shape:
    """The shape of this model, in any spelling, also of Hugging Face's, such as meta-llama/Llama-2-70b-chat-hf: GPT-2,
    GPT-3, GPT-J, GPT-NeoX, Pythia, OPT, BLOOM, Falcon, Turing-NLG, MT-NLG, MPT, Nemotron, PaLM, Llama, Gemma, Mistral,
    Yi, DBRX, Grok, gpt-oss, Phi, OLMo, SmolLM, Qwen, DeepSeek, Kimi and GLM, in the sizes that `published_names` lists.

    Contexts are those of most of the training, as far as reports say, else the configuration's. What changes few
    weights or none is left out: windows of attention (in GPT-3's and Gemma 2's every other layer, five of six of Gemma
    3's, Mistral's, and three quarters of Llama 4's), so that it counts as whole; that the other quarter of Llama 4's
    layers has no RoPE; other ways than that of `Experts` to choose and balance experts; numbers that steer the loads of
    DeepSeek-V3's and Kimi's experts; DeepSeek-V3's module of 14 billion weights that predicts a second token; that
    BLOOM, Falcon, GPT-J, GPT-NeoX, MPT, Pythia and Nemotron have no table of places, BLOOM one more norm, and Falcon,
    MPT and Nemotron no biases; Gemma 2's and 3's two more norms of a block; OPT's two more places; that PaLM's and
    GPT-J's blocks have one norm, for attention and MLP side by side; gpt-oss's biases and sinks; that the first OLMo's
    norms have no gains, OLMo 2's come after attention and MLP, and its norms of queries and keys, as OLMoE's, have a
    gain for each head; a gate of Qwen1.5's shared experts; and that GLM-4.5 rotates half of its queries' and keys'
    features, and has a module for a second token, too. Llama 3 here is 3, 3.1 and 3.3.

    Raises:
        UnknownNameError: there is no such model.

    Source: the configurations that come with their weights; for GPT-3, Brown et al. 2020, arXiv 2005.14165, table 2.1
    (but as its 24 heads of 128 do not make 1.3B's width, nor 40 of 128 13B's 5140, these have OPT's sizes); for
    Turing-NLG, Rosset 2020, Microsoft Research blog; for MT-NLG, Smith et al. 2022, arXiv 2201.11990, section 3.1; for
    Nemotron, arXiv 2402.16819 and 2406.11704, table 1 of each; for PaLM, Chowdhery et al. 2022, arXiv 2204.02311, table
    1.
    """
    found = _known(name)
    if found is None:
        raise unknown_name("published model", name, _PUBLISHED)
    return _PUBLISHED[found]
