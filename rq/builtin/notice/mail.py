"""Hands a letter to sendmail."""

from __future__ import annotations

import os
import signal
import subprocess

from rq.scripts.pipe import Verb
from rq.words import visible

TIMEOUT = 60.0  # seconds that sendmail may take
_SAID = 2000  # bytes of what it says
# Of sysexits.h those that another try does not change: no such user or host, wrong data.
_FOR_GOOD = frozenset({64, 65, 67, 68, 77, 78})


def hand_over(program: str, letter: bytes) -> tuple[Verb, str]:
    """Return what to report: done, err for good, or resend with the reason."""
    try:
        process = subprocess.Popen(
            [program, "-t", "-oi"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Verb.RESEND, f"{program} cannot be started: {error.strerror}"
    try:
        _, said = process.communicate(letter, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verb.RESEND, f"{program} has not ended within {TIMEOUT:g} s"
    why = visible.last_line(said[-_SAID:].decode(errors="replace"), 200)
    status = process.returncode
    if status == 0:
        return Verb.DONE, f"{program} has taken it"
    how = f"exit {status}" if status > 0 else f"signal {-status}"
    text = f"{program} refused it ({how}){': ' if why else ''}{why}"
    return (Verb.ERR if status in _FOR_GOOD else Verb.RESEND), text
