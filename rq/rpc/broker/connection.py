"""Asks the broker over its Unix socket, as a client of the Redis protocol does."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from rq.errors import BadInput, OutcomeUnknown, Unreachable
from rq.layout import Root
from rq.resp import Failure, Value
from rq.resp.answers import Answers, Missing
from rq.resp.encoding import encode
from rq.rpc import client

_PIECE = 256 * 1024  # bytes read at a time
TIMEOUT = 10.0  # seconds
Words = Sequence[str | bytes]


def ask(root: Root, *words: str | bytes, timeout: float = TIMEOUT) -> Value:
    """Return the broker's answer to one command. Unreachable: it does not run. BadInput:
    it refuses, and why. OutcomeUnknown: no answer came in time."""
    return ask_all(root, [words], timeout)[0]


def ask_all(
    root: Root, commands: Sequence[Words], timeout: float = TIMEOUT
) -> list[Value]:
    """Return the answers to commands, which go in one packet. Errors as in `ask`."""
    data = b"".join(encode(list(map(_bytes, words)), 2) for words in commands)
    try:
        with client.connect(root.broker_socket, timeout) as sock:
            sock.sendall(data)
            answers = _answers(sock, len(commands), time.monotonic() + timeout)
    except TimeoutError:
        raise OutcomeUnknown(f"the broker gave no answer in {timeout:.0f} s") from None
    except (Unreachable, OSError):
        raise Unreachable(
            "the broker does not answer: see `rq broker status`"
        ) from None
    for answer in answers:
        if isinstance(answer, Failure):
            raise BadInput(f"the broker refuses: {answer.text}")
    return answers


def _bytes(word: str | bytes) -> bytes:
    return word if isinstance(word, bytes) else word.encode()


def _answers(sock: socket.socket, number: int, end: float) -> list[Value]:
    reader = Answers()
    answers: list[Value] = []
    while len(answers) < number:
        answer = reader.next()
        if not isinstance(answer, Missing):
            answers.append(answer)
            continue
        sock.settimeout(max(0.001, end - time.monotonic()))
        piece = sock.recv(_PIECE)
        if not piece:
            raise ConnectionResetError(0, "it has closed the connection")
        reader.feed(piece)
    return answers
