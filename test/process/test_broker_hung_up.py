"""A client that hangs up while it waits gets nothing: what came for it is there for the next.

The broker stands still while one client adds and another one hangs up, so that it hears of
both in one turn, whichever was first; or the client has sent more than is read of one that
waits, so that its end is not read at all.
"""

import socket

import pytest
from harness.broker import Client, broker_in, command
from harness.brokers import nodes_in
from harness.processes import standing_still
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

from rq.broker.clients.connection import HELD

pytestmark = pytest.mark.process
# What waits, what lets it go on, and how the next client asks.
KINDS = {
    "GETJOB": (
        ("GETJOB", "TIMEOUT", 60_000, "FROM", "q"),
        ("ADDJOB", "q", "body", 0, "RETRY", 0, "REPLICATE", 1),
        ("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q"),
    ),
    "RQ.POP": (
        ("RQ.POP", "BLOCK", -1, "k"),
        ("RQ.PUSH", "k", "body"),
        ("RQ.POP", "k"),
    ),
    "QGET EX 0": (
        ("QGET", "e", "g", "EX", 0, "BLOCK", 60),
        ("QADD", "e", "60", "body"),
        ("QGET", "e", "g"),
    ),
    "QGET": (
        ("QGET", "e", "g", "EX", 3600, "BLOCK", 60),
        ("QADD", "e", "60", "body"),
        ("QGET", "e", "g"),
    ),
}
SIZE, MANY = 100_000, 150  # of jobs, more than the kernel takes


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with broker_in(tmp_path_factory.mktemp("broker") / "node") as broker:
        broker.start().close()
        yield broker


def waits(client, number=1):
    """Whether so many clients wait."""
    return b"blocked_clients:%d\r" % number in client.ask("INFO", "clients")


def hang_up_unread(waiter, client):
    """Let a client that waits send more than is read of it, and hang up."""
    ping = command("PING")
    waiter.socket.sendall(ping * (HELD // len(ping) + 1))
    most = HELD - HELD % len(ping)
    wait_until(lambda: any(held >= most for held in facts(client, "qbuf")))
    waiter.close()


def facts(client, name):
    """Return a number of each client: `qbuf`, bytes that are read and not obeyed, or
    `omem`, bytes of answers that the kernel has not taken."""
    rows = client.ask("CLIENT", "LIST").decode().split()
    return [int(row[len(name) + 1 :]) for row in rows if row.startswith(f"{name}=")]


@pytest.mark.parametrize("hangs_up", ["first", "after", "unread"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_came_for_a_client_that_hung_up_is_had_by_the_next(shared, kind, hangs_up):
    begins, adds, asks = KINDS[kind]
    client = Client(shared.port)
    for _ in range(2 if hangs_up == "unread" else 10):
        waiter = Client(shared.port)
        waiter.send(*begins)
        wait_until(lambda: waits(client))
        if hangs_up == "unread":
            hang_up_unread(waiter, client)
            client.send(*adds)
        else:
            with standing_still(shared.process.pid):
                if hangs_up == "first":
                    waiter.close()
                client.send(*adds)
                if hangs_up == "after":
                    waiter.close()
        added = client.answer()
        assert not str(added).startswith("ERR"), added
        had = wait_until(lambda: client.ask(*asks))
        assert b"body" in str(had).encode(), had
        wait_until(lambda: len(facts(client, "qbuf")) == 1)
        if kind == "GETJOB":
            assert had[0][3:] == [b"nacks", 0, b"additional-deliveries", 0]
    client.close()


@pytest.mark.parametrize(
    "words",
    [("GETJOB", "FROM", "rq:p"), ("QGET", "rq:p", "g", "EX", 0, "BLOCK", 60)],
    ids=["GETJOB", "QGET EX 0"],
)
def test_a_message_for_a_client_that_hung_up_is_back_in_its_queue(tmp_path, words):
    pulled = {"num_workers": 0, "pull": {"seconds": 30}}
    with (
        running_queue(tmp_path, name="p", **pulled) as queue,
        broker_in(tmp_path, main=SETTINGS) as broker,
    ):
        client, waiter = broker.start(), broker.client()
        waiter.send(*words)
        wait_until(lambda: waits(client))
        hang_up_unread(waiter, client)
        msg_id = queue.send()
        wait_until(lambda: queue.get(msg_id).get("result", {}).get("cause"))
        message = queue.get(msg_id)
        assert (message["result"]["cause"], message["count"]) == ("released", 0)
        assert queue.state(msg_id) == "que"
        wait_until(lambda: len(facts(client, "qbuf")) == 1)


def test_a_job_is_withdrawn_whose_producer_hung_up_before_it_had_its_copies(tmp_path):
    with nodes_in(tmp_path, 2) as nodes:
        nodes.join()
        client, producer = nodes.clients[0], nodes.brokers[0].client()
        with standing_still(nodes.brokers[1].process.pid):
            producer.send("ADDJOB", "q", "body", 60_000, "REPLICATE", 2)
            wait_until(lambda: waits(client))
            hang_up_unread(producer, client)
        wait_until(lambda: waits(client, 0))
        wait_until(lambda: nodes.registered() == [0, 0])


def test_of_answers_behind_others_those_of_which_no_byte_left_hand_out_nothing(shared):
    client = Client(shared.port)
    for number in range(MANY):
        body = b"%d " % number + bytes(SIZE)
        client.ask("ADDJOB", "many", body, 0, "RETRY", 0, "REPLICATE", 1)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", shared.port))
    greedy = Client(sock)
    sock.sendall(command("GETJOB", "NOHANG", "FROM", "many") * MANY)
    [[_, _, body]] = greedy.answer()
    assert body.startswith(b"0 ")
    wait_until(lambda: max(facts(client, "omem")) >= HELD)
    handed = MANY - client.ask("QLEN", "many")
    greedy.close()
    wait_until(lambda: client.ask("QLEN", "many") > MANY - handed)
    words = ("GETJOB", "NOHANG", "WITHCOUNTERS", "COUNT", MANY, "FROM", "many")
    rows = []
    while some := client.ask(*words):
        rows += some
    left = [int(row[2].split()[0]) for row in rows]
    assert left == list(range(MANY - len(left), MANY))
    assert all(row[4] == row[6] == 0 for row in rows)
    client.close()
