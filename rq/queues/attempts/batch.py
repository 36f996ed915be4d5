"""A batch: messages that one process works on together, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import orjson

from rq.config.settings import RootConfig
from rq.layout import folder
from rq.message import Message
from rq.pipe import Report
from rq.proc.spawn import Ending
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.claim import Claim
from rq.queues.attempts.outcome import Said
from rq.scripts.log import StdioLog
from rq.scripts.script import Script
from rq.scripts.slots import Slot
from rq.states import Event, State

_UNKNOWN = Ending(None, None, None, None)  # the process of one that ended before it


class Batch:
    """Messages that run together; named by the first and its attempt."""

    def __init__(self, batch_id: str, claims: list[Claim], slot: Slot) -> None:
        self.batch_id = batch_id
        self.slot = slot
        self.claims = {one.msg_id: one for one in claims}
        self.attempts: dict[str, Attempt] = {}  # of messages that have not ended
        self.ended: dict[Event, int] = {}
        self.lost = 0  # messages of which nothing was said when its process died
        self.said = Said()  # what is for all of which nothing else was said
        self.script: Script | None = None  # from its start on
        self.log: StdioLog
        self.stopped = False  # RQ itself ends it
        self.began = time.monotonic()
        self.began_at = time.time()
        self.oddities = 0  # lines that could not be understood

    @property
    def seq(self) -> int:
        """Return the last event that brought one of its messages into que."""
        return max(one.seq for one in self.claims.values())

    @property
    def left(self) -> int:
        """Return how many messages have not ended."""
        return len(self.claims) - sum(self.ended.values())

    def has(self, msg_id: str) -> bool:
        """Whether a message is in it that has not ended."""
        return msg_id in (self.attempts if self.script else self.claims)

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self.claims

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self.attempts.values()))

    def drop(self, claim: Claim) -> None:
        """Go on without a message that cannot take part."""
        del self.claims[claim.msg_id]

    def started(
        self, script: Script, log: StdioLog, hear: Callable[[Attempt, Report], None]
    ) -> None:
        """Its process runs: make an attempt of each message."""
        self.script, self.log = script, log
        for claim in self.claims.values():
            attempt = Attempt(claim.message, self.slot, log, hear)
            attempt.script, attempt.batch, attempt.phase = script, self.said, "running"
            self.attempts[claim.msg_id] = attempt

    def end_of(self, attempt: Attempt, event: Event) -> Claim:
        """Take out a message that has ended; return its claim."""
        del self.attempts[attempt.msg_id]
        self.ended[event] = self.ended.get(event, 0) + 1
        attempt.end(attempt.ending or self._ending())
        return self.claims[attempt.msg_id]

    def _ending(self) -> Ending:
        ending = self.script.ending if self.script else None
        # What its process used of the processor it used for all of them.
        return (
            _UNKNOWN
            if ending is None
            else Ending(ending.exit, ending.signal, None, None)
        )


def described(
    config: RootConfig, queue: str, path: str, batch_id: str, all_of: Iterable[Message]
) -> bytes:
    """Return the content of `batch.json`: a line of JSON for each message, with where
    its folder lies and its whole id, then its own fields."""
    lines = [
        orjson.dumps(
            {
                "msg_id": one.msg_id,
                "dir": f"{path}/{folder(State.RUN, one.msg_id)}",
                "full_msg_id": config.full_id(queue, one.msg_id),
                "attempt": one.attempt,
                **one.to_json(),
            }
        )
        for one in all_of
    ]
    head = orjson.dumps({"batch_id": batch_id, "queue": queue, "count": len(lines)})
    return head[:-1] + b',"messages":[\n' + b",\n".join(lines) + b"\n]}\n"
