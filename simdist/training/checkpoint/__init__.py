"""Checkpoints: the state of a run at the end of a step, on disk; any number of ranks can read it, however split.

tensors = flat_shard(weights, parameters) | flat_shard(m, parameters, prefix="adamw.m/") | …
save("checkpoints", comm, step, tensors, extra)
step, extra = load("checkpoints", comm, tensors)        # later, elsewhere; fills the arrays behind the tensors

How often to write one, where devices fail, and what is then left of the time: `young_interval_s`, `goodput`; and
whether copies in the memory of other machines would do: `copies_survive`.
"""

from simdist.training.checkpoint.box import Box
from simdist.training.checkpoint.copies import copies_survive
from simdist.training.checkpoint.disk import Disk
from simdist.training.checkpoint.export import export
from simdist.training.checkpoint.interval import daly_interval_s, expected_s, goodput, young_interval_s
from simdist.training.checkpoint.load import Loaded, load
from simdist.training.checkpoint.manifest import Manifest
from simdist.training.checkpoint.save import save
from simdist.training.checkpoint.source import read_manifest
from simdist.training.checkpoint.steps import latest, steps
from simdist.training.checkpoint.tensors import Piece, ShardedTensor, flat_shard

__all__ = [
    "Box",
    "Disk",
    "Loaded",
    "Manifest",
    "Piece",
    "ShardedTensor",
    "copies_survive",
    "daly_interval_s",
    "expected_s",
    "export",
    "flat_shard",
    "goodput",
    "latest",
    "load",
    "read_manifest",
    "save",
    "steps",
    "young_interval_s",
]
