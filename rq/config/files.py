"""Writes, moves and removes config and state files, and whole directories of queues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from rq.errors import RQError
from rq.files import durable
from rq.layout import QUEUE_DIRS, QueueDir, Root

_PROGRAM_MODE = 0o750
_SHARED_MODE = 0o666  # less what the umask takes


def write_state(path: Path, data: object) -> None:
    """Replace a JSON file durably."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    durable.write_durable(path, text.encode() + b"\n")


def write_state_bytes(path: Path, data: bytes) -> None:
    """Replace a JSON file durably, by its bytes."""
    durable.write_durable(path, data)


def write_shared(path: Path, data: bytes) -> None:
    """Replace a file durably that is read by whom the umask lets."""
    durable.write_durable(path, data, _SHARED_MODE)


def write_secret(path: Path, text: str) -> None:
    """Replace a file that nobody else may read, durably."""
    durable.write_durable(path, text.encode(), 0o600)


def write_secret_state(path: Path, data: object) -> None:
    """Replace a JSON file that nobody else may read, durably; make its directory."""
    durable.make_dirs(str(path.parent))
    write_secret(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def claim(path: Path) -> bool:
    """Remove a file; of several processes that try, one gets True."""
    return durable.claim(str(path))


def write_cache(path: Path, data: object) -> None:
    """Replace a JSON file, so that a reader sees the old or the new one; it may be lost
    with the power."""
    durable.replace(str(path), json.dumps(data, ensure_ascii=False).encode())


def write_text(path: Path, text: str) -> None:
    """Replace a small file, so that a reader sees the old or the new one."""
    durable.replace(str(path), text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a small file that is no text; as `write_text`."""
    durable.replace(str(path), data)


def write_definition(path: Path, files: Mapping[str, bytes], run: bytes | None) -> None:
    """Make the directory of a queue's definition, durably; FileExistsError if there is
    one. Its script comes last, if it has one."""
    durable.make_dirs(str(path.parent))
    durable.make_dir(str(path))
    try:
        for name, data in files.items():
            durable.write_durable(path / name, data)
        if run is not None:
            durable.write_durable(path / "run", run, _PROGRAM_MODE)
    except (OSError, RQError):  # a full disk, say: half of one would be in the way
        with contextlib.suppress(OSError):
            durable.remove_tree(str(path))
        raise
    for above in (path.parent, path.parent.parent):
        durable.sync_path(above)


def write_link(target: str, path: Path) -> None:
    """Make or replace a symlink, durably."""
    durable.symlink_durable(target, path)


def remove_in(name: str, dir_fd: int) -> None:
    """Remove a file of an open directory; it need not be gone for good."""
    durable.unlink(name, dir_fd)


def remove_name(path: Path) -> None:
    """Remove a file; it need not be gone for good."""
    durable.unlink(str(path))


def remove_link(path: Path) -> None:
    """Remove a file or symlink, durably."""
    durable.unlink_durable(path)


def remove_upload(path: Path) -> None:
    """Remove a file under `config/tmp`; it need not be gone for good."""
    durable.unlink(str(path))


def make_queue(queue: QueueDir, config: Mapping[str, object], mark: object) -> None:
    """Make or complete a queue directory, durably; config.json last, it makes a queue."""
    for name in QUEUE_DIRS:
        durable.make_dirs(str(queue.path / name))
    write_state(queue.scandir_mark, mark)
    write_state(queue.config, config)
    durable.sync_path(queue.path.parent)


def move_queue(source: Path, target: Path) -> None:
    """Rename a queue directory, durably; the caller holds its lock."""
    durable.make_dirs(str(target.parent))
    durable.rename_durable(source, target)


def remove_queue(path: Path) -> None:
    """Remove a queue directory with all its messages; the caller holds its lock."""
    durable.remove_tree(str(path))


def make_dir(path: Path) -> None:
    """Make a directory, and those above it that are missing."""
    durable.make_dirs(str(path))


def sync(path: Path) -> None:
    """Let a file, or the names in a directory, outlast a power cut."""
    durable.sync_path(path)


def remove_dir(path: Path) -> None:
    """Remove a directory, whatever is in it; none is fine."""
    durable.remove_tree(str(path))


def make_root(root: Root) -> None:
    """Make the directories of a root that are missing."""
    for path in (root.path, root.config_dir, root.scandir, root.timers, root.queues):
        durable.make_dirs(str(path))
    for path in (root.trash, root.log, root.uploads):
        durable.make_dirs(str(path))
