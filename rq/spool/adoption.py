"""A queue whose messages another RQ has made: since when they are ours.

What had ended, or was prepared, before that may be years old. Its age counts from then.
"""

from __future__ import annotations

import os

import orjson

from rq import durable
from rq.journal import history
from rq.layout import QueueDir
from rq.spool import checkpoint, folders
from rq.states import State

AGEING = (State.PREP, State.DONE, State.RELAYED, State.DISMISSED)


def is_foreign(queue: QueueDir) -> bool:
    """Return whether RQ has never owned a queue: it has no journal."""
    if checkpoint.read(queue) is not None:
        return False
    place = queue.journal_dir
    return not history.active_segments(place) and not history.journals(place)


def found(queue: QueueDir) -> dict[State, int]:
    """Return how many messages there are that will grow old, of each state."""
    counts = {state: len(folders.list_state(queue, state)) for state in AGEING}
    return {state: number for state, number in counts.items() if number}


def note(queue: QueueDir, now: float) -> None:
    """Write down, durably, that a queue is ours from `now`, if anything lies in it."""
    if any(
        os.listdir(queue.path / name) for name in ("prep", "done", "relayed", "err")
    ):
        durable.write_durable(queue.adopted, orjson.dumps({"at": now}) + b"\n")


def at(queue: QueueDir) -> float:
    """Return since when a queue is ours, in epoch seconds; 0 when it always was.

    OSError: nobody can tell now, and nothing may be called old. Of a file that is not
    whole its own age is told.
    """
    try:
        return float(orjson.loads(queue.adopted.read_bytes())["at"])
    except FileNotFoundError:
        return 0.0
    except (ValueError, KeyError, TypeError):
        return queue.adopted.stat().st_mtime
