"""What runs: the attempts and batches of a queue, and the processes that hold its slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.batch import Batch


class Attempts:
    """All attempts of one queue, from their claims until their ends."""

    def __init__(self) -> None:
        self._claimed: set[str] = set()  # not yet started
        self._at_work: dict[str, Attempt] = {}
        self._batches: list[Batch] = []  # claimed or at work
        self.started = 0  # processes and messages handed over, since this process began
        self.holders: dict[
            int, str
        ] = {}  # slot: who holds it though its script has ended
        self.left: dict[str, str] = {}  # message: who, of an earlier owner, has it

    # ---- what begins and ends

    def claim(self, msg_id: str) -> None:
        """Take in a message that was claimed."""
        self._claimed.add(msg_id)

    def start(self, attempts: Iterable[Attempt]) -> None:
        """Take in attempts that one start has begun."""
        self.started += 1
        for attempt in attempts:
            self._claimed.discard(attempt.msg_id)
            self._at_work[attempt.msg_id] = attempt

    def forget(self, msg_id: str) -> None:
        """Forget an attempt that is over, or did not begin."""
        self._claimed.discard(msg_id)
        self._at_work.pop(msg_id, None)

    def add_batch(self, batch: Batch) -> None:
        """Take in a batch whose messages were claimed."""
        self._batches.append(batch)

    def forget_batch(self, batch: Batch) -> None:
        """Forget a batch whose messages have all gone on, and its process with them."""
        self._batches.remove(batch)

    # ---- what there is

    def __iter__(self) -> Iterator[Attempt]:
        """Give the attempts at work, as they were started."""
        return iter(list(self._at_work.values()))

    @property
    def at_work(self) -> int:
        """How many attempts are at work."""
        return len(self._at_work)

    @property
    def none_left(self) -> bool:
        """Whether nothing is claimed or at work."""
        return not (self._claimed or self._at_work or self._batches)

    @property
    def slots_used(self) -> int:
        """How many slots attempts take: each its own, those of a batch one."""
        in_batches = sum(batch.left for batch in self._batches)
        alone = len(self._at_work) + len(self._claimed) - in_batches
        return alone + len(self._batches)

    @property
    def batches(self) -> list[Batch]:
        """The batches that are claimed or at work."""
        return list(self._batches)

    def of(self, msg_id: str) -> Attempt | None:
        """Return the attempt at work on a message."""
        return self._at_work.get(msg_id)

    def batch_of(self, msg_id: str) -> Batch | None:
        """Return the batch that a message runs in, unless the message has ended."""
        return next((batch for batch in self._batches if batch.has(msg_id)), None)

    def batch_with(self, msg_id: str) -> Batch | None:
        """Return the batch of a message, which may have ended."""
        return next((batch for batch in self._batches if msg_id in batch), None)

    # ---- who holds what should be free

    def holder_of(self, msg_id: str) -> str:
        """Return, in a sentence, who keeps a message in run whose script has ended."""
        attempt = self._at_work.get(msg_id)
        if attempt is None:
            return self.left.get(msg_id, "")
        return self.holders.get(attempt.slot.number, "")

    def kept_in_run(self) -> dict[str, str]:
        """Return the messages in run whose scripts have ended, of a batch the first, and
        who keeps each there."""
        first = {
            attempt.slot.number: attempt.msg_id
            for attempt in reversed(self._at_work.values())
        }
        held = {first[slot]: who for slot, who in self.holders.items() if slot in first}
        return {**self.left, **held}
