"""What strangers, and peers that do wrong, can do to the port for other nodes."""

import contextlib
import os
import socket
import time

import pytest
from harness.brokers import nodes_in
from harness.waiting import wait_until

from rq.broker.bus.codec import encode
from rq.broker.bus.frames import MAGIC, PREAMBLE, Opener, Sealer, keys
from rq.broker.cluster.gossip import Greeting, Kind
from rq.broker.cluster.messages import Need

pytestmark = pytest.mark.process
SECRET = b"correct horse battery staple"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two nodes with a secret; a test leaves them linked."""
    directory = tmp_path_factory.mktemp("nodes")
    secret = directory / "secret"
    secret.write_bytes(SECRET + b"\n")
    secret.chmod(0o600)
    with nodes_in(directory, 2, "--secret-file", str(secret)) as nodes:
        nodes.join()
        yield nodes
        assert nodes.all_reach(1)


@contextlib.contextmanager
def stranger(nodes, index=0):
    """Give a connection to a node's port for other nodes."""
    with socket.create_connection(("127.0.0.1", nodes.bus_ports[index])) as sock:
        sock.settimeout(20)
        yield sock


def is_closed(sock):
    """Whether the other side ends the connection, and says nothing more before."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


class Peer:
    """Somebody with a secret who does as nodes do."""

    def __init__(self, sock, secret=SECRET, node_id="55" * 20):
        nonce = os.urandom(32)
        sock.sendall(MAGIC + nonce)
        theirs = _exactly(sock, PREAMBLE)[len(MAGIC) :]
        ours, back = keys(secret, nonce, theirs)
        self.socket, self.sealer, self.opener = sock, Sealer(ours), Opener(back)
        self.hello = self.sealer.seal(bytes.fromhex(node_id))

    def open(self):
        """Prove the secret; return whether the other side did."""
        self.socket.sendall(self.hello)
        return self.payload() is not None

    def payload(self):
        while True:
            data = self.socket.recv(4096)
            if not data:
                return None
            self.opener.feed(data)
            if payload := self.opener.next():
                return payload

    def send(self, message):
        self.socket.sendall(self.sealer.seal(b"\0" + encode(message)))


def _exactly(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "closed"
        data += piece
    return data


def log_of(nodes, index=0):
    return nodes.brokers[index].told()


def test_who_has_the_secret_is_answered(nodes):
    with stranger(nodes) as sock:
        peer = Peer(sock)
        assert peer.open()
        peer.send(Greeting(Kind.PING, 1, 2, False, ()))
        assert peer.payload()[1:2] == encode(Greeting(Kind.PONG, 1, 2, False, ()))[:1]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"*1\r\n$4\r\nPING\r\n", b"\xff"]
)
def test_garbage_is_sent_away_without_a_word(nodes, data):
    with stranger(nodes) as sock:
        sock.sendall(data)
        assert is_closed(sock)


OTHER = "that node speaks version 3 between nodes, this one 2: run the same version"


def test_a_node_of_another_version_is_told_ours_and_the_log_says_why(nodes):

    def is_told():
        with stranger(nodes) as sock:
            sock.sendall(b"RQ-bus-3" + os.urandom(32))
            assert _exactly(sock, PREAMBLE)[: len(MAGIC)] == MAGIC
            assert is_closed(sock)
        return OTHER in log_of(nodes)

    wait_until(is_told)  # there is a line of strangers a second at most


def test_who_meets_a_node_of_another_version_hears_so(nodes):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        port = listener.getsockname()[1]
        assert nodes.ask(1, "CLUSTER", "MEET", "127.0.0.1", 7711, port) == "OK"
        sock, _ = listener.accept()
        with sock:
            _exactly(sock, PREAMBLE)
            sock.sendall(b"RQ-bus-3" + os.urandom(32))
            assert is_closed(sock)
    wait_until(lambda: OTHER in log_of(nodes, 1))


def test_another_secret_is_sent_away_and_gets_no_proof(nodes):
    with stranger(nodes) as sock:
        peer = Peer(sock, b"another secret of some length")
        sock.sendall(peer.hello)
        assert is_closed(sock)


def test_a_hello_that_was_recorded_is_of_no_use(nodes):
    with stranger(nodes) as sock:
        recorded = Peer(sock)
        assert recorded.open()
    with stranger(nodes) as sock:
        sock.sendall(MAGIC + os.urandom(32))
        _exactly(sock, PREAMBLE)
        sock.sendall(recorded.hello)
        assert is_closed(sock)


def test_what_a_node_says_sent_back_to_it_is_of_no_use(nodes):
    with stranger(nodes) as sock:
        sock.sendall(MAGIC + bytes(32))
        sock.sendall(_exactly(sock, PREAMBLE))
        assert is_closed(sock)


def test_a_frame_sent_twice_ends_the_connection_with_a_line(nodes):
    with stranger(nodes) as sock:
        peer = Peer(sock)
        assert peer.open()
        frame = peer.sealer.seal(b"\0" + encode(Greeting(Kind.PONG, 1, 2, False, ())))
        sock.sendall(frame + frame)
        assert is_closed(sock)
    wait_until(lambda: "node=" + "55" * 20 in log_of(nodes))


@pytest.mark.parametrize("size", [0, 2**16 + 1, 2**32 - 1])
def test_a_length_that_cannot_be_ends_the_connection(nodes, size):
    with stranger(nodes) as sock:
        assert Peer(sock).open()
        sock.sendall(size.to_bytes(4, "big"))
        assert is_closed(sock)


@pytest.mark.parametrize("payload", [b"\0\xfe", b"\0", b"\7x", b"\0\x02cut off", b"\2"])
def test_what_is_no_message_ends_the_connection(nodes, payload):
    with stranger(nodes) as sock:
        peer = Peer(sock)
        assert peer.open()
        sock.sendall(peer.sealer.seal(payload))
        assert is_closed(sock)


def test_who_is_no_member_changes_nothing(nodes):
    with stranger(nodes) as sock:
        peer = Peer(sock, node_id="77" * 20)
        assert peer.open()
        peer.send(Need(b"q", 10**6))
        peer.send(Greeting(Kind.PING, 1, 2, False, ()))
        assert peer.payload() is not None
        assert "77" * 20 not in nodes.rows(0)


def test_pieces_of_a_message_without_end_are_not_kept(nodes):
    before = memory(nodes)
    with stranger(nodes) as sock:
        peer = Peer(sock)
        assert peer.open()
        piece = b"\1" + bytes(65535)
        with contextlib.suppress(ConnectionError):
            for _ in range(80 * 16):  # 80 MiB, of what may be 65
                sock.sendall(peer.sealer.seal(piece))
        assert is_closed(sock)
    wait_until(lambda: memory(nodes) - before < 40 * MIB)


def test_a_peer_that_reads_no_answers_costs_little(nodes):
    with stranger(nodes) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer = Peer(sock)
        assert peer.open()
        before = memory(nodes)
        for _ in range(20_000):
            peer.send(Greeting(Kind.PING, 1, 2, False, ()))
        assert nodes.ask(0, "PING") == "PONG"
        assert memory(nodes) - before < 16 * MIB


def test_a_crowd_that_says_nothing_keeps_no_node_out(nodes):
    """Connections that prove nothing are few, and end."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(stranger(nodes)) for _ in range(150)]
        for sock in crowd[:40]:
            sock.sendall(MAGIC)
        assert is_closed(crowd[0])  # the oldest make room
        with stranger(nodes) as sock:
            assert Peer(sock).open()
        began = time.monotonic()
        assert is_closed(crowd[-1])
        assert time.monotonic() - began < 19  # not this test's own patience
    assert nodes.all_reach(1)


def memory(nodes):
    with open(f"/proc/{nodes.brokers[0].process.pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]) * 1024
