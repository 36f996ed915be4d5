"""`rq broker leave` and `forget`: a node goes, and nothing is lost with it."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.broker import Broker
from harness.brokers import TIMEOUT
from harness.cli import rq
from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until

pytestmark = pytest.mark.process
SECRET = "a secret of the cluster"


class Host:
    """A broker of a root, which is a node."""

    def __init__(self, place):
        place.mkdir()
        (place / "secret").write_text(SECRET)
        (place / "secret").chmod(0o600)
        self.bus_port = free_port()
        self.broker = Broker(
            place,
            bus_port=self.bus_port,
            secret_file="secret",
            node_timeout=int(TIMEOUT * 1000),
        )
        self.client = self.broker.start()
        self.root = place
        self.id = self.ask("CLUSTER", "MYID").decode()

    def ask(self, *words):
        return self.client.ask(*words)

    def verb(self, *words):
        return rq("broker", *words, root=self.root)

    def knows(self):
        lines = self.ask("CLUSTER", "NODES").decode().splitlines()
        return {line.split()[0] for line in lines} - {self.id}


@pytest.fixture
def hosts(tmp_path):
    """Three hosts whose nodes know each other."""
    hosts = [Host(tmp_path / f"host{n}") for n in range(3)]
    try:
        for host in hosts[1:]:
            hosts[0].ask(
                "CLUSTER", "MEET", "127.0.0.1", host.broker.port, host.bus_port
            )
        wait_until(lambda: all(reaches(host) == 2 for host in hosts))
        yield hosts
    finally:
        for host in hosts:
            host.broker.close()


def reaches(host):
    facts = host.ask("CLUSTER", "INFO").decode().split()
    return int(dict(each.split(":") for each in facts)["cluster_reachable_nodes"])


def test_a_node_leaves_when_all_is_fetched_and_is_forgotten(hosts):
    first, second, third = hosts
    words = "ADDJOB", "mail", "x", 5000, "REPLICATE", 1, "RETRY"
    waits = first.ask(*words, 60)
    handed = first.ask("ADDJOB", "paper", "x", 0, "REPLICATE", 1, "RETRY", 0)
    assert first.ask("GETJOB", "FROM", "paper")[0][1].decode() == handed
    copied = first.ask("ADDJOB", "copies", "x", 5000, "REPLICATE", 2, "RETRY", 60)
    first.ask("RQ.PUSH", "orders", "one", "two")
    left = first.verb("leave", "--no-wait")
    assert left.returncode == 1
    assert "leaving: 4 jobs only here" in left.stderr
    for named in ("orders 2 waiting", "mail 1 waiting", "paper 1 out"):
        assert named in left.stderr
    assert "what nobody fetches keeps it from going" in left.stderr
    wait_until(lambda: "leaving" in second.ask("CLUSTER", "NODES").decode())
    told = json.loads(first.verb("leave", "--json").stdout)
    assert (told["may_go"], told["all"]["here"], told["all"]["copied"]) == (False, 4, 1)
    # A program that waits elsewhere gets what waits here.
    [[_, got, _]] = second.ask("GETJOB", "TIMEOUT", 20_000, "FROM", "mail")
    assert got.decode() == waits
    assert second.ask("ACKJOB", waits) == 1
    assert first.ask("ACKJOB", handed) == 1
    ids = [row[1] for row in first.ask("RQ.POP", "COUNT", 2, "orders")]
    assert len(first.ask("RQ.ACK", "orders", *ids)) == 2
    done = first.verb("leave")
    assert done.returncode == 0, done.stderr
    assert "of 1 job others keep copies" in done.stdout
    assert f"rq broker forget {first.id[:8]}; then here" in done.stdout
    forgotten = second.verb("forget", first.id[:8])
    assert (forgotten.returncode, forgotten.stderr) == (0, "")
    assert (second.knows(), third.knows()) == ({third.id}, {second.id})
    assert first.knows() == set()  # it was told, too
    for host in (second, third):  # one has the copy, and need not wait for its RETRY
        host.ask("ENQUEUE", copied)
    [[_, got, _]] = second.ask("GETJOB", "TIMEOUT", 20_000, "FROM", "copies")
    assert got.decode() == copied


def test_two_that_leave_at_the_same_time_do_not_count_on_each_other(hosts):
    first, second, third = hosts

    def has_both(_):
        words = "ADDJOB", "q", "x", 5000, "REPLICATE", 2, "RETRY", 600
        job_id = first.ask(*words)
        return second.ask("SHOW", job_id) and not third.ask("SHOW", job_id)

    assert any(map(has_both, range(100)))
    with ThreadPoolExecutor(2) as both:
        ended = list(both.map(lambda host: host.verb("leave", "--no-wait"), hosts[:2]))
    assert [each.returncode for each in ended] == [1, 1]
    assert all("1 job only here" in each.stderr for each in ended)


def test_whoever_stops_waiting_leaves_it_leaving_and_may_cancel(hosts):
    first, second, _ = hosts
    first.ask("ADDJOB", "mail", "x", 0, "REPLICATE", 1)
    words = [sys.executable, "-m", "rq.cli", "--root", first.root, "broker", "leave"]
    with subprocess.Popen(
        words, env=environment({}), stderr=subprocess.PIPE, text=True
    ) as waiting:
        said = waiting.stderr.readline()
        assert "leaving: 1 job only here (mail 1 waiting)" in said
        waiting.send_signal(signal.SIGINT)
        assert "this node goes on leaving" in waiting.stderr.read()
        assert waiting.wait(60) == 130
    assert first.ask("CLUSTER", "LEAVING") == "yes"
    assert first.verb("leave", "--cancel").returncode == 0
    assert first.ask("CLUSTER", "LEAVING") == "no"
    wait_until(lambda: reaches(second) == 2)


@pytest.mark.slow
def test_a_dead_node_is_forgotten_and_who_did_not_hear_is_told(hosts):
    first, second, third = hosts
    third.broker.kill()
    failed = f"127.0.0.1:{third.broker.port}"
    wait_until(lambda: "fail" in flags(first, third))
    os.kill(second.broker.process.pid, signal.SIGSTOP)
    deaf = first.verb("forget", failed)
    os.kill(second.broker.process.pid, signal.SIGCONT)
    assert deaf.returncode == 1
    assert f"({failed}) is forgotten" in deaf.stdout
    assert f"127.0.0.1:{second.broker.port} has not heard of it" in deaf.stderr


def flags(host, other):
    rows = json.loads(host.verb("nodes", "--json").stdout)
    return next((row["flags"] for row in rows if row["id"] == other.id), [])


def test_what_cannot_be_forgotten_or_left_is_one_sentence(hosts, tmp_path):
    first, second, _ = hosts
    for words, why in (
        ((first.id,), "this is the node itself"),
        (("f" * 40,), "no node is called ffff"),
        (("127.0.0.1",), "several nodes are called 127.0.0.1"),
        ((second.id,), "answers and does not leave"),
    ):
        done = first.verb("forget", *words)
        assert done.returncode == 2
        assert why in done.stderr, words
    assert first.knows() == {second.id, hosts[2].id}
    assert first.verb("forget", second.id, "--yes").returncode == 0
    assert second.knows() == set()
    alone = second.verb("leave")
    assert alone.returncode == 4
    assert "this node is alone" in alone.stderr
    assert second.ask("CLUSTER", "LEAVING") == "no"
