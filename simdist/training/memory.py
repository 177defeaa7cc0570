"""Memory: what each rank of a run should hold of its model, by the formulas."""

from typing import TYPE_CHECKING

from simdist.arrays import partition
from simdist.comm import Communicator
from simdist.parallel import Centralized, MapReduce, Method, ZeRO
from simdist.parallel.memory import Prediction, optimizer_state, replicated_memory
from simdist.parallel.zero.formulas import kept as kept_bytes
from simdist.training.models import shape

if TYPE_CHECKING:
    from simdist.training.config import Config

__all__ = ["predictions"]

_OFFLOADED = {"optimizer": "optimizer state", "gradients": "gradients", "parameters": "parameters"}


def predictions(method: Method, config: "Config", data: Communicator) -> dict[str, Prediction]:
    """By category of the ledger, the most bytes of it on this rank's device: exactly, and by the paper.

    Of activations nothing is said for a model other than a GPT, and where its texts are cut.

    Args:
        data: the ranks that have different windows of each batch.
    """
    comm, n = method.comm, method.model.parameters.size
    own = partition(config.global_batch_size, data.size)[data.rank]
    windows = own.stop - own.start
    sequences = partition(windows, config.micro_batches).largest
    found = replicated_memory(
        n,
        method.recipe,
        shape(config) if (config.sp or 1) == 1 else None,
        sequences,
        tensor_parallel=config.tp or 1,
        sequence_parallel=bool(config.sequence_parallel),
    )
    if "activations" in found:  # of all micro-batches the text stays, for they are cut from one array
        kept = found["activations"]
        text_bytes = (windows - sequences) * (config.context_bytes + 1)
        found["activations"] = kept._replace(num_bytes=kept.num_bytes + text_bytes)
    if isinstance(method, ZeRO):
        found |= _cut(method, n, config.bucket_bytes or 1)
        found |= {_OFFLOADED[what]: Prediction(0, 0) for what in method.offload.what}
    elif isinstance(method, Centralized | MapReduce) and comm.rank:
        found["optimizer state"] = Prediction(0, 0)
    return found


def _cut(method: ZeRO, n: int, bucket_bytes: int) -> dict[str, Prediction]:
    """What ranks have parts of, and what passes through them, of which the paper says nothing."""
    comm, recipe, stage = method.comm, method.recipe, method.zero_stage
    exact = kept_bytes(method.model, recipe, comm.size, stage, rank=comm.rank, bucket_bytes=bucket_bytes)
    short, state = recipe.precision.dtype.itemsize, optimizer_state(recipe, n).paper_bytes
    of_rank = [n / comm.size if stage >= cut else n for cut in (3, 2)]
    return {
        "parameters": Prediction(exact.parameters, short * of_rank[0]),
        "gradients": Prediction(exact.gradients, short * of_rank[1]),
        "optimizer state": Prediction(exact.optimizer_state, state / comm.size),
    } | ({"communication": Prediction(exact.communication, 0)} if stage > 1 else {})
