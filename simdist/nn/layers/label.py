"""Label: what a layer is called where memory and time are told of."""

from simdist.nn.layers.layer import Layer

__all__ = ["label"]


def label(layer: Layer, before: str = "") -> str:
    """The layer's own name; or what the names of its parameters begin with; or its kind, after `before`."""
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
