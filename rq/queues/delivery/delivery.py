"""Delivers what the ends of messages owe to other queues, each queue at its own pace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence

from rq import back_off
from rq.errors import OutcomeUnknown, RQError, Unreachable
from rq.logs import fields
from rq.message import fieldnames, guarded
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.message.message import to_keep
from rq.queues.concurrency import Wakeup
from rq.queues.delivery import owed
from rq.queues.owner.health import Health
from rq.queues.owner.settings import Settings
from rq.queues.schedule.waiting import turn
from rq.rpc import client, loop_client, wire
from rq.spool import Spool
from rq.spool.outbox import Of, Owed
from rq.words.states import State

LOOK = 5.0  # seconds between looks at what could not be delivered
MANY = "create_messages"
OWED_BY = "owed_by"  # in it, for a guarded queue: the queue that owes all of them
_GROUP = 100  # entries that one request delivers …
_GROUP_BYTES = 1024 * 1024  # … and of their messages, unless it is one
_REFUSALS = 10  # in a row, before the queue is tried again after a pause

log = logging.getLogger(__name__)


class Delivery:
    """Delivers what the outbox owes, each destination at its own pace."""

    def __init__(
        self, spool: Spool, settings: Settings, health: Health, wakeup: Wakeup
    ) -> None:
        self._spool = spool
        self._root = settings.root
        self._name = settings.name
        self._health = health
        self._wakeup = wakeup
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, float] = {}  # destination: not before
        self._failures: dict[str, int] = {}
        self._newest: Of | None = None
        self._look_at = 0.0

    def start(self) -> None:
        """Begin to deliver what became durable; cheap when nothing is new."""
        outbox, now = self._spool.owed, time.monotonic()
        if outbox.newest == self._newest and now < self._look_at:
            return
        self._newest, self._look_at = outbox.newest, now + LOOK
        last = outbox.last_aside
        if last is not None and not owed.in_doubt(last, self._spool.clock()):
            outbox.take_up()  # a clock that was ahead has been set back
        for dest in outbox.dests:
            task = self._tasks.get(dest)
            if (task is None or task.done()) and now >= self._held.get(dest, 0.0):
                self._tasks[dest] = asyncio.create_task(self._deliver_all(dest))

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _deliver_all(self, dest: str) -> None:
        """Deliver what is owed to one queue, as it was owed. What it refuses is tried
        again after all others; after ten refusals in a row there is a pause."""
        outbox = self._spool.owed
        refused: set[Of] = set()
        in_a_row = 0
        reason: Exception | None = None
        while in_a_row < _REFUSALS and (group := self._next(dest, refused)):
            try:
                failures = await self._deliver(dest, group)
            except (Unreachable, OutcomeUnknown, OSError) as error:
                reason = error
                break
            except RQError as error:
                failures = dict.fromkeys(group, error)
            for of in group:
                if of not in failures:
                    in_a_row = 0
                    self._failures.pop(dest, None)
                    continue
                in_a_row, reason = in_a_row + 1, failures[of]
                refused.add(of)
                if of in outbox:
                    outbox.put_last(of)
        if reason is not None:
            self._hold(dest, reason)
            return
        self._health.deliveries.pop(dest, None)

    def _next(self, dest: str, refused: Collection[Of]) -> list[Of]:
        """Return what a queue gets next, by one request, of what is owed by lines that
        are durable: what a power cut could undo must not be told."""
        spool = self._spool
        now, durable_seq = spool.clock(), spool.durable_seq
        while (of := spool.owed.first(dest)) and owed.in_doubt(spool.owed[of], now):
            spool.owed.set_aside(of)
        group, size = list[Of](), 0
        for of in spool.owed.in_turn(dest, _GROUP):
            entry = spool.owed[of]
            if of in refused or of[0] > durable_seq or owed.in_doubt(entry, now):
                break
            size += len(to_keep(entry.message))
            if group and (entry.files or size > _GROUP_BYTES):
                break
            group.append(of)
            if entry.files:
                break
        return group

    def _hold(self, dest: str, reason: Exception) -> None:
        failures = self._failures[dest] = self._failures.get(dest, 0) + 1
        self._health.deliveries[dest] = owed.why_not(self._root, dest, reason)
        pause = back_off.delay(failures, 0.5, 60.0)
        self._held[dest] = time.monotonic() + pause
        self._look_at = min(self._look_at, self._held[dest])
        self._wakeup.ask_in(pause)
        log.warning(
            "copies or webhooks cannot be delivered yet; RQ tries again: %s",
            fields(dest=dest, reason=reason),
        )

    async def _deliver(self, dest: str, group: Sequence[Of]) -> Mapping[Of, RQError]:
        """Deliver entries to a queue; return why it has refused some of them; an
        error if all."""
        spool, entries = self._spool, [self._spool.owed[of] for of in group]
        socket = self._root.queue(dest).socket
        command, request = self._request(entries)
        reply = await loop_client.ask(socket, command, request)
        rows = client.demanded(reply) if command == MANY else [reply]
        failures: dict[Of, RQError] = {}
        for of, row in zip(group, rows, strict=True):
            failure = wire.failure_in(row)
            if failure is None:
                self._note_place(spool.owed.get(of), row)
                spool.sent(*of)
            else:
                failures[of] = failure
        self._wakeup.ask()
        return failures

    def _note_place(self, entry: Owed | None, reply: Sequence[object]) -> None:
        """Keep where a message goes on that was moved: others may wait for it."""
        if entry is None or fieldnames.ORIGIN not in entry.message:
            return  # a webhook or a notice
        spool = self._spool
        if spool.find(entry.msg_id) is not State.RELAYED:
            return  # a copy of it was handed on
        if spool.status(entry.msg_id).get("cause") == Cause.MOVED:
            msg_id = str(reply[1]).rpartition("/")[2]
            spool.goes_on(entry.msg_id, f"{entry.dest}/{msg_id}")

    def _request(self, entries: Sequence[Owed]) -> tuple[str, Mapping[str, object]]:
        """Return the command that delivers entries, and its argument."""
        entry, now = entries[0], self._spool.clock()
        whose = {"queue": self._name, "msg_id": entry.msg_id}
        is_guarded = not entry.files and entry.dest in guarded.QUEUES
        if is_guarded or len(entries) > 1:
            by = {OWED_BY: self._name} if is_guarded else {}
            return MANY, {"messages": [_with_key(e, now) for e in entries], **by}
        if not entry.files:
            return "create_message", _with_key(entry, now)
        self._spool.settle(entry.msg_id)  # its attachments lie where it ended
        message = _message(entry, now)
        return "take_copy", {"message": message, **whose, "_key": entry.key}


def _with_key(entry: Owed, now: float) -> JsonObject:
    return {**_message(entry, now), "_key": entry.key}


def _message(entry: Owed, now: float) -> JsonObject:
    """Return the message that is owed. One that was due then is due, though the clock was
    put back since."""
    due = entry.message.get("due")
    if not isinstance(due, int | float) or due <= now:
        return entry.message
    return {**entry.message, "due": turn(due, entry.since, False, now)}
