"""BROKER …: what RQ's own pages and verbs show of a node. Bodies are cut, so that no
answer is long; those that lie in files are not read, and seem empty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rq.access.roles import Role
from rq.broker.admin import held, nodes
from rq.broker.clients.connection import Connection
from rq.broker.clients.rights import require, require_all_queues
from rq.broker.desks.node import Node
from rq.broker.dialects.call import Blocked, Refusal, whole
from rq.broker.server import Args, Server
from rq.broker.state import groups, ids, reliable
from rq.broker.state.body import size_of
from rq.broker.state.bounds import MOST_ROWS
from rq.broker.state.job import Job, Queue
from rq.broker.state.traffic import BANANAQ, DISQUE, REDISRQ, Name
from rq.resp import Value

_START = 512  # bytes of a body in a list
_MOST_BODY = 64 * 1024  # bytes of a body on a page of its own
_USE = (
    "ERR BROKER subcommand must be one of TOTALS, QUEUES, QUEUE name, CLIENTS, NODES, "
    "PEEK dialect queue count, JOB id, HELD, FORGET node"
)


def broker(server: Server, connection: Connection, args: Args) -> Value | Blocked:
    """Show what a subcommand names."""
    require_all_queues(connection.principal, "BROKER")
    match [args[0].upper(), *args[1:]]:
        case [b"HELD"]:
            return server.scheduler.answer_later(connection, held.held(server))
        case [b"FORGET", node_id]:
            require(connection.principal, Role.ADMIN, "BROKER FORGET")
            return server.scheduler.answer_later(
                connection, nodes.forget(server, node_id)
            )
    return _view(server, connection, args)


def _view(server: Server, connection: Connection, args: Args) -> Value:
    node, now = server.node, server.store.clock.now()
    match [args[0].upper(), *args[1:]]:
        case [b"TOTALS"]:
            return _flat(_totals(server))
        case [b"QUEUES"]:
            return [list(row) for row in islice(queue_rows(node, now), MOST_ROWS)]
        case [b"QUEUE", name]:
            return [
                _with_minutes(node, row, now) for row in queues_named(node, name, now)
            ]
        case [b"CLIENTS"]:
            others = (
                each for each in server.connections.values() if each != connection
            )
            return [_of_client(server, each) for each in islice(others, MOST_ROWS)]
        case [b"NODES"]:
            return nodes.rows(server)
        case [b"PEEK", dialect, name, count]:
            most = min(max(whole(count) or 0, 0), MOST_ROWS)
            return list(islice(_peek(node, dialect.decode(), name, now), most))
        case [b"JOB", text]:
            return _job(server, text, now)
    raise Refusal(_USE)


def _flat(facts: dict[str, Value]) -> list[Value]:
    return [value for pair in facts.items() for value in pair]


def _totals(server: Server) -> dict[str, Value]:
    node = server.node
    number, body_bytes = node.size
    tables = (node.jobs.queues, node.reliable.by_key, node.groups.by_name)
    return {
        "queues": sum(map(len, tables)),
        "jobs": number,
        "body_bytes": body_bytes,
        "came": node.traffic.came,
        "went": node.traffic.went,
        "clients": len(server.connections) - 1,  # without who asks
        "blocked": server.blocked,
        "used_memory": server.node.used_memory,
        "maxmemory": server.settings.maxmemory,
        "memory_level": node.memory_level,
        "maxclients": server.settings.maxclients,
        "appendfsync": server.settings.appendfsync,
        "commands": server.figures.commands,
        "snapshots": server.store.snapshots,
        "trouble": server.durability.trouble or "",
        "grace": round(server.store.clock.grace),  # seconds that nothing expires
        "node": node.node_id,
        "nodes": server.cluster.members.size,
        "silent_nodes": nodes.silent(server),
        "linked_nodes": nodes.linked(server),
        "leaving": int(node.jobs.leaving),
    }


def _with_minutes(node: Node, row: QueueRow, now: float) -> Value:
    """Return a row, and what came, was handed out and waited in each minute of the last
    hour."""
    dialect, name = row[:2]
    assert isinstance(dialect, str)
    assert isinstance(name, bytes)
    flow = node.traffic.of((dialect, name), now)
    waits = [*flow.depths[:-1], node.traffic.depth((dialect, name))]
    return [*row, list(flow.came_each), list(flow.went_each), waits]


def _of_client(server: Server, connection: Connection) -> Value:
    age = connection.age
    waits = int(connection.waits)
    last = connection.last_command
    return [connection.number, connection.name, connection.address, age, waits, last]


# ---- queues, whatever dialect they are of

# Dialect, name, how many wait, are handed out, and wait for one; how many came and were
# handed out since the start; how it is paused; seconds that its oldest is there; how many
# a second come and are handed out, as text.
QueueRow = tuple[Value, ...]


def queue_rows(node: Node, now: float) -> Iterator[QueueRow]:
    """Give the rows of all queues."""
    for table in (node.jobs.queues, node.jobs.resting):
        for queue in table.values():
            yield _of_disque(node, queue, now)
    for key, messages in node.reliable.by_key.items():
        yield _of_redisrq(node, key, messages, now)
    for name, events in node.groups.by_name.items():
        yield _of_bananaq(node, name, events, now)


def queues_named(node: Node, name: bytes, now: float) -> Iterator[QueueRow]:
    """Give the rows of the queues of a name: each dialect may have one."""
    for table in (node.jobs.queues, node.jobs.resting):
        if (queue := table.get(name)) is not None:
            yield _of_disque(node, queue, now)
    if (messages := node.reliable.by_key.get(name)) is not None:
        yield _of_redisrq(node, name, messages, now)
    if (events := node.groups.by_name.get(name)) is not None:
        yield _of_bananaq(node, name, events, now)


def _of_disque(node: Node, queue: Queue, now: float) -> QueueRow:
    oldest = 0
    if queue.jobs:
        oldest = max(0, int(now - queue.jobs[0].created))
    out, blocked = queue.held - len(queue), node.desk.waiters.count(queue.name)
    return _row(node, (DISQUE, queue.name), out, blocked, queue.paused, oldest, now)


def _of_redisrq(
    node: Node, key: bytes, queue: reliable.ReliableQueue, now: float
) -> QueueRow:
    out, blocked = len(queue.delivered), node.messages.waiters.count(key)
    return _row(node, (REDISRQ, key), out, blocked, "none", 0, now)


def _of_bananaq(
    node: Node, name: bytes, queue: groups.EventQueue, now: float
) -> QueueRow:
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
) -> QueueRow:
    dialect, name = queue
    flow = node.traffic.of(queue, now)
    rates = (f"{rate:.1f}" for rate in flow.rates(now))
    waits = node.traffic.depth(queue)
    counts = (waits, out, blocked, flow.came, flow.went)
    return (dialect, name, *counts, paused, oldest, *rates)


# ---- jobs


def _peek(node: Node, dialect: str, name: bytes, now: float) -> Iterator[Value]:
    """Give the jobs that come next: id, start of the body, its bytes, seconds that it is
    there (-1: not known), how often it was handed out, whether it waits."""
    if dialect == DISQUE and (queue := node.jobs.queues.get(name)) is not None:
        for job in queue.jobs:
            times = job.nacks + job.deliveries
            yield _peeked(job.job_id, job.body, now - job.created, times)
    if dialect == REDISRQ and (messages := node.reliable.by_key.get(name)) is not None:
        for msg_id, body in messages.undelivered.items():
            yield _peeked(msg_id, body, -1, 0)
        for msg_id, delivered in messages.delivered.items():
            since = now - delivered.at
            yield _peeked(msg_id, delivered.body, since, delivered.times, waits=False)
    if dialect == BANANAQ and (events := node.groups.by_name.get(name)) is not None:
        for event in events.events.values():
            age = now - event.number / 1e6
            yield _peeked(groups.text_of(event), event.contents, age, 0)


def _peeked(
    name: str, body: bytes, age: float, times: int, *, waits: bool = True
) -> Value:
    return [name, body[:_START], size_of(body), int(age), times, int(waits)]


def _job(server: Server, text: bytes, now: float) -> Value:
    """Tell the story of a job of Disque's dialect; None: there is none."""
    jobs = server.node.jobs
    job = jobs.by_id.get(ids.parsed(text) or "")
    if job is None:
        return None
    spread = jobs.spreads.by_job.get(job.job_id)
    copies: dict[str, Value] = {
        "wanted": 1 if spread is None else spread.wanted,
        "copies": nodes.copies(server, spread),
    }
    return _flat(_of_job(job, now) | copies)


def _of_job(job: Job, now: float) -> dict[str, Value]:
    return {
        "id": job.job_id,
        "queue": job.queue.name,
        "state": str(job.state),
        "created": job.ctime // 1_000_000_000,  # by the clock on the wall
        "age": int(now - job.created),
        "ttl": max(0, int(job.expires - now)),
        "delay": int(job.delay),
        "retry": int(job.retry),
        "was_queued": int(job.was_queued),
        "was_given": int(job.given),
        "nacks": job.nacks,
        "more_deliveries": job.deliveries,
        "comes_in": max(0, int(job.due - now)) if job.due else -1,
        "paused": job.queue.paused,
        "body": job.body[:_MOST_BODY],
        "body_bytes": size_of(job.body),
    }
