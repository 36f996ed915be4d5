"""What an owner does for each action, asked for one message or for many.

An action is one event, and so one line of the journal: for one message and for one of a
bulk alike, whose line also names the bulk. So no action may be made of two events, or a
crash between them would leave half of it; and none may wait, for what was looked at
before might be otherwise after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from rq.errors import BadInput, BadMessage, WrongState
from rq.message.action import Action, Door, Value
from rq.message.actions import ACTIONS, Word, at
from rq.message.after import GATES
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.queues.bulk import retry
from rq.queues.delivery import copies
from rq.queues.leases.desk import Desk
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner
from rq.spool import Spool
from rq.spool.bulk import told_to_end
from rq.spool.record import Facts, More
from rq.words.nesting import Json
from rq.words.states import FINAL, Event, Role, State, next_state


@dataclass(frozen=True, slots=True)
class Deed:
    """An action, what it is done with, and who asks for it."""

    action: Action
    by: str
    given: Mapping[str, Value] = field(default_factory=dict)

    def ends_attempts(self, state: State) -> bool:
        """Whether nothing of the last attempt of a message in `state` may be left before
        it is done: the message may run again at once."""
        return self.action.runs_again and state in FINAL

    @property
    def to(self) -> Json:
        """What it is done with, as a bulk says it."""
        return next(iter(self.given.values()), None)


def deed_of(owner: Owner, action: Action, request: Mapping[str, Json], by: str) -> Deed:
    """Return what a request asks for; an error if it cannot be done so."""
    _check_final(owner, action)
    given: dict[str, Value] = {}
    for takes in action.takes:
        value = request.get(takes.name)
        if value is None and takes.default is not None:
            given[takes.name] = takes.default
        elif value is not None or takes.is_required:
            given[takes.name] = takes.read(value)
    if action.word is Word.MOVE:
        _check_target(owner, str(given["to"]))
    return Deed(action, by, given)


def _check_final(owner: Owner, action: Action) -> None:
    """WrongState when what sends flows is to run again: others were told how it ended."""
    if owner.name == GATES and action.word in (Word.RETRY, Word.MOVE):
        raise WrongState(
            "how a flow has ended is final: `rq flow rerun ID` sends it again, "
            "`rq flow retry ID` runs its messages again that have failed"
        )


def _check_target(owner: Owner, dest: str) -> None:
    """Raise why no message can be moved there now."""
    if dest == owner.name:
        raise BadInput(f"queue {dest} is where it is: say another one")
    copies.target(owner.root, dest)


def of_many(word: object) -> Action:
    """Return the action that is asked for; BadInput if a bulk cannot do it."""
    if isinstance(word, str) and word in _OF_MANY:
        return _OF_MANY[word]
    raise BadInput(f"action is {word!r:.40}, not one of {', '.join(_OF_MANY)}")


def deed_of_many(owner: Owner, action: Action, to: Json, by: str) -> Deed:
    """Return what the request for a bulk asks for; an error if that cannot be done."""
    if not action.takes and to is not None:
        may = ", ".join(word for word, row in _OF_MANY.items() if row.takes)
        raise BadInput(f"{action.word} takes no 'to', only {may} do")
    try:
        return deed_of(owner, action, dict.fromkeys(_names(action), to), by)
    except BadMessage as error:
        raise BadInput(f"'to' of {action.word}: {error}") from None


def deed_of_bulk(word: str, to: Json, by: str) -> Deed:
    """Return what a bulk that has begun does, as the journal holds it."""
    action = ACTIONS[Word(word)]
    return Deed(action, by, dict.fromkeys(_names(action), cast("Value", to)))


def _names(action: Action) -> list[str]:
    return [takes.name for takes in action.takes]


_OF_MANY = at(Door.BULK)


def check_state(action: Action, state: State) -> None:
    """BadInput when nothing can be done so to messages of a state."""
    if state not in action.all_states:
        raise BadInput(action.refuses(state))


def is_done(spool: Spool, action: Action, msg_id: str) -> bool:
    """Whether a message that waits is held, or not held, already."""
    entry = spool.entry_of(msg_id)
    if entry is None or action.word not in (Word.HOLD, Word.RELEASE):
        return False
    return entry.held == (action.word is Word.HOLD)


@dataclass(frozen=True, slots=True)
class Hands:
    """What acts on messages."""

    owner: Owner
    runner: Runner
    leases: Desk

    def act(self, deed: Deed, msg_id: str, more: More) -> bool:
        """Do it to a message; a line of the journal with the fields `more` says so.
        RQError when it cannot be done now; False: it is so already."""
        return DOES[Word(deed.action.word)](self, deed, msg_id, more) is not False

    def cancelled(self, msg_id: str, who: str) -> bool:
        """End a running message here, or ask its holder to; False when no process works
        on it."""
        return self.runner.cancel(msg_id, who) or self.leases.cancel(msg_id, who)


def _run(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    state = hands.owner.spool.state_of(msg_id)
    if state is State.RUN:
        raise WrongState("msg already running")
    if state is not State.QUE:
        raise WrongState("msg not in runnable state")
    hands.owner.run_now(msg_id)


def _retry(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    owner = hands.owner
    next_state(owner.spool.state_of(msg_id), Event.REQUEUE, Role.CREATOR)
    retry.again(owner, msg_id, deed.by, **more)


def _move(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    """Move a message that waits, or has failed, to another queue; of one that has failed
    the last attempt has ended. It runs there when it would have run here.

    It ends here as relayed, and the same line of the journal owes a copy to that queue. So
    a crash cannot part the two, and the copy is delivered once, under its key; its origin
    is the message here, which keeps log and attachments.
    """
    owner, dest = hands.owner, str(deed.given["to"])
    state = owner.spool.state_of(msg_id)
    next_state(state, Event.MOVE, Role.CREATOR)
    taker = owner.spool.owed.taker_of(msg_id)
    if taker is not None:
        raise WrongState(f"msg has still to be handed on to {taker}")
    message, now = owner.spool.read(msg_id), owner.spool.clock()
    if message.held is not None:
        raise WrongState("msg is held: release it, then move it")
    due = owner.backlog.due_of(msg_id) if state is State.QUE else now
    facts: Facts = {
        "cause": Cause.MOVED,
        "outcome": "relayed",
        "text": f"moved to {dest} by {deed.by}",
    }
    copy = copies.moved(owner.settings, message, dest, due)
    if message.wait is not None:  # it waits on there
        names = ("after", "after_rule", "after_fail")
        waits = {
            name: value for name in names if (value := message.to_json().get(name))
        }
        copy = {**copy, "message": {**copy["message"], **waits}}
    further: More = {**more, "out": [copy]}
    owner.spool.fire(msg_id, Event.MOVE, Role.CREATOR, facts=facts, **further)
    owner.backlog.remove(msg_id)


def _acknowledge(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    spool = hands.owner.spool
    if spool.state_of(msg_id) is State.DISMISSED:
        raise WrongState(f"msg {deed.action.already}")
    spool.fire(msg_id, Event.DISMISS, Role.CREATOR, **more)


def _take_back(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    spool = hands.owner.spool
    if spool.state_of(msg_id) is State.ERR:
        raise WrongState(f"msg {deed.action.already}")
    spool.fire(msg_id, Event.REOPEN, Role.CREATOR, **more)


def _hold(hands: Hands, deed: Deed, msg_id: str, more: More) -> bool:
    return hands.owner.hold(msg_id, deed.by, str(deed.given["why"]), **more)


def _release(hands: Hands, deed: Deed, msg_id: str, more: More) -> bool:
    return hands.owner.release(msg_id, deed.by, **more)


def _release_after(hands: Hands, deed: Deed, msg_id: str, more: More) -> bool:
    owner = hands.owner
    end: JsonObject = {"end": "release", "by": deed.by, "at": owner.spool.clock()}
    changed = owner.backlog.free(msg_id, end, Role.CREATOR)
    owner.wake()
    return changed


def _steer(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    """Change when a message in que runs."""
    owner, given = hands.owner, deed.given
    if not given:
        raise BadInput("say what to change: due, priority, or both")
    state = owner.spool.state_of(msg_id)
    if state is not State.QUE:
        raise WrongState(f"msg does not wait, it is in {state}")
    due, priority = given.get("due"), given.get("priority")
    owner.backlog.steer(
        msg_id,
        due=None if due is None else float(due),
        priority=None if priority is None else int(priority),
        **more,
    )


def _cancel(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    """End one that runs, remove one that waits."""
    spool = hands.owner.spool
    if spool.find(msg_id) is not State.RUN:
        _delete(hands, deed, msg_id, more)
        return
    if not hands.cancelled(msg_id, deed.by):
        raise WrongState("msg is in run, and no process works on it")
    if "bulk" in more:
        told_to_end(spool, msg_id, more)


def _delete(hands: Hands, deed: Deed, msg_id: str, more: More) -> None:
    owner = hands.owner
    if owner.spool.state_of(msg_id) is State.RUN:
        raise WrongState("msg is running: destroy it first")
    owner.discard(msg_id, **more)


# The others make a new message, end a batch, or accept a message: each is a command of
# its own, in `queues.control`.
DOES: Mapping[Word, Callable[[Hands, Deed, str, More], bool | None]] = {
    Word.RUN: _run,
    Word.RETRY: _retry,
    Word.ACK: _acknowledge,
    Word.UNACK: _take_back,
    Word.HOLD: _hold,
    Word.RELEASE: _release,
    Word.RELEASE_AFTER: _release_after,
    Word.SET: _steer,
    Word.DUE: _steer,
    Word.PRIORITY: _steer,
    Word.MOVE: _move,
    Word.CANCEL: _cancel,
    Word.DELETE: _delete,
}
