"""A queue about which a person must decide before it works: its directory was copied, or
restored from a backup, or it runs a script of the Ruby RQ that RQ replaces.

The ancestor's cleaner removes folders that are three days old by their names, its relay
and router move what they like: none of them asks the queue's owner. A queue that RQ takes
over with such a script waits, so that a timer, or what was left in `que`, does not start
it before a person has decided. A queue that RQ already owned goes on."""

from __future__ import annotations

import os
from pathlib import Path

from rq import config
from rq.config.bundled import BUNDLED
from rq.errors import BadConfig
from rq.journal import mark
from rq.layout import QueueDir, Root
from rq.spool import adoption

_SHIPPED = "default_scripts"  # where the ancestor has its scripts
_REPLACED = (
    "cleaner",
    "relay",
    "webhook",
    "rq_router",
)  # RQ has its own, named the same


def why_waiting(queue: QueueDir) -> str | None:
    """Return why a person must decide before a queue works; None: no decision is
    needed."""
    if not mark.is_elsewhere(queue.journal_dir):
        return why_not_taken_over(queue)
    return (
        "its directory was copied or restored, and nothing starts before a person says "
        f"what it is: `rq restore accept {queue.name}` for the same queue, moved here; "
        "the same with `--copy` for a copy, or a backup older than what has run since"
    )


# ---- a script of the Ruby RQ


def advice(queue: QueueDir) -> str | None:
    """Return what to do about a queue that runs such a script; None: it runs none."""
    script = _script_of(queue)
    name = None if script is None else _replaced(queue, script)
    if name is None:
        return None
    link = _root_of(queue).scandir / queue.name
    return (
        f"it runs {script} of the Ruby RQ, which moves folders without asking RQ: "
        f"`ln -sfn {BUNDLED / name} {link}` replaces it by RQ's own"
    )


def why_not_taken_over(queue: QueueDir) -> str | None:
    """Return why a queue that RQ has never owned does not begin; None: it may."""
    what_to_do = advice(queue)
    if what_to_do is None or not _was_ancestors(queue) or _is_accepted(queue):
        return None
    return f"{what_to_do}; `rq restore accept {queue.name}` lets it run as it is"


def _was_ancestors(queue: QueueDir) -> bool:
    """Return whether RQ takes a queue over: it has never owned it, and has not made it, as
    its mark would tell; in a root that was the ancestor's a link may have been marked."""
    is_made = queue.scandir_mark.exists() and not _root_of(queue).adopted.exists()
    return adoption.is_foreign(queue) and not is_made


def _root_of(queue: QueueDir) -> Root:
    return Root(queue.path.parent.parent)


def _is_accepted(queue: QueueDir) -> bool:
    """Return whether a person has said that it may go on, and no journal was begun yet."""
    return mark.read(queue.journal_dir) is not None


def _script_of(queue: QueueDir) -> Path | None:
    try:
        script = config.read_json(queue.config).get("script")
        if isinstance(script, str):
            return (_root_of(queue).path / script).resolve()
    # Such a script cannot be started: it holds a NUL, or leads in a circle of links.
    except (BadConfig, OSError, ValueError, RuntimeError):
        pass
    return None


def _replaced(queue: QueueDir, script: Path) -> str | None:
    """Return the queue of RQ that does what this script of the ancestor does."""
    is_shipped = _SHIPPED in script.parts
    if is_shipped and script.parent.name in _REPLACED:
        return script.parent.name
    if queue.name in _REPLACED and (is_shipped or _is_ruby(script)):
        return queue.name
    return None


def _is_ruby(script: Path) -> bool:
    try:
        # Opening a fifo would wait for who writes to it.
        fd = os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"ruby" in first
