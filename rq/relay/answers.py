"""What a reply over HTTP means for the hand-over; pure."""

from __future__ import annotations

from typing import Any

import orjson

from rq import names, sentences, wire
from rq.errors import BadInput
from rq.kinds import PASSING, Kind
from rq.outbound.reply import Reply
from rq.relay import words
from rq.relay.two_phase import Answer, Heard, Step

_PAST_PREP = frozenset({"que", "run", "done", "relayed", "err"})
# What a kind of failure means for the hand-over; any other is for good.
HEARD_OF: dict[Kind, Heard] = {
    Kind.ALREADY_COMMITTED: Heard.COMMITTED,
    Kind.NO_SUCH_MESSAGE: Heard.UNKNOWN,
    Kind.UNREADABLE: Heard.UNKNOWN,
    Kind.NOT_WHOLE: Heard.DAMAGED,
    **dict.fromkeys(PASSING, Heard.SILENT),
}
_NOT_NOW = frozenset({408, 425, 429})
_LONGEST_ID = 2000  # characters; it is kept, and shown


def prepared(reply: Reply) -> Answer:
    """Return what the answer to PREPARE means."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.PREPARE)
    if not _is_ok(said):
        return _by_kind(said, reply.kind)
    if not _is_full_id(said[1]):
        return Answer(Heard.SILENT, words.NO_ANSWER)
    keyed = len(said) > 2
    past = keyed and said[2] != "prep"
    heard = Heard.COMMITTED if past else Heard.PREP
    return Answer(heard, remote=said[1], keyed=keyed)


def asked(reply: Reply) -> Answer:
    """Return what the answer to `GET ID/state.json` means."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.ASK)
    if said[0] == "prep":
        return Answer(Heard.PREP)
    if str(said[0]) in _PAST_PREP:
        return Answer(Heard.COMMITTED)
    return _by_kind(said, reply.kind)


def progress(reply: Reply, md5: str) -> Answer | int:
    """Return how many bytes of a file have come; or what the answer means when it is no
    number."""
    said = _said(reply)
    if said is not None and _is_ok(said) and isinstance(said[1], int):
        return said[1]
    return attached(reply, md5)


def attached(reply: Reply, md5: str) -> Answer:
    """Return what the answer to an upload means; `md5` is that of what was sent."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.ATTACH)
    if not _is_ok(said):
        return _by_kind(said, reply.kind)
    if said[1] == f"{md5}-Attached successfully":
        return Answer(Heard.WHOLE)
    return Answer(Heard.SILENT, "it arrived as another file")


def committed(reply: Reply) -> Answer:
    """Return what the answer to COMMIT means."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.COMMIT)
    return Answer(Heard.COMMITTED) if _is_ok(said) else _by_kind(said, reply.kind)


def copied(said: Any) -> Answer:
    """Return what the answer of a queue of this host to `take_copy` means."""
    if not isinstance(said, list) or not said:
        return Answer(Heard.SILENT, f"an answer that is none: {said!r:.100}")
    if _is_ok(said):
        return Answer(Heard.COMMITTED, remote=str(said[1]))
    error = wire.failure_in(said)
    if error is None:
        return Answer(Heard.SILENT, f"an answer that is none: {said!r:.100}")
    answer = _by_kind(said, error.kind, str(error))
    # Nothing waits there in prep: what is not found is what was to be copied.
    silent = answer.heard is Heard.SILENT
    return answer if silent else Answer(Heard.REFUSED, answer.text)


def _said(reply: Reply) -> list[Any] | None:
    """Return the list that a reply holds; None when it is no list."""
    found = _json(reply.body) if reply.status == 200 else None
    return found if isinstance(found, list) and found else None


def _is_ok(said: list[Any]) -> bool:
    return said[0] == "ok" and len(said) > 1


def _is_full_id(value: object) -> bool:
    """Whether it is the id of a message as a receiver calls it."""
    if not isinstance(value, str) or len(value) > _LONGEST_ID:
        return False
    try:
        queue, short = names.split_url(value)
    except BadInput:
        return False
    whole = value.isprintable() and " " not in value and names.is_remote(value)
    return whole and value.endswith(f"/q/{queue}/{short}")


def _by_kind(
    said: list[Any], kind: Kind | None = None, shown: str | None = None
) -> Answer:
    """Return what a refusal means, by its kind or, of one who tells none, by its
    sentence; and what is `shown` of it, by itself RQ's own words alone."""
    known = kind or sentences.kind_of(str(said[1] if len(said) > 1 else said[0]))
    heard = HEARD_OF.get(known, Heard.REFUSED) if known else Heard.REFUSED
    return Answer(heard, words.refusal(said) if shown is None else shown)


def _by_status(reply: Reply, step: Step) -> Answer:
    status = reply.status
    if status == 200:
        return Answer(Heard.SILENT, words.NO_ANSWER)
    text = words.by_status(status, _json(reply.body))
    if status == 404 and step is not Step.PREPARE:
        return Answer(Heard.UNKNOWN, text)
    if 300 <= status < 500 and status not in _NOT_NOW:
        return Answer(Heard.REFUSED, text)
    return Answer(Heard.SILENT, text)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)  # no text that UTF-8 could not hold
    except orjson.JSONDecodeError:
        return None
