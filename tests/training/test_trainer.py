import numpy as np
import pytest
from checkpointing import own_weights
from harness import virtual

import simdist as sd
from simdist.collectives import cost
from simdist.data import load
from simdist.errors import CollectiveMismatch, DataError, ReplicaDrift
from simdist.training import Config, Trainer
from simdist.training.evaluation import Evaluator

ANY = {"precision": "float64", "global_batch_size": 22, "steps": 12, "interval": 5, "validation_windows": 50}
ANY |= {"algorithm": "ring", "bucket_bytes": 5000, "learning_rate": 0.3, "optimizer": "sgd", "clip_norm": 0.0}
SMALL = ANY | {"context_bytes": 4, "embedding_width": 4, "hidden_width": 16, "hidden_layers": 1}
GPT = ANY | {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 12, "dropout": 0.1}


def history(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    return [line and tuple(line) for line in trainer.run()], own_weights(trainer.method)


@pytest.mark.parametrize("model", [SMALL, GPT], ids=["mlp", "gpt"])
@pytest.mark.parametrize("p", [2, 3, 4])
def test_ranks_train_as_one(spmd, text, p, model):
    settings = model | {"data": text}
    alone, weights = spmd(history, 1, settings)[0]
    for found, replica in spmd(history, p, settings):
        np.testing.assert_allclose(replica, weights, rtol=1e-12, atol=1e-12)
        for line, expected in zip(found, alone, strict=True):
            assert (line is None) == (expected is None)
            if line:
                assert line[:4] == pytest.approx(expected[:4], rel=1e-12)


ROUGH = SMALL | {"steps": 6, "clip_norm": 0.5, "weight_decay": 0.1}
RATES = {"sgd": 0.3, "adam": 0.01, "adamw": 0.01, "lars": 1.0, "lamb": 0.01}


@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_ranks_train_as_one_by_any_rule(spmd, text, p, optimizer):
    settings = ROUGH | {"data": text, "optimizer": optimizer, "learning_rate": RATES[optimizer], "micro_batches": 3}
    alone, weights = spmd(history, 1, settings | {"micro_batches": 1})[0]
    for found, replica in spmd(history, p, settings):
        np.testing.assert_allclose(replica, weights, rtol=1e-12, atol=1e-12)
        for line, expected in zip(filter(None, found), filter(None, alone), strict=True):
            assert line[:5] == pytest.approx(expected[:5], rel=1e-12)
            assert line[4] > 0  # the norm, which clipping asks for


METHODS = {
    "ddp": {"bucket_bytes": 2000},
    "dp": {"method": "dp"},
    "server": {"method": "server", "algorithm": None},
    "map-reduce": {"method": "map-reduce", "algorithm": None},
    "compressed by nothing": {"compress": "none", "algorithm": None},
    "zero 1": {"zero": 1},
    "zero 2": {"zero": 2, "bucket_bytes": 2000},
    "fsdp": {"method": "fsdp"},
    "shards of one": {"zero": 2, "shards": 1},
    "offload to host": {"zero": 3, "offload": "parameters"},
    "offload to disk": {"zero": 2, "offload": "gradients", "offload_to": "disk"},
}
TINY = GPT | {"layers": 1, "width": 8, "context_bytes": 6, "steps": 20, "interval": 10, "validation_windows": 8}
TINY |= {"clip_norm": 0.5, "optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1, "bucket_bytes": None}


@pytest.fixture(scope="module")
def alone(spmd, tmp_path_factory):
    """The settings of a run, and what one rank comes to by them."""
    file = tmp_path_factory.mktemp("data") / "text"
    file.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 20)
    settings = TINY | {"data": str(file)}
    return settings, *spmd(history, 1, settings)[0]


@pytest.mark.slow(but=7)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_ranks_train_as_one_by_any_method(spmd, alone, p, name):
    settings, lines, weights = alone
    found = spmd(history, p, settings | METHODS[name] | {"micro_batches": 2})
    np.testing.assert_allclose(np.nanmax([own for _, own in found], axis=0), weights, rtol=1e-12, atol=1e-12)
    for line, expected in zip(filter(None, found[0][0]), filter(None, lines), strict=True):
        assert line[:5] == pytest.approx(expected[:5], rel=1e-12)


@pytest.mark.parametrize("told", [{}, {"method": "dp"}, {"compress": "8-bit", "algorithm": None}])
def test_a_copy_that_drifts_is_found_when_it_is_time_to_look(spmd, text, told):
    def drift(comm):
        trainer = Trainer(comm, Config(**SMALL | {"data": text, "bucket_bytes": None, "check_every": 4} | told))
        try:
            for _ in trainer.run():
                if trainer.done == 5 and comm.rank == 1:
                    trainer.method.weights[0] = 1e3
        except ReplicaDrift as error:
            return trainer.done, str(error)

    for done, message in spmd(drift, 3):
        assert done == 7 and "rank 1 (first in embedding" in message


def test_a_compressed_gradient_still_teaches(spmd, text):
    def losses(comm, compress):
        trainer = Trainer(comm, Config(**SMALL | {"data": text, "steps": 40, "compress": compress, **BARE}))
        lines = [line for line in trainer.run() if line]
        return lines[0].train_loss, lines[-1].train_loss, lines[-1].sent_bytes, trainer.method.compressor.plain_bytes

    for compress in ("top-k", "8-bit", "power-sgd"):
        first, last, sent, plain = spmd(losses, 2, compress)[0]
        assert last < 0.8 * first
        assert sent < plain / 40


BARE = {"bucket_bytes": None, "algorithm": None}


def test_ranks_train_about_as_one_with_a_state_of_8_bits(spmd, text):
    """A difference in a gradient's last bit may round the state to another of its 256 values."""
    settings = ROUGH | {"data": text, "optimizer": "adamw8bit", "learning_rate": 0.01}
    alone = spmd(history, 1, settings)[0][1]
    for _, replica in spmd(history, 3, settings):
        np.testing.assert_allclose(replica, alone, atol=1e-3)


@pytest.mark.parametrize("model", [SMALL, GPT], ids=["mlp", "gpt"])
@pytest.mark.parametrize(("p", "batch", "micro_batches"), [(4, 2, 1), (4, 5, 3), (3, 7, 7), (8, 3, 2)])
def test_a_rank_with_less_or_nothing_to_do_weighs_less_or_nothing(spmd, text, model, p, batch, micro_batches):
    settings = model | {"data": text, "global_batch_size": batch, "micro_batches": micro_batches, "steps": 4}
    alone, weights = spmd(history, 1, settings | {"micro_batches": 1})[0]
    for found, replica in spmd(history, p, settings):
        np.testing.assert_allclose(replica, weights, rtol=1e-12, atol=1e-12)
        assert found[0][1:3] == pytest.approx(alone[0][1:3], rel=1e-12)


@pytest.mark.parametrize("p", [1, 3])
def test_the_short_batch_at_the_end_of_a_pass_weighs_as_much_as_it_has(spmd, tmp_path, p):
    (tmp_path / "text").write_bytes(bytes(range(250)) * 2)
    settings = GPT | {"data": str(tmp_path / "text"), "order": "passes", "global_batch_size": 7, "interval": 1}
    settings |= {"learning_rate": 1e-9, "context_bytes": 6, "dropout": 0.0, "steps": 22}  # so the loss stays as it is

    def losses(comm):
        trainer = Trainer(comm, Config(**settings))
        sizes = [trainer._batches.size(step) for step in range(22)]
        return sizes, [line.train_loss for line in trainer.run() if line], trainer.profiler.total.targets

    sizes, found, targets = spmd(losses, p)[0]
    per_pass = sizes.index(min(sizes)) + 1
    assert min(sizes) < 7 and targets == 6 * sum(sizes)
    of_pass = [np.dot(sizes[i : i + per_pass], found[i : i + per_pass]) for i in (0, per_pass)]
    assert of_pass[0] == pytest.approx(of_pass[1], rel=1e-6)  # all windows once, in whatever order


def test_only_the_last_micro_batch_is_followed_by_a_reduction(spmd, text):
    def sent(comm, micro_batches):
        trainer = Trainer(comm, Config(**SMALL | {"data": text, "micro_batches": micro_batches}))
        return [line.sent_bytes for line in trainer.run() if line]

    assert spmd(sent, 2, 1) == spmd(sent, 2, 5)


def test_a_line_comes_first_last_and_each_interval(spmd, text):
    found, _ = spmd(history, 1, SMALL | {"data": text})[0]
    assert len(found) == 12
    assert [line[0] for line in found if line] == [1, 5, 10, 12]


def test_losses_are_means_over_all_that_they_are_of(spmd, text):
    settings = SMALL | {"data": text, "global_batch_size": 7}
    singly = [line[1] for line in spmd(history, 1, settings | {"interval": 1})[0][0]]
    for found, _ in spmd(history, 3, settings):
        means = [line[1] for line in found if line]
        assert means == pytest.approx([singly[0], np.mean(singly[1:5]), np.mean(singly[5:10]), np.mean(singly[10:])])


def validate(comm, settings):
    """The trainer's last validation loss, and the mean over the same windows one by one."""
    trainer = Trainer(comm, Config(**settings))
    last = [line for line in trainer.run() if line][-1].validation_loss
    config = trainer.config
    held = load(config.data).split(config.context_bytes + 1, config.validation_share, config.seed)[1]
    numbers = held.evenly(config.validation_windows)
    model = trainer.method.model
    losses = [model.forward(held.windows(numbers[i : i + 1]))[0] for i in range(len(numbers))]
    return last, np.mean(losses) / model.targets_per_window


@pytest.mark.parametrize("model", [SMALL, GPT], ids=["mlp", "gpt"])
@pytest.mark.parametrize("p", [1, 2])
def test_validation_takes_every_window_once(spmd, text, p, model):
    for found, expected in spmd(validate, p, model | {"data": text, "steps": 1, "validation_windows": 1200}):
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("global_batch_size", "at_once"), [(8, 512 // 64), (64, 64 // 2 // 2)])
def test_validation_takes_as_many_windows_at_a_time_as_a_step_and_at_least_512_bytes(text, global_batch_size, at_once):
    split = load(text).split(65, 0.5, 0)[1]
    config = Config(global_batch_size=global_batch_size, micro_batches=2, validation_windows=100)

    def program(comm):
        sizes = []
        Evaluator(split, comm, config, 64).loss(lambda windows: sizes.append(len(windows)) or 0.0)
        return sizes

    sizes = sd.run(program, 2).results
    assert sum(map(sum, sizes)) == len(split.evenly(100))
    assert len(sizes[0]) == len(sizes[1]) and at_once / 2 < max(map(max, sizes)) <= at_once


def test_it_learns(text):
    """On virtual ranks only: real ones come to the same, and would take seconds each."""

    def learn(comm):
        trainer = Trainer(comm, Config(**SMALL | {"data": text, "steps": 150}))
        return trainer.text.unigram_entropy, [line.validation_loss for line in trainer.run() if line][-1]

    entropy, loss = virtual(learn, 2)[0]
    assert loss < entropy / 2


def test_a_gpt_learns_what_no_pair_of_bytes_tells(text):
    """The text repeats itself, so all that is to be guessed is where in it a window begins.

    On virtual ranks only: real ones come to the same, and would take seconds each.
    """

    def learn(comm):
        told = {"data": text, "steps": 200, "dropout": 0.0, "context_bytes": 24}
        trainer = Trainer(comm, Config(**GPT | told))
        lines = [line for line in trainer.run() if line]
        split = load(text).split(25, 0.1, 0)[1]
        return split.bigram_entropy(), lines[0].train_loss, lines[-1].validation_loss

    entropy, first, loss = virtual(learn, 2)[0]
    assert first == pytest.approx(np.log(256), abs=0.3)
    assert loss < entropy / 2


def test_bytes_on_the_record_are_those_of_the_cost(spmd, text):
    def sent(comm):
        trainer = Trainer(comm, Config(**SMALL | {"data": text, "bucket_bytes": 1 << 20}))
        found = [line.sent_bytes for line in trainer.run() if line]
        return found, trainer.method.gradient.nbytes, trainer.profiler.total.messages

    for rank, (found, num_bytes, messages) in enumerate(spmd(sent, 3)):
        exact = cost("all_reduce", "ring", ranks=3, num_bytes=num_bytes, itemsize=8, rank=rank)
        assert found == [exact.sent_bytes] * 4
        assert messages == 12 * exact.messages


def test_another_seed_trains_another_way(spmd, text):
    one, other = (spmd(history, 1, SMALL | {"data": text, "seed": seed})[0][1] for seed in (0, 1))
    assert not np.allclose(one, other)


def test_ranks_must_train_alike(spmd, text):
    def disagree(comm):
        Trainer(comm, Config(**SMALL | {"data": text, "steps": 12 + comm.rank // 2}))

    with pytest.raises(CollectiveMismatch, match="train on text"):
        spmd(disagree, 3)


def test_ranks_must_read_the_same(spmd, text, tmp_path):
    def disagree(comm):
        if comm.rank == 0:
            (tmp_path / "mine").write_bytes(b"x" * 9000)
        data = str(tmp_path / "mine") if comm.rank == 0 else text
        Trainer(comm, Config(**SMALL | {"data": data}))

    with pytest.raises(CollectiveMismatch, match="train on text .* by config"):
        spmd(disagree, 2)


def test_a_short_text_is_an_error_on_all_ranks(spmd, tmp_path):
    file = tmp_path / "short"
    file.write_bytes(b"x" * 99)

    def read(comm):
        try:
            Trainer(comm, Config(**SMALL | {"data": str(file)}))
        except DataError as error:
            return str(error)

    assert all("has 99 bytes; windows of 5 bytes need at least 100" in told for told in spmd(read, 2))


def test_a_text_that_one_rank_cannot_read_is_an_error_on_all(spmd, text):
    def read(comm):
        data = "/nowhere/text" if comm.rank == 1 else text
        try:
            Trainer(comm, Config(**SMALL | {"data": data}))
        except DataError as error:
            return str(error)

    for told in spmd(read, 3):
        assert told == "rank 1: cannot read the data file /nowhere/text: No such file or directory"
