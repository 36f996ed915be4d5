"""A broker whose disk was brought back as it once was, beneath its files."""

import time

import pytest
from harness.brokers import nodes_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def bring_back(directory, kept):
    """Let the same files have what they had, as a disk does that is rolled back."""
    for path in contents(directory):
        if path not in kept:
            path.unlink()
    for path, data in kept.items():
        with path.open("r+b") as file:
            file.truncate(len(data))
            file.write(data)


def answered_at(nodes, index, other):
    """Return when a node has last heard an answer of another one."""
    lines = nodes.ask(index, "CLUSTER", "NODES").decode().splitlines()
    return next(
        int(line.split()[4]) for line in lines if line.startswith(nodes.ids[other])
    )


def test_a_node_on_an_old_disk_takes_another_id_and_delivers_nothing_twice(tmp_path):
    with nodes_in(tmp_path, 2) as nodes:
        nodes.join()
        directory, before = nodes.brokers[1].directory, nodes.ids[1]
        wait_until(lambda: nodes.ids[0] in _text(directory / "members"))
        once = nodes.ask(1, "ADDJOB", "q", "b", 0, "RETRY", 0, "REPLICATE", 1)
        kept = contents(directory)
        get = "GETJOB", "NOHANG", "FROM", "q"
        assert nodes.ask(1, *get) == [[b"q", once.encode(), b"b"]]
        told = int((time.time() + 0.5) * 1000)
        wait_until(lambda: answered_at(nodes, 0, 1) > told)
        nodes.kill(1)
        bring_back(directory, kept)
        nodes.start(1)
        assert nodes.ask(1, *get) is None  # it waits for what others know
        after = wait_until(lambda: _other_id(nodes, before))
        nodes.ids[1] = after
        assert nodes.ask(1, *get) is None
        assert b"active" in nodes.ask(1, "SHOW", once)
        assert nodes.ask(0, "CLUSTER", "FORGET", before) == "OK"
        nodes.wait_until_all_reach_all()
        job = nodes.ask(1, "ADDJOB", "r", "b", 5000, "REPLICATE", 2)
        assert nodes.ask(0, "ACKJOB", job) == 1
        wait_until(lambda: nodes.ask(1, "SHOW", job) is None)
        nodes.kill(1)
        nodes.start(1)
        assert nodes.ask(1, "CLUSTER", "MYID").decode() == after
        assert nodes.ask(1, "GETJOB", "TIMEOUT", 2500, "FROM", "q") is None


def _text(path):
    return path.read_text() if path.exists() else ""


def _other_id(nodes, before):
    node_id = nodes.ask(1, "CLUSTER", "MYID").decode()
    return node_id if node_id != before else None
