"""The door of the web: who comes in, how long they may take, and who gives way."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys

import pytest
from harness.waiting import wait_until
from harness.web_door import GET, Door, door, read_all

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with door(tmp_path_factory.mktemp("door")) as made:
        yield made


# ---- who it is


def test_every_request_carries_who_owns_its_connection(plain):
    assert plain.told()["uid"] == os.geteuid()
    with plain.line() as line:
        for _ in range(3):
            line.sendall(GET)
            assert f'"uid": {os.geteuid()},'.encode() in line.recv(65536)


def test_what_a_proxy_adds_is_left_in_the_request_and_changes_nothing(plain):
    told = plain.told(
        X_Forwarded_For="192.0.2.1", X_Forwarded_Proto="https", Forwarded="for=x"
    )
    assert (told["client"], told["scheme"]) == ("127.0.0.1", "http")
    names = [name for name, _ in told["headers"]]
    assert {"x-forwarded-for", "x-forwarded-proto", "forwarded"} <= set(names)


@pytest.mark.parametrize("version", ["13", "7"])
def test_a_websocket_handshake_is_refused_before_the_application(plain, version):
    with plain.line() as line:
        line.sendall(
            b"GET /a HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: " + version.encode() + b"\r\n\r\n"
        )
        answer = read_all(line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"RQ does not speak WebSocket" in answer


def test_http2_is_not_spoken_in_the_clear(plain):
    with plain.line() as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9)
        assert read_all(line).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))


def test_a_client_that_offers_http2_is_answered_in_http1(plain):
    """Java's client offers it with every request; curl with --http2."""
    with plain.line() as line:
        line.sendall(
            b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
        )
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")


# ---- how long they may take


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with door(tmp_path_factory.mktemp("hasty"), {"HEAD_TIME": 2}) as made:
        yield made


def until_closed_for_silence(door: Door) -> None:
    """Let as much time pass as a head may take."""
    with door.line() as silent:
        assert read_all(silent) == b""


@pytest.mark.slow
def test_a_byte_now_and_then_puts_no_end_off(hasty):
    with hasty.line() as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: ")

        def answered() -> bool:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                line.send(b"x")
            with contextlib.suppress(BlockingIOError):
                got.append(line.recv(65536))
            return bool(got)

        got: list[bytes] = []
        line.setblocking(False)
        wait_until(answered)
    assert got[0].startswith(b"HTTP/1.1 408 ")
    assert b"did not come within" in got[0]


@pytest.mark.slow
def test_the_head_of_a_later_request_has_no_more_time_than_the_first(hasty):
    with hasty.line() as line:
        line.sendall(GET)
        assert b" 200 " in line.recv(65536)
        line.sendall(b"GET /b HTTP/1.1\r\n")
        assert read_all(line).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_half_a_request_sent_ahead_has_no_more_time(hasty):
    with hasty.line() as line:
        line.sendall(GET + b"GET /b HTTP/1.1\r\n")
        answers = read_all(line)
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answers


@pytest.mark.slow
def test_an_idle_connection_may_stay_longer_than_a_head_may_take(hasty):
    with hasty.line() as line:
        line.sendall(GET)
        assert b" 200 " in line.recv(65536)
        until_closed_for_silence(hasty)
        line.sendall(GET)
        assert b" 200 " in line.recv(65536)


@pytest.mark.slow
def test_a_slow_upload_may_take_longer_than_a_head(hasty):
    with hasty.line() as line:
        line.sendall(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello")
        until_closed_for_silence(hasty)
        line.sendall(b"hello")
        assert b'"length": 10' in line.recv(65536)


@pytest.mark.slow
def test_a_body_that_stands_still_counts_as_broken_off(tmp_path):
    with door(tmp_path, {"BODY_TIME": 3}) as made, made.line() as line:
        line.sendall(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello")
        answer = read_all(line)
    assert b'"length": 5' in answer
    assert b'"ended": "http.disconnect"' in answer


@pytest.mark.slow
def test_who_takes_nothing_of_an_answer_is_left(tmp_path):
    with door(tmp_path, {"STALL_TIME": 0.2}) as made:
        with made.line() as line:
            line.sendall(GET)
            assert b" 200 " in line.recv(65536)  # it has opened what it keeps
            with_one = made.descriptors()
        wait_until(lambda: made.descriptors() < with_one)
        before = made.descriptors()
        with made.line() as line:
            wait_until(lambda: made.descriptors() != before)
            line.sendall(b"GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            wait_until(lambda: made.descriptors() == before)
            assert len(read_all(line)) < 20_000_000


def test_two_hundred_slow_heads_keep_nobody_out(plain):
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            line = stack.enter_context(plain.line())
            line.sendall(b"GET / HTTP/1.1\r\n")
        assert plain.told()["uid"] == os.geteuid()


# ---- how many there may be


def test_four_hundred_idle_connections_are_all_kept(plain):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(plain.line()) for _ in range(400)]
        for _ in range(2):
            for line in lines:
                line.sendall(GET)
            assert all(b" 200 " in line.recv(65536) for line in lines)


def busy(stack: contextlib.ExitStack, door: Door, number: int) -> list[socket.socket]:
    """Return connections that are all being answered."""
    lines = [stack.enter_context(door.line()) for _ in range(number)]
    for line in lines:
        line.sendall(
            b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert b" 100 " in line.recv(100)
    return lines


@pytest.mark.slow
def test_idle_connections_give_way_to_new_ones_the_longest_idle_first(tmp_path):
    with door(tmp_path, web_connections=16) as made, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(made.line()) for _ in range(8)]
        for line in lines:
            line.sendall(GET)
            assert b" 200 " in line.recv(65536)
        lines[0].sendall(GET)
        assert b" 200 " in lines[0].recv(65536)
        for _ in range(3):
            stack.enter_context(made.line())
        assert all(read_all(line) == b"" for line in lines[1:4])
        for line in (lines[0], *lines[4:]):
            line.sendall(GET)
            assert b" 200 " in line.recv(65536)


@pytest.mark.slow
def test_who_finds_no_room_is_told_so_and_has_it_later(tmp_path):
    with door(tmp_path, web_connections=16) as made, contextlib.ExitStack() as stack:
        lines = busy(stack, made, 8)
        with made.line() as one_more:
            one_more.sendall(GET)
            answer = read_all(one_more)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"web_connections" in answer
        assert b"Retry-After: 1" in answer
        assert made.is_full()
        assert made.log().count("no connection is free") == 1
        lines[0].sendall(b"x")
        assert b" 200 " in lines[0].recv(65536)
        wait_until(lambda: not made.is_full())


@pytest.mark.slow
def test_strangers_who_send_bodies_slowly_give_way_to_others(tmp_path):
    with door(tmp_path, web_connections=16) as made, contextlib.ExitStack() as stack:
        for _ in range(8):
            line = stack.enter_context(made.line())
            line.sendall(b"POST /stranger HTTP/1.1\r\nHost: h\r\n")
            line.sendall(b"Content-Length: 9999\r\n\r\nx")
        assert made.told()["path"] == "/"
        assert not made.is_full()


STRANGER = """
import os, socket, sys
os.setuid(4321)
line = socket.socket()
line.connect(("127.0.0.1", int(sys.argv[1])))
line.sendall(b"GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
sys.stdout.write(line.recv(65536).decode())
"""


def test_one_user_does_not_keep_another_out(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else -> run the tests as root")
    with door(tmp_path, web_connections=16) as made, contextlib.ExitStack() as stack:
        busy(stack, made, 8)
        assert made.is_full()
        words = [sys.executable, "-c", STRANGER, str(made.port)]
        answer = subprocess.check_output(words, text=True)
        assert answer.startswith("HTTP/1.1 200 ")
        assert '"uid": 4321' in answer


@pytest.mark.slow
def test_there_are_never_more_connections_than_descriptors_allow(tmp_path):
    changes = {"DESCRIPTORS": 128}  # 64 for other things: 32 connections, 16 of one
    with door(tmp_path, changes) as made, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(made.line()) for _ in range(100)]
        for line in lines[-16:]:
            line.sendall(GET)
            assert b" 200 " in line.recv(65536)
        assert len(made.descriptors()) < 64
        assert "connections wait" not in made.log()


@contextlib.contextmanager
def no_descriptors(made: Door):
    """Let the process that accepts have no more descriptors than it has."""
    worker = made.worker()
    used = made.descriptors()
    free = min(set(range(len(used) + 1)) - used)
    limit = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (free, limit[1]))
    yield
    resource.prlimit(worker, resource.RLIMIT_NOFILE, limit)


@pytest.mark.slow
def test_without_descriptors_clients_are_told_and_the_log_says_it_once(tmp_path):
    with door(tmp_path) as made, contextlib.ExitStack() as stack:
        lines = busy(stack, made, 3)
        with no_descriptors(made):
            wait_until(made.is_full)
            assert all(made.is_full() for _ in range(5))
            log = made.log()
            assert log.count("connections wait: Too many open files (EMFILE)") == 1, log
            assert "Traceback" not in log
            lines[0].sendall(b"x")
            assert b" 200 " in lines[0].recv(65536)
        wait_until(lambda: not made.is_full())


@pytest.mark.slow
def test_without_descriptors_nobody_waits_for_who_says_nothing(tmp_path):
    with door(tmp_path) as made, contextlib.ExitStack() as stack:
        lines = busy(stack, made, 3)
        with no_descriptors(made):
            wait_until(made.is_full)
            for _ in range(3):
                silent = stack.enter_context(made.line())
                assert b" 503 " in read_all(silent)
            lines[0].sendall(b"x")
            assert b" 200 " in lines[0].recv(65536)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ENFILE", "ENOMEM", "ENOBUFS", "EPROTO"])
def test_when_nobody_can_be_accepted_for_a_while_they_wait(tmp_path, error):
    if shutil.which("strace") is None:
        pytest.skip("strace is missing -> apt-get install strace")
    inject = f"inject=accept4:error={error}:when=1..3"
    strace = ("strace", "-D", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", inject)
    with door(tmp_path, None, *strace) as made:
        wait_until(lambda: not made.is_full())
        assert made.log().count("connections wait") == (error != "EPROTO")
        assert "Traceback" not in made.log()
