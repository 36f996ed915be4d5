"""Makes durable what the answers of a broker say, before they leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rq.broker.desks.node import Node
from rq.broker.store.store import Store
from rq.config.broker import BrokerConfig
from rq.errors import DiskFailed, Displaced
from rq.logs import fields

_LOOK = 1.0  # seconds between two looks for room
_PLACE = 5.0  # seconds between two looks at the directory of a node with nothing to do

log = logging.getLogger(__name__)


class Durability:
    """What happened at a node, on its way to the disk."""

    def __init__(
        self,
        node: Node,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Callable[[], BrokerConfig],
        soon: Callable[[], None],
        give_up: Callable[[str], None],
        note_sync: Callable[[float], None],
    ) -> None:
        """`settings`: those of now; `soon` asks for a turn of the server; `give_up` ends
        it, for the reason given, once its directory is not the node's any more;
        `note_sync` is told how many seconds each sync took."""
        self._node = node
        self._store = store
        self._loop = loop
        self._settings = settings
        self._soon = soon
        self._give_up = give_up
        self._note_sync = note_sync
        self._sync_at: asyncio.TimerHandle | None = None
        self._failing: str | None = None
        self._look_at: asyncio.TimerHandle | None = None
        self._is_short = False  # of room, as the log tells
        self._place_at = loop.call_later(_PLACE, self._look_at_place)

    @property
    def trouble(self) -> str | None:
        """Why nothing new is taken; None when it is."""
        return self._failing or self._store.no_space

    def keep(self, now: float) -> None:
        """Give the node's events to the store."""
        events, self._node.events = self._node.events, []
        self._store.append(events, now)
        if self._store.full:
            self._commit()

    def reach(self) -> bool:
        """Make durable what the answers say; False: it is not."""
        needs_no_sync = not self._node.must_sync or self._syncs_later()
        return (needs_no_sync and self._store.write()) or self._commit()

    def _syncs_later(self) -> bool:
        """Whether answers may leave before what they say is durable, as the operator has set;
        then a sync follows within a second, or when the system likes."""
        how = self._settings().appendfsync
        if how == "everysec" and self._sync_at is None:
            self._sync_at = self._loop.call_later(1.0, self._sync_now)
        return how != "always"

    def _sync_now(self) -> None:
        self._sync_at = None
        if not self._commit():
            self._soon()

    def watch_room(self) -> None:
        """Tell when there is no room for anything new, and when there is again; until then
        look every second, so that no client is refused for what is over. So it goes until the
        journal has its reserve, for which a node with nothing to do had no turn."""
        why = self._store.no_space
        if (why is not None) != self._is_short:
            self._is_short = why is not None
            if why is not None:
                log.error("nothing new is taken: %s", fields(reason=why))
            else:
                log.info("there is room on the disk: new jobs are taken again")
        is_over = not self._is_short and self._store.is_ready
        if not is_over and self._look_at is None:
            self._look_at = self._loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._look_at = None
        self._soon()

    def _look_at_place(self) -> None:
        """See whether the directory is still the node's; if not, it ends."""
        self._place_at = self._loop.call_later(_PLACE, self._look_at_place)
        self._store.look_at_place()
        if self._store.displaced:
            self._give_up(self._store.displaced)

    def _commit(self) -> bool:
        began = time.monotonic()
        try:
            self._store.commit()
        except Displaced as error:
            self._give_up(str(error))
            return False
        except DiskFailed as error:
            if self._failing is None:
                log.error("answers wait for the disk: %s", fields(reason=error))
            self._failing = str(error)
            return False
        self._failing = None
        self._node.must_sync = False
        self._note_sync(time.monotonic() - began)
        return True

    def close(self) -> None:
        """Do no more by itself."""
        for handle in (self._sync_at, self._look_at, self._place_at):
            if handle is not None:
                handle.cancel()
