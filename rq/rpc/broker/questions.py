"""What RQ's own pages and verbs ask of the broker."""

from __future__ import annotations

from collections.abc import Sequence

from rq.errors import NoSuchMessage
from rq.layout import Root
from rq.rpc.broker import answers
from rq.rpc.broker.connection import TIMEOUT, Words, ask
from rq.rpc.broker.rows import ClientRow, HeldRow, Job, NodeRow, QueueRow, ToldRow

TOTALS: Words = ("BROKER", "TOTALS")
QUEUES: Words = ("BROKER", "QUEUES")
CLIENTS: Words = ("BROKER", "CLIENTS")
NODES: Words = ("BROKER", "NODES")
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
