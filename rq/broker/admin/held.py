"""What a node that leaves its cluster would take with it, counted in slices so that
clients are served meanwhile."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from rq.broker.desks.node import Node
from rq.broker.server import Server
from rq.broker.state.bounds import MOST_ROWS
from rq.broker.state.groups import EventQueue
from rq.broker.state.job import Job, State
from rq.broker.state.reliable import ReliableQueue
from rq.broker.state.traffic import BANANAQ, DISQUE, REDISRQ
from rq.resp import Value

_SLICE = 500  # jobs, or queues, that are looked at until others have their turn


@dataclass(slots=True)
class Count:
    """The jobs of one queue that this node holds."""

    here: int = 0  # of which no other node that answers is sure to have a copy
    waits: int = 0  # of these, in the queue; the others are handed out, or delayed
    copied: int = 0  # of which others keep copies
    acked: int = 0  # done, which others still have to be told

    def add(self, other: Count) -> None:
        self.here += other.here
        self.waits += other.waits
        self.copied += other.copied
        self.acked += other.acked


Row = tuple[str, bytes, Count]  # dialect, name


async def held(server: Server) -> Value:
    """Return of each queue that has any: dialect, name, and the four counts; those come
    first of which most is here only. The first row is the sum, under no name."""
    node, whole, first = server.node, Count(), list[Row]()
    counts = await _of_jobs(node)
    rows = chain(
        ((DISQUE, name, count) for name, count in counts.items()),
        _of_redisrq(list(node.reliable.by_key.items())),
        _of_bananaq(list(node.groups.by_name.items())),
    )
    while some := list(islice(rows, _SLICE)):
        for _, _, count in some:
            whole.add(count)
        first = heapq.nsmallest(MOST_ROWS, [*first, *some], key=_place)
        await asyncio.sleep(0)
    all_rows = [(DISQUE, b"", whole), *first]
    return [[d, n, c.here, c.waits, c.copied, c.acked] for d, n, c in all_rows]


def _place(row: Row) -> tuple[int, int, bytes]:
    _, name, count = row
    return -count.here, -count.copied, name


async def _of_jobs(node: Node) -> dict[bytes, Count]:
    """Count the jobs of Disque by their queues, some in each turn of the loop."""
    counts: dict[bytes, Count] = {}
    ctime = 0
    while jobs := node.jobs.jobs_after(ctime, _SLICE):
        ctime = jobs[-1].ctime
        others = frozenset(node.peers.reachable)
        for job in jobs:
            _count(counts.setdefault(job.queue.name, Count()), node, job, others)
        await asyncio.sleep(0)
    return counts


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


def _of_redisrq(queues: Iterable[tuple[bytes, ReliableQueue]]) -> Iterator[Row]:
    """Give the queues that are on one node only, as those of bananaq are."""
    for key, queue in queues:
        waits = len(queue.undelivered)
        if here := waits + len(queue.delivered):
            yield REDISRQ, key, Count(here, waits)


def _of_bananaq(queues: Iterable[tuple[bytes, EventQueue]]) -> Iterator[Row]:
    for name, queue in queues:
        if here := len(queue.events):
            yield BANANAQ, name, Count(here, here)
