"""Below the bounds no algorithm is, by messages; and each bound some algorithm reaches."""

from functools import cache

import pytest
from oracle import every_algorithm

from simdist.cluster import Link
from simdist.collectives import formula, logp_broadcast_s, logp_sum_values, lower_bound
from simdist.errors import ArgumentError, UnknownNameError

N = 9_600_000


@pytest.mark.parametrize(
    ("operation", "p", "bound"),
    [
        ("broadcast", 8, (3, 800, 0)),
        ("reduce", 8, (3, 800, 700)),
        ("scatter", 5, (3, 640, 0)),
        ("gather", 2, (1, 400, 0)),
        ("all_gather", 16, (4, 750, 0)),
        ("reduce_scatter", 4, (2, 600, 600)),
        ("all_reduce", 5, (3, 1280, 640)),
        ("all_to_all", 4, (2, 600, 0)),
        ("barrier", 9, (4, 0, 0)),
        ("all_reduce", 1, (0, 0, 0)),
    ],
)
def test_the_table(operation, p, bound):
    assert lower_bound(operation, ranks=p, num_bytes=800) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("operation", "name"), [each for each in every_algorithm() if each[1] not in ("direct", "hierarchical")]
)
@pytest.mark.parametrize("p", [1, 2, 3, 8, 12, 64, 100])
def test_no_formula_is_below(operation, name, p):
    found, least = formula(operation, name, ranks=p, num_bytes=N), lower_bound(operation, ranks=p, num_bytes=N)
    assert all(has >= needs * (1 - 1e-12) for has, needs in zip(found, least, strict=True))


@pytest.mark.parametrize(
    (
        "operation",
        "few",
        "little",
    ),  # which reaches the bound of latencies, and which that of bytes and of reduced bytes
    [
        ("broadcast", "binomial", "binomial"),
        ("reduce", "binomial", "reduce_scatter_gather"),
        ("scatter", "binomial", "binomial"),
        ("gather", "binomial", "linear"),
        ("all_gather", "bruck", "ring"),
        ("reduce_scatter", "recursive_halving", "pairwise"),
        ("all_reduce", "recursive_doubling", "ring"),
        ("all_to_all", "bruck", "pairwise"),
        ("barrier", "dissemination", "dissemination"),
    ],
)
def test_each_is_reached(operation, few, little):
    least = lower_bound(operation, ranks=16, num_bytes=N)
    assert formula(operation, few, ranks=16, num_bytes=N).latencies == least.latencies
    if operation != "broadcast":  # that of bytes is reached by pieces, the smaller the nearer
        assert formula(operation, little, ranks=16, num_bytes=N).reduced_bytes == pytest.approx(least.reduced_bytes)
    if operation not in ("broadcast", "reduce"):
        assert formula(operation, little, ranks=16, num_bytes=N).bytes == pytest.approx(least.bytes)


@pytest.mark.parametrize("p", [2, 8, 1024])
def test_switches_that_add_up_take_half_of_an_all_reduce(p):
    """Of 2(p-1)/p n by a ring only n; nothing of other collectives, but all take one latency."""
    n = 1024 * 1000
    found = lower_bound("all_reduce", ranks=p, num_bytes=n, in_network=True)
    assert found == (1, n, 0)
    assert formula("all_reduce", "ring", ranks=p, num_bytes=n).bytes / found.bytes == pytest.approx(2 * (p - 1) / p)
    for operation in ("broadcast", "reduce_scatter", "all_gather", "all_to_all", "barrier"):
        least = lower_bound(operation, ranks=p, num_bytes=n)
        assert lower_bound(operation, ranks=p, num_bytes=n, in_network=True) == (1, least.bytes, 0)
    assert lower_bound("all_reduce", ranks=1, num_bytes=n, in_network=True) == (0, 0, 0)


@pytest.mark.parametrize(
    ("operation", "ports", "bound"),
    [
        ("all_gather", 6, (2, 7 / 6)),  # of bytes of a rank, as are the others
        ("all_reduce", 6, (2, 14 / 6)),
        ("broadcast", 6, (2, 8 / 6)),
        ("all_to_all", 7, (1, 1)),
        ("all_gather", 1, (3, 7)),
    ],
)
def test_several_links_of_a_rank(operation, ports, bound):
    """SCCL's of DGX-1, arXiv 2008.08708: 2 steps, and 7/6 of the time of a rank's bytes, of an all-gather."""
    assert lower_bound(operation, ranks=8, num_bytes=8, ports=ports)[:2] == pytest.approx(bound)


@pytest.mark.parametrize("radix", [2, 3, 4])
@pytest.mark.parametrize("p", [2, 3, 9, 10, 27, 28, 1000])
def test_rounds_of_bruck_et_al(radix, p):
    """As many messages at a time as ports: ⌈log p⌉ to the base k + 1 of its all-to-all, in which radix is that."""
    rounds = lower_bound("all_to_all", ranks=p, num_bytes=p, ports=radix - 1).latencies
    assert radix ** (rounds - 1) < p <= radix**rounds
    assert lower_bound("all_to_all", ranks=p, num_bytes=0, in_network=True, ports=radix) == (1, 0, 0)


def test_what_cannot_be():
    with pytest.raises(UnknownNameError, match="unknown collective 'allreduced'; did you mean 'all_reduce'"):
        lower_bound("allreduced", ranks=2, num_bytes=8)
    with pytest.raises(ArgumentError, match="ranks is 0"):
        lower_bound("reduce", ranks=0, num_bytes=8)
    with pytest.raises(ArgumentError, match="ports is 0"):
        lower_bound("reduce", ranks=2, num_bytes=8, ports=0)


def test_the_best_broadcast_of_logp():
    """Figure 3 of Culler et al. 1993: with P = 8, L = 6, o = 2 and g = 4 the last has it at 24. `test_link` runs it."""
    link = Link(6 + 2 * 2 - 4, 1 / 4)
    assert [logp_broadcast_s(link, p) for p in range(1, 9)] == [0, 10, 14, 18, 20, 22, 24, 24]


@pytest.mark.parametrize("latency", [1, 2, 3, 7])
def test_the_best_broadcast_of_the_postal_model(latency):
    """Bar-Noy, Kipnis: the ranks reached by time t are N(t) = N(t-1) + N(t-λ); with λ = 1 binomially many."""
    reached = [1] * latency
    while reached[-1] < 1000:
        reached.append(reached[-1] + reached[-latency])
    for p in (2, 3, 8, 13, 100, 1000):
        found = logp_broadcast_s(Link(latency - 1, 1.0), p)
        assert found == next(t for t, ranks in enumerate(reached) if ranks >= p)
        assert latency > 1 or found == formula("broadcast", "binomial", ranks=p, num_bytes=1).latencies
    with pytest.raises(ArgumentError, match="ranks is 0"):
        logp_broadcast_s(Link(1.0, 1.0), 0)


def test_the_best_sum_of_logp():
    """Figure 4 of Culler et al. 1993: with T = 28, P = 8, L = 5, g = 4 and o = 2 ranks are done at these times."""
    done = [28, 18, 14, 10, 8, 6, 4, 4]
    for p in range(1, 9):
        values = 1 + sum(done[:p]) - 2 * (p - 1)
        assert logp_sum_values(28, p, latency=5, overhead=2, gap=4) == values
    assert values == 79


def most_values(cycles, ranks, latency, overhead, gap):
    """The same by trying, backwards from the last cycle, whether a rank adds a value of its own or receives a sum."""

    @cache
    def most(cycle, wait, ranks):  # of a rank until a cycle, the last of whose messages may come `wait` before it
        if cycle == 0:
            return 1
        found = [1 + most(cycle - 1, max(0, wait - 1), ranks)]
        before, sent = cycle - overhead - 1, cycle - 2 * overhead - 1 - latency
        if wait == 0 and sent >= 0:
            rest = max(0, gap - overhead - 1)
            found += [most(sent, 0, k) + most(before, rest, ranks - k) for k in range(1, ranks)]
        return max(found)

    return most(cycles, 0, ranks)


@pytest.mark.parametrize("model", [(5, 2, 4), (1, 0, 1), (0, 0, 1), (3, 1, 2), (2, 3, 6), (4, 2, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_no_order_of_additions_in_logp_sums_more(model, ranks):
    latency, overhead, gap = model
    for cycles in range(32):
        found = logp_sum_values(cycles, ranks, latency=latency, overhead=overhead, gap=gap)
        assert found == most_values(cycles, ranks, latency, overhead, gap)


def test_sums_that_logp_has_not():
    for name, value in (("ranks", 0), ("cycles", -1), ("latency", 1.5), ("overhead", -1), ("gap", -2)):
        given = {"cycles": 9, "ranks": 2, "latency": 1, "overhead": 1, "gap": 1, name: value}
        with pytest.raises(ArgumentError, match=f"{name} is {value}"):
            logp_sum_values(**given)
