"""One connection and a client that is greedy, step by step: nothing here waits for time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import SimpleNamespace

import pytest
from gunicorn.config import Config

from rq.web import connection
from rq.web.connection import HEAD_SIZE, Connection
from rq.web.visitors import Visitor, Visitors

ASK = b"%s / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
TURNS = 10_000  # of the loop; far more than anything here takes
NEVER = 3600  # seconds


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIME", NEVER)


class Transport(asyncio.Transport):
    """The other end of nothing: keeps what is written, and whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reads = True
        self.closed = False

    def write(self, data):
        self.written += data

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def can_write_eof(self):
        return False

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


class Talk:
    """A connection before an application."""

    def __init__(self, app) -> None:
        self.transport = Transport()
        self._ends = socket.socketpair()
        cfg = Config()
        cfg.set("keepalive", NEVER)
        cfg.set("timeout", NEVER)
        worker = SimpleNamespace(
            cfg=cfg,
            log=SimpleNamespace(
                access_log_enabled=False, debug=print, warning=print, error=print
            ),
            loop=asyncio.get_running_loop(),
            asgi=app,
            alive=True,
            nr=0,
            nr_conns=0,
            max_requests=1_000_000,
        )
        visitor = Visitor(sock=self._ends[0], place="here")
        self.line = Connection(worker, Visitors(10, 10), visitor)
        self.line.connection_made(self.transport)

    def say(self, data: bytes) -> None:
        self.line.data_received(data)

    async def until(self, condition) -> None:
        for _ in range(TURNS):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came to that")

    async def rest(self) -> None:
        """Let all go on that can."""
        for _ in range(100):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.line.connection_lost(None)
        self.line._task.cancel()
        await asyncio.gather(self.line._task, return_exceptions=True)
        for end in self._ends:
            end.close()


@contextlib.asynccontextmanager
async def talk(app):
    made = Talk(app)
    try:
        yield made
    finally:
        await made.end()


async def say_ok(send) -> None:
    length = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"ok"})


async def body_of(receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request", message
        body += message["body"]
        more = message["more_body"]
    return body


def taking(bodies: list[bytes]):
    """Return an app that notes each request's body and says ok."""

    async def app(scope, receive, send) -> None:
        bodies.append(await body_of(receive))
        await say_ok(send)

    return app


def test_what_is_sent_ahead_is_not_received_until_what_was_asked_is_answered():
    async def check() -> None:
        may_answer = asyncio.Semaphore(0)
        answered = []

        async def app(scope, receive, send):
            await may_answer.acquire()
            await say_ok(send)
            answered.append(scope["path"])

        async with talk(app) as one:
            long = (ASK % b"GET")[:-2] + b"A: %s\r\n\r\n" % (b"x" * 6000)
            number = 100
            one.say(long * number)
            await one.until(lambda: not one.line._ahead)
            assert not one.transport.reads
            for count in range(1, 10):
                may_answer.release()
                await one.until(lambda count=count: len(answered) == count)
                await one.rest()
                assert not one.transport.reads, count
            for _ in range(number):
                may_answer.release()
            await one.until(lambda: len(answered) == number)
            await one.until(lambda: one.transport.reads)

    asyncio.run(check())


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_nothing_is_answered_to_who_takes_no_answers(method):
    async def check() -> None:
        asked = []

        async def app(scope, receive, send):
            asked.append(scope["method"])
            await say_ok(send)

        async with talk(app) as one:
            one.say(ASK % method)
            await one.until(lambda: len(asked) == 1)
            await one.rest()
            one.line.pause_writing()
            one.say(ASK % method)
            await one.rest()
            assert len(asked) == 1
            one.line.resume_writing()
            await one.until(lambda: len(asked) == 2)

    asyncio.run(check())


def test_chunks_of_a_byte_are_read_by_and_by_and_come_whole():
    size = 40_000

    async def check() -> None:
        bodies = []
        async with talk(taking(bodies)) as one:
            one.say(CHUNKED + b"1\r\nx\r\n" * size)
            assert one.line._body_receiver.buffered < size // 2
            assert not one.transport.reads
            await one.until(lambda: one.transport.reads)
            one.say(b"0\r\n\r\n" + ASK % b"GET")
            await one.until(lambda: len(bodies) == 2)
            assert bodies == [b"x" * size, b""]

    asyncio.run(check())


def test_a_body_that_nobody_wants_is_not_read():
    size = 40_000

    async def check() -> None:
        async def app(scope, receive, send):
            await say_ok(send)

        async with talk(app) as one:
            one.say(CHUNKED + b"1\r\nx\r\n" * size)
            await one.until(lambda: one.transport.closed)
            assert one.line._body_receiver.buffered < size // 2

    asyncio.run(check())


@pytest.mark.parametrize("step", [1, 7, 1000, 3000, 10**6])
def test_requests_of_all_kinds_come_in_their_order_however_they_are_cut(step):
    plain = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n"
    said = (
        ASK % b"GET"
        + (CHUNKED + b"3\r\nabc\r\n" * 1500 + b"0\r\n\r\n")
        + (plain + b"p" * 9000)
        + (CHUNKED + b"1388\r\n" + b"c" * 5000 + b"\r\n0\r\n\r\n")
        + ASK % b"GET"
    )

    async def check() -> None:
        bodies = []
        async with talk(taking(bodies)) as one:
            for start in range(0, len(said), step):
                await one.until(lambda: one.transport.reads)
                one.say(said[start : start + step])
            await one.until(lambda: len(bodies) == 5)
            assert bodies == [b"", b"abc" * 1500, b"p" * 9000, b"c" * 5000, b""]
            await one.until(lambda: one.transport.written.count(b" 200 OK\r\n") == 5)

    asyncio.run(check())


@pytest.mark.parametrize("ahead", [b"", ASK % b"GET"])
def test_a_head_has_an_end_however_many_headers_are_allowed(ahead):
    def head(size: int) -> bytes:
        lines = b"".join(b"A%d: %s\r\n" % (n, b"x" * 5000) for n in range(size // 5000))
        return (ASK % b"GET")[:-2] + lines + b"\r\n"

    async def check(size: int) -> bytes:
        async def app(scope, receive, send):
            await say_ok(send)

        async with talk(app) as one:
            one.say(ahead + head(size))
            count = 2 if ahead else 1
            await one.until(lambda: one.transport.written.count(b"HTTP/1.1 ") == count)
            return one.transport.written.rpartition(b"HTTP/1.1 ")[2][:3]

    assert asyncio.run(check(HEAD_SIZE - 6000)) == b"200"
    assert asyncio.run(check(HEAD_SIZE * 3)) == b"431"


def test_a_length_with_more_digits_than_a_number_may_have_is_refused():
    async def check() -> None:
        async with talk(taking([])) as one:
            length = b"Content-Length: " + b"9" * 5000
            one.say(ASK[:-2].replace(b"%s", b"POST") + length + b"\r\n\r\n")
            await one.until(lambda: one.transport.closed)
            assert one.transport.written.startswith(b"HTTP/1.1 400 ")

    asyncio.run(check())


def test_a_connection_that_was_lost_holds_nothing_of_what_came():
    async def check() -> None:
        async def app(scope, receive, send):
            await asyncio.Event().wait()

        async with talk(app) as one:
            one.say(ASK % b"GET" * 10_000)
            assert one.line._http1_buffered() > 100_000
            one.line.connection_lost(None)
            assert one.line._http1_buffered() == 0

    asyncio.run(check())
