"""What the end of a message owes to other queues, and its delivery.

What is owed stands in the line that ends the message, so a crash cannot part the two.
Each entry is delivered under a key that the receiver remembers, hence once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from datetime import UTC, datetime
from itertools import takewhile
from typing import NotRequired, TypedDict, cast

import orjson

from rq import back_off, client, names
from rq.config.admin import Admin, admin_status
from rq.config.settings import RootConfig
from rq.errors import OutcomeUnknown, RQError, Unreachable
from rq.layout import Root
from rq.logs import fields
from rq.message import ENV_STRING_LIMIT, URLS_CUT, Message
from rq.queues.attempts.outcome import Outcome
from rq.queues.concurrency.wakeup import Wakeup
from rq.queues.delivery import copies, notices
from rq.queues.owner.health import Health
from rq.queues.owner.settings import Settings
from rq.spool import Spool
from rq.spool.news import Ended, Printed
from rq.spool.outbox import Of, Owed
from rq.spool.record import Facts, More, OutEntry

WEBHOOK = "webhook"
IN_DOUBT = 6 * 86400.0  # longer, and the receiver may have forgotten the key
LOOK = 5.0  # seconds between looks at what could not be delivered
_REFUSALS = 10  # in a row, before the queue is tried again after a pause
_TEXT = 2000  # characters of a text in a story that has to be cut

log = logging.getLogger(__name__)


class _Times(TypedDict):
    """Moments of a message, as ISO 8601 has them."""

    created: str
    due: str
    ended: str


class _Story(TypedDict):
    """How a message has ended; its sender's own fields stand beside these."""

    msg_id: str  # the full id
    id: str
    queue: str
    state: str
    attempt: int
    times: _Times
    status: str
    outcome: Facts
    cut: NotRequired[bool]  # only these are told: the whole is too long


# ---- what is owed


def owes(
    spool: Spool,
    settings: Settings,
    message: Message,
    decided: Outcome,
    facts: Facts,
    printed: Printed | None = None,
) -> More:
    """Return what a message that ends owes: its webhooks, its notices, and its copy when
    it is handed on."""
    more = spool.owed_by(message, facts, printed)
    if decided.dest:
        now, result = spool.clock(), facts.get("result")
        copy = copies.forwarded(settings, message, decided.dest, now, result)
        more["out"] = [*more.get("out", ()), copy]
    return more


def at_end(settings: Settings, ended: Ended) -> More:
    """Return what each message owes at its end: its webhooks, and its notices."""
    more = notices.of_end(settings, ended)
    main, name = settings.main, settings.name
    hooks = webhooks(main, name, ended.message, ended.facts, ended.now)
    if hooks:
        more["out"] = [*hooks, *more.get("out", ())]
    return more


def webhooks(
    config: RootConfig,
    queue: str,
    message: Message,
    facts: Facts,
    now: float,
) -> list[OutEntry]:
    """Return the messages to the webhook queue that tell how a message has ended."""
    if not message.post_run_webhook:
        return []
    if URLS_CUT in message.extra:
        said = message.extra[URLS_CUT]
        log.warning("%s", fields(queue=queue, msg_id=message.msg_id, reason=said))
    story = _story(config, queue, message, facts, now)
    text = orjson.dumps(story).decode()
    if len(text.encode()) > ENV_STRING_LIMIT - 1024:
        text = orjson.dumps(_cut(story)).decode()
    return [
        _to_webhook(url, text, _webhook_id(story, number, text))
        for number, url in enumerate(message.post_run_webhook)
    ]


def _to_webhook(url: str, text: str, webhook_id: str) -> OutEntry:
    params = {"param1": url, "param2": text, "param3": webhook_id}
    return {"dest": WEBHOOK, "message": {"dest": WEBHOOK, **params}}


def _story(
    config: RootConfig,
    queue: str,
    message: Message,
    facts: Facts,
    now: float,
) -> _Story:
    """Return the story of an end; the names that the ancestor used mean what they did."""
    state, text = str(facts["outcome"]), facts.get("text")
    story: _Story = {
        "msg_id": config.full_id(queue, message.msg_id),
        "id": message.msg_id,
        "queue": queue,
        "state": state,
        "status": f"{state} - {text}" if text else state,
        "attempt": message.attempt,
        "outcome": facts,
        "times": {
            "created": _moment(names.created(message.msg_id)),
            "due": _moment(message.due),
            "ended": _moment(now),
        },
    }
    return cast(_Story, {**message.to_json(), **story})


def _moment(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return when.replace("+00:00", "Z")


def _cut(story: _Story) -> _Story:
    """Return the most important fields of a story that is too long for an environment."""
    text = story["outcome"].get("text", "")
    outcome: Facts = {**story["outcome"], "text": text[:_TEXT]}
    if "result" in outcome:
        outcome["result"] = outcome["result"][:_TEXT]
    return {
        "msg_id": story["msg_id"],
        "id": story["id"],
        "queue": story["queue"],
        "state": story["state"],
        "attempt": story["attempt"],
        "times": story["times"],
        "status": story["status"][:_TEXT],
        "outcome": outcome,
        "cut": True,
    }


def _webhook_id(story: _Story, number: int, text: str) -> str:
    """Return what names this telling for ever: no dot, and nothing that a sender of
    messages could choose.

    The text is part of it: a message that a backup brought back may end once more, with
    the same id, attempt and state, and what is told of that end is not known yet.
    """
    of = f"{story['msg_id']}\n{story['attempt']}\n{story['state']}\n{number}\n{text}"
    return f"msg_{hashlib.sha256(of.encode()).hexdigest()[:32]}"


# ---- delivery


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
        owed, now = self._spool.owed, time.monotonic()
        if owed.newest == self._newest and now < self._look_at:
            return
        self._newest, self._look_at = owed.newest, now + LOOK
        last = owed.last_aside
        if last is not None and not in_doubt(last, self._spool.clock()):
            owed.take_up()  # a clock that was ahead has been set back
        for dest in owed.dests:
            task = self._tasks.get(dest)
            if (task is None or task.done()) and now >= self._held.get(dest, 0.0):
                self._tasks[dest] = asyncio.create_task(self._deliver_all(dest))

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _deliver_all(self, dest: str) -> None:
        """Deliver what is owed to one queue, as it was owed. What it refuses is tried
        again after all others; after ten refusals in a row there is a pause."""
        owed = self._spool.owed
        refused: set[Of] = set()
        in_a_row = 0
        reason: Exception | None = None
        while in_a_row < _REFUSALS:
            of = self._next(dest)
            if of is None or of in refused:
                break
            try:
                await self._deliver(of, owed[of])
                in_a_row = 0
                self._failures.pop(dest, None)
            except (Unreachable, OutcomeUnknown, OSError) as error:
                reason = error
                break
            except RQError as error:
                in_a_row, reason = in_a_row + 1, error
                refused.add(of)
                if of in owed:
                    owed.put_last(of)
        if reason is not None:
            self._hold(dest, reason)
            return
        self._health.deliveries.pop(dest, None)

    def _next(self, dest: str) -> Of | None:
        """Return what a queue gets next, of what is owed by lines that are durable: what
        a power cut could undo must not be told."""
        spool = self._spool
        while (of := spool.owed.first(dest)) is not None:
            if not in_doubt(spool.owed[of], spool.clock()):
                return of if of[0] <= spool.durable_seq else None
            spool.owed.set_aside(of)
        return None

    def _hold(self, dest: str, reason: Exception) -> None:
        failures = self._failures[dest] = self._failures.get(dest, 0) + 1
        self._health.deliveries[dest] = why_not(self._root, dest, reason)
        pause = back_off.delay(failures, 0.5, 60.0)
        self._held[dest] = time.monotonic() + pause
        self._look_at = min(self._look_at, self._held[dest])
        self._wakeup.ask_in(pause)
        log.warning(
            "copies or webhooks cannot be delivered yet; RQ tries again: %s",
            fields(dest=dest, reason=reason),
        )

    async def _deliver(self, of: Of, entry: Owed) -> None:
        spool = self._spool
        command, request = "create_message", {**entry.message, "_key": entry.key}
        if entry.files:
            spool.settle(entry.msg_id)  # its attachments lie where it ended
            whose = {"queue": self._name, "msg_id": entry.msg_id}
            command, request = (
                "take_copy",
                {"message": entry.message, **whose, "_key": entry.key},
            )
        socket = self._root.queue(entry.dest).socket
        copies.accepted(await client.ask_async(socket, command, request))
        spool.sent(*of)
        self._wakeup.ask()


def why_not(root: Root, dest: str, error: Exception | None = None) -> str:
    """Return what an `error` of a delivery means, or what would prevent one now."""
    if not root.queue(dest).config.exists():
        return f"there is no queue {dest}"
    if isinstance(error, Unreachable):
        return f"nobody answers for queue {dest}"
    if error is not None:
        return f"queue {dest} says: {error}"
    admin = admin_status(root, dest)
    return "" if admin is Admin.UP else f"queue {dest} is {admin}"


def in_doubt(entry: Owed, now: float) -> bool:
    """Whether an entry is too old to be tried again: its receiver may have forgotten the
    key."""
    return now - entry.since >= IN_DOUBT


def doubtful(spool: Spool) -> int:
    """Return how many entries of the outbox are not tried any more."""
    now = spool.clock()
    return sum(
        1 for _ in takewhile(lambda entry: in_doubt(entry, now), spool.owed.values())
    )


def check_target(root: Root, decided: Outcome) -> Outcome:
    """Return the outcome of a message that is to be handed on: err when nobody would
    take it."""
    if not decided.dest:
        return decided
    try:
        copies.target(root, decided.dest)
    except RQError as error:
        return copies.not_forwarded(str(error))
    return decided
