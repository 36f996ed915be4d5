"""What may be done to queues and timers: each deed once, for the pages and for /api/v1.

What may be done to messages: `rq.message.actions`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that operators do."""

    about: str  # what it does, as the document of the API says it
    done: str  # what a browser reads then, of `name` and what was answered


OF_TIMER = {
    "run": Deed(
        about="Send a message of a timer now, beside its beat.",
        done="a message is sent: {answer}",
    ),
    "ack": Deed(
        about="Note that a person has seen what a timer missed, and that its last failed.",
        done="timer {name} is acknowledged",
    ),
    "pause": Deed(about="Let a timer fire no more.", done="timer {name} is paused"),
    "resume": Deed(
        about="Let a timer fire again, from now on.", done="timer {name} fires again"
    ),
}
# The supervisor's command is `WORD_queue`.
OF_QUEUE = {
    "pause": Deed(
        about="Let a queue take messages and start none.", done="{name} is paused"
    ),
    "resume": Deed(about="Let a queue start messages again.", done="{name} is resumed"),
    "down": Deed(
        about="Let a queue neither take nor start messages.",
        done="{name} is taken down",
    ),
    "up": Deed(
        about="Let a queue that was down work again.", done="{name} is taken up"
    ),
}
