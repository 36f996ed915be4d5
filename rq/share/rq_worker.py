"""Long-lived workers in Python, any version from 3.8; no other module of RQ is needed.

    import os, sys
    sys.path.insert(0, os.environ["RQ_SHARE"])
    import rq_worker

    for message in rq_worker.messages():
        message.run("halfway")
        message.done(f"hello {message.param1}")

or, with exceptions that end in err:

    rq_worker.serve(lambda message: f"hello {message.param1}")
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Callable, Dict, Iterator

_SAY, _HEAR = 3, 4
_held = b""  # a last word goes with the `ready` behind it, in one piece
_rest = b""


class Message:
    """A message to work on; `env` has the values that another script finds in its
    environment."""

    def __init__(self, env: Dict[str, str]) -> None:
        self.env = env

    def __getattr__(self, name: str) -> str:
        """Give RQ_PARAM1 as `param1`, RQ_MSG_ID as `msg_id`, …; "" if it is not set."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self.env.get("RQ_" + name.upper(), "")

    def run(self, text: str) -> None:
        """Tell how far it is."""
        _say("run", text)

    def result(self, text: str) -> None:
        """Say its result, a value for programs; the last one counts."""
        _say("result", text)

    def done(self, text: str = "") -> None:
        _end("done", text)

    def relayed(self, text: str = "") -> None:
        _end("relayed", text)

    def err(self, text: str = "") -> None:
        _end("err", text)

    def resend(self, seconds: int, reason: str = "") -> None:
        """Ask to be given it again in some seconds."""
        _end("resend", "%d-%s" % (seconds, reason))

    def dup(self, dest: str, seconds: int = 0) -> str:
        """Copy it to another queue; return the full id, or raise RuntimeError."""
        _say("dup", "%d-X-%s" % (seconds, dest))
        word, _, text = _line().decode().partition(" ")
        if word != "ok":
            raise RuntimeError(text.strip())
        return text.strip()


def messages() -> Iterator[Message]:
    """Give message after message, until the queue wants this worker to end.

    The working directory is that of the message, if it has one.
    """
    global _held
    try:
        while True:
            sys.stdout.flush()
            sys.stderr.flush()
            word, _held = _held, b""
            _write(word + b"ready\n")
            line = _line()
            if not line:
                return
            message = Message(json.loads(line))
            os.chdir(message.msg_dir or "/")
            yield message
    finally:
        word, _held = _held, b""
        _write(word)


def serve(work: Callable[[Message], object]) -> None:
    """Call `work` with each message: what it returns is told with done, unless it has
    said another word; an exception is err, and its trace stands in the log."""
    for message in messages():
        try:
            text = work(message)
        except Exception as error:
            traceback.print_exc()
            message.err("%s: %s" % (type(error).__name__, error))
        else:
            if not _held:
                message.done("" if text is None else str(text))


def _say(word: str, text: str) -> None:
    _write(("%s %s\n" % (word, " ".join(text.split()))).encode("utf-8", "replace"))


def _end(word: str, text: str) -> None:
    """Keep a last word for the next `ready`; the first one counts, as it does in RQ."""
    global _held
    line = "%s %s\n" % (word, " ".join(text.split()))
    _held += line.encode("utf-8", "replace")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_SAY, data) :]


def _line() -> bytes:
    """Return the next line for this worker; nothing at the end."""
    global _rest
    while b"\n" not in _rest:
        data = os.read(_HEAR, 65536)
        if not data:
            return b""
        _rest += data
    line, _, _rest = _rest.partition(b"\n")
    return line
