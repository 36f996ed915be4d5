"""Makes what lies in scandir/ be so: a link to a definition is a queue.

A pass looks at the links and at the queues, decides, and asks the supervisor. It keeps
no memory that matters, so any pass may be the first. A definition that is broken
changes nothing: its queue goes on as it was, and the reason is shown. Only a link that
is gone removes a queue, and only one that a link had made.

It is the machine's one watcher, too: it passes on to the queues and to the timers that
something of theirs changed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rq import client, config, helper, names, trash
from rq.config import files
from rq.errors import BadConfig, RQError
from rq.helper import Helper
from rq.layout import QueueDir, Root
from rq.watch import Watcher

LOOK = 2.0  # seconds between looks when hints work
LOOK_WITHOUT_HINTS = 0.8
SETTLE = 0.05  # seconds from a hint to the look, so that a burst is one look
GONE_FOR = 0.3  # seconds that a link must be gone: `ln -sfn` may remove it first
ASK_TIMEOUT = 30.0
WAKE_TIMEOUT = 0.5
_OF_DEFINITION = frozenset({"run", "config.json", "form.json"})

log = logging.getLogger(__name__)

# ---- what there is


@dataclass(frozen=True, slots=True)
class Definition:
    """A queue that a link declares."""

    name: str
    directory: Path  # through the link's target, not what that leads to at last
    config: Mapping[str, Any]  # as queue/NAME/config.json shall be
    link: str  # changes when the link is made anew
    form: str | None


@dataclass(frozen=True, slots=True)
class Links:
    """What lies in scandir/."""

    definitions: Mapping[str, Definition]
    errors: Mapping[str, str]  # name: sentence
    present: frozenset[str]  # all names, right or wrong
    directories: frozenset[Path]


@dataclass(frozen=True, slots=True)
class Existing:
    """A queue as it is on disk."""

    config: Mapping[str, Any]
    mark: Mapping[str, Any]
    form: str | None


class JsonCache:
    """Reads JSON files again only when they have changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int], dict[str, Any]]] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """Return the object in a file; BadConfig as `config.read_json`."""
        try:
            info = path.stat()
        except OSError:
            self._known.pop(path, None)
            return config.read_json(path)
        stamp = (info.st_mtime_ns, info.st_ino, info.st_size)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = (stamp, config.read_json(path))
        return known[1]

    def read_or_empty(self, path: Path) -> dict[str, Any]:
        try:
            return self.read(path)
        except BadConfig:
            return {}


def read_links(root: Root, cache: JsonCache) -> Links:
    """Look at every entry of scandir/; OSError when it cannot be listed."""
    definitions: dict[str, Definition] = {}
    errors: dict[str, str] = {}
    present, directories = set(), set()
    base = Path(os.path.realpath(root.scandir))
    for name in sorted(os.listdir(base)):
        if name.startswith("."):
            continue
        present.add(name)
        try:
            directory = _directory(base, name)
            directories.add(directory)
            definitions[name] = _definition(base / name, directory, cache)
        except (RQError, OSError) as error:
            errors[name] = str(error)
    return Links(definitions, errors, frozenset(present), frozenset(directories))


def _directory(base: Path, name: str) -> Path:
    names.queue_name(name)
    link = base / name
    if not link.is_symlink():
        raise BadConfig(f"{link} is not a symlink: link the directory with its `run`")
    directory = Path(os.path.normpath(base / os.readlink(link)))
    if not directory.is_dir():
        raise BadConfig(f"{link} leads to {directory}, which is no directory")
    return directory


def _definition(link: Path, directory: Path, cache: JsonCache) -> Definition:
    run, settings = directory / "run", directory / "config.json"
    if not run.is_file():
        raise BadConfig(f"{run} is missing")
    if not os.access(run, os.X_OK):
        raise BadConfig(f"{run} is not executable: chmod +x {run}")
    data = cache.read(settings) if settings.exists() else {}
    given = {key: value for key, value in data.items() if value is not None}
    merged = {"num_workers": 1, "exec_prefix": "", **given}
    merged |= {"name": link.name, "script": str(run)}
    info = link.lstat()
    form = directory / "form.json"
    return Definition(
        name=link.name,
        directory=directory,
        config=config.queue_config(merged, settings).to_json(),
        link=f"{directory} {info.st_ino} {info.st_mtime_ns}",
        form=str(form) if form.is_file() else None,
    )


def read_existing(root: Root, cache: JsonCache) -> dict[str, Existing]:
    """Return the queues that are there."""
    found = {}
    for name in os.listdir(root.queues):
        queue = root.queue(name)
        if names.is_queue_name(name) and queue.config.is_file():
            found[name] = Existing(
                cache.read_or_empty(queue.config),
                cache.read_or_empty(queue.scandir_mark),
                _leads_to(queue.form),
            )
    return found


def _leads_to(link: Path) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


# ---- what to do


def is_as_defined(definition: Definition, queue: Existing) -> bool:
    """Return whether a queue is what its link says."""
    return (
        json.dumps(queue.config, sort_keys=True)
        == json.dumps(definition.config, sort_keys=True)
        and queue.mark.get("owner") == "scandir"
        and queue.mark.get("link") == definition.link
        and queue.form == definition.form
    )


def orphans(links: Links, queues: Mapping[str, Existing]) -> list[str]:
    """Return the queues that a link had made and none declares any more."""
    return sorted(
        name
        for name, queue in queues.items()
        if queue.mark.get("owner") == "scandir" and name not in links.present
    )


# ---- doing it


@dataclass(slots=True)
class Scandir:
    """The passes of one root."""

    root: Root
    cache: JsonCache = field(default_factory=JsonCache)
    gone_since: dict[str, float] = field(default_factory=dict)
    shown: dict[str, str] | None = None
    stamps: dict[str, int] = field(default_factory=dict)  # of the queues' configs

    def look(self, now: float) -> set[Path]:
        """Bring queues and links together; return the directories worth watching."""
        try:
            links = read_links(self.root, self.cache)
            queues = read_existing(self.root, self.cache)
        except OSError as error:
            # A directory that cannot be listed says nothing about any queue.
            self._show({"scandir": f"cannot be read, so nothing is changed: {error}"})
            return {self.root.config_dir, self.root.scandir}
        errors = dict(links.errors)
        for name, definition in links.definitions.items():
            problem = self._make_so(definition, queues.get(name))
            if problem:
                errors[name] = problem
        self._remove(orphans(links, queues), now, errors)
        self._show(errors)
        self._wake_changed(queues)
        own = {self.root.config_dir, self.root.scandir, self.root.timers}
        doors = {self.root.queue(name).path / "new" for name in queues}
        return own | doors | links.directories

    def _make_so(self, definition: Definition, queue: Existing | None) -> str:
        """Let the supervisor make a queue as defined; return the problem, if any."""
        name = definition.name
        if queue and is_as_defined(definition, queue):
            return ""
        if queue and queue.mark.get("owner") == "api":
            return (
                f"a queue {name} was made through the API and is left alone: "
                "delete that one, or rename the link"
            )
        if queue is None and self._was_deleted(definition):
            return (
                f"queue {name} was deleted while its link was there: "
                "make the link anew to bring it back"
            )
        wanted = {
            "config": definition.config,
            "link": definition.link,
            "form": definition.form,
        }
        return self._ask("define_queue", wanted)

    def _was_deleted(self, definition: Definition) -> bool:
        last = next(
            (one for one in trash.ls(self.root) if one.name == definition.name), None
        )
        return last is not None and last.mark.get("link") == definition.link

    def _remove(self, gone: Iterable[str], now: float, errors: dict[str, str]) -> None:
        since = {name: self.gone_since.get(name, now) for name in gone}
        for name in [one for one, at in since.items() if now - at >= GONE_FOR]:
            problem = self._ask("undefine_queue", name)
            if problem:
                errors[name] = problem
            else:
                del since[name]
        self.gone_since = since

    def _ask(self, command: str, arg: object) -> str:
        """Ask the supervisor; return what is wrong, "" when nothing is."""
        path = self.root.supervisor_socket
        try:
            reply = client.ask(path, command, arg, timeout=ASK_TIMEOUT)
        except RQError as error:
            return str(error)
        if reply[0] == "ok":
            log.info("%s %s", command, reply[1])
            return ""
        return str(reply[-1])

    def _show(self, errors: dict[str, str]) -> None:
        """Keep what is wrong where `status` reads it."""
        if errors == self.shown:
            return
        for name in sorted(errors):
            if (self.shown or {}).get(name) != errors[name]:
                log.warning("%s: %s", name, errors[name])
        files.write_state(self.root.scandir_state, {"errors": errors})
        self.shown = errors

    # ---- passing hints on

    def _wake_changed(self, queues: Iterable[str]) -> None:
        """Wake the owner of every queue whose config another hand has changed."""
        stamps = {}
        for name in queues:
            with contextlib.suppress(OSError):
                stamps[name] = self.root.queue(name).config.stat().st_mtime_ns
        for name, stamp in stamps.items():
            if self.stamps.get(name, stamp) != stamp:
                self._ask("wake_queue", name)
        self.stamps = stamps

    def pass_on(self, hints: Iterable[Path]) -> bool:
        """Wake whom the hints concern; return whether they are a reason to look."""
        mine = False
        wake: set[Path] = set()
        for path in hints:
            if path.parent == self.root.config_dir:
                if path.suffix in (".down", ".pause"):
                    wake.add(self.root.queue(path.stem).socket)
            elif path.parent.name == "new" and self.root.queues in path.parents:
                wake.add(QueueDir(path.parent.parent).socket)
            elif path.parent == self.root.timers:
                wake.add(self.root.timers_socket)
            else:
                near = path.parent == self.root.scandir
                mine = mine or near or path.name in _OF_DEFINITION
        for socket in wake:
            self._wake(socket)
        return mine

    def _wake(self, socket: Path) -> None:
        """Say `wake` and do not wait: it is a hint, the owner looks by itself too."""
        try:
            if socket == self.root.timers_socket:
                client.ask_timers(socket, "wake", timeout=WAKE_TIMEOUT)
                return
            with client.Connection(socket, WAKE_TIMEOUT) as line:
                line.send("wake")
        except RQError as error:
            log.debug("%s", error)


# ---- the program


def main(argv: list[str] | None = None) -> int:
    try:
        started = helper.start("scandir", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-scandir: {error}\n")
        return 1
    _run(started, Scandir(started.root))
    return 0


def _run(started: Helper, scandir: Scandir) -> None:
    watcher = Watcher()
    look_at = 0.0
    started.say_ready()
    while True:
        try:
            now = time.monotonic()
            if now >= look_at:
                watcher.follow(scandir.look(now))
                look_at = now + _pause(watcher, scandir)
        except Exception:
            log.exception("a look at %s failed", scandir.root.scandir)
            look_at = time.monotonic() + LOOK
        waiting = [watcher.fileno()]
        if started.life_fd is not None:
            waiting.append(started.life_fd)
        timeout = max(0.0, look_at - time.monotonic())
        ready, _, _ = select.select(waiting, [], [], timeout)
        if started.life_fd in ready:
            return
        if ready:
            time.sleep(SETTLE)
            if scandir.pass_on(watcher.hints()):
                look_at = 0.0


def _pause(watcher: Watcher, scandir: Scandir) -> float:
    if scandir.gone_since:
        return GONE_FOR
    return LOOK if watcher.works else LOOK_WITHOUT_HINTS


if __name__ == "__main__":
    sys.exit(main())
