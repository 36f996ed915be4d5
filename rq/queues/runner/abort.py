"""Attempts that do not begin: why, and what becomes of their messages."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from rq import back_off
from rq.message.causes import Cause
from rq.message.message import Message
from rq.queues.attempts import outcome
from rq.scripts.script_file import MISSING, ScriptFile
from rq.words.states import Event

# What an earlier attempt can have made of a folder: no reason to try it again.
_RUINED = MISSING | {
    errno.EEXIST,
    errno.EINVAL,
    errno.EMLINK,
    errno.ENXIO,
    errno.ENAMETOOLONG,
}
# Errors that say nothing about one folder: every folder has them.
_OF_ALL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
                     errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # fmt: skip
TRIES = 6  # starts of a message whose folder cannot be used, before it goes to err
_FIRST, _LONGEST = 1.0, 60.0  # seconds between them
_MOST_HINDERED = 10_000
_AT_LAST = {Cause.FOLDER: Cause.FOLDER_LIMIT}


@dataclass(frozen=True, slots=True)
class Abort:
    """Why an attempt did not begin, and what becomes of its message."""

    event: Event
    cause: Cause
    text: str
    wait: float = 0.0  # seconds that this message waits


def cancelled(who: str) -> Abort:
    """Return what becomes of a message that was cancelled before it began."""
    decided = outcome.cancelled(who)
    return Abort(decided.event, decided.cause, decided.text)


class FailedStarts:
    """Messages that cannot be started for a reason of their own, most likely their
    folders, and how often each was tried."""

    def __init__(self) -> None:
        self._tries: dict[str, int] = {}

    def refuse(self, msg_id: str, cause: Cause, text: str) -> Abort:
        """Return what becomes of a message: it alone waits, longer each time; then err."""
        tries = self._tries.pop(msg_id, 0) + 1
        if tries >= TRIES:
            return Abort(Event.FAIL, _AT_LAST.get(cause, cause), text)
        self._tries[msg_id] = tries
        if (
            len(self._tries) > _MOST_HINDERED
        ):  # deleted messages are never forgotten otherwise
            del self._tries[next(iter(self._tries))]
        wait = back_off.delay(tries, _FIRST, _LONGEST)
        return Abort(Event.REQUEUE, cause, text, wait)

    def fault(self, msg_id: str, error: Exception) -> Abort:
        """As `refuse`, for a message whose start failed by a fault of RQ."""
        return self.refuse(msg_id, Cause.FAULT, unforeseen(error))

    def forget(self, msg_id: str) -> None:
        """The message has started."""
        self._tries.pop(msg_id, None)


def why_not_started(script: ScriptFile, message: Message, error: OSError) -> Abort:
    """Return what an error at the start of `script` means for its message."""
    in_folder = _in_folder(error, message.msg_id)
    text = script.why_not(error)
    if in_folder:
        text = f"{error.filename}: {error.strerror or error}"
    if error.errno == errno.E2BIG:
        size = sum(len(k) + len(str(v)) for k, v in message.params.items())
        limit = os.sysconf("SC_ARG_MAX")
        text = f"parameters too large for an environment ({size} of {limit} bytes)"
        return Abort(Event.FAIL, Cause.TOO_LARGE, text)
    if in_folder and error.errno in _RUINED:
        return Abort(Event.FAIL, Cause.BAD_MESSAGE, text)
    if in_folder and error.errno not in _OF_ALL:
        return Abort(Event.REQUEUE, Cause.FOLDER, text)
    if error.errno in MISSING and not in_folder:
        return Abort(Event.REQUEUE, Cause.SCRIPT, text)
    return Abort(Event.REQUEUE, Cause.SPAWN, text)


def unforeseen(error: Exception) -> str:
    """Return the text for an error that no rule of RQ covers."""
    return f"RQ failed over it ({error!r:.200}); the log of its queue says where"


def _in_folder(error: OSError, msg_id: str) -> bool:
    """Whether it is the message's folder that cannot be used, not the script."""
    return msg_id in str(error.filename or "") or msg_id in str(error.filename2 or "")
