"""The config files as values, read and checked once.

`settings` has every setting, `checks` what each may be, `admin` what the operator wants
of a queue; `files` writes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rq.config import checks
from rq.config.checks import EXIT, ONCE
from rq.config.settings import QUEUE, ROOT, QueueConfig, RootConfig
from rq.config.values import did_you_mean
from rq.errors import BadConfig, BadInput, CannotRead, is_busy
from rq.layout import QueueDir, Root
from rq.words.nesting import Json, from_json

Stamp = tuple[int, int, int, int]
# What these are in a queue whose messages run in batches.
_NOT_WITH_BATCH: Mapping[str, object] = {
    "coalesce_params": (),
    "blocking_params": (),
    "concurrency": {},
    "fair_params": (),
    "rate": {},
    "pull": None,
}
# What these are where the exit status may say how a script for one message has ended.
_NOT_BY_EXIT: Mapping[str, object] = {"batch": {}, "worker": ONCE, "spark": {}}
# Keys of old config files that mean nothing any more.
_IGNORED = frozenset({"schedule", "schedules", "admin_status", "oper_status", "url"})


def read_json(path: Path, dir_fd: int | None = None) -> dict[str, Any]:
    """Return the JSON object in a file; BadConfig in one sentence if there is none.
    `dir_fd`: its directory is held open, and the path may lead elsewhere by now."""
    try:
        content = _content(path, dir_fd)
    except FileNotFoundError:
        raise BadConfig(f"{path} is missing") from None
    except OSError as error:
        kind = CannotRead if is_busy(error) else BadConfig
        raise kind(f"{path} cannot be read: {error.strerror or error}") from None
    return json_object(content, path)


def read_or_empty(path: Path) -> dict[str, Json]:
    """Return the JSON object in a file, an empty one if it holds none. CannotRead: what
    it holds is not known now."""
    try:
        return read_json(path)
    except CannotRead:
        raise
    except BadConfig:
        return {}


def json_object(content: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; BadConfig names the file."""
    try:
        data = from_json(content.decode(), str(path))
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path} cannot be read: {error}") from None
    except BadInput as error:
        raise BadConfig(str(error)) from None
    if not isinstance(data, dict):
        raise BadConfig(f"{path} does not hold a JSON object")
    return data


def _content(path: Path, dir_fd: int | None) -> bytes:
    """Return what a file holds. Neither a fifo, whose opening would wait for a writer,
    nor a device without end is one."""
    name = path if dir_fd is None else path.name
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def stamp(path: Path | str) -> Stamp | None:
    """Return what is another when a file was edited or replaced; None: there is none."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size, info.st_ctime_ns


def find_root(option: str | None) -> Root:
    """Return the root: the option, else $RQ_ROOT, else the checkout this code lies in."""
    chosen = option or os.environ.get("RQ_ROOT")
    if chosen:
        return Root(Path(chosen).absolute())
    checkout = Path(__file__).resolve().parent.parent.parent
    if (checkout / "bin" / "rq").exists():
        return Root(checkout)
    raise BadConfig("no root: say --root DIR or set RQ_ROOT to the directory of RQ")


def read_root(root: Root) -> RootConfig:
    """Return the main config; BadConfig names the file and the key."""
    return root_config(read_json(root.config), root.config)


def root_config(data: Mapping[str, object], path: Path) -> RootConfig:
    for name, example in (("host", '"127.0.0.1"'), ("port", "3333")):
        if name not in data:
            raise BadConfig(
                f"{path}: the mandatory key {name!r} is missing: add "
                f'"{name}": {example}, where its web listens'
            )
    config = RootConfig(**_checked(data, RootConfig, ROOT, path))
    if config.tmpdir and not os.access(config.tmpdir, os.W_OK | os.X_OK):
        raise BadConfig(f"{path}: tmpdir {config.tmpdir} is not a writable directory")
    return config


def read_queue(queue: QueueDir, dir_fd: int | None = None) -> QueueConfig:
    """Return a queue's config; BadConfig names the file and the key. `dir_fd`: of the
    directory that is held open, whatever its path leads to by now."""
    return queue_config(read_json(queue.config, dir_fd), queue.config)


def queue_config(data: Mapping[str, object], path: Path) -> QueueConfig:
    """Return a checked queue config from JSON; `path` is for the error text."""
    settings = _checked(_without_legacy(data), QueueConfig, QUEUE, path)
    if not settings.get("script"):
        settings["num_workers"] = 0  # nothing can run here
        if "pull" not in settings:
            raise BadConfig(
                f"{path}: the mandatory key 'script' is missing: name the program that "
                'works on messages here, or say "pull": {}, so that workers elsewhere do'
            )
    for name, unlike in _NOT_WITH_BATCH.items():
        if settings.get("batch") and settings.get(name, unlike) != unlike:
            raise BadConfig(
                f"{path}: a queue has batch or {name}, not both; take one of them out"
            )
    if settings.get("blocking_params") and settings.get("concurrency"):
        raise BadConfig(
            f"{path}: a queue has blocking_params or concurrency, not both; "
            'blocking_params are concurrency with "max": 1: take one of them out'
        )
    for name, unlike in _NOT_BY_EXIT.items():
        if settings.get("success") == EXIT and settings.get(name, unlike) != unlike:
            raise BadConfig(
                f'{path}: success is "exit" for scripts of one message; with {name} '
                "they have to say how they ended: take one of the two out"
            )
    checked = QueueConfig(**settings)
    _check_user(checked, path)
    return checked


def _check_user(checked: QueueConfig, path: Path) -> None:
    if checked.group and not checked.user:
        raise BadConfig(f"{path}: group goes with user: say whom scripts run as")
    if checked.user and checked.pull is not None and checked.num_workers:
        raise BadConfig(
            f"{path}: user is for scripts that run here, and workers elsewhere ignore "
            "it: take out pull, or say num_workers 0"
        )


def _without_legacy(data: Mapping[str, object]) -> dict[str, object]:
    """Turn `coalesce` with `coalesce_param1` … into `coalesce_params`."""
    kept = {k: v for k, v in data.items() if k not in _IGNORED}
    on = kept.pop("coalesce", False) in checks.TRUE
    old = [
        n for n in range(1, 5) if kept.pop(f"coalesce_param{n}", None) in checks.TRUE
    ]
    if on and old and "coalesce_params" not in kept:
        kept["coalesce_params"] = old
    return kept


def _checked(
    data: Mapping[str, object],
    kind: type[RootConfig] | type[QueueConfig],
    may_be: Mapping[str, Callable[[object], object]],
    path: Path,
) -> dict[str, Any]:
    names = [setting.name for setting in fields(kind)]
    checked: dict[str, Any] = {}
    for name, value in data.items():
        if name not in names:
            hint = did_you_mean(name, names)
            raise BadConfig(f"{path}: unknown key {name!r}{hint}")
        if value is None:
            continue
        try:
            checked[name] = may_be[name](value)
        except (TypeError, ValueError, BadInput) as error:
            raise BadConfig(f"{path}: {name}: {error}") from None
    return checked
