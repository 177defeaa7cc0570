"""LoRA: how many parameters are trained, if each map is frozen and has two thin matrices beside it."""

from simdist.errors import ArgumentError, as_declared, require_least, unknown_name
from simdist.nn.shape import Shape
from simdist.words import meant

__all__ = ["lora_parameters", "map_sizes"]

_MAPS = ("query", "key", "value", "attended", "hidden", "thought")
_LETTERS = {"q": "query", "k": "key", "v": "value", "o": "attended"}
_OTHER_NAMES = {form.format(x): name for x, name in _LETTERS.items() for form in ("{}", "w_{}", "{}_proj")}


@as_declared
def lora_parameters(shape: Shape, rank: int, maps: tuple[str, ...] = ("query", "value")) -> int:
    """Σ r (in + out) over these maps of all blocks.

        lora_parameters(published("gpt3-175b"), 8)      # 37.7 million

    In a model frozen in 16 bits a device keeps 2 bytes for each of its weights, and of these parameters what
    `simdist.parallel.zero.formulas.paper_bytes` says; frozen in 4 bits (QLoRA) the
    `simdist.parallel.compression.formulas.blockwise_bits` of its weights.

    Args:
        rank: r.
        maps: of query, key, value and attended, around attention, also as q, k, v and o (Hugging Face's q_proj and so
            on), and hidden and thought, into an MLP and out of it. With a gate, "hidden" is two maps; each expert has
            its own.

    Raises:
        ArgumentError: rank is less than 1, or attention is latent, whose maps are others.
        UnknownNameError: there is no such map.

    Source: Hu et al. 2021, arXiv 2106.09685, section 4; all maps, Dettmers et al. 2023, QLoRA, arXiv 2305.14314.
    """
    require_least("rank", rank, 1)
    sizes = map_sizes(shape)
    return rank * sum(n * (rows + columns) for name in maps for n, rows, columns in sizes[_first_name(name)])


def _first_name(name: str) -> str:
    """The name here of a map that may be given by another."""
    found = meant(name, _MAPS, _OTHER_NAMES)
    if found is None:
        raise unknown_name("map", name, _MAPS)
    return found


def map_sizes(shape: Shape) -> dict[str, list[tuple[int, int, int]]]:
    """By its name, of each map of a model's blocks how many there are, and their features in and out.

    Raises:
        ArgumentError: attention is latent, whose maps are others.
    """
    if shape.kv_latent_width is not None:
        raise ArgumentError(f"kv_latent_width is {shape.kv_latent_width}; needs None: latent attention has other maps")
    found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in _MAPS}
    for kind, n in shape.kinds():
        h, keys, gates = kind.width, kind.key_value_width // 2, 2 if kind.is_llama else 1
        for name, out in (("query", kind.query_width), ("key", keys), ("value", keys)):
            found[name].append((n, h, out))
        found["attended"].append((n, kind.attention_width, h))
        for mlps, inside in ((max(1, kind.experts), kind.ffn_features), (1, kind.shared_features)):
            if inside:
                found["hidden"].append((gates * mlps * n, h, inside))
                found["thought"].append((mlps * n, inside, h))
    return found
