"""Whether mail can be sent, and who wants some."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rq.config import notices
from rq.config.settings import QueueConfig, RootConfig


def missing(program: str) -> str:
    """Return in a sentence that there is no program that takes mail; "" if there is."""
    if os.access(program, os.X_OK) and os.path.isfile(program):
        return ""
    return (
        f"no mail can be sent: there is no program {program}; install one that brings a "
        "sendmail (postfix, msmtp-mta, …), or name it in `sendmail` of config/config.json"
    )


def warnings(program: str, who: Sequence[str]) -> list[str]:
    """Return a sentence if somebody (`who` says so) tells people by mail, and none can be
    sent."""
    why = missing(program) if who else ""
    return [f"{why}; {', '.join(who[:5])} would tell people by mail"] if why else []


def wants(settings: RootConfig | QueueConfig) -> bool:
    """Whether somebody is told by mail."""
    values = (getattr(settings, name) for name in notices.SETTINGS)
    return any(value is not None and value["mail"] for value in values)
