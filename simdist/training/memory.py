"""Memory: what each rank of a run should hold of its model, by the formulas."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from simdist.arrays import partition
from simdist.cluster import Cluster
from simdist.collectives.registry import choose
from simdist.comm import Communicator
from simdist.nn import Shape
from simdist.nn.memory import Cut, activations
from simdist.parallel import Centralized, Learner, MapReduce, ZeRO
from simdist.parallel.memory import Prediction, replicated_memory
from simdist.parallel.pipeline import Pipeline
from simdist.parallel.sequence import ring_attention_bytes
from simdist.parallel.zero.formulas import kept, paper_kept
from simdist.training.config import Config
from simdist.training.models import shape
from simdist.training.traffic import Call, scratch

__all__ = ["predictions"]

_OFFLOADED = {"optimizer": "optimizer state", "gradients": "gradients", "parameters": "parameters"}


def predictions(
    method: Learner, config: Config, data: Communicator, step: Mapping[Call, int], cluster: Cluster | None = None
) -> dict[str, Prediction]:
    """The peak bytes of each ledger category on this rank's device: exactly, and by the paper.

    Activations are predicted for a GPT only.

    Args:
        data: the ranks that have different windows of each batch.
        step: the collectives of a step; without any, only what stays is predicted of communication.
        cluster: the one to count their memory for; the communicator's if not given.
    """
    apart: Collection[str] = ()
    if isinstance(method, Pipeline):  # whose activations it predicts itself
        apart, method = method.share.copies.displaced, method.data
    comm = method.comm
    windows = partition(config.global_batch_size, data.size).size(data.rank)
    sequences, sp = partition(windows, config.micro_batches).largest, config.sp or 1
    cut = Cut(config.tp or 1, bool(config.sequence_parallel), sp, sp > 1 and not config.ulysses)
    size = shape(config)
    found = replicated_memory(method.model.parameters, method.recipe, size, sequences, cut)
    if "activations" in found and sp == 1:  # the text of all micro-batches stays: one array
        _add(found, "activations", (windows - sequences) * (config.context_bytes + 1))
    if isinstance(method, ZeRO):
        found |= _cut(method, apart)
        found |= {_OFFLOADED[what]: Prediction(0, 0) for what in method.offload.what}
    elif isinstance(method, Centralized | MapReduce) and comm.rank:
        found["optimizer state"] = Prediction(0, 0)
    if step:
        itemsize, ring_bytes = method.item_bytes, 0
        if size is not None and cut.ring:
            block_bytes = sequences * size.context * size.key_value_width // cut.inside * itemsize
            ring_bytes = ring_attention_bytes(sp, block_bytes, itemsize)
        if size is not None and config.tp_overlap:  # a run of tokens, or of slots, leaves while another arrives
            ring_bytes = max(ring_bytes, 2 * _run_bytes(size, sequences, itemsize, cut))
        calls = _before(method), step
        beside = scratch(cluster or comm.cluster, *calls, itemsize, ring_bytes, config.algorithm)
        _add(found, "communication", sum(beside))
    return found


def _run_bytes(size: Shape, sequences: int, itemsize: int, cut: Cut) -> int:
    """The most bytes that this rank has outside of a region, and that enter it: what a layer inside keeps of them."""
    kept = activations(replace(size, recompute="none"), sequences, itemsize, cut)
    return max(each.num_bytes for each in kept if each.layer in (".qkv", ".hidden", ".experts.hidden"))


def _add(found: dict[str, Prediction], category: str, num_bytes: int) -> None:
    """This many bytes more, which the papers do not count."""
    before = found.get(category, Prediction(0, None))
    found[category] = before._replace(num_bytes=before.num_bytes + num_bytes)


def _before(method: Learner) -> list[Call]:
    """The collectives before the first step: a method with whole replicas broadcasts the weights."""
    comm = method.comm
    if isinstance(method, ZeRO) or comm.size == 1:
        return []
    num_bytes = method.model.parameters.data.nbytes
    name = choose("broadcast", comm, num_bytes).shared.name
    return [Call("broadcast", name, num_bytes, tuple(comm.ranks), comm.context)]


def _cut(method: ZeRO, apart: Collection[str]) -> dict[str, Prediction]:
    """What each rank holds a part of, and the communication buffers, which the paper does not count."""
    comm, recipe, stage = method.sharing.holders, method.recipe, method.zero_stage
    how: dict[str, Any] = {"rank": comm.rank, "bucket_bytes": method.bucket_bytes, "apart": apart}
    exact = kept(method.model, recipe, comm.size, stage, **how)
    said = paper_kept(recipe, method.model.parameters, comm.size, stage)
    return {
        "parameters": Prediction(exact.parameters, said["parameters"]),
        "gradients": Prediction(exact.gradients, said["gradients"]),
        "optimizer state": Prediction(exact.optimizer_state, said["optimizer state"]),
    } | ({"communication": Prediction(exact.communication, None)} if stage > 1 else {})
