"""Children that gave up, which only another config lets start again."""

from __future__ import annotations

from rq import config
from rq.layout import Root
from rq.supervisor.children import Kind
from rq.supervisor.table import Key


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
