"""The commands of bananaq about queues of RQ, each of which has one group."""

from __future__ import annotations

from collections.abc import Sequence

from rq.access.roles import Role
from rq.broker.bridge import ids
from rq.broker.bridge.body import SAME, body_of, fields_of
from rq.broker.bridge.holdings import DONE, LONGEST, key_of
from rq.broker.bridge.leases import Wanted
from rq.broker.bridge.request import Bridged, Request, Table, every, first, refused
from rq.broker.dialects import bananaq
from rq.broker.dialects.call import SYNTAX, Refusal
from rq.resp import OK, Value

_BETWEEN = "_"
_SHORTEST = 1.0  # seconds of a lease


async def add(request: Request) -> Value:
    """Send a message that is not begun any more when its time is over."""
    name, expire, contents, *words = request.args
    if [word.upper() for word in words] not in ([], [b"NOBLOCK"]):
        raise Refusal(SYNTAX)
    now = request.now()
    seconds = bananaq.life_in(expire, now, int(now * 1000))
    fields = fields_of(contents)
    if "deadline" in fields:
        raise Refusal("ERR deadline is in the body, and QADD says it too")
    fields.pop(SAME, None)  # the deadline is another one when it is sent again
    msg_id = await request.queues.send(
        request.queue(name),
        {**fields, "deadline": now + seconds},
        request.principal.user,
    )
    return OK if words else ids.pair(msg_id, _BETWEEN)


async def get(request: Request) -> Value:
    """Lease a message that is due, or wait for one."""
    name, group, *words = request.args
    now = request.now()
    seconds, block = bananaq.getting_in(list(words), now, int(now * 1000))
    queue = request.queue(name)
    _check_group(request, queue, group)
    wanted = Wanted(
        queues=[queue],
        seconds=min(max(seconds, _SHORTEST), LONGEST),
        waits=block > 0,
        until=request.until(block),
        at_most_once=not seconds,
    )
    taken = await request.take(wanted)
    for each in taken:
        request.groups.setdefault(queue, group)
        message_id = ids.pair(each.grant["msg_id"], _BETWEEN)
        return [message_id, body_of(each.grant["message"])]
    return None


async def ack(request: Request) -> Value:
    """The group is done with a message: 1, or 0 when it comes too late."""
    name, group, text = request.args
    queue, msg_id = request.queue(name), ids.of_pair(text, _BETWEEN.encode())
    if msg_id is None:
        raise Refusal("ERR invalid ID string")
    _check_group(request, queue, group)
    key = key_of(request.asker, queue, msg_id)
    return len(await request.holdings.end(request.asker, [key], DONE))


def _check_group(request: Request, queue: str, group: bytes) -> None:
    """Refusal when another group has messages of a queue: each is handed out to one."""
    its_group = request.groups.get(queue, group)
    if its_group != group:
        raise Refusal(
            f"ERR a queue of RQ hands each message out once: rq:{queue} has the group "
            f"{its_group.decode(errors='replace'):.60} already"
        )


def _behind(args: Sequence[bytes]) -> Sequence[bytes]:
    """Return the words behind a group and its seconds."""
    return args[2:]


_LOOK = "QLEN, QPEEK and QSTAT show a queue of RQ"
TABLE: Table = {
    b"QADD": Bridged(add, first, Role.PRODUCER),
    b"QGET": Bridged(get, first, Role.WORKER),
    b"QACK": Bridged(ack, first, Role.WORKER),
    b"QNOTIFY": Bridged(
        refused("QGET … BLOCK waits at a queue of RQ"), _behind, Role.VIEWER
    ),
    b"QFLUSH": Bridged(
        refused("`rq cancel` removes messages that wait in a queue of RQ"),
        first,
        Role.VIEWER,
    ),
    b"QSTATUS": Bridged(refused(_LOOK), every, Role.VIEWER),
    b"QINFO": Bridged(refused(_LOOK), every, Role.VIEWER),
}
