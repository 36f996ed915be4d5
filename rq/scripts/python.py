"""What a script that is written in Python says to its queue, and hears from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from rq import names
from rq.scripts.pipe import Verb

_SAY, _HEAR = 3, 4
_ANSWER = 64 * 1024


def say(verb: Verb, text: str) -> None:
    """Tell the queue something, in one line."""
    say_line(f"{verb} {' '.join(text.split())}")


def messages() -> Iterator[dict[str, str]]:
    """Give the values of message after message, as a long-lived worker is handed them."""
    with open(_HEAR, "rb", closefd=False) as lines:
        say_line("ready")
        for line in lines:
            yield json.loads(line)
            say_line("ready")


def say_line(line: str) -> None:
    """Write one line to the queue."""
    data = f"{line}\n".encode()
    while data:
        data = data[os.write(_SAY, data) :]


def dup(seconds: float, dest: str) -> tuple[bool, str]:
    """Let the queue copy our message to `dest`; return whether it did, and the full id
    of the copy or the reason."""
    say(Verb.DUP, f"{int(seconds)}-X-{dest}")
    answer = b""
    while not answer.endswith(b"\n"):
        part = os.read(_HEAR, _ANSWER)
        if not part:
            return False, "the queue did not answer"
        answer += part
    word, _, text = answer.decode(errors="replace").strip().partition(" ")
    return word == "ok", text


def params() -> tuple[str, str, str, str]:
    """Return the four params of our message; empty where there is none."""
    first, second, third, fourth = (
        os.environ.get(f"RQ_PARAM{number}", "") for number in range(1, 5)
    )
    return first, second, third, fourth


def own_message() -> str:
    """Return the QUEUE/ID of the message that we work on; "": we are no script, or work on
    a batch."""
    full_id = os.environ.get("RQ_FULL_MSG_ID", "")
    queue, msg_id = names.split_url(full_id) if full_id else ("", None)
    return f"{queue}/{msg_id}" if msg_id and "RQ_LEASE" in os.environ else ""


def count() -> int:
    """Return how often our message was tried before, as far as that counts."""
    return int(os.environ.get("RQ_COUNT") or 0)
