"""Asks the broker of a root over its Unix socket, as a client of the Redis protocol does."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rq import client, resp
from rq.errors import BadInput, OutcomeUnknown, Unreachable
from rq.layout import Root
from rq.resp import Answers, Failure, Missing, Value

_PIECE = 256 * 1024  # bytes read at a time
TIMEOUT = 10.0  # seconds


def ask(root: Root, *words: str | bytes, timeout: float = TIMEOUT) -> Value:
    """Return the broker's answer to one command. Unreachable: it does not run. BadInput:
    it refuses, and why. OutcomeUnknown: no answer came in time."""
    data = [word if isinstance(word, bytes) else word.encode() for word in words]
    try:
        with client.connect(root.broker_socket, timeout) as sock:
            sock.sendall(resp.encode(data, 2))
            answer = _answer(sock, time.monotonic() + timeout)
    except TimeoutError:
        raise OutcomeUnknown(f"the broker gave no answer in {timeout:.0f} s") from None
    except (Unreachable, OSError):
        raise Unreachable(
            "the broker does not answer: see `rq broker status`"
        ) from None
    if isinstance(answer, Failure):
        raise BadInput(f"the broker refuses: {answer.text}")
    return answer


def _answer(sock: socket.socket, end: float) -> Value:
    answers = Answers()
    while isinstance(answer := answers.next(), Missing):
        sock.settimeout(max(0.001, end - time.monotonic()))
        piece = sock.recv(_PIECE)
        if not piece:
            raise ConnectionResetError(0, "it has closed the connection")
        answers.feed(piece)
    return answer


# ---- what it tells of itself


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of the broker."""

    dialect: str
    name: str  # bytes that are no UTF-8 as \\xNN
    waits: int
    handed_out: int  # or delayed
    consumers: int  # that wait for something to come
    came: int  # since the broker has started; -1: not counted
    went: int
    paused: str  # none, in, out or all
    oldest: int  # seconds that its first has been there

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client of the broker."""

    number: int
    name: str
    address: str
    seconds: int  # since it came
    waits: bool  # for something to come
    last: str  # its last command

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def queues(root: Root) -> list[QueueRow]:
    """Return the queues of the broker, by name."""
    rows = [QueueRow(*map(_plain, row)) for row in _rows(ask(root, "BROKER", "QUEUES"))]
    return sorted(rows, key=lambda row: (row.name, row.dialect))


def clients(root: Root) -> list[ClientRow]:
    """Return the clients of the broker, whoever came first."""
    rows = _rows(ask(root, "BROKER", "CLIENTS"))
    return [_client(*map(_plain, row)) for row in rows]


def _client(
    number: int, name: str, address: str, seconds: int, waits: int, last: str
) -> ClientRow:
    return ClientRow(number, name, address, seconds, bool(waits), last)


def figures(root: Root) -> dict[str, str]:
    """Return the names and values that INFO tells."""
    text = ask(root, "INFO")
    lines = text.decode().splitlines() if isinstance(text, bytes) else []
    pairs = (line.partition(":") for line in lines if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}


def _rows(answer: Value) -> Sequence[Sequence[Value]]:
    rows = answer if isinstance(answer, list) else []
    return [row for row in rows if isinstance(row, list)]


def _plain(value: Value) -> Any:
    """Return a value of a row as a person may read it."""
    return readable(value) if isinstance(value, bytes) else value


def readable(data: bytes) -> str:
    """Return bytes as text; those that are none as their numbers.

    >>> readable(b"a\\xff")
    'a\\\\xff'
    """
    return data.decode(errors="backslashreplace")
