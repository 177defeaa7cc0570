"""A run on a device follows the curve of the same run on the host."""

import numpy as np
import pytest

from simdist.arrays import kind_of
from simdist.errors import ArgumentError
from simdist.training import Config, Trainer
from simdist.training.asynchronous.run import AsynchronousRun

SMALL = {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 12}
LLAMA = {"block": "llama", "heads": 4, "kv_heads": 2, "ffn_width": 24}
METHODS = {
    "ddp": (2, {}, 1e-6),
    "bf16, fsdp": (2, {"precision": "bf16", "method": "fsdp"}, 1e-3),
    "zero 2, dropout, fp16": (2, {"zero": 2, "dropout": 0.1, "precision": "fp16"}, 1e-3),
    "tp, sequence parallel": (2, {"tp": 2, "sequence_parallel": True}, 1e-6),
    "flash, bf16": (2, {"flash_attention": True, "width": 32, "tp": 2, "precision": "bf16"}, 1e-3),
    "llama, tp, bf16": (2, LLAMA | {"tp": 2, "precision": "bf16"}, 1e-3),
    "pp": (2, {"pp": 2, "micro_batches": 2}, 1e-6),
    "zero 2, offload": (2, {"zero": 2, "offload": "gradients"}, 1e-6),
    "fsdp, offload, bf16": (2, {"method": "fsdp", "offload": "parameters", "precision": "bf16"}, 1e-3),
}
MORE = {
    "mlp": (1, {"model": "mlp"}, 1e-6),
    "zero 1": (2, {"zero": 1}, 1e-6),
    "ring attention": (2, {"sp": 2}, 1e-6),
    "ulysses": (2, {"sp": 2, "ulysses": True}, 1e-6),
    "experts": (2, {"experts": 2, "ep": 2}, 1e-6),
    "llama, ring attention": (2, LLAMA | {"kv_heads": 1, "sp": 2}, 1e-6),
    "llama, dropout, experts": (2, LLAMA | {"dropout": 0.1, "experts": 2, "ep": 2}, 1e-6),
    "latent attention": (2, LLAMA | {"kv_heads": 0, "kv_latent_width": 6, "query_latent_width": 6, "tp": 2}, 1e-6),
    "latent attention, flash": (1, LLAMA | {"kv_heads": 0, "kv_latent_width": 6, "flash_attention": True}, 1e-6),
    "server": (2, {"method": "server"}, 1e-6),
    "map-reduce": (2, {"method": "map-reduce"}, 1e-6),
    "top-k": (2, {"compress": "top-k"}, 1e-6),
    "8-bit": (2, {"compress": "8-bit"}, 1e-6),
    "power-sgd": (2, {"compress": "power-sgd"}, 1e-6),
    "zero 1, offload": (2, {"zero": 1, "offload": "optimizer"}, 1e-6),
    "fsdp, offload": (2, {"method": "fsdp", "offload": "optimizer"}, 1e-6),
    "offload to disk": (2, {"zero": 2, "offload": "gradients", "offload_to": "disk", "precision": "fp16"}, 1e-3),
    "recompute": (1, {"recompute": "selective"}, 1e-6),
    "flash": (1, {"flash_attention": True, "dropout": 0.1}, 1e-6),
    "four ranks, tp and pp": (4, {"tp": 2, "pp": 2, "micro_batches": 2}, 1e-6),
    "four ranks, zero bubbles": (4, {"layers": 4, "schedule": "zb-h1", "micro_batches": 2}, 1e-6),
    "four ranks, muon, zero 3": (4, {"optimizer": "muon", "zero": 3}, 1e-6),
    "four ranks, experts, tp": (4, LLAMA | {"experts": 2, "ep": 2, "tp": 2}, 1e-6),
    **{name: (1, {"optimizer": name}, 1e-6) for name in ("sgd", "adam", "adamw8bit", "lars", "lamb", "muon")},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(bytes(97 + (i * i + i // 7) % 26 for i in range(20_000)))
    return str(path)


def losses(comm, settings, device, text):
    """Of each step, in training and validation; and where the weights were."""
    shape = SMALL if settings.get("model") != "mlp" else {"context_bytes": 4, "hidden_width": 8}
    rest = {"steps": 3, "interval": 1, "global_batch_size": 8, "validation_windows": 8, "trace_steps": 0}
    config = Config(**(shape | rest | settings | {"sample_bytes": 4, "device": device, "data": text}))
    trainer = Trainer(comm, config)
    curve = [(line.train_loss, line.validation_loss) for line in trainer.run()]
    trainer.samples()
    return curve, trainer.method.model.parameters.kind


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    "case",
    [*METHODS.values(), *(pytest.param(c, marks=pytest.mark.slow) for c in MORE.values())],
    ids=[*METHODS, *MORE],
)
def test_a_run_follows_the_curve_of_the_host(spmd, device, text, case):
    ranks, settings, tolerance = case

    def program(comm):
        return [losses(comm, settings, where, text) for where in ("cpu", "cuda")]

    (host, kind), (far, far_kind) = spmd(program, ranks)[0]
    assert (kind, far_kind) == ("numpy", "cupy")
    assert np.abs(np.subtract(host, far)).max() < tolerance


@pytest.mark.parametrize(
    ("offload", "on_host"),
    [("none", []), ("optimizer", ["state"]), ("parameters", ["state", "gradients", "parameters"])],
)
def test_what_is_offloaded_lies_in_the_hosts_memory(spmd, device, text, offload, on_host):
    def program(comm):
        method = Trainer(comm, Config(**SMALL, method="fsdp", offload=offload, device="cuda", data=text)).method
        own = {"state": method.update.rule.state["m"], "gradients": method._gradients.own()}
        own["parameters"] = method._weights.own
        return [name for name, x in own.items() if kind_of(x) == "numpy"]

    assert spmd(program, 2) == [on_host] * 2


@pytest.mark.parametrize("method", ["bsp", *(pytest.param(m, marks=pytest.mark.slow) for m in ("d-psgd",))])
def test_an_asynchronous_run_follows_the_curve_of_the_host(spmd, device, text, method):
    def program(comm, where):
        rest = {"steps": 3, "interval": 1, "global_batch_size": 8, "validation_windows": 8}
        config = Config(**SMALL | rest, method=method, device=where, data=text, sample_bytes=3)
        run = AsynchronousRun(comm, config)
        losses = [line.validation_loss for lines in run.run() for line in lines]
        run.samples()
        return losses, run.model.parameters.kind

    (host, kind), (far, far_kind) = (spmd(program, 3, where)[0] for where in ("cpu", "cuda"))
    assert (kind, far_kind) == ("numpy", "cupy")
    assert np.abs(np.subtract(host, far)).max() < 1e-6


@pytest.mark.parametrize("more", [{}, {"compress": "8-bit"}, {"method": "fsdp", "offload": "optimizer"}])
def test_a_checkpoint_of_a_device_is_one_of_any(spmd, device, text, tmp_path, more):
    settings = {**SMALL, "global_batch_size": 4, "validation_windows": 4, "data": text, "sample_bytes": 0, **more}

    def program(comm):
        first = Trainer(comm, Config(**settings, steps=2, device="cuda", checkpoint_every=2), tmp_path)
        list(first.run())
        weights, found = first.method.vectors()[""], []
        for where in ("cpu", "cuda"):
            again = Trainer(comm, Config(**settings, steps=3, device=where), tmp_path)
            again.resume(tmp_path)
            shards = zip(weights, again.method.vectors()[""], strict=True)
            found += [again.done == 2, *(a.data.tolist() == b.data.tolist() for a, b in shards)]
        return found

    if not spmd.real:
        assert all(spmd(program, 1)[0])


def test_a_path_without_a_device_is_refused():
    with pytest.raises(ArgumentError, match="device_path"):
        Config(device_path="staged")
    assert Config(device_path="auto") == Config(device="cpu", device_path="AUTO") == Config(), "which is any there is"
