"""Who holds the other end of a connection over loopback: real sockets, real users."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.waiting import wait_until

from rq.access import kernel

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="inet_diag is Linux's"),
]

OTHER = 4321  # a uid that nobody has
NOBODY = 65534  # stands for all users that a namespace does not know
CLIENT = """
import os, socket, sys
host, port, source, deed, user = sys.argv[1:]
os.setuid(int(user))  # here, for another user may not read this Python
sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if int(source):
    sock.bind(("", int(source)))
sock.connect((host, int(port)))
sock.sendall(b"hello")
if deed == "close":
    sock.close()
elif deed == "half-close":
    sock.shutdown(socket.SHUT_WR)
elif deed == "reset":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0" + bytes(4))
    sock.close()
print("done", flush=True)
sys.stdin.read()
"""
ASK = """
import socket, sys
from rq.access import kernel
print(kernel.in_container(), kernel.owner_of_peer(socket.socket(fileno=int(sys.argv[1]))))
"""


@contextlib.contextmanager
def client(
    port: int, deed: str = "stay", host: str = "127.0.0.1", **how: int
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that connects, perhaps as another user, and stays."""
    user = how.get("user", os.geteuid())
    words = [host, str(port), str(how.get("source", 0)), deed, str(user)]
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::"
    with socket.create_server((host, 0), family=family, dualstack_ipv6=both) as sock:
        yield sock


def owner(listener: socket.socket) -> int | None:
    with listener.accept()[0] as sock:
        return kernel.owner_of_peer(sock)


def ask_elsewhere(sock: socket.socket, *command: str, prepare: str = "") -> str:
    """Ask for the owner in a process that `command` puts somewhere else."""
    return subprocess.check_output(
        [*command, sys.executable, "-c", prepare + ASK, str(sock.fileno())],
        pass_fds=[sock.fileno()],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        text=True,
    ).strip()


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else -> run the tests as root")


def test_the_owner_of_a_connection_is_who_made_it():
    with listening() as door, client(door.getsockname()[1]):
        assert owner(door) == os.geteuid()


@pytest.mark.parametrize(
    ("door", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.5"),
        ("::1", "::1"),
        ("::", "::1"),
        ("::", "127.0.0.1"),
        ("::", "::ffff:127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_another_user_is_told_from_us_at_every_kind_of_loopback(door, host):
    need_root()
    with listening(door) as listener:
        port = listener.getsockname()[1]
        with client(port, host=host, user=OTHER):
            assert owner(listener) == OTHER
        with client(port, host=host):
            assert owner(listener) == 0


@pytest.mark.parametrize("deed", ["close", "half-close", "reset"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_who_has_sent_and_closed_is_nobody_and_above_all_not_root(deed, host):
    need_root()
    with (
        listening("::") as door,
        client(door.getsockname()[1], deed, host, user=OTHER),
    ):
        assert owner(door) is None


def test_who_has_ended_is_nobody():
    need_root()
    with listening() as door:
        with client(door.getsockname()[1], user=OTHER) as process:
            process.kill()
            process.wait()
        assert owner(door) is None


def test_a_connection_that_lay_waiting_is_not_of_who_took_its_port_since():
    need_root()
    with listening() as door:
        port, source = door.getsockname()[1], free_port()
        with client(port, "reset", source=source, user=OTHER):
            pass
        with client(port, source=source):  # root's, with the same four values
            assert owner(door) is None
            assert owner(door) == 0


def test_a_port_that_is_taken_while_we_ask_is_seen(monkeypatch):
    need_root()
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(listening())
        line = stack.enter_context(socket.socket())
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind(("127.0.0.1", free_port()))
        line.connect(door.getsockname())
        sock = stack.enter_context(door.accept()[0])
        ask, source = kernel._ask, line.getsockname()[1]

        def after_another_took_the_port(*ends: object) -> int | None:
            line.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            line.close()
            stack.enter_context(
                client(door.getsockname()[1], source=source, user=OTHER)
            )
            uid = ask(*ends)
            assert uid == OTHER
            return uid

        monkeypatch.setattr(kernel, "_ask", after_another_took_the_port)
        assert kernel.owner_of_peer(sock) is None


def test_the_overflow_uid_is_nobody():
    need_root()
    with listening() as door, client(door.getsockname()[1], user=NOBODY):
        assert owner(door) is None


def test_a_listener_with_the_port_of_the_peer_is_not_the_peer():
    need_root()
    with listening() as door:
        port, source = door.getsockname()[1], free_port()
        with client(port, "reset", source=source, user=OTHER):
            sock, _ = door.accept()
        with sock, socket.create_server(("127.0.0.1", source)):
            assert kernel.owner_of_peer(sock) is None


def test_a_connection_beyond_loopback_and_a_unix_socket_have_no_owner():
    one, other = socket.socketpair()
    with one, other:
        assert kernel.owner_of_peer(one) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing; picks our address
        own = probe.getsockname()[0]
    if own in ("0.0.0.0", "127.0.0.1"):
        pytest.skip("this machine has no address but loopback -> ip link")
    with listening("0.0.0.0") as door, client(door.getsockname()[1], host=own):
        assert owner(door) is None


def test_a_socket_that_is_passed_on_stays_its_makers():
    """So who hands a connection to another user lends out who they are."""
    need_root()
    ours, theirs = socket.socketpair()
    make = """
import os, socket, sys
os.setuid(int(sys.argv[3]))
made = socket.socket()
made.connect(("127.0.0.1", int(sys.argv[1])))
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"x"], [made.fileno()])
"""
    with listening() as door, ours, theirs:
        words = [str(door.getsockname()[1]), str(theirs.fileno()), str(OTHER)]
        subprocess.run(
            [sys.executable, "-c", make, *words],
            pass_fds=[theirs.fileno()],
            check=True,
        )
        (passed,) = socket.recv_fds(ours, 1, 1)[1]
        with socket.socket(fileno=passed):
            assert owner(door) == OTHER


SAME_VALUES = """
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
theirs = socket.socket(fileno=os.dup(int(sys.argv[1])))
door = socket.create_server(theirs.getsockname())
line = socket.create_connection(door.getsockname(), source_address=theirs.getpeername())
"""


def test_the_same_four_values_in_another_network_are_not_asked_for():
    need_root()
    with listening() as door, client(door.getsockname()[1], user=OTHER):
        sock, _ = door.accept()
        with sock:
            told = ask_elsewhere(sock, "unshare", "-n", prepare=SAME_VALUES)
    assert told == "False None"


@pytest.mark.parametrize(
    "command",
    [
        ("unshare", "-pf", "--mount-proc"),
        ("unshare", "-U", "--map-root-user"),
        ("env", "container=podman"),
        ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"),
    ],
)
def test_in_a_container_uids_name_nobody(command):
    need_root()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is missing -> apt-get install util-linux")
    with listening() as door, client(door.getsockname()[1]):
        sock, _ = door.accept()
        with sock:
            assert ask_elsewhere(sock, *command).startswith("True")


def test_what_the_kernel_answers_is_checked():
    peer, ours = (b"\x7f\0\0\x01", 1000), (b"\x7f\0\0\x01", 2000)
    ends = struct.pack("!HH16s16s", 1000, 2000, peer[0], ours[0])

    def answer(**other: int) -> bytes:
        values = {"state": 1, "uid": 5, "inode": 9, "kind": 20, "seq": 1, "to": 77}
        values.update(other)
        head = (values.get("length", 88), values["kind"], 0, values["seq"])
        return struct.pack("=IHHII", *head, values["to"]) + struct.pack(
            "=BBBB48sIIIII",
            *(socket.AF_INET, values["state"], 0, 0, ends, 0, 0, 0),
            *(values["uid"], values["inode"]),
        )

    def uid(data: bytes) -> int | None:
        return kernel._uid(data, 77, (peer, ours))

    assert uid(answer()) == 5
    assert uid(answer(state=6, uid=0, inode=0)) is None  # TIME_WAIT
    assert uid(answer(state=10)) is None  # LISTEN
    assert uid(answer(inode=0)) is None
    assert uid(answer(kind=2)) is None  # NLMSG_ERROR
    assert uid(answer(seq=2)) is None
    assert uid(answer(to=78)) is None
    assert uid(answer(length=40)) is None
    assert uid(answer(length=4096)) is None
    assert kernel._uid(answer(), 77, (ours, peer)) is None


def test_the_answer_costs_no_descriptor():
    with listening() as door, client(door.getsockname()[1]):
        sock, _ = door.accept()
        with sock:
            before = len(os.listdir("/proc/self/fd"))
            assert kernel.owner_of_peer(sock) == os.geteuid()
            wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)
