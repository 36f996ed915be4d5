"""Sockets that share an epoll: all bytes go both ways, and the end is told of once."""

import asyncio
import socket

import pytest

from rq.broker.clients import sockets

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sockets.IS_HERE, reason="no epoll -> Linux"),
]


class Mark(asyncio.BufferedProtocol):
    """Takes down what it is told, and says all it hears again."""

    def __init__(self):
        self.heard, self.words = bytearray(), []
        self.over = asyncio.get_running_loop().create_future()
        self._piece = bytearray(1000)

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(high=100_000)

    def get_buffer(self, sizehint):
        return self._piece

    def buffer_updated(self, nbytes):
        self.heard += self._piece[:nbytes]
        if b"fail" in self._piece[:nbytes]:
            raise RuntimeError("by design")
        self.transport.write(bytes(self._piece[:nbytes]))

    def pause_writing(self):
        self.words.append("pause")

    def resume_writing(self):
        self.words.append("resume")

    def connection_lost(self, exc):
        self.words.append("lost")
        self.over.set_result(exc)


async def served(work):
    """Do something with both ends of a connection; return the protocol at its end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.setblocking(False)
    together = sockets.Sockets(loop, lambda: None, lambda: None)
    protocol = Mark()
    together.serve(ours, protocol)
    try:
        await asyncio.wait_for(work(protocol, theirs), 20)
        await asyncio.wait_for(protocol.over, 20)
    finally:
        theirs.close()
        together.close()
    assert ours.fileno() == -1
    return protocol


def test_more_than_the_kernel_takes_goes_out_whole_before_the_end():
    data = bytes(range(256)) * 20_000

    async def work(protocol, theirs):
        protocol.transport.write(data)
        assert 0 < protocol.transport.get_write_buffer_size() < len(data)
        protocol.transport.close()
        got = b""
        while piece := await asyncio.get_running_loop().sock_recv(theirs, 65536):
            got += piece
        assert got == data

    protocol = asyncio.run(served(work))
    assert protocol.words == ["pause", "resume", "lost"]


def test_what_is_said_is_heard_until_the_other_end_closes():
    async def work(protocol, theirs):
        loop = asyncio.get_running_loop()
        for word in (b"one", b"x" * 5000):
            await loop.sock_sendall(theirs, word)
            got = b""
            while len(got) < len(word):
                got += await loop.sock_recv(theirs, 65536)
            assert got == word
        theirs.close()

    protocol = asyncio.run(served(work))
    assert protocol.heard == b"one" + b"x" * 5000
    assert protocol.words == ["lost"]


def test_nothing_is_read_while_reading_is_paused():
    async def work(protocol, theirs):
        protocol.transport.pause_reading()
        await asyncio.get_running_loop().sock_sendall(theirs, b"later")
        await asyncio.sleep(0.05)
        assert protocol.heard == b""
        protocol.transport.resume_reading()
        assert await asyncio.get_running_loop().sock_recv(theirs, 9) == b"later"
        protocol.transport.abort()
        protocol.transport.abort()

    assert asyncio.run(served(work)).words == ["lost"]


def test_a_protocol_that_fails_loses_its_own_client_alone():
    async def work(protocol, theirs):
        await asyncio.get_running_loop().sock_sendall(theirs, b"fail")

    protocol = asyncio.run(served(work))
    assert isinstance(protocol.over.result(), RuntimeError)
