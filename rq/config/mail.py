"""Whether mail can be sent, and who wants some."""

from __future__ import annotations

import os

from rq import config
from rq.config import notices
from rq.config.settings import QueueConfig, RootConfig
from rq.errors import BadConfig
from rq.layout import Root


def missing(program: str) -> str:
    """Return in a sentence that there is no program that takes mail; "" if there is."""
    if os.access(program, os.X_OK) and os.path.isfile(program):
        return ""
    return (
        f"no mail can be sent: there is no program {program}; install one that brings a "
        "sendmail (postfix, msmtp-mta, …), or name it in `sendmail` of config/config.json"
    )


def warnings(root: Root, main: RootConfig) -> list[str]:
    """Return a sentence if somebody is to get mail, and none can be sent."""
    why = missing(main.sendmail)
    if not why:
        return []
    whose = ["config/config.json"] if wants(main) else []
    whose += [f"queue {name}" for name in _queues(root)]
    return [f"{why}; {', '.join(whose[:5])} would tell people by mail"] if whose else []


def wants(settings: RootConfig | QueueConfig) -> bool:
    """Whether somebody is told by mail."""
    values = (getattr(settings, name) for name in notices.SETTINGS)
    return any(value is not None and value["mail"] for value in values)


def _queues(root: Root) -> list[str]:
    """Return the queues whose own config tells people by mail; what cannot be read is
    left out, for others say so."""
    try:
        listed = sorted(os.listdir(root.queues))
    except OSError:
        return []
    return [name for name in listed if _queue_wants(root, name)]


def _queue_wants(root: Root, name: str) -> bool:
    try:
        return wants(config.read_queue(root.queue(name)))
    except (BadConfig, ValueError):
        return False
