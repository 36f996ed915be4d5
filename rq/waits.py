"""Why a message waits: a reason for programs, and a sentence for people.

Whoever shows a waiting message (lists, pages, the API, the command line; its queue, or who
reads the folders of one that is silent) takes these words, so that all agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq.wording import moment


class Reason(StrEnum):
    """What a message waits for."""

    HELD = "held"


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


def said_by(by: str, since: object) -> str:
    """Return who has said so, and since when, as the rest of a sentence."""
    who = f" by {by}" if by else ""
    is_known = isinstance(since, int | float) and since is not True
    return who + (f" since {moment(float(str(since)))} UTC" if is_known else "")
