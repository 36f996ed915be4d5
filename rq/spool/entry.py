"""The memory that an owner has of a message, and the counts of messages by state."""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass, field
from typing import Any

from rq.layout import folder
from rq.message.after import Wait
from rq.message.rank import PLAIN, Rank
from rq.words.states import COUNTED, State


class Entry:
    """A message that is live, or whose folder is not yet where its state says.

    `state` is the truth of the journal, `at` is where its folder lies on disk (None:
    nowhere). `body` and `status` are contents still to be written into its files.
    """

    __slots__ = (
        "after",
        "at",
        "at_new",
        "attempt",
        "attempts",
        "body",
        "busy",
        "committing",
        "count",
        "due",
        "held",
        "key",
        "lost",
        "rank",
        "rests_until",
        "results",
        "rider_of",
        "said",
        "seq",
        "since",
        "state",
        "status",
        "unique",
        "written",
    )

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
        self.key = key  # what coalescing compares
        self.rank = rank
        self.unique: str | None = (
            None  # its unique key; "": it has none; None: not known
        )
        self.body: bytes | None = None
        self.status: bytes | None = None
        self.rider_of: str | None = None
        self.held = False  # a person holds it, however long it is due
        self.after: Wait | None = None  # what has to end before it runs
        self.lost = 0  # how often its batch died; from the second on it was parted
        self.at_new: str | None = None  # its name under new/, when it lies there
        self.busy = 0  # threads that work in its folder; none in any state but prep
        # Ends with its commit; until then its attachments may not change.
        self.committing: Future[None] | None = None
        self.rests_until = 0.0  # performance counter: its folder waits while it runs
        # An attempt, and its files that become attachments.
        self.results: tuple[int, tuple[str, ...]] | None = None
        # Attempts that have ended: the content of their files.
        self.attempts: dict[int, bytes] | None = None
        self.written = False  # body and status are probably in its files already

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
        return not self.held and self.after is None

    @property
    def settled(self) -> bool:
        rests = self.body is None and self.status is None and self.results is None
        return self.at is self.state and rests and self.attempts is None

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
