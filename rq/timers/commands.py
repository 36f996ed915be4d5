"""What can be asked of the timers over their socket."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from rq.access.roles import Role
from rq.access.sockets import Asker
from rq.errors import BadInput
from rq.nesting import Json, from_json
from rq.replies import TimerRow, TimersStatus
from rq.timers.rule import Timer
from rq.timers.sending import Sending
from rq.timers.when import due

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
        **settings(timer),
        "due": None if past.paused else due(timer, past, now),
        "paused": past.paused,
        "last": past.last,
        "result": past.result,
        "error": past.error,
    }


def settings(timer: Timer) -> TimerRow:
    """Return what the file of a timer says, defaults included."""
    return {
        "name": timer.name,
        "period": timer.period or None,
        "cron": timer.cron.expression if timer.cron else None,
        "timezone": timer.cron.zone if timer.cron else None,
        "jitter": timer.jitter,
        "catch_up": str(timer.catch_up),
        "overlap": str(timer.overlap),
        "dest": timer.dest,
    }


def wake(sending: Sending, _value: Json, _now: float) -> None:
    sending.woken.set()


# What can be asked, and the role that it takes.
COMMANDS: dict[str, tuple[Handler, Role]] = {
    "get_timers": (get_timers, Role.VIEWER),
    "get_status": (get_status, Role.VIEWER),
    "status": (status, Role.VIEWER),
    "wake": (wake, Role.PRODUCER),
}
