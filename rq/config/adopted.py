"""A root that the Ruby RQ filled: since when it is ours, and which of its timers wait.

The supervisor writes the file once, before anything starts. A timer that it names does not
fire until the operator lets it: it may start the Ruby RQ's cleaner, or send what has been
sent already.
"""

from __future__ import annotations

import os
from typing import TypedDict

from rq import config
from rq.config import files
from rq.errors import BadConfig
from rq.layout import Root
from rq.names import is_text

_ENDS = (".json", ".yaml")


class _State(TypedDict):
    at: float  # epoch seconds
    timers: list[str]  # that wait


def note(root: Root, now: float) -> None:
    """Write down, durably, that a root is ours from `now`, and which timers wait."""
    files.write_state(root.adopted, {"at": now, "timers": timers_in(root)})


def timers_in(root: Root) -> list[str]:
    """Return the timers that a root has, whether RQ can read them or not. It takes none
    whose name is no UTF-8."""
    entries = os.listdir(root.timers) if root.timers.is_dir() else []
    return sorted(
        {
            os.path.splitext(name)[0]
            for name in entries
            if name.endswith(_ENDS) and is_text(name)
        }
    )


def held(root: Root, timer: str) -> float | None:
    """Return since when a timer waits, in epoch seconds; None: it does not. BadConfig
    when the file cannot be read."""
    state = _read(root)
    return state["at"] if timer in state["timers"] else None


def timers(root: Root) -> list[str]:
    """Return the timers that wait and are still there, for those who show them."""
    return [name for name in names(root) if (root.timers / f"{name}.json").exists()]


def names(root: Root) -> list[str]:
    """Return all timers that wait, also those whose file RQ could not read if it were
    there (`.yaml`): one of this name that comes later waits, too."""
    try:
        return _read(root)["timers"]
    except BadConfig:  # the timers say it
        return []


def release(root: Root, timer: str) -> None:
    """Write down, durably, that a timer waits no more."""
    state = _read(root)
    left = [name for name in state["timers"] if name != timer]
    if left != state["timers"]:
        files.write_state(root.adopted, {**state, "timers": left})


def _read(root: Root) -> _State:
    if not root.adopted.exists():
        return {"at": 0.0, "timers": []}
    try:
        state = config.read_json(root.adopted)
        return {"at": float(state["at"]), "timers": [str(n) for n in state["timers"]]}
    except (KeyError, TypeError, ValueError) as error:
        raise BadConfig(f"{root.adopted} is damaged ({error!r}); remove it") from None
