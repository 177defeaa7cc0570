"""Models, by their names in a config."""

from __future__ import annotations

from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from simdist.environment import memory_bytes
from simdist.errors import ArgumentError
from simdist.nn import Model, Parts, Shape, gpt, is_published, mlp, published, published_names, read_shape
from simdist.nn.hugging_face import HUGGING_FACE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simdist.training.config import Config

__all__ = ["SIZES", "Sample", "build", "kind", "models", "num_layers", "sample", "shape", "sized"]

_DRAWN_BYTES = 8
"""Of an initial weight: matrices are drawn whole and in float64, even where a rank has only a part of one."""


_OTHER_NAMES = {"context": "context_bytes", "flash": "flash_attention", "alpha": "balance"}
"""The settings for fields of a Shape that have another name; that for `tied` is `logits`."""
_OF_TRAINING = ("dropout", "recompute", "flash", "capacity_factor", "alpha", "group")
_OPTIONAL = frozenset(field.name for field in fields(Shape) if field.default is None)
"""The fields of a Shape that may be None, for which the settings have 0."""
_PARTS_OF = {
    "experts": ("top_k", "shared_experts", "dense_layers", "expert_every", "dense_ffn_width"),
    "kv_latent_width": ("query_latent_width", "rope_width"),
}
"""The sizes that mean nothing where another one is 0."""


def _shape(config: Config) -> Shape:
    given = {f.name: getattr(config, _OTHER_NAMES.get(f.name, f.name)) for f in fields(Shape) if f.name != "tied"}
    none = dict.fromkeys(name for name in _OPTIONAL if not given[name])
    return Shape(**{**given, **none}, tied=config.logits == "tied")


_MODELS: dict[str, Callable[[Config, Parts | None], Model]] = {
    "gpt": lambda c, parts: gpt(_shape(c), parts),
    "mlp": lambda c, parts: mlp(c.context_bytes, c.embedding_width, c.hidden_width, c.hidden_layers),
}


def shape(config: Config) -> Shape | None:
    """The sizes of the GPT that a config asks for; None for another model."""
    return _shape(config) if config.model == "gpt" else None


def models() -> list[str]:
    """The names of all models, and those of published sizes, which `sized` replaces."""
    return [*_MODELS, *published_names()]


def kind(name: str) -> str:
    """The model that a name stands for: gpt, if it is that of published sizes, or of a file with sizes."""
    return "gpt" if name not in _MODELS and (is_published(name) or name.endswith(HUGGING_FACE)) else name


def sized(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the sizes of a published model, or those in a file, in place of its name; those that are given
    stay as they are.

    Raises:
        DataError, UnknownNameError, ArgumentError: the file is no config of a model that is known.
    """
    name = given.get("model", "")
    if not isinstance(name, str) or name == kind(name):
        return dict(given)
    sizes = _sizes(published(name) if is_published(name) else read_shape(name))
    useless = {part for whole, parts in _PARTS_OF.items() if given.get(whole) == 0 for part in parts}
    whole = {**sizes, **given}
    if whole["dense_layers"] == 0 and whole["expert_every"] == 1:  # all blocks have experts
        useless.add("dense_ffn_width")
    return {**{setting: value for setting, value in sizes.items() if setting not in useless}, **given, "model": "gpt"}


def _sizes(shape: Shape) -> dict[str, Any]:
    found = {f.name: getattr(shape, f.name) for f in fields(Shape) if f.name not in (*_OF_TRAINING, "tied")}
    settings = {_OTHER_NAMES.get(name, name): 0 if value is None else value for name, value in found.items()}
    return settings | {"logits": "tied" if shape.tied else "untied"}


SIZES = frozenset(_sizes(published("gpt2")))
"""The settings that say how large a GPT is."""


def build(config: Config, parts: Parts | None = None) -> Model:
    """The model that a config asks for, not yet bound to memory.

    Raises:
        ArgumentError: one of its parameters does not fit this machine's memory.
    """
    model = _MODELS[config.model](config, parts)
    largest = max(model.parameters, key=lambda parameter: prod(parameter.place.shape))
    need, have = _DRAWN_BYTES * prod(largest.place.shape), memory_bytes()
    if need > have and config.device != "phantom":
        raise ArgumentError(
            f"{largest.name} of this {config.model} has shape {largest.place.shape}: needs {need / 1e9:,.1f} GB "
            f"for its first weights, and this machine has {have / 1e9:,.1f} GB"
        )
    return model


def num_layers(config: Config) -> int:
    """The layers of the model that a config asks for: of a GPT the embedding, its blocks, and the logits."""
    size = shape(config)
    return len(build(config).layers.layers) if size is None else size.layers + 2


class Sample(NamedTuple):
    """A small model with one layer of each kind that a larger one has; a layer costs the same in both.

    Attributes:
        model: not bound to memory; for costs only.
        like: for each layer of the larger one, the index of the layer here that costs as much.
    """

    model: Model
    like: list[int]


def sample(config: Config, parts: Parts | None = None) -> Sample:
    """A sample of the model that a config asks for. Of a GPT it has one block of each kind, a dense one first.

        embedding | block0 | block1 | block2 | logits        like 0 1 1 1 2 of        embedding | block0 | logits

    Args:
        parts: what a GPT is made of.
    """
    size = shape(config)
    if size is None or not size.layers:
        model = build(config, parts)
        return Sample(model, list(range(len(model.layers.layers))))
    blocks = [kind for kind, count in size.kinds() for _ in range(count)]
    kinds = list(dict.fromkeys(blocks))
    small = replace(size, layers=2, dense_layers=1, expert_every=1) if len(kinds) > 1 else replace(blocks[0], layers=1)
    return Sample(gpt(small, parts), [0, *(1 + kinds.index(kind) for kind in blocks), 1 + len(kinds)])
