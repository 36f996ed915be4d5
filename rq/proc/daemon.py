"""The arrangements of a long-lived process with the kernel and with systemd."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)

# Python ignores these; a script does not.
IGNORED = [signal.SIGPIPE, *([signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else [])]


def own_signals() -> None:
    """Ignore no signal that our starter ignored (nohup, a careless shell).

    With SIGCHLD ignored no script could be waited for; the others go on to scripts.
    """
    for number in signal.valid_signals() - set(IGNORED):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def title(text: str) -> None:
    """Make ps and top show `text` (15 bytes of it)."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_NAME, text.encode()[:15], 0, 0, 0)


def die_with_parent(sig: int = signal.SIGTERM) -> None:
    """Be sent `sig` when the parent ends; no effect where the kernel cannot."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)


def notify(text: str) -> None:
    """Send a note to systemd, if it wants any (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)  # a systemd that does not read must not stop us
        with contextlib.suppress(OSError):
            line.sendto(text.encode(), address)
