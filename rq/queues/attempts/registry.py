"""The attempts, batches and long-lived workers of a queue that run, and the processes that
hold slots which should be free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rq.queues.attempts.attempt import Attempt, Batch, PoolWorker


class Attempts:
    """All attempts of one queue, from their claims until their ends."""

    def __init__(self) -> None:
        self._claimed: dict[str, Attempt] = {}  # not yet started
        self._started: dict[str, Attempt] = {}
        self._batches: dict[str, Batch] = {}  # claimed or started
        self.workers: dict[
            int, PoolWorker
        ] = {}  # slot: the long-lived worker that has it
        self.starts = 0  # scripts started and messages handed over, by this process
        # Slot or message: the process that holds it though the script has ended.
        self.holders: dict[int, str] = {}
        self.left: dict[str, str] = {}  # of an earlier owner

    # ---- what begins and ends

    def claim(self, attempt: Attempt) -> None:
        """Take in an attempt whose message was claimed."""
        self._claimed[attempt.msg_id] = attempt

    def start(self, attempts: Iterable[Attempt]) -> None:
        """Take in the attempts that one start has begun."""
        self.starts += 1
        for attempt in attempts:
            del self._claimed[attempt.msg_id]
            self._started[attempt.msg_id] = attempt

    def forget(self, attempt: Attempt) -> None:
        """Forget an attempt that is over, or did not begin."""
        self._claimed.pop(attempt.msg_id, None)
        self._started.pop(attempt.msg_id, None)

    def add_batch(self, batch: Batch) -> None:
        """Take in a batch whose messages were claimed."""
        self._batches[batch.batch_id] = batch

    def forget_batch(self, batch: Batch) -> None:
        """Forget a batch whose messages have all gone on, and its process with them."""
        del self._batches[batch.batch_id]

    # ---- what there is

    def __iter__(self) -> Iterator[Attempt]:
        """Give the attempts that were started, in this order."""
        return iter(list(self._started.values()))

    @property
    def started(self) -> int:
        """How many attempts have started and not ended."""
        return len(self._started)

    @property
    def none_left(self) -> bool:
        """Whether nothing is claimed or started."""
        return not (self._claimed or self._started or self._batches)

    @property
    def slots_used(self) -> int:
        """How many slots attempts take: each its own, those of a batch one."""
        attempts = len(self._started) + len(self._claimed)
        return attempts - sum(batch.left - 1 for batch in self._batches.values())

    @property
    def batches(self) -> list[Batch]:
        """The batches that are claimed or started."""
        return list(self._batches.values())

    def of(self, msg_id: str) -> Attempt | None:
        """Return the attempt on a message, once it has started."""
        return self._started.get(msg_id)

    def batch_of(self, msg_id: str) -> Batch | None:
        """Return the batch that a message runs in, unless the message has ended."""
        attempt = self._started.get(msg_id) or self._claimed.get(msg_id)
        batch_id = attempt.claim.batch_id if attempt else None
        return self._batches.get(batch_id) if batch_id else None

    def batch_with(self, msg_id: str) -> Batch | None:
        """Return the batch of a message, which may have ended."""
        return next((batch for batch in self.batches if msg_id in batch), None)

    # ---- slots that should be free

    def holder_of(self, msg_id: str) -> str:
        """Return, in a sentence, which process keeps a message in run."""
        attempt = self._started.get(msg_id)
        if attempt is None:
            return self.left.get(msg_id, "")
        return self.holders.get(attempt.slot.number, "")

    def kept_in_run(self) -> dict[str, str]:
        """Return the messages that stay in run though their scripts have ended (of a batch
        the first), and which process keeps each there."""
        first = {
            attempt.slot.number: attempt.msg_id
            for attempt in reversed(self._started.values())
        }
        held = {first[slot]: who for slot, who in self.holders.items() if slot in first}
        return {**self.left, **held}
