"""The broker's pages of a cluster: its nodes, and where the copies of a job are."""

from __future__ import annotations

import pytest
from harness import chromium
from harness.broker import Client
from harness.brokers import nodes_in
from harness.cli import rq
from harness.ports import free_port

from rq.rpc.broker.addresses import address_of


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("a secret of the cluster")
    path.chmod(0o600)
    return path


@pytest.fixture
def other(tmp_path, secret):
    with nodes_in(tmp_path / "nodes", 1, "--secret-file", str(secret)) as nodes:
        yield nodes


@pytest.mark.slow
def test_nodes_and_copies_are_watched(stage, axe, other, secret):
    port, driver, root = free_port(), stage.driver, stage.daemon.root.path
    words = "--secret", secret, "--port", port, "--bus-port", free_port()
    to = f"127.0.0.1:{other.bus_ports[0]}"
    done = rq("broker", "join", to, *words, root=root)
    assert done.returncode == 0, done.stderr
    client = Client(port)
    client.ask("CONFIG", "SET", "cluster-node-timeout", 1000)
    job_id = client.ask("ADDJOB", "mail", "x", 9000, "REPLICATE", 2, "RETRY", 60)
    job = f"/broker/job/{address_of(job_id.encode())}"
    stage.open(job)
    chromium.shows(driver, "was sent a copy", "#copies")
    assert chromium.unfit_for_readers(driver, axe) == {}
    stage.open("/broker")
    chromium.shows(driver, "linked", "#nodes")
    client.ask("CLUSTER", "LEAVING", "yes")
    chromium.shows(driver, "rq broker leave --cancel", "#trouble")
    other.kill(0)
    chromium.shows(driver, "It is alone: it knows 1 other node", "#trouble")
    chromium.shows(driver, "Connection refused", "#nodes")
    assert chromium.unfit_for_readers(driver, axe) == {}
    client.ask("ACKJOB", job_id)
    stage.open(job)
    chromium.shows(driver, "It is acknowledged", "#story")
    chromium.shows(driver, "to be told that it is done", "#copies")
    client.close()
    stage.clean()
