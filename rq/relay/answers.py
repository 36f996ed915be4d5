"""What a reply over HTTP means for the hand-over; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from rq import names
from rq.errors import BadInput
from rq.kinds import PASSING, Kind
from rq.outbound.exchange import Reply, phrase
from rq.relay.two_phase import Answer, Heard, Step
from rq.rpc import wire
from rq.words import sentences
from rq.words.nesting import Json

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
    values = _listed(reply)
    if values is None:
        return _by_status(reply, Step.PREPARE)
    if not _is_ok(values):
        return _by_kind(values, reply.kind)
    remote = values[1]
    if not isinstance(remote, str) or not _is_full_id(remote):
        return Answer(Heard.SILENT, _NO_ANSWER)
    knows_keys = len(values) > 2
    past = knows_keys and values[2] != "prep"
    heard = Heard.COMMITTED if past else Heard.PREP
    return Answer(heard, remote=remote, knows_keys=knows_keys)


def looked_up(reply: Reply) -> Answer:
    """Return what the answer to `GET ID/state.json` means."""
    values = _listed(reply)
    if values is None:
        return _by_status(reply, Step.ASK)
    if values[0] == "prep":
        return Answer(Heard.PREP)
    if str(values[0]) in _PAST_PREP:
        return Answer(Heard.COMMITTED)
    return _by_kind(values, reply.kind)


def progress(reply: Reply, md5: str) -> Answer | int:
    """Return how many bytes of a file have come; or what the answer means when it is no
    number."""
    values = _listed(reply)
    have = values[1] if values is not None and _is_ok(values) else None
    if isinstance(have, int) and not isinstance(have, bool) and have >= 0:
        return have
    return attached(reply, md5)


def attached(reply: Reply, md5: str) -> Answer:
    """Return what the answer to an upload means; `md5` is that of what was sent."""
    values = _listed(reply)
    if values is None:
        return _by_status(reply, Step.ATTACH)
    if not _is_ok(values):
        return _of_prepared(values, reply.kind)
    if values[1] == f"{md5}-Attached successfully":
        return Answer(Heard.WHOLE)
    return Answer(Heard.SILENT, "it arrived as another file")


def committed(reply: Reply) -> Answer:
    """Return what the answer to COMMIT means."""
    values = _listed(reply)
    if values is None:
        return _by_status(reply, Step.COMMIT)
    if not _is_ok(values):
        return _of_prepared(values, reply.kind)
    return Answer(Heard.COMMITTED, remote=_joined(values))


def _joined(values: Sequence[Json]) -> str | None:
    """Return the full id of the equal message that stands at the receiver for what was
    committed; None: it stands for itself."""
    said, stands = (*values[2:], None, None)[:2]
    is_id = isinstance(stands, str) and _is_full_id(stands)
    return str(stands) if said == "joined" and is_id else None


def copied(values: Json) -> Answer:
    """Return what the answer of a queue of this host to `take_copy` means."""
    if not isinstance(values, list) or not values:
        return Answer(Heard.SILENT, f"{_NO_ANSWER}: {values!r:.100}")
    if _is_ok(values):
        return Answer(Heard.COMMITTED, remote=str(values[1]))
    error = wire.failure_in(values)
    if error is None:
        return Answer(Heard.SILENT, f"{_NO_ANSWER}: {values!r:.100}")
    answer = _by_kind(values, error.kind, str(error))
    # Nothing waits there in prep: what is not found is what was to be copied.
    silent = answer.heard is Heard.SILENT
    return answer if silent else Answer(Heard.REFUSED, answer.text)


def _listed(reply: Reply) -> Sequence[Json] | None:
    """Return the list that a reply holds; None when it is no list."""
    body = _json(reply.body) if reply.status == 200 else None
    return body if isinstance(body, list) and body else None


def _is_ok(values: Sequence[Json]) -> bool:
    return values[0] == "ok" and len(values) > 1


def _is_full_id(value: str) -> bool:
    """Whether it is the id of a message as a receiver calls it."""
    if len(value) > _LONGEST_ID:
        return False
    try:
        queue, short = names.split_url(value)
    except BadInput:
        return False
    whole = value.isprintable() and " " not in value and names.is_remote(value)
    return whole and value.endswith(f"/q/{queue}/{short}")


def _by_kind(
    values: Sequence[Json], kind: Kind | None = None, text: str | None = None
) -> Answer:
    """Return what a refusal means, by its kind or, if it has none, by its sentence.

    `text` is shown to people; None: what in the reply is in RQ's own words.
    """
    kind = kind or sentences.kind_of(str(values[1] if len(values) > 1 else values[0]))
    heard = HEARD_OF.get(kind, Heard.REFUSED) if kind else Heard.REFUSED
    return Answer(heard, _refusal(values) if text is None else text)


def _of_prepared(values: Sequence[Json], kind: Kind | None) -> Answer:
    """As `_by_kind`, of what is prepared. Another user did that if the token changed
    meanwhile; then it is begun again, for nothing of it is accepted."""
    answer = _by_kind(values, kind)
    if kind is Kind.NOT_ALLOWED:
        return Answer(Heard.UNKNOWN, answer.text)
    return answer


def _by_status(reply: Reply, step: Step) -> Answer:
    status = reply.status
    if status == 200:
        return Answer(Heard.SILENT, _NO_ANSWER)
    text = _status_text(status, _json(reply.body))
    if status == 404 and step is not Step.PREPARE:
        return Answer(Heard.UNKNOWN, text)
    if 300 <= status < 500 and status not in _NOT_NOW:
        return Answer(Heard.REFUSED, text)
    return Answer(Heard.SILENT, text)


def _json(body: bytes) -> Json:
    try:
        value: Json = orjson.loads(body)  # no text that UTF-8 could not hold
    except orjson.JSONDecodeError:
        return None
    return value


# ---- what people are shown

# Of an answer they are shown sentences of RQ, and never a body as it came. A message may
# lead to a service that only this machine can reach. If the body of its answer were shown,
# every sender of messages could read it.
_LIMIT = 300  # characters
_NOT_SHOWN = "its reason is not shown, as it is not in the words of RQ: look there"
_NO_ANSWER = "the answer is not one of RQ's"
_OF_STATUS = {
    401: "put user and password, or a token, for it into config/peers.json",
    403: "who is set for it in config/peers.json may not do that",
    404: "there is no such queue or message",
}


def _sentence(text: object) -> str | None:
    """Return a text if RQ may have said it, else None."""
    if not isinstance(text, str) or sentences.kind_of(text) is None:
        return None
    return " ".join(text.split())[:_LIMIT]


def _refusal(values: Sequence[Json]) -> str:
    """Return what a reply `["fail", TEXT]`, or the ancestor's `[false, TEXT]`, says to
    a person."""
    plain = len(values) == 2 and values[0] in ("fail", False)
    return (_sentence(values[1]) if plain else None) or _NOT_SHOWN


def _status_text(status: int, body: object) -> str:
    """Return what an answer with another status than 200 says to a person; `body` is
    the JSON in it, if it was."""
    detail = _sentence(body.get("detail")) if isinstance(body, Mapping) else None
    why = detail or _OF_STATUS.get(status)
    return f"{phrase(status)}: {why}" if why else phrase(status)
