"""Config: the settings of a training run."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from simdist.asynchronous.graphs import graphs
from simdist.collectives import algorithms, names
from simdist.comm.device import DEVICES, PATHS
from simdist.data import ORDERS, PYTHON
from simdist.errors import ArgumentError
from simdist.nn.hugging_face import HUGGING_FACE
from simdist.nn.shape import BLOCKS, RECOMPUTATIONS
from simdist.optim import Schedule
from simdist.optim.schedule import SHAPES
from simdist.parallel.buckets import BUCKET_BYTES
from simdist.parallel.compression import compression_defaults, compressions
from simdist.parallel.pipeline.schedules import FILES, OTHER_NAMES, schedules
from simdist.parallel.precision import precisions
from simdist.parallel.recipe import optimizer_defaults, optimizers
from simdist.toml import check_kinds
from simdist.training.asynchronous.methods import AVERAGING, COMPUTE_TIMES, SERVED, asynchronous_methods
from simdist.training.methods import OFFLOADS, check, methods, whole
from simdist.training.models import models, sized
from simdist.training.option import Option, Per, checking_names, differing, option
from simdist.training.pipelines import chunked, is_updating

__all__ = ["IMPLYING_METHOD", "Config", "options", "typed"]

IMPLYING_METHOD = ("zero", "pp", "schedule", "chunks", "compress")
"""Settings that imply their method, if none is given."""

_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}

_ranks, _async = partial(option, "ranks"), partial(option, "asynchronous")


def _of_gpt(default: Any, help: str, choices: Sequence[str] = (), **limits: Any) -> Any:
    return option("model", Per("model", gpt=default), help, choices, **limits)


def _per_method(methods: Iterable[str] | Callable[[], Iterable[str]], default: Any) -> Per:
    return Per("method", lambda: dict.fromkeys(methods() if callable(methods) else methods, default))


def _of_optimizer(setting: str) -> Per:
    return Per("optimizer", lambda: optimizer_defaults(setting))


def _of_compression(setting: str) -> Per:
    return Per("compress", lambda: compression_defaults(setting))


@checking_names
@dataclass(frozen=True)
class Config:
    """The settings of one training run. Runs with equal configs train alike on any number of ranks.

    A setting that is None gets its default, which may depend on others; one that is of no use
    with the others, such as the heads of an MLP, stays None, and is refused if given.

    Raises:
        ArgumentError: a value is of the wrong type, lies outside its limits, or is incompatible with the others.
        UnknownNameError: there is no such setting, model, optimizer, method, …
    """

    model: str = option("model", "mlp", "the model; or its sizes by name or config.json", models, files=HUGGING_FACE)
    context_bytes: int = option(
        "model", Per("model", mlp=16, gpt=128), "tokens (bytes) in a window, or sequence", least=1, alias="context"
    )
    embedding_width: int = option("model", Per("model", mlp=32), "size of a token's embedding", least=1)
    hidden_width: int = option("model", Per("model", mlp=256), "units of a hidden layer", least=1)
    hidden_layers: int = option("model", Per("model", mlp=2), "number of hidden layers", below=10_000)
    layers: int = _of_gpt(4, "number of transformer blocks", below=10_000)
    width: int = _of_gpt(256, "hidden size", least=1)
    heads: int = _of_gpt(4, "attention heads in each block", least=1)
    kv_heads: int = _of_gpt(0, "heads of keys and values, shared by groups of heads (GQA); 0 for one per head")
    head_width: int = _of_gpt(0, "size of a head; 0 for width / heads")
    kv_latent_width: int = _of_gpt(0, "size of a latent vector for keys and values (MLA), in llama blocks; 0 for none")
    query_latent_width: int = _of_gpt(0, "the same for queries")
    rope_width: int = _of_gpt(0, "with MLA: features of a query or key that are rotated; 0 for half a head_width")
    qkv_bias: bool = _of_gpt(False, "biases of queries, keys and values in llama, too")
    qk_norm: bool = _of_gpt(False, "normalize each head's queries and keys, as Qwen3 does")
    block: str = _of_gpt("gpt2", "kind of block; llama: RMSNorm, RoPE, SwiGLU, no biases", BLOCKS)
    rope_base: float = _of_gpt(10_000.0, "base of RoPE's angles, in llama blocks", above=True)
    ffn_width: int = _of_gpt(0, "size inside the MLP; 0 for 4 width, of llama 8/3 width, to a multiple of 256")
    dropout: float = _of_gpt(0.0, "share of activations dropped in training", below=1)
    vocabulary: int = _of_gpt(256, "number of tokens, of which bytes are the first", least=256)
    logits: str = _of_gpt("tied", "tied to the embedding, or not", ("tied", "untied"))
    experts: int = _of_gpt(0, "expert MLPs in a block, of which a token goes to top_k")
    top_k: int = _of_gpt(1, "experts for each token", least=1)
    shared_experts: int = _of_gpt(0, "more experts in a block, which all tokens go to")
    dense_layers: int = _of_gpt(0, "blocks before those with experts, with one MLP each")
    expert_every: int = _of_gpt(1, "of those after them, one in so many has experts, the others one MLP", least=1)
    dense_ffn_width: int = _of_gpt(0, "size inside that MLP; 0 for an expert's")
    capacity_factor: float = _of_gpt(1.25, "slots of the experts; 1 is enough for even loads", above=True)
    balance: float = _of_gpt(0.01, "weight of the load-balancing loss")
    group: int = _of_gpt(0, "tokens that share the experts' slots; 0 for a window")
    flash_attention: bool = _of_gpt(False, "attention by tiles, which keeps no probabilities")
    recompute: str = _of_gpt("none", "activations to recompute in backward", RECOMPUTATIONS)

    data: str = option("text", PYTHON, f'a file; "{PYTHON}" is Python\'s own documentation and code', metavar="FILE")
    order: str = option("text", "random", "windows drawn at random, or each once per epoch", ORDERS)
    validation_share: float = option("text", 0.1, "share of the text kept for validation", below=1)
    validation_windows: int = option("text", Per("model", mlp=2048, gpt=256), "windows to validate on; 0 for none")

    steps: int = option("training", 600, "training steps", least=1)
    global_batch_size: int = option(
        "training", Per("model", mlp=512, gpt=32), "windows in a step, over all ranks", least=1, alias="batch"
    )
    micro_batches: int = option("training", 1, "parts of each rank's batch (gradient accumulation)", least=1)
    precision: str = option("training", "float32", "of computation and communication", precisions(), others=_PRECISIONS)
    seed: int = option("training", 0, "of weights, batches, dropout and samples", below=2**63)

    optimizer: str = option("update", Per("model", mlp="sgd", gpt="adamw"), "update rule", optimizers)
    learning_rate: float = option("update", _of_optimizer("learning_rate"), "its peak", above=True, alias="lr")
    rate_schedule: str = option("update", "cosine", "its decay after the warm-up", tuple(SHAPES), alias="lr-schedule")
    warmup_steps: int = option("update", 20, "steps in which the rate climbs to its peak")
    momentum: float = option("update", _of_optimizer("momentum"), "decay of the velocity; 0 in async and ssp", below=1)
    beta1: float = option("update", _of_optimizer("beta1"), "decay of the mean gradient", below=1)
    beta2: float = option("update", _of_optimizer("beta2"), "decay of the mean squared gradient", below=1)
    weight_decay: float = option("update", _of_optimizer("weight_decay"), "of weight matrices")
    clip_norm: float = option("update", Per("model", mlp=0.0, gpt=1.0), "largest norm of a gradient; 0 for any")

    device: str = _ranks(
        "cpu", "where arrays live: cuda on GPUs, which ranks may share; phantom nowhere, for costs", DEVICES
    )
    device_path: str = _ranks(
        Per("device", cuda="auto"), "how arrays on GPUs travel between ranks; auto takes the best", PATHS
    )
    dp: int = _ranks(0, "data-parallel replicas; 0 for as many as the ranks allow")
    tp: int = _ranks(Per("model", gpt=1), "ranks that split the heads and columns of each layer", least=1)
    sequence_parallel: bool = _ranks(Per("model", gpt=False), "with tp: split tokens between those layers too")
    tp_overlap: bool = _ranks(Per("model", gpt=False), "with sequence_parallel: send tokens during products of others")
    sp: int = _ranks(Per("model", gpt=1), "ranks that split the tokens of each window", least=1)
    ulysses: bool = _ranks(Per("model", gpt=False), "with sp: each rank attends with some of the heads")
    ring_attention: bool = _ranks(Per("model", gpt=False), "with sp: keys and values travel round")
    ep: int = _ranks(Per("model", gpt=1), "ranks that split the experts, replicas otherwise", least=1)
    overlap_degree: int = _ranks(Per("model", gpt=1), "with ep: parts of the slots sent one by one", least=1)
    method: str = _ranks("ddp", "how ranks train together", methods)
    pp: int = _ranks(
        Per("method", pipeline=1), "pipeline stages, each with some of the layers; implies its method", least=1
    )
    schedule: str = _ranks(
        Per("method", pipeline="1f1b"),
        "of the pipeline, or a .txt file with one; implies its method",
        schedules,
        files=FILES,
        others=OTHER_NAMES,
    )
    chunks: int = _ranks(Per("schedule", lambda: dict.fromkeys(chunked(), 2)), "stages on each rank", least=1)
    zero: int = _ranks(
        Per("method", ddp=0, zero=2, fsdp=3, pipeline=0), "ZeRO stage; 1 to 3 imply their method", below=4
    )
    shards: int = _ranks(
        _per_method(("zero", "fsdp", "pipeline"), 0), "ranks that shard one model (hybrid sharding); 0 for all of dp"
    )
    bucket_bytes: int = _ranks(
        _per_method(("ddp", "zero"), BUCKET_BYTES), "gradients reduced together during backward", least=1
    )
    algorithm: str = _ranks(
        _per_method(("dp", "ddp", "zero", "fsdp", *AVERAGING), "auto"),
        "of the reduction",
        lambda: ["auto", *algorithms("all_reduce")],
        others=names.OTHER_NAMES["all_reduce"],
    )
    offload: str = _ranks(
        Per("method", zero="none", fsdp="none"), "kept off the device, with those before it", OFFLOADS
    )
    offload_to: str = _ranks(
        Per("offload", **dict.fromkeys(OFFLOADS[1:], "host")), "where to keep that", ("host", "disk")
    )
    compress: str = _ranks(
        Per("method", compressed="top-k"), "compression of gradients; implies its method", compressions
    )
    compress_share: float = _ranks(_of_compression("share"), "share of the items to send", below=1, above=True)
    compress_block: int = _ranks(_of_compression("block"), "items that share a scale", least=1)
    compress_rank: int = _ranks(_of_compression("rank"), "rank of the matrices that are sent", least=1)
    check_every: int = _ranks(_per_method(whole, 0), "steps between comparisons of all replicas; 0 for none")

    servers: int = _async(_per_method(SERVED, 1), "ranks that keep the weights; the others are workers", least=1)
    staleness: int = _async(Per("method", ssp=3), "steps that workers may be apart")
    backups: int = _async(Per("method", backup=1), "workers that a step need not wait for", least=1)
    staleness_aware: bool = _async(_per_method(("async", "ssp"), False), "weigh updates less the staler they are")
    graph: str = _async(Per("method", **{"d-psgd": "ring", "ad-psgd": "bipartite"}), "who averages with whom", graphs)
    local_steps: int = _async(
        Per("method", **dict.fromkeys(AVERAGING[:2], 8), diloco=20), "steps between averages", least=1
    )
    switch_share: float = _async(
        _per_method(["post-local"], 0.5), "share of steps, at the start, that are all averaged", below=1
    )
    outer_rate: float = _async(Per("method", diloco=0.7), "learning rate of the outer step")
    slow: str = _async(
        _per_method(asynchronous_methods, "none"), "ranks that are slower, 2:4.0 for four times", metavar="RANK:X,…"
    )
    compute_time: str = _async(
        _per_method(asynchronous_methods, "constant"), "extra time added to each step", COMPUTE_TIMES
    )
    compute_seconds: float = _async(_per_method(asynchronous_methods, 0.0), "mean of the extra time")

    checkpoint_every: int = option("checkpoints", 0, "steps from one to the next; 0 for none")
    keep_checkpoints: int = option("checkpoints", 3, "how many of the latest to keep; 0 for all")

    interval: int = option("log", 50, "steps from one line to the next", least=1)
    trace_steps: int = option("log", 20, "how many of the last steps the trace keeps")
    sample_bytes: int = option("log", 200, "length of each text written at the end; 0 for none", below=2**20)
    temperature: float = option("log", 0.8, "of those texts: 0 takes the likeliest byte")

    def __post_init__(self) -> None:
        own = vars(self)  # which is frozen only for others
        own |= typed(sized({name: value for name, value in own.items() if value is not None}))
        own |= {name: what.named(own[name]) for name, what in options()}  # first, because names imply other settings
        own["method"] = self._implied_method()
        own |= {name: value for name, value in self._implied().items() if own[name] is None}
        if self.pp == 1 and self.method != "pipeline":  # one stage is no pipeline
            own["pp"] = None
        if self.device_path == "auto" and self.device != "cuda":  # which has one path
            own["device_path"] = None
        known: dict[str, Any] = {}
        for name, what in options():
            known[name] = what.resolve(name, own[name], known)
        own |= known
        if self.micro_batches > self.global_batch_size:
            raise ArgumentError(
                f"micro_batches is {self.micro_batches} and global_batch_size {self.global_batch_size}; "
                "needs a window or more for each"
            )
        self.rates()
        check(self)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in differing(self).items())})"

    def _implied_method(self) -> str | None:
        """The method as it was given, or as other settings imply it."""
        if self.method is None and ((self.pp or 1) > 1 or self.schedule or self.chunks):
            return "pipeline"
        if self.zero == 3 and self.method in (None, "zero"):
            return "fsdp"
        if self.method is None and self.zero:
            return "zero"
        return "compressed" if self.method is None and self.compress else self.method

    def _implied(self) -> dict[str, Any]:
        """What the device implies, and the method for the model and the update, where nothing else is given.

        Phantoms have no numbers, so a second step, losses and texts would be useless. DiLoCo's inner rule is AdamW.
        Stages that update at different times cannot share a table, nor agree on a norm. Late updates act like momentum,
        so none is added: Mitliagkas, Zhang, Hadjis, Ré 2016, arXiv 1605.09774.
        """
        plain = self.optimizer == "sgd" or (self.optimizer is None and self.model in (None, "mlp"))
        implied: dict[str, Any] = {}
        if self.device == "phantom":
            implied |= {"steps": 1, "validation_windows": 0, "sample_bytes": 0}
        if self.method == "diloco":
            implied |= {"optimizer": "adamw"}
        if self.method == "pipeline" and is_updating(self.schedule):
            implied |= {"clip_norm": 0.0} | ({"logits": "untied"} if self.model == "gpt" else {})
        if self.method in ("async", "ssp") and plain:
            implied |= {"momentum": 0.0}
        return implied

    def rates(self) -> Schedule:
        """The learning rate of each step."""
        return Schedule(self.learning_rate, self.steps, self.rate_schedule, self.warmup_steps)

    def toml(self) -> str:
        """The config as TOML, which `read_toml` reads back."""
        # JSON's strings, numbers and booleans are also TOML's, except that TOML escapes DEL, too.
        settings = {name: value for name, value in asdict(self).items() if value is not None}
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
        return "".join(lines).replace("\x7f", "\\u007f")


def typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with Python's numbers for NumPy's; raises ArgumentError if one is not of the type of its field."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return check_kinds(plain, {f.name: f.type for f in fields(Config)}, "a config")


def options() -> Iterable[tuple[str, Option]]:
    """The name of each field of a config, and its option."""
    return ((f.name, f.metadata["option"]) for f in fields(Config))
