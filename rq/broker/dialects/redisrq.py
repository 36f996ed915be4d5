"""The commands of RedisRQ: queues of which each message waits for its acknowledgement."""

from __future__ import annotations

from rq.access.roles import Role
from rq.broker.dialects.call import (
    QUEUE,
    QUEUES,
    Blocked,
    Call,
    Command,
    Refusal,
    Table,
    at_most,
    queues_in,
    wait_at,
)
from rq.broker.dialects.call import whole as number_in
from rq.broker.state import reliable
from rq.broker.state.bounds import MOST_MESSAGES, Room
from rq.broker.state.reliable import Delivered, ReliableQueue
from rq.broker.state.waiters import Waiter
from rq.resp import Status, Value

_EMPTY = "EMPTYKEY"
_USE_POP = (
    "usage: RQ.POP <count:uint> [ BLOCK <milliseconds:int> ] <queue1:string> "
    "[ <queue2:string> [ ... ] ]"
)
_USE_RECOVER = "usage: RQ.RECOVER <key> <count:uint> <elapsed:uint>"
_USE_INSPECT = "usage: RQ.INSPECT <key> [ PENDING ] <start:int> <count:uint>"


def _whole(data: bytes) -> int | None:
    """Return a number; None when it is none, and an empty text is none."""
    return number_in(data) if data else None


def push(call: Call) -> Value:
    """Take messages; their ids are the answer."""
    key, *bodies = call.args
    at_most(MOST_MESSAGES, bodies, "messages")
    return call.node.messages.push(key, bodies, call.now, call.wall_ms)


def pop(call: Call) -> Value | Blocked:
    """Hand out messages, or wait for some."""
    count, block, words = call.read(popping_in)
    given: list[Value] = []
    room = Room()
    for key in words:
        some = call.node.messages.pop(
            key, count - len(given), call.client, room, call.now
        )
        given += [[key, msg_id, body] for msg_id, body in some]
    if given or not block or not count:
        return given
    until = None if block < 0 else call.now + block / 1000
    keys = list(dict.fromkeys(words))
    return wait_at(call.node.messages.waiters, Waiter(call.client, keys, count, until))


def popping_in(words: list[bytes]) -> tuple[int, int, list[bytes]]:
    """Return how many messages RQ.POP wants, for how many milliseconds it waits (0: not
    at all, below 0: for ever), and its keys."""
    count = _option(words, b"COUNT", 1)
    block = _option(words, b"BLOCK", 0)
    if count < 0 or not words:
        raise Refusal(_USE_POP)
    return min(count, MOST_MESSAGES), block, queues_in(words)


def _keys(call: Call) -> list[bytes]:
    return call.read(popping_in)[2]


def _option(words: list[bytes], name: bytes, default: int) -> int:
    """Take an option from the front; what is none stays there, and is a queue."""
    if len(words) < 2 or words[0].upper() != name:
        return default
    number = _whole(words[1])
    if number is None:
        return default
    del words[:2]
    return number


def ack(call: Call) -> Value:
    """Messages are done; those that were handed out are the answer."""
    key, *ids = call.args
    if key not in call.node.reliable.by_key:
        return None
    texts = [
        each.decode(errors="replace") for each in at_most(MOST_MESSAGES, ids, "ids")
    ]
    return list(call.node.messages.ack(key, texts, call.now))


def recover(call: Call) -> Value:
    """Hand out again what was handed out long ago and is not done."""
    key = call.args[0]
    count, elapsed = (_whole(arg) for arg in call.args[1:])
    if count is None or elapsed is None or count < 0 or elapsed < 0:
        raise Refusal(_USE_RECOVER)
    queue = call.node.reliable.by_key.get(key)
    if queue is None:
        return None
    ids = queue.waiting_longest(min(count, MOST_MESSAGES), call.now - elapsed / 1000)
    some = call.node.messages.recover(key, ids, call.now)
    return [[msg_id, body] for msg_id, body in some]


def inspect(call: Call) -> Value:
    """Show messages that wait, or that were handed out."""
    key, *words = call.args
    pending = words[0].upper() == b"PENDING"
    numbers = [_whole(word) for word in words[pending:]]
    start, count = numbers if len(numbers) == 2 else (None, None)
    if start is None or count is None or count <= 0:
        raise Refusal(_USE_INSPECT)
    queue = _there(call, key)
    count = min(count, MOST_MESSAGES)
    if pending:
        items = reliable.page(queue.delivered, start, count)
        some = Room().take(items, count, reliable.delivered_bytes)
        return [_pending(call, msg_id, delivered) for msg_id, delivered in some]
    waiting = reliable.page(queue.undelivered, start, count)
    page = Room().take(waiting, count, reliable.body_bytes)
    return [[msg_id, body] for msg_id, body in page]


def _pending(call: Call, msg_id: str, delivered: Delivered) -> Value:
    elapsed = max(0, int((call.now - delivered.at) * 1000))
    at = call.wall_ms - elapsed
    return [msg_id, delivered.body, at, elapsed, delivered.times]


def info(call: Call) -> Value:
    """How many messages wait, and how many were handed out."""
    queue = _there(call, call.args[0])
    undelivered, delivered = len(queue.undelivered), len(queue.delivered)
    return ["undelivered", undelivered, "delivered", delivered]


def exists(call: Call) -> Value:
    """How many of the keys there are; one that is named twice counts twice."""
    return sum(key in call.node.reliable.by_key for key in queues_in(call.args))


def type_of(call: Call) -> Value:
    """What a key is."""
    return Status("RELIABLEQ" if call.args[0] in call.node.reliable.by_key else "none")


def delete(call: Call) -> Value:
    """Remove keys with all their messages; how many there were is the answer."""
    return call.node.messages.delete(queues_in(call.args), call.now)


def _there(call: Call, key: bytes) -> ReliableQueue:
    queue = call.node.reliable.by_key.get(key)
    if queue is None:
        raise Refusal(_EMPTY)
    return queue


TABLE: Table = {
    b"RQ.PUSH": Command(
        push,
        -3,
        Role.PRODUCER,
        writes=True,
        grows=True,
        queues=QUEUE,
        bodies=slice(1, None),
    ),
    b"RQ.POP": Command(pop, -2, Role.WORKER, writes=True, named=_keys),
    b"RQ.ACK": Command(ack, -3, Role.WORKER, writes=True, queues=QUEUE),
    b"RQ.RECOVER": Command(recover, 4, Role.WORKER, writes=True, queues=QUEUE),
    b"RQ.INSPECT": Command(inspect, -4, queues=QUEUE),
    b"RQ.INFO": Command(info, 2, queues=QUEUE),
    b"EXISTS": Command(exists, -2, queues=QUEUES),
    b"TYPE": Command(type_of, 2, queues=QUEUE),
    b"DEL": Command(delete, -2, writes=True, queues=QUEUES),
    b"UNLINK": Command(delete, -2, writes=True, queues=QUEUES),
}
