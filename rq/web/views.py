"""What owners, the supervisor and the timers answer, taken for its type; only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rq.errors import RQError
from rq.replies import (
    AttemptsView,
    Detail,
    FiguresView,
    LeasesView,
    MessageRow,
    MessageView,
    NoticesView,
    Owed,
    SupervisorStatus,
    TimersStatus,
    TimerView,
    TransactionView,
)
from rq.rpc import client
from rq.rpc.lines.line import DEADLINE
from rq.rpc.lines.owners import Owners, Reply


async def details(
    owners: Owners, queues: Sequence[str], seconds: float = DEADLINE
) -> list[Detail | RQError]:
    """Return how each queue is, or why its owner does not say it within so many seconds."""
    replies = await owners.each(queues, "detail", seconds=seconds)
    return [_detail(reply) for reply in replies]


async def figures(
    owners: Owners, queues: Sequence[str], seconds: float
) -> list[FiguresView | RQError]:
    """Return what monitors measure of each queue, or why its owner does not say it."""
    replies = await owners.each(queues, "figures", seconds=seconds)
    return [
        reply if isinstance(reply, RQError) else _figures(reply) for reply in replies
    ]


def _figures(reply: Reply) -> FiguresView | RQError:
    try:
        return cast(FiguresView, client.demanded(reply))
    except RQError as error:
        return error


def _detail(reply: Reply | RQError) -> Detail | RQError:
    if isinstance(reply, RQError):
        return reply
    try:
        return cast(Detail, client.demanded(reply))
    except RQError as error:
        return error


async def detail(owners: Owners, queue: str) -> Detail | RQError:
    """Return how a queue is, or why its owner does not say it."""
    [only] = await details(owners, [queue])
    return only


async def demand_detail(owners: Owners, queue: str) -> Detail:
    """Return how a queue is; raise why its owner does not say it."""
    return cast(Detail, await owners.demand(queue, "detail"))


async def config(owners: Owners, queue: str) -> dict[str, object]:
    """Return the settings of a queue that are in force."""
    return cast(dict[str, object], await owners.demand(queue, "config"))


async def path(owners: Owners, queue: str, msg_id: str) -> str:
    """Return the folder of a message, relative to the root."""
    status = await owners.demand(queue, "get_message_status", {"msg_id": msg_id})
    return str(cast(Mapping[str, object], status)["path"])


async def message(owners: Owners, queue: str, msg_id: str) -> MessageView:
    """Return all that is known of a message."""
    request = {"msg_id": msg_id}
    return cast(MessageView, await owners.demand(queue, "get_message", request))


async def attempts(owners: Owners, queue: str, msg_id: str) -> AttemptsView:
    """Return what is kept of the attempts on a message."""
    request = {"msg_id": msg_id}
    return cast(AttemptsView, await owners.demand(queue, "get_attempts", request))


async def rows(
    owners: Owners, queue: str, request: Mapping[str, object]
) -> tuple[list[MessageRow], bool]:
    """Return messages of a state, and whether the answer ended early."""
    reply = await owners.ask(queue, "list", request)
    return cast(list[MessageRow], client.demanded(reply)), bool(reply[2:])


async def transactions(
    owners: Owners, queue: str, request: Mapping[str, object]
) -> list[TransactionView]:
    """Return the transactions of a queue."""
    reply = await owners.demand(queue, "list_txns", request)
    return cast(list[TransactionView], reply)


async def transaction(
    owners: Owners, queue: str, request: Mapping[str, object]
) -> TransactionView:
    """Return one transaction."""
    return cast(TransactionView, await owners.demand(queue, "show_txn", request))


async def leases(
    owners: Owners, queue: str, request: Mapping[str, object]
) -> LeasesView:
    """Return the leases of a queue that are out, and who asks for some."""
    return cast(LeasesView, await owners.demand(queue, "leases", request))


async def notices(owners: Owners, queue: str) -> NoticesView:
    """Return whom a queue tells how it goes."""
    return cast(NoticesView, await owners.demand(queue, "notices"))


async def owed(
    owners: Owners, queues: Sequence[str], most: int
) -> list[tuple[str, list[Owed]]]:
    """Return what each queue owes to others; queues that do not answer are left out."""
    replies = await owners.each(queues, "owed", {"limit": most})
    return [
        (queue, cast(list[Owed], reply[1]))
        for queue, reply in zip(queues, replies, strict=True)
        if isinstance(reply, list) and reply[0] == "ok"
    ]


async def supervisor(owners: Owners, seconds: float = DEADLINE) -> SupervisorStatus:
    """Return what the supervisor says of itself; {} when it does not answer in time."""
    try:
        status: object = await owners.supervisor("status", seconds=seconds)
    except RQError:
        return {}
    return cast(SupervisorStatus, status) if isinstance(status, dict) else {}


async def timers(owners: Owners) -> TimersStatus:
    """Return what the timers process says."""
    return cast(TimersStatus, await owners.timers())


async def timer(owners: Owners, name: str) -> TimerView:
    """Return all of one timer; NoSuchMessage when there is none so called."""
    return cast(TimerView, await owners.timers("timer", name))
