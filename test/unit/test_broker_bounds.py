"""However much a broker holds, a command costs the same; and it holds no more than it may."""

import itertools

import pytest
from harness.broker_node import Run
from harness.steps import lines, steps

from rq.broker.admin.views import queues_named
from rq.broker.dialects import TABLE
from rq.broker.state import bounds
from rq.broker.state.freeing import Freeing
from rq.resp import NIL_ARRAY, Failure

MIB = 1024 * 1024


def _fill(run, number, queue="q", body="b", *options):
    return [run.ask("ADDJOB", queue, body, 0, *options).text for _ in range(number)]


# ---- bounds of one command


def test_no_command_gives_more_than_its_number():
    run = Run()
    _fill(run, 1500)
    run.ask("RQ.PUSH", "k", *range(5000))
    run.ask("RQ.PUSH", "k", *range(1000))
    assert len(run.ask("QPEEK", "q", -5000)) == 1000
    assert len(run.ask("JSCAN", 0, "COUNT", 5000)[1]) == 1000
    assert len(run.ask("JSCAN", "BUSYLOOP")[1]) == 1500
    assert len(run.ask("JSCAN", "BUSYLOOP", "REPLY", "all")[1]) == 1000
    assert len(run.ask("GETJOB", "COUNT", 5000, "FROM", "q")) == 1000
    assert len(run.ask("RQ.INSPECT", "k", 0, 50_000)) == 5_000
    assert len(run.ask("RQ.POP", "COUNT", 50_000, "k")) == 5_000
    assert len(run.ask("RQ.INSPECT", "k", "PENDING", 0, 50_000)) == 5_000
    assert len(run.ask("RQ.RECOVER", "k", 50_000, 0)) == 5_000


def test_a_crowd_that_waits_is_served_some_at_a_time_and_nobody_before_another():
    run = Run()
    for client in range(2_500):
        run.ask("RQ.POP", "BLOCK", -1, "k", client=client)
    ids = run.ask("RQ.PUSH", "k", *range(2_600), client=9_999)
    assert [client for client, _ in run.answers()] == list(range(1_000))
    assert run.node.next_tick() == 0.0
    run.pass_by(0.001)
    assert [client for client, _ in run.answers()] == list(range(1_000, 2_000))
    got = run.ask("RQ.POP", "k", client=9_999)  # who waited longer is served first
    assert [client for client, _ in run.answers()] == list(range(2_000, 2_500))
    assert got == [[b"k", ids[2_500], b"2500"]]
    assert run.node.next_tick() != 0.0


def test_an_answer_ends_with_the_body_that_passes_its_bytes():
    run = Run()
    body = b"x" * MIB
    _fill(run, 20, "q", body)
    for _ in range(20):
        run.ask("RQ.PUSH", "k", body)
    fits = 8
    assert len(run.ask("QPEEK", "q", 20)) == fits
    cursor, page = run.ask("JSCAN", "REPLY", "all")
    assert len(page) == fits
    assert cursor != "0"
    assert len(run.ask("GETJOB", "COUNT", 20, "FROM", "q", "q")) == fits
    assert run.ask("QLEN", "q") == 20 - fits
    assert len(run.ask("RQ.INSPECT", "k", 0, 20)) == fits
    assert len(run.ask("RQ.POP", "COUNT", 20, "k", "k")) == fits
    run.ask("RQ.POP", "COUNT", 20, "k")
    assert len(run.ask("RQ.INSPECT", "k", "PENDING", 0, 20)) == fits
    assert len(run.ask("RQ.RECOVER", "k", 20, 0)) == fits


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("GETJOB", "FROM"), bounds.MOST_QUEUES),
        (("RQ.POP",), bounds.MOST_QUEUES),
        (("QNOTIFY", "g", 1), bounds.MOST_QUEUES),
        (("QSTATUS",), bounds.MOST_QUEUES),
        (("QSTATUS", "q", "GROUPS"), bounds.MOST_QUEUES),
        (("QINFO", *["q1", "q2"], "GROUPS"), bounds.MOST_QUEUES // 2),
        (("QSTATUS", "QUEUE", "q", *["GROUP", "g"] * 500, "GROUP"), 500),
        (("ACKJOB",), bounds.MOST_MESSAGES),
        (("NACK",), bounds.MOST_MOVED),
        (("RQ.PUSH", "k"), bounds.MOST_MESSAGES),
    ],
)
def test_a_command_with_too_many_words_is_refused_and_changes_nothing(words, most):
    run = Run()
    answer = run.ask(*words, *range(most + 1))
    assert isinstance(answer, Failure)
    assert answer.text.startswith("ERR a command takes at most ")
    assert run.lines == []


def test_a_scan_meets_all_that_is_there_however_much_goes_meanwhile():
    run = Run()
    ids = _fill(run, 500)
    met, cursor = [], "0"
    for turn in itertools.count():
        cursor, some = run.ask("JSCAN", cursor, "COUNT", 7)
        met += [each.text for each in some]
        run.ask("ACKJOB", ids[turn * 2])
        _fill(run, 1)
        if cursor == "0" or turn > 200:
            break
    gone = {ids[turn * 2] for turn in range(turn + 1)}
    assert set(ids) - gone <= set(met)
    assert len(met) == len(set(met))


# ---- costs that do not grow


@pytest.mark.parametrize(
    "words",
    [
        ("JSCAN", "MIDDLE", "COUNT", 5),
        ("RQ.POP", "k"),
        ("QLEN", "q"),
        ("DEBUG FLUSHALL",),
        ("QFLUSH", "e"),
    ],
)
def test_work_is_the_same_with_little_and_with_much(words):
    def work(number):
        run = Run()
        _fill(run, number)
        for _ in range(number):
            run.ask("QADD", "e", 60, "x")
        run.ask("RQ.PUSH", "k", *range(number))
        middle = run.node.jobs.by_age[number // 2].ctime
        said = [middle if word == "MIDDLE" else word for word in words]
        if words[0] == "DEBUG FLUSHALL":
            return steps(lambda: run.node.desk.flush(run.now))
        return steps(lambda: run.ask(*said))

    assert work(3000) <= 2 * work(100) + 50


def test_an_event_that_is_over_asks_no_group_that_has_nothing_to_do_with_it():
    def work(groups):
        run = Run()
        run.ask("QADD", "e", 2, "x")
        run.ask("QADD", "e", 60, "stays")
        for number in range(groups):
            for _ in range(2):
                run.ask("QGET", "e", f"g{number}", "EX", 0)
        run.ask("QGET", "e", "late", "EX", 1)
        run.pass_by(1.5)
        assert run.ask("QINFO", "e", "GROUPS", "late")[0].startswith(
            b"e late total:2 inprogress:0 redo:1 done:0 available:2"
        )
        took = steps(lambda: run.pass_by(1))
        assert run.ask("QINFO", "e", "GROUPS", "late")[0].startswith(
            b"e late total:1 inprogress:0 redo:0 done:0 available:1"
        )
        return took

    assert work(1000) <= 2 * work(10) + 50


def test_an_event_asks_each_group_that_waits_and_not_each_client():
    def work(clients):
        run = Run()
        run.ask("QNOTIFY", "h", 60, "e", client=clients)
        for client in range(clients):
            run.ask("QGET", "e", "g", "BLOCK", 60, client=client)
        event = []
        took = lines(lambda: event.append(run.ask("QADD", "e", 60, "x")))
        assert run.answers() == [(clients, b"e"), (0, [*event, b"x"])]
        return took

    assert work(1000) <= 2 * work(10) + 50


def test_groups_that_are_too_many_to_be_told_are_not_sorted_first():
    def work(groups):
        run = Run()
        run.ask("QADD", "e", 60, "x")
        for number in range(groups):
            run.ask("QGET", "e", f"g{number}", "EX", 0)
        return steps(lambda: run.ask("QSTATUS"))

    assert work(1001) < work(10)


@pytest.mark.parametrize("which", [(), ("PENDING",)])
def test_a_page_of_a_key_is_the_same_from_both_ends(which):
    run = Run()
    ids = run.ask("RQ.PUSH", "k", *range(12))
    run.ask("RQ.POP", "COUNT", 2, "k")
    run.ask("RQ.ACK", "k", ids[0])
    run.ask("RQ.RECOVER", "k", 1, 0)
    if which:
        run.ask("RQ.POP", "COUNT", 20, "k")
    there = [row[0] for row in run.ask("RQ.INSPECT", "k", *which, 0, 20)]
    assert there == (ids[1:] if which else ids[2:])
    size = len(there)
    for start in range(-size - 1, size + 2):
        for count in (1, 4, 20):
            begin = start if start >= 0 else size + start
            page = there[begin : begin + count] if begin >= 0 else []
            rows = run.ask("RQ.INSPECT", "k", *which, start, count)
            assert [row[0] for row in rows] == page


def test_what_is_flushed_is_freed_in_slices_and_nothing_of_it_stays():
    run = Run()
    _fill(run, 3000, "q", "b", "DELAY", 5)
    _fill(run, 3000)
    for _ in range(3000):
        run.ask("QADD", "e", 60, "x")
    run.node.desk.flush(run.now)
    run.ask("QFLUSH", "e")
    assert run.node.size == (0, 0)
    assert run.node.next_tick() == 0.0
    turns = 0
    while run.node.next_tick() == 0.0 and turns < 100:
        run.pass_by(0)
        turns += 1
    assert turns > 3
    new = _fill(run, 1)
    run.pass_by(10)
    got = run.ask("GETJOB", "NOHANG", "COUNT", 5, "FROM", "q")
    assert [job_id for _, job_id, _ in got] == new
    assert run.node.next_tick() > run.now


def test_freeing_takes_all():
    freeing, things = Freeing(), list(range(5000))
    freeing.add(things, things.pop)
    freeing.add([], list)
    while freeing:
        freeing.go_on()
    assert things == []


# ---- memory


def _limited(run, jobs):
    """Let memory be so that `jobs` jobs of a byte take all of it."""
    queues = 2560 * len(run.node.jobs.queues)
    run.node.memory.limit = 601 * jobs + queues


def test_when_memory_is_short_no_job_is_kept_and_the_rest_goes_on():
    run = Run()
    ids = _fill(run, 80)
    _limited(run, 100)
    why = "unable to hold a copy of the message for the following reason: "
    refused = run.ask("ADDJOB", "q", "b", 0).text
    assert refused.startswith("NOREPL ")
    assert refused.endswith(f"{why}I'm out of memory")
    assert not run.node.is_full(run.now)
    assert run.ask("GETJOB", "FROM", "q")[0][1] == ids[0]
    assert run.ask("ACKJOB", *ids[:10]) == 10
    assert run.ask("ADDJOB", "q", "b", 0).text.startswith("D-")


@pytest.mark.parametrize("evicts", [True, False])
def test_when_there_is_none_what_is_spent_goes_if_it_may(evicts):
    run = Run()
    _fill(run, 50, "q", "b", "RETRY", 0)
    kept = _fill(run, 46, "k")
    run.ask("GETJOB", "COUNT", 50, "FROM", "q")
    _limited(run, 100)
    run.node.memory.evicts = evicts
    assert run.node.is_full(run.now) is not evicts
    run.keep()
    left = set(run.node.jobs.by_id)
    assert set(kept) <= left
    assert (len(left) < 96) is evicts


@pytest.mark.parametrize(("jobs", "seconds"), [(0, 300), (80, 10), (96, 2)])
def test_unused_queues_go_sooner_when_memory_is_short(jobs, seconds):
    run = Run()
    _fill(run, jobs, "full")
    assert run.ask("GETJOB", "NOHANG", "FROM", "idle") is NIL_ARRAY
    _limited(run, 100)
    run.pass_by(seconds - 1.1)
    assert b"idle" in run.node.jobs.queues
    run.pass_by(1.2)
    run.pass_by(1.2)
    assert b"idle" not in run.node.jobs.queues


def _left_alone(run, most=600):
    """No client asks any more: let the node do what it asks to be woken for."""
    for turn in range(most):
        at = run.node.next_tick()
        if at is None or at > run.now + 60:
            return turn
        run.pass_by(max(0.0, at - run.now))
    raise AssertionError("it wakes for ever")


def test_what_may_go_goes_by_a_timer_in_slices_when_no_client_asks():
    run = Run()
    kept = _fill(run, 46, "k")
    for number in range(30):
        _fill(run, 40, f"q{number}", "b", "RETRY", 0)
        run.ask("GETJOB", "COUNT", 40, "FROM", f"q{number}")
    run.node.memory.limit = 60_000
    assert run.node.memory_level == 2
    run.pass_by(0.1)
    _left_alone(run)
    assert run.node.memory_level < 2
    assert set(kept) <= set(run.node.jobs.by_id)
    assert run.node.next_tick() > run.now + 1, "it is not polled"


def test_a_queue_without_queued_jobs_is_forgotten_and_comes_again_with_them():
    run = Run()
    (job_id,) = _fill(run, 1, "q", "b", "RETRY", 400)
    run.ask("GETJOB", "FROM", "q")
    before = run.node.used_memory
    run.pass_by(301)
    run.pass_by(1.1)
    assert run.ask("QSTAT", "q") is NIL_ARRAY
    assert run.node.used_memory < before
    (row,) = queues_named(run.node, b"q", run.now)
    assert row[2:4] == (0, 1), "an operator sees what is handed out"
    assert row[8] == 0, "and that nothing in it is old"
    run.pass_by(100)
    assert run.ask("QLEN", "q") == 1
    assert run.ask("GETJOB", "FROM", "q")[0][1] == job_id
    assert run.ask("ACKJOB", job_id) == 1
    run.pass_by(301)
    run.pass_by(1.1)
    assert run.node.used_memory == 0


def test_names_count_as_memory_and_so_does_what_a_group_has():
    run = Run()
    sizes = [run.node.used_memory]
    for words in (
        ("RQ.PUSH", "k", ""),
        ("PAUSE", "q", "in"),
        ("QADD", "e", 60, ""),
        ("QGET", "e", "g", "EX", 5),
        ("QGET", "e", "h", "EX", 0),
    ):
        run.ask(*words)
        sizes.append(run.node.used_memory)
    steps_up = [after - before for before, after in itertools.pairwise(sizes)]
    assert steps_up == [2560 + 600, 2560, 2560 + 600, 2560 + 300, 2560]
    run.pass_by(6)  # the event is given back
    assert run.node.groups.held == 1
    run.ask("QFLUSH", "e")
    assert run.node.groups.held == 0


def test_what_a_node_has_takes_as_much_as_each_of_it_alone():
    parts = (
        [("ADDJOB", "a", "x" * 50, 0), ("ADDJOB", "b", "x", 0), ("PAUSE", "c", "in")],
        [("RQ.PUSH", "k", "x" * 70, "y"), ("RQ.PUSH", "l", "z"), ("RQ.POP", "k")],
        [("QADD", "e", 60, "x" * 90), ("QGET", "e", "g"), ("QGET", "e", "h")],
        [("QADD", "f", 60, "x"), ("QADD", "f", 60, "y"), ("QGET", "f", "g")],
    )
    sizes = []
    for part in (*parts, [*itertools.chain(*parts)]):
        run = Run()
        for words in part:
            run.ask(*words)
        sizes.append((run.node.used_memory, run.node.body_bytes))
    *each, every = sizes
    assert every == tuple(map(sum, zip(*each, strict=True)))


def test_a_group_that_is_not_there_is_not_made_when_memory_is_full():
    run = Run()
    run.ask("QADD", "e", 60, "x")
    event_id, _ = run.ask("QGET", "e", "g", "EX", 0.5)
    run.node.memory.limit = run.node.used_memory
    assert run.ask("QGET", "e", "other").text.startswith("OOM ")
    run.pass_by(1)
    assert run.ask("QGET", "e", "g") == [event_id, b"x"]


@pytest.mark.parametrize(
    "command",
    [
        ("ADDJOB", "NAME", "body", 0),
        ("GETJOB", "NOHANG", "FROM", "NAME"),
        ("PAUSE", "NAME", "in"),
        ("RQ.PUSH", "NAME", "body"),
        ("RQ.POP", "NAME"),
        ("QADD", "NAME", 60, "body"),
        ("QGET", "q", "NAME"),
        ("QNOTIFY", "NAME", 1),
    ],
)
def test_a_name_has_a_kib_at_most_and_a_body_more(command):
    name, *args = [str(word).encode().replace(b"body", bytes(5000)) for word in command]
    longest = [arg.replace(b"NAME", bytes(bounds.LONGEST_WORD)) for arg in args]
    too_long = [arg.replace(b"NAME", bytes(bounds.LONGEST_WORD + 1)) for arg in args]
    assert not TABLE[name].has_long_word(longest)
    assert TABLE[name].has_long_word(too_long)


def test_counts_of_queues_begin_with_the_start():
    run = Run()
    _fill(run, 3)
    run.node.begin(run.now + 60)
    stat = run.ask("QSTAT", "q")
    facts = dict(zip(stat[::2], stat[1::2], strict=True))
    assert (facts["age"], facts["jobs-in"], facts["len"]) == (-60, 0, 3)
