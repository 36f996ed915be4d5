"""Where the folders of live messages, and of those in err, lie at a start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rq import names
from rq.errors import BadMessage, NoSuchMessage, Unread
from rq.layout import ATTACH, QueueDir
from rq.spool import folders
from rq.spool.fold import Fold
from rq.states import State


def list_places(queue: QueueDir, folds: Mapping[str, Fold]) -> dict[str, State]:
    """Return the state whose directory holds the folder of each message."""
    places: dict[str, State] = {}
    for state in (State.PREP, State.QUE, State.RUN, State.ERR):
        for name in os.listdir(queue.path / state):
            dotted = state is State.ERR and name.startswith(".")
            msg_id = name.removeprefix(".") if dotted else name
            if not names.is_msg_id(msg_id):
                continue
            at = State.DISMISSED if dotted else state
            if msg_id in places:
                at = _truer(queue, msg_id, (at, places[msg_id]), folds.get(msg_id))
            places[msg_id] = at
    return places


def _truer(
    queue: QueueDir, msg_id: str, both: tuple[State, State], fold: Fold | None
) -> State:
    """Return in which of two places the message lies; the other folder was made by hand,
    and goes when it is in the way."""
    whole = [at for at in both if _is_whole(queue, at, msg_id)] or both
    expected = [at for at in whole if fold is not None and at is fold.state]
    return (expected or whole)[0]


def _is_whole(queue: QueueDir, at: State, msg_id: str) -> bool:
    try:
        message = folders.read_message(queue, at, msg_id)
        attach = queue.message(at, msg_id) / ATTACH
        return all(
            os.lstat(attach / name).st_size == attachment.size
            for name, attachment in message.attachments.items()
        )
    except Unread:
        raise
    except (BadMessage, NoSuchMessage, FileNotFoundError, NotADirectoryError):
        return False
