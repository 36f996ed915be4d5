"""A node that comes back hands out nothing that others have acknowledged meanwhile, and a
link that has just dropped refuses no producer."""

import pytest
from harness.brokers import TIMEOUT, nodes_in
from harness.processes import standing_still
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ALL = range(3)
JOBS = 40


@pytest.fixture
def nodes(tmp_path):
    with nodes_in(tmp_path, len(ALL)) as nodes:
        nodes.join()
        yield nodes


def add(nodes, index, number):
    words = "REPLICATE", 3, "RETRY", 300
    return [
        str(nodes.ask(index, "ADDJOB", "q", n, 9000, *words)) for n in range(number)
    ]


def doubt(nodes, other):
    """Let all others not hear of a node for longer than they wait."""
    for index in ALL:
        if index != other:
            wait_until(lambda of=index: "fail" in nodes.sees(of, other)[0])


def handed_by(client):
    """Return what a node hands out until there is nothing more, from its first breath."""
    client.send("GETJOB", "TIMEOUT", 20_000, "COUNT", JOBS, "FROM", "q")
    return [row[1].decode() for row in client.answer() or []]


def acknowledge(nodes, jobs):
    for number, job_id in enumerate(jobs):
        assert nodes.ask(1 + number % 2, "ACKJOB", job_id) in (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stood still"])
def test_what_others_acknowledged_is_not_handed_out_by_who_returns(nodes, how):
    jobs = add(nodes, 0, JOBS)
    if how == "killed":
        nodes.kill(0)
        doubt(nodes, 0)
        acknowledge(nodes, jobs[:-1])
        nodes.start(0)
        handed = handed_by(nodes.clients[0])
    else:
        with standing_still(nodes.brokers[0].process.pid):
            doubt(nodes, 0)
            acknowledge(nodes, jobs[:-1])
            # It stands in the socket when the node wakes.
            nodes.clients[0].send(
                "GETJOB", "TIMEOUT", 20_000, "COUNT", JOBS, "FROM", "q"
            )
        handed = [row[1].decode() for row in nodes.clients[0].answer() or []]
    assert handed == jobs[-1:]
    wait_until(lambda: not any(map(nodes.holders, jobs[:-1])), 30)


def test_a_link_that_has_just_dropped_refuses_no_producer(nodes):
    assert nodes.brokers[2].stop() == 0
    assert TIMEOUT < 4
    nodes.clients[0].send("ADDJOB", "q", "b", 20_000, "REPLICATE", 3)
    nodes.start(2)
    job_id = nodes.clients[0].answer()
    assert not job_id.startswith("NOREPL"), job_id
    assert nodes.holders(job_id) == list(ALL)


def test_without_a_time_a_producer_is_refused_once_a_node_is_suspected(nodes):
    nodes.kill(2)
    answer = nodes.ask(0, "ADDJOB", "q", "b", 0, "REPLICATE", 3)
    assert answer.startswith("NOREPL Not enough reachable nodes"), answer
    assert "fail" in nodes.sees(0, 2)[0]
