"""Models, by their names in a config."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from simdist.environment import memory_bytes
from simdist.errors import ArgumentError, unknown_name
from simdist.nn import Model, Parts, Shape, gpt, mlp, published, published_names, read_foreign
from simdist.nn.foreign import FOREIGN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simdist.training.config import Config

__all__ = ["SIZES", "Sample", "build", "kind", "known_models", "models", "sample", "shape", "sized"]

_DRAWN_BYTES = 8
"""Of an initial weight: each matrix is drawn whole and in float64, even if this rank has only a part of it."""


def _mlp(config: Config, parts: Parts | None) -> Model:
    return mlp(config.context_bytes, config.embedding_width, config.hidden_width, config.hidden_layers)


def _shape(config: Config) -> Shape:
    return Shape(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        context=config.context_bytes,
        vocabulary=config.vocabulary,
        dropout=config.dropout,
        tied=config.logits == "tied",
        recompute=config.recompute,
        flash=config.flash_attention,
        block=config.block,
        kv_heads=config.kv_heads or None,
        head_width=config.head_width or None,
        kv_latent_width=config.kv_latent_width or None,
        query_latent_width=config.query_latent_width or None,
        rope_width=config.rope_width or None,
        qkv_bias=config.qkv_bias,
        qk_norm=config.qk_norm,
        rope_base=config.rope_base,
        ffn_width=config.ffn_width or None,
        experts=config.experts,
        top_k=config.top_k,
        shared_experts=config.shared_experts,
        dense_layers=config.dense_layers,
        dense_ffn_width=config.dense_ffn_width or None,
        capacity_factor=config.capacity_factor,
        alpha=config.balance,
        group=config.group or None,
    )


def _gpt(config: Config, parts: Parts | None) -> Model:
    return gpt(_shape(config), parts)


_MODELS: dict[str, Callable[[Config, Parts | None], Model]] = {"gpt": _gpt, "mlp": _mlp}


def shape(config: Config) -> Shape | None:
    """The sizes of the GPT that a config asks for; None for another model."""
    return _shape(config) if config.model == "gpt" else None


def models() -> list[str]:
    """The names of all models."""
    return list(_MODELS)


def known_models() -> list[str]:
    """These, and the names of published sizes, which `sized` replaces."""
    return [*_MODELS, *published_names()]


def kind(name: str) -> str:
    """The model that a name stands for: gpt, if it is that of published sizes, or of a file with sizes."""
    return "gpt" if name in published_names() or name.endswith(FOREIGN) else name


def sized(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the sizes of a published model, or those in a file, in place of its name; those that are given
    stay as they are.

    Raises:
        DataError, UnknownNameError, ArgumentError: the file is no config of a model that is known.
    """
    name = given.get("model", "")
    if not isinstance(name, str) or name == kind(name):
        return dict(given)
    size = published(name) if name in published_names() else read_foreign(name)
    return {**_sizes(size), **given, "model": "gpt"}


def _sizes(shape: Shape) -> dict[str, Any]:
    same = ("layers", "width", "heads", "vocabulary", "block", "qkv_bias", "qk_norm", "rope_base")
    mixture = ("experts", "top_k", "shared_experts", "dense_layers", "dense_ffn_width", "ffn_width")
    heads = ("kv_heads", "head_width", "kv_latent_width", "query_latent_width", "rope_width")
    found = {name: getattr(shape, name) for name in (*same, *mixture, *heads)}
    settings = {name: 0 if value is None else value for name, value in found.items()}
    return settings | {"context_bytes": shape.context, "logits": "tied" if shape.tied else "untied"}


SIZES = frozenset(_sizes(published("gpt2")))
"""The settings that say how large a GPT is."""


def build(config: Config, parts: Parts | None = None) -> Model:
    """The model that a config asks for, not yet bound to memory.

    Args:
        parts: what a GPT is made of.

    Raises:
        UnknownNameError: there is no such model.
        ArgumentError: one of its parameters does not fit this machine's memory.
    """
    if config.model not in _MODELS:
        raise unknown_name("model", config.model, _MODELS)
    model = _MODELS[config.model](config, parts)
    largest = max(model.parameters, key=lambda parameter: prod(parameter.place.shape))
    need, have = _DRAWN_BYTES * prod(largest.place.shape), memory_bytes()
    if need > have and config.device != "phantom":
        raise ArgumentError(
            f"{largest.name} of this {config.model} has shape {largest.place.shape}: needs {need / 1e9:,.1f} GB "
            f"for its first weights, and this machine has {have / 1e9:,.1f} GB"
        )
    return model


class Sample(NamedTuple):
    """A small model with one layer of each kind that a larger one has; a layer costs the same in both.

    Attributes:
        model: not bound to memory; for costs only.
        like: for each layer of the larger one, the index of the layer here that costs as much.
    """

    model: Model
    like: list[int]


def sample(config: Config, parts: Parts | None = None) -> Sample:
    """A sample of the model that a config asks for. Of a GPT it has one block of each kind.

        embedding | block0 | block1 | block2 | logits        like 0 1 1 1 2 of        embedding | block0 | logits

    Args:
        parts: what a GPT is made of.
    """
    size = shape(config)
    if size is None or not size.layers:
        model = build(config, parts)
        return Sample(model, list(range(len(model.layers.layers))))
    counts = [count for _, count in size.kinds() if count]
    small = replace(size, layers=len(counts), dense_layers=min(size.dense_layers, 1))
    blocks = [1 + kind for kind, count in enumerate(counts) for _ in range(count)]
    return Sample(gpt(small, parts), [0, *blocks, 1 + len(counts)])
