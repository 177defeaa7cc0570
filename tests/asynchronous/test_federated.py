import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.compute_time import Exponential
from simdist.asynchronous.federated import Federation, local_updates, uplink_bytes
from simdist.asynchronous.splits import dirichlet
from simdist.errors import ArgumentError

DIM, SAMPLES, CLIENTS, RATE = 5, 90, 11, 0.1
_RNG = np.random.default_rng(2)
A = _RNG.normal(size=(SAMPLES, DIM))
B = A @ np.arange(1.0, DIM + 1) + _RNG.normal(size=SAMPLES)
SPLITS = dirichlet((B > 0).astype(int), CLIENTS, 0.5, seed=1)
SIZES = [len(samples) for samples in SPLITS]
ABLE = [k for k in range(CLIENTS) if SIZES[k]]  # one has got nothing


def gradient(x, samples):
    rest = A[samples] @ x - B[samples]
    return 0.5 * float(rest @ rest) / len(samples), A[samples].T @ rest / len(samples)


def train(comm, rounds, options):
    x = np.full(DIM, 1.0 if comm.rank == 0 else np.nan)  # those of rank 0 count
    federation = Federation(comm, gradient, SPLITS, RATE, **options)
    seen = []
    first = len(comm.recorder.rows)
    found = federation.train(x, rounds, observe=lambda t, weights: seen.append(weights.copy()))
    spans = comm.recorder.spans()[first:]
    uplink = [s.bytes for s in spans if s.name == "send" and not s.context.endswith(".collective")]
    return np.array(seen), [r.clients for r in found], [sorted(r.losses) for r in found], sum(uplink), len(uplink)


def reference(rounds, clients, epochs=1, mu=0.0):
    """The papers' algorithms on one machine, with all of a client's samples in one batch."""
    w, seen = np.ones(DIM), []
    for t in range(rounds):
        n, total = sum(SIZES[k] for k in clients[t]), np.zeros(DIM)
        for k in clients[t]:
            mine = w.copy()
            for _ in range(epochs):
                mine = mine - RATE * (gradient(mine, SPLITS[k])[1] + mu * (mine - w))
            total += SIZES[k] / n * mine
        w = total
        seen.append(w)
    return np.array(seen)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_one_epoch_of_one_batch_is_fed_sgd(spmd, p):
    w, expected, n = np.ones(DIM), [], sum(SIZES)
    for _ in range(5):
        w = w - RATE * sum(SIZES[k] / n * gradient(w, SPLITS[k])[1] for k in ABLE)
        expected.append(w)
    # The clients' gradients, weighed by n_k / n, are the gradient of all samples: so this is SGD on all of them.
    np.testing.assert_allclose(expected[0], 1 - RATE * gradient(np.ones(DIM), np.arange(SAMPLES))[1], rtol=1e-12)
    for seen, *_ in spmd(train, p, 5, {}):
        np.testing.assert_allclose(seen, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(("epochs", "mu", "fraction"), [(1, 0.0, 0.4), (3, 0.0, 1.0), (4, 0.5, 0.3), (2, 2.0, 1e-9)])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_round_is_that_of_the_papers(spmd, p, epochs, mu, fraction):
    found = spmd(train, p, 4, {"epochs": epochs, "mu": mu, "fraction": fraction, "seed": 7})
    clients = found[0][1]
    assert [len(sample) for sample in clients] == [max(1, round(len(ABLE) * fraction))] * 4
    for seen, told, *_ in found:
        assert told == clients
        np.testing.assert_allclose(seen, reference(4, clients, epochs, mu), rtol=1e-12, atol=1e-13)
    for t, sample in enumerate(clients):
        assert sorted(k for _, _, mine, _, _ in found for k in mine[t]) == sorted(sample)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_any_number_of_ranks_gives_the_same_bits(spmd, batch_size):
    options = {"epochs": 2, "batch_size": batch_size, "fraction": 0.6, "mu": 0.1}
    expected = sd.run(train, 1, args=(4, options)).results[0][0]
    for p in (1, 2, 3, 4):
        for seen, *_ in spmd(train, p, 4, options):
            np.testing.assert_array_equal(seen, expected)


def test_fed_prox_with_mu_0_is_fed_avg_to_the_bit(spmd):
    options = {"epochs": 3, "batch_size": 5, "fraction": 0.5}
    fed_avg, fed_prox = (spmd(train, 3, 4, options | more)[0][0] for more in ({}, {"mu": 0.0}))
    np.testing.assert_array_equal(fed_prox, fed_avg)


def test_mu_holds_clients_back():
    found = [sd.run(train, 2, args=(1, {"epochs": 20, "mu": mu})).results[0][0][0] for mu in (0.0, 1.0, 9.0)]
    steps = [np.linalg.norm(w - 1) for w in found]
    assert steps[0] > steps[1] > steps[2]


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_the_uplink_is_one_message_of_the_weights_a_client_and_round(spmd, p, fraction):
    found = spmd(train, p, 3, {"fraction": fraction})
    assert sum(uplink for *_, uplink, _ in found) == uplink_bytes(len(ABLE), fraction, 3, DIM * 8)
    assert sum(messages for *_, messages in found) == 3 * max(1, round(len(ABLE) * fraction))


def test_one_client_always_takes_part():
    assert uplink_bytes(1, 0.1, 3, 100) == 300


@pytest.mark.parametrize(
    ("epochs", "batch_size", "updates"), [(1, 50, 12), (20, None, 20), (1, 10, 60), (5, 10, 300), (20, 10, 1200)]
)
def test_the_updates_in_table_2_of_the_paper(epochs, batch_size, updates):
    assert local_updates(60000, 100, epochs, batch_size) == updates


def test_clients_make_so_many_updates():
    def program(comm):
        calls = []
        splits = np.arange(90).reshape(3, 30)
        federation = Federation(comm, lambda x, at: (calls.append(at), gradient(x, at))[1], splits, RATE, **options)
        federation.train(np.ones(DIM), 2)
        return len(calls)

    options = {"epochs": 4, "batch_size": 10}
    assert sd.run(program, 1).results == [2 * 3 * local_updates(90, 3, **options)]
    with pytest.raises(ArgumentError, match="clients 0"):
        local_updates(90, 0, 1)


def test_samples_of_clients_hang_on_seed_and_round():
    def samples(comm, seed):
        return [Federation(comm, gradient, SPLITS, RATE, fraction=0.4, seed=seed).sample(t) for t in range(50)]

    first, again = (sd.run(samples, 2, args=(3,)).results for _ in range(2))
    assert first[0] == first[1] == again[0] != sd.run(samples, 1, args=(4,)).results[0]
    assert {k for sample in first[0] for k in sample} == set(ABLE)
    assert all(len(set(sample)) == len(sample) for sample in first[0])


def test_a_client_without_data_is_never_sampled(spmd):
    def program(comm):
        federation = Federation(comm, gradient, [np.arange(3), np.empty(0, int), np.arange(3, 9)], RATE)
        return sorted(federation.sample(0)), [r.clients for r in federation.train(np.ones(DIM), 1)]

    for able, _ in spmd(program, 2):
        assert able == [0, 2]


def test_large_weights_do_not_block(spmd):
    def program(comm):
        w = np.zeros(50_000)
        federation = Federation(comm, lambda x, samples: (0.0, np.ones_like(x)), [np.arange(2)] * 5, 1.0)
        federation.train(w, 2)
        return float(w.min()), float(w.max())

    for p in (1, 3):
        assert spmd(program, p) == [(pytest.approx(-2.0), pytest.approx(-2.0))] * p


def test_the_clients_of_a_rank_take_their_time_one_after_another():
    times = Exponential(1.0, seed=5)

    def program(comm):
        Federation(comm, gradient, SPLITS, RATE, compute_time=times).train(np.ones(DIM), 1)

    slowest = max(sum(times.seconds(k, 0) for k in ABLE if k % 3 == rank) for rank in range(3))
    assert sd.run(program, 3).elapsed_s == pytest.approx(slowest, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": -0.1}, "fraction is -0.1"),
        ({"fraction": 1.1}, "fraction is 1.1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"mu": -1.0}, "mu is -1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_is_refused(spmd, options, message):
    with pytest.raises(ArgumentError, match=message):
        spmd(train, 2, 1, options)


def test_somebody_must_have_data(spmd):
    with pytest.raises(ArgumentError, match="0 clients with data"):
        spmd(lambda comm: Federation(comm, gradient, [np.empty(0, int)], RATE).able, 2)


def test_by_a_fraction_of_nothing_one_client_takes_part():
    """C = 0 of McMahan et al. 2017, table 1: m = max(C K, 1)."""
    assert uplink_bytes(100, 0.0, 1, 4 * 1_663_370) == 6_653_480


def test_rounds_are_not_negative():
    with pytest.raises(ArgumentError, match="rounds is -1"):
        uplink_bytes(10, 0.1, -1, 4)


def test_each_round_shuffles_a_clients_samples_anew():
    def program(comm):
        seen, splits = [], [np.arange(30)]
        of = lambda x, at: (seen.append(at.tolist()), gradient(x, at))[1]  # noqa: E731
        Federation(comm, of, splits, RATE, batch_size=30).train(np.ones(DIM), 2)
        return seen

    [(first, second)] = sd.run(program, 1).results
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
