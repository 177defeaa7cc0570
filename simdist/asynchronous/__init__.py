"""Asynchronous and loosely synchronized training: which ranks wait for which, what that costs and what it gains.

Without a server: `d_psgd` and `ad_psgd` (averaging with neighbours), `Hogwild` (one vector in shared memory),
`local_sgd`, `diloco`, `easgd` and `Federation` (local steps between averages). With one: `parameter_server`.
"""

from simdist.asynchronous import graphs, splits
from simdist.asynchronous.compute_time import ComputeTime, Constant, Exponential, LogNormal, Pausing, Slowed
from simdist.asynchronous.consensus import Snapshots, consensus_error
from simdist.asynchronous.diloco import diloco
from simdist.asynchronous.elastic import easgd, elastic_limit
from simdist.asynchronous.federated import Federation
from simdist.asynchronous.gossip import d_psgd
from simdist.asynchronous.graphs import Graph
from simdist.asynchronous.hogwild import Hogwild
from simdist.asynchronous.local_sgd import best_local_steps, local_sgd, local_sgd_error, post_local
from simdist.asynchronous.mixing import (
    Mixing,
    circulant,
    circulant_gap,
    mean_pairwise,
    metropolis,
    one_peer_exponential,
)
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
    "best_local_steps",
    "circulant",
    "circulant_gap",
    "consensus_error",
    "d_psgd",
    "diloco",
    "easgd",
    "elastic_limit",
    "first_weights",
    "graphs",
    "local_sgd",
    "local_sgd_error",
    "mean_pairwise",
    "metropolis",
    "one_peer_exponential",
    "post_local",
    "splits",
]
