"""Models by the names that a config calls them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simdist.errors import unknown_name
from simdist.nn import Model, Shape, gpt, mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    from simdist.training.config import Config

__all__ = ["build", "models"]


def _mlp(config: Config) -> Model:
    return mlp(config.context_bytes, config.embedding_width, config.hidden_width, config.hidden_layers)


def _gpt(config: Config) -> Model:
    shape = Shape(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        context=config.context_bytes,
        dropout=config.dropout,
        tied=config.logits == "tied",
        recompute=config.recompute,
    )
    return gpt(shape)


_MODELS: dict[str, Callable[[Config], Model]] = {"gpt": _gpt, "mlp": _mlp}


def models() -> list[str]:
    """The names of all models."""
    return list(_MODELS)


def build(config: Config) -> Model:
    """The model that a config asks for, not yet bound to memory.

    Raises:
        UnknownNameError: there is no such model.
    """
    if config.model not in _MODELS:
        raise unknown_name("model", config.model, _MODELS)
    return _MODELS[config.model](config)
