"""Runs programs for bootstrap.py: their output goes to a log, how far they are is said."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

# Lines of pip that tell how far it is.
STAGES = r"^ *((?:Collecting|Downloading|Building|Installing) .{1,60})"

# Words of pip that mean "nobody answered", as opposed to "that package does not exist".
UNREACHABLE = ("Retrying (", "ConnectionError", "ConnectTimeout", "ReadTimeout")
TELL_EVERY = 5.0


class Refused(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def run(command: list, why: str, log_file: Path, *, visible: bool = False) -> None:
    """Run `command` with its output in log_file; raise Refused with `why` if it fails."""
    with fresh(log_file) as log:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            close_fds=False,
        )
    try:
        status = watch(child, log_file) if visible else child.wait()
    except KeyboardInterrupt:
        child.wait()  # it has the same terminal, and writes into the venv
        raise
    if status == 0:
        return
    output = log_file.read_text(errors="replace")
    if any(word in output for word in UNREACHABLE):
        raise Refused(f"{why}: the package index does not answer (details: {log_file})")
    errors = re.findall(r"^(?:ERROR|Error|E): (.*)", output, re.MULTILINE)
    last = errors[-1] if errors else f"exit status {status}"
    raise Refused(f"{why}: {last} (details: {log_file})")


def watch(child: subprocess.Popen, log_file: Path) -> int:
    """Tell what pip is at, every few seconds, until it ends; return its status."""
    begun = time.monotonic()
    while True:
        try:
            return child.wait(TELL_EVERY)
        except subprocess.TimeoutExpired:
            at = re.findall(STAGES, log_file.read_text(errors="replace"), re.MULTILINE)
            text = at[-1] if at else "asking the package index"
            say(f"  {time.monotonic() - begun:.0f} s: {text}")


def say(text: str) -> None:
    print(f"rq: {text}", file=sys.stderr, flush=True)


def fresh(path: Path) -> TextIO:
    """Open a new file for writing; a link that somebody planted there is removed."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o644), "w")
