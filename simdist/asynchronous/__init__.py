"""Asynchronous and loosely synchronized training: which ranks wait for which, what that costs and what it gains.

Without a server: `d_psgd` and `ad_psgd` (averaging with neighbours), `Hogwild` (one vector in shared memory),
`local_sgd`, `diloco` and `Federation` (local steps between averages). With one: `parameter_server`.

The six strategies of TensorFlow's tf.distribute, and their equivalents here:

    strategy             where weights are, and what a step waits for         here
    -------------------  ---------------------------------------------------  -----------------------------------------
    OneDevice            on one device, which does everything                 simdist train --ranks 1
    Mirrored             a copy on each device of one machine; a step waits   simdist train --ranks 4 --algorithm ring
                         for the sum of all gradients
    MultiWorkerMirrored  a copy on each device of several machines; as above  the same over nodes, --algorithm
                                                                              hierarchical (or ring)
    TPU                  a copy on each core; as above, the sum around the    simdist train --ranks 16 --algorithm torus
                         rows and columns of a 2D torus of links
    CentralStorage       on one device of a machine; the others compute, and  simdist train --ranks 4 --method bsp, on
                         a step waits for all of them                         one node: ParameterServer(1,
                                                                              synchronous())
    ParameterServer      split over servers; workers compute, each at its     simdist train --ranks 6 --method async
                         own pace, and no step waits for others               --servers 2: ParameterServer(2,
                                                                              asynchronous())
"""

from simdist.asynchronous import graphs, splits
from simdist.asynchronous.compute_time import ComputeTime, Constant, Exponential, LogNormal, Pausing, Slowed
from simdist.asynchronous.consensus import Snapshots, consensus_error
from simdist.asynchronous.diloco import diloco
from simdist.asynchronous.federated import Federation
from simdist.asynchronous.gossip import d_psgd
from simdist.asynchronous.graphs import Graph
from simdist.asynchronous.hogwild import Hogwild
from simdist.asynchronous.local_sgd import local_sgd, post_local
from simdist.asynchronous.mixing import Mixing, circulant_gap, metropolis
from simdist.asynchronous.model_gradient import ModelGradient, first_weights
from simdist.asynchronous.pairwise import ad_psgd
from simdist.asynchronous.worker import Gradient, Rate, Worker

__all__ = [
    "ComputeTime",
    "Constant",
    "Exponential",
    "Federation",
    "Gradient",
    "Graph",
    "Hogwild",
    "LogNormal",
    "Mixing",
    "ModelGradient",
    "Pausing",
    "Rate",
    "Slowed",
    "Snapshots",
    "Worker",
    "ad_psgd",
    "circulant_gap",
    "consensus_error",
    "d_psgd",
    "diloco",
    "first_weights",
    "graphs",
    "local_sgd",
    "metropolis",
    "post_local",
    "splits",
]
