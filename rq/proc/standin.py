"""Stand-ins for pidfds, for kernels and containers that have none.

They are slower, and have the gap that pidfds closed: between a look at a process and a
signal to it, the process may end and its number be given to another.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
import threading
import time
from pathlib import Path

_PROC = Path("/proc")
_LOOK = 0.1  # seconds between looks at a process that is not our child
# Of a kernel before Linux 5.3, and of a container that allows no such call.
_NONE = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})


def pidfd(pid: int) -> int | None:
    """Return a pidfd; None where there are none. ProcessLookupError: no such process."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def end_of(pid: int) -> int:
    """Return a descriptor that is readable once `pid` has ended, which a thread waits
    for. ProcessLookupError: no such process."""
    os.kill(pid, 0)
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    thread = threading.Thread(target=_wait, args=(pid, theirs), daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        os.close(ours)
        os.close(theirs)
        raise OSError(errno.EAGAIN, str(error)) from None
    return ours


def _wait(pid: int, theirs: int) -> None:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # not ours
        while _lives(pid):
            time.sleep(_LOOK)
    finally:
        os.close(theirs)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        text = (_PROC / str(pid) / "stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # not ours to signal, or no /proc
        return True
    return text.rpartition(")")[2].split()[0] not in "ZX"


def place_of(pid: int) -> int:
    """Return a descriptor of the directory that /proc has of `pid`."""
    return os.open(_PROC / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def is_place(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode)


def is_lock(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)


def is_free(lock: int) -> bool:
    """Whether the lock file that is open as `lock` is free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def is_empty(place: int) -> bool:
    """Whether the process that `place_of` was asked for has ended."""
    try:
        fd = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=place)
        with open(fd) as file:
            text = file.read()
    except (ProcessLookupError, FileNotFoundError):
        return True
    return text.rpartition(")")[2].split()[0] in "ZX"


def send(fd: int, pid: int, sig: int) -> None:
    """Signal the process that `fd` stands for, if it still is; `pid` is its number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISDIR(mode):
            os.kill(pid, sig)
        else:
            signal.pidfd_send_signal(fd, sig)
