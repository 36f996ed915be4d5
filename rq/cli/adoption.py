"""What `rq up` says, and asks, before it starts on queues of the Ruby RQ."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rq import config
from rq.cli import place, term
from rq.config.settings import QueueConfig
from rq.errors import RQError
from rq.layout import QueueDir, Root
from rq.spool import PREP_SECONDS, adoption
from rq.states import State

_DAY = 86400.0
_NAMED = {
    State.PREP: "prepared",
    State.DONE: "done",
    State.RELAYED: "relayed",
    State.DISMISSED: "acknowledged",
}


def agreed(root: Root) -> bool:
    """Say which messages of queues that another RQ has filled will be removed, and when;
    ask whether to start. Without a terminal nothing is asked: nothing is removed at once."""
    lines = list(_lines(root, time.time()))
    if not lines:
        return True
    place.note("Another RQ has filled these queues. RQ will remove old messages:")
    for line in lines:
        place.note(f"  {line}")
    place.note(
        'To keep them longer, or for ever (null), set "retention" in the config.json '
        "beside the script of the queue, or in queue/NAME/"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return term.confirm("Start RQ?", yes=False)


def _lines(root: Root, now: float) -> Iterator[str]:
    for name in place.queue_names(root):
        queue = root.queue(name)
        if not queue.config.exists() or not adoption.is_foreign(queue):
            continue
        kept = _retention(queue)
        for state, number in adoption.count_ageing(queue).items():
            if (seconds := kept.get(state)) is not None:
                when = term.moment(now + seconds)
                yield f"{name}: {number} {_NAMED[state]} after {when}"


def _retention(queue: QueueDir) -> dict[State, float]:
    """Return how long, in seconds, the states of a queue are kept."""
    try:
        settings = config.read_queue(queue)
    except RQError:
        settings = QueueConfig()
    ends = {state: settings.retention.get(str(state), {}) for state in adoption.AGEING}
    days = {s: kept["days"] * _DAY for s, kept in ends.items() if "days" in kept}
    return {**days, State.PREP: PREP_SECONDS}
