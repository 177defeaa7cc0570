"""Label: the name of a layer in reports of memory and time."""

from itertools import takewhile

from simdist.nn.layers.layer import Layer

__all__ = ["label"]


def label(layer: Layer, before: str = "") -> str:
    """The layer's name; else the common prefix of its parameters' names; else its class, after `before`."""
    own = getattr(layer, "name", "")
    if own:
        return str(own)
    names = [parameter.name.split(".")[:-1] for parameter in layer.parameters]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*names, strict=False))
    return ".".join(words[0] for words in common) or f"{before} {type(layer).__name__.lower()}".strip()
