"""The script of the queue `cleaner`: removes what ended days ago, as the ancestor's did.

It asks the owners, which remove; a queue that is DOWN or does not answer is left out and
named. Retention (each queue's config) does the same each hour, without any message.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rq import config, names
from rq.errors import BadInput, NoSuchQueue, RQError
from rq.layout import Root
from rq.rpc import client
from rq.scripts import python as script
from rq.scripts.pipe import Verb

DAYS = 3.0
DAY = 86400.0
ALL = "ALLQUEUES"
STATES = ("done", "relayed", "dismissed")
RELAYED_KEPT = 60_000  # of the queue relay, as the ancestor's
_RELAY = "relay"
_PATIENCE = 600.0


@dataclass(slots=True)
class Sum:
    """What was done."""

    removed: int = 0
    queues: int = 0
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"removed {self.removed} messages of {self.queues} queues"
        left = "; ".join(self.left_out)
        return f"{text}; left out: {left}" if left else text


def main() -> int:
    name, days, _, _ = script.params()
    root = config.find_root(None)
    try:
        sum_ = clean(root, _wanted(root, name), time.time() - _days(days) * DAY)
    except (BadInput, NoSuchQueue) as error:
        script.say(Verb.ERR, str(error))
        return 1
    print(sum_)  # noqa: T201 - into the log of the message
    script.say(Verb.DONE, str(sum_))
    return 0


def _wanted(root: Root, name: str) -> list[str]:
    """Return the queues that are meant: one by its name, else all."""
    queues = list(_queues(root))
    if name in ("", ALL):
        return queues
    if names.queue_name(name) not in queues:
        raise NoSuchQueue(f"there is no queue {name}")
    return [name]


def _queues(root: Root) -> Iterator[str]:
    for path in sorted(root.queues.iterdir()):
        if names.is_queue_name(path.name) and root.queue(path.name).config.is_file():
            yield path.name


def _days(text: str) -> float:
    """Return the days in param2, all digits of it.

    >>> [_days(text) for text in ("", "30", "0.5")]
    [3.0, 30.0, 0.5]
    """
    if not text.strip():
        return DAYS
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e6:
        raise BadInput(f"param2 is {text!r:.40}, not a number of days")
    return days


def clean(root: Root, queues: list[str], before: float) -> Sum:
    """Remove what ended `before` that moment from each queue."""
    total = Sum()
    for name in queues:
        script.say(Verb.RUN, f"cleaning {name}")
        try:
            total.removed += _clean_one(root, name, before)
            total.queues += 1
        except RQError as error:
            total.left_out.append(f"{name}: {error}")
    return total


def _clean_one(root: Root, name: str, before: float) -> int:
    removed = 0
    with client.Connection(root.queue(name).socket, _PATIENCE) as line:
        for state in STATES:
            request: dict[str, object] = {"state": state, "before": before}
            if (name, state) == (_RELAY, "relayed"):
                request["keep"] = RELAYED_KEPT
            more = True
            while more:
                answer = client.demanded(line.ask("expire", request))
                removed += answer["expired"]
                more = answer["more"]
    return removed


if __name__ == "__main__":
    sys.exit(main())
