"""The script of the queue `rq_router`: sends a message where the first rule says."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rq import config
from rq.builtin.router import rules
from rq.builtin.router.rules import Action, Rule
from rq.errors import BadConfig, BadInput, CannotRead
from rq.files import beneath
from rq.layout import MSG, Root
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.spool import script_files
from rq.words.nesting import Json

PATIENCE = 60  # seconds: a pattern that never comes to an end is ended
_SENT = (
    "sent"  # in the worker's directory: the copies that were made by earlier attempts
)
_LOG = "rq_router.log"
_PAUSE = 60  # seconds until a message is looked at again


def main() -> int:
    signal.alarm(PATIENCE)
    root = config.find_root(None)
    try:
        message = _message()
        rule = rules.parse(config.read_json(root.router)).first(message)
        if rule.log:
            _note(root, rule, message)
        return _act(rule, message)
    except CannotRead as error:
        return _again(str(error))
    except (BadConfig, BadInput) as error:
        return _err(str(error))


def _message() -> Mapping[str, Json]:
    try:
        message = script_files.read_json(Path(".."), MSG)
    except OSError as error:
        raise CannotRead(f"its file msg cannot be read: {error.strerror}") from None
    if message is None:
        raise BadInput("its file msg cannot be read")
    return message


def _act(rule: Rule, message: Mapping[str, Json]) -> int:
    print(f"rule {rule.name}: {rule.action}")  # noqa: T201 - the log of the message
    if rule.action is Action.DONE:
        script.say(Verb.DONE, f"done by rule {rule.name}")
        return 0
    if rule.action is Action.ERR:
        return _err(f"err by rule {rule.name}")
    urls = rules.destinations(rule, str(message.get("dest", "")), random.choice)
    for number, dest in enumerate(urls):
        if reason := _send(rule, number, dest):
            return _err(f"{dest}: {reason}")
    script.say(Verb.DONE, f"{rule.action} by rule {rule.name}: {' '.join(urls)}")
    return 0


def _send(rule: Rule, number: int, dest: str) -> str:
    """Send a copy, unless an earlier attempt has; return why it could not be."""
    mark = f"{rule.name} {number}".replace("\n", " ")
    if mark in _sent():
        return ""
    is_copied, text = script.dup(rule.delay, dest)
    if not is_copied:
        return text
    print(f"copied to {dest} as {text}")  # noqa: T201
    with open(_SENT, "a", opener=_opened) as file:
        file.write(f"{mark}\n")
    return ""


def _sent() -> list[str]:
    """Return the marks of the copies that were made."""
    try:
        with open(_SENT, newline="\n", opener=_opened) as file:
            return file.read().split("\n")
    except FileNotFoundError:
        return []


def _opened(name: str, flags: int) -> int:
    """Open a plain file of our own directory."""
    with beneath.top(".") as here:
        return beneath.open_plain(name, here, flags)


def _note(root: Root, rule: Rule, message: Mapping[str, Json]) -> None:
    """Write the ancestor's line: pid, time, rule, action, message, source."""
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    msg_id, src = os.environ.get("RQ_FULL_MSG_ID", ""), message.get("src") or ""
    parts = (os.getpid(), when, rule.name, rule.action, msg_id, src)
    with (root.log / _LOG).open("a") as file:
        file.write(" - ".join(map(_plain, parts)) + "\n")


def _plain(value: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(value))


def _again(text: str) -> int:
    """Try again later: the message, or the rules, cannot be read now."""
    print(text)  # noqa: T201
    script.say(Verb.RESEND, f"{_PAUSE}-{text}")
    return 0


def _err(text: str) -> int:
    print(text)  # noqa: T201
    script.say(Verb.ERR, text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
