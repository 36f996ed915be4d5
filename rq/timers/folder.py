"""The timers of a root: their files, and what they have done."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rq import config
from rq.builtin.flow import door
from rq.config import adopted, files
from rq.config.values import did_you_mean
from rq.errors import BadConfig, CannotRead
from rq.layout import Root
from rq.replies import TimerTrouble
from rq.timers import missed, watch
from rq.timers.fires import Fires
from rq.timers.past import Past, not_ahead, with_rule
from rq.timers.rule import Timer
from rq.timers.state import State
from rq.timers.timer import parse, refusal
from rq.timers.when import without_missed
from rq.words import visible

GONE_FOR = 2.0  # seconds that a file must be gone before its timer is forgotten

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Timers:
    """The timers of a root."""

    root: Root
    past: dict[str, Past]
    timers: dict[str, Timer] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # file, visibly: sentence
    queueless: dict[str, str] = field(default_factory=dict)  # timer: sentence
    broken: int = 0  # timers that were and whose file is wrong now
    gone_since: dict[str, float] = field(default_factory=dict)
    stamps: dict[str, config.Stamp] = field(default_factory=dict)
    state: State = field(init=False)
    fires: Fires = field(init=False)
    # Up to which number of `fires` a person has acknowledged what became of a timer.
    seen: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = read_seen(self.root)
        self.state = State(self.root)
        self.fires = Fires(self.root, self.past)

    # ---- the directory

    def look(self, elapsed: float, now: float) -> None:
        """Take what is new or changed in timers/, forget what is gone; `elapsed` are
        seconds of the monotonic clock."""
        try:
            entries = sorted(os.listdir(self.root.timers))
        except OSError as error:
            self.errors = {"timers": f"cannot be read, so no timer is changed: {error}"}
            return
        present = [name for name in entries if name[0] != "." and name != "sock"]
        self.errors.pop("timers", None)
        visibly = set(map(visible.line, present))
        for name in [name for name in self.errors if name not in visibly]:
            del self.errors[name]
        for name in present:
            self._take(name, now)
        self._forget({name.removesuffix(".json") for name in present}, elapsed)
        self.queueless = self._without_queue()

    def _take(self, name: str, now: float) -> None:
        path = self.root.timers / name
        stamp = config.stamp(path)
        if self.stamps.get(name) == stamp and stamp is not None:
            return
        why = refusal(name)
        try:
            if why:
                raise BadConfig(why)
            timer = parse(path)
            past = self.past.get(timer.name) or self._new(timer.name)
        except CannotRead as error:  # the next look reads it, changed or not
            self._broken(name, str(error))
            return
        except BadConfig as error:
            self._broken(name, str(error))
        else:
            self.errors.pop(visible.line(name), None)
            self.timers[timer.name] = timer
            self.past[timer.name] = with_rule(past, timer, now)
        if stamp is not None:
            self.stamps[name] = stamp

    def _new(self, name: str) -> Past:
        """Return the past of a timer that RQ has not seen before: one that it took over
        from the Ruby RQ is paused."""
        return Past(paused=adopted.held(self.root, name))

    def _broken(self, name: str, error: str) -> None:
        # Neither may hold bytes that are no text: no state, and no answer, could then
        # be written.
        named, error = visible.line(name), visible.line(error)
        if self.errors.get(named) == error:
            return
        log.warning("%s", error)
        self.errors[named] = error
        # Do not fire it as it was before: it is not known what its owner wants now.
        if self.timers.pop(name.removesuffix(".json"), None):
            self.broken += 1

    def _forget(self, present: set[str], now: float) -> None:
        gone = [name for name in {*self.past, *self.timers} if name not in present]
        self.gone_since = {name: self.gone_since.get(name, now) for name in gone}
        for name in gone:
            self.timers.pop(name, None)
            self.stamps.pop(f"{name}.json", None)
            # `ln -sfn` may remove a link for a moment: that is not a new timer.
            if now - self.gone_since[name] >= GONE_FOR:
                self.past.pop(name, None)
                self.fires.removed(name)
                self.seen.pop(name, None)
                adopted.release(self.root, name)

    # ---- what was done

    def watch_clock(self, now: float) -> None:
        """Begin a new beat for timers whose last fire lies ahead of a clock that was
        put back."""
        self.past = {name: not_ahead(past, now) for name, past in self.past.items()}

    def leave_out(self, now: float) -> None:
        """Leave out the fires that it is too late for."""
        for name, timer in self.timers.items():
            past = without_missed(timer, self.past[name], now)
            if past is not self.past[name]:
                log.warning("timer %s: %s", name, past.result)
                self.over(timer, past, missed.why(self.past[name], now), now)

    def over(
        self, timer: Timer, past: Past, why: tuple[missed.Why, str], now: float
    ) -> None:
        """Note the past of a timer for which fires are over that were not sent."""
        base = self.base_of(timer)
        if past.over is not None:
            span = missed.until(timer, base, past.over)
            self.fires.missed(timer.name, span, why, now)
        self.past[timer.name] = past

    def base_of(self, timer: Timer) -> float | None:
        """Return up to when it is noted what became of the fires of a timer."""
        base = self.past[timer.name].base
        if base is None:
            return None
        return max(base, self.fires.of(timer.name).noted_to())

    def note(self, name: str, **changes: object) -> None:
        """Note what has changed in the past of a timer; what else was noted since
        it was read stays."""
        if name in self.past:  # else it was removed meanwhile
            self.past[name] = replace(self.past[name], **changes)  # type: ignore[arg-type]

    def save(self) -> None:
        """Keep what outlives a restart, when it changed. Fires come first: what a crash
        leaves out of the state is sent again under its key, and noted once."""
        now = time.time()
        self.fires.flush(now)
        self.state.save(self.past, self._said(now))

    def save_errors(self) -> None:
        """Keep what `rq status` shows, when it changed."""
        now = time.time()
        self.fires.flush(now)
        self.state.save_said(self.past, self._said(now))

    def _said(self, now: float) -> dict[str, object]:
        troubles = {
            name: trouble
            for name, timer in self.timers.items()
            if (trouble := self.trouble(timer, now))
        }
        return {"errors": self.all_errors(), "troubles": troubles}

    def trouble(self, timer: Timer, now: float) -> TimerTrouble | None:
        """Return why a person should look at a timer."""
        past, seen = self.past[timer.name], self.seen.get(timer.name, 0)
        return watch.trouble(timer, self.fires.of(timer.name), past, seen, now)

    def acknowledge(self, name: str) -> None:
        """Keep that a person has seen what is known of a timer; durable when it returns."""
        self.seen[name] = self.fires.newest
        files.write_state(self.root.timers_seen, self.seen)

    def all_errors(self) -> dict[str, str]:
        """Return what is wrong, with files and with sending; also with what will be sent:
        a job of the night is not to be missed before it is said that it has no queue."""
        failing = {name: past.error for name, past in self.past.items() if past.error}
        return self.queueless | failing | self.errors

    def _without_queue(self) -> dict[str, str]:
        """Return why timers that are to fire cannot: there is no such queue."""
        firing = (name for name in self.timers if self.past[name].paused is None)
        whys = ((name, lacks(self.root, self.timers[name])) for name in firing)
        return {name: why for name, why in whys if why}


def lacks(root: Root, timer: Timer) -> str:
    """Return which queue a timer lacks, of a flow the first; "" if all are there."""
    return next(all_lacks(root, timer), "")


def all_lacks(root: Root, timer: Timer) -> Iterator[str]:
    """Give a sentence for each queue that a timer lacks; of a flow in the words of the
    door, which would refuse it."""
    if why := _no_queue(root, timer.queue):
        yield why
    if timer.flow is not None:
        yield from door.without_queue(root, timer.flow)


def _no_queue(root: Root, name: str) -> str:
    """Return that there is no queue of that name, and which is near; "" if it is."""
    if root.queue(name).path.is_dir():
        return ""
    queues = os.listdir(root.queues) if root.queues.is_dir() else []
    return f"there is no queue {name!r}{did_you_mean(name, queues)}"


def read_seen(root: Root) -> dict[str, int]:
    """Return up to which number the fires of timers were acknowledged; nothing when that
    cannot be read: they are shown once more."""
    try:
        data = config.read_json(root.timers_seen)
    except BadConfig as error:
        if root.timers_seen.exists():
            log.warning("%s", error)
        return {}
    return {name: number for name, number in data.items() if isinstance(number, int)}
