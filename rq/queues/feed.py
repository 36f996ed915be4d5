"""Makes messages of rows that are accepted, as many as there is room for.

So messages that a client writes by the million need no folder and no memory before their
turn is near. Those behind them are not served earlier for that: rows are due since they
were accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import orjson

from rq.errors import BadMessage, Damaged
from rq.logs import fields
from rq.proc import users
from rq.proc.slices import Slice
from rq.queues.control.rows import are_taken
from rq.queues.owner.owner import Owner
from rq.spool.rows import Rows, read, remove
from rq.words.states import State

MOST = 100_000  # messages that were rows and wait, at most
LAG = 500  # folders still to be made, beyond which no more messages are
_LOOK, _LOOKS = 0.02, 2000  # seconds between looks at which still wait; at so many
_AGAIN = 10.0  # seconds until a file that cannot be used is looked at again
_DROPPED = 5  # files that are removed in one turn

log = logging.getLogger(__name__)


class Feed:
    """The rows of one queue on their way to be messages."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._spool = owner.spool
        self._stock = owner.spool.txns.stock
        self._now: Rows | None = None  # whose lines these are
        self._lines: deque[bytes] = deque()
        self._reading: asyncio.Task[None] | None = None
        # Messages that were rows and have waited when that was last looked at.
        self._waiting: deque[str] = deque()
        self._looked = 0.0
        self._left: dict[str, float] = {}  # unusable file: until when (monotonic)
        if self._stock.left:
            now, in_que = self._spool.clock(), self._spool.in_state(State.QUE)
            ready = (i for i, entry in in_que if entry.due <= now and entry.may_run)
            self._waiting.extend(islice(ready, MOST))

    def some(self, seconds: Callable[[], float]) -> bool:
        """Make messages for so many `seconds`; return whether more can be made at once."""
        if not self._stock.left or self._reading is not None:
            return False
        if not self._has_lines():
            self._open()
            return False
        room = self._room()
        turn = Slice(seconds())
        for line in list(islice(self._lines, max(0, room))):
            if self._spool.group_full or not self._make(line):
                break
            self._lines.popleft()
            if turn.is_over:
                break
        return self._stock.left > 0 and room > 0

    def _has_lines(self) -> bool:
        """Whether the rows that come next are at hand."""
        if self._stock.hurry and not self._stock.coming:
            self._stock.hurry = False
        if self._now is not None and not self._stock.has(self._now):
            self._lines.clear()  # an operator has discarded the rest
        return bool(self._lines)

    def _room(self) -> int:
        """Return how many messages may be made now."""
        owner = self._owner
        room = LAG - self._spool.lag
        if room <= 0 or owner.admission.closed() is not None:
            return 0
        if self._stock.hurry or not are_taken(owner.config):
            return room  # a client looks at all that wait
        if len(self._waiting) >= MOST:
            self._look()
        most = min(len(self._waiting), self._spool.counts.of(State.QUE))
        return min(room, MOST - most)

    def _look(self) -> None:
        """Look which of the messages still wait, some at a time."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        for _ in range(min(_LOOKS, len(self._waiting))):
            msg_id = self._waiting.popleft()
            if self._waits(msg_id):
                self._waiting.append(msg_id)

    def _waits(self, msg_id: str) -> bool:
        entry = self._spool.entry_of(msg_id)
        return entry is not None and entry.state is State.QUE

    def _make(self, line: bytes) -> bool:
        """Make a message of the next row; return whether the one after it may follow."""
        now, owner = self._now, self._owner
        assert now is not None, "lines are of a file"
        try:
            request = {"dest": owner.name, **orjson.loads(line), "due": now.due}
            message = owner.make(request, is_new=False, by=self._sender_of(now))
            self._spool.submit(message, row=(now.file, now.taken))
        except (BadMessage, orjson.JSONDecodeError) as error:
            now.refused = f"row {now.taken} of it is no message: {error}"
            self._leave(now, now.refused)
            return False
        now.unusable = now.refused = ""
        owner.backlog.put(message.msg_id, message)
        owner.count("accepted")
        self._waiting.append(message.msg_id)
        return True

    def _sender_of(self, rows: Rows) -> str | None:
        """Return who sends rows: the user whose transaction has accepted them."""
        txn = self._spool.txns.get(rows.txn)
        if txn is None or txn.preparer is None:
            return None
        return txn.preparer or users.kernel_name(os.geteuid())  # "": RQ's own user

    # ---- files

    def _open(self) -> None:
        """Begin to read the file of the next row, unless all are left alone."""
        now = time.monotonic()
        chosen = (rows for rows in self._stock if self._left.get(rows.file, 0.0) <= now)
        self._now = next(chosen, None)
        if self._now is not None:
            self._reading = self._owner.loop.create_task(self._read(self._now))

    async def _read(self, now: Rows) -> None:
        owner = self._owner
        run, queue = owner.loop.run_in_executor, self._spool.queue
        try:
            self._lines = deque(await run(owner.pools.looks, read, queue, now))
            now.unusable = now.refused
        except (Damaged, OSError) as error:
            self._leave(now, str(error))
        finally:
            self._reading = None
        owner.wake()

    def _leave(self, bad: Rows, why: str) -> None:
        """Leave a file alone for a while; the next one goes on."""
        self._lines.clear()
        self._left[bad.file] = time.monotonic() + _AGAIN
        if bad.unusable != why:
            bad.unusable = why
            log.error(
                "rows that were accepted do not become messages; RQ tries again: %s",
                fields(rows=bad.file, left=bad.left, reason=why),
            )
        self._owner.wakeup.ask_in(_AGAIN)

    def remove_used(self) -> bool:
        """Remove files that nothing needs any more, a few; return whether more can be."""
        durable_seq = self._spool.durable_seq
        for file in self._stock.droppable(durable_seq, _DROPPED):
            with contextlib.suppress(OSError):  # the next start removes it
                remove(self._spool.queue, file)
        return self._stock.drops(durable_seq)
