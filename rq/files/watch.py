"""Hints of the file system that something changed; the only importer of watchdog.

A hint may be late, come twice or never: the caller looks by itself, too, only less often.

What gives hints may fail at any time: watchdog may be missing, the kernel may have no
instance of inotify left (watchdog opens one in the observer's constructor, so that raises),
no watch, or no thread for the observer. None of these ends the caller. `missing` says what
fails, and what failed is tried again each minute, since others may have given theirs back.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import time
from collections.abc import Iterable
from pathlib import Path

try:
    from watchdog import events, observers
except ImportError:  # as good as a file system that gives no hints
    HINTS = False
else:
    HINTS = True

log = logging.getLogger(__name__)

_AGAIN = 60.0  # seconds from a failure to the next try
_USED_UP = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}
_LACKING = frozenset({*_USED_UP, errno.ENOMEM})


class Watcher:
    """Watches directories, not what lies deeper; readable when there are hints."""

    def __init__(self) -> None:
        self._paths: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._read, self._write = os.pipe()
        for fd in (self._read, self._write):
            os.set_blocking(fd, False)
        self._watches: dict[Path, tuple[tuple[int, int], _Watch]] = {}
        self._observer: observers.api.BaseObserver | None = None
        self._failed_at = 0.0  # monotonic
        self.missing = ""  # why some hints do not come, in a sentence; "" when all do
        self._start()

    def fileno(self) -> int:
        return self._read

    def follow(self, paths: Iterable[Path]) -> None:
        """Watch exactly these directories; one that is not there is left out."""
        if self.missing and time.monotonic() - self._failed_at >= _AGAIN:
            self.missing = ""
            self._start()
        if self._observer is None:
            return
        if not self._observer.is_alive():
            self._observer = None
            self._watches.clear()
            self._fail(
                "no hints of changed files", RuntimeError("their thread has ended")
            )
            return
        wanted = {path: there for path in paths if (there := _identity(path))}
        for path in [path for path in self._watches if path not in wanted]:
            self._drop(path)
        for path, identity in wanted.items():
            watch = self._watches.get(path)
            if watch and watch[0] != identity:
                self._drop(path)  # another directory has taken its name
            if path not in self._watches:
                self._add(path, identity)

    def hints(self) -> set[Path]:
        """Return the paths of which something was heard since the last call."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                continue
        heard = set()
        with contextlib.suppress(queue.Empty):
            while True:
                heard.add(Path(self._paths.get_nowait()))
        return heard

    def close(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        os.close(self._read)
        os.close(self._write)

    def _start(self) -> None:
        if self._observer is not None:
            return
        try:
            self._observer = _start_observer()
        except (OSError, RuntimeError) as error:
            self._fail("no hints of changed files", error)

    def _fail(self, what: str, error: OSError | RuntimeError) -> None:
        """Note why hints do not come; each reason is logged once a minute at most."""
        number = error.errno if isinstance(error, OSError) else None
        setting = _USED_UP.get(number or 0)
        more = f" (raise {setting} with sysctl)" if setting else ""
        reason = f"{what}: {error}{more}"
        if not self.missing:
            log.warning("%s", reason)
            self._failed_at = time.monotonic()
        self.missing = reason

    def _add(self, path: Path, identity: tuple[int, int]) -> None:
        if self._observer is None or self.missing:
            return
        handler = _handler(self._paths, self._write)
        try:
            watch = self._observer.schedule(
                handler, str(path), recursive=False, event_filter=_FILTER
            )
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno not in _LACKING:
                log.debug("no hints of %s: %s", path, error)  # removed, not readable
            else:
                self._fail(f"no hints of {path}", error)
            return
        self._watches[path] = (identity, watch)

    def _drop(self, path: Path) -> None:
        _, watch = self._watches.pop(path)
        if self._observer is not None:
            with contextlib.suppress(KeyError, OSError):
                self._observer.unschedule(watch)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


if HINTS:
    _Watch = observers.api.ObservedWatch
    # Not of opening and reading: our own looks would then be hints to look.
    _FILTER: list[type[events.FileSystemEvent]] = [
        events.FileCreatedEvent,
        events.FileDeletedEvent,
        events.FileModifiedEvent,
        events.FileMovedEvent,
        events.FileClosedEvent,
        events.DirCreatedEvent,
        events.DirDeletedEvent,
        events.DirMovedEvent,
    ]

    class _Handler(events.FileSystemEventHandler):
        """Called in a thread of watchdog; hands the paths over."""

        def __init__(self, paths: queue.SimpleQueue[str], wake: int) -> None:
            self._paths = paths
            self._wake = wake

        def on_any_event(self, event: events.FileSystemEvent) -> None:
            for path in (event.src_path, event.dest_path):
                if path:
                    self._paths.put(os.fsdecode(path))
            with contextlib.suppress(OSError):
                os.write(self._wake, b"!")


def _handler(paths: queue.SimpleQueue[str], wake: int) -> _Handler:
    return _Handler(paths, wake)


def _start_observer() -> observers.api.BaseObserver:
    if not HINTS:
        raise RuntimeError("the library watchdog is not installed")
    observer = observers.Observer()
    observer.start()
    return observer
