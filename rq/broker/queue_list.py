"""All queues of a node, a row each, whatever dialect they are of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rq.broker import groups, reliable
from rq.broker.jobs import Queue
from rq.broker.node import Node
from rq.resp import Value

# Dialect, name, how many wait, are handed out, and wait for one; in and out since the
# start, -1 where that is not counted; how it is paused; seconds that its oldest is there.
Row = tuple[Value, ...]


def rows(node: Node, now: float) -> Iterator[Row]:
    """Give the rows of all queues."""
    for queue in node.jobs.queues.values():
        yield _of_disque(node, queue, now)
    for key, messages in node.reliable.by_key.items():
        yield _of_redisrq(node, key, messages)
    for name, events in node.groups.by_name.items():
        yield _of_bananaq(node, name, events, now)


def _of_disque(node: Node, queue: Queue, now: float) -> Row:
    oldest = 0
    if queue.jobs:
        first = node.jobs.by_id[queue.jobs[0][1]]
        oldest = max(0, int(now - first.created))
    waits, out = len(queue), queue.held - len(queue)
    blocked = node.waiters.count(queue.name)
    counts = (queue.jobs_in, queue.jobs_out, queue.paused, oldest)
    return "disque", queue.name, waits, out, blocked, *counts


def _of_redisrq(node: Node, key: bytes, queue: reliable.ReliableQueue) -> Row:
    waits, out = len(queue.undelivered), len(queue.delivered)
    blocked = node.poppers.count(key)
    return "redisrq", key, waits, out, blocked, -1, -1, "none", 0


def _of_bananaq(node: Node, name: bytes, queue: groups.EventQueue, now: float) -> Row:
    out = sum(len(group.in_progress) for group in queue.groups.values())
    oldest = 0
    if queue.events:
        oldest = max(0, int(now - queue.events.keys()[0] / 1e6))
    blocked = node.getters.count(name)
    return "bananaq", name, len(queue.events), out, blocked, -1, -1, "none", oldest
