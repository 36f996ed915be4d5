"""What RQ's own pages and verbs ask of the broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from rq.errors import BadInput, NoSuchMessage, OutcomeUnknown, Unreachable
from rq.layout import Root
from rq.resp import Failure, Value
from rq.resp.answers import Answers, Missing
from rq.resp.encoding import encode
from rq.rpc import client
from rq.rpc.broker import answers
from rq.rpc.broker.rows import ClientRow, HeldRow, Job, NodeRow, QueueRow, ToldRow

Words = Sequence[str | bytes]
TOTALS: Words = ("BROKER", "TOTALS")
QUEUES: Words = ("BROKER", "QUEUES")
CLIENTS: Words = ("BROKER", "CLIENTS")
NODES: Words = ("BROKER", "NODES")
_PIECE = 256 * 1024  # bytes read at a time
TIMEOUT = 10.0  # seconds
_LONG = 60.0  # seconds for what a broker with many jobs takes time for


# What a person does with a job, and the command that does it.
DEEDS = {
    "ack": "ACKJOB",
    "delete": "DELJOB",
    "enqueue": "ENQUEUE",
    "dequeue": "DEQUEUE",
}
PAUSES = ("in", "out", "all", "none")


def queues(root: Root) -> list[QueueRow]:
    """Return the queues of the broker, by name."""
    return answers.queues_in(ask(root, *QUEUES))


def clients(root: Root) -> list[ClientRow]:
    """Return the clients of the broker, whoever came first."""
    return answers.clients_in(ask(root, *CLIENTS))


def nodes(root: Root) -> list[NodeRow]:
    """Return the nodes of the broker's cluster, its own first."""
    return answers.nodes_in(ask(root, *NODES))


def leave(root: Root, leaving: bool) -> None:
    """Let the broker leave its cluster: take no new jobs; or let it stay."""
    ask(root, "CLUSTER", "LEAVING", "yes" if leaving else "no")


def held(root: Root) -> tuple[HeldRow, list[HeldRow]]:
    """Return what the broker would take with it if it went, of all and of each queue."""
    return answers.held_in(ask(root, "BROKER", "HELD", timeout=_LONG))


def forget(root: Root, node_id: str) -> list[ToldRow]:
    """Let all nodes forget one; return which of the others have done so."""
    return answers.told_in(ask(root, "BROKER", "FORGET", node_id, timeout=_LONG))


def totals(root: Root, timeout: float = TIMEOUT) -> dict[str, str]:
    """Return what the broker tells of itself as a whole."""
    return answers.totals_in(ask(root, *TOTALS, timeout=timeout))


def job(root: Root, job_id: str) -> Job:
    """Return a job; NoSuchMessage: there is none."""
    answer = ask(root, "BROKER", "JOB", job_id)
    if answer is None:
        raise NoSuchMessage(f"the broker has no job {job_id}: it is done, or never was")
    return answers.job_in(answer)


def change(root: Root, deed: str, job_ids: Sequence[str]) -> int:
    """Do one of DEEDS with jobs; return with how many it was done."""
    return answers.number_in(ask(root, DEEDS[deed], *job_ids))


def pause(root: Root, queue: bytes, how: str) -> str:
    """Pause a queue, as one of PAUSES; return how it is paused now."""
    return answers.text_in(ask(root, "PAUSE", queue, how))


# ---- over its Unix socket, as a client of the Redis protocol does


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
