"""Tells people what is badly wrong with RQ, once, and when it is over.

The verdict (`rq.replies.verdict`) is asked for twice a minute while the root's setting
`on_trouble` names people to tell. What is CRITICAL in two verdicts, one after the other,
is told in one notice, however many queues share it; what passes by itself is not, nor what
a person wants so. Failed messages are left out: `on_err` tells of those. When nothing of
what was told is left, one more notice says so.

What was told is noted durably behind the notice, whose key names what was noted before: a
kill between the two sends the same notice again, and its queue takes it once. A root whose
supervisor is down tells nothing: for that a monitor waits for a ping (guide, Monitor).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from rq import config
from rq.config import files, parked
from rq.config.admin import admin_status
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.replies import ChildView, Detail, SupervisorStatus, health, verdict
from rq.replies.verdict import Fault, Level, Trouble
from rq.rpc import client, loop_client
from rq.timers.telling import NOTICE, notice

MATTER = "trouble"
LOOK = 30.0  # seconds between two verdicts
_TIMEOUT = 5.0  # seconds that an owner has for its answer
_AT_ONCE = 32  # owners that are asked at a time
_MOST = 20  # troubles that a notice names
_LEFT_OUT = frozenset({Fault.FAILED, Fault.SAMPLE})

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Troubles:
    """Tells of the troubles of a root."""

    root: Root
    to: Sequence[str]  # whom, as `notices.targets` gives them
    _open: dict[str, str] | None = None  # by their marks, in words; None: not read yet
    _at: float = 0.0  # epoch seconds of the last notice
    _before: frozenset[str] = frozenset()  # marks of the last verdict
    _next: float = 0.0  # of the monotonic clock
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def look(self, elapsed: float) -> None:
        """Begin to ask for a verdict when it is time; `elapsed` are seconds of the
        monotonic clock."""
        if not self.to or self._tasks or elapsed < self._next:
            return
        self._next = elapsed + LOOK
        task = asyncio.get_running_loop().create_task(self._ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self) -> None:
        try:
            await self._tell({mark(item): item for item in await troubles(self.root)})
        except (RQError, OSError) as error:
            log.warning("troubles could not be told: %s", error)

    async def _tell(self, current: Mapping[str, Trouble]) -> None:
        before = self._read()
        lasting = {m: item for m, item in current.items() if m in self._before}
        is_over = not before.keys() & (current.keys() | self._before)
        self._before = frozenset(current)
        news = [item for m, item in lasting.items() if m not in before]
        if news:
            after = {**before, **{mark(item): item.sentence for item in news}}
            await self._send(news_of(news), after)
        elif before and is_over:
            await self._send(over(before), {})

    async def _send(
        self, story: Mapping[str, object], after: Mapping[str, str]
    ) -> None:
        now = time.time()
        story = {"matter": MATTER, "queue": NOTICE, "at": now, **story}
        key = f"notice/{MATTER}/{self._at!r}/{_digest(after)}"
        for target in self.to:
            reply = await loop_client.ask(
                self.root.queue(NOTICE).socket,
                "create_message",
                notice(target, NOTICE, story, key),
                timeout=_TIMEOUT,
            )
            client.demanded(reply, f"queue {NOTICE} refused a notice to {target}: ")
        files.write_state(self.root.told_troubles, {"at": now, "told": after})
        self._open, self._at = dict(after), now

    def _read(self) -> dict[str, str]:
        """Return what was told and is not over, as it was noted."""
        if self._open is None:
            self._open = {}
            with contextlib.suppress(BadConfig):
                noted = config.read_json(self.root.told_troubles)
                marks, at = noted.get("told"), noted.get("at")
                if isinstance(marks, dict) and isinstance(at, int | float):
                    self._open = {name: str(text) for name, text in marks.items()}
                    self._at = float(at)
        return self._open


async def troubles(root: Root) -> list[Trouble]:
    """Return what is CRITICAL in the verdict on a root, but for messages that failed."""
    question = loop_client.ask(root.supervisor_socket, "status", timeout=_TIMEOUT)
    status = cast(SupervisorStatus, await question)
    slots = asyncio.Semaphore(_AT_ONCE)
    children = [c for c in health.children(status) if c.get("kind") == "queue"]
    queues = await asyncio.gather(*(_queue(root, child, slots) for child in children))
    return [
        item
        for item in health.of_all(status, queues, is_running=True)
        if item.level is Level.CRITICAL and item.fault not in _LEFT_OUT
    ]


async def _queue(
    root: Root, child: ChildView, slots: asyncio.Semaphore
) -> health.Queue:
    """Return a queue as its owner says that it is."""
    name, detail = child["name"], None
    async with slots:
        with contextlib.suppress(RQError, OSError):
            reply = parked.answer(root, name, "detail")
            if reply is None:
                socket = root.queue(name).socket
                reply = await loop_client.ask(socket, "detail", timeout=_TIMEOUT)
            detail = cast(Detail, client.demanded(reply))
    return health.Queue(
        name=name,
        admin=str(admin_status(root, name)),
        wish="",  # what a person wants is no alarm
        counts={},
        detail=detail,
        child=child,
        silence=f"log/queue-{name}.log may say why",
    )


def mark(trouble: Trouble) -> str:
    """Return what tells a trouble from others."""
    return f"{trouble.fault}/{trouble.who}"


def news_of(items: Iterable[Trouble]) -> dict[str, object]:
    """Return what a notice tells of troubles; what queues share is one line.

    >>> item = Trouble(fault=Fault.HELPER, who="web", what="DOWN")
    >>> news_of([item])["about"]
    'web is DOWN: log/ and `rq doctor` may say why'
    """
    lines = [item.sentence for item in verdict.folded(items)]
    about = lines[0] if len(lines) == 1 else f"{len(lines)} troubles: {lines[0]}"
    if len(lines) > _MOST:
        lines[_MOST:] = [f"and {len(lines) - _MOST} more"]
    return {"about": about, "lines": "\n".join([*lines, "", _HOW])}


def over(before: Mapping[str, str]) -> dict[str, object]:
    """Return what a notice tells when all that was told is over."""
    lines = ["What was told is over:", *list(before.values())[:_MOST]]
    return {"about": "what was wrong is over", "lines": "\n".join(lines)}


_HOW = "`rq status` says how it is now."


def _digest(marks: Mapping[str, str]) -> str:
    return hashlib.sha256("\n".join(sorted(marks)).encode()).hexdigest()[:16]
