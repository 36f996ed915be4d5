"""What a bulk may do to a message: an event of its own for each, as for one message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq.errors import BadInput, BadMessage, WrongState
from rq.message import fields
from rq.nesting import Json
from rq.queues.bulk import move, retry
from rq.queues.leases.desk import Desk
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner
from rq.spool import Spool
from rq.spool.bulk import told_to_end
from rq.spool.record import More
from rq.states import FINAL, Event, Role, State


class Action(StrEnum):
    """What is done to each message; the word of `action` in the journal."""

    RETRY = "retry"
    CANCEL = "cancel"
    DELETE = "delete"
    ACK = "ack"
    UNACK = "unack"
    DUE = "due"
    MOVE = "move"
    PRIORITY = "priority"
    HOLD = "hold"
    RELEASE = "release"


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
    Action.UNACK: (State.DISMISSED,),
    Action.DUE: (State.QUE,),
    Action.MOVE: (State.QUE, State.ERR, State.DISMISSED),
    Action.PRIORITY: (State.QUE,),
    Action.HOLD: (State.QUE,),
    Action.RELEASE: (State.QUE,),
}


@dataclass(frozen=True, slots=True)
class Deed:
    """An action, what it is done with, and who asks for it."""

    action: Action
    to: Json  # `due`: epoch seconds; `move`: a queue; `hold`: why; else None
    by: str

    def ends_attempts(self, state: State) -> bool:
        """Whether nothing of the last attempt of a message in `state` may be left before
        it is done: the message may run again at once."""
        return self.action in (Action.RETRY, Action.MOVE) and state in FINAL


def action(word: object) -> Action:
    """Return the action that somebody asks for; BadInput if it is none."""
    if isinstance(word, str) and word in list(Action):
        return Action(word)
    raise BadInput(f"action is {word!r:.40}, not one of {', '.join(Action)}")


def deed(owner: Owner, wanted: Action, to: Json, by: str) -> Deed:
    """Return what somebody asks for; an error if it cannot be done with `to`."""
    if wanted in _TO:
        try:
            return Deed(wanted, _TO[wanted](to), by)
        except BadMessage as error:
            raise BadInput(f"'to' of {wanted}: {error}") from None
    if wanted is Action.MOVE:
        if not isinstance(to, str):
            raise BadInput(f"move needs 'to', the name of a queue, not {to!r:.40}")
        move.check_target(owner, to)
    elif to is not None:
        raise BadInput(f"{wanted} takes no 'to', only due, priority, hold and move do")
    return Deed(wanted, to, by)


# What an action is done with: it raises BadMessage for what cannot be meant.
_TO: Mapping[Action, Callable[[Json], float | int | str]] = {
    Action.DUE: fields.due,
    Action.PRIORITY: fields.priority,
    Action.HOLD: fields.why,
}


def check_state(wanted: Action, state: State) -> None:
    """BadInput when nothing can be done so to messages of a state."""
    if state not in STATES[wanted]:
        may = ", ".join(STATES[wanted])
        raise BadInput(f"{wanted} is for messages in {may}, not for those in {state}")


def is_done(spool: Spool, wanted: Action, msg_id: str) -> bool:
    """Whether a message that waits is held, or not held, already."""
    entry = spool.entry_of(msg_id)
    if entry is None or wanted not in (Action.HOLD, Action.RELEASE):
        return False
    return entry.held == (wanted is Action.HOLD)


@dataclass(frozen=True, slots=True)
class Hands:
    """What acts on messages."""

    owner: Owner
    runner: Runner
    leases: Desk

    def act(self, deed: Deed, msg_id: str, more: More) -> None:
        """Do it to a message; a line of the journal with the fields `more` says so.
        RQError when it cannot be done now."""
        owner = self.owner
        match deed.action:
            case Action.RETRY:
                retry.again(owner, msg_id, deed.by, **more)
            case Action.MOVE:
                move.move(owner, msg_id, str(deed.to), deed.by, **more)
            case Action.ACK | Action.UNACK:
                event = _EVENTS[deed.action]
                owner.spool.fire(msg_id, event, Role.CREATOR, **more)
            case Action.CANCEL if owner.spool.find(msg_id) is State.RUN:
                self._cancel(msg_id, deed.by, more)
            case Action.DELETE | Action.CANCEL:
                owner.discard(msg_id, **more)
            case _:
                self._steer(deed, msg_id, more)

    def _steer(self, deed: Deed, msg_id: str, more: More) -> None:
        """Change when a message in que runs."""
        owner, to = self.owner, deed.to
        match deed.action, to:
            case Action.DUE, int() | float():
                owner.backlog.steer(msg_id, due=float(to), **more)
            case Action.PRIORITY, int():
                owner.backlog.steer(msg_id, priority=to, **more)
            case Action.HOLD, str():
                if not owner.hold(msg_id, deed.by, to, **more):
                    raise WrongState("msg is held already")
            case Action.RELEASE, None:
                if not owner.release(msg_id, deed.by, **more):
                    raise WrongState("msg is not held")
            case _:
                raise BadInput(f"{deed.action} cannot be done with {to!r:.40}")

    def _cancel(self, msg_id: str, who: str, more: More) -> None:
        if not cancelled(self.runner, self.leases, msg_id, who):
            raise WrongState("msg is in run, and nobody works on it")
        if "bulk" in more:
            told_to_end(self.owner.spool, msg_id, more)


_EVENTS = {Action.ACK: Event.DISMISS, Action.UNACK: Event.REOPEN}


def cancelled(runner: Runner, leases: Desk, msg_id: str, who: str) -> bool:
    """End a running message here, or ask its holder to; False when nobody works on it."""
    return runner.cancel(msg_id, who) or leases.cancel(msg_id, who)
