"""A claim: a message that was taken to be run, with what is reserved for it."""

from __future__ import annotations

from dataclasses import dataclass

from rq.message import Message
from rq.queues.attempts.worker import Worker
from rq.scripts.slots import Slot


@dataclass(slots=True)
class Claim:
    """A message that is about to run, or does."""

    message: Message
    slot: Slot
    worker: Worker | None  # reserved; None: a script is started
    key: str | None  # exclusion key
    wait_us: int
    seq: int  # of the event that brought the message into que, or told its content
    stamp: tuple[int, int] | None = None  # of its file `msg` at the start
    batch: str | None = None  # the id of the batch that it runs in

    @property
    def msg_id(self) -> str:
        return self.message.msg_id
