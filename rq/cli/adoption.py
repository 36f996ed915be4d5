"""What `rq up` says, and asks, before it starts on queues of the Ruby RQ."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rq import config
from rq.cli import place, term
from rq.config import adopted
from rq.config.settings import QueueConfig
from rq.errors import RQError
from rq.layout import QueueDir, Root
from rq.spool import PREP_SECONDS, restored
from rq.spool import adoption as spool_adoption
from rq.states import State

_DAY = 86400.0
_NAMED = {
    State.PREP: "prepared",
    State.DONE: "done",
    State.RELAYED: "relayed",
    State.DISMISSED: "acknowledged",
}


def agreed(root: Root, *, adopt: bool) -> bool:
    """Say what RQ will do with queues that another RQ has filled: which messages it will
    remove, and when, and what waits; ask whether to start, unless told to `adopt`.

    Without a terminal no operator can be asked: a root of the Ruby RQ is not taken over. A
    queue in a root of ours is, for nothing is removed at once.
    """
    is_ruby = not root.adopted.exists() and spool_adoption.is_ancestors(root)
    lines = list(_lines(root, time.time()))
    if not lines and not is_ruby:
        return True
    _tell(root, lines)
    if adopt:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        return term.confirm("Start RQ?", yes=False)
    if is_ruby:
        place.note(
            f"{root.path} is a root of the Ruby RQ, and there is no terminal to ask on: "
            "`rq up --adopt` takes it over"
        )
    return not is_ruby


def _tell(root: Root, lines: list[str]) -> None:
    if lines:
        place.note("Another RQ has filled these queues. RQ will remove old messages:")
        for line in lines:
            place.note(f"  {line}")
        place.note(
            'To keep them longer, or for ever (null), set "retention" in the config.json '
            "beside the script of the queue, or in queue/NAME/"
        )
    if waits := list(_waits(root)):
        place.note(
            "These wait until you say `rq restore accept`: "
            + term.plain(", ".join(waits))
        )


def _waits(root: Root) -> Iterator[str]:
    """Give what will not act before the operator says so."""
    for name in place.queue_names(root):
        if restored.why_not_taken_over(root.queue(name)) is not None:
            yield f"queue {name}, with its script of the Ruby RQ"
    if not root.adopted.exists():
        for name in adopted.timers_in(root):
            yield f"timer {name}"


def _lines(root: Root, now: float) -> Iterator[str]:
    for name in place.queue_names(root):
        queue = root.queue(name)
        if not queue.config.exists() or not spool_adoption.is_foreign(queue):
            continue
        kept = _retention(queue)
        for state, number in spool_adoption.count_ageing(queue).items():
            if (seconds := kept.get(state)) is not None:
                when = term.moment(now + seconds)
                yield f"{name}: {number} {_NAMED[state]} after {when}"


def _retention(queue: QueueDir) -> dict[State, float]:
    """Return how long, in seconds, the states of a queue are kept."""
    try:
        settings = config.read_queue(queue)
    except RQError:
        settings = QueueConfig()
    ends = {
        state: settings.retention.get(str(state), {}) for state in spool_adoption.AGEING
    }
    days = {s: kept["days"] * _DAY for s, kept in ends.items() if "days" in kept}
    return {**days, State.PREP: PREP_SECONDS}
