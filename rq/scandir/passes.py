"""The passes: look at links and queues, and ask the supervisor for the difference."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from rq import config, names
from rq.config import files, parked, trash
from rq.errors import CannotRead, RQError
from rq.index import word
from rq.layout import QueueDir, Root
from rq.rpc import client, wire
from rq.scandir.cache import JsonCache, is_file, look
from rq.scandir.links import Definition, Links, Seen, read_links
from rq.words import visible
from rq.words.nesting import Json

GONE_FOR = 0.3  # seconds that a link must be gone: `ln -sfn` may remove it first
ASK_TIMEOUT = 30.0
PARTS = 15  # passes in which each parked queue is looked at once …
SECONDS = 300.0  # … or so long, if that is more

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Existing:
    """A queue as it is on disk."""

    config: bytes  # its digest: there may be ten thousand
    mark: Mapping[str, Json]
    form: str | None
    looks: object  # its config.json


def _read_existing(
    root: Root, before: Mapping[str, tuple[object, _Existing]]
) -> dict[str, tuple[object, _Existing]]:
    """Return the queues that are there, each with how its files look; those that look as
    `before` are the same objects."""
    queues, above = {}, str(root.queues)
    for name in os.listdir(above):
        place = f"{above}/{name}"
        if (looks := look(f"{place}/config.json")) is None:
            continue
        all_looks = looks, look(f"{place}/scandir.json"), _target(f"{place}/form.json")
        if name in before and before[name][0] == all_looks:
            queues[name] = before[name]
        elif names.is_queue_name(name) and is_file(looks):
            queues[name] = all_looks, _existing(root.queue(name), looks)
    return queues


def _existing(queue: QueueDir, looks: object) -> _Existing:
    files = JsonCache()  # that keeps none: its caller sees when they change
    return _Existing(
        _digest(files.read_or_empty(queue.config)),
        files.read_or_empty(queue.scandir_mark),
        _target(str(queue.form)),
        looks,
    )


def _digest(config: Mapping[str, object]) -> bytes:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).digest()


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


def _is_as_defined(definition: Definition, queue: _Existing) -> bool:
    """Return whether a queue is what its link says."""
    return (
        queue.config == _digest(definition.config)
        and queue.mark.get("owner") == "scandir"
        and queue.mark.get("link") == definition.link
        and queue.form == definition.form
    )


def _orphans(links: Links, queues: Mapping[str, _Existing]) -> list[str]:
    """Return the queues that a link had made and none declares any more."""
    return sorted(
        name
        for name, queue in queues.items()
        if queue.mark.get("owner") == "scandir" and name not in links.present
    )


@dataclass(slots=True)
class Scandir:
    """The passes of one root."""

    root: Root
    cache: JsonCache = field(default_factory=JsonCache)
    gone_since: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # that `status` shows
    no_hints: str = ""  # why there are none, in a sentence; `rq doctor` shows it
    written: tuple[dict[str, str], str] | None = None
    parked: dict[str, parked.Stamp] = field(default_factory=dict)  # their files
    number: int = 0  # of this pass
    pause: float = 0.0  # seconds from one pass to the next, when nothing is hinted
    soonest: float = 0.0  # monotonic: when the next one may be, whatever is hinted
    stamps: dict[str, object] = field(default_factory=dict)  # of the queues' configs
    watched: tuple[Set[str], Set[Path], frozenset[str]] | None = None
    seen: Seen = field(default_factory=dict)
    existing: dict[str, tuple[object, _Existing]] = field(default_factory=dict)
    defined: dict[str, tuple[Definition, _Existing]] = field(default_factory=dict)
    # The files of timers, and the queues, as they were at the last look.
    of_timers: tuple[dict[str, config.Stamp | None], frozenset[str]] | None = None

    def look(self, now: float) -> Collection[str]:
        """Bring queues and links together; return the directories worth watching."""
        try:
            links = read_links(self.root, self.cache, self.seen)
            self.existing = _read_existing(self.root, self.existing)
        except OSError as error:
            # A directory that cannot be listed says nothing about any queue.
            self._show({"scandir": f"cannot be read, so no queue is changed: {error}"})
            return {str(self.root.config_dir), str(self.root.scandir)}
        queues = {name: queue for name, (_, queue) in self.existing.items()}
        errors = dict(links.errors)
        for name, definition in links.definitions.items():
            problem = self._make_so(definition, queues.get(name))
            if problem:
                errors[name] = problem
        self._remove(_orphans(links, queues), now, errors)
        self._show(errors)
        self._wake_changed(queues)
        self._wake_parked(sorted(queues))
        return self._watched(queues.keys() | set(), links.directories)

    def _watched(self, names: Set[str], directories: Set[Path]) -> frozenset[str]:
        """Return the directories worth watching: the same object while they are the same.
        As text: there may be thousands."""
        if self.watched is None or self.watched[:2] != (names, directories):
            root = self.root
            own = [root.config_dir, root.scandir, root.timers, root.queues]
            few = map(str, [*own, *directories])
            places = [f"{root.queues}/{name}" for name in names]
            doors = [f"{place}/new" for place in places]
            every = frozenset([*few, *places, *doors])
            self.watched = names, directories, every
        return self.watched[2]

    def timers_changed(self) -> bool:
        """Whether the files of timers, or what queues there are, have changed since the
        last call: also the file that a link leads to, of which no hint comes."""
        try:
            there = os.listdir(self.root.timers)
            queues = frozenset(os.listdir(self.root.queues))
        except OSError:
            return False  # the timers themselves say what is wrong
        files_of = [name for name in there if name[0] != "." and name != "sock"]
        seen = {name: config.stamp(self.root.timers / name) for name in files_of}
        before, self.of_timers = self.of_timers, (seen, queues)
        return before != self.of_timers

    def _make_so(self, definition: Definition, queue: _Existing | None) -> str:
        """Let the supervisor make a queue as defined; return the problem, "" if none."""
        name = definition.name
        if queue and self._is_as_defined(definition, queue):
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

    def _is_as_defined(self, definition: Definition, queue: _Existing) -> bool:
        """Return whether a queue is what its link says; of two that were found to be equal
        and are the same still, nothing is compared again."""
        equal = self.defined.get(definition.name)
        if equal and equal[0] is definition and equal[1] is queue:
            return True
        if not _is_as_defined(definition, queue):
            return False
        self.defined[definition.name] = definition, queue
        return True

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

    def _wake_changed(self, queues: Mapping[str, _Existing]) -> None:
        """Wake the owner of every queue whose config another hand has changed."""
        stamps = {name: queue.looks for name, queue in queues.items()}
        for name, stamp in stamps.items():
            if self.stamps.get(name, stamp) != stamp:
                self._tell_of_config(name)
        self.stamps = stamps

    def look_at_config(self, name: str) -> None:
        """Wake a queue whose config has changed, as a hint says."""
        stamp = look(f"{self.root.queues}/{name}/config.json")
        if stamp is not None and self.stamps.get(name, stamp) != stamp:
            self.stamps[name] = stamp
            self._tell_of_config(name)

    def _tell_of_config(self, name: str) -> None:
        """Tell the owner and the index, which hides what a config says."""
        self._ask("wake_queue", name)
        word.tell_of_config(self.root, name)

    def look_at_parked(self, name: str) -> None:
        """Wake a queue that has just been parked, as a hint says, if something has come that
        it did not see."""
        left = parked.stamp(self.root.queue(name).parked)
        if left and self.parked.get(name) != left:
            if parked.is_current(self.root, name):
                self.parked[name] = left
            else:  # and again at the next pass: its process may not have ended yet
                self._ask("wake_queue", name)

    def _wake_parked(self, queues: Sequence[str]) -> None:
        """Wake the parked queues whose directories look different from how these were left.

        Hints tell of most changes at once. So each pass looks at those that were parked
        since the one before, and at a part of the others; without hints at all.
        """
        seen, above = {}, str(self.root.queues)
        parts = max(1, min(PARTS, int(SECONDS / max(self.pause, 1.0))))
        for number, name in enumerate(queues):
            left = parked.stamp(f"{above}/{name}/parked.json")
            if not left:
                continue
            seen[name] = left
            is_new = self.parked.get(name) != left
            its_turn = bool(self.no_hints) or (number - self.number) % parts == 0
            if (is_new or its_turn) and not self._is_left(name):
                self._ask("wake_queue", name)
        self.parked, self.number = seen, self.number + 1

    def _is_left(self, name: str) -> bool:
        """Whether a parked queue lies as it was left, and has a name to connect to: one
        without would answer from what it has left, and nothing would ever wake it."""
        is_current = parked.is_current(self.root, name)
        return is_current and os.path.exists(self.root.queue(name).socket)
