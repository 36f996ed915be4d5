"""What a node knows of the copies of jobs on other nodes. Pure.

Only jobs that were sent to, or came from, another node have an entry, so that a node alone
pays nothing. `Spreads` is changed by events, as `Jobs` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from rq.broker.state import ids
from rq.broker.state.deadlines import Deadlines, Timed
from rq.broker.state.job import Acked, Buried, Copied

AHEAD = 0.5  # seconds before a job comes again, to say so
BURIED = 600.0  # seconds at least that an id which is gone stays known
_SLICE = 200


class Spread:
    """The copies of one job, or an acknowledgement without the job (`is_bare`)."""

    __slots__ = (
        "announces",
        "at",
        "attempts",
        "client",
        "confirmed",
        "expires",
        "is_acked",
        "is_bare",
        "job_id",
        "may_have",
        "moves",
        "slot",
        "wanted",
    )

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.may_have: frozenset[str] = frozenset()  # ids of nodes, this one too
        self.confirmed: frozenset[str] = frozenset()
        self.wanted = 1
        self.moves = 0
        self.announces = True  # its next queueing, to the other nodes
        self.is_acked = self.is_bare = False
        self.attempts = 0  # to collect it
        self.expires = 0.0  # of a bare one
        self.client: int | None = None  # its producer, who waits for copies
        self.at = 0.0  # when something is to be done about it
        self.slot: dict[Timed, None] | None = None


class Tomb:
    """An id that is gone: what comes late for it is not taken."""

    __slots__ = ("at", "is_over", "job_id", "moves", "slot", "unaware")

    def __init__(self, job_id: str, until: float, is_over: bool, moves: int) -> None:
        self.job_id = job_id
        self.is_over = is_over  # whether no copy of it shall live anywhere
        self.moves = moves
        self.unaware: frozenset[str] = frozenset()  # nodes that may have a copy still
        self.at = until
        self.slot: dict[Timed, None] | None = None


class Spreads:
    """All entries and tombs of a node."""

    def __init__(self) -> None:
        self.by_job: dict[str, Spread] = {}
        self.bare: dict[str, Spread] = {}  # of these, acknowledgements without a job
        self.tombs: dict[str, Tomb] = {}
        self.waiting: dict[
            int, str
        ] = {}  # producers that wait for copies: of which job
        self.left: list[int] = []  # those whose jobs went without an answer to them
        self.deadlines: Deadlines[Spread] = Deadlines()
        self.ends: Deadlines[Tomb] = Deadlines()
        self._sets: dict[tuple[str, ...], frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self.by_job) + len(self.tombs)

    # ---- time

    def wake(self, spread: Spread, at: float, now: float) -> None:
        """Look at an entry at that time."""
        self.deadlines.move(spread, at, now)

    def follow(self, job_id: str, due: float, now: float) -> None:
        """A job is due at another time: announce it before; 0: never."""
        spread = self.by_job.get(job_id)
        if spread is None or spread.is_acked:
            return
        if due:
            self.deadlines.move(spread, max(now, due - AHEAD), now)
        else:
            self.deadlines.cancel(spread)

    def due(self, now: float, most: int) -> list[Spread]:
        """Return the entries to look at now, of up to `most`."""
        return self.deadlines.due(now, most)

    def forget(self, now: float, most: int) -> None:
        """Forget tombs whose time is over."""
        for tomb in self.ends.due(now, most):
            del self.tombs[tomb.job_id]

    def forget_early(self, most: int) -> None:
        """Forget tombs before their time is over, of the next `most`, for memory is short:
        else the jobs of hours, all done, would keep new ones out. A copy that comes so
        late lets its job come again. Of jobs that come at most once they stay."""
        for tomb in self.ends.first(most):
            if ids.life(tomb.job_id):
                self.ends.cancel(tomb)
                del self.tombs[tomb.job_id]

    # ---- changing

    def copied(self, event: Copied, job_id: str) -> Spread:
        """Note where the copies of a job are, whose id is kept once."""
        spread = self.by_job.get(job_id)
        if spread is None:
            spread = self.by_job[job_id] = Spread(job_id)
        spread.may_have = self._shared(event.may_have)
        spread.wanted, spread.moves = event.wanted, event.moves
        spread.announces = event.announces
        return spread

    def queued(self, job_id: str) -> None:
        """A job came into its queue: the next time is announced."""
        if (spread := self.by_job.get(job_id)) is not None:
            spread.announces = True

    def acked(self, event: Acked, now: float) -> None:
        """Note that a job is acknowledged; it is collected from a second later on."""
        spread = self.by_job.get(event.job)
        if spread is None:
            spread = self.by_job[event.job] = Spread(event.job)
        if event.expires:
            self.bare[event.job] = spread
        spread.is_acked, spread.is_bare = True, bool(event.expires)
        spread.expires = event.expires
        spread.confirmed = frozenset()
        self.wake(spread, now + 1.0, now)

    def end(self, job_id: str, until: float, is_over: bool, now: float) -> None:
        """Forget the copies of a job that is gone, but for its tomb."""
        spread = self.by_job.pop(job_id, None)
        if spread is None:
            return
        self.bare.pop(job_id, None)
        if spread.client is not None:
            self.left.append(spread.client)
        self.deadlines.cancel(spread)
        if until > now:
            self.bury(Buried(job_id, until, is_over, spread.moves), now)
            unaware = spread.may_have - spread.confirmed
            self.tombs[job_id].unaware = self._shared(tuple(sorted(unaware)))

    def bury(self, event: Buried, now: float) -> None:
        """Remember an id that is gone."""
        tomb = self.tombs.get(event.job)
        if tomb is None:
            tomb = Tomb(event.job, event.until, event.is_over, event.moves)
            self.tombs[event.job] = tomb
            self.ends.add(tomb, now)
            return
        tomb.is_over = tomb.is_over or event.is_over
        tomb.moves = max(tomb.moves, event.moves)
        if event.until > tomb.at:
            self.ends.move(tomb, event.until, now)

    def clear(self) -> Callable[[], object]:
        """Forget all entries; return what takes one of those that there were apart."""
        by_job, deadlines = self.by_job, self.deadlines
        self.by_job, self.bare = {}, {}
        deadlines.clear()
        self.left += self.waiting

        def free() -> None:
            deadlines.cancel(by_job.popitem()[1])

        return free

    def _shared(self, nodes: tuple[str, ...]) -> frozenset[str]:
        """Return a set of nodes; equal ones are one object, for jobs are many."""
        shared = self._sets.get(nodes)
        if shared is None:
            if len(self._sets) > 1000:
                self._sets.clear()
            ordered = tuple(sorted(nodes))
            shared = self._sets.setdefault(ordered, frozenset(ordered))
            self._sets[nodes] = shared
        return shared


def copied_of(spread: Spread) -> Copied:
    """Return the event that makes an entry what it is."""
    nodes = tuple(sorted(spread.may_have))
    return Copied(
        spread.job_id, spread.wanted, nodes, spread.announces, False, spread.moves
    )


def events_of(spreads: Spreads) -> Iterator[Iterable[Acked | Buried]]:
    """Give the events of what is left of jobs that are gone, some at a time. They come
    after those of all jobs, some of which may have gone meanwhile."""
    yield [Acked(spread.job_id, spread.expires) for spread in spreads.bare.values()]
    tombs = iter(list(spreads.tombs.items()))
    while some := list(islice(tombs, _SLICE)):
        yield [
            Buried(job_id, tomb.at, tomb.is_over, tomb.moves) for job_id, tomb in some
        ]
