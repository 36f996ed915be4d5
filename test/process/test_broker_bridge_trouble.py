"""Queues of RQ as clients of the broker use them, when processes die or do not answer, and
when what is asked makes no sense."""

import json
import os
import signal
import time

import pytest
from harness.broker import Refused, Simple, broker_in
from harness.processes import standing_still
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
LEASED = {"num_workers": 0, "pull": {"seconds": 30}}


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, name="p", **LEASED) as queue:
        yield queue


@pytest.fixture
def broker(tmp_path, queue):
    with broker_in(tmp_path, main=SETTINGS) as broker:
        yield broker


def add(client, body="b", *options, queue="rq:p"):
    job_id = client.ask("ADDJOB", queue, body, 0, *options)
    assert isinstance(job_id, Simple), job_id
    return job_id.encode()


def got(client, *words):
    """Return the ids of jobs that come."""
    return [job_id for _, job_id, _ in client.ask("GETJOB", *words) or ()]


def test_what_was_got_before_the_broker_was_killed_comes_again(broker, queue):
    client = broker.start()
    job_id = add(client, "b", "RETRY", 1)
    assert got(client, "FROM", "rq:p") == [job_id]
    client = broker.restart()
    assert client.ask("ACKJOB", job_id) == 0
    assert client.ask("WORKING", job_id).startswith("NOJOB")
    assert got(client, "FROM", "rq:p") == [job_id]
    assert client.ask("ACKJOB", job_id) == 1
    assert queue.ok("leases")["leases"] == []


def test_what_is_held_stays_held_when_its_owner_is_killed(broker, queue):
    client = broker.start()
    job_id = add(client)
    assert got(client, "FROM", "rq:p") == [job_id]
    queue.crash()
    assert client.ask("ADDJOB", "rq:p", "b", 0).startswith(
        "ERR queue p does not answer"
    )
    assert client.ask("ACKJOB", job_id).startswith("ERR queue p does not answer")
    queue.start()
    assert client.ask("ACKJOB", job_id) == 1


def test_who_waits_goes_on_waiting_while_the_owner_starts_again(broker, queue):
    client = broker.start()
    client.send("GETJOB", "FROM", "rq:p")
    time.sleep(0.2)
    queue.crash()
    queue.start()
    msg_id = queue.send(param1="after")
    [[_, job_id, body]] = client.answer()
    assert body == b"after"
    assert client.ask("ACKJOB", job_id) == 1
    assert queue.state(msg_id) == "done"


@pytest.mark.parametrize("body", ["b", '{"param1": "b", "_key": null}'])
def test_a_job_whose_answer_was_lost_is_one_message(broker, queue, body):
    client = broker.start()
    queue.crash_at("journal:after-sync")
    client.send("ADDJOB", "rq:p", body, 0)
    wait_until(lambda: not queue.alive)
    queue.start()
    job_id = client.answer()
    assert isinstance(job_id, Simple)
    assert client.ask("QLEN", "rq:p") == 1
    assert got(client, "FROM", "rq:p") == [job_id.encode()]
    assert client.ask("ACKJOB", job_id) == 1


def test_others_are_served_while_an_owner_stands_still(broker, queue):
    client, other = broker.start(), broker.client()
    os.kill(queue.pid, signal.SIGSTOP)
    try:
        client.send("ADDJOB", "rq:p", "b", 0)
        began = time.monotonic()
        assert other.ask("ADDJOB", "q", "b", 0)
        assert other.ask("ADDJOB", "rq:p", "b", 100).startswith(
            "NOREPL queue p gave no"
        )
        assert time.monotonic() - began < 10
    finally:
        os.kill(queue.pid, signal.SIGCONT)
    assert isinstance(client.answer(), Simple)


def test_what_a_client_that_is_gone_waited_for_stays(broker, queue):
    client, other = broker.start(), broker.client()
    client.send("GETJOB", "FROM", "rq:p")
    time.sleep(0.3)
    client.close()
    time.sleep(0.3)
    job_id = add(other)
    assert got(other, "FROM", "rq:p") == [job_id]
    assert queue.get(queue.ok("list", {"state": "run"})[0]["msg_id"])["attempt"] == 1
    assert other.ask("ACKJOB", job_id) == 1


def test_what_is_leased_for_a_client_that_is_gone_is_given_back(broker, queue):
    client, other = broker.start(), broker.client()
    msg_id = queue.send()
    other.ask("CLIENT", "SETNAME", "other")
    with standing_still(queue.pid):
        client.send("GETJOB", "FROM", "rq:p")
        client.close()
        wait_until(lambda: len(other.ask("CLIENT", "LIST").splitlines()) == 1)
    wait_until(lambda: queue.get(msg_id)["result"]["cause"] == "released")
    [job_id] = got(other, "FROM", "rq:p")
    message = queue.get(msg_id)
    assert (message["attempt"], message["count"]) == (2, 0)
    assert other.ask("ACKJOB", job_id) == 1


def test_what_a_client_has_had_stays_leased_when_it_is_gone(broker, queue):
    client, other = broker.start(), broker.client()
    job_id = add(client)
    assert got(client, "FROM", "rq:p") == [job_id]
    client.close()
    wait_until(lambda: connected(other) == 1)
    assert got(other, "NOHANG", "FROM", "rq:p") == []
    assert len(queue.ok("leases")["leases"]) == 1


def connected(client):
    facts = client.ask("INFO", "clients").decode().split()
    return int(next(f for f in facts if f.startswith("connected_clients:"))[18:])


def test_what_comes_beside_is_given_back(tmp_path, broker, queue):
    with running_queue(tmp_path, name="r", **LEASED) as second:
        client, other = broker.start(), broker.client()
        client.send("GETJOB", "FROM", "rq:p", "rq:r")
        wait_until(lambda: other.ask("QSTAT", "rq:r")[9] == 1)
        time.sleep(0.3)  # until the owners have been asked
        with standing_still(broker.process.pid):
            sent = {"rq:p": queue.send(), "rq:r": second.send()}
            wait_until(
                lambda: (
                    [queue.state(sent["rq:p"]), second.state(sent["rq:r"])]
                    == ["run", "run"]
                )
            )
        [[name, job_id, _]] = client.answer()
        rest, of_rest = (queue, "rq:p") if name == b"rq:r" else (second, "rq:r")
        wait_until(lambda: rest.state(sent[of_rest]) == "que")
        message = rest.get(sent[of_rest])
        assert (message["count"], message["result"]["cause"]) == (0, "released")
        assert client.ask("ACKJOB", job_id) == 1


def test_no_more_is_taken_than_is_asked_for(tmp_path, broker, queue):
    with running_queue(tmp_path, name="r", **LEASED) as second:
        client = broker.start()
        for number in range(3):
            queue.send(param1=f"p{number}")
            second.send(param1=f"r{number}")
        jobs = client.ask("GETJOB", "COUNT", 4, "FROM", "rq:p", "rq:r")
        assert [body for _, _, body in jobs] == [b"p0", b"r0", b"p1", b"r1"]
        assert (
            len(queue.ok("leases")["leases"]) == len(second.ok("leases")["leases"]) == 2
        )
        rest = client.ask("GETJOB", "COUNT", 100, "FROM", "rq:p", "rq:r", "rq:p")
        assert [body for _, _, body in rest] == [b"p2", b"r2"]
        assert client.ask("ACKJOB", *(job[1] for job in jobs + rest)) == 6
        client.send("GETJOB", "FROM", "rq:p", "rq:r")
        time.sleep(0.2)
        second.send(param1="woken")
        [[name, job_id, _]] = client.answer()
        assert (name, client.ask("ACKJOB", job_id)) == (b"rq:r", 1)


def test_jobs_of_both_kinds_are_acknowledged_together(broker):
    client = broker.start()
    theirs = client.ask("ADDJOB", "own", "b", 0)
    ours = add(client)
    assert (
        len(client.ask("GETJOB", "FROM", "own") + client.ask("GETJOB", "FROM", "rq:p"))
        == 2
    )
    assert client.ask("ACKJOB", theirs, "nonsense").startswith("BADID")
    assert client.ask("DELJOB", theirs, ours).startswith("ERR a message of RQ can be")
    assert client.ask("ACKJOB", theirs, ours) == 2
    assert client.ask("ACKJOB", theirs, ours) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ADDJOB", "rq:", "b", 0), "ERR rq: names no queue of RQ: letters"),
        (("ADDJOB", "rq:../x", "b", 0), "ERR rq:../x names no queue of RQ"),
        (("ADDJOB", "rq:a/b", "b", 0), "ERR rq:a/b names no queue of RQ"),
        (("ADDJOB", b"rq:\xff\0\r\n", "b", 0), "ERR rq:\\xff"),
        (
            ("ADDJOB", "rq:" + "x" * 100_000, "b", 0),
            "ERR a name or a number has at most",
        ),
        (("ADDJOB", "rq:none", "b", 0), "ERR there is no queue none"),
        (("GETJOB", "FROM", "rq:none"), "ERR there is no queue none"),
        (("GETJOB", "FROM", "rq:p", "q"), "ERR name either rq: queues"),
        (
            ("GETJOB", "FROM", *(f"rq:q{n}" for n in range(101))),
            "ERR a command can name",
        ),
        (("ADDJOB", "rq:p", b"\xff", 0), "ERR the body is not UTF-8"),
        (("ADDJOB", "rq:p", "a\0b", 0), "ERR param1 holds a NUL byte"),
        (("ADDJOB", "rq:p", "x" * 3_000_000, 0), "ERR the message is 3000000 bytes"),
        (("ADDJOB", "rq:p", "\1" * 200_000, 0), "ERR the body has 200000 characters"),
        (("ADDJOB", "rq:p", '{"a":' + "[" * 300 + "]" * 300 + "}", 0), "ERR "),
        (
            ("RQ.PUSH", "rq:p", *("b" for _ in range(1001))),
            "ERR a command can be about",
        ),
        (
            ("RQ.ACK", "rq:p", *("1-1" for _ in range(1001))),
            "ERR a command can be about",
        ),
        (("ADDJOB", "rq:p", '{"priority": "high"}', 0), "ERR priority is not"),
        (("ADDJOB", "rq:p", '{"dest": "other"}', 0), "ERR dest is in the body"),
        (("ADDJOB", "rq:p", "b", 0, "RETRY", 0), "ERR RETRY is how long"),
        (("ADDJOB", "rq:p", "b", 0, "REPLICATE", 2), "NOREPL a queue of RQ is on one"),
        (("ADDJOB", "rq:p", "b", 0, "WORD"), "ERR syntax error"),
        (("ADDJOB", "rq:p", '{"due": 1}', 0, "DELAY", 5), "ERR due is in the body"),
        (("PAUSE", "rq:p", "in"), "ERR `rq queue pause NAME`"),
        (("RQ.RECOVER", "rq:p", 1, 0), "ERR what is held"),
        (("RQ.INSPECT", "rq:p", 0, 1), "ERR QPEEK shows"),
        (("DEL", "k", "rq:p"), "ERR a queue of RQ is no key"),
        (("QFLUSH", "rq:p"), "ERR `rq cancel`"),
        (("QNOTIFY", "g", 1, "rq:p"), "ERR QGET"),
        (("QSTATUS", "rq:p"), "ERR QLEN"),
        (("QPEEK", "rq:p", "x"), "ERR value is not an integer"),
        (("QACK", "rq:p", "g", "x"), "ERR invalid ID string"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(shared, words, told):
    answer = shared.ask(*words)
    assert isinstance(answer, Refused), answer
    assert answer.startswith(told), answer
    assert len(answer) < 300
    assert shared.ask("PING") == "PONG"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    with (
        running_queue(path, name="p", **LEASED) as queue,
        broker_in(path, main=SETTINGS) as broker,
    ):
        yield broker.start()
        assert queue.ok("list", {"state": "que"}) == []


def test_options_become_fields_of_the_message(broker, queue):
    client = broker.start()
    now = time.time()
    add(client, '{"param1": "a", "to": "all"}', "DELAY", 100, "TTL", 1000, "RETRY", 7)
    [row] = queue.ok("list", {"state": "que"})
    message = queue.get(row["msg_id"])
    assert abs(message["due"] - now - 100) < 10
    assert abs(message["deadline"] - now - 1000) < 10
    assert (message["lease_seconds"], message["to"]) == (7, "all")
    refused = client.ask("ADDJOB", "rq:p", "b", 0, "MAXLEN", 1)
    assert refused.startswith("MAXLEN")
    assert got(client, "NOHANG", "FROM", "rq:p") == []


def test_a_key_of_the_senders_names_one_message(broker, queue):
    """What is sent again is the same message; another one is not lost in silence."""
    client = broker.start()
    one, other = (json.dumps({"_key": "k", "param1": word}) for word in "ab")
    job_id = add(client, one)
    assert add(client, one) == job_id
    assert client.ask("ADDJOB", "rq:p", other, 0).startswith(
        "ERR the key 'k' came with"
    )
    assert add(client, one, "DELAY", 100) == job_id
    late = add(client, '{"_key": "late"}', "DELAY", 100)
    assert add(client, '{"_key": "late"}', "DELAY", 100) == late
    assert client.ask("QLEN", "rq:p") == 2


def test_a_message_with_more_than_one_field_is_a_json_object(broker, queue):
    client = broker.start()
    queue.send(param1="a", param2=2, to="all")
    [[_, job_id, body]] = client.ask("GETJOB", "FROM", "rq:p")
    assert body == b'{"param1":"a","param2":2,"to":"all"}'
    assert client.ask("ACKJOB", job_id) == 1


def test_a_queue_that_is_down_or_leases_nothing_says_so(tmp_path, broker, queue):
    with running_queue(tmp_path, name="s"):
        client = broker.start()
        assert "hands out no leases" in client.ask("GETJOB", "FROM", "rq:s")
    assert client.ask("GETJOB", "FROM", "rq:s").startswith(
        "ERR queue s does not answer"
    )


def test_a_queue_that_is_down_is_named(broker, queue):
    client = broker.start()
    queue.root.down("p").touch()
    queue.ask("wake")
    wait_until(lambda: client.ask("QLEN", "rq:p") == "PAUSED queue p is DOWN")
    for words in (("ADDJOB", "rq:p", "b", 0), ("RQ.PUSH", "rq:p", "b")):
        assert client.ask(*words) == "PAUSED queue p is DOWN"


def test_a_node_without_an_rq_has_no_such_queues(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        assert client.ask("ADDJOB", "rq:p", "b", 0).startswith(
            "ERR this node runs alone"
        )
        assert client.ask("QLEN", "rq:p").startswith("ERR this node runs alone")
