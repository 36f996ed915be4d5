"""What happens in a queue, sent on as it happens, to programs that follow it.

One watch reads the journal of a queue for all who follow it, as long as anybody does, and
keeps the last lines, bounded in number and bytes. A follower is a place and nothing else:
one that keeps up is sent what the watch keeps, one that is behind is sent pieces of the
journal, which are read one at a time and kept for a moment: others are behind by as much.
So neither a slow reader nor a thousand of them cost memory, or hold up the web.

A queue is followed from what its owner says is durable. While the owner does not answer
the stream stands, says which queue it waits for, and tells of the others; it begins with
that queue where it was asked to, or else where the owner is when it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rq.errors import Busy, Damaged, RQError
from rq.index.events import Happening, Reader, name_of
from rq.index.follow import Moved
from rq.index.store import Place
from rq.web import views
from rq.web.livelog import HEARTBEAT, HELLO, MOST_OF_ONE, MOST_VIEWERS, PING, Event
from rq.web.livelog import event as encoded
from rq.web.site import Site

_LOOK = 0.2  # seconds between looks at the journal
_PATIENCE = 0.3  # seconds until the owner is asked whether the last line is durable
_CHECK = 2.0  # seconds between checks that a follower may still read
_SEEK = (
    0.5  # seconds until a silent owner is asked again; then twice as long, and so on
)
_LONGEST_SEEK = 8.0
_STUCK = 60.0  # seconds for one event; a follower that takes longer is dropped
_KEPT = 4000  # lines that a watch keeps
_KEPT_BYTES = 1024 * 1024  # of them
_AT_ONCE = 64  # lines that are sent in one go
_PIECES = 4  # of the journal that are kept for those who are behind
_PLACES = 64  # of clients that are known to be right
# Of a queue that a stream had not, or that was made again: the client is told to look.
_NOWHERE = Place(journal="00000000", seq=1)
_NOTHING = Event(b"")
_ID = re.compile(rb"^id: .*\n", re.MULTILINE)
_BYE = Event(b"event: bye\ndata: {}\n\n")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Lines of the journal as they are sent, and the place behind them."""

    end: Place
    data: Event


def _kept(happening: Happening) -> _Kept:
    """Encode a line; the last of its events names the place behind it, so that who was cut
    between two of them hears both again."""
    if not happening.events:  # only its place is of interest
        return _Kept(happening.place, Event(b""))
    *before, last = happening.events
    texts = [encoded("message", dict(view)).data for view in before]
    place = b"id: " + name_of(happening.place).encode() + b"\n"
    texts.append(place + encoded("message", dict(last)).data)
    return _Kept(happening.place, Event(b"".join(texts)))


def _piece_of(batch: list[Happening], begin: int) -> _Kept:
    """Encode lines that were read behind the event `begin`."""
    texts = [_kept(happening).data.data for happening in batch]
    if (first := batch[0].place.seq) != begin + 1:
        gap = encoded("gap", {"first": begin + 1, "last": first - 1})
        texts.insert(0, gap.data)
    return _Kept(batch[-1].place, Event(b"".join(texts)))


@dataclass(eq=False, slots=True)
class Follower:
    """A client that follows a queue: behind which event it is."""

    place: Place
    is_resumed: bool = (
        False  # it was told the place earlier, perhaps of another journal
    )
    epoch: int = 0  # as its watch has it
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None
    sending_since: float | None = None


async def now(site: Site, queue: str) -> Place:
    """Return the place behind all that is durable; an RQError when its owner is silent."""
    detail = await views.demand_detail(site.owners, queue)
    return Place(journal=detail["journal_id"], seq=detail["seq"])


class Watch:
    """Reads the journal of a queue while anybody follows it."""

    def __init__(self, site: Site, queue: str, head: Place) -> None:
        self._site = site
        self._name = queue
        self._reader = Reader(site.root.queue(queue), head)
        self._word = head
        self._unsaid_since: float | None = (
            None  # it saw lines of which nothing is known
        )
        self._ring: deque[_Kept] = deque()
        self._bytes = 0
        self._reading = asyncio.Lock()  # of pieces for those who are behind
        self._pieces: dict[
            str, _Kept
        ] = {}  # by the place before each, the last read last
        self._right: deque[str] = deque(maxlen=_PLACES)  # places of which that is known
        self._behind = head.seq  # what is kept are all lines behind that one
        self.followers: set[Follower] = set()
        self.epoch = 0  # goes up when it is another journal
        self.lost = ""  # why it cannot be followed any more
        self._task: asyncio.Task[None] | None = None

    @property
    def place(self) -> Place:
        return self._reader.place

    @property
    def queue(self) -> str:
        return self._name

    def join(self, follower: Follower) -> None:
        self.followers.add(follower)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self, follower: Follower) -> None:
        self.followers.discard(follower)
        if not self.followers and self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        for follower in self.followers:
            follower.woken.set()

    # ---- for one who follows

    async def first(self, follower: Follower) -> Event:
        """Return what a new follower is told first: nothing, unless its place is none."""
        follower.epoch = self.epoch
        if follower.is_resumed and not await self._is_right(follower.place):
            return self._reset(follower)
        return _NOTHING

    def _reset(self, follower: Follower) -> Event:
        """Let a follower go on behind what is known; it is told so."""
        follower.place, follower.epoch = self.place, self.epoch
        return encoded("reset", {"queue": self._name, "at": name_of(self.place)})

    async def _is_right(self, place: Place) -> bool:
        """Whether a place that a client has named is one of this journal."""
        name = name_of(place)
        if name not in self._right:
            try:
                await self._piece(place)
            except Moved:
                return False
            self._right.append(name)
        return True

    async def news(self, follower: Follower) -> Event:
        """Return what is there behind what a follower has heard; NOTHING: it has to wait."""
        if follower.epoch != self.epoch:
            return self._reset(follower)
        try:
            return await self._next(follower)
        except Moved:
            return self._reset(follower)
        except Damaged as error:
            self.lost = str(error)
        except OSError:  # a segment has got another name; the next look finds it
            await asyncio.sleep(_LOOK)
        return _NOTHING

    async def _next(self, follower: Follower) -> Event:
        seq = follower.place.seq
        if seq < self._behind:
            piece = await self._piece(follower.place)
            if piece is None:  # a moment later it is known to be durable
                await asyncio.sleep(_LOOK)
                return _NOTHING
            follower.place = piece.end
            return piece.data
        if not self._ring or self._ring[-1].end.seq <= seq:
            return _NOTHING
        at = seq + 1 - self._ring[0].end.seq  # no number is left out
        lines = list(islice(self._ring, at, at + _AT_ONCE))
        follower.place = lines[-1].end
        return Event(b"".join(line.data.data for line in lines))

    async def _piece(self, place: Place) -> _Kept | None:
        """Return what the journal holds behind a place; None: nothing that is known to be
        durable. Moved: it is no place of the journal."""
        name = name_of(place)
        async with self._reading:
            if name in self._pieces:
                return self._pieces[name]
            reader = Reader(self._site.root.queue(self._name), place)
            reader.take_word(str(self._word.journal), self._word.seq)
            batch = await self._site.pools.file(reader.batch)
            if not batch:
                return None
            while len(self._pieces) >= _PIECES:
                del self._pieces[next(iter(self._pieces))]
            piece = self._pieces[name] = _piece_of(batch, place.seq)
            return piece

    # ---- looking

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Damaged as error:
                self.lost = str(error)
                self.wake()
                return
            except OSError as error:  # files come and go; the next look may find them
                log.debug("looking at the journal of %s: %s", self._name, error)
            except Exception:
                log.exception("following the journal of %s failed", self._name)
            self._drop_stuck()
            await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        if self._reader.has_changed():
            try:
                while batch := await self._site.pools.file(self._reader.batch):
                    self._keep(batch)
            except Moved:
                await self._begin_again()
        await self._ask_owner()

    def _keep(self, batch: list[Happening]) -> None:
        for happening in batch:
            kept = _kept(happening)
            self._ring.append(kept)
            self._bytes += len(kept.data.data)
        while len(self._ring) > _KEPT or self._bytes > _KEPT_BYTES:
            oldest = self._ring.popleft()
            self._bytes -= len(oldest.data.data)
            self._behind = oldest.end.seq
        self.wake()

    async def _ask_owner(self) -> None:
        """Ask whether lines that are there are durable, once that was not seen for a while
        by lines behind them."""
        if not self._reader.has_tail:
            self._unsaid_since = None
            return
        since = self._unsaid_since = self._unsaid_since or _time()
        if _time() - since < _PATIENCE:
            return
        self._unsaid_since = None
        with contextlib.suppress(RQError):
            self._word = await now(self._site, self._name)
            self._reader.take_word(str(self._word.journal), self._word.seq)

    async def _begin_again(self) -> None:
        """Go on with the journal that is there now."""
        try:
            head = await now(self._site, self._name)
        except RQError:
            self._reader.take_word("", 0)  # another look, when its owner answers
            return
        self._reader, self._word = Reader(self._site.root.queue(self._name), head), head
        self._ring.clear()
        self._pieces.clear()
        self._right.clear()
        self._bytes, self._behind = 0, head.seq
        self.epoch += 1
        self.wake()

    def _drop_stuck(self) -> None:
        for follower in self.followers:
            since = follower.sending_since
            if since is not None and _time() - since > _STUCK and follower.task:
                follower.task.cancel()


async def _woken(woken: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT):
            await woken.wait()
            return True
    return False


@dataclass(eq=False, slots=True, kw_only=True)
class Wish:
    """What a program wants to follow: queues, each from a place; without places all from
    now on."""

    queues: Sequence[str]
    places: Mapping[str | None, Place]  # by their journals
    who: str  # by whose login or name
    stands: Callable[[], bool] = lambda: True  # whether they may still read
    heads: dict[str, Place] = field(default_factory=dict)  # of queues, as owners answer
    silent: dict[str, RQError] = field(default_factory=dict)  # the others
    followers: dict[str, Follower] = field(default_factory=dict)  # by their queues
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def place(self) -> str:
        """All places, as one id; with those that may be of queues that are silent."""
        journals = {head.journal for head in self.heads.values()}
        rest = [each for name, each in self.places.items() if name not in journals]
        heard = [follower.place for follower in self.followers.values()]
        return ",".join(map(name_of, [*heard, *(rest if self.silent else ())]))

    def follower(self, queue: str) -> Follower:
        """Begin with a queue whose owner has answered."""
        head = self.heads[queue]
        if self.places:
            place = self.places.get(head.journal, _NOWHERE)
            follower = Follower(place, is_resumed=True)
        else:
            follower = Follower(head)
        self.followers[queue] = follower
        return follower

    async def ask(self, site: Site) -> None:
        """Ask the owners of queues that were not heard yet."""
        for queue in self.queues:
            if queue not in self.heads:
                try:
                    self.heads[queue] = await now(site, queue)
                    self.silent.pop(queue, None)
                except RQError as error:
                    self.silent[queue] = error


class Hub:
    """All watches of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watches: dict[str, Watch] = {}
        self._wishes: list[Wish] = []
        self.closing = False

    def follow(self, wish: Wish) -> AsyncIterator[Event]:
        """Return the events for a new stream; Busy when there are too many."""
        theirs = sum(other.who == wish.who for other in self._wishes)
        if len(self._wishes) >= MOST_VIEWERS or theirs >= MOST_OF_ONE:
            raise Busy(
                f"{len(self._wishes)} programs follow queues already, {theirs} of them "
                "yours: close some and try again"
            )
        return self._events(wish)

    async def _events(self, wish: Wish) -> AsyncIterator[Event]:
        # Begins with the first event: HEAD, and a client that has gone, take none.
        self._wishes.append(wish)
        watches: list[tuple[Watch, Follower]] = []
        seeking = asyncio.create_task(self._seek(wish))
        try:
            yield HELLO
            look_at = _time() + _CHECK
            async for event in self._merged(wish, watches):
                if not event.data:
                    continue
                moment = _time()
                if moment >= look_at:
                    look_at = moment + _CHECK
                    if not wish.stands():
                        return  # their token or session has ended meanwhile
                for _, follower in watches:
                    follower.sending_since = moment
                yield event
                for _, follower in watches:
                    follower.sending_since = None
        finally:
            seeking.cancel()
            self._wishes.remove(wish)
            self._leave(wish)

    async def _seek(self, wish: Wish) -> None:
        """Ask the owners that were silent until all have answered."""
        pause = _SEEK
        while wish.silent:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SEEK)
            await wish.ask(self._site)
            wish.woken.set()

    def _joined(self, queue: str, wish: Wish) -> Watch:
        watch, follower = self._watches.get(queue), wish.follower(queue)
        if watch is None or watch.lost:
            watch = Watch(self._site, queue, wish.heads[queue])
            self._watches[queue] = watch
        follower.woken, follower.task = wish.woken, asyncio.current_task()
        watch.join(follower)
        return watch

    def _leave(self, wish: Wish) -> None:
        for queue, follower in wish.followers.items():
            watch = self._watches.get(queue)
            if watch is not None:
                watch.leave(follower)
                if not watch.followers:
                    del self._watches[queue]

    async def _merged(
        self, wish: Wish, watches: list[tuple[Watch, Follower]]
    ) -> AsyncIterator[Event]:
        """Give what happens in all queues, and with more than one of them where it is."""
        for event in await self._start(wish, watches):
            yield event
        is_one = len(wish.queues) == 1
        while not self.closing:
            wish.woken.clear()
            for event in await self._start_late(wish, watches):
                yield event
            news = [await watch.news(follower) for watch, follower in watches]
            for event in news:
                yield event if is_one else _without_place(event)
            if lost := [watch.lost for watch, _ in watches if watch.lost]:
                yield encoded("lost", {"text": lost[0]})
                return
            if any(event.data for event in news):
                yield _NOTHING if is_one else _place(wish.place)
                await asyncio.sleep(0)  # one who is behind must not hold up the others
            elif not await _woken(wish.woken):
                yield PING
        yield _BYE

    async def _start(
        self, wish: Wish, watches: list[tuple[Watch, Follower]]
    ) -> list[Event]:
        """Begin with the queues whose owners answer; return what is told first."""
        joined = self._joined_since(wish)
        watches += joined
        return [
            encoded("start", {"at": wish.place, "queues": [*wish.queues]}),
            *(
                encoded("waits", {"queue": queue, "text": str(why)})
                for queue, why in wish.silent.items()
            ),
            *[await watch.first(follower) for watch, follower in joined],
        ]

    async def _start_late(
        self, wish: Wish, watches: list[tuple[Watch, Follower]]
    ) -> list[Event]:
        """Begin with the queues whose owners have answered since."""
        events = []
        for watch, follower in self._joined_since(wish):
            watches.append((watch, follower))
            at = {"at": name_of(follower.place), "queues": [watch.queue]}
            events += [encoded("start", at), await watch.first(follower)]
        return events

    def _joined_since(self, wish: Wish) -> list[tuple[Watch, Follower]]:
        fresh = [name for name in wish.heads if name not in wish.followers]
        return [(self._joined(name, wish), wish.followers[name]) for name in fresh]

    def close(self) -> None:
        """End all streams; programs reconnect, to the next process."""
        self.closing = True
        for wish in self._wishes:
            wish.woken.set()


def _without_place(event: Event) -> Event:
    """Return events of one queue without its places: with several queues none is enough."""
    return Event(_ID.sub(b"", event.data)) if event.data else event


def _place(place: str) -> Event:
    """Tell where all queues are, so that a client names it when it comes again."""
    return Event(b"id: " + place.encode() + b"\nevent: place\ndata: {}\n\n")


def hub_of(site: Site) -> Hub:
    """Return the hub of a site, which is made when it is asked for first."""
    for streams in site.streams:
        if isinstance(streams, Hub):
            return streams
    site.streams.append(hub := Hub(site))
    return hub


def _time() -> float:
    return asyncio.get_running_loop().time()
