"""Your own training method as part of simdist: all verbs know what is registered before `main`.

python -m simdist.examples.own_method train --ranks 4 --method majority-vote --learning-rate 0.001 --momentum 0
mpirun -n 4 python -m simdist.examples.own_method train --method majority-vote --learning-rate 0.001 --momentum 0
"""

import sys

import numpy as np

from simdist.arrays import charge
from simdist.cli import main
from simdist.collectives import all_gather
from simdist.comm import Communicator
from simdist.nn import Model
from simdist.parallel import DataParallel
from simdist.training import Config
from simdist.training.methods import named, recipe

__all__ = ["MajorityVote"]


class MajorityVote(DataParallel):
    """Data parallelism in which ranks vote on the direction of each weight, with one bit each: signSGD.

        gradient of rank 0     0.1  -2.0   0.3        ballot   1 0 1
        gradient of rank 1    -0.2  -0.1   0.1        ballot   0 0 1
        gradient of rank 2     0.5   0.4   0.2        ballot   1 1 1
                                                      all do   + - +       a tie leaves a weight as it is

    Only the reduction differs from `DataParallel`. The size of an update is the learning rate, for any size of the
    gradient, and the update differs from that of one rank with the whole batch. A zero gradient votes like a negative
    one, so the embeddings of bytes that did not occur drift.

    Cost per rank, n weights on p ranks: an all-gather, (p-1) n/8 bytes, where an all-reduce takes 8n(p-1)/p of float32.

    Source: Bernstein, Wang, Azizzadenesheli, Anandkumar 2018, ICML, arXiv 1802.04434: algorithm 3, majority vote;
    there by a parameter server.
    """

    @property
    def item_bytes(self) -> int:
        """A ballot packs eight weights into a byte."""
        return 1

    def reduce(self) -> None:
        """Leave in `gradient` what most ranks want of each weight: 1, -1, or 0."""
        gradient, p, n = self.gradient, self.comm.size, len(self.gradient)
        ballots = all_gather(np.packbits(gradient > 0), self.comm)
        ayes = np.zeros_like(gradient)
        for ballot in ballots.reshape(p, -1):
            ayes += np.unpackbits(ballot)[:n]
        gradient[...] = np.sign(2 * ayes - p)
        charge((p + 4) * n, (2 * p + 4) * gradient.nbytes)


@named("majority-vote")
def _majority_vote(model: Model, comm: Communicator, config: Config) -> DataParallel:
    return MajorityVote(model, comm, recipe(config), config.seed)


if __name__ == "__main__":
    sys.exit(main())
