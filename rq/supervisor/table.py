"""The table of children: which there are, what is wanted of each, who waits for news.

Commands change it; the minder reads it at each pass and makes it so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection

from rq import config
from rq.config.settings import RootConfig
from rq.layout import Root
from rq.supervisor import children, definitions
from rq.supervisor.children import Kind, Process
from rq.words.states import Child

HELPERS = {
    Kind.SCANDIR: "rq.scandir",
    Kind.TIMERS: "rq.timers",
    Kind.WEB: "rq.web",
    Kind.INDEX: "rq.index",
    Kind.BROKER: "rq.broker",
}
HELPER_PATIENCE = 10.0  # seconds from TERM to KILL of a helper
QUEUE_PATIENCE = 120.0  # beyond the grace of its workers: it may have much to write

Key = tuple[Kind, str]
FORKS: Key = (Kind.FORKS, "forks")


class Table:
    """All children of the supervisor."""

    def __init__(self, root: Root, grace: float) -> None:
        self.root = root
        self._grace = grace
        self.children: dict[Key, Process] = {}
        self.deleting: dict[str, float] = {}  # queue: when to try (monotonic)
        self.forgetting: set[str] = set()  # queues whose directory is gone
        self.changes = 0
        self._without: Collection[str] = ()
        self._waiting: set[asyncio.Future[None]] = set()
        self._mind(*FORKS)

    # ---- what is wanted

    def mind_helpers(
        self, settings: RootConfig, broker: bool, without: Collection[str] = ()
    ) -> None:
        """Start the helpers that the settings want, and never those in `without`."""
        self._without = without
        index = settings.index is not None
        wanted = {Kind.WEB: settings.web, Kind.INDEX: index, Kind.BROKER: broker}
        for kind in HELPERS:
            if wanted.get(kind, True) and kind not in without:
                self._mind(kind, kind)

    def mind_broker(self, wanted: bool) -> None:
        """Start the broker, again if it runs, or let it be down."""
        if wanted or (Kind.BROKER, Kind.BROKER) in self.children:
            process = self._mind(Kind.BROKER, Kind.BROKER)
            process.wanted = wanted
            process.stop_again = wanted and process.running
            process.revive()
            self.wake()

    def use(self, settings: RootConfig) -> None:
        """Mind the children by settings that have changed; the web and the index
        start again."""
        self._grace = settings.grace
        wanted = {Kind.WEB: settings.web, Kind.INDEX: settings.index is not None}
        for kind, is_wanted in wanted.items():
            if kind in self._without:
                continue
            process = self._mind(kind, kind)
            process.wanted = is_wanted
            process.stop_again = process.running
            process.revive()
        self.wake()

    def mind_queues(self) -> None:
        """Mind every queue directory, and no longer those that are gone."""
        on_disk = set(definitions.queues_of(self.root))
        for name in on_disk - (self.queues().keys() - self.forgetting):
            self.mind_queue(name)
        for name in self.queues().keys() - on_disk:
            self.queue(name).wanted = False
            self.forgetting.add(name)
        self.wake()

    def forget_if_gone(self, name: str) -> None:
        """Mind a queue no longer when there is none of its name on disk."""
        if not self.root.queue(name).config.is_file():
            self.queue(name).wanted = False
            self.forgetting.add(name)

    def mind_queue(self, name: str) -> Process:
        process = self._mind(Kind.QUEUE, name)
        if name in self.forgetting:  # its directory came back before its process ended
            self.forgetting.discard(name)
            process.wanted = True
        self.wake()
        return process

    def queues(self) -> dict[str, Process]:
        return {
            name: process
            for (kind, name), process in self.children.items()
            if kind is Kind.QUEUE
        }

    def awake(self) -> list[tuple[Key, Process]]:
        """Return all but those that are parked until they are woken: there may be thousands,
        and nothing is to be done with them."""
        return [
            (key, process)
            for key, process in self.children.items()
            if not (
                process.state is Child.PARKED
                and process.wakes_at is None
                and process.wanted
            )
        ]

    def queue(self, name: str) -> Process:
        return self.children[Kind.QUEUE, name]

    def delete(self, name: str) -> None:
        """Stop a queue and move it to the trash when it has stopped."""
        self.queue(name).wanted = False
        self.deleting[name] = 0.0
        self.wake()

    def restart(self, name: str) -> None:
        process = self.queue(name)
        process.stop_again = process.running
        process.revive()
        self.wake()

    def want(self, kinds: set[Kind], wanted: bool) -> None:
        for (kind, _), process in self.children.items():
            if kind in kinds and process.wanted is not wanted:
                process.wanted = wanted
                self.wake()

    def all_down(self, kinds: set[Kind]) -> bool:
        return all(
            process.state is Child.DOWN
            for (kind, _), process in self.children.items()
            if kind in kinds
        )

    def is_tried(self) -> bool:
        """Whether each child that is wanted serves, or has failed once."""
        return all(
            not process.wanted
            or process.restarts
            or process.state not in (Child.DOWN, Child.STARTING, Child.STOPPING)
            for process in self.children.values()
        )

    def is_down(self, name: str) -> bool:
        process = self.children.get((Kind.QUEUE, name))
        return process is None or process.state is Child.DOWN

    def is_deleting(self, name: str) -> bool:
        return name in self.deleting

    def forget(self, name: str) -> None:
        self.children.pop((Kind.QUEUE, name), None)
        self.deleting.pop(name, None)
        self.forgetting.discard(name)
        self.wake()

    def _mind(self, kind: Kind, name: str) -> Process:
        process = Process(
            kind=kind, name=name, patience=self.patience(kind), since=time.monotonic()
        )
        return self.children.setdefault((kind, name), process)

    def patience(self, kind: Kind) -> float:
        """Return the seconds from TERM to KILL of what starts now."""
        return self._grace + QUEUE_PATIENCE if kind is Kind.QUEUE else HELPER_PATIENCE

    # ---- waking

    def wake(self) -> None:
        """Note that something happened, and wake the clients that wait for that."""
        self.changes += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def change(self, seen: int, timeout: float) -> None:
        """Wait until `changes` is no longer `seen`, `timeout` seconds at most."""
        if self.changes != seen:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await future
        self._waiting.discard(future)

    def next_wake(self) -> float | None:
        """Return the seconds until `Minder.step` has something to do without an event."""
        times = [at for _, process in self.awake() if (at := children.wake_at(process))]
        times += [at for name, at in self.deleting.items() if self.is_down(name)]
        if not times:
            return None
        return max(0.01, min(times) - time.monotonic())


# ---- children that gave up, which only another config lets start again


class GivenUp:
    """Remembers with which config a child was started, and gave up."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._started: dict[Key, config.Stamp | None] = {}  # with which config, at most
        self._given_up: dict[Key, config.Stamp | None] = {}

    def note_start(self, key: Key) -> None:
        """Note the config that a child starts with: it may change until the child ends."""
        self._started[key] = self._stamp(key)

    def note_end(self, key: Key, *, gave_up: bool) -> None:
        """Note that a child has ended, and whether it is not to be started again."""
        stamp = self._started.pop(key, None)
        if gave_up:
            self._given_up[key] = stamp

    def forget(self, key: Key) -> None:
        """Forget a child that is no more."""
        self._given_up.pop(key, None)

    def take_changed(self) -> list[Key]:
        """Return, once, the children that gave up and whose config has changed since."""
        changed = [
            key for key, stamp in self._given_up.items() if stamp != self._stamp(key)
        ]
        for key in changed:
            del self._given_up[key]
        return changed

    def _stamp(self, key: Key) -> config.Stamp | None:
        kind, name = key
        is_queue = kind is Kind.QUEUE
        return config.stamp(
            self._root.queue(name).config if is_queue else self._root.config
        )
