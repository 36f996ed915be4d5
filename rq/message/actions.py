"""What may be done to a message: the one table of its actions.

Every door reads it, and none keeps a list of its own: the owner's commands and what a bulk
does (`queues.bulk.actions`), the ancestor's REST (`web.messages`), `/api/v1`
(`web.api.actions`, `web.api.bulks`), the pages with their buttons and questions, the verbs
of the command line (`cli.change`), and the table in docs/reference/messages.md. So an
action that is added here has a button, a question, an operation and a verb; what it does
stands in `queues.bulk.actions.DOES`.

What is true of every row:

- It has one word, at all doors. Words that were used before are `aliases` of a door, and
  mean the same for ever: programs say them.
- `states` are those in which the owner does it. A door shows it for these and no others.
  `removes` are those in which a bulk and the command line remove the message instead:
  only `cancel` has some, for what waits has no process to end.
- What it is done with is a field of its command, and the same value is `to` of a bulk, a
  field of the page that asks, and an option of the verb (`takes`).
- What a person reads of it (`about`, `explains`, `done`) is the same at all doors.

The rows stand in the order in which a page shows their buttons: the likeliest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rq.errors import BadInput
from rq.message.action import EVERYWHERE, Action, Confirm, Door, Many, Takes
from rq.message.rank import LEAST, MOST
from rq.words import moments
from rq.words.states import State

if TYPE_CHECKING:
    from rq.words.nesting import Json


class Word(StrEnum):
    """An action, by its one word."""

    COMMIT = "commit"
    RUN = "run"
    RETRY = "retry"
    EDIT = "edit"
    ACK = "ack"
    UNACK = "unack"
    HOLD = "hold"
    RELEASE = "release"
    RELEASE_AFTER = "release_after"
    SET = "set"
    DUE = "due"
    PRIORITY = "priority"
    MOVE = "move"
    CANCEL = "cancel"
    CANCEL_BATCH = "cancel_batch"
    CLONE = "clone"
    DELETE = "delete"


# `rq --help` reads the rows, and must be quick: what reads values is imported with one.
def _why(value: Json) -> str:
    from rq.message import fields

    return fields.why(value)


def _due(value: Json) -> float:
    from rq.message import fields

    return fields.due(value)


def _priority(value: Json) -> int:
    from rq.message import fields

    return fields.priority(value)


def _as_said(text: str, now: float, zone: tzinfo | None) -> Json:
    return text


def _digit(text: str, now: float, zone: tzinfo | None) -> Json:
    if not text.isdecimal() or len(text) > 1:
        raise BadInput(f"priority is a number from {LEAST} to {MOST}, not {text!r:.40}")
    return int(text)


def _queue(value: Json) -> str:
    if not isinstance(value, str):
        raise BadInput(f"move needs 'to', the name of a queue, not {value!r:.40}")
    return value


_WHY = Takes(
    name="why",
    label="Why",
    option="--why",
    metavar="TEXT",
    help="shown with each",
    read=_why,
    said=_as_said,
    default="",
)
_TO = Takes(
    name="to",
    label="Queue",
    option="--to",
    metavar="QUEUE",
    help="the queue that runs them",
    read=_queue,
    said=_as_said,
    example="text",
)
_DUE = Takes(
    name="due",
    label="Due, as +10m or 2026-01-02T03:04 (UTC)",
    option="--at",
    metavar="TIME",
    help="now, +10m, epoch seconds or 2026-01-02T03:04",
    read=_due,
    said=moments.due,
)
_PRIORITY = Takes(
    name="priority",
    label=f"Priority, {LEAST} to {MOST}",
    option="--to",
    metavar="N",
    help=f"{LEAST} to {MOST}; messages have {LEAST} unless they are sent with another",
    read=_priority,
    said=_digit,
)

_FAILED = (State.ERR, State.DISMISSED)
_ENDED = (State.DONE, State.RELAYED, *_FAILED)
_ALONE = EVERYWHERE - {Door.BULK}  # not for many messages at once

_ROWS = (
    Action(
        word=Word.COMMIT,
        label="Commit",
        about="Accept a prepared message.",
        explains="It is accepted as it is now and runs when it is due.",
        done="is committed",
        states=(State.PREP,),
        reply="msg commited",
        role="producer",
        confirm=Confirm(title="Commit this message?"),
        doors=_ALONE - {Door.CLI},
        quick=True,
        icon="ok",
    ),
    Action(
        word=Word.RUN,
        label="Run now",
        about="Run a waiting message before all others.",
        explains="It starts before all others, and does not wait until it is due.",
        done="runs before all others",
        states=(State.QUE,),
        reply="msg sent to front of run queue",
        confirm=Confirm(title="Run this message now?"),
        doors=_ALONE,
        aliases={Door.REST: ("run_now",), Door.PAGE: ("run_now",)},
        held=False,
        quick=True,
        icon="play",
    ),
    Action(
        word=Word.RETRY,
        label="Retry",
        about="Run a message again that has failed.",
        explains="It keeps its id, and its retries count from 0.",
        done="will run again",
        states=_FAILED,
        reply="msg sent round again",
        confirm=Confirm(title="Run this message again?"),
        many=Many(question="Run {} again?", done="will run again", state=State.ERR),
        runs_again=True,
        quick=True,
        icon="run",
        key="r",
    ),
    Action(
        word=Word.EDIT,
        label="Edit and send again",
        about="Send a message that has ended again, with other fields.",
        explains="A new message, which names it, has its attachments. One that has failed "
        "is acknowledged.",
        done="is sent again as {new}",
        states=_ENDED,
        doors=_ALONE - {Door.REST},
        icon="prep",
    ),
    Action(
        word=Word.ACK,
        label="Acknowledge",
        about="Acknowledge a message that has failed.",
        explains="The message is kept, and no longer counted as needing attention.",
        done="is acknowledged",
        states=(State.ERR,),
        reply=1,  # how many, as the ancestor answers
        already="is acknowledged already",
        confirm=Confirm(title="Acknowledge this error?"),
        many=Many(question="Acknowledge {}?", done="acknowledged", state=State.ERR),
        aliases={Door.SOCKET: ("ack_errs",), Door.API: ("dismiss",)},
        quick=True,
        icon="errack",
        key="a",
    ),
    Action(
        word=Word.UNACK,
        label="Take acknowledgement back",
        about="Take the acknowledgement of a failed message back.",
        explains="The message counts again as needing attention.",
        done="needs a person again",
        states=(State.DISMISSED,),
        reply="msg is in err again",
        already="is not acknowledged",
        confirm=Confirm(title="Take the acknowledgement back?", button="Take it back"),
        many=Many(
            question="Take the acknowledgement of {} back?",
            done="in need of a person again",
            state=State.DISMISSED,
        ),
        aliases={Door.SOCKET: ("reopen_message",), Door.API: ("reopen",)},
    ),
    Action(
        word=Word.HOLD,
        label="Hold",
        about="Keep a waiting message from running until it is released.",
        explains="It waits, however long it is due, until a person releases it.",
        done="is held",
        states=(State.QUE,),
        reply="msg is held",
        already="is held already",
        takes=(_WHY,),
        confirm=Confirm(title="Hold this message?"),
        many=Many(
            question="Hold {} until they are released?", done="held", state=State.QUE
        ),
        held=False,
        icon="pause",
    ),
    Action(
        word=Word.RELEASE,
        label="Release",
        about="Let a message go on that is held.",
        explains="It starts when it is due and its turn has come.",
        done="is released",
        states=(State.QUE,),
        reply="msg is released",
        already="is not held",
        confirm=Confirm(title="Release this message?"),
        many=Many(question="Let {} go on?", done="released", state=State.QUE),
        held=True,
        quick=True,
        icon="play",
    ),
    Action(
        word=Word.RELEASE_AFTER,
        label="Wait no longer",
        about="Let a message go on without those that it waits for.",
        explains="It starts when it is due and its turn has come, however they end.",
        done="waits for no other message",
        states=(State.QUE,),
        asks="release_after",
        reply="msg waits for no other",
        already="waits for no other",
        confirm=Confirm(title="Let this message wait for no other?"),
        doors=_ALONE - {Door.REST, Door.CLI},
        waits=True,
        icon="play",
    ),
    Action(
        word=Word.SET,
        label="Set",
        about="Change when a waiting message runs.",
        explains="Its priority or its due, or both.",
        done="is changed",
        states=(State.QUE,),
        reply="msg changed",
        takes=(replace(_DUE, optional=True), replace(_PRIORITY, optional=True)),
        doors=frozenset({Door.SOCKET, Door.API}),
    ),
    Action(
        word=Word.DUE,
        label="Set due",
        about="Set when a waiting message runs.",
        explains="It runs earlier or later than it would.",
        done="is due at {due}",
        states=(State.QUE,),
        asks="set_message",
        takes=(_DUE,),
        many=Many(
            question="Let {} run at that time?",
            done="given another time",
            state=State.QUE,
        ),
        doors=frozenset({Door.BULK, Door.CLI}),
    ),
    Action(
        word=Word.PRIORITY,
        label="Set priority",
        about="Set the priority of a waiting message.",
        explains="Of those that are due, 9 starts first.",
        done="has priority {priority}",
        states=(State.QUE,),
        asks="set_message",
        takes=(_PRIORITY,),
        many=Many(
            question="Give {} that priority?",
            done="given another priority",
            state=State.QUE,
        ),
        doors=frozenset({Door.BULK, Door.CLI}),
    ),
    Action(
        word=Word.MOVE,
        label="Move",
        about="Let a message that waits, or has failed, go on in another queue.",
        explains="It goes on there, with its parameters and attachments. Here it counts "
        "as relayed, and keeps its log.",
        done="is moved to {to}",
        states=(State.QUE, *_FAILED),
        reply="msg moved to {to}",
        takes=(_TO,),
        confirm=Confirm(title="Move this message to another queue?"),
        many=Many(question="Move {} to the other queue?", done="moved"),
        held=False,
        runs_again=True,
        icon="out",
    ),
    Action(
        word=Word.CANCEL,
        label="Cancel",
        about="End a running message.",
        explains="Its script is told to stop, and killed if it does not. The message "
        "goes to err.",
        done="is being cancelled",
        states=(State.RUN,),
        removes=(State.QUE,),
        reply="msg is being cancelled",
        confirm=Confirm(title="Cancel this message?", button="Cancel the message"),
        many=Many(
            question="Remove those that wait, end those that run: {}?", done="cancelled"
        ),
        aliases={Door.SOCKET: ("destroy_message",), Door.REST: ("destroy",)},
        batch=False,
        danger=True,
        quick=True,
        icon="err",
        key="c",
    ),
    Action(
        word=Word.CANCEL_BATCH,
        label="Cancel batch",
        about="End the batch that a message runs in.",
        explains="This message runs in a batch: one process for all of it. The process is "
        "told to stop, and killed if it does not. All messages of the batch that have not "
        "ended go to err.",
        done="is being cancelled with its batch",
        states=(State.RUN,),
        asks="cancel_batch",
        confirm=Confirm(title="Cancel the whole batch?", button="Cancel the batch"),
        doors=_ALONE - {Door.CLI},
        batch=True,
        danger=True,
        quick=True,
        icon="err",
        key="c",
    ),
    Action(
        word=Word.CLONE,
        label="Clone",
        about="Send a copy of a message that has ended.",
        explains="A new message with the same parameters and attachments is sent to "
        "this queue.",
        done="is cloned as {new}",
        states=_ENDED,
        role="producer",
        confirm=Confirm(title="Clone this message?"),
        doors=_ALONE - {Door.REST, Door.CLI},
        icon="copy",
    ),
    Action(
        word=Word.DELETE,
        label="Delete",
        about="Remove a message for good that does not run.",
        explains="Its folder with log and attachments is removed. This cannot be undone.",
        done="is deleted",
        states=(State.PREP, State.QUE, *_ENDED),
        reply="msg deleted",
        confirm=Confirm(title="Delete this message?", button="Delete the message"),
        many=Many(
            question="Delete {} for good, with logs and attachments?", done="deleted"
        ),
        gone=True,
        danger=True,
    ),
)


def _table(rows: Sequence[Action]) -> Mapping[Word, Action]:
    """Return the rows by their words. ValueError when a word has no row, or two have it,
    or when a door would not know which row is meant."""
    if [row.word for row in rows] != list(Word):
        raise ValueError("the rows of actions are not those of Word, in its order")
    for door in Door:
        words = [word for row in rows for word in _words(row, door)]
        if twice := {word for word in words if words.count(word) > 1}:
            raise ValueError(f"{door} has two actions {', '.join(sorted(twice))}")
    return MappingProxyType({Word(row.word): row for row in rows})


def _words(row: Action, door: Door) -> tuple[str, ...]:
    """Return what a row is called at a door, its own word first; () if it is not there."""
    if door not in row.doors:
        return ()
    own = row.command if door is Door.SOCKET else str(row.word)
    return (own, *row.aliases.get(door, ()))


ACTIONS: Final = _table(_ROWS)


def at(door: Door) -> dict[str, Action]:
    """Return the actions of a door by all words that it knows, the old ones included."""
    return {word: row for row in ACTIONS.values() for word in _words(row, door)}


def offered(
    door: Door,
    state: State,
    *,
    held: bool = False,
    batch: bool = False,
    waits: bool = False,
) -> list[Action]:
    """Return what may be done to one message that is so."""
    return [
        row
        for row in ACTIONS.values()
        if door in row.doors
        and state in row.states
        and row.held in (None, held)
        and row.batch in (None, batch)
        and row.waits in (None, waits)
    ]


def offered_for_many(state: State) -> list[Action]:
    """Return what may be done to all messages of a state; what removes them is in it
    once."""
    rows = [row for row in at(Door.BULK).values() if state in row.all_states]
    is_removed = any(state in row.removes for row in rows)
    return [row for row in rows if not (row.gone and is_removed)]
