"""The bundled queues that act with RQ's rights, and from whom each takes messages; pure.

These queues are programs of RQ's own. What their messages say is done with the rights of
RQ's user, which is root where RQ runs as root: messages are removed, letters are sent,
texts are signed with the secret of this installation. So a message for one of them is an
order, and what counts is who gives it:

- The operator may. A door that knows who asks (HTTP, a socket, the broker's bridge) asks
  `check` with the role that it found.
- An owner may, for what the end of a message owes: its webhooks, its notices, and what an
  operator has moved. The receiver believes no sender's word, and no key, for that: it
  asks the owner that is named (`queues.control.proof`).
- A timer may where the operator, who alone writes timers, plans such work.
- All else is said by the producer of a message: a copy or a forward by a script repeats the
  params that its message came with, the router does the same, and so does a relay, of this
  host or of another one. These are refused, whatever rights the script has.

It is judged once, when a message is accepted, and never when it runs: so what was accepted
before a rule became stricter still runs. `rq_router` is not among them: it gives no orders
of its own, and its copies count as sent by the producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq import names
from rq.errors import NotPermitted


class Sender(StrEnum):
    """Who gives an order, as a door knows it."""

    OPERATOR = "operators"
    OWNER = "queues that owe them"
    TIMER = "timers"
    PRODUCER = "producers"
    SCRIPT = "scripts"  # by a copy or a forward of their message
    RELAY = "a relay"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a queue does, and from whom it takes messages."""

    does: str
    takes: tuple[Sender, ...]


_OWED = (Sender.OPERATOR, Sender.OWNER)

QUEUES: Mapping[str, Rule] = {
    "notice": Rule("tells people and queues", _OWED),
    "webhook": Rule("posts signed texts", _OWED),
    "spark-work": Rule("starts slots on Spark", (*_OWED, Sender.TIMER)),
    # A client that may send each message of a flow sends it by the door of flows, which is of
    # RQ itself; what is sent here directly has no plan.
    "flow": Rule("sends the messages of flows", (Sender.OPERATOR, Sender.TIMER)),
    # An owner owes it only what an operator has moved there.
    "cleaner": Rule("removes messages", (*_OWED, Sender.TIMER)),
}


def check(queue: str, sender: Sender) -> None:
    """NotPermitted when a queue takes no messages from `sender`."""
    rule = QUEUES.get(queue)
    if rule is None or sender in rule.takes:
        return
    *most, last = rule.takes
    raise NotPermitted(
        f"queue {queue} {rule.does}: it takes messages from {', '.join(most)} and {last}, "
        f"not from {sender}"
    )


def named_in(dest: str) -> str | None:
    """Return the guarded queue to which `dest` may lead, wherever behind its host it names
    it: its readers differ. None: it leads to none.

    >>> [named_in(d) for d in ("cleaner", "http://h/q/notice?x", "notices", "mail")]
    ['cleaner', 'notice', None, None]
    >>> named_in("http://webhook/q/mail")
    """
    parts = names.PARTS.split(names.REMOTE.sub("", dest))
    return next((part for part in parts if part in QUEUES), None)
