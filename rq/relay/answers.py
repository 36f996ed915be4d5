"""What a reply over HTTP means for the hand-over; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from rq.relay.two_phase import Answer, Heard, Step

_PAST_PREP = frozenset({"que", "run", "done", "relayed", "err"})
# How the text of a refusal begins, and what it means; any other is for good.
_TEXTS: tuple[tuple[str, Heard], ...] = (
    ("msg already commited", Heard.COMMITTED),
    ("cannot find message", Heard.UNKNOWN),
    ("msg not found", Heard.UNKNOWN),
    ("msg couldn't be read", Heard.UNKNOWN),
    ("attachments are not on disk", Heard.DAMAGED),
    ("status: ", Heard.SILENT),
    ("not accepted: ", Heard.SILENT),
    ("outcome unknown: ", Heard.SILENT),
    ("the journal cannot be written", Heard.SILENT),
    ("not done, the disk refused it", Heard.SILENT),
    ("message ", Heard.SILENT),  # … is being worked on
    ("msg is being worked on", Heard.SILENT),
    ("the command failed", Heard.SILENT),
    ("unknown reason", Heard.SILENT),
    ("there is no room", Heard.SILENT),
    ("its attachments cannot be copied", Heard.SILENT),
)
_NOT_NOW = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer over HTTP."""

    status: int
    body: bytes


def prepared(reply: Reply) -> Answer:
    """Return what the answer to PREPARE means."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.PREPARE)
    if not _is_ok(said) or not isinstance(said[1], str):
        return _by_text(said)
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
    return _by_text(said)


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
        return _by_text(said)
    if said[1] == f"{md5}-Attached successfully":
        return Answer(Heard.WHOLE)
    return Answer(Heard.SILENT, f"it arrived as another file: {said[1]!r:.100}")


def committed(reply: Reply) -> Answer:
    """Return what the answer to COMMIT means."""
    said = _said(reply)
    if said is None:
        return _by_status(reply, Step.COMMIT)
    return Answer(Heard.COMMITTED, str(said[-1])) if _is_ok(said) else _by_text(said)


def copied(said: Any) -> Answer:
    """Return what the answer of a queue of this host to `take_copy` means."""
    if not isinstance(said, list) or not said:
        return Answer(Heard.SILENT, f"an answer that is none: {said!r:.100}")
    if _is_ok(said):
        return Answer(Heard.COMMITTED, remote=str(said[1]))
    answer = _by_text(said)
    # Nothing waits there in prep: what is not found is what was to be copied.
    silent = answer.heard is Heard.SILENT
    return answer if silent else Answer(Heard.REFUSED, answer.text)


def _said(reply: Reply) -> list[Any] | None:
    """Return the list that a reply holds; None when it is no list."""
    if reply.status != 200:
        return None
    try:
        found = orjson.loads(reply.body)  # no text that UTF-8 could not hold
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, list) and found else None


def _is_ok(said: list[Any]) -> bool:
    return said[0] == "ok" and len(said) > 1


def _by_text(said: list[Any]) -> Answer:
    text = str(said[-1])
    for start, heard in _TEXTS:
        if text.startswith(start):
            return Answer(heard, text)
    if text.startswith("attachment ") and "is not whole" in text:
        return Answer(Heard.DAMAGED, text)
    return Answer(Heard.REFUSED, text)


def _by_status(reply: Reply, step: Step) -> Answer:
    status, text = reply.status, f"{reply.status} {detail(reply)}".strip()
    if status == 200:
        return Answer(Heard.SILENT, f"an answer that is none: {_short(reply.body)}")
    if status == 404 and step is not Step.PREPARE:
        return Answer(Heard.UNKNOWN, text)
    if 300 <= status < 500 and status not in _NOT_NOW:
        return Answer(Heard.REFUSED, text)
    return Answer(Heard.SILENT, text)


def detail(reply: Reply) -> str:
    """Return what a refusal says to a person."""
    try:
        found = orjson.loads(reply.body)  # no text that UTF-8 could not hold
    except orjson.JSONDecodeError:
        return "" if reply.body.lstrip().startswith(b"<") else _short(reply.body)
    if isinstance(found, Mapping):
        return str(found.get("detail") or found.get("title") or "")
    return _short(reply.body)


def _short(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())
