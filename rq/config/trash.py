"""The trash: queue directories that were removed, whole, until somebody empties it.

A directory goes in and comes out only under its own queue lock, so that no owner ever
writes into what was renamed under it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import config, names
from rq.config import files
from rq.errors import NoSuchQueue, Refused
from rq.layout import QueueDir, Root
from rq.proc import locks

_NOTE = "trash.json"  # in the queue directory: when it was removed, whether it is kept
_SPARK = (
    "spark"  # there, too: what its jobs have noted of it, which is no other queue's
)
_NOTED = ("schemas/{}", "days/{}", "days/{}.sqlite", "days/{}.sqlite-journal")


@dataclass(frozen=True, slots=True)
class Trashed:
    """A removed queue."""

    name: str
    path: Path
    removed: float  # epoch seconds
    kept: bool  # it stays here when its name is linked again
    mark: Mapping[str, object]  # whose it was, as queue/NAME/scandir.json had it
    is_alias: bool = False  # a link to a queue, which is not in the trash

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "path": str(self.path),
            "removed": self.removed,
            "kept": self.kept,
        }


def ls(root: Root) -> list[Trashed]:
    """Return what is in the trash, newest first. CannotRead: whose some of it is, and
    whether it is kept, is not known."""
    with contextlib.suppress(FileNotFoundError):
        removed = [_look(root, path) for path in root.trash.iterdir()]
        queues = [queue for queue in removed if queue is not None]
        return sorted(queues, key=lambda queue: queue.removed, reverse=True)
    return []


def newest(root: Root, name: str) -> Trashed | None:
    """Return the queue that was removed last under `name` and is not kept."""
    queues = (queue for queue in ls(root) if not (queue.kept or queue.is_alias))
    return next((queue for queue in queues if queue.name == name), None)


def put(root: Root, queue: QueueDir, now: float | None = None) -> Path:
    """Move a queue to the trash; Refused while somebody owns it. Of a link to another
    queue the link goes, and nothing of that is touched."""
    if is_alias(root, queue.path):
        target = root.trash / f"{queue.name}.{queue.path.lstat().st_ino}"
        files.move_queue(queue.path, target)
        return target
    target = root.trash / f"{queue.name}.{queue.path.stat().st_ino}"
    with _locked(queue):
        removed = time.time() if now is None else now
        files.write_state(queue.path / _NOTE, {"removed": removed})
        files.remove_link(queue.socket)
        _move_noted(root.spark, queue.path / _SPARK, queue.name)
        files.move_queue(queue.path, target)
    return target


def is_alias(root: Root, path: Path) -> bool:
    """Whether a path is a link to a queue of this root, so that lock, config, mark and
    messages behind it are not its own. A link that leads elsewhere is a queue."""
    return os.path.islink(path) and path.resolve().parent == root.queues.resolve()


def take_back(root: Root, trashed: Trashed) -> None:
    """Move a queue from the trash to its place; Refused when the place is taken."""
    place = root.queue(trashed.name)
    if place.path.exists():
        raise Refused(
            f"{place.path} exists: move it away before the queue comes back from the trash"
        )
    with _locked(QueueDir(trashed.path)):
        _move_noted(trashed.path / _SPARK, root.spark, trashed.name)
        files.remove_dir(trashed.path / _SPARK)
        files.move_queue(trashed.path, place.path)
        files.remove_link(place.path / _NOTE)


def _move_noted(source: Path, target: Path, name: str) -> None:
    """Move what jobs have noted of a queue, before the queue itself: so what was cut off is
    gone on with. What is there already stays, and so does what lies on another disk."""
    for noted in _NOTED:
        inner = noted.format(name)
        if (source / inner).exists() and not (target / inner).exists():
            with contextlib.suppress(OSError):
                files.move_queue(source / inner, target / inner)


def keep(root: Root, name: str) -> list[Trashed]:
    """Let all that was removed under `name` stay in the trash; return it."""
    queues = [
        queue
        for queue in ls(root)
        if queue.name == names.queue_name(name) and not queue.is_alias
    ]
    if not queues:
        raise NoSuchQueue(f"there is no {name} in the trash; see `rq trash ls`")
    for queue in queues:
        note = {"removed": queue.removed, "keep": True}
        files.write_state(queue.path / _NOTE, note)
    return queues


def empty(queues: Iterable[Trashed]) -> Iterator[Trashed]:
    """Delete these and no others; yield each that is deleted."""
    for queue in queues:
        if queue.is_alias:
            files.remove_link(queue.path)
            yield queue
        elif queue.path.is_dir():  # else somebody took it back, or emptied the trash
            with _locked(QueueDir(queue.path)):
                files.remove_queue(queue.path)
            yield queue


def _look(root: Root, path: Path) -> Trashed | None:
    name = path.name.rpartition(".")[0]
    if not names.is_queue_name(name):
        return None
    # A link that was put as `queue/b -> a` leads nowhere from here.
    if is_alias(root, path) or (path.is_symlink() and not path.is_dir()):
        return Trashed(name, path, path.lstat().st_ctime, False, {}, is_alias=True)
    if not path.is_dir():
        return None
    note = config.read_or_empty(path / _NOTE)
    removed = note.get("removed")
    if not isinstance(removed, int | float):
        removed = path.stat().st_ctime
    mark = config.read_or_empty(QueueDir(path).scandir_mark)
    return Trashed(name, path, float(removed), bool(note.get("keep")), mark)


@contextlib.contextmanager
def _locked(queue: QueueDir) -> Iterator[None]:
    held = locks.lock(queue.lock)
    if held is None:
        raise Refused(
            f"{queue.path} is still in use; RQ moves it to the trash when its process has ended"
        )
    try:
        yield
    finally:
        os.close(held)
