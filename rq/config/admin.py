"""What an operator wants of a queue: the files `config/NAME.down` and `.pause`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from rq import durable, names
from rq.layout import Root


class Admin(StrEnum):
    """What the operator wants of a queue."""

    UP = "UP"
    PAUSE = "PAUSE"
    DOWN = "DOWN"


def admin_status(root: Root, name: str) -> Admin:
    """Return what the files `config/NAME.down` and `.pause` say; down beats pause."""
    if os.path.lexists(root.down(name)):
        return Admin.DOWN
    if os.path.lexists(root.pause(name)):
        return Admin.PAUSE
    return Admin.UP


def in_words(admin: Admin) -> str:
    """Return how a queue is of which that is wanted, as in "the queue is …"."""
    return "paused" if admin is Admin.PAUSE else str(admin)


def needed(admin: Admin, name: str) -> str:
    """Return what lets a queue go on that somebody has stopped; "" for one that is UP."""
    verb = {Admin.PAUSE: "resume", Admin.DOWN: "up"}.get(admin)
    return "" if verb is None else f"`rq queue {verb} {name}` lets it go on."


def set_down(root: Root, name: str, wanted: bool) -> None:
    """Make or remove `config/NAME.down`, durably."""
    _set_flag(root.down(names.queue_name(name)), wanted)


def set_pause(root: Root, name: str, wanted: bool) -> None:
    """Make or remove `config/NAME.pause`, durably."""
    _set_flag(root.pause(names.queue_name(name)), wanted)


def _set_flag(path: Path, wanted: bool) -> None:
    if wanted:
        durable.touch_durable(path)
    else:
        durable.unlink_durable(path)
