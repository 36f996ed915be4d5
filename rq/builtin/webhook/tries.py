"""Tries of a script that tells others: one for each message, bounded in time, and told on
the pipe and in the log; what becomes of one: done, err for good, or again after a while."""

from __future__ import annotations

import email.utils
import os
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from rq.config import secrets
from rq.outbound import exchange
from rq.scripts import python as script
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
    phrase = exchange.phrase(answer.status)
    if 200 <= answer.status < 300:
        return Verb.DONE, phrase
    if answer.status == GONE:
        return (
            Verb.ERR,
            f"{phrase}: the receiver wants no more webhooks at this address",
        )
    wait = _retry_after(answer) if answer.status in ASKS_TO_WAIT else None
    return again_after(phrase, count, random, wait)


def again_after(
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


def run(one_try: Callable[[], tuple[Verb, str]]) -> int:
    """Try each message, as a process of its own or as a worker that stays."""
    if "RQ_MSG_ID" in os.environ:  # a process for each message
        _take(one_try)
        return 0
    for values in script.messages():
        os.environ.update(values)
        _take(one_try)
    return 0


def _take(one_try: Callable[[], tuple[Verb, str]]) -> None:
    try:
        verb, text = one_try()
    except Exception as error:  # noqa: BLE001 - a loop iteration
        print(secrets.host_only(traceback.format_exc()))  # noqa: T201
        verb, text = again(f"{type(error).__name__}: {error}")
    text = secrets.host_only(text)  # its log and its status are for viewers
    print(verb, text, flush=True)  # noqa: T201 - into the log of the message
    script.say(verb, text)


def again(reason: str) -> tuple[Verb, str]:
    """Return that the next attempt tries again."""
    return again_after(reason, script.count(), random.random())
