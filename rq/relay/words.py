"""What of an answer is shown to people: sentences of RQ, and never a body as it came.

Whoever may send a message could otherwise read, in its status, what a service says that
only this machine can ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

_LIMIT = 300  # characters
UNKNOWN = "it gave a reason in words that are not RQ's, which are not shown: look there"
NO_ANSWER = "an answer that is none of RQ's"
# How the sentences of RQ and of its ancestor begin that a receiver answers with.
_SENTENCES = (
    "503 - Service Unavailable - Operationally Down",
    "A form ",
    "The form ",
    "This address is not among the allowed_ips",
    "Without a login RQ answers only to ",
    "a message is a JSON object",
    "attachment ",
    "attachments are not on disk",
    "attachments is not ",
    "cannot find message",
    "due is not ",
    "input missing required",
    "its attachments cannot be copied",
    "message ",
    "msg ",
    "nobody answers for queue ",
    "not a message id",
    "not a regular file",
    "not accepted: ",
    "not done, a file of RQ cannot be used",
    "not done, the disk refused it",
    "outcome unknown: ",
    "post_run_webhook ",
    "queue name has invalid characters",
    "say X-RQ-SHA256",
    "status: ",
    "the command failed",
    "the journal cannot be written",
    "the message is ",
    "there is no attachment ",
    "there is no queue ",
    "there is no room",
    "this attachment is just being sent",
    "transaction ",
    "unknown reason",
)
_OF_A_FIELD = re.compile(
    "(?:src|dest|count|max_count|orig_msg_id|cloned_from|dups?|param[1-4]|_key)"
    " (?:is|holds|cannot) "
)
_OF_STATUS = {
    401: "put user and password, or a token, for it into config/peers.json",
    403: "who is set for it in config/peers.json may not do that",
    404: "there is no such queue or message",
}


def sentence(text: object) -> str | None:
    """Return a text if RQ may have said it, else None."""
    if not isinstance(text, str):
        return None
    if not (text.startswith(_SENTENCES) or _OF_A_FIELD.match(text)):
        return None
    return " ".join(text.split())[:_LIMIT]


def refusal(said: list[Any]) -> str:
    """Return what a reply `["fail", TEXT]`, or the ancestor's `[false, TEXT]`, says to
    a person."""
    plain = len(said) == 2 and said[0] in ("fail", False)
    return (sentence(said[1]) if plain else None) or UNKNOWN


def by_status(status: int, body: object) -> str:
    """Return what an answer with another status than 200 says to a person; `body` is
    the JSON in it, if it was."""
    detail = sentence(body.get("detail")) if isinstance(body, Mapping) else None
    known = detail or _OF_STATUS.get(status)
    try:
        phrase = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = str(status)
    return f"{phrase}: {known}" if known else phrase
