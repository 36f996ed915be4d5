"""The script of a queue as a file: whether it looks startable, and when to look again."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from rq import back_off
from rq.logs import fields
from rq.message.causes import Cause
from rq.scripts import program_file

LOOK_SECONDS = 1.0  # how long a look at the script holds for long-lived workers
SCRIPT_SECONDS = 2.0  # how often a script that cannot be started is looked at again
REFUSED_SECONDS = (
    30.0  # how often, at least, one that the kernel refused is tried again
)
MISSING = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR,
                     errno.ELOOP, errno.EPERM, errno.EISDIR})  # fmt: skip

log = logging.getLogger(__name__)


class ScriptFile:
    """What is known of the script's file."""

    def __init__(
        self, root: Path, script: str, closed: Callable[[], str] = str
    ) -> None:
        """`script`: as its queue's config has it, absolute or below `root`. `closed` tells
        why it may not be started as its config says; "" for nothing."""
        self._root = str(root)
        self._script = script
        self._closed = closed
        self.error: str | None = None  # why it cannot be started: SCRIPTERROR
        self.lack: str | None = None  # what the last start failed for, but the script
        self.path = ""  # the real one, found at each look
        self.retry_at = 0.0  # it is not looked at before
        self._look_at = 0.0  # when the script of long-lived workers is looked at again
        self._fit: tuple[object, ...] = ()  # what was seen of it when it looked fit
        self._unfit = False  # it cannot be started, as it looks
        self._refusals = 0  # tries in a row, though it looked fit
        self._refused: tuple[object, ...] = ()  # the file of the last one
        self._refused_until = 0.0  # this file is not tried before
        self._failures = 0  # starts in a row that failed for lack of something else
        self._hold_until = 0.0
        self.identity: tuple[object, ...] = ()  # of the last one that looked fit

    def not_before(self, now: float, has_worker: bool) -> float | None:
        """Return when to try a start again; None: now. `has_worker` as in `ready`."""
        if now >= self._hold_until and self.ready(now, has_worker):
            return None
        return max(self._hold_until, self.retry_at)

    def ready(self, now: float, has_worker: bool) -> bool:
        """Return whether it looks startable; `has_worker`: a long-lived worker runs it, so
        that a look once a second is enough."""
        if now < self.retry_at:
            return False
        if why := self._closed():
            self._unfit = True
            self.fail(why, now)
            return False
        if has_worker and now < self._look_at:
            return True
        seen = self._look()  # before the rest: what changes meanwhile is seen next time
        if self._is_as_it_was(seen):
            self._look_at = now + LOOK_SECONDS
            return True
        path = self.path = self._real()
        identity = self._stat()
        if identity and os.path.isfile(path) and os.access(path, os.X_OK):
            if identity == self._refused and now < self._refused_until:
                self.retry_at = now + SCRIPT_SECONDS
                return False
            self.retry_at = 0.0
            if self._unfit:
                self.is_back()
            self._look_at = now + LOOK_SECONDS
            self.identity = identity
            self._fit = seen
            return True
        self._unfit = True
        why = program_file.unfit(path) or "it is not executable"
        self.fail(f"{self._script}: {why}", now)
        return False

    def _is_as_it_was(self, seen: tuple[object, ...]) -> bool:
        """Whether it is the file that looked fit before, untouched: a call or two tell
        that, where a whole look takes one for each directory above it."""
        if self._unfit or self._refused or not seen or seen != self._fit:
            return False
        return self.path == seen[0] or self._stat() == self.identity

    def _look(self) -> tuple[object, ...]:
        """Return what changes when another file has its name, or this one another
        content or mode; () if it is not there."""
        script = os.path.join(self._root, self._script)
        try:
            info = os.stat(script)
        except OSError:
            return ()
        return script, info.st_dev, info.st_ino, info.st_ctime_ns, info.st_size

    def _real(self) -> str:
        return os.path.realpath(os.path.join(self._root, self._script))

    def _stat(self) -> tuple[object, ...]:
        """Return what changes when the file is replaced or edited; () if it is not there."""
        try:
            info = os.stat(self.path)
        except OSError:
            return ()
        return self.path, info.st_ino, info.st_mtime_ns, info.st_size

    def fail(self, text: str, now: float) -> None:
        """It cannot be started: SCRIPTERROR."""
        if self.error != text:
            log.error("SCRIPTERROR: %s; messages wait in que until it is mended", text)
        self.error = text
        self.retry_at = now + SCRIPT_SECONDS

    def why_not(self, error: OSError) -> str:
        """Return why its start has failed, and what to do."""
        if error.errno not in MISSING:
            return f"{self._script}: {error.strerror or error}"
        return f"{self._script}: {program_file.why_not(self._real(), error)}"

    def not_started(self, cause: Cause, text: str, now: float) -> None:
        """A start failed: wait, unless that was its message's own fault."""
        if cause is Cause.SCRIPT:
            self._refuse(text, now)
        elif cause is Cause.SPAWN:
            if now >= self._hold_until:  # starts that fail together count once
                self._failures += 1
            self._hold_until = now + back_off.delay(self._failures, 0.5, 30.0)
            self.lack = text

    def lacks(self, error: Exception, now: float) -> None:
        """What a claim needs cannot be had: nothing is started for a while."""
        log.warning("a script could not be started: %s", fields(reason=error))
        self.not_started(Cause.SPAWN, str(error), now)

    def started(self) -> None:
        self._failures = 0
        self.lack = None
        self.is_back()

    def _refuse(self, text: str, now: float) -> None:
        """It cannot be started, though it looks fit: a first line that leads nowhere.

        Each try writes to the journal and to the message's log, so the same file is tried
        again later and later; another one at the next look.
        """
        if now >= self._refused_until:  # starts that fail together count once
            self._refusals += 1
        self._refused = self._stat()
        wait = back_off.delay(self._refusals, SCRIPT_SECONDS, REFUSED_SECONDS)
        self._refused_until = now + wait
        self.fail(text, now)

    def is_back(self) -> None:
        """Clear the error: it was started, or no message waits for it."""
        self._unfit = False
        self._refusals = 0
        self._refused = ()
        if self.error is not None:
            self.error = None
            log.info("the script can be started again")

    def replace(self, script: str) -> None:
        """Go on with the script of a new config."""
        self._script = script

    def look_again(self) -> None:
        """Forget the pause after an error: something may have changed."""
        self.retry_at = self._look_at = self._refused_until = 0.0

    def clock_went_back(self) -> None:
        """Forget all pauses: they end when the clock is there again."""
        self.look_again()
        self._hold_until = 0.0
