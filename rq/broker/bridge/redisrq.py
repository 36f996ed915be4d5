"""The commands of RedisRQ about queues of RQ."""

from __future__ import annotations

import asyncio

from rq.access.roles import Role
from rq.broker.bridge import ids
from rq.broker.bridge.body import body_of, fields_of
from rq.broker.bridge.holdings import DONE, key_of
from rq.broker.bridge.leases import Wanted
from rq.broker.bridge.request import (
    Bridged,
    Request,
    Table,
    check_number,
    every,
    first,
    public_name,
    refused,
)
from rq.broker.dialects import redisrq
from rq.broker.dialects.call import Refusal
from rq.resp import Value

_BETWEEN = "-"


async def push(request: Request) -> Value:
    """Send messages; their ids are the answer. Each is accepted by itself: Refusal says
    how many were when one was not."""
    key, *bodies = request.args
    queue = request.queue(key)
    check_number(bodies)
    messages = [fields_of(body) for body in bodies]
    user = request.principal.user
    sends = [request.queues.send(queue, fields, user) for fields in messages]
    ended = await asyncio.gather(*sends, return_exceptions=True)
    failed = [each for each in ended if isinstance(each, BaseException)]
    sent = [ids.pair(each, _BETWEEN) for each in ended if isinstance(each, str)]
    if failed and sent:
        raise Refusal(
            f"ERR {len(sent)} of {len(bodies)} messages were accepted, "
            f"{' '.join(sent[:10])} …; of another: {failed[0]}"
        )
    if failed:
        raise failed[0]
    return list(sent)


async def pop(request: Request) -> Value:
    """Lease messages that are due, or wait for some."""
    count, block, keys = redisrq.popping_in(list(request.args))
    wanted = Wanted(
        queues=request.queues_of(keys),
        count=count,
        woken=count,
        waits=block != 0,
        until=request.until(block / 1000) if block > 0 else None,
    )
    if not count:
        return []
    taken = await request.take(wanted)
    if not taken and block:
        return None
    return [
        [
            public_name(queue),
            ids.pair(grant["msg_id"], _BETWEEN),
            body_of(grant["message"]),
        ]
        for queue, grant in taken
    ]


async def ack(request: Request) -> Value:
    """Messages are done; those that were held till now are the answer."""
    key, *texts = request.args
    queue = request.queue(key)
    check_number(texts)
    pairs = {text: ids.of_pair(text, _BETWEEN.encode()) for text in texts}
    keys = {
        text: key_of(request.asker, queue, msg_id)
        for text, msg_id in pairs.items()
        if msg_id is not None
    }
    ended = await request.holdings.end(request.asker, keys.values(), DONE)
    return [text for text, key in keys.items() if key in ended]


async def info(request: Request) -> Value:
    """How many messages wait, and how many are worked on."""
    counts = await request.queues.counts(request.queue(request.args[0]))
    return ["undelivered", counts["que"], "delivered", counts["run"]]


_NO_KEY = "a queue of RQ is no key: `rq queue` lists and makes them"
TABLE: Table = {
    **dict.fromkeys(
        (b"EXISTS", b"TYPE", b"DEL", b"UNLINK"),
        Bridged(refused(_NO_KEY), every, Role.VIEWER),
    ),
    b"RQ.PUSH": Bridged(push, first, Role.PRODUCER),
    b"RQ.POP": Bridged(pop, every, Role.WORKER),
    b"RQ.ACK": Bridged(ack, first, Role.WORKER),
    b"RQ.INFO": Bridged(info, first, Role.VIEWER),
    b"RQ.RECOVER": Bridged(
        refused("what is held of a queue of RQ comes again when its lease is over"),
        first,
        Role.VIEWER,
    ),
    b"RQ.INSPECT": Bridged(
        refused("QPEEK shows what waits in a queue of RQ, `rq ls` what is held"),
        first,
        Role.VIEWER,
    ),
}
