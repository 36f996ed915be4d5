"""The directory of an agent: its own as long as it lives, and of the next one after it.

HOST_PORT_QUEUE/N/   lock      held by the agent
                     lease/    a locked file for each slot
                     msg/      a folder for each message at work
                     script/   the queue's script, if it is shared
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from rq.errors import Busy, Refused
from rq.files import durable
from rq.outbound.peers import Target
from rq.proc import lease_holders, locks
from rq.scripts.slots import Slots
from rq.work import holding

MOST = 1000  # agents of one user on a machine, for one queue
_MODE = 0o700
_DIRS = ("lease", "msg", "script")
_ODD = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that this agent has the lock of."""

    path: Path
    lock: int
    dir_fd: int  # of `msg/`

    @property
    def messages(self) -> Path:
        return self.path / "msg"

    @property
    def lease_prefix(self) -> str:
        """Return what RQ_LEASE of its scripts starts with."""
        return prefix_of(self.path)

    def slots(self) -> Slots:
        """Return its slots, all free."""
        start = int(holding.now() * 1000)
        return Slots(self.path / "lease", self.lease_prefix, start)

    def close(self) -> None:
        """Leave it to the next agent."""
        os.close(self.dir_fd)
        os.close(self.lock)


def default_base() -> Path:
    """Return where agents keep their directories, if nothing else is said."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local/state"
    return base / "rq-work"


def open_place(base: Path, to: Target) -> Place:
    """Take the first directory that no other agent has; end the scripts that an earlier
    agent left there. Refused when it cannot be used."""
    name = _name(to)
    try:
        for number in range(MOST):
            path = base / name / str(number)
            path.mkdir(mode=_MODE, parents=True, exist_ok=True)
            lock = locks.lock(path / "lock")
            if lock is not None:
                return _taken(path, lock)
    except OSError as error:
        why = error.strerror or error
        raise Refused(
            f"{base} cannot be used ({why}): name another directory with --dir"
        ) from None
    raise Busy(f"{MOST} agents work in {base / name}: name another one with --dir")


def _name(to: Target) -> str:
    """Return what no other queue's directory is called: what an agent could not hand in
    there is for this queue alone. Several RQs may be behind one proxy."""
    name = _ODD.sub("_", f"{to.host}_{to.port}_{to.queue}")
    return f"{name}~{_ODD.sub('_', to.prefix.strip('/'))}" if to.prefix else name


def _taken(path: Path, lock: int) -> Place:
    try:
        for name in _DIRS:
            (path / name).mkdir(mode=_MODE, exist_ok=True)
        dir_fd = os.open(path / "msg", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        os.close(lock)
        raise
    end_scripts(path)
    return Place(path, lock, dir_fd)


def prefix_of(path: Path) -> str:
    """Return what RQ_LEASE starts with for the scripts of the agent at `path`."""
    return f"work/{zlib.crc32(os.fsencode(os.path.realpath(path))):08x}/"


def end_scripts(path: Path) -> None:
    """Kill all scripts of the agent at `path`, which has ended. Blocks."""
    slots = [path / "lease" / name for name in os.listdir(path / "lease")]
    held = [slot for slot in slots if locks.is_locked(slot)]
    left = lease_holders.end_processes(prefix_of(path), held, 0.0)
    for holder in left:
        os.close(holder.pidfd)


def remove(path: Path) -> None:
    """Remove a directory, whatever a script has made of it."""
    durable.remove_tree(os.fspath(path))
