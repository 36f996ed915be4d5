"""The machine's processes: descriptors, locks, leases, starting, finding and ending.

Linux gives pidfd, /proc and PDEATHSIG; where one is missing a slower portable path is
taken. Nothing here knows what a message is.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rq.errors import Refused

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)
_PROC = Path("/proc")
LEASE_NAME = "RQ_LEASE"

# ---- this process


def own_descriptors(keep: Iterable[int] = ()) -> None:
    """Set close-on-exec on every descriptor from 3 up that is not in `keep`."""
    kept = set(keep)
    for fd in open_descriptors():
        if fd >= 3 and fd not in kept:
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, False)


def open_descriptors() -> list[int]:
    for directory in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(directory):
            return sorted(int(name) for name in os.listdir(directory))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return list(range(min(limit, 65536)))


def park_descriptors() -> int:
    """Occupy 0, 3 and 4 with /dev/null, so that no pipe end is ever one of them.

    Whatever of value is on 3 or 4 is the caller's to move first. Returns a
    descriptor of /dev/null.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 3, 4):
        if fd != null:
            os.dup2(null, fd, inheritable=False)
    return null


def own_signals() -> None:
    """Ignore no signal that our starter ignored (nohup, a careless shell).

    With SIGCHLD ignored no script could be waited for; the others go on to scripts.
    """
    for number in signal.valid_signals() - set(_IGNORED):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as the hard limit does, up to 65536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def move_above(fd: int, lowest: int = 10) -> int:
    """Move a descriptor to `lowest` or above; return where it is."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(fd)
    return moved


def title(text: str) -> None:
    """Let ps and top show `text` (15 bytes of it)."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_NAME, text.encode()[:15], 0, 0, 0)


def die_with_parent(sig: int = signal.SIGTERM) -> None:
    """Be sent `sig` when the parent ends; no effect where the kernel cannot."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)


def notify(text: str) -> None:
    """Tell systemd, when it asked to be told (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)  # a systemd that does not read must not stop us
        with contextlib.suppress(OSError):
            line.sendto(text.encode(), address)


def lock(path: Path) -> int | None:
    """Take the lock file `path`; None when another process holds it.

    The lock lives as long as the returned descriptor and is never inherited.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def lock_waiting(path: Path) -> int:
    """Take the lock file `path`, waiting for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock file `path`."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


# ---- other processes


def boot_id() -> str:
    """Return what changes with every start of the machine; "" where unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """Return when `pid` was started, in clock ticks since boot; None if it is not."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def state_letter(pid: int) -> str | None:
    """Return the state of `pid` (R, S, D, Z …); None if there is none."""
    stat = _stat(pid)
    return stat[0] if stat else None


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def open_pidfd(pid: int) -> int:
    """Return a descriptor that stands for `pid` and no later process of its number."""
    return os.pidfd_open(pid)


def has_ended(pidfd: int) -> bool:
    """Return whether the process behind a pidfd has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


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


@dataclass(frozen=True, slots=True)
class Found:
    """A process that holds a lease; the pidfd is the finder's to close."""

    pid: int
    pidfd: int
    lease: str  # value of RQ_LEASE, "" when it holds the descriptor only
    msg_id: str  # of a batch the first one's


def find_leases(
    prefix: str, slots: Sequence[Path] = (), msg_id: str | None = None
) -> Iterator[Found]:
    """Find processes of our user whose RQ_LEASE starts with `prefix` (and RQ_MSG_ID is
    `msg_id`, if one is given), or that hold one of the files `slots` open.

    The pidfd is opened before the environment is read, so that it stands for the
    process that was looked at.
    """
    wanted = {(info.st_dev, info.st_ino) for info in _stats(slots)}
    own = {os.getpid()}
    for name in os.listdir(_PROC) if _PROC.is_dir() else []:
        if not name.isdigit() or int(name) in own:
            continue
        found = _look(int(name), prefix, wanted)
        if found is None:
            continue
        if msg_id is None or found.msg_id == msg_id:
            yield found
        else:
            os.close(found.pidfd)


def _stats(paths: Sequence[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield path.stat()


def _look(pid: int, prefix: str, slots: set[tuple[int, int]]) -> Found | None:
    try:
        pidfd = open_pidfd(pid)
    except OSError:
        return None
    environment = _environment(pid)
    lease = environment.get(LEASE_NAME, "")
    if lease.startswith(prefix) or (slots and _holds(pid, slots)):
        whose = environment.get("RQ_MSG_ID") or environment.get("RQ_BATCH_ID", "")
        return Found(pid, pidfd, lease, whose)
    os.close(pidfd)
    return None


def _environment(pid: int) -> dict[str, str]:
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    if LEASE_NAME.encode() not in data:
        return {}
    pairs = (one.partition(b"=") for one in data.split(b"\0"))
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, _, v in pairs}


def _holds(pid: int, slots: set[tuple[int, int]]) -> bool:
    try:
        fds = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return False
    for fd in fds:
        with contextlib.suppress(OSError):
            info = os.stat(_PROC / str(pid) / "fd" / fd)
            if (info.st_dev, info.st_ino) in slots:
                return True
    return False


def signal_found(found: Found, sig: int) -> None:
    """Signal exactly the process that was found."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(found.pidfd, sig)


# ---- starting a script


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a script is started with; descriptors are the caller's."""

    argv: list[str]  # the first is a path
    env: Mapping[str, str]
    directory: str
    null: int
    log: int
    write: int  # the script's descriptor 3
    read: int  # the script's descriptor 4
    lease: int
    lease_as: int


_IGNORED = [signal.SIGPIPE, *([signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else [])]


def spawn(start: Start) -> int:
    """Start a script as leader of its own process group; return its pid.

    Its descriptors are 0, 1, 2, 3, 4 and the lease, all others close. The caller has
    parked 0, 3 and 4 and uses no relative path elsewhere. OSError as execve gives it.
    """
    actions = [
        (os.POSIX_SPAWN_DUP2, start.null, 0),
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
            setpgroup=0,
            setsigmask=[],
            setsigdef=_IGNORED,
        )
    finally:
        os.chdir("/")


def be_nice(pid: int, nice: int) -> None:
    """Set the nice value of the process group that `pid` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, pid, nice)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended."""

    exit: int | None  # status, or None when a signal ended it
    signal: str | None  # name, such as SIGKILL
    cpu_us: int | None  # None: of a process that lives on
    max_rss: int | None  # KiB


def reap(pid: int) -> Ending | None:
    """Return how `pid` ended; None when it has not."""
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    if ended == 0:
        return None
    cpu = int((usage.ru_utime + usage.ru_stime) * 1e6)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Ending(None, _signal_name(number), cpu, usage.ru_maxrss)
    return Ending(os.WEXITSTATUS(status), None, cpu, usage.ru_maxrss)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- whoever asks over a socket


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return who is at the other end (SO_PEERCRED)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return Peer(0, os.getuid(), os.getgid())
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(data[i : i + 4], "little") for i in (0, 4, 8))
    return Peer(pid, uid, gid)


def check_own(peer: Peer) -> None:
    """Refused unless the asker is our user, or root."""
    if peer.uid not in (0, os.getuid()):
        raise Refused(f"user {peer.uid} may not ask this")


def open_as(path: str, peer: Peer) -> int:
    """Open a regular file for reading with no more rights than `peer` has."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    if peer.uid in (0, os.getuid()):
        return os.open(path, flags)
    if os.getuid() != 0 or not hasattr(_libc, "setfsuid"):
        raise PermissionError(f"user {peer.uid} must pass the open file to attach it")
    groups = os.getgroups()
    os.setgroups([])
    _libc.setfsgid(peer.gid)
    _libc.setfsuid(peer.uid)
    try:
        return os.open(path, flags)
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(os.getgid())
        os.setgroups(groups)
