"""Label: the name of a layer in reports of memory and time."""

from simdist.nn.layers.layer import Layer

__all__ = ["label"]


def label(layer: Layer, before: str = "") -> str:
    """The layer's name; else the common prefix of its parameters' names; else its class, after `before`."""
    own = getattr(layer, "name", "")
    if own:
        return str(own)
    common: list[str] | None = None
    for parameter in layer.parameters:
        words = parameter.name.split(".")[:-1]
        if common is None:
            common = words
        common = [a for i, a in enumerate(common) if words[: i + 1] == common[: i + 1]]
    return ".".join(common or ()) or f"{before} {type(layer).__name__.lower()}".strip()
