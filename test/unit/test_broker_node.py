"""What the node of a broker promises, dialect by dialect."""

import pytest
from harness.broker_node import Run, read

from rq.broker.dialects.call import Blocked
from rq.broker.state.reliable import page
from rq.resp import NIL_ARRAY, NilArray, Status

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


def test_a_job_that_waited_for_as_long_as_its_retry_is_handed_out_once():
    run = Run()
    job_id = _job(run, "RETRY", 10)
    run.now += 10.5  # and the node had no turn since
    assert _got(run.ask("GETJOB", "FROM", "q")) == [job_id]
    run.pass_by(0)
    assert run.ask("GETJOB", "NOHANG", "FROM", "q") is NIL_ARRAY


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


def test_a_crowd_is_served_in_its_order_some_at_a_time():
    """Nobody who comes meanwhile overtakes it, and no turn is long."""
    run, crowd = Run(), range(2_500)
    jobs = [_job(run, body=str(number)) for number in (*crowd, "more")]
    run.ask("PAUSE", "q", "out")
    for client in crowd:
        run.ask("GETJOB", "FROM", "q", client=client)
    assert run.ask("PAUSE", "q", "none") == Status("none")
    late = run.ask("GETJOB", "FROM", "q", client=len(crowd))
    assert isinstance(late, Blocked)
    some = []
    while not some or some[-1]:
        some.append(run.answers())
        run.pass_by(0)
    assert max(map(len, some)) <= 1_000
    answers = [(client, got[0][1]) for each in some for client, got in each]
    assert answers == list(enumerate(jobs))


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


def test_a_job_at_most_once_is_not_told_of_before_its_delivery_is_durable():
    run = Run()
    for retry in (0, 5):
        _job(run, "RETRY", retry)
        run.node.must_sync = False
        assert len(run.ask("GETJOB", "FROM", "q")) == 1
        assert run.node.must_sync == (retry == 0)


# ---- what was handed to a client that had no byte of it


def take_back(run, client):
    """Let a client be gone that was handed something."""
    theirs = [back for other, back in run.node.handed if other == client]
    run.node.handed = [each for each in run.node.handed if each[0] != client]
    for back in theirs:
        back(run.now)
    run.keep()


def test_a_job_that_came_again_meanwhile_is_not_taken_from_the_next_client():
    run = Run()
    job_id = run.ask("ADDJOB", "q", "b", 0, "RETRY", 1)
    assert run.ask("GETJOB", "NOHANG", "FROM", "q", client=1)
    run.pass_by(2)
    ((_, given, _),) = run.ask("GETJOB", "NOHANG", "FROM", "q", client=2)
    assert given == job_id.text
    take_back(run, 1)
    assert isinstance(run.ask("GETJOB", "NOHANG", "FROM", "q", client=3), NilArray)


@pytest.mark.parametrize("word", ["WORKING", "ACKJOB", "DELJOB", "NACK"])
def test_a_job_of_which_more_has_become_is_not_taken_back(word):
    run = Run()
    job_id = _job(run, "RETRY", 10)
    run.ask("GETJOB", "FROM", "q", client=1)
    run.pass_by(1)
    run.ask(word, job_id, client=2)
    before = list(run.lines)
    take_back(run, 1)
    assert run.lines == before
    assert run.ask("QLEN", "q") == (word == "NACK")


def test_a_job_whose_client_is_gone_is_there_for_the_next_at_once():
    run = Run()
    job_id = _job(run, "RETRY", 10)
    run.ask("GETJOB", "FROM", "q", client=1)
    take_back(run, 1)
    assert _got(run.ask("GETJOB", "FROM", "q", client=2)) == [job_id]


def test_messages_that_go_back_come_in_their_places_whichever_client_had_them():
    run = Run()
    ids = run.ask("RQ.PUSH", "k", *"abcdef")
    for client, count in ((1, 2), (2, 1), (3, 1)):
        run.ask("RQ.POP", "COUNT", count, "k", client=client)
    run.ask("RQ.ACK", "k", ids[1])
    for client in (2, 1):
        take_back(run, client)
    for node in (run.node, read(run.lines)):
        queue = node.reliable.by_key[b"k"]
        assert list(queue.undelivered) == [ids[0], ids[2], ids[4], ids[5]]
        assert list(queue.delivered) == [ids[3]]
        assert [each for each, _ in page(queue.undelivered, -4, 9)] == list(
            queue.undelivered
        )
    assert [each[1] for each in run.ask("RQ.POP", "COUNT", 9, "k")][:2] == [
        ids[0],
        ids[2],
    ]


def test_an_event_goes_back_to_its_group_unless_that_is_done_with_it():
    run = Run()
    one, two = (run.ask("QADD", "q", 60, body) for body in "ab")
    run.ask("QGET", "q", "g", "EX", 0, client=1)
    run.ask("QGET", "q", "g", "EX", 30, client=2)
    run.ask("QACK", "q", "g", two)
    for client in (1, 2):
        take_back(run, client)
    run.pass_by(0.01)
    for node in (run.node, read(run.lines)):
        node.groups.settle(run.now + 0.1, 99)
        group = node.groups.by_name[b"q"].groups[b"g"]
        assert [group.until(int(each.split("_")[0])) for each in (one, two)] == [
            0.001,
            None,
        ]


def test_who_has_hung_up_is_passed_over_and_the_next_one_served():
    run = Run()
    waits = [
        ("GETJOB", "FROM", "q"),
        ("RQ.POP", "BLOCK", -1, "k"),
        ("QGET", "e", "g", "BLOCK", 9),
        ("QNOTIFY", "g", 9, "n"),
    ]
    adds = [
        ("ADDJOB", "q", "x", 0),
        ("RQ.PUSH", "k", "x"),
        ("QADD", "e", 60, "x"),
        ("QADD", "n", 60, "x"),
    ]
    run.node.presence = lambda client: client != 1
    for words, adding in zip(waits, adds, strict=True):
        for client in (1, 2):
            assert isinstance(run.ask(*words, client=client), Blocked)
        run.ask(*adding, client=3)
        assert [client for client, _ in run.answers()] == [2]
    assert run.node.blocked == 0
