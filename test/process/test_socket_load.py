"""Greedy clients of the Unix sockets: each costs itself something, nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import acting_as, open_to_others
from harness.queues import RunningQueue, running_queue
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.rpc import client, wire

pytestmark = pytest.mark.process
as_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="it takes root to be two users -> sudo ./test/run_tests.sh process",
)
STRANGER = 4321
PING = wire.request("ping")
# What an owner opens for itself when it comes to it: the journal's next segment and
# the socket to the index. A frame that leaks leaves sixteen or more.
OF_ITS_OWN = 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    open_to_others(path)
    with running_queue(path / "root") as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    assert shared.ask("ping") == ["pong"]
    shared.check()


def open_fds(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.contextmanager
def raw(path: Path) -> Iterator[socket.socket]:
    with client.connect(path, 20) as line:
        yield line


def answer(line: socket.socket) -> object:
    """Return the next reply; None when the other end hangs up without one."""
    with contextlib.suppress(ConnectionResetError):
        head = line.recv(13, socket.MSG_WAITALL)
        if head:
            return json.loads(line.recv(int(head[4:12]), socket.MSG_WAITALL))
    return None


# ---- descriptors that come with frames


def test_a_frame_brings_at_most_sixteen_descriptors(queue):
    before = open_fds(queue.pid)
    with raw(queue.dir.socket) as line, open(os.devnull) as null:
        socket.send_fds(line, [PING], [null.fileno()] * 16)
        assert answer(line) == ["pong"]
        socket.send_fds(line, [PING], [null.fileno()] * 17)
        assert "at most 16 descriptors" in str(answer(line))
        assert answer(line) is None
    wait_until(lambda: open_fds(queue.pid) <= before + OF_ITS_OWN)


def test_a_frame_in_dribs_brings_no_more_descriptors_than_a_whole_one(queue):
    before = open_fds(queue.pid)
    with raw(queue.dir.socket) as line, open(os.devnull) as null:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in wire.frame(b"ping " + b" " * 50):
                socket.send_fds(line, [bytes([byte])], [null.fileno()] * 16)
        assert "at most 16 descriptors" in str(answer(line))
        wait_until(lambda: open_fds(queue.pid) <= before + 1 + OF_ITS_OWN)


def hostile(number: int, fds: list[int], line: socket.socket) -> None:
    """Send the next of many frames that no client should send."""
    kinds = [
        (PING, 1), (PING, 16), (PING, 17), (PING, 253), (PING[:-3], 16),
        (b"x", 16), (wire.request("attach_message", b"{}"), 16),
        (wire.request("attach_message", b"{"), 253), (PING * 3, 8),
    ]  # fmt: skip
    data, count = kinds[number % len(kinds)]
    socket.send_fds(line, [data], (fds * 253)[:count])


def test_ten_thousand_hostile_frames_leave_no_descriptor_behind(queue, tmp_path):
    with contextlib.ExitStack() as stack:
        null = stack.enter_context(open(os.devnull)).fileno()
        directory = os.open(tmp_path, os.O_RDONLY)
        stack.callback(os.close, directory)
        pair = [stack.enter_context(one).fileno() for one in socket.socketpair()]
        fds = [null, directory, *pair]
        before = open_fds(queue.pid)
        for first in range(0, 10_000, 20):
            with raw(queue.dir.socket) as line:
                for number in range(first, first + 20):
                    with contextlib.suppress(OSError):
                        hostile(number, fds, line)
        wait_until(lambda: open_fds(queue.pid) <= before + OF_ITS_OWN)


# ---- many connections


def is_served(path: Path) -> bool:
    return bool(client.ask(path, "ping", timeout=20) == ["pong"])


@as_root
def test_one_user_cannot_take_the_connections_of_others_nor_of_rq(queue):
    with contextlib.ExitStack() as stack:
        with acting_as(STRANGER, 0):
            crowd = [stack.enter_context(raw(queue.dir.socket)) for _ in range(300)]
        mine = client.Connection(queue.dir.socket)
        stack.enter_context(mine)
        assert mine.ask("ping") == ["pong"]
        with acting_as(STRANGER + 1, 0):
            assert is_served(queue.dir.socket)
        with acting_as(STRANGER, 0):
            assert is_served(queue.dir.socket)
        told = [line for line in crowd if "too many" in str(_peek(line))]
        assert len(told) >= 100
        assert mine.ask("ping") == ["pong"]


def _peek(line: socket.socket) -> object:
    line.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return answer(line)
    return None


@as_root
def test_all_others_together_leave_room_for_rqs_own_user(queue):
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(client.Connection(queue.dir.socket))
        assert mine.ask("ping") == ["pong"]
        for number in range(6):
            with acting_as(STRANGER + number, 0):
                for _ in range(190):
                    stack.enter_context(raw(queue.dir.socket))
        assert mine.ask("ping") == ["pong"]
        own = [stack.enter_context(raw(queue.dir.socket)) for _ in range(150)]
        for line in own:
            line.sendall(PING)
        assert [answer(line) for line in own] == [["pong"]] * 150


@as_root
def test_the_supervisor_too_keeps_room_for_rqs_own_user(tmp_path):
    open_to_others(tmp_path)
    with daemon_on(tmp_path / "root") as daemon, contextlib.ExitStack() as stack:
        daemon.start()
        path = daemon.root.supervisor_socket
        for number in range(10):
            with acting_as(STRANGER + number, 0):
                for _ in range(50):
                    stack.enter_context(raw(path))
        for _ in range(20):
            assert daemon.ask("ping") == ["pong"]


# ---- no descriptors left


def starved(queue: RunningQueue) -> Iterator[None]:
    """Let the process of a queue open no descriptor more while the block runs."""
    old = resource.prlimit(queue.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, (3, old[1]))
    try:
        yield
    finally:
        resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, old)


@pytest.mark.slow
def test_a_queue_that_can_take_no_connection_says_so_once_and_does_not_spin(queue):
    said = queue.log().count("connections cannot be accepted")
    with contextlib.contextmanager(starved)(queue):
        waiting = [client.connect(queue.dir.socket, 3.5) for _ in range(5)]
        began = ticks(queue.pid)
        wait_until(lambda: "connections cannot be accepted" in queue.log())
        with pytest.raises(TimeoutError):
            waiting[0].recv(1)
        assert ticks(queue.pid) - began < 100, "more than a second of work"
    for line in waiting:
        line.settimeout(20)
        line.sendall(PING)
        assert answer(line) == ["pong"]
        line.close()
    assert queue.log().count("connections cannot be accepted") == said + 1


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


@pytest.mark.slow
def test_a_supervisor_that_can_take_no_connection_says_so_once(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        for name in ("forks", "scandir", "timers"):
            daemon.until_up(name)
        log = daemon.root.log / "queuemgr.log"
        pid = daemon.process.pid
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, old[1]))
        with client.connect(daemon.root.supervisor_socket, 3.5) as line:
            wait_until(lambda: "connections cannot be accepted" in log.read_text())
            with pytest.raises(TimeoutError):
                line.recv(1)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
            line.settimeout(20)
            line.sendall(PING)
            assert answer(line) == ["pong"]
        assert log.read_text().count("connections cannot be accepted") == 1
        assert "Traceback" not in log.read_text()


# ---- replies that nobody takes


def memory(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def ask_and_take_nothing(line: socket.socket, request: bytes) -> None:
    line.setblocking(False)
    with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
        while True:
            line.send(request)


def test_replies_that_nobody_takes_fill_no_memory(queue):
    for _ in range(20):
        queue.send(due=4e9, param1="x" * 100_000)
    before = memory(queue.pid)
    ask = wire.request("list", b'{"state": "que", "limit": 20}')
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            line = stack.enter_context(raw(queue.dir.socket))
            ask_and_take_nothing(line, ask * 20)
            assert queue.ask("ping") == ["pong"]
        assert memory(queue.pid) - before < 400 * 2**20
    for one in queue.ok("list", {"state": "que", "limit": 100}):
        queue.ok("delete_message", {"msg_id": one["msg_id"]})


def test_a_client_of_the_supervisor_that_takes_no_replies_is_hung_up_on(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        with raw(daemon.root.supervisor_socket) as line:
            ask_and_take_nothing(line, wire.request("status") * 100)
            assert daemon.ask("ping") == ["pong"]
        assert daemon.ask("ping") == ["pong"]
