"""The questions as people and programs put them, and the answers as JSON.

The pages, `/api/v1` and the command line take the same words from here, and give the same
answers: a question is a mapping of texts, whatever door they came through, and what is
wrong with one is said in the same sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypedDict, cast

from rq.errors import BadInput
from rq.index.questions import HIT_ORDERS, RUN_ORDERS
from rq.index.rows import (
    FailureGroup,
    Freshness,
    Hits,
    Runs,
    RunsQuestion,
    SearchQuestion,
)
from rq.index.search import LEAST
from rq.message.fieldnames import OF_TIMER
from rq.replies import TimerMiss
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import COUNTED, State

RUNS_FIELDS: Final = (
    *("since", "until", "queue", "timer", "by", "failed", "slow", "sort"),
)
SEARCH_FIELDS: Final = ("words", "queue", "state", "since", "by", "sort")
PAGE: Final = 200  # rows of a page; as many stripes has the bar of the night
SHORTEST: Final = LEAST  # characters of a word that is looked for
MOST: Final = 1000  # that a program may have at once
_EVENING = 18  # o'clock: what ran since then ran last night
_NO = ("", "0", "no", "false")
_STALE = 15.0  # seconds after which it is said how old an answer is


class FreshnessView(TypedDict):
    """How far the index has read."""

    as_of: float  # epoch seconds
    read: float  # 0 to 1
    is_building: bool
    text: str  # what to know of that; "" when there is nothing


class RunView(TypedDict):
    """An attempt, or one that is at work; times in epoch seconds, durations in seconds."""

    queue: str
    msg_id: str
    attempt: int
    started: float
    ended: float | None
    waited: float | None
    ran: float
    outcome: str
    cause: str | None
    text: str | None
    timer: str | None
    by: str | None


class SumsView(TypedDict):
    """What all that are meant come to, also those that are not listed."""

    runs: int
    failed: int
    missed: int
    slowest: RunView | None


class RunsView(TypedDict):
    """What ran in a span of time."""

    since: float
    until: float | None
    runs: list[RunView]
    misses: list[TimerMiss]  # spans of fires of timers that no message came of
    sums: SumsView
    more: bool
    index: FreshnessView


class FailureView(TypedDict):
    """Messages that failed alike."""

    group: str
    cause: str
    wording: str
    queues: Mapping[str, int]
    count: int
    first: float
    last: float
    trend: list[int]
    queue: str  # of the newest of them …
    msg_id: str


class FailuresView(TypedDict):
    """The messages that have failed and are not acknowledged, by what they have in
    common."""

    failures: list[FailureView]
    messages: int
    index: FreshnessView


class HitView(TypedDict):
    """A message that holds what was looked for, as it is now."""

    queue: str
    msg_id: str
    state: str
    accepted: float
    changed: float
    attempt: int
    count: int
    cause: str | None
    text: str | None
    group: str | None
    params: Mapping[str, str]
    key: str | None
    src: str | None
    timer: str | None
    by: str | None


class HitsView(TypedDict):
    """The messages that hold some words."""

    messages: list[HitView]
    count: int  # at most 10,000
    more: bool
    index: FreshnessView


# ---- questions


def runs_question(
    fields: Mapping[str, str], now: float, zone: tzinfo | None = UTC
) -> RunsQuestion:
    """Return the runs that are meant; BadInput says what is wrong."""
    since, until = fields.get("since", ""), fields.get("until", "")
    order, is_descending = _order(fields.get("sort", ""), "started", RUN_ORDERS)
    return RunsQuestion(
        since=moments.since(since, now, zone) if since else evening(now, zone),
        until=moments.since(until, now, zone) if until else None,
        queue=fields.get("queue") or None,
        timer=fields.get("timer") or None,
        by=fields.get("by") or None,
        is_failed=_is_yes(fields, "failed"),
        is_slow=_is_yes(fields, "slow"),
        order=order,
        is_descending=is_descending,
        limit=_number(fields, "limit", PAGE),
        offset=_number(fields, "offset", 0, least=0, most=10**9),
    )


def search_question(
    fields: Mapping[str, str], now: float, zone: tzinfo | None = UTC
) -> SearchQuestion:
    """Return the messages that are meant; BadInput says what is wrong."""
    since = fields.get("since", "")
    order, is_descending = _order(fields.get("sort", ""), "accepted", HIT_ORDERS)
    return SearchQuestion(
        words=tuple(fields.get("words", "").split()),
        queue=fields.get("queue") or None,
        state=_state(fields.get("state", "")),
        since=moments.since(since, now, zone) if since else None,
        by=fields.get("by") or None,
        order=order,
        is_descending=is_descending,
        limit=_number(fields, "limit", PAGE),
        offset=_number(fields, "offset", 0, least=0, most=10_000),
    )


def evening(now: float, zone: tzinfo | None = UTC) -> float:
    """Return when the last night began: yesterday at 18:00.

    >>> evening(86400 + 9 * 3600.0), evening(86400 + 23 * 3600.0)
    (64800.0, 64800.0)
    """
    today = datetime.fromtimestamp(now, zone)
    yesterday = today - timedelta(days=1)
    at = yesterday.replace(hour=_EVENING, minute=0, second=0, microsecond=0)
    return at.timestamp()


def _order(text: str, default: str, orders: Collection[str]) -> tuple[str, bool]:
    """Return by what is sorted, and whether the largest comes first: `-started`."""
    if not text:
        return default, True
    name = text.removeprefix("-")
    if name not in orders:
        raise BadInput(f"sort is {text!r:.40}, not one of {', '.join(orders)}")
    return name, text.startswith("-")


def _is_yes(fields: Mapping[str, str], name: str) -> bool:
    return fields.get(name, "").lower() not in _NO


def _number(
    fields: Mapping[str, str], name: str, default: int, least: int = 1, most: int = MOST
) -> int:
    text = fields.get(name, "")
    if not text:
        return default
    value = int(text) if text.isdecimal() and len(text) < 12 else -1
    if not least <= value <= most:
        raise BadInput(f"{name} is {text!r:.40}, not a number from {least} to {most}")
    return value


def _state(text: str) -> State | None:
    if not text:
        return None
    if text not in COUNTED:
        raise BadInput(f"state is {text!r:.40}, not one of {', '.join(COUNTED)}")
    return State(text)


# ---- answers


def freshness_view(fresh: Freshness, now: float) -> FreshnessView:
    """Return how far the index has read, and what a reader should know of that."""
    return {
        "as_of": fresh.as_of,
        "read": fresh.read,
        "is_building": fresh.is_building,
        "text": freshness_text(fresh, now),
    }


def freshness_text(fresh: Freshness, now: float) -> str:
    """Return what to know of the age of an answer; nothing, when it is of now.

    >>> young = Freshness(as_of=995.0, read=1.0, is_building=False)
    >>> freshness_text(young, 1000.0)
    ''
    >>> freshness_text(young, 90000.0)
    'as of 1970-01-01 00:16 UTC'
    >>> freshness_text(Freshness(as_of=995.0, read=0.4, is_building=True), 1000.0)
    'the index is being built: as of 00:16 UTC, 40 % read'
    """
    at = datetime.fromtimestamp(fresh.as_of, UTC)
    is_today = now - fresh.as_of < 12 * 3600
    of = f"as of {at:%H:%M} UTC" if is_today else f"as of {at:%Y-%m-%d %H:%M} UTC"
    if fresh.is_building:
        of = of if fresh.as_of else "nothing yet"
        return f"the index is being built: {of}, {int(fresh.read * 100)} % read"
    return of if now - fresh.as_of > _STALE else ""


def runs_view(
    question: RunsQuestion,
    runs: Runs,
    misses: Sequence[TimerMiss],
    fresh: Freshness,
    now: float,
) -> RunsView:
    missed = [miss for miss in misses if _is_meant(question, miss)]
    number = sum(miss["count"] for miss in missed)
    return {
        "since": question.since,
        "until": question.until,
        "runs": [cast(RunView, asdict(run)) for run in runs.rows],
        "misses": missed,
        "sums": cast(SumsView, {**asdict(runs.sums), "missed": number}),
        "more": runs.more,
        "index": freshness_view(fresh, now),
    }


def misses_request(question: RunsQuestion) -> dict[str, Json]:
    """Return what the timers are asked for: what they missed in the span of a question."""
    return {"since": question.since, "until": question.until}


def _is_meant(question: RunsQuestion, miss: TimerMiss) -> bool:
    if question.is_failed or question.is_slow:
        return False
    if question.timer is not None and miss["timer"] != question.timer:
        return False
    if question.by not in (None, f"{OF_TIMER}{miss['timer']}"):
        return False
    return question.queue is None or miss["queue"] == question.queue


def failures_view(
    groups: tuple[FailureGroup, ...], fresh: Freshness, now: float
) -> FailuresView:
    return {
        "failures": [_failure(group) for group in groups],
        "messages": sum(group.count for group in groups),
        "index": freshness_view(fresh, now),
    }


def _failure(group: FailureGroup) -> FailureView:
    queue, msg_id = group.sample
    fields = asdict(group)
    del fields["sample"]
    fields |= {"trend": list(group.trend), "queue": queue, "msg_id": msg_id}
    return cast(FailureView, fields)


def hits_view(hits: Hits, fresh: Freshness, now: float) -> HitsView:
    return {
        "messages": [cast(HitView, asdict(hit)) for hit in hits.rows],
        "count": hits.count,
        "more": hits.more,
        "index": freshness_view(fresh, now),
    }


def sums_text(sums: SumsView, duration: str) -> str:
    """Return the sums in a line; `duration`: of the slowest, as people say it.

    >>> sums_text({"runs": 412, "failed": 3, "missed": 1, "slowest": None}, "2 h 4 min")
    '412 runs, 3 failed, 1 missed, slowest 2 h 4 min'
    """
    parts = [
        f"{sums['runs']:,} run{'' if sums['runs'] == 1 else 's'}",
        f"{sums['failed']:,} failed",
        f"{sums['missed']:,} missed" if sums["missed"] else "",
        f"slowest {duration}" if duration else "",
    ]
    return ", ".join(part for part in parts if part)
