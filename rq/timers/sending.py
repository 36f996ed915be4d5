"""Looks at the directory of timers, sends what is due, and tells what it did."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import orjson

from rq import client, config, names
from rq.access.roles import Role
from rq.access.sockets import Asker
from rq.config import files
from rq.errors import BadConfig, BadInput, CannotRead, Refused, RQError, Unreachable
from rq.layout import Root
from rq.nesting import from_json
from rq.replies import TimerRow, TimersStatus
from rq.timers.past import Past, counts_from, due, nominal, not_ahead
from rq.timers.timer import Timer, parse, refusal

LOOK = 1.0  # seconds between looks at the directory and at the clock
GONE_FOR = 2.0  # seconds that a file must be gone before its timer is forgotten
ASK_TIMEOUT = 10.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Timers:
    """The timers of a root."""

    root: Root
    past: dict[str, Past]
    timers: dict[str, Timer] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # file: sentence
    sent: int = 0
    failed: int = 0
    gone_since: dict[str, float] = field(default_factory=dict)
    stamps: dict[str, config.Stamp] = field(default_factory=dict)
    saved: bytes = b""
    busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    # ---- the directory

    def look(self, now: float) -> None:
        """Take what is new or changed in timers/, forget what is gone."""
        try:
            entries = sorted(os.listdir(self.root.timers))
        except OSError as error:
            self.errors = {"timers": f"cannot be read, so no timer is changed: {error}"}
            return
        present = [name for name in entries if name[0] != "." and name != "sock"]
        self.errors.pop("timers", None)
        for name in [name for name in self.errors if name not in present]:
            del self.errors[name]
        for name in present:
            self._take(name)
        self._forget({name.removesuffix(".json") for name in present}, now)

    def _take(self, name: str) -> None:
        path = self.root.timers / name
        stamp = config.stamp(path)
        if self.stamps.get(name) == stamp and stamp is not None:
            return
        why = refusal(name)
        try:
            if why:
                raise BadConfig(why)
            timer = parse(path)
        except CannotRead as error:  # the next look reads it, changed or not
            self._broken(name, str(error))
            return
        except BadConfig as error:
            self._broken(name, str(error))
        else:
            self.errors.pop(name, None)
            self.timers[timer.name] = timer
            self.past.setdefault(timer.name, Past())
        if stamp is not None:
            self.stamps[name] = stamp

    def _broken(self, name: str, error: str) -> None:
        if self.errors.get(name) == error:
            return
        log.warning("%s", error)
        self.errors[name] = error
        # Do not fire it as it was before: it is not known what its owner wants now.
        if self.timers.pop(name.removesuffix(".json"), None):
            self.failed += 1

    def _forget(self, present: set[str], now: float) -> None:
        gone = [name for name in {*self.past, *self.timers} if name not in present]
        self.gone_since = {name: self.gone_since.get(name, now) for name in gone}
        for name in gone:
            self.timers.pop(name, None)
            self.stamps.pop(f"{name}.json", None)
            # `ln -sfn` may remove a link for a moment: that is not a new timer.
            if now - self.gone_since[name] >= GONE_FOR:
                self.past.pop(name, None)

    # ---- firing

    def watch_clock(self, now: float) -> None:
        """Begin a new beat for timers whose last fire lies ahead of a clock that was
        put back."""
        self.past = {name: not_ahead(past, now) for name, past in self.past.items()}

    def ready(self, now: float) -> list[Timer]:
        """Return the timers to fire now."""
        return [
            timer
            for timer in self.timers.values()
            if timer.name not in self.busy
            and due(timer, self.past[timer.name], now) <= now
        ]

    def next_due(self, now: float) -> float:
        """Return the seconds until the next is due."""
        waits = [
            due(timer, self.past[timer.name], now)
            for timer in self.timers.values()
            if timer.name not in self.busy
        ]
        return max(0.0, min(waits, default=now + LOOK) - now)

    def begin(self, timer: Timer, now: float) -> None:
        """Fire a timer beside the others: a queue that hangs delays its own alone."""

        def ended(_task: asyncio.Task[None]) -> None:
            del self.busy[timer.name]
            self.woken.set()

        task = asyncio.get_running_loop().create_task(self.fire(timer, now))
        self.busy[timer.name] = task
        task.add_done_callback(ended)

    async def fire(self, timer: Timer, now: float) -> None:
        """Send the message of a timer, or note why not.

        Its time is on disk before the message is sent under it: after a crash, or an
        answer that was lost, the same message is asked for again.
        """
        past = self.past.get(timer.name, Past())
        past = replace(past, begun=nominal(timer, past, now))
        self._note(timer, past)
        try:
            self.save()
            done = await self._sent(timer, past, now)
        except (RQError, OSError) as error:
            why = self._no_queue(timer.queue) or _why(timer.queue, error)
            self._failed(timer, past, now, why)
        except Exception as error:
            # Whatever answers there is no queue of ours. Back off: to ask it again at
            # once, and again, would keep a core busy.
            log.exception("timer %s could not be sent", timer.name)
            self._failed(timer, past, now, f"{type(error).__name__}: {error}")
        else:
            log.info("timer %s: %s", timer.name, done.result)
            self._note(timer, done)

    def _no_queue(self, name: str) -> str:
        """Return that there is no queue of that name, and which is near; "" if it is."""
        if self.root.queue(name).path.is_dir():
            return ""
        queues = os.listdir(self.root.queues) if self.root.queues.is_dir() else []
        close = difflib.get_close_matches(name, queues, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"there is no queue {name!r}{hint}"

    def _note(self, timer: Timer, past: Past) -> None:
        if timer.name in self.past:  # else it was removed meanwhile
            self.past[timer.name] = past

    async def _sent(self, timer: Timer, past: Past, now: float) -> Past:
        """Send the message of the fire that was begun; return what is done then."""
        begun = now if past.begun is None else past.begun
        done = replace(past, begun=None, error="", failures=0, tried=now)
        socket = self.root.queue(timer.queue).socket
        [status] = await client.ask_async(socket, "status", timeout=ASK_TIMEOUT)
        if status != "UP":
            said = "paused" if status == "PAUSE" else status
            result = f"skipped: queue {timer.queue} is {said}"
            return replace(done, last=counts_from(begun, now), result=result)
        message = {**timer.fields, "dest": timer.dest, "_key": timer.key(begun)}
        reply = await client.ask_async(
            socket, "create_message", message, timeout=ASK_TIMEOUT
        )
        if reply[0] != "ok":
            raise Refused(f"queue {timer.queue} refused it: {reply[1]}")
        self.sent += 1
        last = counts_from(begun, min(_accepted_at(reply[1]), time.time()))
        return replace(done, last=last, result=f"sent {reply[1]}")

    def _failed(self, timer: Timer, past: Past, now: float, error: str) -> None:
        if error != past.error:
            log.warning("timer %s: %s", timer.name, error)
        self.failed += 1
        failures = past.failures + 1
        failed = replace(past, failures=failures, tried=now, error=error)
        self._note(timer, replace(failed, result="failed"))

    # ---- telling

    def save(self) -> None:
        """Keep what outlives a restart, and what `status` shows, when it changed."""
        state = {
            "timers": {name: asdict(past) for name, past in self.past.items()},
            "errors": self.all_errors(),
        }
        text = orjson.dumps(state)
        if text != self.saved:
            files.write_state(self.root.timers_state, state)
            self.saved = text

    def all_errors(self) -> dict[str, str]:
        """Return what is wrong, with files and with sending."""
        failing = {name: past.error for name, past in self.past.items() if past.error}
        return failing | self.errors

    def status(self, now: float) -> TimersStatus:
        return {
            "timers": [
                self._row(self.timers[name], now) for name in sorted(self.timers)
            ],
            "errors": self.errors,
            "sent": self.sent,
            "failed": self.failed,
        }

    def _row(self, timer: Timer, now: float) -> TimerRow:
        past = self.past[timer.name]
        return {
            "name": timer.name,
            "period": timer.period,
            "dest": timer.dest,
            "due": due(timer, past, now),
            "last": past.last,
            "result": past.result,
            "error": past.error,
        }

    async def answer(self, payload: bytes, asker: Asker) -> list[object]:
        """Answer a request of the socket: [COMMAND, PAYLOAD]."""
        word = _command_of(payload)
        if word not in COMMANDS:
            raise BadInput(f"unknown command; there are {', '.join(COMMANDS)}")
        handler, role = COMMANDS[word]
        asker.check(word, role)
        return ["ok", handler(self, time.time())]

    def get_timers(self, now: float) -> list[tuple[str, float]]:
        past = self.past
        return [
            (name, due(timer, past[name], now))
            for name, timer in sorted(self.timers.items())
        ]

    def get_status(self, _now: float) -> dict[str, int]:
        return {"sent": self.sent, "errors": self.failed}

    def wake(self, _now: float) -> None:
        self.woken.set()


# What can be asked, and the role that it takes.
COMMANDS: dict[str, tuple[Callable[[Timers, float], object], Role]] = {
    "get_timers": (Timers.get_timers, Role.VIEWER),
    "get_status": (Timers.get_status, Role.VIEWER),
    "status": (Timers.status, Role.VIEWER),
    "wake": (Timers.wake, Role.PRODUCER),
}


def _why(queue: str, error: Exception) -> str:
    """Return in a sentence why a queue did not take the message of a timer."""
    if isinstance(error, Unreachable):
        return f"queue {queue} does not answer: `rq status` says why"
    return str(error)


def _command_of(payload: bytes) -> str:
    """Return the command of a request [COMMAND, PAYLOAD]; "" when it is no text."""
    try:
        request = from_json(payload, "the request")
    except (ValueError, TypeError, BadInput):
        request = None
    if not isinstance(request, list) or len(request) != 2:
        raise BadInput("a request is a JSON array [COMMAND, PAYLOAD]")
    word = request[0]
    return word if isinstance(word, str) else ""


def _accepted_at(full_id: str) -> float:
    """Return when a message was accepted, in epoch seconds."""
    return names.created(full_id.rpartition("/")[2])
