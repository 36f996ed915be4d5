"""Output and progress of attempts elsewhere: what they print goes to their part of the
logs of their messages; how far they are is shown soon in the folders.

Offsets count from the attempt's own first byte, behind its line START. A power cut may
take what was answered, as it may of a script's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator

from rq.errors import WrongOffset
from rq.layout import JOB, STDIO_LOG, folder
from rq.proc.slices import SLICE, Slice
from rq.queues.attempts.lease import Lease
from rq.queues.attempts.leases import Leases
from rq.scripts import log as stdio
from rq.scripts.log_limit import LogLimit
from rq.spool import Spool, batch_dirs
from rq.words.states import State

_DOTS = 1024  # bytes at most, that stand for lost ones
SECONDS = 0.2  # at most that often the file `status` of a message
TEXT = 2000  # characters; a hundred thousand leases have one each


class Output:
    """Writes the logs of one queue's leases."""

    def __init__(self, spool: Spool, most: Callable[[Lease], int | None]) -> None:
        """`most`: bytes that are kept of what an attempt prints; None: all of it."""
        self._spool = spool
        self._most = most

    def write(self, lease: Lease, offset: int, data: bytes, gap: bool) -> int:
        """Append to the log of an attempt; return how many bytes it has now.

        WrongOffset when it does not end at `offset`; `gap`: what is missing there is
        lost, and the log says so.
        """
        with self._opened(lease) as (fd, begin):
            have = lease.logged or 0
            if gap and offset > have:
                data = b"[%d bytes lost]\n%b" % (offset - have, data)
            elif offset != have:
                raise WrongOffset(
                    f"the log of this attempt has {have} bytes, and not {offset}: go on "
                    "from there",
                    have,
                )
            lease.logged = have + _written(fd, data, begin + have)
            self._thin(lease, fd, begin)
        return lease.logged

    def _thin(self, lease: Lease, fd: int, begin: int) -> None:
        """Give back the middle of what is too much; offsets count it as before."""
        most = self._most(lease)
        if most is None:
            return
        if lease.log_limit is None:
            lease.log_limit = LogLimit(most, begin)
        size = begin + (lease.logged or 0)
        while lease.log_limit.is_worth(size) and lease.log_limit.thin(fd, size):
            pass

    def end(
        self, lease: Lease, how: str, took: float, wanted: bool
    ) -> list[int | None] | None:
        """Write the last line of an attempt, if it has printed something, or if it is
        `wanted`; what cannot be written is lost, as on a full disk. Return where in the
        log its part begins and ends; None: it has none."""
        with contextlib.suppress(OSError):
            if not wanted and not self._has_begun(lease):
                return None
            with self._opened(lease) as (fd, begin):
                last = f"{stdio.ended(0, how, took)}\n".encode()
                at = begin + (lease.logged or 0)
                if (most := self._most(lease)) is not None:
                    at = _cut(fd, LogLimit(most, begin))
                return [lease.held.base, at + _written(fd, last, at)]
        return None

    def _has_begun(self, lease: Lease) -> bool:
        if lease.logged is not None:
            return True
        if not lease.restored:
            return False
        return self._spool.log_size(lease.msg_id) > lease.held.base

    @contextlib.contextmanager
    def _opened(self, lease: Lease) -> Iterator[tuple[int, int]]:
        """Open the log of an attempt, begin it if that was not done; give its descriptor,
        and where in it the attempt's own bytes begin."""
        path = f"{folder(State.RUN, lease.msg_id)}/{JOB}/{STDIO_LOG}"
        self._spool.settle(lease.msg_id)
        directory = self._spool.run_folders.open_work_dir(lease.msg_id)
        try:
            aside = functools.partial(batch_dirs.set_aside, attempt=lease.held.attempt)
            fd, _ = stdio.open_log(directory, path, aside)
        finally:
            os.close(directory)
        try:
            head = stdio.began_elsewhere(lease.by, lease.held.since)
            begin = lease.held.base + len(head)
            if lease.logged is None:
                lease.logged = _begun(fd, lease.held.base, head)
            yield fd, begin
        finally:
            os.close(fd)


def _begun(fd: int, base: int, head: bytes) -> int:
    """Write the head of an attempt into a log, behind `base` bytes of those before; return
    how many bytes of its own the attempt has there."""
    size, begin = os.fstat(fd).st_size, base + len(head)
    if size > begin:
        return size - begin
    if size < base:  # a power cut has taken the end of what was there
        _fill(fd, size, base)
    _written(fd, head, base)
    return 0


def _fill(fd: int, size: int, base: int) -> None:
    """Extend a file up to `base`, and say in it that bytes were lost. What is more
    than a few lines becomes a hole, which costs nothing."""
    number = base - size
    note = (b"[%d bytes lost]\n" % number)[:number]
    _written(fd, note.ljust(min(number, _DOTS), b"."), size)
    if number > _DOTS:
        os.ftruncate(fd, base)


def _written(fd: int, data: bytes, at: int) -> int:
    """Write all of it at a place in a file; return how many bytes that are."""
    view, done = memoryview(data), 0
    while done < len(data):
        done += os.pwrite(fd, view[done:], at + done)
    return len(data)


def _cut(fd: int, limit: LogLimit) -> int:
    """Take the middle out of a log whose attempt has ended; return where it ends then."""
    whole = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        limit.cut(whole)
        return os.fstat(whole).st_size
    finally:
        os.close(whole)


# ---- how far an attempt is


class Progress:
    """The texts of one queue's leases that are not yet written."""

    def __init__(
        self, spool: Spool, loop: asyncio.AbstractEventLoop, leases: Leases
    ) -> None:
        self._spool = spool
        self._loop = loop
        self._leases = leases
        self._changed: dict[Lease, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def show(self, lease: Lease, text: str, fraction: float | None) -> None:
        """Take what a holder says."""
        lease.text, lease.fraction = text[:TEXT], fraction
        self._changed[lease] = None
        if self._timer is None:
            self._timer = self._loop.call_later(SECONDS, self._write)

    def _write(self) -> None:
        self._timer = None
        turn = Slice()
        spool = self._spool
        while self._changed and not turn.is_over:
            lease = next(iter(self._changed))
            del self._changed[lease]
            if self._leases.held(lease.held.token) is lease:
                with contextlib.suppress(OSError):
                    spool.settle(lease.msg_id)
                spool.run_folders.write_progress(lease.msg_id, lease.text)
        if self._changed:
            self._timer = self._loop.call_later(SLICE, self._write)
