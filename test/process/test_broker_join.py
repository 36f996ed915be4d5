"""`rq broker join`: a host becomes a node with one command, and one sentence says why not."""

import json
import os
import socket
import stat
import subprocess
import sys

import pytest
from harness.broker import broker_in
from harness.brokers import nodes_in
from harness.cli import rq
from harness.ports import free_port
from harness.supervisor import daemon_on

pytestmark = pytest.mark.process
SECRET = "a secret of the cluster\n"


def verb(daemon, *words, **options):
    return rq("broker", *words, root=daemon.root.path, **options)


def rows(daemon):
    return json.loads(verb(daemon, "nodes", "--json").stdout)


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "copy"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, secret):
    """Two nodes that know each other."""
    directory = tmp_path_factory.mktemp("nodes")
    with nodes_in(directory, 2, "--secret-file", str(secret)) as nodes:
        nodes.join()
        yield nodes


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    with daemon_on(tmp_path_factory.mktemp("host") / "root") as daemon:
        daemon.start()
        yield daemon


@pytest.fixture
def host(lasting):
    """A host whose broker was never on."""
    yield lasting
    verb(lasting, "disable")
    for path in (lasting.root.broker_config, lasting.root.broker_secret):
        path.unlink(missing_ok=True)
    subprocess.run(["rm", "-r", "-f", lasting.root.broker], check=True)
    lasting.ask("broker", "accept")  # else it is missed, and held


def own_ports():
    return "--port", free_port(), "--bus-port", free_port()


def joined(host, cluster, secret, *words):
    to = f"127.0.0.1:{cluster.bus_ports[0]}"
    return verb(host, "join", to, "--secret", secret, *words)


def test_a_new_host_becomes_a_node_and_a_second_time_changes_nothing(
    host, cluster, secret
):
    done = joined(host, cluster, secret, *own_ports(), "--json")
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)
    assert {row["id"] for row in nodes[1:]} == set(cluster.ids)
    assert all(row["linked"] and row["linked_back"] for row in nodes)
    kept = host.root.broker_secret
    assert kept.read_text() == SECRET
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert SECRET.strip() not in done.stdout + done.stderr
    config = json.loads(host.root.broker_config.read_text())
    assert (config["bus_addr"], config.get("addr")) == ("127.0.0.1", None)
    pid = host.child("broker")["pid"]
    again = joined(host, cluster, secret)
    assert again.returncode == 0, again.stderr
    assert host.child("broker")["pid"] == pid
    assert len(rows(host)) == 3
    for index in (0, 1):
        cluster.ask(index, "CLUSTER", "FORGET", nodes[0]["id"])


@pytest.mark.slow
def test_the_first_node_makes_a_secret_with_which_the_next_one_joins(host, tmp_path):
    ports = own_ports()
    done = verb(host, "enable", "--cluster", "--bus-addr", "127.0.0.1", *ports)
    assert done.returncode == 0, done.stderr
    secret = host.root.broker_secret
    assert f"copy {secret}" in done.stdout
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text().strip() not in done.stdout
    before = secret.read_bytes()
    assert verb(host, "enable", "--cluster").returncode == 0
    assert secret.read_bytes() == before
    with daemon_on(tmp_path / "root") as other:
        other.start()
        to = f"127.0.0.1:{ports[-1]}"
        words = "broker", "join", to, "--secret", "-", *map(str, own_ports())
        with secret.open() as copy:
            piped = subprocess.run(
                [sys.executable, "-m", "rq.cli", "--root", other.root.path, *words],
                check=False,
                stdin=copy,
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert piped.returncode == 0, piped.stderr
        assert other.root.broker_secret.read_bytes() == before
        assert [len(rows(each)) for each in (host, other)] == [2, 2]


def refused(host, *words):
    """Return why a host does not join; it knows nobody afterwards."""
    done = verb(host, "join", *words)
    assert done.returncode != 0
    [sentence] = [line for line in done.stderr.splitlines() if line[:4] == "rq: "]
    if host.root.broker_config.exists():
        assert len(rows(host)) == 1
    return sentence


@pytest.mark.slow
def test_why_no_node_is_met_is_one_sentence_each(host, cluster, secret, tmp_path):
    given = ("--secret", secret, *own_ports())
    closed = f"127.0.0.1:{free_port()}"
    assert refused(host, closed, *given) == (
        f"rq: no node at {closed}: Connection refused"
    )
    clients = f"127.0.0.1:{cluster.brokers[0].port}"
    assert "is a port for clients: nodes come in 10,000 above" in refused(host, clients)
    own = f"127.0.0.1:{given[-1]}"
    assert refused(host, own) == f"rq: {own} is this node itself: name another one"
    with socket.create_server(("127.0.0.1", 0)) as newer:
        where = f"127.0.0.1:{newer.getsockname()[1]}"
        words = [sys.executable, "-c", _NEWER, str(newer.fileno())]
        with subprocess.Popen(words, pass_fds=[newer.fileno()]) as process:
            assert "speaks version 9 between nodes" in refused(host, where)
            process.kill()
    other = tmp_path / "other"
    other.write_text("another secret of another cluster")
    other.chmod(0o600)
    to = f"127.0.0.1:{cluster.bus_ports[0]}"
    assert refused(host, to, "--secret", other) == (
        f"rq: no node at {to}: it has another secret, or none"
    )


_NEWER = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
while True:
    line, _ = sock.accept()
    line.recv(8)
    line.sendall(b"RQ-bus-9" + bytes(32))
    line.close()
"""


def test_what_is_wrong_here_is_said_before_anything_changes(host, secret, tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.write_text(SECRET)
    open_to_all.chmod(0o644)
    short = tmp_path / "short"
    short.write_text("short")
    short.chmod(0o600)
    for words, why in (
        (("10.0.0.1",), "there is no secret here yet: copy config/broker.secret of"),
        (("10.0.0.1", "--secret", open_to_all), f"others can read {open_to_all}"),
        (("10.0.0.1", "--secret", short), "has 5 bytes, and could be guessed"),
        (("10.0.0.1", "--secret", tmp_path / "none"), "cannot open"),
        (("no such host", "--secret", secret), "is not known here"),
        (("10.0.0.1:port", "--secret", secret), "is no HOST:PORT of a node"),
        (
            ("10.0.0.1", "--secret", secret, "--bus-addr", "127.0.0.1"),
            "which only this host reaches: name another address with --bus-addr",
        ),
        (("10.0.0.1", "--secret", secret, "--port", 60_000), "no port for other nodes"),
    ):
        assert why in refused(host, *words), words
        assert not host.root.broker_config.exists()
        assert not host.root.broker_secret.exists()


def test_a_node_that_the_other_does_not_reach_is_told(host, cluster, secret):
    """It listens at another address of loopback than the one it comes from."""
    to = f"127.0.0.1:{cluster.bus_ports[0]}"
    ports = own_ports()
    said = refused(host, to, "--secret", secret, "--bus-addr", "127.0.0.2", *ports)
    assert said.startswith(
        f"rq: {to} answers, and does not reach this node at 127.0.0.1:{ports[-1]}: open"
    )


def test_without_rq_nothing_is_done(tmp_path, secret):
    done = rq("broker", "join", "127.0.0.1", "--secret", secret, root=tmp_path)
    assert done.returncode == 6
    assert "RQ is not running" in done.stderr
    assert not os.listdir(tmp_path)


def test_another_secret_is_not_taken_while_others_are_known(
    host, cluster, secret, tmp_path
):
    assert joined(host, cluster, secret, *own_ports()).returncode == 0
    other = tmp_path / "other"
    other.write_text("another secret of another cluster")
    other.chmod(0o600)
    done = joined(host, cluster, other)
    assert done.returncode == 4
    assert "knows 2 other nodes, with another secret" in done.stderr
    assert host.root.broker_secret.read_text() == SECRET
    node_id = rows(host)[0]["id"]
    for index in (0, 1):
        cluster.ask(index, "CLUSTER", "FORGET", node_id)


def test_a_node_of_another_version_is_told_which_this_one_is(tmp_path, secret):
    bus_port = free_port()
    with broker_in(tmp_path) as broker:
        broker.words += ["--bus-port", str(bus_port), "--secret-file", str(secret)]
        assert broker.start().ask("PING") == "PONG"  # it is ready
        with socket.create_connection(("127.0.0.1", bus_port)) as newer:
            newer.settimeout(20)
            newer.sendall(b"RQ-bus-9" + bytes(32))
            assert newer.recv(8) == b"RQ-bus-2"
