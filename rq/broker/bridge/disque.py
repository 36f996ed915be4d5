"""Disque's commands about queues of RQ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rq.access.roles import Role
from rq.broker.bridge import ids
from rq.broker.bridge.body import LEASE_SECONDS, SAME, body_of, fields_of
from rq.broker.bridge.holdings import AGAIN, DONE, LONGEST, NO_JOB, Taken
from rq.broker.bridge.leases import Wanted
from rq.broker.bridge.request import (
    Bridged,
    Request,
    Table,
    first,
    public_name,
    refused,
)
from rq.broker.bridge.tokens import Key
from rq.broker.dialects import disque_jobs
from rq.broker.dialects.call import Refusal
from rq.resp import NIL_ARRAY, Status, Value
from rq.words.nesting import Json

_FROM = b"FROM"


async def addjob(request: Request) -> Value:
    """Send a message; the answer is that it was accepted."""
    queue = request.queue(request.args[0])
    adding = disque_jobs.adding_in(request.args)
    milliseconds = adding.wait_ms
    fields = _with_options(fields_of(adding.body), adding, request.now())
    if adding.maxlen and (await request.queues.counts(queue))["que"] >= adding.maxlen:
        raise Refusal("MAXLEN Queue is already longer than the specified MAXLEN count")
    try:
        async with asyncio.timeout(milliseconds / 1000 or None):
            msg_id = await request.queues.send(queue, fields, request.principal.user)
    except TimeoutError:
        raise Refusal(
            f"NOREPL queue {queue} gave no answer in {milliseconds} ms: the message may "
            "or may not have been accepted"
        ) from None
    return Status(request.job_id(queue, msg_id))


def _with_options(
    fields: dict[str, Json], adding: disque_jobs.Adding, now: float
) -> dict[str, Json]:
    """Return the fields of a message with what the options say; Refusal when a queue of
    RQ cannot do that."""
    if adding.replicate is not None and adding.replicate > 1:
        raise Refusal("NOREPL a queue of RQ is on one host: REPLICATE can be 1")
    if adding.retry is not None and not 1 <= adding.retry <= LONGEST:
        raise Refusal(
            "ERR RETRY is how long a message of RQ can be held, 1 to "
            f"{LONGEST} seconds; QGET … EX 0 hands out at most once"
        )
    if adding.ttl is not None and adding.delay >= adding.ttl:
        raise Refusal(
            "ERR The specified DELAY is greater than TTL. Job refused since would never "
            "be delivered"
        )
    said = {
        "due": now + adding.delay if adding.delay else None,
        "deadline": now + adding.ttl if adding.ttl is not None else None,
        LEASE_SECONDS: adding.retry,
    }
    for name, value in said.items():
        if value is None:
            continue
        if name in fields:
            raise Refusal(f"ERR {name} is in the body, and an option says it too")
        fields[name] = value
        if name != LEASE_SECONDS:  # a time of day, another one when it is sent again
            fields.pop(SAME, None)
    return fields


async def getjob(request: Request) -> Value:
    """Lease messages that are due, or wait for one."""
    getting = disque_jobs.getting_in(list(request.args))
    seconds = getting.timeout / 1000
    wanted = Wanted(
        queues=request.queues_of(getting.queues),
        count=getting.count,
        waits=getting.waits,
        until=request.until(seconds) if seconds else None,
        in_turns=True,
    )
    taken = await request.take(wanted)
    if not taken:
        return NIL_ARRAY
    return [_job(request, each, getting.counters) for each in taken]


def _job(request: Request, taken: Taken, counters: bool) -> Value:
    grant, queue = taken.grant, taken.queue
    body = body_of(grant["message"], [file["name"] for file in grant["attachments"]])
    plain: list[Value] = [
        public_name(queue),
        request.job_id(queue, grant["msg_id"]),
        body,
    ]
    if counters:
        nacks = grant["message"].get("count")
        plain += ["nacks", nacks if isinstance(nacks, int) else 0]
        plain += ["additional-deliveries", max(0, grant["attempt"] - 1)]
    return plain


def _queues_from(args: Sequence[bytes]) -> Sequence[bytes]:
    """Return the words behind FROM."""
    at = next((at for at, word in enumerate(args) if word.upper() == _FROM), len(args))
    return args[at + 1 :]


# ---- jobs that a client holds


def _keys(request: Request) -> list[Key]:
    parsed = [ids.parsed(arg) for arg in request.args]
    return [(request.asker.user, *pair) for pair in parsed if pair is not None]


async def ackjob(request: Request) -> Value:
    """Messages are done; return how many were held till now."""
    return len(await request.holdings.end(request.asker, _keys(request), DONE))


async def nack(request: Request) -> Value:
    """Messages could not be worked on: let them come again."""
    return len(await request.holdings.end(request.asker, _keys(request), AGAIN))


async def working(request: Request) -> Value:
    """A message is worked on: its client holds it for a whole RETRY from now."""
    for key in _keys(request):
        return int(await request.holdings.go_on(request.asker, key))
    raise Refusal(NO_JOB)


TABLE: Table = {
    b"ADDJOB": Bridged(addjob, first, Role.PRODUCER),
    b"GETJOB": Bridged(getjob, _queues_from, Role.WORKER),
    b"PAUSE": Bridged(
        refused("`rq queue pause NAME` pauses a queue of RQ, for all who use it"),
        first,
        Role.VIEWER,
    ),
}
_NOT_OF_RQ = refused("a message of RQ can be acknowledged, or given back with NACK")
OF_JOBS: Table = {
    b"ACKJOB": Bridged(ackjob, first, Role.WORKER),
    b"FASTACK": Bridged(ackjob, first, Role.WORKER),
    b"NACK": Bridged(nack, first, Role.WORKER),
    b"WORKING": Bridged(working, first, Role.WORKER),
    b"DELJOB": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
    b"ENQUEUE": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
    b"DEQUEUE": Bridged(_NOT_OF_RQ, first, Role.VIEWER),
}
