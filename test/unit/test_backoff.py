"""Who is left alone, for how long, and who asks first."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rq.layout import QueueDir
from rq.relay import host_back_off

HOST, QUEUE, OTHER = "http://h:1", "http://h:1/q/a", "http://h:1/q/b"


def test_whoever_answers_is_asked_at_once():
    assert host_back_off.begin({}, (HOST, QUEUE), 100.0) is None


def test_a_host_that_failed_is_left_alone_with_all_its_queues():
    table = {}
    assert host_back_off.failed(table, HOST, 99.0, 100.0, "refused") == 1
    for name in (QUEUE, OTHER):
        wait = host_back_off.begin(table, (HOST, name), 100.5)
        assert (wait.seconds, wait.reason) == (1, "refused")


def test_a_queue_that_failed_leaves_the_others_of_its_host_alone():
    table = {}
    host_back_off.failed(table, QUEUE, 99.0, 100.0, "DOWN")
    assert host_back_off.begin(table, (HOST, QUEUE), 100.5) is not None
    assert host_back_off.begin(table, (HOST, OTHER), 100.5) is None


def test_one_asks_and_the_others_wait_for_what_comes_of_it():
    table = {}
    host_back_off.failed(table, HOST, 99.0, 100.0, "refused")
    assert host_back_off.begin(table, (HOST, QUEUE), 101.0) is None
    assert host_back_off.begin(table, (HOST, QUEUE), 101.1).seconds == 5
    assert host_back_off.begin(table, (HOST, QUEUE), 106.1).seconds == 5
    assert host_back_off.failed(table, HOST, 101.0, 111.0, "refused") == 2
    assert host_back_off.begin(table, (HOST, QUEUE), 113.0) is None


def test_one_who_died_while_it_asked_is_not_waited_for_for_ever():
    table = {}
    host_back_off.failed(table, HOST, 99.0, 100.0, "refused")
    assert host_back_off.begin(table, (HOST, QUEUE), 101.0) is None
    assert (
        host_back_off.begin(table, (HOST, QUEUE), 101.0 + host_back_off.PROBE) is None
    )


def test_a_clock_that_was_put_back_leaves_nobody_alone_for_longer():
    table = {}
    host_back_off.failed(table, HOST, 99_999.0, 100_000.0, "refused")
    assert host_back_off.begin(table, (HOST, QUEUE), 100_001.0) is None
    assert host_back_off.begin(table, (HOST, QUEUE), 5000.0) is None
    assert host_back_off.begin(table, (HOST, QUEUE), 5001.0).seconds == 5
    host_back_off.failed(table, HOST, 99_999.0, 100_000.0, "refused")
    assert host_back_off.begin(table, (HOST, QUEUE), 5000.0) is None


def test_one_who_began_a_moment_before_the_one_who_asks_waits_as_well():
    table = {}
    host_back_off.failed(table, HOST, 99.0, 100.0, "refused")
    assert host_back_off.begin(table, (HOST, QUEUE), 101.01) is None
    assert host_back_off.begin(table, (HOST, QUEUE), 101.0).seconds == 5


def test_those_who_fail_together_have_failed_once():
    table = {}
    for _ in range(8):
        host_back_off.failed(table, HOST, 99.0, 100.0, "gone")
    assert table[HOST].failures == 1
    assert host_back_off.failed(table, HOST, 101.0, 102.0, "gone") == 2


@given(st.lists(st.floats(0.1, 400), max_size=30))
def test_the_pause_grows_and_is_never_longer_than_five_minutes(gaps):
    table, now, last = {}, 1000.0, 0
    for gap in gaps:
        now += gap
        pause = host_back_off.failed(table, HOST, now - 0.05, now, "x")
        assert last <= pause <= host_back_off.CEILING
        last = pause


def test_a_damaged_file_is_as_good_as_none(tmp_path):
    queue = QueueDir(tmp_path)
    for text in ("", "[]", "{", '{"http://h:1": 7}', '{"http://h:1": {"until": 1}}'):
        (tmp_path / host_back_off.FILE).write_text(text)
        assert host_back_off.read(queue) == {}
    host_back_off.change(queue, lambda t: host_back_off.failed(t, HOST, 0.0, 1.0, "x"))
    assert set(json.loads((tmp_path / host_back_off.FILE).read_text())) == {HOST}


def test_a_host_is_pardoned_with_its_queues_and_no_other(tmp_path):
    queue = QueueDir(tmp_path)
    for name in (HOST, QUEUE, "http://h:11"):
        host_back_off.change(
            queue, lambda t, n=name: host_back_off.failed(t, n, 0.0, 1.0, "x")
        )
    host_back_off.pardon(queue, HOST)
    assert set(host_back_off.read(queue)) == {"http://h:11"}
