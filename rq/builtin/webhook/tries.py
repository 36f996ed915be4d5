"""Tries of a script that tells others: one for each message, bounded in time, and told on
the pipe and in the log."""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable

from rq.builtin.webhook import outcome
from rq.config import secrets
from rq.scripts import python as script
from rq.scripts.pipe import Verb


def run(one_try: Callable[[], tuple[Verb, str]]) -> int:
    """Try each message, as a process of its own or as a worker that stays."""
    if "RQ_MSG_ID" in os.environ:  # a process for each message
        _take(one_try)
        return 0
    for values in script.messages():
        os.environ.update(values)
        _take(one_try)
    return 0


def _take(one_try: Callable[[], tuple[Verb, str]]) -> None:
    try:
        verb, text = one_try()
    except Exception as error:  # noqa: BLE001 - a loop iteration
        print(secrets.host_only(traceback.format_exc()))  # noqa: T201
        verb, text = again(f"{type(error).__name__}: {error}")
    text = secrets.host_only(text)  # its log and its status are for viewers
    print(verb, text, flush=True)  # noqa: T201 - into the log of the message
    script.say(verb, text)


def again(reason: str) -> tuple[Verb, str]:
    """Return that the next attempt tries again."""
    return outcome.again(reason, script.count(), random.random())
