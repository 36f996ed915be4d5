"""Nodes that end under load, all at once or one after the other: what was answered holds."""

import pytest
from harness.broker_load import Load, at_work
from harness.brokers import nodes_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ALL = range(3)
OFTEN, ONCE = "REPLICATE 3 RETRY 2", "REPLICATE 1 RETRY 0"
ENOUGH = 40  # jobs of each load before the trouble, and after it
MOST = 3000  # jobs of a producer


@pytest.fixture
def nodes(tmp_path):
    with nodes_in(tmp_path, len(ALL)) as nodes:
        nodes.join()
        yield nodes


def add(nodes, index, queue, number, *options):
    return [nodes.ask(index, "ADDJOB", queue, n, 9000, *options) for n in range(number)]


def get(nodes, index, queue, number):
    words = "GETJOB", "NOHANG", "COUNT", number, "FROM", queue
    return [row[1].decode() for row in nodes.ask(index, *words) or []]


def waiting(nodes, queue):
    return sum(nodes.ask(index, "QLEN", queue) for index in ALL)


def test_after_a_kill_of_all_counts_are_as_they_were(nodes):
    for index in ALL:
        add(nodes, index, "long", 20, "REPLICATE", 3, "RETRY", 300)
        add(nodes, index, "once", 20, "REPLICATE", 1, "RETRY", 0)
    long = [job_id for index in ALL for job_id in get(nodes, index, "long", 10)]
    once = [job_id for index in ALL for job_id in get(nodes, index, "once", 10)]
    for number, job_id in enumerate(long[:15]):
        nodes.ask(number % len(ALL), "ACKJOB", job_id)
    for job_id in once[:15]:
        (holder,) = nodes.holders(job_id)  # such a job is on one node only
        assert nodes.ask(holder, "ACKJOB", job_id) == 1
    wait_until(lambda: not any(nodes.holders(each) for each in long[:15] + once[:15]))
    told = [waiting(nodes, "long"), waiting(nodes, "once"), nodes.registered()]
    assert told[:2] == [60 - len(long), 60 - len(once)]

    nodes.kill_all()
    nodes.start(*ALL)
    nodes.wait_until_all_reach_all()

    def told_again():
        return [waiting(nodes, "long"), waiting(nodes, "once"), nodes.registered()]

    # Those that come at most once wait until others had time to say that a disk is old.
    wait_until(lambda: told_again()[1] == told[1])
    assert told_again() == told
    rest = [job_id for n in ALL for job_id in get(nodes, n, "once", 100)]
    while more := [job_id for n in ALL for job_id in get(nodes, n, "once", 100)]:
        rest += more
    assert len(rest) == 60 - len(
        once
    )  # what waited comes, what was handed out does not
    assert not set(rest) & set(once)


def test_what_was_acknowledged_while_a_node_was_away_is_remembered_by_all(nodes):
    job_ids = add(nodes, 0, "q", 30, "REPLICATE", 3, "RETRY", 2)
    nodes.kill(2)
    for n, job_id in enumerate(job_ids[:20]):
        assert nodes.ask(n % 2, "ACKJOB", job_id) in (0, 1)
    nodes.kill_all()
    nodes.start(*ALL)
    wait_until(lambda: not any(map(nodes.holders, job_ids[:20])), 60)
    handed: set[str] = set()

    def take():
        handed.update(job_id for index in ALL for job_id in get(nodes, index, "q", 50))
        return handed

    wait_until(lambda: take() >= set(job_ids[20:]), 60)
    assert handed == set(job_ids[20:])


@pytest.mark.slow
def test_nothing_answered_is_lost_when_all_are_killed_under_load(nodes):
    often, once = Load(nodes, "often", OFTEN, MOST), Load(nodes, "once", ONCE, MOST)
    with at_work(often, once):
        wait_until(lambda: enough(often, once, 0), 60)
        nodes.kill_all()
        before = min(len(often.added), len(once.added))
        nodes.start(*ALL)
        wait_until(lambda: enough(often, once, before), 60)
        settle(nodes, often, once)
    check(nodes, often, once)


@pytest.mark.slow
def test_a_rolling_restart_under_load_loses_nothing(nodes):
    often, once = Load(nodes, "often", OFTEN, MOST), Load(nodes, "once", ONCE, MOST)
    with at_work(often, once):
        for index in ALL:
            before = min(len(often.added), len(once.added))
            wait_until(lambda least=before: enough(often, once, least), 60)
            assert nodes.brokers[index].stop() == 0
            nodes.start(index)
            wait_until(lambda: nodes.all_reach(2), 60)
        settle(nodes, often, once)
    check(nodes, often, once)


def enough(often, once, before):
    return all(len(each.added) >= before + ENOUGH for each in (often, once))


def settle(nodes, often, once):
    """Let no more come, and all that came go."""
    often.no_more()
    once.no_more()
    wait_until(lambda: often.added <= often.acked | often.unsure, 90)
    # One whose acknowledgement had no answer is gone, or comes again.
    unsure = often.unsure & often.added
    wait_until(lambda: not any(map(nodes.holders, unsure - often.acked)), 90)
    wait_until(lambda: waiting(nodes, "often") + waiting(nodes, "once") == 0, 60)


def check(nodes, often, once):
    assert often.added <= set(often.handed)
    assert [each for each, times in once.handed.items() if times > 1] == []
    wait_until(lambda: not any(map(nodes.holders, often.added)), 90)
