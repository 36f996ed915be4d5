"""Learns what became of the messages of fires: asks their queues, in batches.

A queue is asked about all open fires at once: every two seconds while one of them is
fresh, else twice a minute. One that does not answer is asked again later; a fire whose
end is not known stays open, over restarts too. No owner is asked while nothing is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from rq import names
from rq.builtin.flow import look, record
from rq.errors import RQError
from rq.layout import Root
from rq.replies import EndView
from rq.rpc import client, loop_client
from rq.rpc.lines import parked_answers
from rq.timers.fires import Fires
from rq.timers.rows import Fired, Outcome
from rq.words.states import State

_OFTEN, _SELDOM = 2.0, 30.0  # seconds between two questions to a queue
_FRESH = 600.0  # seconds for which a fire may soon have ended
_MOST = 100  # messages of a question
_TIMEOUT = 10.0  # seconds

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcomes:
    """Asks for the ends of open fires."""

    root: Root
    fires: Fires
    woken: asyncio.Event  # when there is something to write
    _next: dict[str, float] = field(default_factory=dict)  # of the monotonic clock
    _questions: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def next_in(self, elapsed: float) -> float:
        """Return the seconds until a queue is to be asked; `elapsed` are seconds of the
        monotonic clock."""
        queues = _by_queue(self.fires.open())
        waits = (self._next.get(queue, 0.0) for queue in queues)
        return max(0.0, min(waits, default=math.inf) - elapsed)

    def look(self, elapsed: float, now: float) -> None:
        """Begin to ask the queues whose turn it is."""
        for queue, rows in _by_queue(self.fires.open()).items():
            if queue in self._questions or self._next.get(queue, 0.0) > elapsed:
                continue
            is_fresh = any(now - row.tried < _FRESH and _runs(row) for row in rows)
            self._next[queue] = elapsed + (_OFTEN if is_fresh else _SELDOM)
            task = asyncio.get_running_loop().create_task(self.ask(queue, rows))
            self._questions[queue] = task
            task.add_done_callback(functools.partial(self._over, queue))

    def _over(self, queue: str, _task: asyncio.Task[None]) -> None:
        del self._questions[queue]

    async def of(self, timer: str) -> None:
        """Ask about the open fires of a timer now."""
        rows = _by_queue(self.fires.open_of(timer))
        await asyncio.gather(*(self.ask(queue, rows[queue]) for queue in rows))

    async def ask(self, queue: str, rows: Sequence[Fired]) -> None:
        """Note what a queue says of messages; nothing, if it does not answer."""
        for at in range(0, len(rows), _MOST):
            batch = rows[at : at + _MOST]
            try:
                ends = await self._ends(queue, [msg_id_of(row) for row in batch])
            except (RQError, OSError) as error:
                log.debug("queue %s: %s", queue, error)
                return
            for row in batch:
                if view := ends.get(msg_id_of(row)):
                    self.fires.ended(row, outcome_of(row.outcome, view))
            self.woken.set()

    async def _ends(self, queue: str, msg_ids: list[str]) -> Mapping[str, EndView]:
        if queue == record.QUEUE:
            return await asyncio.to_thread(_ends_of_flows, self.root, msg_ids)
        # To ask for what has failed, again and again, would start a parked one each time.
        request = {"msg_ids": msg_ids}
        reply: object = await asyncio.to_thread(
            parked_answers.answer, self.root, queue, "get_ends", request
        )
        if reply is None:
            socket = self.root.queue(queue).socket
            reply = await loop_client.ask(socket, "get_ends", request, timeout=_TIMEOUT)
        return cast(Mapping[str, EndView], client.demanded(reply))


def _ends_of_flows(root: Root, msg_ids: Sequence[str]) -> dict[str, EndView]:
    """Return what became of flows as a whole; of one that is gone what is known stays."""
    ends = {}
    for msg_id in msg_ids:
        with contextlib.suppress(RQError):
            ends[msg_id] = look.end_of(root, msg_id)
    return ends


def outcome_of(before: Outcome, view: EndView) -> Outcome:
    """Return what became of a message, by what its queue says; one that failed and was
    removed since has failed."""
    if view["state"] == State.GONE and before.state == State.ERR:
        return replace(before, removed=True)
    return Outcome(
        state=view["state"],
        cause=view["cause"],
        text=view["text"],
        ended=view["ended"],
        acknowledged=view["acknowledged"],
    )


def _runs(row: Fired) -> bool:
    return row.outcome.state != State.ERR


def msg_id_of(row: Fired) -> str:
    """Return the id of the message of a fire."""
    return row.msg.rpartition("/")[2]


def _by_queue(rows: Sequence[Fired]) -> dict[str, list[Fired]]:
    by_queue: dict[str, list[Fired]] = {}
    for row in rows:
        queue = row.msg.split("/")[-2]
        if names.is_queue_name(queue):
            by_queue.setdefault(queue, []).append(row)
    return by_queue
