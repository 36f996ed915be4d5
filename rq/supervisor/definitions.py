"""Making queues and putting them away: the only mover of queue directories.

A queue carries a mark that says whose it is: the API's, or scandir's with the link that
declares it. A queue without a mark comes from before there were marks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from rq import config, names
from rq.config import displaced, files, queues, trash
from rq.errors import (
    BadConfig,
    BadInput,
    CannotRead,
    NoSuchQueue,
    Refused,
    WrongState,
)
from rq.layout import QueueDir, Root
from rq.words.nesting import Json

API_MARK: Mapping[str, Json] = {"owner": "api"}
SCANDIR = "scandir"
_DELETED = re.compile(r".+\.deleted\.\d+")  # by the ancestor


def queues_of(root: Root) -> list[str]:
    """Return the names of the queues of a root, in order."""
    above = f"{root.queues}/"  # as text: there may be thousands
    return sorted(
        name
        for name in queues.names_of(root)
        if not (os.path.islink(above + name) and is_alias(root, name))
    )


def is_alias(root: Root, name: str) -> bool:
    """Whether `queue/NAME` is a link to another queue of this root."""
    return trash.is_alias(root, root.queue(name).path)


def unusable(root: Root) -> dict[str, str]:
    """Return what looks like a queue in `queue/` and cannot be used, and why."""
    problems = {}
    for path in _odd(root):
        if not QueueDir(path).config.is_file() or _DELETED.fullmatch(path.name):
            continue
        if not names.is_queue_name(path.name):
            problems[path.name] = (
                f"the name of a queue is {names.RULE}; rename it while RQ is down"
            )
        elif is_alias(root, path.name):
            problems[path.name] = (
                f"it is a link to queue {path.resolve().name}: remove the link, and use "
                "that name"
            )
    return problems


def _odd(root: Root) -> list[Path]:
    """Return what lies in `queue/` and is no directory with the name of a queue."""
    try:
        with os.scandir(root.queues) as there:
            return [
                Path(entry.path)
                for entry in there
                if entry.is_symlink() or not names.is_queue_name(entry.name)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def mark_of(queue: QueueDir) -> Mapping[str, Json]:
    """Return who made the queue; empty if that was not noted. CannotRead: not known now."""
    return config.read_or_empty(queue.scandir_mark)


def create(root: Root, data: Mapping[str, Json]) -> str:
    """Make a queue that a client asked for; return its name."""
    name = names.queue_name(data.get("name"))
    check_in_place(root, name)
    queue = root.queue(name)
    checked = config.queue_config(data, queue.config)
    if checked.user:
        raise BadConfig(
            "user and group are not taken from a request: write them, as root, into "
            f"{queue.config} once the queue is there"
        )
    if queue.path.is_symlink() or queue.config.exists():
        raise WrongState("already created")
    files.make_queue(queue, checked.to_json(), API_MARK)
    return name


def change(root: Root, data: Mapping[str, Json]) -> str:
    """Give a queue that no link declares other settings, which `data` has under its name;
    null takes one away. Return its name."""
    name = names.queue_name(data.get("name"))
    changes = data.get("changes")
    if not isinstance(changes, dict):
        raise BadInput("a change is {name, changes}")
    check_in_place(root, name)
    queue = root.queue(name)
    if not queue.config.is_file() or is_alias(root, name):
        raise NoSuchQueue(f"there is no queue {name}")
    settings = config.read_json(queue.config)
    _check_change(queue, settings, changes)
    after = {key: it for key, it in {**settings, **changes}.items() if it is not None}
    checked = config.queue_config(after, queue.config)
    files.write_state(queue.config, checked.to_json())
    return name


def _check_change(
    queue: QueueDir, settings: Mapping[str, object], changes: Mapping[str, Json]
) -> None:
    """Raise what keeps the settings of a queue as they are."""
    mark = mark_of(queue)
    if mark.get("owner") == SCANDIR:
        raise Refused(
            f"queue {queue.name} is declared by scandir/{queue.name}: change the "
            "config.json of the directory that the link leads to"
        )
    if "name" in changes:
        raise BadInput("the name of a queue does not change: make another one")
    if of_root := {"user", "group"} & {*settings, *changes}:
        raise Refused(
            f"{' and '.join(sorted(of_root))} is for root alone, who writes "
            f"{queue.config}: a queue with it is not changed by a request"
        )


def define(root: Root, data: Mapping[str, Json]) -> str:
    """Make or change the queue that a scandir link declares; return its name.

    `data` is {"config", "link", "form"}; a queue of that name in the trash comes back.
    """
    settings = data.get("config")
    if not isinstance(settings, dict):
        raise BadInput("a definition is {config, link, form}")
    name = names.queue_name(settings.get("name"))
    check_in_place(root, name)
    queue = root.queue(name)
    checked = config.queue_config(settings, queue.config)
    if is_alias(root, name):
        raise Refused(f"{queue.path} is a link to another queue: remove the link")
    if mark_of(queue).get("owner") == "api" and queue.config.exists():
        raise Refused(
            f"queue {name} was made through the API; delete it there or rename the link"
        )
    removed = trash.newest(root, name)
    if removed and not queue.path.exists():
        trash.take_back(root, removed)
    mark = {"owner": SCANDIR, "link": data.get("link")}
    files.make_queue(queue, checked.to_json(), mark)
    _link_form(queue, data.get("form"))
    return name


def check_in_place(root: Root, name: str) -> None:
    """Refused when a queue of this name lost its directory, and the operator has not said
    that another one may take its place."""
    if name in displaced.read(root):
        raise Refused(f"queue {name} is held: {displaced.why(name)}")


def name_in(data: Mapping[str, Json]) -> str:
    """Return the name of the queue that a definition is for, "" when it names none."""
    settings = data.get("config")
    return str(settings.get("name", "")) if isinstance(settings, dict) else ""


def begin_deletion(root: Root, name: str) -> None:
    """Note on disk that a queue goes to the trash, so that a crash does not keep it.

    The mark keeps the link of a queue that the API deletes: so scandir can tell it,
    which stays deleted, from one whose link was removed.
    """
    queue = root.queue(name)
    files.write_state(queue.scandir_mark, {**mark_of(queue), "deleting": True})


def undefine(root: Root, name: str) -> None:
    """Note that no link declares a queue any more and that it goes to the trash."""
    mark = {"owner": SCANDIR, "link": None, "deleting": True}
    files.write_state(root.queue(name).scandir_mark, mark)


def half_deleted(root: Root) -> list[str]:
    """Return the queues that were to go to the trash when RQ was killed."""
    return [name for name in queues_of(root) if _is_half_deleted(root.queue(name))]


def _is_half_deleted(queue: QueueDir) -> bool:
    try:
        return bool(mark_of(queue).get("deleting"))
    except CannotRead:  # it lives on until the next start
        return False


def _link_form(queue: QueueDir, form: object) -> None:
    """Let form.json lead to the definition's, and to nothing when that has none."""
    if isinstance(form, str) and Path(form).is_file():
        files.write_link(form, queue.form)
    elif queue.form.is_symlink():
        files.remove_link(queue.form)
