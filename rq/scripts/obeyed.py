"""The check whether a queue's config may say as which user its scripts run, and if not,
why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rq import config
from rq.config import trust
from rq.config.settings import QueueConfig
from rq.errors import BadConfig
from rq.layout import Root
from rq.scripts import run_as
from rq.scripts.run_as import RunAs


def resolve(root: Root, name: str, settings: QueueConfig) -> RunAs:
    """Return whom scripts run as; BadConfig when what the config says is not obeyed."""
    return run_as.resolve(settings, _files(root, name), trust.others_may_write)


def _files(root: Root, name: str) -> list[Path]:
    """Return all that the config of a queue was made of: its own file, and that of the
    definition which a link in scandir/ leads to."""
    queue = root.queue(name)
    if not queue.scandir_mark.exists():
        return [queue.config]
    mark = config.read_json(queue.scandir_mark)
    if mark.get("owner") != "scandir":
        return [queue.config, queue.scandir_mark]
    return [queue.config, queue.scandir_mark, root.scandir / name / "config.json"]


def closed(root: Root, name: str, settings: QueueConfig, whose: RunAs) -> str:
    """Return, in a sentence, what keeps a user from running the script; "": nothing."""
    user = whose.user
    if user is None:
        return ""
    script = str(root.path / settings.script)
    places = [(str(root.queue(name).path / "run"), False)]
    places += [(script, True)] if not settings.argv_prefix else []
    for path, is_program in places:
        if shut := run_as.closed_to(user, path, program=is_program):
            rights = "rx" if is_program and shut == path else "x"
            return f"user is {user.name}, to whom {shut} is closed: chmod o+{rights} {shut}"
    return ""


def warnings(root: Root, names: list[str]) -> Iterator[str]:
    """Give, for each queue of some whose scripts cannot start for such a reason, why."""
    for name in names:
        try:
            settings = config.read_queue(root.queue(name))
        except BadConfig:
            continue  # its status tells
        try:
            why = closed(root, name, settings, resolve(root, name, settings))
        except BadConfig as error:
            why = str(error)
        if why:
            yield f"queue {name} starts no script: {why}"
