"""Many connections to one server, each with a dialogue of its own, all in one thread.

A dialogue is a generator: it gives requests and is sent their answers. The client knows
that an answer is whole by its lines, which costs less than to read it.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Request(NamedTuple):
    """Bytes to send, and how many lines answer them."""

    data: bytes
    lines: int


Dialogue = Generator[Request, bytes, None]


@dataclass(slots=True)
class Outcome:
    """What was measured of a server."""

    requests: int = 0
    seconds: float = 0.0
    cpu: float = 0.0  # seconds of the server
    took: list[float] = field(default_factory=list)  # seconds of each request


@dataclass(slots=True)
class _Line:
    sock: socket.socket
    dialogue: Dialogue
    missing: int = 0  # lines of the answer
    parts: list[bytes] = field(default_factory=list)
    asked: float = 0.0


def hold(port: int, pid: int, dialogues: Sequence[Dialogue]) -> Outcome:
    """Go through all dialogues side by side, a connection each. SystemExit: the server
    answers with an error."""
    with select.epoll() as epoll:
        lines = [_Line(_connected(port), dialogue) for dialogue in dialogues]
        by_fd = {line.sock.fileno(): line for line in lines}
        for fd in by_fd:
            epoll.register(fd, select.EPOLLIN)
        outcome, cpu, begun = Outcome(), cpu_of(pid), time.perf_counter()
        left = sum(_ask(line, None) for line in lines)
        while left:
            for fd, _ in epoll.poll():
                left -= not _go_on(by_fd[fd], outcome)
        outcome.seconds = time.perf_counter() - begun
        outcome.cpu = cpu_of(pid) - cpu
        for line in lines:
            line.sock.close()
    return outcome


def _connected(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _go_on(line: _Line, outcome: Outcome) -> bool:
    """Take what came; return whether the dialogue goes on."""
    data = line.sock.recv(1024 * 1024)
    if not data or (not line.parts and data[:1] == b"-"):
        raise SystemExit(f"the server says {data[:200]!r}")
    line.parts.append(data)
    line.missing -= data.count(b"\n")
    if line.missing > 0:
        return True
    outcome.took.append(time.perf_counter() - line.asked)
    outcome.requests += 1
    answer = data if len(line.parts) == 1 else b"".join(line.parts)
    line.parts.clear()
    return _ask(line, answer)


def _ask(line: _Line, answer: bytes | None) -> bool:
    """Send the next request; False: the dialogue is at its end."""
    dialogue = line.dialogue
    try:
        request = next(dialogue) if answer is None else dialogue.send(answer)
    except StopIteration:
        return False
    line.missing = request.lines
    line.asked = time.perf_counter()
    line.sock.sendall(request.data)
    return True


def repeated(data: bytes, lines: int, times: int) -> Dialogue:
    """The same request, one after the other."""
    request = Request(data, lines)
    for _ in range(times):
        yield request


def cpu_of(pid: int) -> float:
    """Return the seconds that a process has run, in all its threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        stat = Path(f"/proc/{pid}/task/{task}/schedstat").read_text()
        total += int(stat.split()[0])
    return total / 1e9


def command(*words: bytes) -> bytes:
    """Return a command of the Redis protocol as its bytes."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))
