"""Why a message waits: a reason for programs, and a sentence for people.

Whoever shows a waiting message (lists, pages, the API, the command line; its queue, or who
reads the folders of one that is silent) takes these words, so that all agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq.replies import PauseView
from rq.wording import moment


class Reason(StrEnum):
    """What a message waits for."""

    HELD = "held"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a message waits, until when (epoch seconds), and because of whom."""

    reason: Reason
    text: str
    until: float | None = None
    by: str | None = None


def held(hold: Mapping[str, object]) -> Why:
    """Return why a message waits that somebody holds.

    >>> held({"by": "ann", "why": "disk swap", "since": 0}).text
    'It is held by ann since 1970-01-01 00:00:00 UTC: disk swap.'
    """
    by, why = str(hold.get("by") or ""), str(hold.get("why") or "")
    text = "It is held" + said_by(by, hold.get("since")) + (f": {why}" if why else "")
    return Why(reason=Reason.HELD, text=f"{text.rstrip('.')}.", by=by or None)


def paused(by: str, why: str, since: float | None, until: float | None) -> Why:
    """Return why the messages of a queue wait that somebody has paused.

    >>> paused("ann", "disk swap", 50520.0, 64800.0).text
    'The queue is paused by ann since 14:02 until 18:00 UTC: disk swap.'
    >>> paused("", "", None, None).text
    'The queue is paused.'
    """
    text = f"The queue is {pause(by, why, since, until)}."
    return Why(reason=Reason.PAUSED, text=text, until=until, by=by or None)


def pause(by: str, why: str, since: float | None, until: float | None) -> str:
    """Return how a queue is that somebody has paused, as in "the queue is …"."""
    who, reason = f" by {by}" if by else "", f": {why}" if why else ""
    return f"paused{who}{_span(since, until)}{reason}".rstrip(".")


def pause_view(
    by: str, why: str, since: float | None, until: float | None
) -> PauseView:
    """Return a pause of a queue as it is told."""
    text = paused(by, why, since, until).text
    return {"by": by, "why": why, "since": since, "until": until, "text": text}


def _span(since: float | None, until: float | None) -> str:
    """Return from when to when; the date, too, if it is not the same for both."""
    ends = [moment(at) for at in (since, until) if at is not None]
    short = len({at[:10] for at in ends}) == 1 and len(ends) == 2
    cut = [at[11:16] if short else at[:16] for at in ends]
    words = [
        name for name, at in (("since", since), ("until", until)) if at is not None
    ]
    said = "".join(f" {word} {at}" for word, at in zip(words, cut, strict=True))
    return f"{said} UTC" if said else ""


def said_by(by: str, since: object) -> str:
    """Return who has said so, and since when, as the rest of a sentence."""
    who = f" by {by}" if by else ""
    is_known = isinstance(since, int | float) and since is not True
    return who + (f" since {moment(float(str(since)))} UTC" if is_known else "")
