"""Random programs: the virtual world against a simulation that looks at everything anew after each step.

A line is a stream of a rank. What it calls is a list, with a random time before each call, so that no two things happen
at once and the order of ranks does not matter.
"""

import random
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from simdist.cluster import Cluster, Device, Link, Network
from simdist.comm import ANY
from simdist.comm.virtual.world import run_virtual
from simdist.errors import DeadlockError


def drawn(rng):
    """A cluster, a number of ranks, and the calls of each line."""
    slow, fast = rng.choice([(2.1, 7.0), (0.3, 7.0), (0.3, inf)]), rng.choice([(1.0, 10.0), (0.01, 13.0), (0.7, inf)])
    cluster = Cluster("random", Device("d", 1e9, 1e9, 1e9), Link(*fast), Link(*slow)).with_(
        devices_per_node=rng.choice([2, 3, 8]),
        nics_per_node=rng.choice([1, 2]),
        eager_bytes=rng.choice([0, 10, 1000]),
        jitter=rng.choice([0.0, 0.0, 2.0]),
    )
    p, streams = rng.randint(2, 5), rng.choice([["main"], ["main", "side"]])
    lines = {(rank, stream): [] for stream in streams for rank in range(p)}
    for _ in range(rng.randint(1, 12)):
        stream, src, dst, tag = rng.choice(streams), rng.randrange(p), rng.randrange(p), rng.randint(0, 2)
        lines[src, stream] += [("send", dst, tag, rng.choice([0, 1, 5, 20, 60]))]
        calls = lines[dst, stream]
        call = "recv", rng.choice([src, src, ANY]), rng.choice([tag, tag, ANY])
        calls.insert(rng.randint(max(0, len(calls) - 3), len(calls)), call)
        calls += rng.choice([[], [("wait", 1)], [("probe", rng.choice([tag, ANY]), rng.random() * 9)]])
    for calls in lines.values():
        calls.append(("wait", 99))
    for rank in range(p):
        calls = lines[rank, "main"]
        for call in ("meet", "start", "join")[: 2 * len(streams) - 1]:
            calls.insert(rng.randint(calls.index(("start",)) + 1 if call == "join" else 0, len(calls)), (call,))
    pauses = [0.001, 1.0, 6.0]
    return (
        cluster,
        p,
        {
            line: [x for call in calls for x in (("compute", rng.choice(pauses) * rng.random()), call)]
            for line, calls in lines.items()
        },
    )


def steps(calls):
    """The calls, one at a time; told of each its result and when it came. Returns the results of all waits."""
    pending, log = [], []
    for what, *about in calls:
        if what == "wait":
            for request in pending[: about[0]]:
                log.append((yield "wait", request))
            del pending[: about[0]]
            continue
        told = yield what, *about
        pending += [told[0]] if what in ("send", "recv") else []
        log += [told] if what in ("probe", "join", "meet") else []
    return log


def virtual(cluster, p, lines):
    logs = {}

    def program(comm):
        side, works = comm.stream("side"), []

        def follow(stream, comm):
            calls, told = steps(lines[comm.rank, stream]), None
            do = {
                "compute": comm.compute,
                "send": lambda dst, tag, size: comm.isend(np.ones(size, np.uint8), dst, tag),
                "recv": lambda src, tag: comm.irecv(np.zeros(60, np.uint8), src, tag),
                "wait": lambda request: tuple(request.wait()),
                "probe": lambda tag, lasts_s: comm.probe(tag, comm.clock() + lasts_s),
                "meet": lambda: comm.exchange("") and None,
                "start": lambda: works.append(side.start(follow, "side", side.comm)),
                "join": lambda: works[0].wait(),
            }
            try:
                while True:
                    what, *about = calls.send(told)
                    told = do[what](*about), pytest.approx(comm.clock(), rel=1e-9)
            except StopIteration as end:
                logs[comm.rank, stream] = end.value

        follow("main", comm)

    try:
        run_virtual(program, p, cluster)
    except DeadlockError:
        return None
    return logs


class Simulation:
    """Does what is due first, again and again."""

    def __init__(self, cluster, p, lines):
        self.network, self.paths, self.eager_bytes, self.programs = Network(cluster, p), {}, cluster.eager_bytes, lines
        self.lines, self.messages, self.receives, self.logs = {}, [], [], {}
        for rank in range(p):
            self.start(rank, "main", 0.0)
        while due := [(due_s, key) for key, line in self.lines.items() if (due_s := self.due_s(line)) < inf]:
            due_s, key = min(due)
            self.do(self.lines[key], due_s, *self.lines[key].call)
        self.ended = all(line.call == ("end",) for line in self.lines.values())

    def start(self, rank, stream, now_s):
        line = SimpleNamespace(rank=rank, stream=stream, clock_s=now_s, steps=steps(self.programs[rank, stream]))
        self.lines[rank, stream] = line
        self.tell(line, None)

    def tell(self, line, told):
        try:
            line.call = line.steps.send(told)
        except StopIteration as end:
            line.call, self.logs[line.rank, line.stream] = ("end",), end.value

    def first(self, line, tag):
        """When the first message comes that the line can take with this tag, and from whom."""
        oldest = {}
        for m in self.messages:
            if (m.dst, m.stream) == (line.rank, line.stream) and tag in (m.tag, ANY):
                oldest.setdefault(m.src, m.ready_s)
        return min(((ready_s, src) for src, ready_s in oldest.items()), default=(inf, None))

    def due_s(self, line):
        """When the line's next call will be over; inf if nobody knows yet."""
        what, *about = line.call
        if what == "compute":
            return line.clock_s + about[0]
        if what == "probe":
            return max(line.clock_s, min(self.first(line, about[0])[0], line.clock_s + about[1]))
        if what == "wait":
            (request,) = about
            return max(line.clock_s, self.first(line, request.tag)[0] if request.src == ANY else request.done_s)
        if what == "join":
            side = self.lines[line.rank, "side"]
            return max(line.clock_s, side.clock_s) if side.call == ("end",) else inf
        if what == "meet":
            mains = [other for other in self.lines.values() if other.stream == "main"]
            return max(m.clock_s for m in mains) if all(m.call == ("meet",) for m in mains) else inf
        return inf if what == "end" else line.clock_s

    def do(self, line, now_s, what, *about):
        line.clock_s, told = now_s, None
        if what == "send":
            dst, tag, size = about
            told = SimpleNamespace(src=line.rank, dst=dst, tag=tag, size=size, stream=line.stream, done_s=inf)
            self.send(told, now_s)
        elif what == "recv" or (what == "wait" and about[0].src == ANY):
            told = about[0] if what == "wait" else SimpleNamespace(dst=line.rank, stream=line.stream, done_s=inf)
            told.src, told.tag = (self.first(line, told.tag)[1], told.tag) if what == "wait" else about
            if told.src != ANY:
                self.post(told, now_s)
            if what == "wait":
                return  # and then for that message
        elif what == "wait":
            told = about[0].status
        elif what == "probe":
            told = self.first(line, about[0])[0] <= now_s
        elif what == "start":
            self.start(line.rank, "side", now_s)
        elif what == "join":
            told = None
        elif what == "meet":
            for other in [other for other in self.lines.values() if other.call == ("meet",)]:
                other.clock_s = now_s
                self.tell(other, (None, now_s))
            return
        self.tell(line, (told, now_s))

    def send(self, m, now_s):
        ends = m.stream, m.src, m.dst
        m.path = self.paths[ends] = self.paths.get(ends) or self.network.path(m.src, m.dst)
        m.status, m.eager = (m.dst, m.tag, m.size), m.size <= self.eager_bytes or m.src == m.dst
        if m.eager:
            m.done_s, m.ready_s = m.path.carry(m.size, now_s)
        else:
            m.ready_s = now_s + m.path.alpha_s
        for r in self.receives:
            if (r.stream, r.src, r.dst) == ends and r.tag in (m.tag, ANY):
                self.receives.remove(r)
                return self.match(m, r, now_s)
        return self.messages.append(m)

    def post(self, r, now_s):
        for m in self.messages:
            if (m.stream, m.src, m.dst) == (r.stream, r.src, r.dst) and r.tag in (m.tag, ANY):
                self.messages.remove(m)
                return self.match(m, r, now_s)
        return self.receives.append(r)

    def match(self, m, r, now_s):
        if not m.eager:
            m.done_s, m.ready_s = m.path.carry(m.size, now_s)
        r.done_s, r.status = m.ready_s, (m.src, m.tag, m.size)


@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(0, 400, 50)], ids=str)
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")
def test_what_comes_of_random_programs(seeds):
    ended = 0
    for seed in seeds:
        program = drawn(random.Random(seed))
        simulation = Simulation(*program)
        assert virtual(*program) == (simulation.logs if simulation.ended else None), f"seed {seed}"
        ended += simulation.ended
    assert 5 < ended < 45, "some end in a deadlock, and some do not"
