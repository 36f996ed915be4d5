"""The queues of a node, a row each, whatever dialect they are of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rq.broker import groups, reliable
from rq.broker.job import Queue
from rq.broker.node import Node
from rq.broker.traffic import BANANAQ, DISQUE, REDISRQ, Name
from rq.resp import Value

# Dialect, name, how many wait, are handed out, and wait for one; how many came and were
# handed out since the start; how it is paused; seconds that its oldest is there; how many
# a second come and are handed out, as text.
Row = tuple[Value, ...]


def rows(node: Node, now: float) -> Iterator[Row]:
    """Give the rows of all queues."""
    for table in (node.jobs.queues, node.jobs.resting):
        for queue in table.values():
            yield _of_disque(node, queue, now)
    for key, messages in node.reliable.by_key.items():
        yield _of_redisrq(node, key, messages, now)
    for name, events in node.groups.by_name.items():
        yield _of_bananaq(node, name, events, now)


def of_name(node: Node, name: bytes, now: float) -> Iterator[Row]:
    """Give the rows of the queues of a name: each dialect may have one."""
    for table in (node.jobs.queues, node.jobs.resting):
        if (queue := table.get(name)) is not None:
            yield _of_disque(node, queue, now)
    if (messages := node.reliable.by_key.get(name)) is not None:
        yield _of_redisrq(node, name, messages, now)
    if (events := node.groups.by_name.get(name)) is not None:
        yield _of_bananaq(node, name, events, now)


def _of_disque(node: Node, queue: Queue, now: float) -> Row:
    oldest = 0
    if queue.jobs:
        oldest = max(0, int(now - queue.jobs[0].created))
    out, blocked = queue.held - len(queue), node.desk.waiters.count(queue.name)
    return _row(node, (DISQUE, queue.name), out, blocked, queue.paused, oldest, now)


def _of_redisrq(
    node: Node, key: bytes, queue: reliable.ReliableQueue, now: float
) -> Row:
    out, blocked = len(queue.delivered), node.messages.waiters.count(key)
    return _row(node, (REDISRQ, key), out, blocked, "none", 0, now)


def _of_bananaq(node: Node, name: bytes, queue: groups.EventQueue, now: float) -> Row:
    out = sum(len(group.in_progress) for group in queue.groups.values())
    oldest = 0
    if queue.events:
        oldest = max(0, int(now - queue.events.keys()[0] / 1e6))
    blocked = node.consumers.waiters.count(name)
    return _row(node, (BANANAQ, name), out, blocked, "none", oldest, now)


def _row(
    node: Node,
    queue: Name,
    out: int,
    blocked: int,
    paused: str,
    oldest: int,
    now: float,
) -> Row:
    dialect, name = queue
    flow = node.traffic.of(queue, now)
    rates = (f"{rate:.1f}" for rate in flow.rates(now))
    waits = node.traffic.depth(queue)
    counts = (waits, out, blocked, flow.came, flow.went)
    return (dialect, name, *counts, paused, oldest, *rates)
