"""Other processes, as the kernel shows them; among them those that hold a lease."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rq.errors import is_busy
from rq.proc import standin

LEASE_NAME = "RQ_LEASE"
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_FAMILY = 200  # processes that are looked at, of one and its children
_ENDED = ("Z", "X")  # dead, and not yet waited for: such a one holds nothing open


def boot_id() -> str:
    """Return what changes with every start of the machine; "" where unknown. OSError
    when descriptors or memory are lacking: it would seem to have started again."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError as error:
        _check_seen(error)
        return ""


def start_time(pid: int) -> int | None:
    """Return when `pid` was started, in clock ticks since boot; None if it is not."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def state_letter(pid: int) -> str | None:
    """Return the state of `pid` (R, S, D, Z …); None if there is none."""
    stat = _stat(pid)
    return stat[0] if stat else None


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of those that it has started, so far;
    ended ones count where they were waited for. 0.0: there is none."""
    ticks, pids, seen = 0, [pid], 0
    while pids and seen < _FAMILY:
        pid, seen = pids.pop(), seen + 1
        if stat := _stat(pid):
            ticks += sum(map(int, stat[11:15]))  # of it, and of those it waited for
            pids += _children(pid)
    return ticks / _TICKS


def _children(pid: int) -> list[int]:
    try:
        text = (_PROC / str(pid) / "task" / str(pid) / "children").read_text()
    except OSError:  # it has ended, or the kernel does not tell
        return []
    return list(map(int, text.split()))


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def open_pidfd(pid: int) -> int:
    """Return a descriptor that stands for `pid` and no later process of its number; it
    is readable once that has ended."""
    pidfd = standin.pidfd(pid)
    return standin.end_of(pid) if pidfd is None else pidfd


def has_ended(pidfd: int) -> bool:
    """Return whether the process behind a pidfd has ended; a lock file stands for
    whichever process holds it."""
    if standin.is_lock(pidfd):
        return standin.is_free(pidfd)
    if standin.is_place(pidfd):
        return standin.is_empty(pidfd)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lease; the pidfd is the finder's to close."""

    pid: int
    pidfd: int
    lease: str  # value of RQ_LEASE, "" when it holds the descriptor only
    msg_id: str  # of a batch the first one's


def find_leases(
    prefix: str, slots: Sequence[Path] = (), msg_ids: Collection[str] | None = None
) -> Iterator[Holder]:
    """Find processes of our user whose RQ_LEASE starts with `prefix` (and RQ_MSG_ID is
    one of `msg_ids`, if these are given), or that hold one of the files `slots` open.

    The pidfd is opened before the environment is read, so that it stands for the
    process that was looked at. OSError when descriptors or memory are lacking: who was
    not looked at may hold a lease.
    """
    wanted = {(info.st_dev, info.st_ino): info.st_uid for info in _stats(slots)}
    own = {os.getpid()}
    for name in os.listdir(_PROC) if _PROC.is_dir() else []:
        if not name.isdigit() or int(name) in own:
            continue
        holder = _look(int(name), prefix, wanted)
        if holder is None:
            continue
        if msg_ids is None or holder.msg_id in msg_ids:
            yield holder
        else:
            os.close(holder.pidfd)


def _stats(paths: Sequence[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield path.stat()


def _look(pid: int, prefix: str, slots: Mapping[tuple[int, int], int]) -> Holder | None:
    try:
        number = standin.pidfd(pid)
        pidfd = standin.place_of(pid) if number is None else number
    except OSError as error:
        _check_seen(error)
        return None
    try:
        environment = _environment(pid)
    except OSError:
        os.close(pidfd)
        raise
    lease = environment.get(LEASE_NAME, "")
    if lease.startswith(prefix) or (slots and _holds(pid, slots)):
        whose = environment.get("RQ_MSG_ID") or environment.get("RQ_BATCH_ID", "")
        return Holder(pid, pidfd, lease, whose)
    os.close(pidfd)
    return None


def _check_seen(error: OSError) -> None:
    """Raise an error that says of us, and not of a process, why it cannot be seen."""
    if is_busy(error):
        raise error


def _environment(pid: int) -> dict[str, str]:
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        _check_seen(error)
        return {}
    if LEASE_NAME.encode() not in data:
        return {}
    pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, _, v in pairs}


def find_worker(pid: int, msg_id: str, directory: Path) -> Holder | None:
    """Return process `pid` if it works on a message: in its directory, or with its id in
    the environment. So it is no other that was given the number since."""
    try:
        pidfd = open_pidfd(pid)
    except OSError as error:
        _check_seen(error)
        return None
    try:
        works = _works_on(pid, msg_id, directory) and not has_ended(pidfd)
    except BaseException:
        os.close(pidfd)
        raise
    if works:
        return Holder(pid, pidfd, "", msg_id)
    os.close(pidfd)
    return None


def _works_on(pid: int, msg_id: str, directory: Path) -> bool:
    place = _PROC / str(pid)
    try:
        if os.path.samestat(os.stat(place / "cwd"), directory.stat()):
            return True
        return f"RQ_MSG_ID={msg_id}".encode() in (place / "environ").read_bytes()
    except OSError as error:
        _check_seen(error)
        return False


@dataclass(frozen=True, slots=True)
class Hidden:
    """A process of our user of which we cannot see what it holds open."""

    pid: int
    name: str


def find_hidden(since: float) -> list[Hidden]:
    """Find processes of our user, started no earlier than `since` (seconds since boot),
    that may hold a lease and hide it: those that made themselves undumpable."""
    names = os.listdir(_PROC) if _PROC.is_dir() else []
    looks = (_look_hidden(int(name), since) for name in names if name.isdigit())
    return [hidden for hidden in looks if hidden is not None]


def _look_hidden(pid: int, since: float) -> Hidden | None:
    try:
        os.listdir(_PROC / str(pid) / "fd")
        return None
    except PermissionError:
        pass
    except OSError:
        return None
    try:
        lines = _status(pid)
    except OSError:
        return None
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    began = start_time(pid)
    if began is None or began < int(since * _TICKS) - 1:
        return None
    ours = status.get("Uid", "").split()[:1] == [str(os.getuid())]
    gone = status.get("State", "")[:1] in _ENDED
    return Hidden(pid, status.get("Name", "?")) if ours and not gone else None


def _status(pid: int) -> list[str]:
    """Return the lines of a process; it names itself in the first, and only a newline
    cannot be part of a name."""
    data = (_PROC / str(pid) / "status").read_bytes()
    return data.decode("utf-8", "replace").split("\n")


def _holds(pid: int, slots: Mapping[tuple[int, int], int]) -> bool:
    """Whether a process has one of `slots` open, whose file belongs to whom its script
    runs as. A script can hand a descriptor to any process, which is not ended for it:
    of a script that runs as another user only processes of that user count."""
    try:
        fds = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return False
    held = (_slot_of(pid, fd, slots) for fd in fds)
    uids = {uid for uid in held if uid is not None}
    return os.geteuid() in uids or bool(uids and uids & _uids(pid))


def _slot_of(pid: int, fd: str, slots: Mapping[tuple[int, int], int]) -> int | None:
    """Return whose slot a process has open as `fd`; None: it is none."""
    with contextlib.suppress(OSError):
        info = os.stat(_PROC / str(pid) / "fd" / fd)
        return slots.get((info.st_dev, info.st_ino))
    return None


def _uids(pid: int) -> set[int]:
    """Return the users that a process has: real, effective, saved."""
    try:
        lines = _status(pid)
    except OSError as error:
        _check_seen(error)
        return set()
    line = next((line for line in lines if line.startswith("Uid:")), "Uid:")
    return set(map(int, line.split()[1:4]))


def signal_holder(holder: Holder, sig: int) -> None:
    """Signal exactly the process that was found."""
    signal_one(holder.pidfd, holder.pid, sig)


def signal_one(pidfd: int, pid: int, sig: int) -> None:
    """Signal exactly the process that `pidfd` stands for, whose number is `pid`."""
    if not has_ended(pidfd):
        standin.send(pidfd, pid, sig)
