"""What a node that leaves its cluster would take with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rq.broker.admin.command import MOST_ROWS
from rq.broker.job import Job, State
from rq.broker.node import Node
from rq.broker.traffic import BANANAQ, DISQUE, REDISRQ
from rq.resp import Value

if TYPE_CHECKING:
    from rq.broker.server import Server

_SLICE = 500  # jobs that are looked at until others have their turn


@dataclass(slots=True)
class Count:
    """The jobs of one queue that this node holds."""

    here: int = 0  # of which no other node that answers is sure to have a copy
    waits: int = 0  # of these, in the queue; the others are handed out, or delayed
    copied: int = 0  # of which others keep copies
    acked: int = 0  # done, which others still have to be told


async def held(server: Server) -> Value:
    """Return of each queue that has any: dialect, name, and the four counts; those come
    first of which most is here only. The first row is the sum, under no name."""
    node = server.node
    counts: dict[bytes, Count] = {}
    ctime = 0
    while jobs := node.jobs.jobs_after(ctime, _SLICE):
        ctime = jobs[-1].ctime
        others = frozenset(node.peers.reachable)
        for job in jobs:
            _count(counts.setdefault(job.queue.name, Count()), node, job, others)
        await asyncio.sleep(0)
    queues = [(DISQUE, name, count) for name, count in counts.items()]
    queues += _of_other_dialects(node)
    queues.sort(key=lambda row: (-row[2].here, -row[2].copied, row[1]))
    rows = [(DISQUE, b"", _sum([count for _, _, count in queues])), *queues[:MOST_ROWS]]
    return [[d, n, c.here, c.waits, c.copied, c.acked] for d, n, c in rows]


def _count(count: Count, node: Node, job: Job, others: frozenset[str]) -> None:
    """Count a job. That one was sent to another node is no proof that it came there,
    unless its producer was answered only then: it asked for copies."""
    spread = node.jobs.spreads.by_job.get(job.job_id)
    is_copied = spread is not None and spread.wanted > 1 and spread.may_have & others
    if job.state is State.ACKED:
        count.acked += 1
    elif is_copied:
        count.copied += 1
    else:
        count.here += 1
        count.waits += job.state is State.QUEUED


def _of_other_dialects(node: Node) -> Iterator[tuple[str, bytes, Count]]:
    """Give the queues that are on one node only."""
    for key, queue in node.reliable.by_key.items():
        waits = len(queue.undelivered)
        if here := waits + len(queue.delivered):
            yield REDISRQ, key, Count(here, waits)
    for name, events in node.groups.by_name.items():
        if here := len(events.events):
            yield BANANAQ, name, Count(here, here)


def _sum(counts: list[Count]) -> Count:
    return Count(
        sum(each.here for each in counts),
        sum(each.waits for each in counts),
        sum(each.copied for each in counts),
        sum(each.acked for each in counts),
    )
