"""Parameter server: server ranks keep the weights, and workers need not wait for each other."""

from simdist.asynchronous.parameter_server.client import Client, Rows
from simdist.asynchronous.parameter_server.clocks import Clocks, Push
from simdist.asynchronous.parameter_server.consistency import (
    BoundedStaleness,
    Consistency,
    Synchronous,
    asynchronous,
    synchronous,
)
from simdist.asynchronous.parameter_server.formulas import (
    Served,
    byteps_bytes,
    delayed_rate,
    implicit_momentum,
    mean_staleness,
    server_bytes,
    ssp_rate,
    ssp_regret,
)
from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.server import Counts, Server
from simdist.asynchronous.parameter_server.shard import ServerState, Shard
from simdist.asynchronous.parameter_server.train import (
    ParameterServer,
    ServerReport,
    WorkerReport,
    plain_sgd,
    train,
    waited_shares,
)

__all__ = [
    "BoundedStaleness",
    "Client",
    "Clocks",
    "Consistency",
    "Counts",
    "Layout",
    "ParameterServer",
    "Push",
    "Rows",
    "Served",
    "Server",
    "ServerReport",
    "ServerState",
    "Shard",
    "Synchronous",
    "WorkerReport",
    "asynchronous",
    "byteps_bytes",
    "delayed_rate",
    "implicit_momentum",
    "mean_staleness",
    "plain_sgd",
    "server_bytes",
    "ssp_rate",
    "ssp_regret",
    "synchronous",
    "train",
    "waited_shares",
]
