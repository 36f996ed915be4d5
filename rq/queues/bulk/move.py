"""Messages that a person moves to another queue: they end here as relayed, and the same
line of the journal owes a copy to that queue.

So a crash cannot part the two, and the copy is delivered once, under its key; its origin
is the message here, which keeps log and attachments.
"""

from __future__ import annotations

from typing import Unpack

from rq.errors import BadInput, WrongState
from rq.message.causes import Cause
from rq.queues.delivery import copies
from rq.queues.owner.owner import Owner
from rq.spool.record import Facts, More
from rq.words.states import Event, Role, State, next_state


def check_target(owner: Owner, dest: str) -> None:
    """Raise why no message can be moved there now."""
    if dest == owner.name:
        raise BadInput(f"queue {dest} is where it is: say another one")
    copies.target(owner.root, dest)


def move(owner: Owner, msg_id: str, dest: str, who: str, **more: Unpack[More]) -> None:
    """Move a message that waits, or has failed, to another queue; of one that has failed
    the last attempt has ended. It runs there when it would have run here."""
    state = owner.spool.state_of(msg_id)
    next_state(state, Event.MOVE, Role.CREATOR)
    taker = owner.spool.owed.taker_of(msg_id)
    if taker is not None:
        raise WrongState(f"msg has still to be handed on to {taker}")
    message, now = owner.spool.read(msg_id), owner.spool.clock()
    if message.held is not None:
        raise WrongState("msg is held: release it, then move it")
    due = message.due if state is State.QUE else now
    facts: Facts = {
        "cause": Cause.MOVED,
        "outcome": "relayed",
        "text": f"moved to {dest} by {who}",
    }
    further: More = {**more, "out": [copies.moved(owner.settings, message, dest, due)]}
    owner.spool.fire(msg_id, Event.MOVE, Role.CREATOR, facts=facts, **further)
    owner.backlog.remove(msg_id)
