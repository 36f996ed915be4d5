"""A node whose clock a test moves, what its lines tell, and commands of chance for it."""

from __future__ import annotations

from random import Random

import orjson
from hypothesis import strategies as st

from rq.broker.desks.node import Node
from rq.broker.dialects import TABLE
from rq.broker.dialects.call import Call, Refusal
from rq.broker.state import groups, lines, reliable

WALL = 1_700_000_000_000


class Run:
    """A node whose clock the test moves; it keeps the lines that it would write."""

    def __init__(self):
        self.node = Node("ab" * 20, Random(7))
        self.now = 1000.0
        self.lines = []

    def ask(self, *words, client=1):
        name, *args = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        wall = WALL + int(self.now * 1000)
        try:
            value = TABLE[name].function(Call(self.node, client, args, self.now, wall))
        except Refusal as refusal:
            value = refusal.failure
        self.keep()
        return value

    def keep(self):
        events, self.node.events = self.node.events, []
        self.lines += [
            (self.now, orjson.dumps(lines.record(event))) for event in events
        ]

    def pass_by(self, seconds):
        self.now += seconds
        self.node.tick(self.now)
        self.keep()

    def answers(self):
        answers, self.node.answers = self.node.answers, []
        return answers


def read(some):
    """Return the node that a start finds."""
    node = Node("ab" * 20, Random(8))
    for now, text in some:
        node.apply(lines.event(orjson.loads(text)), now)
    return node


def told(node, now):
    """Return what a node knows, but for what a start may forget: counters, and moments
    that follow from the time. What ids a key goes on behind may be higher after it."""
    node.tick(now)
    node.groups.settle(now, 10_000)
    return {
        "jobs": {
            each.job_id: (
                each.queue.name,
                each.body,
                each.ctime,
                each.expires,
                each.state,
                bool(each.due),
                each.nacks,
                each.deliveries,
            )
            for each in node.jobs.by_id.values()
        },
        "queues": {
            queue.name: ([each.job_id for each in queue.jobs], queue.paused)
            for queue in node.jobs.queues.values()
            if queue.held or queue.paused != "none"
        },
        "reliable": {
            key: (
                list(queue.undelivered.items()),
                [(i, d.body, d.at, d.times) for i, d in queue.delivered.items()],
            )
            for key, queue in node.reliable.by_key.items()
        },
        "groups": {
            name: (
                list(queue.events.values()),
                {
                    group_name: (
                        group.pointer,
                        {n: wake.at for n, wake in group.in_progress.items()},
                        list(group.redo),
                    )
                    for group_name, group in queue.groups.items()
                },
            )
            for name, queue in node.groups.by_name.items()
            if queue.events or queue.groups
        },
        "size": node.size,
        "last": (node.jobs.last_ctime, node.groups.last, node.reliable.last),
    }


QUEUES = st.sampled_from([b"a", b"b", b"\xff:"])
NAMES = st.sampled_from([b"x", b"y"])
COMMANDS = st.one_of(
    st.tuples(
        st.just("ADDJOB"),
        QUEUES,
        st.binary(max_size=4),
        st.just(0),
        st.just("RETRY"),
        st.sampled_from([0, 1, 5]),
        st.just("DELAY"),
        st.sampled_from([0, 0, 3]),
        st.just("TTL"),
        st.sampled_from([4, 60]),
    ),
    st.tuples(st.just("GETJOB"), st.just("NOHANG"), st.just("FROM"), QUEUES, QUEUES),
    st.tuples(
        st.just("GETJOB"), st.just("TIMEOUT"), st.just(900), st.just("FROM"), QUEUES
    ),
    st.tuples(
        st.sampled_from(["ACKJOB", "NACK", "ENQUEUE", "DEQUEUE", "WORKING", "DELJOB"]),
        st.integers(0, 20).map(lambda n: f"job{n}"),
    ),
    st.tuples(st.just("PAUSE"), QUEUES, st.sampled_from(["in", "out", "all", "none"])),
    st.tuples(st.just("RQ.PUSH"), NAMES, st.binary(max_size=3), st.binary(max_size=3)),
    st.tuples(st.just("RQ.POP"), st.just("COUNT"), st.integers(1, 3), NAMES, NAMES),
    st.tuples(st.just("RQ.ACK"), NAMES, st.integers(0, 9).map(lambda n: f"msg{n}")),
    st.tuples(
        st.just("RQ.RECOVER"), NAMES, st.integers(0, 3), st.sampled_from([0, 900])
    ),
    st.tuples(st.just("DEL"), NAMES),
    st.tuples(
        st.just("QADD"),
        NAMES,
        st.sampled_from(["0.5", "4", "60"]),
        st.binary(max_size=3),
    ),
    st.tuples(st.just("QGET"), NAMES, NAMES, st.just("EX"), st.sampled_from([0, 1, 9])),
    st.tuples(st.just("QACK"), NAMES, NAMES, st.integers(0, 9).map(lambda n: f"ev{n}")),
    st.tuples(st.just("QFLUSH"), NAMES),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 0.7, 2.0, 6.0])),
)


def with_ids(run, words):
    """Put an id that there is, or was, in the place of a number."""
    last = words[-1]
    if not isinstance(last, str) or not last[-1].isdigit():
        return words
    number = int(last.strip("jobmsgev"))
    if last.startswith("job"):
        known = list(run.node.jobs.by_id) or ["D-abababab-" + "A" * 24 + "-05a1"]
    elif last.startswith("msg"):
        queue = run.node.reliable.by_key.get(words[1], reliable.ReliableQueue())
        known = [*queue.undelivered, *queue.delivered] or ["1-1"]
    else:
        queue = run.node.groups.by_name.get(words[1], groups.EventQueue())
        known = [groups.text_of(event) for event in queue.events.values()] or ["1_1"]
    return *words[:-1], known[number % len(known)]
