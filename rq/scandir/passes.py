"""The passes: look at links and queues, and ask the supervisor for the difference."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rq.config import files, trash
from rq.errors import CannotRead, RQError
from rq.layout import Root
from rq.rpc import client, wire
from rq.scandir.cache import JsonCache
from rq.scandir.existing import Existing, is_as_defined, orphans, read_existing
from rq.scandir.links import Definition, read_links
from rq.words import visible

GONE_FOR = 0.3  # seconds that a link must be gone: `ln -sfn` may remove it first
ASK_TIMEOUT = 30.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Scandir:
    """The passes of one root."""

    root: Root
    cache: JsonCache = field(default_factory=JsonCache)
    gone_since: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # that `status` shows
    no_hints: str = ""  # why there are none, in a sentence; `rq doctor` shows it
    written: tuple[dict[str, str], str] | None = None
    stamps: dict[str, int] = field(default_factory=dict)  # of the queues' configs

    def look(self, now: float) -> set[Path]:
        """Bring queues and links together; return the directories worth watching."""
        try:
            links = read_links(self.root, self.cache)
            queues = read_existing(self.root, self.cache)
        except OSError as error:
            # A directory that cannot be listed says nothing about any queue.
            self._show({"scandir": f"cannot be read, so no queue is changed: {error}"})
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
        """Let the supervisor make a queue as defined; return the problem, "" if none."""
        name = definition.name
        if queue and is_as_defined(definition, queue):
            return ""
        if queue and queue.mark.get("owner") == "api":
            return (
                f"there is a queue {name} already, which was made through the API: "
                "delete it, or rename the link"
            )
        try:
            if queue is None and self._was_deleted(definition):
                return (
                    f"queue {name} was deleted, and its link was left: remove the link, or "
                    "make it anew to bring the queue back"
                )
        except (CannotRead, OSError) as error:  # whether it was is not known
            return str(error)
        request = {
            "config": definition.config,
            "link": definition.link,
            "form": definition.form,
        }
        return self._ask("define_queue", request)

    def _was_deleted(self, definition: Definition) -> bool:
        removed = (
            entry for entry in trash.ls(self.root) if entry.name == definition.name
        )
        last = next(removed, None)
        return last is not None and last.mark.get("link") == definition.link

    def _remove(self, gone: Iterable[str], now: float, errors: dict[str, str]) -> None:
        since = {name: self.gone_since.get(name, now) for name in gone}
        for name in [name for name, at in since.items() if now - at >= GONE_FOR]:
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
        return str(wire.failure_in(reply) or reply[-1])

    def say_hints(self, missing: str) -> None:
        """Keep why there are no hints of changed files, "" when there are."""
        self.no_hints = missing
        self._write()

    def _show(self, errors: dict[str, str]) -> None:
        """Keep what is wrong where `status` reads it. Names of links, and where they lead,
        may be no text, which no JSON can hold."""
        errors = {visible.line(name): visible.line(why) for name, why in errors.items()}
        for name in sorted(errors):
            if self.errors.get(name) != errors[name]:
                log.warning("%s: %s", name, errors[name])
        self.errors = errors
        self._write()

    def _write(self) -> None:
        state = (self.errors, self.no_hints)
        if state == self.written:
            return
        data: dict[str, object] = {"errors": self.errors}
        if self.no_hints:
            data["no_hints"] = self.no_hints
        files.write_state(self.root.scandir_state, data)
        self.written = state

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
