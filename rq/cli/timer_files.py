"""`rq timer validate`: what RQ would make of the file of a timer."""

from __future__ import annotations

import time
from pathlib import Path

from rq import zones
from rq.cli import place, term
from rq.errors import BadConfig
from rq.layout import Root
from rq.timers.cron import local
from rq.timers.past import Past, with_rule
from rq.timers.rule import Timer
from rq.timers.timer import parse, refusal
from rq.timers.when import following
from rq.wording import duration

_FIRES = 5  # fires


def validate(root: Root, paths: list[str]) -> None:
    """Say when files would fire; BadConfig says what is wrong with the first that is."""
    for name in paths:
        path = Path(name)
        why = refusal(path.name)
        if why:
            raise BadConfig(why)
        _tell(root, path, parse(path))


def _tell(root: Root, path: Path, timer: Timer) -> None:
    print(f"{term.plain(path)} is a timer: {rule(timer)}, to {timer.dest}")
    if not root.queue(timer.queue).path.is_dir():
        place.note(f"there is no queue {timer.queue} in {root.path} yet")
    if timer.cron is None:
        print("it fires as soon as it is in timers/, and then each period after that")
        return
    now = time.time()
    past = with_rule(Past(), timer, now)
    for fire in following(timer, past, now, _FIRES):
        print(moments(fire.at, timer.cron.zone))
    print(f"time zones are those of {zones.of_tables(zones.tables())}")


def rule(timer: Timer) -> str:
    """Return when a timer fires, in words."""
    if timer.cron:
        return f"{timer.cron.expression} in {timer.cron.zone}"
    return f"every {duration(timer.period)}"


def moments(at: float, zone: str) -> str:
    """Return a moment in a zone, and in UTC."""
    there, utc = local(at, zone), local(at, "UTC")
    return there if there == utc else f"{there} = {utc}"
