"""What people are shown of an answer: sentences of RQ, and never a body as it came.

A message may lead to a service that only this machine can reach. If the body of its
answer were shown, every sender of messages could read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from rq.words import sentences
from rq.words.nesting import Json

_LIMIT = 300  # characters
UNKNOWN = "its reason is not shown, as it is not in the words of RQ: look there"
NO_ANSWER = "the answer is not one of RQ's"
_OF_STATUS = {
    401: "put user and password, or a token, for it into config/peers.json",
    403: "who is set for it in config/peers.json may not do that",
    404: "there is no such queue or message",
}


def sentence(text: object) -> str | None:
    """Return a text if RQ may have said it, else None."""
    if not isinstance(text, str):
        return None
    if sentences.kind_of(text) is None:
        return None
    return " ".join(text.split())[:_LIMIT]


def refusal(values: Sequence[Json]) -> str:
    """Return what a reply `["fail", TEXT]`, or the ancestor's `[false, TEXT]`, says to
    a person."""
    plain = len(values) == 2 and values[0] in ("fail", False)
    return (sentence(values[1]) if plain else None) or UNKNOWN


def by_status(status: int, body: object) -> str:
    """Return what an answer with another status than 200 says to a person; `body` is
    the JSON in it, if it was."""
    detail = sentence(body.get("detail")) if isinstance(body, Mapping) else None
    why = detail or _OF_STATUS.get(status)
    try:
        phrase = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = str(status)
    return f"{phrase}: {why}" if why else phrase
