"""Hints of the file system that something changed; the only importer of watchdog.

Of watchdog it takes what reads the kernel's events, with one thread for all directories: its
observer has a thread for each, and there may be twenty thousand.

A hint may be late, come twice or never: the caller looks by itself, too, only less often.

What gives hints may fail at any time: watchdog may be missing, the kernel may have no
instance of inotify left,
no watch, or no thread left. None of these ends the caller. `missing` says what
fails, and what failed is tried again each minute, since others may have given theirs back.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import queue
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

try:
    from watchdog.observers import inotify_c
except ImportError:  # as good as a file system that gives no hints
    HINTS = False
else:
    HINTS = True

log = logging.getLogger(__name__)

_AGAIN = 60.0  # seconds from a failure to the next try
_BELIEVED = 300.0  # seconds for which it is believed that each path leads where it did
_USED_UP = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}
_LACKING = frozenset({*_USED_UP, errno.ENOMEM})
_LOST = ""  # in place of a path: the kernel had more to say than it kept


def _all(_path: str) -> bool:
    return True


class Watcher:
    """Watches directories, not what lies deeper; readable when there are hints."""

    def __init__(self, is_news: Callable[[str], bool] = _all) -> None:
        """`is_news`: whether a path is worth a hint; it is called in another thread."""
        self._paths: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_news = is_news
        self._read, self._write = os.pipe()
        for fd in (self._read, self._write):
            os.set_blocking(fd, False)
        self._watches: dict[str, tuple[tuple[int, int], _Watch]] = {}
        self._observer: inotify_c.InotifyFD | None = None
        self._hearer = _Hearer(self._hear)
        self._followed: Collection[str] = ()
        self._followed_at = 0.0  # monotonic
        self.has_lost = False  # hints, since this was looked at last
        self.has_more = (
            False  # directories than before: they may have changed until then
        )
        self._failed_at = 0.0  # monotonic
        self.missing = ""  # why some hints do not come, in a sentence; "" when all do
        self._start()

    def fileno(self) -> int:
        return self._read

    def follow(self, paths: Collection[str]) -> None:
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
        self.has_more = False
        if not self._follows(paths):
            self._follow(paths)

    def _follows(self, paths: Collection[str]) -> bool:
        """Whether all of these are watched, and none was moved, as far as is known: a look
        at each of thousands takes a while. What is mounted over one tells nothing."""
        is_known = paths is self._followed and len(self._watches) == len(paths)
        is_fresh = time.monotonic() - self._followed_at < _BELIEVED
        return is_known and is_fresh and not (self._hearer.is_stale or self.missing)

    def _follow(self, paths: Collection[str]) -> None:
        self._followed, self._followed_at = paths, time.monotonic()
        self._hearer.is_stale = False
        wanted = {path: there for path in paths if (there := _identity(path))}
        for path in [path for path in self._watches if path not in wanted]:
            self._drop(path)
        for path, identity in wanted.items():
            watch = self._watches.get(path)
            if watch and (watch[0] != identity or not self._hearer.hears(watch[1])):
                self._drop(
                    path
                )  # another directory has its name, if by the same number
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
                path = self._paths.get_nowait()
                self.has_lost = self.has_lost or path == _LOST
                heard.add(path)
        return {Path(path) for path in heard - {_LOST}}

    def take_lost(self) -> bool:
        """Return whether hints were lost since this was asked last."""
        has_lost, self.has_lost = self.has_lost, False
        return has_lost

    def _hear(self, path: str) -> None:
        """Hand a path over, from the thread of watchdog."""
        if path == _LOST or self._is_news(path):
            self._paths.put(path)
            with contextlib.suppress(OSError):
                os.write(self._write, b"!")

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

    def _add(self, path: str, identity: tuple[int, int]) -> None:
        if self._observer is None or self.missing:
            return
        try:
            watch = self._hearer.listen(self._observer, path)
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno not in _LACKING:
                log.debug("no hints of %s: %s", path, error)  # removed, not readable
            else:
                self._fail(f"no hints of {path}", error)
            return
        self._watches[path] = (identity, watch)
        self.has_more = True

    def _drop(self, path: str) -> None:
        _, watch = self._watches.pop(path)
        if self._observer is not None:
            with contextlib.suppress(KeyError, OSError):
                self._hearer.stop(self._observer, path, watch)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


class _Hearer:
    """Is called of what happens in directories, by the numbers of their watches."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        # Mostly one each: links may lead to one directory.
        self._paths: dict[int, tuple[str, ...]] = {}
        self._ids = itertools.count()
        self.is_stale = (
            False  # a directory was moved or removed, another may have its name
        )

    def listen(self, observer: inotify_c.InotifyFD, path: str) -> _Watch:
        id_ = inotify_c.CallbackId(next(self._ids))
        number = observer.add_callback(os.fsencode(path), _EVENTS, self, id_)
        self._paths[number] = (*self._paths.get(number, ()), path)
        return number, id_

    def hears(self, watch: _Watch) -> bool:
        """Whether the kernel has not ended a watch, since its directory is gone."""
        return watch[0] in self._paths

    def stop(self, observer: inotify_c.InotifyFD, path: str, watch: _Watch) -> None:
        if paths := self._paths.get(watch[0]):
            self._paths[watch[0]] = tuple(each for each in paths if each != path)
        observer.remove_callbacks([watch])

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        self.is_stale = self.is_stale or bool(event.mask & _ENDS)
        name = os.fsdecode(event.name)
        for path in self._paths.get(event.wd, ()):
            self._hear(os.path.join(path, name) if name else path)

    def on_watch_deleted(self, wd: int) -> None:
        self.is_stale = True
        for path in self._paths.pop(wd, ()):
            self._hear(path)

    def on_queue_overflow(self) -> None:
        self.is_stale = True
        self._hear(_LOST)


if HINTS:
    _Watch: TypeAlias = tuple[inotify_c.WatchDescriptor, inotify_c.CallbackId]
    # Not of opening and reading: our own looks would then be hints to look.
    _KINDS = inotify_c.InotifyConstants
    _EVENTS = inotify_c.Mask(
        _KINDS.IN_CREATE
        | _KINDS.IN_DELETE
        | _KINDS.IN_DELETE_SELF
        | _KINDS.IN_MODIFY
        | _KINDS.IN_CLOSE_WRITE
        | _KINDS.IN_MOVE
        | _KINDS.IN_MOVE_SELF
        | _KINDS.IN_ONLYDIR
    )

    _ENDS = _KINDS.IN_DELETE_SELF | _KINDS.IN_MOVE_SELF | _KINDS.IN_UNMOUNT


def _start_observer() -> inotify_c.InotifyFD:
    if not HINTS:
        raise RuntimeError("the library watchdog is not installed")
    observer = inotify_c.InotifyFD()
    observer.start()
    return observer
