"""The messages that wait for others, and how those stand: the rule of `message.after`,
applied to a queue.

What is true at all times

- A message is here from when it came into que until it is decided or leaves, held by a
  person or not. Each predecessor is kept once, however many wait for it.
- `standings` is what the journal tells (`told` lines), for those predecessors only that
  some message here names. What is not in it waits, as far as is known.
- Each message has its tally, brought up to date as words come in, so that a word costs as
  much as there are messages that wait for it, and never the length of their lists.

A message that its rule has decided is `ready`. Before it is decided by what has failed, its
owner asks once more, for a retry may have been faster: `next` says which, and the message
is ready again when each has been confirmed by an answer to a later question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from rq.message.after import (
    DOUBTFUL,
    LASTING,
    OPEN,
    Standing,
    Tally,
    Verdict,
    Wait,
    queue_of,
    verdict,
)
from rq.queues.schedule.rounds import Rounds, Who


def standing_in(said: str | None) -> Standing:
    """Return how a predecessor stands, of `WORD` or `WORD QUEUE/ID`."""
    return Standing(said.partition(" ")[0]) if said else Standing.WAITING


def place_in(place: str, said: str | None) -> str:
    """Return under which name a predecessor is asked for: where it goes on."""
    return (said.partition(" ")[2] if said else "") or place


@dataclass(slots=True)
class _Waiter:
    """A message that waits."""

    wait: Wait
    tally: Tally = field(default_factory=Tally)
    # Predecessors that have failed and are asked once more; None: not begun.
    doubtful: set[str] | None = None


class Predecessors:
    """What the messages of one queue wait for."""

    def __init__(self, standings: dict[str, str]) -> None:
        """`standings` are the spool's, which the journal tells."""
        self._standings = standings
        self._waiters: dict[str, _Waiter] = {}
        # Predecessor: who waits. The round over its queue knows it of all that are asked
        # for there, which are nearly all.
        self._of: dict[str, Who] = {}
        self._ready: dict[str, None] = {}
        self._named: dict[str, dict[str, None]] = {}  # by where it goes on
        self.edges = 0  # pairs of a message and its predecessor
        self.rounds = Rounds()

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, msg_id: object) -> bool:
        return msg_id in self._waiters

    # ---- coming and going

    def add(self, msg_id: str, wait: Wait, now: float, *, hurry: bool = True) -> None:
        """Take in a message that waits; without `hurry` its predecessors were asked."""
        if msg_id in self._waiters:
            return
        waiter = self._waiters[msg_id] = _Waiter(wait)
        self.edges += len(wait.ids)
        for place in wait.ids:
            self._join(place, msg_id)
            said = self._standings.get(place)
            standing = standing_in(said)
            waiter.tally.add(standing, place=place)
            if standing not in LASTING:
                at = place_in(place, said)
                self._ask(place, at, now, hurry=hurry)
        self._look(msg_id, waiter)

    def _ask(self, place: str, at: str, now: float, *, hurry: bool = True) -> None:
        """Ask for a predecessor where it goes on, or is."""
        if at != place:
            self._named.setdefault(at, {})[place] = None
        queue = queue_of(at)
        who = self._of.pop(place, None) if queue == queue_of(place) else None
        self.rounds.of(queue).add(place, now, hurry=hurry, who=who)

    def _ask_no_more(self, place: str, at: str) -> None:
        who = self.rounds.of(queue_of(at)).remove(place)
        if who is not None:
            self._of[place] = who

    def _join(self, place: str, msg_id: str) -> None:
        there = self._waiting_for(place)
        if isinstance(there, dict):
            there[msg_id] = None
            return
        who: Who = msg_id if there is None else {there: None, msg_id: None}
        if not self.rounds.of(queue_of(place)).keep(place, who):
            self._of[place] = who

    def _waiting_for(self, place: str) -> Who | None:
        there = self.rounds.who(queue_of(place), place)
        return self._of.get(place) if there is None else there

    def remove(self, msg_id: str) -> None:
        """Forget a message that waits no more, and what it alone has waited for."""
        waiter = self._waiters.pop(msg_id, None)
        if waiter is None:
            return
        self._ready.pop(msg_id, None)
        self.edges -= len(waiter.wait.ids)
        for place in waiter.wait.ids:
            there = self._waiting_for(place)
            if isinstance(there, dict):
                there.pop(msg_id, None)
            if there == msg_id or not there:
                self._forget(place)

    def _forget(self, place: str) -> None:
        at = place_in(place, self._standings.pop(place, None))
        self._named.pop(at, None)
        self._ask_no_more(place, at)
        self._of.pop(place, None)

    def forget_strangers(self) -> None:
        """Forget what a start has read of predecessors that no message names any more."""
        for place in [p for p in self._standings if self._waiting_for(p) is None]:
            del self._standings[place]

    # ---- hearing

    def asked_as(self, place: str) -> str:
        """Return the name under which a predecessor is asked for."""
        return place_in(place, self._standings.get(place))

    def asked_by(self, name: str) -> list[str]:
        """Return the predecessors that are asked for by a name."""
        return [name, *self._named.get(name, ())]

    def news(self, rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those rows that tell something new of a predecessor that is waited for;
        they are to be written down, then `hear` takes them."""
        standings, waiting = self._standings, self._waiting_for
        return [
            (place, said)
            for place, said in rows
            if waiting(place) is not None
            and said != standings.get(place, Standing.WAITING)
        ]

    def hear(self, place: str, before: str | None, now: float) -> None:
        """Bring up to date all that wait for a predecessor, of which `before` was said,
        and which now stands as `standings` says."""
        said = self._standings.get(place)
        was, now_is = standing_in(before), standing_in(said)
        for msg_id in self._who(place):
            waiter = self._waiters[msg_id]
            waiter.tally.add(was, -1, place)
            waiter.tally.add(now_is, place=place)
            self._look(msg_id, waiter)
        self._ask_on(place, place_in(place, before), place_in(place, said), now)

    def _ask_on(self, place: str, was: str, at: str, now: float) -> None:
        """Ask the queue where a predecessor goes on; none, if it changes no more."""
        standing = standing_in(self._standings.get(place))
        if standing in LASTING or was != at:
            self._ask_no_more(place, was)
        if standing not in LASTING and was != at:
            self._ask(place, at, now)

    def confirm(self, place: str) -> None:
        """Take that a predecessor stands as it did, by an answer to a late question."""
        if standing_in(self._standings.get(place)) not in DOUBTFUL:
            return
        for msg_id in self._who(place):
            waiter = self._waiters[msg_id]
            if waiter.doubtful:
                waiter.doubtful.discard(place)
                self._look(msg_id, waiter, again=False)

    def _who(self, place: str) -> Iterable[str]:
        there = self._waiting_for(place) or ()
        return (there,) if isinstance(there, str) else there

    def _look(self, msg_id: str, waiter: _Waiter, *, again: bool = True) -> None:
        """See whether a message is decided."""
        if verdict(waiter.wait, waiter.tally) is Verdict.WAIT:
            self._ready.pop(msg_id, None)
            waiter.doubtful = None
            return
        if again:
            waiter.doubtful = None
        if not waiter.doubtful:
            self._ready[msg_id] = None

    # ---- deciding

    @property
    def is_ready(self) -> bool:
        """Whether a message may be decided."""
        return bool(self._ready)

    def next(self) -> tuple[str, Verdict] | None:
        """Return a message that is decided, and how; None: there is none for now. What
        its decision rests on and may have changed is asked once more first."""
        while self._ready:
            msg_id = next(iter(self._ready))
            waiter = self._waiters[msg_id]
            if waiter.doubtful is None:
                waiter.doubtful = set(self._doubtful(waiter.wait))
            if not waiter.doubtful:
                return msg_id, verdict(waiter.wait, waiter.tally)
            del self._ready[msg_id]
            for place in waiter.doubtful:
                self.rounds.hurry(queue_of(self.asked_as(place)), [place])
        return None

    def _doubtful(self, wait: Wait) -> Iterator[str]:
        standings = self._standings
        return (p for p in wait.ids if standing_in(standings.get(p)) in DOUBTFUL)

    # ---- looking

    def standing_so(
        self, msg_id: str, standings: AbstractSet[Standing], most: int
    ) -> list[tuple[str, str]]:
        """Return some predecessors of a message that stand in one of these ways, and what
        was said of each."""
        said = self._standings
        rows = ((p, said.get(p, "waiting")) for p in self._waiters[msg_id].wait.ids)
        return list(islice((r for r in rows if standing_in(r[1]) in standings), most))

    def still_open(self, msg_id: str, most: int) -> list[tuple[str, str]]:
        """Return some predecessors that may still change, and what was said of each."""
        return self.standing_so(msg_id, OPEN | DOUBTFUL, most)

    def tally(self, msg_id: str) -> Tally:
        """Return how the predecessors of a message stand."""
        return self._waiters[msg_id].tally
