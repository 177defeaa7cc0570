"""Words: counts, ranks and tables, as all messages write them; names, as people and other programs write them."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

__all__ = ["OTHER_OPTIONS", "aligned", "counted", "listed", "meant"]

_MOST = 12

OTHER_OPTIONS = {
    other: option
    for option, others in {
        "ranks": "gpus num-gpus world-size nproc nproc-per-node nodes nnodes",
        "context": "seq seqlen seq-len seq-length sequence-length max-length",
        "width": "hidden-size d-model",
        "ffn-width": "ffn-hidden-size intermediate-size d-ff",
        "heads": "num-attention-heads",
        "kv-heads": "num-query-groups",
        "vocabulary": "vocab-size padded-vocab-size",
        "logits": "tied untied untie-embeddings-and-output-weights",
        "block": "swiglu",
        "flash-attention": "flash",
        "batch": "gbs",
        "micro-batches": "gradient-accumulation gradient-accumulation-steps",
        "precision": "dtype fp16 bf16",
        "recompute": "activation-checkpointing checkpoint-activations",
        "dp": "data-parallel data-parallel-size",
        "tp": "tensor-parallel tensor-parallel-size tensor-model-parallel-size",
        "pp": "stages num-stages pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size",
        "sp": "cp context-parallel context-parallel-size",
        "ep": "expert-parallel expert-parallel-size expert-model-parallel-size",
        "chunks": "vpp virtual-pipeline-model-parallel-size interleave interleaved",
        "zero": "zero-stage fsdp",
        "shards": "hsdp",
    }.items()
    for other in others.split()
}
"""Options as other programs call them, many of which look like other options here."""


def counted(count: int, noun: str) -> str:
    """A count and its noun: 1 message, 2,000 messages."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith(('s', 'ch', 'sh')) else 's'}"


def listed(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0, 2', or the first few of many."""
    every = sorted(ranks)
    shown = ", ".join(map(str, every[:_MOST]))
    if len(every) > _MOST:
        shown += f", … ({len(every)} in all)"
    return ("rank " if len(every) == 1 else "ranks ") + shown


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """The rows of a table as lines, with aligned columns: the first `left` of them to the left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    lines = ("  ".join(pad(cell, n) for pad, cell, n in zip(pads, row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def meant(name: object, known: Iterable[str], others: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The known name that a name stands for: itself, or else the same but for capitals, hyphens, dots and the like.

        meant("ZBV", ["zb-h1", "zb-v"])        # zb-v

    Args:
        others: further names, and the known names that they stand for.
    """
    every = list(known)
    if name in every:
        return str(name)
    spelled = {_bare(other): one for other, one in others.items()} | {_bare(each): each for each in every}
    return spelled.get(_bare(name)) if isinstance(name, str) else None


def _bare(name: str) -> str:
    """The letters and digits of a name, small."""
    return "".join(filter(str.isalnum, name.casefold()))
