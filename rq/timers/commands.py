"""What can be asked of the timers over their socket."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping

from rq.access.roles import Role
from rq.access.sockets import Asker
from rq.config import adopted
from rq.errors import BadInput, NoSuchMessage
from rq.replies import (
    NextFire,
    TimerMiss,
    TimerRow,
    TimersStatus,
    TimerView,
)
from rq.timers import views
from rq.timers.cron import DEFAULT_ZONE, local
from rq.timers.missed import Why
from rq.timers.past import Past
from rq.timers.rule import Timer
from rq.timers.sending import Sending
from rq.timers.when import due, following, resumed
from rq.words.nesting import Json, from_json

_SOON = 10  # fires that are told if the client does not say how many
_MOST_MISSES = 200  # spans that are told at once
MOST_NEXT = 1000

Handler = Callable[[Sending, Json, float], object]


async def answer(sending: Sending, payload: bytes, asker: Asker) -> list[object]:
    """Answer a request of the socket: [COMMAND, PAYLOAD]."""
    word, value = _request(payload)
    if word not in COMMANDS:
        raise BadInput(f"unknown command; there are {', '.join(COMMANDS)}")
    handler, role = COMMANDS[word]
    asker.check(word, role)
    said = handler(sending, value, time.time())
    return ["ok", await said if isinstance(said, Awaitable) else said]


def _request(payload: bytes) -> tuple[str, Json]:
    """Return the command and what came with it; the command is "" when it is no text."""
    try:
        request = from_json(payload, "the request")
    except (ValueError, TypeError, BadInput):
        request = None
    if not isinstance(request, list) or len(request) != 2:
        raise BadInput("a request is a JSON array [COMMAND, PAYLOAD]")
    word, value = request
    return (word if isinstance(word, str) else ""), value


def get_timers(sending: Sending, _value: Json, now: float) -> list[tuple[str, float]]:
    past = sending.held.past
    return [
        (name, due(timer, past[name], now))
        for name, timer in sorted(sending.held.timers.items())
        if past[name].paused is None
    ]


def get_status(sending: Sending, _value: Json, _now: float) -> dict[str, int]:
    return {"sent": sending.sent, "errors": sending.failed + sending.held.broken}


def status(sending: Sending, _value: Json, now: float) -> TimersStatus:
    held = sending.held
    return {
        "timers": [
            row(sending, timer, now) for _, timer in sorted(held.timers.items())
        ],
        "errors": held.errors,
        "sent": sending.sent,
        "failed": sending.failed + held.broken,
    }


def row(sending: Sending, timer: Timer, now: float) -> TimerRow:
    """Return what a list of timers shows of one."""
    past = sending.held.past[timer.name]
    return {
        **views.settings(timer),
        "due": None if past.paused else due(timer, past, now),
        "paused": past.paused,
        "last": past.last,
        "result": past.result,
        "error": past.error,
        **views.outcome(sending.held.fires.of(timer.name)),
        "trouble": sending.held.trouble(timer, now),
    }


def timer(sending: Sending, value: Json, now: float) -> Awaitable[TimerView]:
    """Tell all of one timer."""
    return _view(sending, _named(sending, value), now)


async def _view(sending: Sending, named: Timer, now: float) -> TimerView:
    await sending.outcomes.of(named.name)
    past, held = sending.held.past.get(named.name, Past()), sending.held.fires
    rows = held.of(named.name)
    return {
        **row(sending, named, now),
        "next": _next(named, past, now),
        "fires": views.fires(rows),
        "misses": views.misses(rows),
    }


def _next(timer: Timer, past: Past, now: float, count: int = _SOON) -> list[NextFire]:
    if past.paused is not None:
        return []
    zone = timer.cron.zone if timer.cron else DEFAULT_ZONE
    return [
        {"name": timer.name, "at": fire.at, "local": local(fire.at, zone)}
        for fire in following(timer, past, now, count)
    ]


def upcoming(sending: Sending, value: Json, now: float) -> list[NextFire]:
    """Tell the next fires of all timers, or of those that are named."""
    count, wanted = _wanted(value)
    held = sending.held
    timers = [_named(sending, name) for name in wanted] or list(held.timers.values())
    rows = [_next(timer, held.past[timer.name], now, count) for timer in timers]
    return heapq.nsmallest(count, itertools.chain(*rows), key=lambda fire: fire["at"])


def _wanted(value: Json) -> tuple[int, list[Json]]:
    """Return how many fires are wanted, and of which timers."""
    request = value if isinstance(value, Mapping) else {}
    count, names = request.get("count", _SOON), request.get("names", [])
    if not isinstance(count, int) or not 1 <= count <= MOST_NEXT:
        raise BadInput(f"'count' is {count!r:.80}; it is from 1 to {MOST_NEXT}")
    if not isinstance(names, list):
        raise BadInput("'names' is no list of timers")
    return count, names


def misses(sending: Sending, value: Json, now: float) -> list[TimerMiss]:
    """Tell the missed fires of all timers, of a span of time; the last first."""
    request = value if isinstance(value, dict) else {}
    since, until = request.get("since", 0), request.get("until") or now
    if not isinstance(since, int | float) or not isinstance(until, int | float):
        raise BadInput("'since' and 'until' are epoch seconds")
    rows = sending.held.fires.missed_between(since, until)
    rows.sort(key=lambda missed: -missed.span.to)
    timers = sending.held.timers
    return [
        views.miss_of(row, named.queue if (named := timers.get(row.timer)) else "")
        for row in rows[:_MOST_MISSES]
    ]


def run(sending: Sending, value: Json, _now: float) -> Awaitable[str]:
    """Send a message of a timer now; answer its URL."""
    return sending.run(_named(sending, value))


def pause(sending: Sending, value: Json, now: float) -> TimerRow:
    """Let a timer fire no more; durable when it is answered."""
    named = _named(sending, value)
    if sending.held.past[named.name].paused is None:
        sending.held.note(named.name, paused=now)
    sending.held.save()
    return row(sending, named, now)


def resume(sending: Sending, value: Json, now: float) -> TimerRow:
    """Let a timer fire again, from now on; durable when it is answered."""
    named = _named(sending, value)
    past = sending.held.past[named.name]
    if past.paused is not None:
        went_on = resumed(named, past, now)
        sending.held.over(named, went_on, (Why.PAUSED, ""), now)
    sending.held.save()
    adopted.release(sending.held.root, named.name)
    sending.woken.set()
    return row(sending, named, now)


def ack(sending: Sending, value: Json, now: float) -> TimerRow:
    """Note that a person has seen what became of a timer; durable when it is answered."""
    named = _named(sending, value)
    sending.held.save()  # a line that is acknowledged is on disk
    sending.held.acknowledge(named.name)
    sending.held.save_errors()
    return row(sending, named, now)


def accept(sending: Sending, value: Json, now: float) -> TimerRow | None:
    """Let a timer fire that the Ruby RQ left; durable when it is answered. None: its file
    is none that RQ reads (`.yaml`, damaged); once it is one, it fires."""
    held = sending.held
    if not isinstance(value, str) or value in held.timers:
        return resume(sending, value, now)
    if adopted.held(held.root, value) is None:
        raise NoSuchMessage(f"there is no timer {value!r:.80} that waits")
    held.past.pop(value, None)
    held.save()
    adopted.release(held.root, value)
    return None


def _named(sending: Sending, name: Json) -> Timer:
    timer = sending.held.timers.get(name) if isinstance(name, str) else None
    if timer is None:
        raise NoSuchMessage(f"there is no timer {name!r:.80}")
    return timer


def wake(sending: Sending, _value: Json, _now: float) -> None:
    sending.woken.set()


# What can be asked, and the role that it takes.
COMMANDS: dict[str, tuple[Handler, Role]] = {
    "get_timers": (get_timers, Role.VIEWER),
    "get_status": (get_status, Role.VIEWER),
    "status": (status, Role.VIEWER),
    "timer": (timer, Role.VIEWER),
    "next": (upcoming, Role.VIEWER),
    "misses": (misses, Role.VIEWER),
    "run": (run, Role.OPERATOR),
    "pause": (pause, Role.OPERATOR),
    "resume": (resume, Role.OPERATOR),
    "accept": (accept, Role.OPERATOR),
    "ack": (ack, Role.OPERATOR),
    "wake": (wake, Role.PRODUCER),
}
