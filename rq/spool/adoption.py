"""A queue whose messages another RQ has made: since when they are ours.

What had ended, or was prepared, before that may be years old. Its age counts from then.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import orjson

from rq import names
from rq.errors import BadInput, NotPlain, is_busy
from rq.files import beneath, durable
from rq.journal import history
from rq.layout import MSG, QUEUE_DIRS, STATE_DIRS, QueueDir, Root, folder
from rq.logs import fields
from rq.spool import ancestor_files, checkpoint, folders
from rq.words.states import COUNTED, State

ADOPTED_BYTES = 256 * 1024 * 1024  # of files that are read at the first start
AGEING = (State.PREP, State.DONE, State.RELAYED, State.DISMISSED)

_log = logging.getLogger(__name__)


def is_foreign(queue: QueueDir) -> bool:
    """Return whether RQ has never owned a queue: it has no journal."""
    if checkpoint.read(queue) is not None:
        return False
    place = queue.journal_dir
    return not history.active_segments(place) and not history.journals(place)


def is_ancestors(root: Root) -> bool:
    """Return whether RQ has never run in a root that the ancestor filled: there are
    queues, none has a journal, and none was made by RQ, which leaves a mark."""
    queues = [
        QueueDir(path)
        for path in (root.queues.iterdir() if root.queues.is_dir() else ())
        if names.is_queue_name(path.name) and QueueDir(path).config.is_file()
    ]
    return bool(queues) and all(
        is_foreign(queue) and _is_of_ancestor(queue) for queue in queues
    )


def _is_of_ancestor(queue: QueueDir) -> bool:
    return not queue.scandir_mark.exists() and all(
        (queue.path / name).is_dir() for name in STATE_DIRS
    )


def count_ageing(queue: QueueDir) -> dict[State, int]:
    """Return how many messages of each state will expire."""
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

    OSError: that cannot be read now, and nothing may be called old. Of a file that is not
    whole its own age is told.
    """
    try:
        return float(orjson.loads(queue.adopted.read_bytes())["at"])
    except FileNotFoundError:
        return 0.0
    except (ValueError, KeyError, TypeError):
        return queue.adopted.stat().st_mtime


# ---- its files


def adopt_modes(queue: QueueDir) -> None:
    """Keep others out of a queue that was not made by this RQ."""
    durable.allow(str(queue.path), durable.DIR_MODE)
    with beneath.top(queue.path) as top:
        for name in QUEUE_DIRS:
            durable.allow(name, durable.DIR_MODE, top)
        for state in COUNTED:
            for msg_id in folders.list_state(queue, state):
                path = folder(state, msg_id)
                # What RQ may not use is refused when it is read.
                with contextlib.suppress(FileNotFoundError, NotPlain):
                    durable.allow(path, durable.DIR_MODE, top)
                    durable.allow(f"{path}/{MSG}", durable.FILE_MODE, top)


def adopt_files(queue: QueueDir) -> None:
    """Name in `msg` what the ancestor attached, up to ADOPTED_BYTES. The rest is named,
    or refused with the same sentence, when a client needs it."""
    left = ADOPTED_BYTES
    with beneath.top(queue.path) as top:
        for state, msg_id in _of_ancestor(queue):
            try:
                left -= ancestor_files.adopt(top, folder(state, msg_id), msg_id, left)
            except (BadInput, OSError) as error:
                if isinstance(error, OSError) and is_busy(error):
                    raise
                _log.warning(
                    "what the Ruby RQ attached to a message cannot be taken; it will "
                    "not be cloned or relayed without it: %s",
                    fields(queue=queue.name, msg_id=msg_id, reason=error),
                )


def _of_ancestor(queue: QueueDir) -> Iterator[tuple[State, str]]:
    """Give its messages, those first that have still to be done; not those in run: a
    script of the ancestor may be at work in there."""
    for state in COUNTED:
        if state is not State.RUN:
            for msg_id in filter(
                names.is_ancestors, folders.newest_first(queue, state)
            ):
                yield state, msg_id
