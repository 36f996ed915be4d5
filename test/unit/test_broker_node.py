"""The node of a broker: what follows from commands and from time, and that its lines tell
all of it."""

import itertools
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.broker import groups, jobs, lines, reliable
from rq.broker.dialects import bananaq, disque_jobs, disque_queues, redisrq
from rq.broker.dialects.call import Blocked, Call, Refusal
from rq.broker.node import Node
from rq.resp import NIL_ARRAY, Status

TABLES = {
    **disque_jobs.TABLE,
    **disque_queues.TABLE,
    **redisrq.TABLE,
    **bananaq.TABLE,
}
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
            value = TABLES[name].function(Call(self.node, client, args, self.now, wall))
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
    that follow from the time."""
    node.tick(now)
    node.groups.settle(now, 10_000)
    return {
        "jobs": {
            job.job_id: (
                job.queue.name,
                job.body,
                job.ctime,
                job.expires,
                job.state,
                bool(job.due),
                job.nacks,
                job.deliveries,
            )
            for job in node.jobs.by_id.values()
        },
        "queues": {
            queue.name: ([job_id for _, job_id in queue.jobs], queue.paused)
            for queue in node.jobs.queues.values()
            if queue.held or queue.paused != "none"
        },
        "reliable": {
            key: (
                list(queue.undelivered.items()),
                [(i, d.body, d.at, d.times) for i, d in queue.delivered.items()],
                queue.last,
            )
            for key, queue in node.reliable.by_key.items()
        },
        "groups": {
            name: (
                list(queue.events.values()),
                {
                    group_name: (
                        group.pointer,
                        dict(group.in_progress),
                        list(group.redo),
                    )
                    for group_name, group in queue.groups.items()
                },
            )
            for name, queue in node.groups.by_name.items()
            if queue.events or queue.groups
        },
        "size": node.size,
        "last": (node.jobs.last_ctime, node.groups.last),
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


def _with_ids(run, words):
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


@given(st.lists(COMMANDS, max_size=40), st.data())
def test_lines_tell_all_and_a_snapshot_in_the_middle_changes_nothing(commands, data):
    run, client = Run(), itertools.count(1)
    begins = data.draw(st.integers(0, len(commands)), label="snapshot begins")
    slices = data.draw(st.integers(0, 4), label="slices a command")
    snapshot, source, seen = [], None, 0
    for number, words in enumerate(commands):
        if number == begins:
            source, seen = run.node.events_of_all(), len(run.lines)
        for some in itertools.islice(source or (), slices):
            snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
        if words[0] == "pass":
            run.pass_by(words[1])
        else:
            run.ask(*_with_ids(run, words), client=next(client))
    for some in source or ():
        snapshot += [(run.now, orjson.dumps(lines.record(each))) for each in some]
    known = told(run.node, run.now)
    run.keep()
    assert told(read(run.lines), run.now) == known
    if source is not None:
        assert told(read([*snapshot, *run.lines[seen:]]), run.now) == known


@given(st.lists(COMMANDS, max_size=40))
def test_what_is_counted_is_there(commands):
    run, client = Run(), itertools.count(1)
    for words in commands:
        if words[0] == "pass":
            run.pass_by(words[1])
        else:
            run.ask(*_with_ids(run, words), client=next(client))
        node = run.node
        assert sum(queue.held for queue in node.jobs.queues.values()) == len(
            node.jobs.by_id
        )
        queued = {
            job_id for queue in node.jobs.queues.values() for _, job_id in queue.jobs
        }
        assert queued == {
            job.job_id
            for job in node.jobs.by_id.values()
            if job.state is jobs.State.QUEUED
        }
        bodies = [job.body for job in node.jobs.by_id.values()]
        assert node.jobs.body_bytes == sum(map(len, bodies))


# ---- what Disque promises


def _job(run, *options, queue="q", body="b"):
    value = run.ask("ADDJOB", queue, body, 0, *options)
    assert isinstance(value, Status), value
    return value.text


def _got(value):
    return [job_id for _, job_id, _ in value]


def test_jobs_come_in_the_order_of_their_creation_also_again():
    run = Run()
    first, second, third = (_job(run) for _ in range(3))
    assert _got(run.ask("GETJOB", "COUNT", 2, "FROM", "q")) == [first, second]
    assert run.ask("NACK", first) == 1
    assert _got(run.ask("GETJOB", "COUNT", 9, "FROM", "q")) == [first, third]


def test_getjob_takes_one_of_each_queue_in_turn():
    run = Run()
    ids = [_job(run, queue=name) for name in "aabb"]
    got = run.ask("GETJOB", "COUNT", 4, "FROM", "a", "b")
    assert _got(got) == [ids[0], ids[2], ids[1], ids[3]]


def test_a_job_comes_again_when_its_time_is_over_and_not_before():
    run = Run()
    job_id = _job(run, "RETRY", 10)
    run.ask("GETJOB", "FROM", "q")
    run.pass_by(9.7)
    assert run.ask("GETJOB", "NOHANG", "FROM", "q") is NIL_ARRAY
    run.pass_by(0.6)
    got = run.ask("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q")
    assert got == [
        [b"q", job_id, b"b", "nacks", 0, "additional-deliveries", 1],
    ]


def test_a_job_at_most_once_never_comes_again():
    run = Run()
    job_id = _job(run, "RETRY", 0, "TTL", 100)
    assert _got(run.ask("GETJOB", "FROM", "q")) == [job_id]
    run.pass_by(50)
    assert run.ask("NACK", job_id) == run.ask("ENQUEUE", job_id) == 0
    assert run.ask("GETJOB", "NOHANG", "FROM", "q") is NIL_ARRAY
    run.pass_by(51)
    assert run.ask("SHOW", job_id) is None


def test_a_worker_asks_for_more_time():
    run = Run()
    job_id = _job(run, "RETRY", 10, "TTL", 100)
    run.ask("GETJOB", "FROM", "q")
    run.pass_by(8)
    assert run.ask("WORKING", job_id) == 10
    run.pass_by(8)
    assert run.ask("GETJOB", "NOHANG", "FROM", "q") is NIL_ARRAY
    run.pass_by(40)
    assert run.ask("WORKING", job_id).text.startswith("TOOLATE ")
    assert run.ask("WORKING", job_id[:-1] + "3").text.startswith("NOJOB ")


def test_delayed_jobs_come_when_they_are_due_or_when_somebody_says_so():
    run = Run()
    first, second = _job(run, "DELAY", 5), _job(run, "DELAY", 5, "RETRY", 0)
    assert run.ask("GETJOB", "NOHANG", "FROM", "q") is NIL_ARRAY
    assert run.ask("ENQUEUE", second) == 1
    assert _got(run.ask("GETJOB", "FROM", "q")) == [second]
    run.pass_by(5.1)
    assert _got(run.ask("GETJOB", "COUNT", 3, "FROM", "q")) == [first]


def test_who_waits_longest_is_served_first_with_one_job_each():
    run = Run()
    for client in (1, 2):
        waits = run.ask("GETJOB", "COUNT", 5, "FROM", "p", "q", client=client)
        assert isinstance(waits, Blocked)
    first = _job(run)
    second = _job(run)
    assert run.answers() == [
        (1, [[b"q", first, b"b"]]),
        (2, [[b"q", second, b"b"]]),
    ]
    assert run.node.blocked == 0


def test_a_client_waits_as_long_as_it_said():
    run = Run()
    run.ask("GETJOB", "TIMEOUT", 500, "FROM", "q")
    run.pass_by(0.4)
    assert run.answers() == []
    run.pass_by(0.2)
    assert run.answers() == [(1, NIL_ARRAY)]


def test_a_queue_that_is_paused_takes_and_gives_nothing():
    run = Run()
    job_id = _job(run)
    assert run.ask("PAUSE", "q", "all") == Status("all")
    assert run.ask("ADDJOB", "q", "b", 0).text.startswith("PAUSED ")
    run.ask("GETJOB", "FROM", "q")
    assert run.answers() == []
    assert run.ask("PAUSE", "q", "none") == Status("none")
    assert run.answers() == [(1, [[b"q", job_id, b"b"]])]


def test_a_bad_id_refuses_all():
    run = Run()
    job_id = _job(run)
    assert run.ask("ACKJOB", job_id, "DI" + "a" * 44 + "SQ").text.startswith("BADID ")
    assert run.ask("ACKJOB", job_id) == 1
    assert run.ask("ACKJOB", job_id) == 0


ERRORS = [
    (("ADDJOB", "q", "b", "x"), "ERR timeout is not an integer or out of range"),
    (("ADDJOB", "q", "b", -1), "ERR timeout is negative"),
    (("ADDJOB", "q", "b", 0, "TTL", 0), "ERR TTL must be a number > 0"),
    (
        ("ADDJOB", "q", "b", 0, "RETRY", -1),
        "ERR RETRY time must be a non negative number",
    ),
    (
        ("ADDJOB", "q", "b", 0, "DELAY", "z"),
        "ERR DELAY time must be a non negative number",
    ),
    (("ADDJOB", "q", "b", 0, "MAXLEN", 0), "ERR MAXLEN must be a positive number"),
    (
        ("ADDJOB", "q", "b", 0, "REPLICATE", 0),
        "ERR REPLICATE must be between 1 and 65535",
    ),
    (("ADDJOB", "q", "b", 0, "WHAT"), "ERR syntax error"),
    (("ADDJOB", "q", "b", 0, "TTL"), "ERR syntax error"),
    (
        ("ADDJOB", "q", "b", 0, "TTL", 5, "DELAY", 5),
        "ERR The specified DELAY is greater",
    ),
    (("ADDJOB", "q", "b", 0, "REPLICATE", 2), "NOREPL Not enough reachable nodes"),
    (
        ("GETJOB", "COUNT", 0, "FROM", "q"),
        "ERR COUNT must be a number greater than zero",
    ),
    (("GETJOB", "q"), "ERR syntax error"),
    (("GETJOB", "FROM"), "ERR syntax error"),
    (("QPEEK", "q", "x"), "ERR value is not an integer or out of range"),
    (("QSCAN", "x"), "ERR invalid cursor or option name"),
    (("QSCAN", 0, 0), "ERR syntax error"),
    (("JSCAN", "STATE", "x"), "ERR Invalid job state name"),
    (("JSCAN", "REPLY", "x"), "ERR Invalid REPLY type, try ID or ALL"),
    (("PAUSE", "q", "x"), "ERR syntax error"),
    (("RQ.POP", "COUNT", -1, "q"), "usage: RQ.POP"),
    (("RQ.RECOVER", "q", "x", 0), "usage: RQ.RECOVER"),
    (("RQ.INSPECT", "q", 0, 0), "usage: RQ.INSPECT"),
    (("RQ.INFO", "q"), "EMPTYKEY"),
    (("QADD", "a:b", 5, "x"), 'ERR key part "a:b" contains invalid character'),
    (("QADD", "a", "nan", "x"), "ERR 'nan' is not a number of seconds"),
    (("QADD", "a", 0, "x"), "ERR an event lives for more than 0 seconds"),
    (("QACK", "a", "g", "x"), "ERR invalid ID string"),
    (("QSTATUS", "QUEUE"), "ERR syntax error"),
]


@pytest.mark.parametrize(("words", "why"), ERRORS, ids=lambda e: str(e)[:40])
def test_what_cannot_be_done_is_refused_and_changes_nothing(words, why):
    run = Run()
    assert run.ask(*words).text.startswith(why)
    assert run.lines == []
    assert not run.node.jobs.queues


# ---- what bananaq promises


def test_each_group_has_every_event_once_whatever_becomes_of_its_pointer():
    run = Run()
    run.ask("QADD", "q", 1, "short")
    run.ask("QADD", "q", 60, "long")
    for group in ("g", "h"):
        bodies = [run.ask("QGET", "q", group, "EX", 0)[1] for _ in range(2)]
        assert bodies == [b"short", b"long"]
    run.pass_by(2)  # the first is gone, and a group has looked further than it
    assert run.ask("QGET", "q", "g") is None
    run.ask("QADD", "q", 60, "new")
    assert run.ask("QGET", "q", "g")[1] == b"new"


def test_an_event_that_is_not_done_comes_again_before_new_ones():
    run = Run()
    run.ask("QADD", "q", 60, "one")
    run.ask("QADD", "q", 60, "two")
    event_id, _ = run.ask("QGET", "q", "g", "EX", 3)
    run.pass_by(3.1)
    assert run.ask("QACK", "q", "g", event_id) == 0
    assert run.ask("QGET", "q", "g")[0] == event_id
    assert run.ask("QACK", "q", "g", event_id) == 1
    assert run.ask("QGET", "q", "g")[1] == b"two"


def test_who_asks_to_be_told_is_told_without_taking_anything():
    run = Run()
    run.ask("QADD", "q", 60, "before")
    assert run.ask("QNOTIFY", "g", 5, "p", "q") == b"q"
    run.ask("QGET", "q", "g")
    assert isinstance(run.ask("QNOTIFY", "g", 5, "p", "q"), Blocked)
    run.ask("QADD", "p", 60, "x")
    assert run.answers() == [(1, b"p")]
    assert run.ask("QGET", "p", "g")[1] == b"x"
