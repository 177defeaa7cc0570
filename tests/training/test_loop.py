"""The trainer's loop, step by step, beside a plainer one; and what its lines say of the steps since the last."""

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.data import Batches
from simdist.nn import Noise
from simdist.parallel.pipeline import schedule
from simdist.parallel.pipeline.text import to_text
from simdist.training import Config, Trainer
from simdist.training.checkpoint import read_manifest
from simdist.training.models import build

SMALL = {"precision": "float64", "global_batch_size": 6, "steps": 7, "interval": 3, "validation_windows": 8, "seed": 5}
SMALL |= {"context_bytes": 6, "warmup_steps": 4}
MLP = SMALL | {"hidden_width": 8, "hidden_layers": 1, "embedding_width": 4}
GPT = SMALL | {"model": "gpt", "layers": 1, "width": 8, "heads": 2, "dropout": 0.3}


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(b"the quick brown fox jumps over the lazy dog; " * 20)
    return str(tmp_path / "text")


@pytest.mark.parametrize("order", ["random", "passes"])
@pytest.mark.parametrize("settings", [MLP, GPT], ids=["mlp", "gpt"])
def test_each_step_is_of_its_own_windows_and_noise(text, settings, order):
    config = Config(**settings | {"data": text, "order": order, "interval": 1, "learning_rate": 1e-300})

    def program(comm):
        trainer, plain = Trainer(comm, config), build(config)
        plain.parameters.bind(*np.zeros((2, plain.parameters.size)))
        plain.parameters.initialize(config.seed)  # so small a rate changes none of them
        targets = plain.targets_per_window
        batches = Batches(trainer.text.train, 6, config.seed, order, targets)
        losses = []
        for step in range(config.steps):
            part = batches.part(step, 0, 1)
            loss, _ = plain.forward(part.windows, Noise(config.seed, step, part.samples))
            losses.append(loss / part.batch_size / targets)
        return [line.train_loss for line in trainer.run()], losses

    found, losses = sd.run(program, 1).results[0]
    assert found == pytest.approx(losses, rel=1e-12)
    assert len(set(losses)) == len(losses)


def test_a_line_tells_what_the_steps_since_the_last_one_cost(text):
    """Of 1, 2, 3 and 1 of them."""
    config = Config(**GPT | {"data": text, "device": "phantom", "steps": 7, "validation_windows": 0, "interval": 3})

    def program(comm):
        trainer = Trainer(comm, config)
        return [(line, trainer.profiler.total) for line in trainer.run() if line]

    found = sd.run(program, 4, cluster=preset("h100")).results[1]
    assert [line.step for line, _ in found] == [1, 3, 6, 7]
    for i, (line, now) in enumerate(found):
        steps, seconds, targets, communication_s, _, sent_bytes, _ = np.subtract(now, found[i - 1][1] if i else 0)
        assert targets == steps * 6 * 6
        assert line.tokens_per_s == pytest.approx(targets / seconds)
        assert line.communication_share == pytest.approx(communication_s / seconds)
        assert line.sent_bytes == sent_bytes // steps
        assert line.seconds == now.seconds
        assert line.learning_rate == config.rates()(line.step - 1)


def test_the_time_goes_on_where_a_checkpoint_was_written(text, tmp_path):
    def program(comm, resume):
        trainer = Trainer(comm, Config(**MLP | {"data": text, "checkpoint_every": 4}), tmp_path / "run")
        if resume:
            trainer.resume(trainer.checkpoints, 4)
        return [line.seconds for line in trainer.run() if line], trainer.profiler.total.seconds

    cluster = preset("h100")
    ((seconds, _), *_) = sd.run(program, 2, cluster=cluster, args=(False,)).results
    before_s = read_manifest(tmp_path / "run", 4).extra["run"]["seconds"]
    assert seconds[1] < before_s < seconds[2]
    for again, since_s in sd.run(program, 2, cluster=cluster, args=(True,)).results:
        assert again[-1] == before_s + since_s


def test_the_record_is_of_the_run_alone(text):
    def program(comm):
        comm.compute(seconds=1, name="before")
        trainer = Trainer(comm, Config(**MLP | {"data": text}))
        list(trainer.run())
        return trainer.trace()

    names = [span.name for span in sd.run(program, 2).results[0]]
    assert "before" not in names
    assert names.count("step") == names.count("input") == 2 * SMALL["steps"]


def test_a_run_needs_its_schedules_file_no_longer_than_it_takes_to_begin(text, tmp_path):
    file = tmp_path / "own.txt"
    file.write_text(to_text(schedule("gpipe", 2, 3)))
    config = Config(**MLP | {"data": text, "pp": 2, "micro_batches": 3, "schedule": str(file), "checkpoint_every": 7})

    def program(comm):
        trainer = Trainer(comm, config, tmp_path / "run")
        comm.barrier()
        file.unlink(missing_ok=True)
        list(trainer.run())

    sd.run(program, 2)
    assert read_manifest(tmp_path / "run").extra["run"]["config"]["schedule"].startswith("of rows ")
