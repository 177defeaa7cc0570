"""Models by the names that a config calls them by."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from simdist.errors import ArgumentError, unknown_name
from simdist.nn import Model, Parts, Shape, gpt, mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    from simdist.training.config import Config

__all__ = ["build", "models", "shape"]

_MOST_PARAMETERS = sys.maxsize // 8


def _mlp(config: Config, parts: Parts | None) -> Model:
    return mlp(config.context_bytes, config.embedding_width, config.hidden_width, config.hidden_layers)


def _shape(config: Config) -> Shape:
    return Shape(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        context=config.context_bytes,
        dropout=config.dropout,
        tied=config.logits == "tied",
        recompute=config.recompute,
        experts=config.experts,
        top_k=config.top_k,
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


def build(config: Config, parts: Parts | None = None) -> Model:
    """The model that a config asks for, not yet bound to memory.

    Args:
        parts: what a GPT is made of.

    Raises:
        UnknownNameError: there is no such model.
        ArgumentError: it has more parameters than memory can have room for.
    """
    if config.model not in _MODELS:
        raise unknown_name("model", config.model, _MODELS)
    model = _MODELS[config.model](config, parts)
    if model.parameters.size > _MOST_PARAMETERS:
        raise ArgumentError(
            f"this {config.model} has {model.parameters.size:,} parameters; no memory has room for more than "
            f"{_MOST_PARAMETERS:,}"
        )
    return model
