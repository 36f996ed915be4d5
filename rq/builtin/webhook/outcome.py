"""What becomes of a try: done, err for good, or again after a while."""

from __future__ import annotations

import email.utils
from dataclasses import dataclass

from rq.outbound import connection
from rq.scripts.pipe import Verb

GONE = 410
ASKS_TO_WAIT = frozenset({429, 503})
# Seconds before the next try; the last for all that follow.
PAUSES = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
LONGEST = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the receiver answered."""

    status: int
    retry_after: str | None = None
    date: str | None = None
    location: str | None = None


def decide(answer: Answer, count: int, random: float) -> tuple[Verb, str]:
    """Return what to report; `random` is between 0 and 1."""
    phrase = connection.phrase(answer.status)
    if 200 <= answer.status < 300:
        return Verb.DONE, phrase
    if answer.status == GONE:
        return (
            Verb.ERR,
            f"{phrase}: the receiver wants no more webhooks at this address",
        )
    wait = _retry_after(answer) if answer.status in ASKS_TO_WAIT else None
    return again(phrase, count, random, wait)


def again(
    reason: str, count: int, random: float, wait: float | None = None
) -> tuple[Verb, str]:
    """Return the report that asks for another try, in `wait` seconds or as it is due."""
    pause = PAUSES[min(count, len(PAUSES) - 1)]
    spread = round(pause * (0.9 + 0.2 * random))
    seconds = spread if wait is None else round(min(max(wait, 1), LONGEST))
    return Verb.RESEND, f"{seconds}-{reason}"


def _retry_after(answer: Answer) -> float | None:
    """Return the seconds in Retry-After, which may also be a date."""
    text = (answer.retry_after or "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
        now = email.utils.parsedate_to_datetime(answer.date or "")
        return (until - now).total_seconds()
    except (TypeError, ValueError):
        return None
