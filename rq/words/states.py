"""The states of a message and of a child process, and what may change them.

Rule 1: every change of state is a row of TRANSITIONS; a missing row is an error.
Rule 2: the journal's records and the history's lines use these words and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rq.errors import WrongState


class State(StrEnum):
    """Where a message is; the first seven are directories."""

    PREP = "prep"
    QUE = "que"
    RUN = "run"
    DONE = "done"
    RELAYED = "relayed"
    ERR = "err"
    DISMISSED = "dismissed"  # err/.ID: an error that was acknowledged
    NOWHERE = "nowhere"  # not yet made
    GONE = "gone"  # removed; never comes back


FINAL = frozenset({State.DONE, State.RELAYED, State.ERR, State.DISMISSED})
HASHED = frozenset({State.DONE, State.RELAYED})
LIVE = frozenset({State.PREP, State.QUE, State.RUN})
COUNTED = (
    State.PREP,
    State.QUE,
    State.RUN,
    State.DONE,
    State.RELAYED,
    State.ERR,
    State.DISMISSED,
)
_PUBLIC = {State.DISMISSED: "err"}


def public(state: State) -> str:
    """Return a state as the ancestor's clients know it."""
    return _PUBLIC.get(state, str(state))


class Role(StrEnum):
    """Who may cause an event."""

    CREATOR = "creator"  # whoever sends, and the operator
    QUEUE = "queue"  # the owner process
    CLEANER = "cleaner"


class Event(StrEnum):
    """What changes a state; the word in the journal."""

    PREPARE = "prepare"  # nowhere -> prep
    COMMIT = "commit"  # prep or nowhere -> que: the message is accepted
    CLAIM = "claim"  # que -> run: an attempt begins
    FINISH = "finish"  # run -> done
    RELAY = "relay"  # run -> relayed
    MOVE = "move"  # que, err -> relayed: a person lets it go on in another queue
    FAIL = "fail"  # run -> err
    RETRY = "retry"  # run -> que: the script asked for it; counted
    RECOVER = "recover"  # run -> que: the attempt was lost in a crash; counted
    REQUEUE = "requeue"  # run -> que uncounted (stop); err -> que by the operator
    RESCHEDULE = "reschedule"  # que -> que with a new due
    DISMISS = "dismiss"  # err -> err/.ID
    REOPEN = "reopen"  # err/.ID -> err: a person has not done with it
    DISCARD = "discard"  # removed by hand or by its creator
    EXPIRE = "expire"  # removed by age
    OBSERVE = "observe"  # a hand moved the folder while RQ was stopped


class Note(StrEnum):
    """Events of a queue that change no state; the journal has notes of its own."""

    SENT = "sent"  # an entry of an outbox was delivered, or given up
    AGAIN = "again"  # one in doubt is tried again
    GOES_ON = "goes_on"  # under which id a message goes on that has ended here
    STANDS = "told"  # how messages stand for which others wait
    JOIN = "join"  # who sent a message got the id of an equal one
    BULK = "bulk"  # one thing is done to many messages: begun, ended
    TXN = "txn"  # a transaction was opened, committed or aborted
    ROWS = "rows"  # rows that it may accept lie in a file
    SUSPECT = "suspect"  # a sync failed: files since the checkpoint are in doubt
    RENEW = "renew"  # leases go on
    START = "start"  # their holders have confirmed them
    CANCEL = "cancel"  # a person wants the holder of one to end it
    CLOCK = "clock"  # the wall clock stepped
    NEWS = "news"  # a queue tells how it goes, without the end of a message
    STOPPED = "stopped"  # last line of a clean stop


_C, _Q, _K = Role.CREATOR, Role.QUEUE, Role.CLEANER

TRANSITIONS: dict[tuple[State, Event], tuple[State, frozenset[Role]]] = {
    (State.NOWHERE, Event.PREPARE): (State.PREP, frozenset({_C})),
    (State.NOWHERE, Event.COMMIT): (State.QUE, frozenset({_C})),
    (State.NOWHERE, Event.FAIL): (State.ERR, frozenset({_Q})),  # malformed, at the door
    (State.PREP, Event.PREPARE): (State.PREP, frozenset({_C})),  # new content
    (State.PREP, Event.COMMIT): (State.QUE, frozenset({_C})),
    (State.PREP, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.PREP, Event.EXPIRE): (State.GONE, frozenset({_Q, _K})),
    (State.QUE, Event.CLAIM): (State.RUN, frozenset({_Q})),
    (State.QUE, Event.RESCHEDULE): (State.QUE, frozenset({_C, _Q})),
    (State.QUE, Event.FAIL): (State.ERR, frozenset({_Q})),
    (State.QUE, Event.RECOVER): (State.QUE, frozenset({_Q})),
    (State.QUE, Event.FINISH): (State.DONE, frozenset({_Q})),  # riders
    (State.QUE, Event.RELAY): (State.RELAYED, frozenset({_Q})),  # riders
    (State.QUE, Event.MOVE): (State.RELAYED, frozenset({_C})),
    (State.QUE, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.RUN, Event.FINISH): (State.DONE, frozenset({_Q})),
    (State.RUN, Event.RELAY): (State.RELAYED, frozenset({_Q})),
    (State.RUN, Event.FAIL): (State.ERR, frozenset({_Q})),
    (State.RUN, Event.RETRY): (State.QUE, frozenset({_Q})),
    (State.RUN, Event.RECOVER): (State.QUE, frozenset({_Q})),
    (State.RUN, Event.REQUEUE): (State.QUE, frozenset({_Q})),
    (State.ERR, Event.REQUEUE): (State.QUE, frozenset({_C})),
    (State.ERR, Event.DISMISS): (State.DISMISSED, frozenset({_C})),
    (State.ERR, Event.MOVE): (State.RELAYED, frozenset({_C})),
    (State.ERR, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.DISMISSED, Event.REQUEUE): (State.QUE, frozenset({_C})),
    (State.DISMISSED, Event.REOPEN): (State.ERR, frozenset({_C})),
    (State.DISMISSED, Event.MOVE): (State.RELAYED, frozenset({_C})),
    (State.DISMISSED, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.DISMISSED, Event.EXPIRE): (State.GONE, frozenset({_K})),
    (State.DONE, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.DONE, Event.EXPIRE): (State.GONE, frozenset({_K})),
    (State.RELAYED, Event.DISCARD): (State.GONE, frozenset({_C})),
    (State.RELAYED, Event.EXPIRE): (State.GONE, frozenset({_K})),
}


def next_state(state: State, event: Event, role: Role) -> State:
    """Return the state that `event` leads to; WrongState when the table has no row."""
    row = TRANSITIONS.get((state, event))
    if row is None:
        raise WrongState(f"a message in {state} cannot {event}")
    target, roles = row
    if role not in roles:
        raise WrongState(f"{role} may not {event} a message in {state}")
    return target


class Child(StrEnum):
    """The states of a process that the supervisor minds."""

    DOWN = "DOWN"
    STARTING = "STARTING"
    UP = "UP"
    BACKOFF = "BACKOFF"
    FATAL = "FATAL"
    STOPPING = "STOPPING"
    PARKED = "PARKED"  # it has ended, and its socket is held for the next who connects


class ChildEvent(StrEnum):
    """What happens to a child process."""

    START = "start"
    READY = "ready"
    EXIT = "exit"
    GIVE_UP = "give_up"
    STOP = "stop"
    PARK = "park"


CHILD_TRANSITIONS: dict[tuple[Child, ChildEvent], Child] = {
    (Child.DOWN, ChildEvent.START): Child.STARTING,
    (Child.STARTING, ChildEvent.READY): Child.UP,
    (Child.STARTING, ChildEvent.EXIT): Child.BACKOFF,
    (Child.STARTING, ChildEvent.STOP): Child.STOPPING,
    (Child.UP, ChildEvent.EXIT): Child.BACKOFF,
    (Child.UP, ChildEvent.STOP): Child.STOPPING,
    (Child.BACKOFF, ChildEvent.START): Child.STARTING,
    (Child.BACKOFF, ChildEvent.STOP): Child.DOWN,
    (Child.BACKOFF, ChildEvent.GIVE_UP): Child.FATAL,
    (Child.FATAL, ChildEvent.START): Child.STARTING,
    (Child.FATAL, ChildEvent.STOP): Child.DOWN,
    (Child.STOPPING, ChildEvent.EXIT): Child.DOWN,
    (Child.UP, ChildEvent.PARK): Child.PARKED,
    (Child.DOWN, ChildEvent.PARK): Child.PARKED,  # it was when RQ stopped
    (Child.PARKED, ChildEvent.START): Child.STARTING,
    (Child.PARKED, ChildEvent.STOP): Child.DOWN,
}


def next_child(state: Child, event: ChildEvent) -> Child:
    """Return the child's next state; WrongState when the table has no row."""
    try:
        return CHILD_TRANSITIONS[state, event]
    except KeyError:
        raise WrongState(f"a child that is {state} cannot {event}") from None


def version_of(view: Mapping[str, object]) -> str:
    """Return as what a message was seen that is shown so, for `if_version`: its state and
    its starts, as its owner compares them."""
    state = State.DISMISSED if view.get("acknowledged") else view["state"]
    return f"{state}-{view.get('attempt', 0)}"
