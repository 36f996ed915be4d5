"""The live log: what a message's script writes, sent on as it is written.

One watch looks at a file for all who view it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from rq.errors import Busy
from rq.web import logevents, logwatch
from rq.web.site import Site

MOST_VIEWERS = 1000
MOST_OF_ONE = 750  # of these; one user must not take all
_LOOK_EVERY = 2.0  # seconds between checks that a viewer may still read


class Hub:
    """All watches of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watches: dict[tuple[str, str], logwatch.Watch] = {}
        self.closing = False

    @property
    def viewers(self) -> list[logwatch.Viewer]:
        return [viewer for watch in self._watches.values() for viewer in watch.viewers]

    def follow(
        self, queue: str, msg_id: str, viewer: logwatch.Viewer
    ) -> AsyncIterator[logevents.Event]:
        """Return the events for a new viewer, from its offset on."""
        there = self.viewers
        theirs = sum(other.who == viewer.who for other in there)
        if len(there) >= MOST_VIEWERS or theirs >= MOST_OF_ONE:
            raise Busy(
                f"{len(there)} viewers follow logs already, {theirs} of them yours: "
                "close some and try again"
            )
        return self._events((queue, msg_id), viewer)

    async def _events(
        self, key: tuple[str, str], viewer: logwatch.Viewer
    ) -> AsyncIterator[logevents.Event]:
        # Begins with the first event: HEAD, and a client that has gone, take none.
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = logwatch.Watch(self._site, *key)
        viewer.task = asyncio.current_task()
        watch.join(viewer)
        try:
            yield logevents.HELLO
            look_at = _now() + _LOOK_EVERY
            async for event in watch.events(viewer, lambda: self.closing):
                viewer.sending_since = now = _now()
                if now >= look_at:
                    look_at = now + _LOOK_EVERY
                    if not viewer.stands():
                        return  # their token or session has ended meanwhile
                yield event
                viewer.sending_since = None
        finally:
            watch.leave(viewer)
            if not watch.viewers and self._watches.get(key) is watch:
                del self._watches[key]

    def close(self) -> None:
        """End all streams; browsers reconnect by themselves, to the next process."""
        self.closing = True
        for watch in self._watches.values():
            watch.wake()


def _now() -> float:
    return asyncio.get_running_loop().time()
