"""A node's part in its cluster: who belongs to it, the bus, and what is kept of both."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from random import SystemRandom

from rq.broker.bus import lanes
from rq.broker.bus.bus import Bus
from rq.broker.bus.channel import Channel
from rq.broker.bus.lanes import Lanes
from rq.broker.cluster.gossip import Address, Forget
from rq.broker.cluster.members import Members
from rq.broker.cluster.messages import Letter, Message, Need, Replicate, Yours
from rq.broker.desks.node import Node
from rq.broker.store.durability import Durability
from rq.broker.store.place import KeptMembers
from rq.broker.store.store import Store
from rq.config.broker import BrokerConfig
from rq.errors import cause_of
from rq.logs import fields
from rq.proc.listening import Bound

_LOOK = 0.1  # seconds between two looks at whether something is to be kept
_FORGETTING = 3.0  # seconds until a node that has not answered is told of

log = logging.getLogger(__name__)


class Cluster:
    """Starts and ends the bus, and keeps the members on disk."""

    def __init__(
        self,
        node: Node,
        store: Store,
        durability: Durability,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Callable[[], BrokerConfig],
        soon: Callable[[], None],
    ) -> None:
        """`settings`: those of now; `soon` asks for a turn of the server."""
        self._node = node
        self._store = store
        self._durability = durability
        self._loop = loop
        self._settings = settings
        self._soon = soon
        self._writing = asyncio.Lock()
        self._look_at: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.bus: Bus | None = None
        self._doubted: frozenset[str] = frozenset()
        bodies = store.bodies
        self._outgoing = Lanes(
            loop,
            lanes.have_places,
            functools.partial(lanes.read_bodies, bodies),
            self._send,
        )
        self._incoming = Lanes(
            loop,
            lanes.are_large,
            functools.partial(lanes.keep_bodies, bodies),
            self._take,
        )
        kept = store.kept_members()
        address = Address(kept.host, settings().port, 0)
        self.members = Members(node.node_id, SystemRandom(), address)
        self.members.load(kept.members, store.clock.now())
        self.members.lines = store.durable_lines
        node.peers = self.members
        if self.members.size > 1:
            node.hold_once(store.clock.now())

    def begin(self, bound: Bound, secret: bytes, channel: Channel | None = None) -> str:
        """Take part: other nodes come in at sockets, as through a channel over TLS. Return
        the address that another process holds, "" if none does."""
        bus_port = int(bound.socks[0].getsockname()[1])
        members = self.members
        members.address = members.address._replace(bus_port=bus_port)
        clock = self._store.clock.now
        self.bus = Bus(members, secret, self._loop, clock, self, channel)
        self._look()
        return self.bus.begin(bound)

    def close(self) -> None:
        """End all links."""
        if self._look_at is not None:
            self._look_at.cancel()
        if self.bus is not None:
            self.bus.close()

    # ---- what the bus hears

    def came(self, node: str, message: Message) -> None:
        """A member has sent something about jobs."""
        self._incoming.put(node, message)

    def greeted(self, node: str) -> None:
        """A member has given a sign of life."""
        self._node.desk.holding.heard(node, self._store.clock.now())

    def linked(self, node: str) -> None:
        """Our link to a member stands."""
        self._outgoing.linked(node)
        self._node.replication.linked(node, self._store.clock.now())
        self._soon()

    def linked_from(self, node: str) -> None:
        """The link of a member to us stands."""
        self._incoming.linked(node)
        self._node.desk.holding.linked(node, self._store.clock.now())

    def _mind_returns(self) -> None:
        """See who does not answer, and whether this node stood still: then nothing that
        was said over its links can be told from what others took for lost."""
        node, now = self._node, self._store.clock.now()
        doubted, before = self.members.doubted, self._doubted
        for name in doubted - before:
            node.desk.holding.silent(name)
        self._doubted = doubted
        node.desk.holding.patience = self.members.timeout
        if self.members.size > 1:
            node.desk.holding.beat(now)
        if node.desk.holding.stood_still and self.bus is not None:
            node.desk.holding.stood_still = False
            self.bus.cut_all()
        if node.replication.telling.is_busy:
            self._soon()

    def _take(self, sender: str, message: Message) -> None:
        is_news = isinstance(message, Replicate | Yours | Need)
        if is_news and self._durability.trouble is not None:
            return  # the disk takes nothing: it is as if it had been lost
        self._node.receive(sender, message, self._store.clock.now())
        self._soon()

    def send_early(self) -> None:
        """Send what need not wait for the disk."""
        letters = self._node.letters
        if any(letter.is_early for letter in letters):
            self._node.letters = [each for each in letters if not each.is_early]
            self._send_all([each for each in letters if each.is_early])

    def send_letters(self) -> None:
        """Send what the node has written; all events before it are durable."""
        letters, self._node.letters = self._node.letters, []
        self._send_all(letters)

    def _send_all(self, letters: list[Letter]) -> None:
        if self.bus is None or not letters:
            return
        free: list[Letter] = []
        for letter in letters:
            if self._outgoing.holds(letter.to, letter.message):
                self._outgoing.put(letter.to, letter.message)
            else:
                free.append(letter)
        self.bus.send_all(free)

    def _send(self, to: str, message: Message) -> None:
        if self.bus is not None:
            self.bus.send(to, message)

    # ---- what is kept

    def _look(self) -> None:
        """Tell the members what has been set, and keep what has changed of them."""
        self._look_at = self._loop.call_later(_LOOK, self._look)
        self._mind_returns()
        self.members.leaving = self._node.jobs.leaving
        self.members.timeout = self._settings().node_timeout / 1000
        self.members.lines = self._store.durable_lines
        if self.members.is_outdated:
            self._be_another()
        if self.members.changed and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._keep_later())

    def _be_another(self) -> None:
        """Other nodes know that this one had more on its disk than there is: it is an
        old copy, and what it says of itself is not true any more. First no job may come
        again that comes at most once; while the disk takes nothing, the next look tries
        again."""
        node, now = self._node, self._store.clock.now()
        node.disown(now)
        self._durability.keep(now)
        if not self._durability.reach():
            return
        before = node.node_id
        log.error(
            "the disk is an older copy than what has run since: this node goes on under a "
            "new id, and jobs that come at most once do not come any more; say CLUSTER "
            "FORGET of the old id to all other nodes: %s",
            fields(old=before, new=self._take_new_id()),
        )

    def _take_new_id(self) -> str:
        new_id = self._store.new_node_id()
        self._node.rename(new_id, self._store.clock.now())
        self.members.rename(new_id)
        if self.bus is not None:
            self.bus.cut_all()
        self._soon()
        return new_id

    async def _keep_later(self) -> None:
        try:
            await self.keep()
        except OSError as error:
            log.error("members are not on disk: %s", fields(reason=cause_of(error)))

    async def keep(self) -> None:
        """Keep the members on disk, as they are now. OSError: they are not kept; the next
        look tries again."""
        async with self._writing:
            members = self.members
            members.changed = False
            others = [members.by_id[name] for name in members.others]
            rows = tuple((m.node_id, m.address) for m in others if m.address.host)
            kept = KeptMembers(members.address.host, rows)
            try:
                await asyncio.to_thread(self._store.keeping(kept))
            except OSError:
                members.changed = True
                raise
            members.kept(node_id for node_id, _ in rows)

    async def forget(self, node_id: str) -> list[tuple[str, bool]]:
        """Remove a node from the cluster, and tell all others to; return which
        others have done so. It is told first: its links end when it is forgotten here.
        OSError: the list of nodes is not on disk."""
        members, loop = self.members, self._loop
        others = list(members.others)
        members.letters += [(name, Forget(node_id, False)) for name in others]
        end = loop.time() + _FORGETTING
        expected = {(name, node_id) for name in others if members.by_id[name].is_linked}
        members.forgotten -= expected
        while not expected <= members.forgotten and loop.time() < end:
            await asyncio.sleep(_LOOK / 4)
        done = expected & members.forgotten
        members.forgotten -= expected
        members.forget(node_id, self._store.clock.now())
        await self.keep()
        return [(name, (name, node_id) in done) for name in others if name != node_id]

    def reset(self) -> None:
        """Be alone, under the node's id, which may be another one by now."""
        self.members.reset(self._node.node_id)
        if self.bus is not None:
            self.bus.cut_all()
