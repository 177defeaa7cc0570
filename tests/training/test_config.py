from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from simdist import collectives
from simdist.asynchronous import graphs
from simdist.errors import ArgumentError, UnknownNameError
from simdist.parallel import optimizers
from simdist.parallel.pipeline import named, schedule
from simdist.parallel.pipeline.schedules import registry
from simdist.training import Config
from simdist.training.methods import recipe


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": 0}, "steps is 0; needs at least 1"),
        ({"global_batch_size": -5}, "global_batch_size is -5; needs at least 1"),
        ({"model": "gpt", "dropout": 1.0}, "dropout is 1.0; needs at least 0 and less than 1"),
        ({"momentum": 1.0}, "momentum is 1.0; needs at least 0 and less than 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf; needs more than 0 and less than 1,0"),
        ({"sample_bytes": 2**20}, r"sample_bytes is 1048576; needs at least 0 and less than 1,048,576$"),
        ({"hidden_layers": 10_000}, "hidden_layers is 10000; needs at least 0 and less than 10,000"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; needs more than 0"),
        ({"compress": "top-k", "compress_share": 0.0}, "compress_share is 0.0; needs more than 0 and less than 1"),
        ({"micro_batches": 9, "global_batch_size": 8}, "micro_batches is 9 and global_batch_size 8"),
    ],
)
def test_values_have_limits(setting, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": "10"}, "steps in a config is '10'; needs a whole number"),
        ({"steps": 10.5}, "steps in a config is 10.5; needs a whole number"),
        ({"learning_rate": "0.1"}, "learning_rate in a config is '0.1'; needs a number"),
        ({"data": 3}, "data in a config is 3; needs a string"),
    ],
)
def test_values_have_types(setting, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**setting)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("batch", "unknown setting 'batch': it is called global_batch_size"),
        ("learning-rate", "unknown setting 'learning-rate': it is called learning_rate"),
        ("lr_schedule", "unknown setting 'lr_schedule': it is called rate_schedule"),
        ("hidden_size", "unknown setting 'hidden_size': it is called width"),
        ("seq_length", "unknown setting 'seq_length': it is called context_bytes"),
        ("num_query_groups", "unknown setting 'num_query_groups': it is called kv_heads"),
        ("gpus", "unknown setting 'gpus'. There are"),
        ("stepz", "unknown setting 'stepz'; did you mean 'steps'"),
        ("ranks", "ranks is no setting of a run: it is given where one starts, as by --ranks"),
    ],
)
def test_settings_are_called_by_their_names(name, message):
    with pytest.raises(UnknownNameError, match=message):
        Config(**{name: 4})
    with pytest.raises(UnknownNameError, match=message):
        replace(Config(), **{name: 4})


def test_numbers_may_be_numpys():
    config = Config(steps=np.int64(3), learning_rate=np.float32(0.5), clip_norm=1)
    assert config == Config(steps=3, learning_rate=0.5, clip_norm=1.0) and "learning_rate = 0.5\n" in config.toml()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "mpl"}, "unknown model 'mpl'; did you mean 'mlp'"),
        ({"algorithm": "rign"}, "unknown algorithm 'rign'; did you mean 'ring'"),
        ({"precision": "float8"}, "unknown precision 'float8'"),
        ({"model": "gpt", "logits": "tide"}, "unknown logits 'tide'; did you mean 'tied'"),
        ({"model": "gpt", "recompute": "all"}, "unknown recompute 'all'"),
        ({"optimizer": "adamv"}, "unknown optimizer 'adamv'; did you mean 'adam'"),
        ({"method": "dpp"}, "unknown method 'dpp'; did you mean 'dp'"),
        ({"rate_schedule": "cosin"}, "unknown rate_schedule 'cosin'; did you mean 'cosine'"),
        ({"order": "pass"}, "unknown order 'pass'; did you mean 'passes'"),
    ],
)
def test_names_must_be_known(setting, message):
    with pytest.raises(UnknownNameError, match=message):
        Config(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"heads": 2}, "heads is 2, and model mlp; heads is for model gpt"),
        ({"model": "gpt", "hidden_width": 8}, "hidden_width is 8, and model gpt"),
        (
            {"model": "gpt", "momentum": 0.5},
            "momentum is 0.5, and optimizer adamw; momentum is for optimizer sgd, lars",
        ),
        ({"beta2": 0.95}, "beta2 is 0.95, and optimizer sgd"),
        ({"method": "dp", "bucket_bytes": 9}, "bucket_bytes is 9, and method dp"),
        ({"method": "dp", "pp": 2}, "pp is 2, and method dp; pp is for method pipeline"),
        ({"model": "gpt", "top_k": 2}, "top_k is 2, and experts 0; it is for experts of 1 and more"),
        ({"model": "gpt", "overlap_degree": 2}, "overlap_degree is 2, and ep 1; it is for ep of 2 and more"),
        ({"model": "gpt", "group": 8}, "group is 8, and experts 0"),
        ({"model": "gpt", "shared_experts": 1}, "shared_experts is 1 and experts is 0; needs"),
        ({"model": "gpt", "ep": 2}, "ep is 2, and experts 0"),
    ],
)
def test_what_would_have_no_effect_is_refused(setting, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**setting)


def test_defaults_hang_on_other_settings():
    small, large = Config(), Config(model="gpt")
    assert (small.optimizer, small.learning_rate, small.clip_norm, small.beta1) == ("sgd", 0.3, 0.0, None)
    assert (large.optimizer, large.learning_rate, large.clip_norm, large.momentum) == ("adamw", 0.001, 1.0, None)
    assert Config(optimizer="lamb").learning_rate == 0.01


@pytest.mark.parametrize(("long", "short"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_a_precision_has_two_names(long, short):
    assert Config(precision=long).precision == short


@pytest.mark.parametrize("optimizer", optimizers())
@pytest.mark.parametrize("model", ["gpt", "mlp"])
def test_every_optimizer_has_its_defaults(optimizer, model):
    config = Config(model=model, optimizer=optimizer)
    made = recipe(config)
    assert made.weight_decay == config.weight_decay
    assert made.max_norm == (1.0 if model == "gpt" else None)
    assert made.momentum == (config.momentum or 0.9)
    assert made.betas == (config.beta1 or 0.9, config.beta2 or 0.999)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "quadratic", "constant", "inverse-sqrt"])
def test_the_learning_rate_climbs_and_falls_as_told(schedule):
    rate = Config(rate_schedule=schedule, steps=100, warmup_steps=10, learning_rate=2.0).rates()
    first, half = {
        "constant": (2.0, 2.0),
        "quadratic": (2.0, 0.5),
        "inverse-sqrt": (2 * (10 / 11) ** 0.5, 2 * (10 / 56) ** 0.5),
    }.get(schedule, (2.0, 1.0))
    assert [rate(step) for step in (4, 9, 10, 55)] == pytest.approx([1.0, 2.0, first, half], rel=1e-12)


def test_names_that_a_program_adds_are_known_from_then_on(monkeypatch):
    monkeypatch.setattr(collectives.registry, "_ALGORITHMS", deepcopy(collectives.registry._ALGORITHMS))
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))
    monkeypatch.setattr(graphs, "_MAKERS", deepcopy(graphs._MAKERS))
    ring = collectives.registry.find("all_reduce", "ring")
    collectives.algorithm("all_reduce", "mine", cost=ring.cost, formula=ring.formula)(ring.run)
    graphs.named("mine")(graphs.ring)

    @named("mine")
    def mine(stages, micro_batches, chunks):
        return schedule("interleaved-1f1b", stages=stages, micro_batches=micro_batches, chunks=chunks)

    @named("pairs")
    def pairs(stages, micro_batches):
        if micro_batches % 2:
            raise ArgumentError(f"pairs of {micro_batches} micro-batches; needs an even number")
        return schedule("gpipe", stages=stages, micro_batches=micro_batches)

    assert Config(pp=2, schedule="pairs", micro_batches=4).schedule == "pairs"
    with pytest.raises(ArgumentError, match="pairs of 3 micro-batches"):
        Config(pp=2, schedule="pairs", micro_batches=3)
    assert Config(algorithm="mine").algorithm == "mine"
    assert Config(method="d-psgd", graph="mine").graph == "mine"
    assert Config(pp=2, schedule="mine", hidden_layers=4).chunks == 2


def test_names_in_other_spellings():
    config = Config(model="gpt", pp=2, micro_batches=2, method="Pipeline", schedule="DAPPLE", optimizer="AdamW")
    assert (config.method, config.schedule, config.optimizer) == ("pipeline", "1f1b", "adamw")
    assert 'schedule = "1f1b"' in config.toml()
    assert Config(model="gpt", pp=2, method="pipeline", schedule="ZBV").schedule == "zb-v"


@pytest.mark.parametrize(
    ("plain", "spelled"),
    [
        ({"method": "diloco"}, {"method": "DiLoCo"}),
        ({"method": "async"}, {"method": "ASYNC"}),
        ({"method": "ssp", "optimizer": "sgd"}, {"method": "SSP", "optimizer": "SGD"}),
        ({"method": "zero", "zero": 3}, {"method": "ZeRO", "zero": 3}),
        ({"model": "gpt", "device": "phantom"}, {"model": "GPT", "device": "Phantom"}),
        ({"precision": "bf16"}, {"precision": "BFloat16"}),
        ({"algorithm": "double_tree"}, {"algorithm": "double-binary-tree"}),
        (
            {"model": "gpt", "pp": 2, "micro_batches": 4, "schedule": "pipedream"},
            {"model": "GPT", "pp": 2, "micro_batches": 4, "schedule": "PipeDream"},
        ),
    ],
)
def test_names_in_other_spellings_imply_the_same(plain, spelled):
    assert Config(**spelled) == Config(**plain)
