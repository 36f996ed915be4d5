"""Queues of RQ as clients of the broker use them: `rq:NAME` is the queue NAME."""

import time

import pytest
from harness.broker import Simple, broker_in, command
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

from rq.config import passwords

pytestmark = pytest.mark.process
SCRIPT = "echo done well >&3"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def pull(root):
    """A queue whose messages are leased."""
    with running_queue(root, name="p", num_workers=0, pull={"seconds": 30}) as queue:
        yield queue


@pytest.fixture(scope="module")
def push(root):
    """A queue whose messages a script runs."""
    with running_queue(root, name="s") as queue:
        yield queue


@pytest.fixture(scope="module")
def shared(root, pull, push):
    with broker_in(root, main=SETTINGS) as broker:
        broker.start()
        yield broker


@pytest.fixture
def client(shared):
    client = shared.client()
    yield client
    client.close()
    rest = shared.client()
    while jobs := rest.ask("GETJOB", "NOHANG", "COUNT", 100, "FROM", "rq:p"):
        rest.ask("ACKJOB", *(job[1] for job in jobs))
    rest.close()


def add(client, body="b", *options, queue="rq:p"):
    job_id = client.ask("ADDJOB", queue, body, 0, *options)
    assert isinstance(job_id, Simple), job_id
    return job_id.encode()


def test_a_job_of_a_client_runs_a_script(client, push):
    job_id = add(client, SCRIPT, queue="rq:s")
    assert len(job_id) == 40
    wait_until(lambda: push.ok("list", {"state": "done"}))
    [row] = push.ok("list", {"state": "done"})
    assert row["param1"] == SCRIPT
    shown = client.ask("SHOW", job_id)
    facts = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (facts[b"id"], facts[b"queue"], facts[b"state"]) == (
        job_id,
        b"rq:s",
        b"acked",
    )
    assert facts[b"body"] == SCRIPT.encode()


def test_a_message_of_rq_is_got_and_acknowledged(client, pull):
    msg_id = pull.send(param1="hello")
    [[queue, job_id, body]] = client.ask("GETJOB", "FROM", "rq:p")
    assert (queue, body) == (b"rq:p", b"hello")
    [row] = pull.ok("leases")["leases"]
    assert (row["msg_id"], row["started"], row["seconds"]) == (msg_id, True, 30)
    assert client.ask("ACKJOB", job_id) == 1
    assert pull.state(msg_id) == "done"
    assert client.ask("ACKJOB", job_id) == 0
    assert client.ask("WORKING", job_id).startswith("NOJOB")


def test_the_id_is_the_same_from_both_sides(client, pull):
    job_id = add(client, "x", "RETRY", 7)
    assert client.ask("QLEN", "rq:p") == 1
    assert client.ask("QPEEK", "rq:p", 5) == [[b"rq:p", job_id, b"x"]]
    assert client.ask("GETJOB", "FROM", "rq:p") == [[b"rq:p", job_id, b"x"]]
    assert client.ask("WORKING", job_id) == 7
    assert client.ask("NACK", job_id) == 1
    [[_, again, _, *counters]] = client.ask("GETJOB", "WITHCOUNTERS", "FROM", "rq:p")
    assert again == job_id
    assert counters == [b"nacks", 1, b"additional-deliveries", 1]
    assert client.ask("FASTACK", job_id) == 1


def test_who_waits_is_woken_and_his_later_commands_wait(client, shared, pull):
    client.send("GETJOB", "FROM", "rq:p")
    client.send("PING")
    time.sleep(0.2)
    msg_id = pull.send(param1="late")
    [[_, job_id, body]] = client.answer()
    assert (body, client.answer()) == (b"late", "PONG")
    assert client.ask("ACKJOB", job_id) == 1
    assert pull.state(msg_id) == "done"


def test_who_waits_in_vain_is_told_so(client):
    assert client.ask("GETJOB", "NOHANG", "FROM", "rq:p") is None
    assert client.ask("GETJOB", "TIMEOUT", 50, "FROM", "rq:p") is None
    assert client.ask("RQ.POP", "rq:p") == []
    assert client.ask("RQ.POP", "BLOCK", 50, "rq:p") is None
    assert client.ask("QGET", "rq:p", "g") is None


def test_redisrq_pushes_pops_and_acknowledges(client):
    ids = client.ask("RQ.PUSH", "rq:p", "a", "b", "c")
    popped = client.ask("RQ.POP", "COUNT", 10, "rq:p")
    assert popped == [
        [b"rq:p", i, b] for i, b in zip(ids, (b"a", b"b", b"c"), strict=True)
    ]
    assert client.ask("RQ.INFO", "rq:p") == [b"undelivered", 0, b"delivered", 3]
    assert client.ask("RQ.ACK", "rq:p", ids[1], "1-1", "x", ids[0]) == [ids[1], ids[0]]
    assert client.ask("RQ.ACK", "rq:p", *ids) == [ids[2]]


def test_bananaq_has_one_group(client, pull):
    event = client.ask("QADD", "rq:p", 60, "e")
    assert client.ask("QGET", "rq:p", "g", "EX", 5) == [event, b"e"]
    assert "has the group g" in client.ask("QGET", "rq:p", "other")
    assert client.ask("QACK", "rq:p", "g", event) == 1
    assert client.ask("QACK", "rq:p", "g", event) == 0
    once = client.ask("QADD", "rq:p", 60, "once")
    assert client.ask("QGET", "rq:p", "g", "EX", 0) == [once, b"once"]
    assert pull.ok("leases")["leases"] == []


def test_what_is_sent_in_one_go_is_answered_in_order(client, shared, pull):
    """A command that is none ends the connection behind the answers of those before it."""
    sends = [command("ADDJOB", "rq:p", f"b{number}", 0) for number in range(300)]
    sends[100] = command("ADDJOB", "rq:p", "b", "x")
    sends[200:200] = [
        command("PING"),
        command("QADD", "rq:p", 60, "e"),
        command("QLEN", "rq:p"),
    ]
    other = shared.client()
    before = pull.ask("num_messages")["que"]
    other.socket.sendall(b"".join([*sends, command("QLEN", "rq:p"), b"*1\r\nx\r\n"]))
    answers = [other.answer() for _ in range(305)]
    assert (answers[100], answers[200]) == (
        "ERR timeout is not an integer or out of range",
        "PONG",
    )
    assert (answers[202], answers[303]) == (before + 200, before + 300)
    assert answers[304].startswith("ERR Protocol error")
    jobs = []
    while some := client.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "rq:p"):
        jobs += some
    assert [body for _, _, body in jobs[:3]] == [b"b0", b"b1", b"b2"]
    sent = [*answers[:100], *answers[101:200], *answers[203:303]]
    assert {job_id.encode() for job_id in sent} <= {job_id for _, job_id, _ in jobs}
    assert client.ask("ACKJOB", *(job_id for _, job_id, _ in jobs)) == 300


def test_each_that_is_counted_waits_for_the_one_before(client, pull):
    words = ("ADDJOB", "rq:p", "b", 0, "MAXLEN", 3)
    client.socket.sendall(b"".join([command(*words)] * 5))
    answers = [client.answer() for _ in range(5)]
    assert [isinstance(answer, Simple) for answer in answers] == [True] * 3 + [
        False
    ] * 2


HOOK = "https://hooks.example/T0/secret"


def test_who_is_no_admin_sees_the_hosts_of_webhooks(tmp_path):
    stored = passwords.make("x")
    users = {role: {"password": stored, "role": role} for role in ("viewer", "admin")}
    main = {**SETTINGS, "basic_auth": {"users": users}}
    with (
        running_queue(tmp_path, name="webhook", num_workers=0) as queue,
        broker_in(tmp_path, main=main) as broker,
    ):
        broker.start().close()
        queue.send(param1=HOOK, param2="{}")
        for role in users:
            client = broker.client()
            assert client.ask("AUTH", role, "x") == "OK"
            [[_, job_id, _]] = shown = client.ask("QPEEK", "rq:webhook", 1)
            told = str([shown, client.ask("SHOW", job_id)])
            assert "hooks.example" in told
            assert ("T0/secret" in told) == (role == "admin")
            client.close()
