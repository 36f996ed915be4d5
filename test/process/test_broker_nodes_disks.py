"""Nodes that come back with an empty disk, or with an old one."""

import shutil
import subprocess
import sys

import pytest
from harness.brokers import nodes_in
from harness.starting import environment
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ALL = range(3)
ONCE = "REPLICATE", 1, "RETRY", 0


@pytest.fixture
def nodes(tmp_path):
    with nodes_in(tmp_path, len(ALL)) as nodes:
        nodes.join()
        yield nodes


def add(nodes, index, queue, number, *options):
    return [nodes.ask(index, "ADDJOB", queue, n, 9000, *options) for n in range(number)]


def get(nodes, index, queue):
    words = "GETJOB", "NOHANG", "COUNT", 100, "FROM", queue
    return [row[1].decode() for row in nodes.ask(index, *words) or []]


def again(nodes, index):
    """Let a node start that is another one at the same address."""
    nodes.start(index)
    before, nodes.ids[index] = nodes.ids[index], myself(nodes, index)
    assert nodes.ids[index] != before
    return before


def myself(nodes, index):
    return nodes.ask(index, "CLUSTER", "MYID").decode()


def forget(nodes, before, *indexes):
    """Let others forget the node that is gone, and meet the one at its place."""
    for index in indexes:
        assert nodes.ask(index, "CLUSTER", "FORGET", before) == "OK"
        assert nodes.meet(index, 2) == "OK"
    nodes.wait_until_all_reach_all()


def test_a_node_with_an_empty_disk_is_another_one(nodes):
    job_ids = add(nodes, 2, "q", 30, "REPLICATE", 3, "RETRY", 2)
    nodes.kill(2)
    shutil.rmtree(nodes.brokers[2].directory)
    before = again(nodes, 2)
    assert nodes.rows(2) == {nodes.ids[2]: ("myself", "connected")}
    wait_until(lambda: nodes.rows(0)[before][0] == "fail")

    handed: set[str] = set()
    wait_until(lambda: take_and_ack(nodes, handed) >= set(job_ids), 60)
    # The one that is gone might have copies, as far as they know.
    assert all(nodes.holders(job_id) for job_id in job_ids)
    forget(nodes, before, 0, 1)
    wait_until(lambda: not any(map(nodes.holders, job_ids)), 60)
    assert nodes.holders(add(nodes, 2, "q", 1, "REPLICATE", 3)[0]) == [0, 1, 2]


def take_and_ack(nodes, handed):
    """Take what the first two nodes have in their queues; return all that was taken."""
    for index in (0, 1):
        for job_id in get(nodes, index, "q"):
            handed.add(job_id)
            nodes.ask(index, "ACKJOB", job_id)
    return handed


@pytest.fixture
def old(nodes, tmp_path):
    """Give the directory of a node as it was before its jobs were handed out, and their
    ids; each comes at most once."""
    broker = nodes.brokers[2]
    once = add(nodes, 2, "once", 20, *ONCE)
    once += add(nodes, 2, "once", 10, *ONCE, "DELAY", 2)
    broker.stop()
    saved = tmp_path / "saved"
    shutil.copytree(broker.directory, saved)
    nodes.start(2)
    nodes.wait_until_all_reach_all()
    handed: set[str] = set()

    def take():
        handed.update(job_id for index in ALL for job_id in get(nodes, index, "once"))
        return handed

    wait_until(lambda: take() == set(once))
    broker.kill()
    shutil.rmtree(broker.directory)
    shutil.copytree(saved, broker.directory)
    return once


def accept(nodes, how):
    words = ["broker", "run", *nodes.brokers[2].words, "--accept", how]
    command = [sys.executable, "-m", "rq.cli", *words]
    subprocess.run(command, check=True, env=environment({}))


@pytest.mark.slow
def test_a_node_with_an_old_disk_waits_for_a_word_and_hands_nothing_out_twice(
    nodes, old
):
    once = old
    broker = nodes.brokers[2]
    broker.begin()
    assert broker.process.wait(20) == 1
    assert "was copied or restored from a backup" in broker.told()
    accept(nodes, "copy")
    before = again(nodes, 2)
    forget(nodes, before, 0, 1)
    assert 2 in nodes.holders(once[0])  # it is there to be looked at
    late = nodes.ask(2, "ADDJOB", "once", "new", 0, *ONCE, "DELAY", 3)
    wait_until(lambda: (got := get(nodes, 2, "once")) and got == [late])
    nodes.kill(2)  # what it must not hand out is so for ever
    nodes.start(2)
    nodes.wait_until_all_reach_all()
    assert [get(nodes, index, "once") for index in ALL] == [[], [], []]
