"""Nodes talk over TLS where `bus_tls` says so, and nobody stands between them."""

import contextlib
import json
import socket
import ssl
import threading

import pytest
from harness.broker import Broker
from harness.certificates import certify
from harness.cli import rq
from harness.ports import free_port
from harness.waiting import wait_until

pytestmark = pytest.mark.process
SECRET = "a secret of the cluster"


class Host:
    """A broker of a root, with a port for nodes."""

    def __init__(self, place, **settings):
        place.mkdir()
        (place / "secret").write_text(SECRET)
        (place / "secret").chmod(0o600)
        self.bus_port, self.root = free_port(), place
        self.broker = Broker(
            place, bus_port=self.bus_port, secret_file="secret", **settings
        )
        self.client = self.broker.start()
        assert self.client.ask("PING") == "PONG"  # it is ready

    def meet(self, bus_port):
        return self.client.ask("CLUSTER", "MEET", "127.0.0.1", 7, bus_port)

    def row(self):
        """Return how the other node is seen; None: there is none."""
        told = rq("broker", "nodes", "--json", root=self.root).stdout
        return next(iter(json.loads(told)[1:]), None)


@pytest.fixture
def start(tmp_path):
    """Give a function that starts a host, with a certificate of its own if it says."""
    with contextlib.ExitStack() as stack:

        def begin(name, *, tls):
            place = tmp_path / f"certificate-{name}"
            place.mkdir()
            given = {"bus_tls": certify(place, 1)} if tls else {}
            host = Host(tmp_path / name, **given)
            stack.callback(host.broker.close)
            return host

        yield begin


def test_two_nodes_with_certificates_of_their_own_talk_over_tls(start):
    first, second = start("first", tls=True), start("second", tls=True)
    assert first.meet(second.bus_port) == "OK"
    wait_until(lambda: (row := first.row()) and row["linked"] and row["linked_back"])
    job_id = first.client.ask("ADDJOB", "mail", "x" * 600_000, 9000, "REPLICATE", 2)
    assert job_id.startswith("D-")
    assert second.client.ask("SHOW", job_id)[-1] == b"x" * 600_000
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", second.bus_port)) as plain,
        context.wrap_socket(plain) as sock,
    ):
        assert sock.version() == "TLSv1.3"


def test_a_node_without_tls_is_refused_with_a_sentence_on_both_sides(start):
    first, second = start("first", tls=True), start("second", tls=False)
    assert first.meet(second.bus_port) == "OK"
    wait_until(lambda: "does not speak TLS" in why(first))
    wait_until(lambda: "it speaks TLS, and this node does not" in second.broker.told())
    assert second.meet(first.bus_port) == "OK"
    wait_until(lambda: "that speaks TLS (`bus_tls`)" in why(second))
    wait_until(lambda: "it does not speak TLS: set `bus_tls`" in first.broker.told())


def why(host):
    row = host.row()
    return "" if row is None else row["why"]


def test_whoever_stands_between_two_nodes_is_found_out(start, tmp_path):
    """It has a certificate of its own, and passes on what both say."""
    first, second = start("first", tls=True), start("second", tls=True)
    place = tmp_path / "between"
    place.mkdir()
    files = certify(place, 2)
    with between(files, second.bus_port) as (port, passed):
        assert first.meet(port) == "OK"
        wait_until(lambda: "it has another secret" in why(first))
    assert b"RQ-bus-" in passed[0]  # both did talk through it
    assert second.row() is None
    assert "it has another secret" in second.broker.told()


@contextlib.contextmanager
def between(files, to):
    """Give a port that passes on TLS to another one, and what came there first."""
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(files["cert"], files["key"])
    theirs = ssl.create_default_context()
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    passed: list[bytes] = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with contextlib.suppress(OSError):
                    pass_on(sock)

    def pass_on(plain):
        """A node speaks, the other answers, and the first one proves who it is."""
        with (
            ours.wrap_socket(plain, server_side=True) as here,
            socket.create_connection(("127.0.0.1", to), 20) as line,
            theirs.wrap_socket(line) as there,
        ):
            for one, other in ((here, there), (there, here), (here, there)):
                one.settimeout(5)
                data = one.recv(4096)
                passed.append(data)
                other.sendall(data)
            there.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], passed
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def test_strangers_who_begin_no_handshake_do_not_keep_a_node_out(start):
    first, second = start("first", tls=True), start("second", tls=True)
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            where = "127.0.0.1", second.bus_port
            stack.enter_context(socket.create_connection(where))
        assert first.meet(second.bus_port) == "OK"
        wait_until(lambda: (row := first.row()) and row["linked_back"])


def test_tls_without_files_is_one_sentence(tmp_path):
    broker = Broker(tmp_path / "root", bus_tls=True, bus_port=free_port())
    try:
        broker.begin()
        assert broker.process.wait(20) == 3
        assert "bus_tls: there is no `tls` whose files" in broker.told()
    finally:
        broker.close()
