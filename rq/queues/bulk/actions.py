"""What a bulk may do to a message: an event of its own for each, as for one message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq.errors import BadInput, WrongState
from rq.queues.bulk import retry
from rq.queues.leases.desk import Desk
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner
from rq.spool.record import More
from rq.states import Event, Role, State


class Action(StrEnum):
    """What is done to each message; the word of `action` in the journal."""

    RETRY = "retry"
    CANCEL = "cancel"
    DELETE = "delete"
    ACK = "ack"


# The states that a message may be in for it.
STATES: Mapping[Action, Collection[State]] = {
    Action.RETRY: (State.ERR, State.DISMISSED),
    Action.CANCEL: (State.QUE, State.RUN),
    Action.DELETE: (
        State.PREP,
        State.QUE,
        State.DONE,
        State.RELAYED,
        State.ERR,
        State.DISMISSED,
    ),
    Action.ACK: (State.ERR,),
}


def action(word: object) -> Action:
    """Return the action that somebody asks for; BadInput if it is none."""
    if isinstance(word, str) and word in list(Action):
        return Action(word)
    raise BadInput(f"action is {word!r:.40}, not one of {', '.join(Action)}")


def check_state(wanted: Action, state: State) -> None:
    """BadInput when nothing can be done so to messages of a state."""
    if state not in STATES[wanted]:
        may = ", ".join(STATES[wanted])
        raise BadInput(f"{wanted} is for messages in {may}, not for those in {state}")


@dataclass(frozen=True, slots=True)
class Hands:
    """What acts on messages."""

    owner: Owner
    runner: Runner
    leases: Desk

    def act(self, wanted: Action, msg_id: str, who: str, more: More) -> bool:
        """Do it to a message; return whether a line of the journal with the fields
        `more` says so. RQError when it cannot be done now."""
        owner = self.owner
        match wanted:
            case Action.RETRY:
                retry.again(owner, msg_id, who, **more)
            case Action.ACK:
                owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR, **more)
            case Action.CANCEL if owner.spool.find(msg_id) is State.RUN:
                self._cancel(msg_id, who)
                return False
            case _:
                owner.discard(msg_id, **more)
        return True

    def _cancel(self, msg_id: str, who: str) -> None:
        if not cancelled(self.runner, self.leases, msg_id, who):
            raise WrongState("msg is in run, and nobody works on it")


def cancelled(runner: Runner, leases: Desk, msg_id: str, who: str) -> bool:
    """End a running message here, or ask its holder to; False when nobody works on it."""
    return runner.cancel(msg_id, who) or leases.cancel(msg_id, who)
