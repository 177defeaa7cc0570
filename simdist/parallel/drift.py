"""Drift: checks whether replicas of a model are still equal."""

import hashlib
from collections import Counter

import numpy as np

from simdist.arrays import Array, charge, kind_of, on_host
from simdist.collectives import all_gather
from simdist.comm import Communicator
from simdist.errors import ReplicaDrift
from simdist.nn import Parameters

__all__ = ["check_replicas"]


def check_replicas(parameters: Parameters, comm: Communicator) -> None:
    """Make sure that all ranks have the same weights, bit for bit.

        rank 0    weights -> SHA-256  d1 --+
        rank 1    weights -> SHA-256  d1 --+-- all-gather --> d1 d1 e7: rank 2 has drifted
        rank 2    weights -> SHA-256  e7 --+

    The most common value counts as right, of equally common ones that of the lowest rank. If at most half of the
    ranks have it, the message says so.

    Args:
        parameters: bound to this rank's copy. Phantoms hold no numbers and count as equal.
        comm: the ranks with a copy each; all must call.

    Cost per rank: the weights are read once, and 32 bytes a rank are all-gathered; if they differ, another 32 bytes
    a rank for each parameter.

    Raises:
        ReplicaDrift: on all ranks, naming those that drifted and the first parameter that differs.
    """
    if kind_of(parameters.data) == "phantom":
        return
    with comm.span("check replicas", parameters.data.nbytes):
        charge(0, parameters.data.nbytes)
        digests = [digest for (digest,) in _gathered([parameters.data], comm)]
        if len(set(digests)) > 1:
            raise ReplicaDrift(_message(digests, parameters, comm))


def _gathered(arrays: list[Array], comm: Communicator) -> list[list[bytes]]:
    """For each rank, the digests of its arrays."""
    own = b"".join(hashlib.sha256(on_host(x).view(np.uint8).data).digest() for x in arrays)
    every = np.empty((comm.size, len(arrays), len(own) // len(arrays)), np.uint8)
    all_gather(np.frombuffer(own, np.uint8), comm, out=every)
    return [[digest.tobytes() for digest in row] for row in every]


def _message(digests: list[bytes], parameters: Parameters, comm: Communicator) -> str:
    """The error message, the same on all ranks."""
    right, count = Counter(digests).most_common(1)[0]
    reference = digests.index(right)
    drifted = [rank for rank, digest in enumerate(digests) if digest != right]
    rows = _gathered([parameters.data[parameters.spans[p.name]] for p in parameters], comm)
    first = {
        rank: next(p.name for p, own, same in zip(parameters, rows[rank], rows[reference], strict=True) if own != same)
        for rank in drifted[:8]
    }
    ranks = ", ".join(f"rank {rank} (first in {name})" for rank, name in first.items())
    more = f" and {len(drifted) - 8} more" if len(drifted) > 8 else ""
    doubt = ""
    if 2 * count <= comm.size:
        doubt = f"; only {count} of {comm.size} ranks agree, so those may be the ones that drifted"
    return f"the weights of {ranks}{more} differ from those of rank {reference}{doubt}"
