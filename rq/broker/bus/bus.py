"""Links to all other nodes, and the connections that these make to us.

Between two nodes there are two connections: each makes one to the other, its link, and
sends over that alone. What a node says about jobs it sends over its own link; over a
connection that another has made it answers greetings and nothing else. So each side
knows by itself whether it can be heard.

What is true at all times:

- There is one `Link` for each member and no other; it has a connection, or a try under
  way, or a time for the next try. It stands under the id that `Members` has for the
  member: a random one until the handshake has told the true one.
- Nothing that a connection says is heard before the other side has proved that it has
  the secret; what it says of jobs, only if it is a member.
- Messages about jobs to one node arrive in their order as long as its link stands;
  greetings may overtake them. Nothing is kept for a node that is away, and nothing is
  sent again: copies, acknowledgements, and what nodes tell each other after one was away,
  ask again by themselves (`desks`).

What may happen:

- A member is away: its link is tried again in pauses that grow from 0.1 to 2 seconds.
  As soon as the member connects to us, it is tried at once, and a try that hangs is
  dropped: its packets went nowhere, and the kernel waits longer before each
  repeat.
- A node connects a second time, for it has lost the first connection and we have not
  seen that: the older one is closed.
- A crowd of strangers connects: 64 may be in their handshake, and a new one drives out
  the oldest. Not the newest, so that a node, which proves itself quickly, always gets
  in.
- More waits for a member than there is room for: the newest messages are dropped and
  counted, and `Members.full` names it, so that what can wait (`returning.Telling`)
  does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Protocol

from rq.broker.bus.channel import Channel
from rq.broker.bus.codec import Sent, encode
from rq.broker.bus.connection import PATIENCE, Connection, Identity
from rq.broker.cluster.gossip import Forget, Gossip, Greeting, HasFailed
from rq.broker.cluster.members import MOST_MEMBERS, TICK, Member, Members
from rq.broker.cluster.messages import Letter, Mark, Message
from rq.logs import fields
from rq.proc.listening import Bound, Listener
from rq.resp import BULK_LIMIT

_MOST_STRANGERS = 64  # connections that have not proved who they are
_MOST_COMING = 2 * MOST_MEMBERS  # connections that have
# What may wait before more is told of what was missed: messages, and bytes of them.
_FEW, _FEW_BYTES = 1000, BULK_LIMIT // 2
_LOG_EVERY = 1.0  # seconds between two lines about strangers
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0  # seconds between two tries to connect
_LONG_TRY = 0.5  # seconds of a try that is not begun again for a sign of life

log = logging.getLogger(__name__)


def _why(error: OSError, *, over_tls: bool) -> str:
    """Return why no connection could be made: asyncio's own words name the address."""
    if isinstance(error, ssl.SSLError) or (
        over_tls and isinstance(error, ConnectionResetError | ConnectionAbortedError)
    ):
        return "it does not speak TLS: set `bus_tls` on both"
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no answer in {PATIENCE:.0f} s"
    return os.strerror(error.errno) if error.errno else str(error)


class Listens(Protocol):
    """Who hears what members say about jobs, and when they can be heard."""

    def came(self, node: str, message: Message) -> None:
        """A member has sent something about jobs."""

    def greeted(self, node: str) -> None:
        """A member has given a sign of life."""

    def linked(self, node: str) -> None:
        """Our link to a member stands."""

    def linked_from(self, node: str) -> None:
        """The link of a member to us stands."""


class Link:
    """Our connection to a member, which is made again whenever it breaks."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.tried_at = self.try_at = 0.0
        self.wait = _FIRST_WAIT
        self.why = ""  # the last try has failed

    def try_again(self, now: float) -> None:
        """The member is there again: wait no longer, nor for a try that was begun while it
        was away. What that sent is lost, and the kernel sends it again ever later; while
        the member holds jobs only for so long, until it has heard what we know."""
        self.try_at, self.wait = 0.0, _FIRST_WAIT
        is_open = self.connection is not None and self.connection.is_open
        if not is_open and now - self.tried_at > _LONG_TRY:
            self.close()
            self.connection = None  # one in its TLS handshake does not tell of its end

    def close(self) -> None:
        """Break it, and try no more."""
        if self.task is not None:
            self.task.cancel()
        if self.connection is not None:
            self.connection.close()


class Bus:
    """Carries what nodes say. Nothing is kept for a node that is away."""

    def __init__(
        self,
        members: Members,
        secret: bytes,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        listener: Listens,
        channel: Channel | None = None,
    ) -> None:
        """`channel`: all connections speak TLS."""
        self.links: dict[str, Link] = {}  # by the ids that members give them
        self.sent = self.received = 0  # messages
        self._members = members
        self._secret = secret
        self._loop = loop
        self._clock = clock
        self._hears = listener
        self._coming: set[Connection] = set()
        # In the order in which they came.
        self._strangers: dict[Connection, socket.socket] = {}
        self._channel = channel
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_at = 0.0
        self._listeners: list[Listener] = []
        self._tick_at: asyncio.TimerHandle | None = None
        self._is_over = False

    def begin(self, bound: Bound) -> str:
        """Take connections at sockets, and make those to all members; return the address
        that another process holds, "" if none does."""
        listening = bound.listening()
        for sock in listening.socks:
            self._listeners.append(Listener(sock, self._loop, self._accept))
        self._tick()
        return listening.held

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        if self._tick_at is not None:
            self._tick_at.cancel()
        for listener in self._listeners:
            listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """End all connections; those to members are made again."""
        for link in self.links.values():
            link.close()
        self.links.clear()
        for connection in list(self._coming):
            connection.close()

    def outbox_of(self, name: str) -> tuple[int, int]:
        """Return the bytes that wait for a member, and how many messages had no room."""
        link = self.links.get(name)
        if link is None or link.connection is None:
            return 0, 0
        return link.connection.outbox.bytes, link.connection.outbox.lost

    def trouble_of(self, name: str) -> str:
        """Return why our connection to a member does not stand; "": not known."""
        link = self.links.get(name)
        return "" if link is None else link.why

    def is_linked_from(self, name: str) -> bool:
        """Whether a member's own connection to us stands."""
        return any(each.peer == name for each in self._coming)

    def _see_room(self) -> None:
        """Tell `Members` for which nodes much waits."""
        for name, link in self.links.items():
            outbox = None if link.connection is None else link.connection.outbox
            if outbox is not None and (len(outbox) > _FEW or outbox.bytes > _FEW_BYTES):
                self._members.full.add(name)
            else:
                self._members.full.discard(name)

    # ---- sending

    def send(self, to: str, message: Sent) -> None:
        """Send to a member if our connection to it stands; else the message is gone."""
        connection = self._way_of(to, message)
        if connection is not None:
            self.sent += 1
            connection.send(message)

    def _way_of(self, to: str, message: Sent) -> Connection | None:
        """Return the connection over which a message goes to a member; None: it is dropped.
        A mark says that all before it has come, so none follows what was lost."""
        link = self.links.get(to)
        connection = None if link is None else link.connection
        if (
            connection is not None
            and connection.outbox.lost
            and isinstance(message, Mark)
        ):
            return None
        return connection

    def send_all(self, letters: Iterable[Letter]) -> None:
        """Send several; those to one node leave together, and one to several is made
        into bytes once."""
        touched: dict[Connection, None] = {}
        last, data = None, b""
        for to, message, _ in letters:
            connection = self._way_of(to, message)
            if connection is None:
                continue
            if message is not last:
                last, data = message, encode(message)
            self.sent += 1
            connection.put(data)
            touched[connection] = None
        for connection in touched:
            connection.flush()
        self._see_room()

    # ---- time

    def _tick(self) -> None:
        if self._is_over:
            return
        self._tick_at = self._loop.call_later(TICK, self._tick)
        now = self._clock()
        self._members.tick(now)
        self._see_room()
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Do what the members have decided."""
        for name in self._members.cut:
            if (link := self.links.pop(name, None)) is not None:
                link.close()
        self._members.cut.clear()
        letters, self._members.letters = self._members.letters, []
        for name, gossip in letters:
            self.send(name, gossip)
        self._follow_members(now)

    def _follow_members(self, now: float) -> None:
        """Have a link to each member, and no other."""
        by_id = self._members.by_id
        for name in [name for name in self.links if name not in by_id]:
            self.links.pop(name).close()
        for name, member in list(by_id.items()):
            link = self.links.setdefault(name, Link())
            is_idle = link.connection is None and link.task is None
            if is_idle and now >= link.try_at and member.address.host:
                link.tried_at, link.try_at = now, now + link.wait
                link.wait = min(2 * link.wait, _LONGEST_WAIT)
                link.task = self._loop.create_task(self._connect(link, member))

    async def _connect(self, link: Link, member: Member) -> None:
        host, _, port = member.address
        tls = None if self._channel is None else self._channel.client
        try:
            async with asyncio.timeout(PATIENCE):
                await self._loop.create_connection(
                    lambda: self._new(connects=True, link=link), host, port, ssl=tls
                )
        except OSError as error:
            link.why = _why(error, over_tls=tls is not None)
            self._broken(link)
        finally:
            link.task = None

    def _new(
        self, *, connects: bool, link: Link | None = None, certificate: bytes = b""
    ) -> Connection:
        identity = Identity(self._members.node_id, self._secret, certificate)
        connection = Connection(identity, self, connects=connects)
        if link is not None:
            link.connection = connection
        return connection

    def _name_of(self, link: Link) -> str | None:
        return next((name for name, each in self.links.items() if each is link), None)

    def _broken(self, link: Link) -> None:
        link.connection = None
        if (name := self._name_of(link)) is not None:
            self._members.unlinked(name, self._clock())

    # ---- connections that others make

    def _accept(self, sock: socket.socket) -> None:
        if len(self._coming) >= _MOST_COMING:
            sock.close()
            return
        if len(self._strangers) >= _MOST_STRANGERS:
            # Not the newest: a crowd must not keep a node out, which is quick.
            self._turn_away(next(iter(self._strangers)))
        tls, certificate = (None, b"") if not self._channel else self._channel.server()
        connection = self._new(connects=False, certificate=certificate)
        self._strangers[connection] = sock
        self._coming.add(connection)
        task = self._loop.create_task(self._take(connection, sock, tls))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _turn_away(self, stranger: Connection) -> None:
        sock = self._strangers.pop(stranger)
        stranger.close()
        if not stranger.is_made:  # its handshake fails then
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    async def _take(
        self, connection: Connection, sock: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        patience = None if tls is None else PATIENCE
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, sock, ssl=tls, ssl_handshake_timeout=patience
            )
        except OSError:
            if tls is not None:
                self.refused(connection, "it does not speak TLS: set `bus_tls` on both")
            sock.close()
            self.ended(connection)

    # ---- what connections tell

    def opened(self, connection: Connection) -> None:
        """The other side of a connection has proved who it is."""
        if connection.connects:
            self._opened_link(connection)
            return
        self._strangers.pop(connection, None)
        for other in [each for each in self._coming if each.peer == connection.peer]:
            if other is not connection:
                other.close()  # a node makes one
        if (link := self.links.get(connection.peer)) is not None:
            link.try_again(self._clock())
        if self._members.is_member(connection.peer):
            self._hears.linked_from(connection.peer)

    def _opened_link(self, connection: Connection) -> None:
        link = self._link_of(connection)
        before = None if link is None else self._name_of(link)
        if link is None or before is None:
            connection.close()
            return
        now = self._clock()
        name = self._members.linked(before, connection.peer, now)
        if name is None:
            connection.close()
        else:
            if name != before:
                self.links[name] = self.links.pop(before)
            link.wait, link.why = _FIRST_WAIT, ""
            log.info("linked: %s", fields(node=name, addr=connection.ends.there))
            self._hears.linked(name)
        self.go_on(now)

    def _link_of(self, connection: Connection) -> Link | None:
        links = self.links.values()
        return next((each for each in links if each.connection is connection), None)

    def came(self, connection: Connection, message: Sent) -> None:
        """A node has sent something over a connection."""
        self.received += 1
        if isinstance(message, Greeting | HasFailed | Forget):
            self._gossiped(connection, message)
        elif self._members.is_member(connection.peer):
            self._hears.came(connection.peer, message)

    def _gossiped(self, connection: Connection, gossip: Gossip) -> None:
        now = self._clock()
        answer = self._members.receive(connection.peer, gossip, connection.ends, now)
        if self._members.is_member(connection.peer):
            self._hears.greeted(connection.peer)
        if answer is not None:
            self.sent += 1
            connection.send(answer)
        self.go_on(now)

    def refused(self, connection: Connection, why: str) -> None:
        """A connection is ended, for the other side did what it must not."""
        now = self._clock()
        if not connection.is_open and now - self._logged_at < _LOG_EVERY:
            return  # a crowd of strangers would fill the log
        self._logged_at = now
        there = fields(node=connection.peer, addr=connection.ends.there, reason=why)
        log.warning("a connection between nodes ends: %s", there)

    def ended(self, connection: Connection) -> None:
        """A connection is over."""
        if connection.connects:
            if (link := self._link_of(connection)) is not None:
                link.why = connection.why or connection.ended_early
                self._broken(link)
            return
        self._coming.discard(connection)
        self._strangers.pop(connection, None)
