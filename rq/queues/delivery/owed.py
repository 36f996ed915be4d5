"""The debts of a message that ends: webhooks, a copy, notices, for other queues to
deliver.

What is owed stands in the line that ends the message, so a crash cannot part the two.
Each entry is delivered under a key that the receiver remembers, hence once.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from itertools import takewhile
from typing import NotRequired, TypedDict, cast

import orjson

from rq import names
from rq.config.admin import Admin, admin_status
from rq.config.settings import RootConfig
from rq.errors import RQError, Unreachable
from rq.layout import Root
from rq.logs import fields
from rq.message import fieldnames
from rq.message.after import GATES
from rq.message.fields import ENV_STRING_LIMIT
from rq.message.message import URLS_CUT, Message
from rq.queues.attempts.outcome import Outcome
from rq.queues.delivery import copies, notices
from rq.queues.owner.settings import Settings
from rq.spool import Spool
from rq.spool.news import Ended, Printed
from rq.spool.outbox import Owed
from rq.spool.record import Facts, More, OutEntry

WEBHOOK = "webhook"
IN_DOUBT = 6 * 86400.0  # longer, and the receiver may have forgotten the key
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
    orig_msg_id: NotRequired[str]
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
    if queue == GATES and not message.after and facts["outcome"] == "done":
        return []  # its flow begins now; another message tells when that has ended
    if URLS_CUT in message.extra:
        said = message.extra[URLS_CUT]
        log.warning("%s", fields(queue=queue, msg_id=message.msg_id, reason=said))
    story = _story(config, queue, message, facts, now)
    text = orjson.dumps(story).decode()
    if len(text.encode()) > ENV_STRING_LIMIT - 1024:
        text = orjson.dumps(_cut(story)).decode()
    return [
        _to_webhook(url, text, _webhook_id(story, number, text), message.by)
        for number, url in enumerate(message.post_run_webhook)
    ]


def _to_webhook(url: str, text: str, webhook_id: str, by: str | None) -> OutEntry:
    params = {"param1": url, "param2": text, "param3": webhook_id}
    whose = {fieldnames.BY: by or ""}
    return {"dest": WEBHOOK, "message": {"dest": WEBHOOK, **params, **whose}}


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
    cut: _Story = {
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
    if "orig_msg_id" in story:  # it says that what is posted to a queue was handed on
        cut["orig_msg_id"] = story["orig_msg_id"]
    return cut


def _webhook_id(story: _Story, number: int, text: str) -> str:
    """Return what names this telling for ever: no dot, and nothing that a sender of
    messages could choose.

    The text is part of it: a message that a backup brought back may end once more, with
    the same id, attempt and state, and what is told of that end is not known yet.
    """
    of = f"{story['msg_id']}\n{story['attempt']}\n{story['state']}\n{number}\n{text}"
    return f"msg_{hashlib.sha256(of.encode()).hexdigest()[:32]}"


# ---- its delivery


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


def check_target(settings: Settings, decided: Outcome) -> Outcome:
    """Return the outcome of a message that is to be handed on: err when no queue would
    take it, or its script may not send it there."""
    if not decided.dest:
        return decided
    try:
        copies.check_sender(settings, decided.dest)
        copies.target(settings.root, decided.dest)
    except RQError as error:
        return copies.not_forwarded(str(error))
    return decided
