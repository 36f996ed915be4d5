"""What `rq send` sends, clients of the broker get; what they send, scripts run."""

import json

import pytest
from harness.broker import Client
from harness.cli import rq
from harness.ports import free_port
from harness.waiting import wait_until

pytestmark = pytest.mark.process


def verb(daemon, *words):
    done = rq(*words, root=daemon.root.path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_queue_for_verbs_scripts_and_clients(daemon):
    daemon.start()
    verb(daemon, "queue", "new", "mail", "--pull")
    verb(
        daemon,
        "queue",
        "new",
        "count",
        "--",
        "sh",
        "-c",
        'printf %s "$1"',
        "-",
        "{param1}",
    )
    port = free_port()
    verb(daemon, "broker", "enable", "--port", str(port))
    client = wait_until(lambda: Client(port))
    sent = verb(daemon, "send", "mail", "-p1", "hello", "--id-only").strip()
    [[queue, job_id, body]] = client.ask("GETJOB", "FROM", "rq:mail")
    assert (queue, body) == (b"rq:mail", b"hello")
    assert client.ask("ACKJOB", job_id) == 1
    assert "done" in verb(daemon, "show", sent)
    job_id = client.ask("ADDJOB", "rq:count", "to be printed", 0)
    wait_until(lambda: b"acked" in client.ask("SHOW", job_id))
    [row] = json.loads(verb(daemon, "ls", "count", "--state", "done", "--json"))
    assert "to be printed" in verb(daemon, "logs", row["msg_id"])
    client.close()
