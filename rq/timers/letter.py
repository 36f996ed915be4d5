"""The letter of the morning: what ran since the last one, what failed, what did not run.

It is written when it is due, from the index (without one it says so), from the fires of
the timers, and from the disk; then it is a message of the queue `notice`, under a key that
names its time. That it was sent is noted durably behind it: a kill between the two writes
it again under the same key, which sends it once. One that is more than half a day late is
left out: the next one is near.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rq import config, zones
from rq.config import files
from rq.config.notices import Daily
from rq.errors import BadConfig, BadInput, RQError
from rq.index import doors
from rq.index.questions import Index
from rq.index.rows import FailureGroup, RunsQuestion, Sums
from rq.layout import Root
from rq.replies import health
from rq.rpc import client, loop_client
from rq.timers.cron import DEFAULT_ZONE, Cron, cron
from rq.timers.folder import Timers
from rq.timers.missed import MEANT
from rq.timers.rows import Missed
from rq.timers.telling import NOTICE, notice
from rq.words.wording import duration, moment, size

MATTER = "daily"
_DAY = 86400.0
_LATEST = _DAY / 2  # seconds that a letter may be late
_AGAIN = 60.0  # seconds after which it is tried again
_TIMEOUT = 10.0  # seconds
_MOST = 20  # groups, timers and spans that are named
_WIDEST = 200  # characters of a line

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Letter:
    """Sends the letter of the morning."""

    held: Timers
    setting: Daily | None
    _rule: Cron | None = None
    _sent: float = 0.0  # epoch seconds of the last that is over
    _next: float = 0.0  # of the monotonic clock
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def look(self, elapsed: float, now: float) -> None:
        """Begin to write the letter when it is due; `elapsed` are seconds of the
        monotonic clock."""
        if self.setting is None or self._tasks or elapsed < self._next:
            return
        rule = self._rule = self._rule or rule_of(self.setting)
        self._sent = min(self._sent or self._read(now), now)
        due = rule.until(max(self._sent, now - _LATEST), now, 1)
        if due:
            self._next = elapsed + _AGAIN
            task = asyncio.get_running_loop().create_task(
                self._send(due[-1], self.setting["to"])
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _read(self, now: float) -> float:
        """Return up to when letters were sent: of a new setting, up to now."""
        with contextlib.suppress(BadConfig):
            sent = config.read_json(self.held.root.daily_letter).get("sent")
            if isinstance(sent, int | float):
                return float(sent)
        self._note(now)
        return now

    def _note(self, sent: float) -> None:
        files.write_state(self.held.root.daily_letter, {"sent": sent})

    async def _send(self, at: float, to: Sequence[str]) -> None:
        try:
            facts = await asyncio.to_thread(of_index, self.held.root, at - _DAY, at)
            story = self.story(at, *facts)
            socket = self.held.root.queue(NOTICE).socket
            for target in to:
                message = notice(target, NOTICE, story, f"notice/{MATTER}/{at!r}")
                reply = await loop_client.ask(
                    socket, "create_message", message, timeout=_TIMEOUT
                )
                client.demanded(reply, f"queue {NOTICE} refused the letter: ")
            self._note(at)
            self._sent = at
        except (RQError, OSError) as error:
            log.warning("the letter of the morning is not sent yet: %s", error)

    def story(
        self, at: float, sums: Sums | None, lines: Sequence[str]
    ) -> dict[str, object]:
        """Return what the letter of a moment tells; `lines` are of the index."""
        since = at - _DAY
        missed = self.held.fires.missed_between(since, at)
        parts = [
            *lines,
            *_of_missed([row for row in missed if row.why not in MEANT]),
            *_of_timers(self.held, at),
            *_of_disk(self.held.root),
        ]
        return {
            "matter": MATTER,
            "queue": NOTICE,
            "at": at,
            "since": since,
            "about": _about(sums, missed),
            "lines": "\n".join(parts),
        }


def rule_of(setting: Daily) -> Cron:
    """Return when letters are due; in UTC if the machine's zone is not known."""
    hour, minute = setting["at"].split(":")
    zone = setting["timezone"]
    if not zone:
        try:
            zone = zones.of_machine(time.time(), os.environ)
        except BadInput as error:
            log.warning("the letter of the morning goes by UTC: %s", error)
            zone = DEFAULT_ZONE
    return cron(f"{int(minute)} {int(hour)} * * *", zone)


def of_index(root: Root, since: float, until: float) -> tuple[Sums | None, list[str]]:
    """Return the sums of what ran, and what the index has to tell."""
    try:
        with Index.at(root) as index:
            question = RunsQuestion(since=since, until=until, order="ran", limit=1)
            sums = index.runs(question, None).sums
            groups = index.failures(None, None)
            fresh = doors.freshness_text(index.freshness(), time.time())
    except RQError as error:
        return None, [f"What ran and what failed is not known: {error}"]
    age = [f"The index: {fresh}"] if fresh else []
    return sums, [*age, *_of_runs(sums), *_of_failures(groups)]


def _of_runs(sums: Sums) -> Iterator[str]:
    yield f"{sums.runs:,} runs in the last day, {sums.failed:,} failed."
    if slowest := sums.slowest:
        took, where = duration(slowest.ran), f"{slowest.queue}/{slowest.msg_id}"
        yield f"The slowest took {took}: {where}"


def _of_failures(groups: Sequence[FailureGroup]) -> Iterator[str]:
    if not groups:
        yield "No message has failed that is not acknowledged."
        return
    count = sum(group.count for group in groups)
    yield ""
    yield f"{count:,} failed and not acknowledged (`rq failures`):"
    for group in sorted(groups, key=lambda group: -group.count)[:_MOST]:
        where = ", ".join(group.queues)
        text = f"{group.count:,} x {group.wording or group.cause} ({where})"
        yield f"  {text}, the last at {moment(group.last)} UTC"[:_WIDEST]
    if len(groups) > _MOST:
        yield f"  and {len(groups) - _MOST:,} more kinds"


def _of_missed(rows: Sequence[Missed]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield "Missed fires (`rq timer ls`):"
    for row in rows[-_MOST:]:
        span = row.span
        more = " or more" if span.more else ""
        first, last = moment(span.first), moment(span.to)
        when = f"{first} UTC" if span.count == 1 else f"{first} to {last} UTC"
        why = row.text or health.REASONS[row.why]
        yield f"  {row.timer}: {span.count:,}{more}, {when}: {why}"[:_WIDEST]


def _of_timers(held: Timers, now: float) -> Iterator[str]:
    """Give which timers a person should look at, for other reasons than misses."""
    lines = []
    for name, timer in list(held.timers.items()):
        trouble = held.trouble(timer, now)
        if trouble and (trouble["failed"] or trouble["overdue"] is not None):
            lines.append(f"  {name}: {health.in_words(trouble)}"[:_WIDEST])
    if lines:
        yield ""
        yield "Timers to look at (`rq timer ls`):"
        yield from lines[:_MOST]


def _of_disk(root: Root) -> Iterator[str]:
    room = os.statvfs(root.path)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    yield ""
    yield f"The disk has {size(free)} free of {size(total)}."


def _about(sums: Sums | None, missed: Sequence[Missed]) -> str:
    """Return the letter in a line."""
    count = sum(row.span.count for row in missed if row.why not in MEANT)
    ran = "" if sums is None else f"{sums.runs:,} runs, {sums.failed:,} failed, "
    return f"the last day: {ran}{count:,} fires missed"
