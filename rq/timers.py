"""Sends the messages of timers/NAME.json, each once a period.

Rules first (pure), then the state that outlives a restart, then the program: one event
loop, one socket, a look at the directory every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import orjson

from rq import client, config, control, helper, names, retry, wire
from rq.config import files
from rq.errors import BadConfig, BadInput, OutcomeUnknown, Refused, RQError
from rq.helper import Helper
from rq.layout import Root
from rq.message import PARAMS

SHORTEST = 60  # seconds of a period
LONGEST = 100 * 366 * 86400
LOOK = 1.0  # seconds between looks at the directory and at the clock
ON_TIME = 30.0  # a fire no later than this keeps the beat of the one before
GONE_FOR = 2.0  # seconds that a file must be gone before its timer is forgotten
ASK_TIMEOUT = 10.0

log = logging.getLogger(__name__)

# ---- what a timer is


@dataclass(frozen=True, slots=True)
class Timer:
    """A timers/NAME.json that can be used."""

    name: str
    period: int  # seconds
    dest: str
    params: Mapping[str, Any]

    @property
    def queue(self) -> str:
        """The local queue that takes the message."""
        return "relay" if names.is_remote(self.dest) else self.dest


@dataclass(frozen=True, slots=True)
class Past:
    """What a timer has done; kept over restarts."""

    last: float | None = None  # epoch seconds of the fire that the next counts from
    result: str = ""  # of the last attempt: sent ID, skipped, or an error
    error: str = ""
    failures: int = 0  # in a row; a failed fire is tried again
    tried: float = 0.0  # epoch seconds


def due(timer: Timer, past: Past, now: float) -> float:
    """Return when the timer fires next; never more than a period from now."""
    if past.failures:
        return min(past.tried, now) + retry.delay(past.failures)
    if past.last is None:
        return now
    return min(past.last, now) + timer.period


def beat(timer: Timer, past: Past, now: float) -> float:
    """Return the time that the fire after this one counts from.

    The old beat is kept while it is kept up with; after a stop or a jump of the clock
    the timer fires once and begins a new one.
    """
    if past.last is None:
        return now
    planned = past.last + timer.period
    return planned if 0 <= now - planned <= ON_TIME else now


def parse(path: Path) -> Timer:
    """Return the timer in a file; BadConfig says in a sentence what is wrong."""
    name = path.name.removesuffix(".json")
    data = config.read_json(path)
    period, message = data.get("period"), data.get("msg")
    if isinstance(period, bool) or not isinstance(period, int):
        raise BadConfig(f"{path}: 'period' is missing or not a whole number of seconds")
    if not SHORTEST <= period <= LONGEST:
        raise BadConfig(f"{path}: 'period' is {period} s; the least is {SHORTEST}")
    if not isinstance(message, dict):
        raise BadConfig(f"{path}: 'msg' is missing or not an object")
    dest = message.get("dest")
    if not isinstance(dest, str) or not dest:
        raise BadConfig(f"{path}: 'dest' of 'msg' is missing")
    if not names.is_remote(dest) and not names.is_queue_name(dest):
        raise BadConfig(f"{path}: 'dest' is neither a queue nor a URL: {dest!r}")
    params = {one: message[one] for one in PARAMS if message.get(one) is not None}
    return Timer(name, period, dest, params)


def refusal(name: str) -> str:
    """Return why a file of that name is no timer, "" when it may be one."""
    stem, _, suffix = name.partition(".")
    if suffix in ("yaml", "yml"):
        return f"{name} is YAML, which RQ does not read: write it as {stem}.json"
    if suffix != "json" or not stem:
        return f"{name} is not called NAME.json with one dot"
    return ""


# ---- what it has done, on disk


def read_state(path: Path) -> dict[str, Past]:
    """Return what the timers of a root have done; empty when nothing is known."""
    try:
        kept = config.read_json(path).get("timers", {})
        known = {one.name for one in fields(Past)}
        return {
            name: Past(**{key: kept[name][key] for key in known & kept[name].keys()})
            for name in kept
        }
    except (BadConfig, TypeError, AttributeError) as error:
        if path.exists():
            log.error("the state is lost and every timer counts as new: %s", error)
        return {}


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
    stamps: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    saved: bytes = b""
    busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    # ---- the directory

    def look(self, now: float) -> None:
        """Take what is new or changed in timers/, forget what is gone."""
        try:
            found = sorted(os.listdir(self.root.timers))
        except OSError as error:
            self.errors = {"timers": f"cannot be read, so nothing is changed: {error}"}
            return
        files = [one for one in found if one[0] != "." and one != "sock"]
        self.errors.pop("timers", None)
        for name in [one for one in self.errors if one not in files]:
            del self.errors[name]
        for name in files:
            self._take(name)
        self._forget({name.removesuffix(".json") for name in files}, now)

    def _take(self, name: str) -> None:
        path = self.root.timers / name
        stamp = _stamp(path)
        if self.stamps.get(name) == stamp and stamp is not None:
            return
        why = refusal(name)
        try:
            if why:
                raise BadConfig(why)
            timer = parse(path)
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
        # It does not fire as it was: nobody can say what its owner now wants.
        if self.timers.pop(name.removesuffix(".json"), None):
            self.failed += 1

    def _forget(self, present: set[str], now: float) -> None:
        gone = [one for one in {*self.past, *self.timers} if one not in present]
        self.gone_since = {one: self.gone_since.get(one, now) for one in gone}
        for name in gone:
            self.timers.pop(name, None)
            self.stamps.pop(f"{name}.json", None)
            # `ln -sfn` may remove a link for a moment: that is not a new timer.
            if now - self.gone_since[name] >= GONE_FOR:
                self.past.pop(name, None)

    # ---- firing

    def ready(self, now: float) -> list[Timer]:
        """Return the timers to fire now."""
        return [
            one
            for one in self.timers.values()
            if one.name not in self.busy and due(one, self.past[one.name], now) <= now
        ]

    def next_due(self, now: float) -> float:
        """Return the seconds until the next is due."""
        waits = [
            due(one, self.past[one.name], now)
            for one in self.timers.values()
            if one.name not in self.busy
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
        """Send the message of a timer, or note why not."""
        past = self.past.get(timer.name, Past())
        done = replace(past, last=beat(timer, past, now), failures=0, tried=now)
        try:
            result = await self._send(timer)
        except OutcomeUnknown as error:
            # It may be there: sent again it might run twice, so it waits its period.
            self._failed(timer, replace(done, error=str(error)))
        except RQError as error:
            again = replace(past, failures=past.failures + 1, tried=now)
            self._failed(timer, replace(again, error=str(error)))
        else:
            log.info("timer %s: %s", timer.name, result)
            self._note(timer, replace(done, result=result, error=""))
        self.save()

    def _note(self, timer: Timer, past: Past) -> None:
        if timer.name in self.past:  # else it was removed meanwhile
            self.past[timer.name] = past

    async def _send(self, timer: Timer) -> str:
        queue = self.root.queue(timer.queue)
        [status] = await client.ask_async(queue.socket, "status", timeout=ASK_TIMEOUT)
        if status != "UP":
            return f"skipped: queue {timer.queue} is {status}"
        message = {"dest": timer.dest, **timer.params}
        reply = await client.ask_async(
            queue.socket, "create_message", message, timeout=ASK_TIMEOUT
        )
        if reply[0] != "ok":
            raise Refused(f"queue {timer.queue} refused it: {reply[-1]}")
        self.sent += 1
        return f"sent {reply[1]}"

    def _failed(self, timer: Timer, past: Past) -> None:
        if past.error != self.past.get(timer.name, past).error:
            log.warning("timer %s: %s", timer.name, past.error)
        self.failed += 1
        self._note(timer, replace(past, result="failed"))

    # ---- telling

    def save(self) -> None:
        """Keep what outlives a restart, and what `status` shows, when it changed."""
        state = {
            "timers": {name: asdict(past) for name, past in self.past.items()},
            "errors": self.shown_errors(),
        }
        text = orjson.dumps(state)
        if text != self.saved:
            files.write_state(self.root.timers_state, state)
            self.saved = text

    def shown_errors(self) -> dict[str, str]:
        """Return what is wrong, with files and with sending."""
        failing = {name: one.error for name, one in self.past.items() if one.error}
        return failing | self.errors

    def status(self, now: float) -> dict[str, Any]:
        rows = [self._row(one, now) for _, one in sorted(self.timers.items())]
        return {"timers": rows, "errors": self.errors, **self.counts()}

    def counts(self) -> dict[str, int]:
        return {"sent": self.sent, "failed": self.failed}

    def _row(self, timer: Timer, now: float) -> dict[str, Any]:
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

    async def answer(self, payload: bytes) -> Any:
        """Answer a request of the socket: [COMMAND, PAYLOAD]."""
        try:
            command, _ = orjson.loads(payload)
        except (ValueError, TypeError):
            raise BadInput("a request is a JSON array [COMMAND, PAYLOAD]") from None
        now = time.time()
        match command:
            case "get_timers":
                past = self.past
                due_at = [
                    [name, due(one, past[name], now)]
                    for name, one in sorted(self.timers.items())
                ]
                return ["ok", due_at]
            case "get_status":
                return ["ok", {"sent": self.sent, "errors": self.failed}]
            case "status":
                return ["ok", self.status(now)]
            case "wake":
                self.woken.set()
                return ["ok", None]
        raise BadInput("unknown command; there are get_timers, get_status, status")


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size, info.st_ctime_ns


# ---- the program


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("timers", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-timers: {error}\n")
        return 1
    asyncio.run(_run(started))
    return 0


async def _run(started: Helper) -> None:
    timers = Timers(started.root, read_state(started.root.timers_state))
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        timers.woken.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if started.life_fd is not None:
        loop.add_reader(started.life_fd, stop)
    sock = client.listen(started.root.timers_socket)
    server = control.Server(sock, timers.answer, wire.MAGIC2)
    await server.start()
    started.say_ready()
    while not stopped.is_set():
        timers.woken.clear()
        try:
            _pass(timers)
        except Exception:
            log.exception("a pass failed; the next one is in a second")
            await asyncio.sleep(LOOK)
        await _rest(timers)
    server.close()
    files.remove_link(started.root.timers_socket)


def _pass(timers: Timers) -> None:
    timers.look(time.monotonic())
    timers.save()
    now = time.time()
    for timer in timers.ready(now):
        timers.begin(timer, now)


async def _rest(timers: Timers) -> None:
    """Wait for the next due time, a look at the directory, or a wake."""
    seconds = min(LOOK, timers.next_due(time.time()) + 0.005)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await timers.woken.wait()


if __name__ == "__main__":
    sys.exit(main())
