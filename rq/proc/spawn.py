"""Scripts as processes: started as leader of their group, signalled, waited for."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from rq.proc.daemon import IGNORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a script is started with; descriptors are the caller's. 0 is its own, as
    `descriptors.park_descriptors` has left it."""

    argv: list[str]  # the first is a path
    env: Mapping[str, str]
    directory: int | str
    log: int
    write: int  # the script's descriptor 3
    read: int  # the script's descriptor 4
    lease: int
    lease_as: int
    # It leads a session as well: of that of the owner it could use the terminal.
    session: bool = False


def spawn(start: Start) -> int:
    """Start a script as leader of its own process group; return its pid.

    Its descriptors are 0, 1, 2, 3, 4 and the lease, all others close. The caller has
    parked 0, 3 and 4 and uses no relative path elsewhere. OSError as execve gives it.
    """
    # The library asks the kernel twice for each action. So 0 has none: it is inherited.
    actions = [
        (os.POSIX_SPAWN_DUP2, start.log, 1),
        (os.POSIX_SPAWN_DUP2, start.log, 2),
        (os.POSIX_SPAWN_DUP2, start.write, 3),
        (os.POSIX_SPAWN_DUP2, start.read, 4),
        (os.POSIX_SPAWN_DUP2, start.lease, start.lease_as),
    ]
    os.chdir(start.directory)
    try:
        return os.posix_spawn(
            start.argv[0],
            start.argv,
            start.env,
            file_actions=actions,
            **({"setsid": True} if start.session else {"setpgroup": 0}),
            setsigmask=[],
            setsigdef=IGNORED,
        )
    finally:
        os.chdir("/")


def be_nice(pid: int, nice: int) -> None:
    """Set the nice value of the process group that `pid` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, pid, nice)


@dataclass(frozen=True, slots=True)
class Termination:
    """How a process ended."""

    exit: int | None  # status, or None when a signal ended it
    signal: str | None  # name, such as SIGKILL
    cpu_us: int | None  # None: of a process that lives on
    max_rss: int | None  # KiB


def reap(pid: int) -> Termination | None:
    """Return how `pid` ended; None when it has not."""
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    if ended == 0:
        return None
    cpu = int((usage.ru_utime + usage.ru_stime) * 1e6)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Termination(None, signal_name(number), cpu, usage.ru_maxrss)
    return Termination(os.WEXITSTATUS(status), None, cpu, usage.ru_maxrss)


def signal_name(number: int) -> str:
    """Return a signal's name; the real-time ones have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def group_lives(group: int) -> bool:
    """Return whether some process is in process group `group`."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(group: int, sig: int) -> None:
    """Signal a process group whose leader the caller knows to be its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sig)
