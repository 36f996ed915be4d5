"""The memory that an owner has of a message, and the counts of messages by state."""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from rq.layout import folder
from rq.message.after import Wait
from rq.message.rank import PLAIN, Rank
from rq.words.states import COUNTED, State

_T = TypeVar("_T")


@dataclass(slots=True)
class Rare:
    """What few messages have at a time; for those that wait among a million it is not
    even made."""

    after: Wait | None = None  # what has to end before it runs
    at_new: str | None = None  # its name under new/, when it lies there
    # Attempts that have ended: the content of their files.
    attempts: dict[int, bytes] | None = None
    busy: int = 0  # threads that work in its folder; none in any state but prep
    # Ends with its commit; until then its attachments may not change.
    committing: Future[None] | None = None
    held: bool = False  # a person holds it, however long it is due
    key: str | None = None  # what coalescing compares
    lost: int = 0  # how often its batch died; from the second on it was parted
    rests_until: float = 0.0  # performance counter: its folder waits while it runs
    # An attempt, and its files that become attachments.
    results: tuple[int, tuple[str, ...]] | None = None
    rider_of: str | None = None
    status: bytes | None = None
    unique: str | None = None  # its unique key; "": it has none; None: not known


_AT_ONCE = 0.001  # seconds; a message that is due at once comes so soon after its due

_NOTHING = Rare()  # of all that have nothing of it; never changed


class _Kept(Protocol[_T]):
    """An attribute of an entry that is kept in its `Rare`."""

    def __get__(self, entry: Entry, owner: object = None) -> _T: ...
    def __set__(self, entry: Entry, value: _T) -> None: ...


def _rare(name: str) -> Any:
    """Return an attribute of an entry that is kept in its `Rare`, which a first value makes."""
    usual = getattr(_NOTHING, name)

    def write(entry: Entry, value: object) -> None:
        if entry.rare is _NOTHING:
            if value is usual:
                return
            entry.rare = Rare()
        setattr(entry.rare, name, value)

    return property(attrgetter(f"rare.{name}"), write)


def came(due: float, at: float) -> float:
    """Return when a message came into que: at its due, if it came at once, for a number
    less of each that waits."""
    return due if 0.0 <= at - due < _AT_ONCE else at


class Entry:
    """A message that is live, or whose folder is not yet where its state says.

    `state` is the truth of the journal, `at` is where its folder lies on disk (None:
    nowhere). `body` and `status` are contents still to be written into its files.

    There may be a million, and each word of each counts: what few of them have is kept
    in `rare`, which those share that have nothing of it.
    """

    __slots__ = (
        "at",
        "attempt",
        "body",
        "count",
        "due",
        "rank",
        "rare",
        "said",
        "seq",
        "since",
        "state",
        "written",
    )

    after: _Kept[Wait | None] = _rare("after")
    at_new: _Kept[str | None] = _rare("at_new")
    attempts: _Kept[dict[int, bytes] | None] = _rare("attempts")
    busy: _Kept[int] = _rare("busy")
    committing: _Kept[Future[None] | None] = _rare("committing")
    held: _Kept[bool] = _rare("held")
    key: _Kept[str | None] = _rare("key")
    lost: _Kept[int] = _rare("lost")
    rests_until: _Kept[float] = _rare("rests_until")
    results: _Kept[tuple[int, tuple[str, ...]] | None] = _rare("results")
    rider_of: _Kept[str | None] = _rare("rider_of")
    status: _Kept[bytes | None] = _rare("status")
    unique: _Kept[str | None] = _rare("unique")

    def __init__(
        self,
        state: State,
        at: State | None,
        due: float,
        seq: int,
        count: int = 0,
        attempt: int = 0,
        since: float = 0.0,
        key: str | None = None,
        rank: Rank = PLAIN,
    ) -> None:
        self.state = state
        self.at = at
        self.due = due  # epoch seconds
        self.seq = seq  # order of arrival in que
        self.said = seq  # the last event that told its content
        self.count = count
        self.attempt = attempt
        self.since = since  # epoch seconds: when it came into que
        self.rank = rank
        self.body: bytes | None = None
        self.written = False  # body and status are probably in its files already
        self.rare = _NOTHING
        if key is not None:
            self.key = key

    @property
    def last_told(self) -> int:
        """The last event that brought it into que, or told its content. No script starts
        for it before that is durable: a power cut would take the message back."""
        return max(self.seq, self.said)

    @property
    def ready_since(self) -> float:
        """Since when, in epoch seconds, it may run: it is in que, and due."""
        return max(self.due, self.since)

    def waited_us(self, now: float) -> int:
        """Return for how many microseconds it could have run and has not."""
        return int(max(0.0, now - self.ready_since) * 1e6)

    @property
    def may_run(self) -> bool:
        """Whether neither a person holds it nor others have to end first."""
        rare = self.rare
        return rare is _NOTHING or (not rare.held and rare.after is None)

    @property
    def settled(self) -> bool:
        return self.at is self.state and not self.has_to_write

    @property
    def has_to_write(self) -> bool:
        """Whether something is still to be written into its folder."""
        if self.body is not None or self.rare is _NOTHING:
            return self.body is not None
        rare = self.rare
        return not (
            rare.status is None and rare.results is None and rare.attempts is None
        )

    def hold_back(self, held: bool, after: Wait | None) -> None:
        """Take in whether a person holds it, and what has to end before it runs."""
        if held or after is not None or self.rare is not _NOTHING:
            self.held, self.after = held, after

    def wrote(self) -> None:
        """Forget what was to be written into its folder: that is done."""
        self.body, rare = None, self.rare
        if rare is _NOTHING:
            return
        rare.status = rare.at_new = rare.results = rare.attempts = None
        if self.state is State.QUE and rare == _NOTHING:  # it may wait for long
            self.rare = _NOTHING

    def place(self, msg_id: str) -> str | None:
        """Return where its folder lies now, relative to the queue; None: nowhere."""
        if self.at_new is not None:
            # A refused deposit is not read in new/, only after its move to err.
            return None if self.body is None else f"new/{self.at_new}"
        return None if self.at is None else folder(self.at, msg_id)


@dataclass(slots=True)
class Counts:
    """How many messages are in each state; kept, never found by listing."""

    by_state: dict[State, int] = field(default_factory=dict)

    def moved(self, source: State, target: State, number: int = 1) -> None:
        by_state = self.by_state
        if source is not State.NOWHERE:
            by_state[source] = by_state.get(source, 0) - number
        if target is not State.GONE:
            by_state[target] = by_state.get(target, 0) + number

    def of(self, state: State) -> int:
        return self.by_state.get(state, 0)

    def to_json(self) -> dict[str, int]:
        return {str(state): self.of(state) for state in COUNTED}


def counts_from(data: dict[str, Any]) -> Counts:
    return Counts({State(name): int(n) for name, n in data.items()})
