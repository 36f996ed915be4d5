"""Tells people that a timer's success is overdue, and that it has come.

They are those whom the queue of the timer, or the root's config, names in `on_err`. The
notice is a message of the queue `notice`, under a key that names since when a success is
awaited: a crash before it is noted as told sends the same one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import orjson

from rq import config
from rq.config import notices
from rq.config.notices import Matter
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.rpc import client, loop_client
from rq.timers import watch
from rq.timers.folder import Timers
from rq.timers.rule import Timer

NOTICE = "notice"  # the queue
_AGAIN = 60.0  # seconds after which it is tried again
_TIMEOUT = 10.0  # seconds

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Telling:
    """Sends the notices about timers."""

    held: Timers
    _next: dict[str, float] = field(default_factory=dict)  # of the monotonic clock
    _busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def look(self, elapsed: float, now: float) -> None:
        """Begin to tell what has changed; `elapsed` are seconds of the monotonic clock."""
        for timer in self.held.timers.values():
            name, past = timer.name, self.held.past[timer.name]
            late = watch.overdue(timer, self.held.fires.of(name), past, now)
            is_news = past.is_told != (late is not None)
            if is_news and name not in self._busy and self._is_time(name, elapsed):
                self._next[name] = elapsed + _AGAIN
                task = asyncio.get_running_loop().create_task(
                    self._tell(timer, late, now)
                )
                self._busy[name] = task
                task.add_done_callback(partial(self._over, name))

    def _is_time(self, name: str, elapsed: float) -> bool:
        return self._next.get(name, 0.0) <= elapsed

    def _over(self, name: str, _task: asyncio.Task[None]) -> None:
        del self._busy[name]

    async def _tell(self, timer: Timer, late: float | None, now: float) -> None:
        try:
            for target, message in self._messages(timer, late, now):
                reply = await loop_client.ask(
                    self.held.root.queue(NOTICE).socket,
                    "create_message",
                    message,
                    timeout=_TIMEOUT,
                )
                client.demanded(reply, f"queue {NOTICE} refused a notice to {target}: ")
        except (RQError, OSError) as error:
            log.warning("timer %s: %s", timer.name, error)
            return
        self.held.note(timer.name, is_told=late is not None)
        self._next.pop(timer.name, None)

    def _messages(
        self, timer: Timer, late: float | None, now: float
    ) -> Iterator[tuple[str, dict[str, object]]]:
        root = self.held.root
        queue = timer.queue if root.queue(timer.queue).config.exists() else NOTICE
        held = self.held.fires.of(timer.name)
        since = late or watch.last_success(held) or now
        at, over = (since + timer.within, {}) if late else (since, {"over": True})
        story = {"timer": timer.name, "queue": queue, "since": since, "at": at, **over}
        key = timer.key(since, "notice/over" if over else "notice/overdue")
        for target in targets(root, queue):
            yield target, notice(target, queue, {**story, "matter": "overdue"}, key)


def notice(
    target: str, queue: str, story: Mapping[str, object], key: str
) -> dict[str, object]:
    """Return the message that tells a story to a target, once for a key."""
    return {
        "dest": NOTICE,
        "param1": target,
        "param2": queue,
        "param3": story["matter"],
        "param4": orjson.dumps(story).decode(),
        "_key": f"{key}/{hashlib.sha256(target.encode()).hexdigest()[:16]}",
    }


def targets(root: Root, queue: str) -> list[str]:
    """Return whom a queue tells of failures, with the root's word where it says nothing."""
    try:
        own = config.read_queue(root.queue(queue))
        main = config.read_root(root)
    except BadConfig as error:
        log.warning("%s", error)
        return []
    wanted = notices.wanted(partial(getattr, own), partial(getattr, main))
    return notices.targets(wanted[Matter.ERR]) if Matter.ERR in wanted else []
