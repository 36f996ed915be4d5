"""What a person is told of a cluster: where copies are, who is alone, leaves, or is open."""

import json

import pytest
from harness.broker import Broker, broker_in
from harness.brokers import TIMEOUT
from harness.cli import rq
from harness.ports import free_port
from harness.waiting import wait_until

from rq.layout import Root
from rq.rpc.broker import health, questions

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "secret"
    path.write_text("a secret of the cluster")
    path.chmod(0o600)
    return path


@pytest.fixture
def pair(tmp_path, secret):
    """A broker of a root, and another node that it knows."""
    bus_ports = free_port(), free_port()
    with broker_in(
        tmp_path / "root",
        bus_port=bus_ports[0],
        secret_file=str(secret),
        node_timeout=int(TIMEOUT * 1000),
    ) as first:
        other = Broker(tmp_path / "other")
        other.words += ["--bus-port", str(bus_ports[1]), "--secret-file", str(secret)]
        client = first.start()
        other.start()
        try:
            client.ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus_ports[1])
            wait_until(lambda: is_linked(rows(first)[-1]))
            yield first, client, other
        finally:
            other.close()


def is_linked(row):
    return row["linked"] and row["linked_back"]


def rows(broker):
    told = rq("broker", "nodes", "--json", root=broker.directory).stdout
    return json.loads(told)


def doctor(broker):
    return rq("doctor", "--quick", root=broker.directory).stdout


def totals(client):
    flat = client.ask("BROKER", "TOTALS")
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_job_tells_where_its_copies_are(pair):
    first, client, other = pair
    job_id = client.ask("ADDJOB", "mail", "x", 9000, "REPLICATE", 2, "RETRY", 60)
    shown = rq("broker", "show", job_id, root=first.directory).stdout
    mine, theirs = (line.split() for line in shown.splitlines()[-2:])
    assert mine[1:] == [f"127.0.0.1:{first.port}", "here", "myself"]
    assert theirs[1:] == [f"127.0.0.1:{other.port}", "was", "sent", "a", "copy"]
    other.kill()
    assert client.ask("ACKJOB", job_id) == 1
    shown = rq("broker", "show", job_id, root=first.directory).stdout
    assert "acked" in shown
    assert "to be told that it is done" in shown.splitlines()[-1]


def test_who_has_too_little_memory_for_new_jobs_is_named(pair):
    first, client, _ = pair
    client.ask("ADDJOB", "mail", "x" * 1000, 9000, "REPLICATE", 2, "RETRY", 60)
    used = totals(client)[b"used_memory"]
    client.ask("CONFIG", "SET", "maxmemory", used * 4 // 3 + 10)
    assert doctor_running(first) == ""
    client.ask("CONFIG", "SET", "maxmemory", used * 4 // 3 - 10)
    assert "that full, it keeps no new job: let" in doctor_running(first)
    refused = client.ask("ADDJOB", "mail", "x", 100, "REPLICATE", 2, "RETRY", 60)
    assert str(refused).startswith("NOREPL")


def test_who_is_alone_or_leaves_is_named(pair):
    first, client, other = pair
    assert doctor_running(first) == ""
    client.ask("CLUSTER", "LEAVING", "yes")
    assert "leaves its cluster, and takes no new jobs: `rq broker leave`" in (
        doctor_running(first)
    )
    other.kill()
    wait_until(lambda: totals(client)[b"linked_nodes"] == 0)
    assert "is alone, and knows 1 other node" in doctor_running(first)
    wait_until(lambda: "Connection refused" in rows(first)[-1]["why"])


def doctor_running(broker):
    """Return what `rq doctor` says of a broker that runs."""
    root = Root(broker.directory)
    found = health.troubles(root, questions.totals(root))
    return "\n".join(each.sentence for each in found)


def test_a_secret_that_others_may_read_is_named(pair, secret):
    first, *_ = pair
    secret.chmod(0o640)
    try:
        named = f"secret_file: others can use {secret}: chmod 600 it"
        assert named in doctor_running(first)
        assert named in doctor(first)  # where it does not run
    finally:
        secret.chmod(0o600)
    assert "secret_file" not in doctor_running(first)
