"""The schedule, which says what message runs next: the first in order, of one key only so
many at once, and none whose destination is backed off."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain

from rq.message.rank import Rank, prior
from rq.queues.schedule.destinations import BackOffs
from rq.queues.schedule.exclusion import Excluded
from rq.queues.schedule.line import Item
from rq.queues.schedule.order import First, Order, Valid

_AT_ONCE = 0.001  # seconds; a line of the journal tells microseconds
_LOOKS = 500  # messages put aside in one go: the files of some are read


def turn(due: float, since: float, tried: bool, now: float) -> float:
    """Return when a message may run that has waited `since` then.

    When the clock is put back, a message that was due when it came stays due, and one
    that waits after an attempt waits no longer than it was told to. A moment that a
    sender asked for is kept.
    """
    if due <= since + _AT_ONCE:
        return min(due, now)
    return min(due, now + due - since) if tried else due


class Waiting:
    """Messages in que, each in one place. An item whose message has moved on, or changed
    its due or priority since, is dropped when it is met: `valid` tells. `leader_of` tells
    with whom a message rides."""

    def __init__(
        self,
        valid: Valid,
        dest_of: Callable[[str], str],
        leader_of: Callable[[str], str | None],
        rank_of: Callable[[str], Rank],
    ) -> None:
        self._valid = valid
        self._dest_of = dest_of
        self._leader_of = leader_of
        self._rank_of = rank_of
        self._order = Order()
        self._excluded = Excluded()
        self._riding: dict[str, list[Item]] = {}  # by leader
        self._holds: BackOffs[Item] = BackOffs()

    def fill(self, items: Iterable[tuple[Item, Rank]]) -> None:
        """Add many at once."""
        self._order.fill(items)

    def add(self, item: Item, rank: Rank | None = None) -> None:
        """Add a message; `rank`: by which it waits, when that is its own and at hand, or
        for one more place beside that."""
        self._order.add(item, rank or self._rank_of(item.msg_id))

    def __len__(self) -> int:
        """Return how many may run as soon as they are due, and those that are dropped
        when they are met."""
        return len(self._order)

    def next_due(
        self, now: float, key_of: Callable[[str], str | None], busy: Container[str]
    ) -> tuple[str | None, float | None]:
        """Return (message to claim now, None) or (None, when to look again).

        A message whose key is `busy` is held until `release` of that key. Unread:
        `key_of` cannot tell it for now.
        """
        self._try_held(now)
        for _ in range(_LOOKS):
            first = self._order.first(now)
            if first is None:
                return None, self.next_look()
            if self._put_away(first):
                continue
            item = first.item
            # Unread leaves it where it is.
            key = self._excluded.key_of(item.msg_id) or key_of(item.msg_id)
            if key is not None and key in busy:
                first.rotation.drop()
                self._excluded.keep(key, item, self._rank_of(item.msg_id))
                continue
            if self._waits_outside(first, now):
                first.rotation.drop()
                self._left(item)
                continue
            first.rotation.take()
            self._left(item)
            return item.msg_id, None
        return None, now

    def _put_away(self, first: First) -> bool:
        """Take the first out if it cannot run, whenever it is due."""
        if not self._cannot_run(first):
            return False
        first.rotation.drop()
        self._left(first.item)
        return True

    def _cannot_run(self, first: First) -> bool:
        """Whether a message has moved on, or rides with another."""
        item = first.item
        if not self._valid(item, first.priority):
            return True
        leader = self._leader_of(item.msg_id)
        if leader is None:
            return False
        self._riding.setdefault(leader, []).append(item)
        return True

    def _left(self, item: Item) -> None:
        """Choose the next one to stand for those for which a message stood that has
        left."""
        self._enter(self._excluded.leaves(item.msg_id, self._rank_of(item.msg_id)))

    def _enter(self, first: First | None) -> None:
        if first is not None:
            item = first.item
            self.add(item, prior(first.priority, self._rank_of(item.msg_id)))

    # ---- what waits for something outside

    def has_room(self, dest: str, name: str, now: float) -> bool:
        """Whether messages for `dest` can wait for `name`: of both there is a limit."""
        return self._holds.has_room(dest, name, now)

    def hold(self, msg_id: str, dest: str, name: str, until: float) -> None:
        """Start no message for `dest` before `until`, nor any that waits for `name`:
        this one has tried."""
        self._holds.begin(msg_id, dest, name, until)

    def hold_no_longer(self, dest: str) -> None:
        """Release all that wait for what a message for `dest` waited for."""
        for item in self._holds.end(dest) if self._holds else ():
            self.add(item)

    def held_for(self, msg_id: str) -> tuple[str, float] | None:
        """Return what a message waits for outside, and until when; None: nothing."""
        return self._holds.about(self._dest_of(msg_id)) if self._holds else None

    def held_outside(self) -> list[tuple[str, float]]:
        """Return what messages that are due wait for, and until when each."""
        return self._holds.awaited()

    def hurry(self, msg_id: str) -> None:
        """Try a message though its destination is backed off."""
        if self._holds:
            self._holds.hurry(self._dest_of(msg_id))

    def _waits_outside(self, first: First, now: float) -> bool:
        if not self._holds:
            return False
        item, dest = first.item, self._dest_of(first.item.msg_id)
        return self._holds.keeps(item, item.msg_id, dest, now, -first.priority)

    def _try_held(self, now: float) -> None:
        if not self._holds:
            return
        for item in list(self._holds.ready(now)):
            self.add(item)

    # ---- what waits for another message

    def release(self, key: str) -> None:
        """Release one of the messages that waited for a key, and then the next."""
        self._enter(self._excluded.release(key))

    def part(self, leader: str) -> None:
        """Make those run by themselves again that rode with a message."""
        for item in self._riding.pop(leader, ()):
            self.add(item)

    def forget_riders(self, leader: str) -> None:
        """Those that ride with a message end with it."""
        self._riding.pop(leader, None)

    def release_all(self) -> None:
        """Look again at all that wait for another message or for something outside."""
        for item in (*self._excluded.release_all(), *self._holds.release()):
            self.add(item)

    # ---- looking

    def has_due(self, now: float) -> bool:
        """Whether a message may start now that waits for no other; False while that is
        not known, because very many have gone."""
        return bool(self._looks_due(now))

    def _looks_due(self, now: float) -> bool | None:
        """As `has_due`; None: that is not known after this look."""
        for _ in range(_LOOKS):
            first = self._order.first(now)
            if first is None:
                return False
            if not self._put_away(first):
                return True
        return None

    def look_from(self, now: float) -> float | None:
        """Return when a message may start: now, or later; None when nothing waits but for
        another message."""
        return self.next_look() if self._looks_due(now) is False else now

    def next_look(self) -> float | None:
        """Return when a message may start that is not due yet, or not tried yet; None when
        there is none."""
        soonest, look = self._soonest(), self._holds.next_look()
        dues = [soonest.due] if soonest is not None else []
        return min(dues if look is None else [*dues, look], default=None)

    def _soonest(self) -> Item | None:
        """Return the first to be due; perhaps one that has gone, if so many have."""
        soonest = None
        for _ in range(_LOOKS):
            soonest = self._order.soonest()
            if soonest is None or not self._cannot_run(soonest):
                break
            soonest.rotation.drop_coming()
            self._left(soonest.item)
        return None if soonest is None else soonest.item

    def first_due(self, now: float) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits. After the
        end of very many at once it may be a little too small."""
        self.has_due(now)
        soonest, oldest = self._soonest(), self._order.oldest()
        dues = [item.due for item in self._excluded.oldest()]
        dues += [item.due for item in (soonest, oldest) if item is not None]
        look = self._holds.next_look()
        return min(dues if look is None else [*dues, look], default=None)

    def in_order(self, now: float) -> Iterator[str]:
        """Give all that wait in the order in which they run as far as that is known now:
        those that may start, those that wait for a key or for something outside, those
        that are not due yet. Nothing may change meanwhile."""
        given: set[str] = set()  # what was changed there and back has two items
        for msg_id in self._all_in_order(now):
            if msg_id not in given and self._leader_of(msg_id) is None:
                given.add(msg_id)
                yield msg_id

    def _all_in_order(self, now: float) -> Iterator[str]:
        items = chain(
            self._order.due(now, self._valid),
            self._excluded.in_order(self._valid),
            self._holds.in_order(),
            self._order.later(now, self._valid),
        )
        return (item.msg_id for item in items)
