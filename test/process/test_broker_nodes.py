"""Brokers as processes that know each other."""

import errno
import json
import os
import socket

import pytest
from harness.broker import Client, broker_in
from harness.brokers import nodes_in
from harness.ports import free_port
from harness.waiting import wait_until

pytestmark = pytest.mark.process
FIT, SUSPECTED, FAILED = "noflags", "fail?", "fail"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three nodes that know each other; a test leaves them so."""
    with nodes_in(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        nodes.join()
        yield nodes


def test_each_shows_all(nodes):
    for index in range(3):
        flags = ["myself" if other == index else FIT for other in range(3)]
        assert nodes.rows(index) == {
            nodes.ids[n]: (flags[n], "connected") for n in range(3)
        }
    facts = nodes.facts(0)
    assert (facts["cluster_known_nodes"], facts["cluster_size"]) == ("3", "3")


def test_hello_lists_all_with_how_good_they_are(nodes):
    version, mine, *rows = nodes.ask(0, "HELLO")
    assert (version, mine.decode()) == (1, nodes.ids[0])
    assert {row[0].decode(): (row[1], int(row[2]), row[3]) for row in rows} == {
        nodes.ids[n]: (b"127.0.0.1", nodes.brokers[n].port, b"1") for n in range(3)
    }


def test_what_is_shown_of_nodes(nodes):
    rows = nodes.ask(0, "BROKER", "NODES")
    assert [row[0].decode() for row in rows[:1]] == [nodes.ids[0]]
    assert {row[0].decode(): (row[2], row[4], row[7], row[8]) for row in rows} == {
        nodes.ids[n]: (nodes.brokers[n].port, 1, 0, 0) for n in range(3)
    }
    assert all(row[6] > 0 for row in rows[1:])  # microseconds until the last answer
    totals = nodes.ask(0, "BROKER", "TOTALS")
    facts = dict(zip(totals[::2], totals[1::2], strict=True))
    assert (facts[b"nodes"], facts[b"silent_nodes"]) == (3, b"")


def test_a_killed_node_fails_and_is_clear_when_it_is_back(nodes):
    nodes.kill(2)
    for index in (0, 1):
        wait_until(lambda at=index: nodes.sees(at, 2) == (FAILED, "disconnected"))
    priorities = {row[0].decode(): row[3] for row in nodes.ask(0, "HELLO")[2:]}
    assert priorities[nodes.ids[2]] == b"100"
    assert nodes.facts(0)["cluster_reachable_nodes"] == "1"
    silent = f"127.0.0.1:{nodes.brokers[2].port}".encode()
    assert silent in nodes.ask(0, "BROKER", "TOTALS")
    nodes.start(2)  # it knows them again from its disk
    nodes.wait_until_all_reach_all()
    assert nodes.sees(0, 2) == (FIT, "connected")


def test_a_producer_that_hangs_up_while_its_large_body_is_written_leaves_no_job(nodes):
    for index in (1, 2):
        assert nodes.ask(index, "PAUSE", "large", "in") == "in"
    gone = nodes.brokers[0].client()
    assert gone.ask("PING") == "PONG"  # it has come in
    gone.send("ADDJOB", "large", bytes(16 * 1024 * 1024), 0, "REPLICATE", 2)
    gone.close()
    wait_until(lambda: b"large" in nodes.ask(0, "QSCAN", "BUSYLOOP")[1])
    wait_until(lambda: nodes.ask(0, "JSCAN", "BUSYLOOP", "QUEUE", "large")[1] == [])
    for index in (1, 2):
        assert nodes.ask(index, "PAUSE", "large", "none") == "none"


def test_a_job_is_there_when_the_node_that_took_it_is_gone(nodes):
    job_id = nodes.ask(2, "ADDJOB", "q", "body", 5000, "REPLICATE", 3, "RETRY", 1)
    nodes.kill(2)
    get = "GETJOB", "NOHANG", "FROM", "q"
    (job,) = wait_until(lambda: nodes.ask(0, *get) or nodes.ask(1, *get))
    assert job == [b"q", job_id.encode(), b"body"]
    nodes.start(2)
    nodes.wait_until_all_reach_all()
    assert nodes.ask(0, "ACKJOB", job_id) == 1
    for index in range(3):
        wait_until(lambda at=index: nodes.ask(at, "SHOW", job_id) is None)


def test_another_limit_of_memory_holds_at_once_for_copies_from_others(nodes):
    def takes_a_copy():
        words = "ADDJOB", "short", "x", 300, "REPLICATE", 3, "RETRY", 60
        return not str(nodes.ask(0, *words)).startswith("NOREPL")

    held = nodes.ask(1, "ADDJOB", "held", "x", 0, "REPLICATE", 1, "RETRY", 60)
    assert takes_a_copy()
    _, limit = nodes.ask(1, "CONFIG", "GET", "maxmemory")
    assert nodes.ask(1, "CONFIG", "SET", "maxmemory", 1) == "OK"
    assert not takes_a_copy()
    assert nodes.ask(1, "CONFIG", "SET", "maxmemory", limit) == "OK"
    assert takes_a_copy()
    assert nodes.ask(1, "DELJOB", held) == 1
    while jobs := nodes.ask(0, "GETJOB", "NOHANG", "FROM", "short"):
        assert nodes.ask(0, "ACKJOB", jobs[0][1]) == 1


def test_a_large_body_is_copied_and_handed_over(nodes):
    body = os.urandom(700 * 1024)
    words = "RETRY", 30, "REPLICATE"
    job_id = nodes.ask(0, "ADDJOB", "large", body, 9000, *words, 3)
    for index in range(3):
        assert nodes.ask(index, "SHOW", job_id)[-1] == body
    other = nodes.ask(0, "ADDJOB", "larger", body, 9000, *words, 1)
    (job,) = nodes.ask(1, "GETJOB", "TIMEOUT", 9000, "FROM", "larger")
    assert job == [b"larger", other.encode(), body]
    for each in (job_id, other):
        assert nodes.ask(1, "ACKJOB", each) == 1
    for index in range(3):
        wait_until(lambda at=index: nodes.ask(at, "SHOW", job_id) is None)


def test_a_large_job_is_not_overtaken_by_the_word_to_queue_it(nodes):
    """A node that leaves keeps no copy: another one gets it, and is told to queue it."""
    nodes.ask(0, "CLUSTER", "LEAVING", "yes")
    body = os.urandom(700 * 1024)
    words = "RETRY", 0, "REPLICATE", 1, "ASYNC"
    ids = [nodes.ask(0, "ADDJOB", "once", body, 0, *words).encode() for _ in range(5)]
    got = []
    get = "GETJOB", "NOHANG", "COUNT", 9, "FROM", "once"

    def all_came():
        for index in (1, 2):
            got.extend(job[1] for job in nodes.ask(index, *get) or [])
        return len(got) >= len(ids)

    wait_until(all_came)
    assert sorted(got) == sorted(ids)
    nodes.ask(0, "CLUSTER", "LEAVING", "no")
    nodes.wait_until_all_reach_all()


def test_a_leaving_node_says_so_to_all(nodes):
    assert nodes.ask(1, "CLUSTER", "LEAVING", "yes") == "OK"
    for index in (0, 2):
        wait_until(lambda at=index: nodes.sees(at, 1)[0] == "leaving")
    assert nodes.ask(1, "CLUSTER", "LEAVING", "no") == "OK"
    nodes.wait_until_all_reach_all()


def test_a_forgotten_node_is_gone_until_it_is_met_again(nodes):
    for index in (0, 1):
        assert nodes.ask(index, "CLUSTER", "FORGET", nodes.ids[2]) == "OK"
    for index in (0, 1):
        kept = json.loads((nodes.brokers[index].directory / "members").read_text())
        ids = [row["id"] for row in kept["members"]]
        assert ids == [nodes.ids[1 - index]]
        assert nodes.facts(index)["cluster_size"] == "2"
    for index in (0, 1):
        nodes.meet(index, 2)
    nodes.wait_until_all_reach_all()


def test_a_reset_node_is_alone_and_another_one(nodes):
    assert nodes.ask(2, "CLUSTER", "RESET", "HARD") == "OK"
    node_id = nodes.ask(2, "CLUSTER", "MYID").decode()
    assert node_id != nodes.ids[2]
    assert list(nodes.rows(2)) == [node_id]
    for index in (0, 1):
        wait_until(lambda at=index: nodes.sees(at, 2)[0] in (SUSPECTED, FAILED))
        nodes.ask(index, "CLUSTER", "FORGET", nodes.ids[2])
    nodes.ids[2] = node_id
    nodes.meet(2, 0)
    nodes.wait_until_all_reach_all()


def test_of_two_the_other_is_suspected(tmp_path):
    with nodes_in(tmp_path, 2) as nodes:
        nodes.join()
        nodes.kill(1)
        wait_until(lambda: nodes.sees(0, 1) == (SUSPECTED, "disconnected"))
        nodes.start(1)
        wait_until(lambda: nodes.sees(0, 1) == (FIT, "connected"))


def test_a_node_alone_listens_for_clients_only(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        said = client.ask("CLUSTER", "MEET", "127.0.0.1", 7711)
        assert said.startswith("ERR this node has no port for other nodes")
        listening = _listening(broker.process.pid)
        assert listening == {broker.port}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_both_loopbacks_are_taken_for_clients_and_for_nodes(tmp_path):
    bus = free_port()
    with broker_in(tmp_path / "node", bus_port=bus) as broker:
        assert broker.start().ask("PING") == "PONG"  # from then on both ports are taken
        for port in (broker.port, bus):
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("::1", port), family=socket.AF_INET6)
        over_six = Client(socket.create_connection(("::1", broker.port)))
        assert over_six.ask("BROKER", "TOTALS")  # the kernel has said who asks
        over_six.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_a_broker_goes_on_where_another_program_has_the_other_loopback(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        taken = socket.create_server(("::1", broker.port), family=socket.AF_INET6)
        assert broker.start().ask("PING") == "PONG"
        taken.close()
        place = f"[::1]:{broker.port}"
        assert f"the broker cannot listen on {place} as well" in broker.told()


def _listening(pid):
    """Return the TCP ports on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    with open(f"/proc/{pid}/net/tcp") as file:
        for row in (line.split() for line in list(file)[1:]):
            if row[3] == "0A" and row[9] in inodes:
                ports.add(int(row[1].partition(":")[2], 16))
    return ports


def is_refused(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_other_nodes_do_not_wait_for_one_that_reads_its_disk(tmp_path):
    """It is known soon that nobody is there, instead of after the time of a handshake."""
    with broker_in(tmp_path / "node") as broker:
        bus_port = free_port()
        broker.words += ["--bus-port", str(bus_port)]
        broker.directory.mkdir()
        os.mkfifo(broker.directory / "node")  # of which its id is read
        broker.begin()
        wait_until(lambda: not is_refused(broker.port))
        assert is_refused(bus_port)
        (broker.directory / "node").write_text("ab" * 20)
        client = wait_until(broker.client)
        assert client.ask("CLUSTER", "MYID") == b"ab" * 20
        assert not is_refused(bus_port)
