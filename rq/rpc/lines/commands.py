"""The commands of an owner: the one table of what may be asked of a queue's process.

A row says what everything on the way to the handler has to know of a command:

- the owner: the least role that may ask it (`role`; `own`: RQ's own user and root
  alone), what stands behind its word (`takes`), whether it is answered while the queue is DOWN (`answered`), and whether it
  brings in something new (`creates`), which is paced when folders lag;
- both: what is read for it while the queue is parked (`parked`, see `parked_answers`): such
  an answer stays the same while there is nothing to do, so asking keeps no process there;
- the client (web, bridge, Spark, command line): over which of a queue's lines it goes
  (`lane`), whether it may be asked a second time when a line breaks under it (`looks`),
  and whether it takes so long that it has a line to itself (`slow`).

A command that creates has the line of its kind, which the owner may slow down; so has
a word of a lease, on which a script elsewhere waits. All others share a third, so that
looking never waits behind these. The reference of the socket says in a row for each
what argument and reply hold (docs/reference/socket.md, compared with this table).
Handlers stand in `rq.queues.control`: one for each row, and none without a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rq.access.roles import Role
from rq.message.action import Door
from rq.message.actions import at
from rq.rpc.wire import KINDS

MOST_ENDS = 100  # messages of a question for their ends
MOST_STATES = 500  # of one for their states


class Lane(StrEnum):
    """One of the lines that lead to an owner."""

    CREATE = "create"
    LEASE = "lease"
    LOOK = "look"


class Answered(StrEnum):
    """When a command is answered."""

    UP = "up"
    DOWN = "down"  # also while the queue is DOWN
    ALWAYS = "always"  # and while the disk takes no writes, or the directory is gone


class Parked(StrEnum):
    """What answers a command for a parked queue."""

    PROCESS = "process"  # it is started
    FILE = "file"  # that the queue has left; the answer depends on no argument
    FOLDER = "folder"  # of each message
    NOTHING = "nothing"  # there is none of it, or the queue would not be parked


class Takes(StrEnum):
    """What stands behind the word of a command."""

    OBJECT = "object"  # of JSON
    OPTIONAL = "optional"  # one, or nothing
    ANYTHING = "anything"  # what is no object says nothing, as with the ancestor


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of an owner's control socket."""

    role: Role
    answered: Answered = Answered.UP
    takes: Takes = Takes.OBJECT
    creates: bool = False  # something new is accepted by it
    slow: bool = False  # it copies, syncs or reads many files
    own: bool = False  # for RQ's own user and root alone
    parked: Parked = Parked.PROCESS

    @property
    def looks(self) -> bool:
        """Whether it changes nothing: what a viewer may ask does not."""
        return self.role is Role.VIEWER

    @property
    def lasts(self) -> bool:
        """Whether its answer holds while the queue has nothing to do."""
        return self.parked is not Parked.PROCESS

    @property
    def lane(self) -> Lane:
        """The line it goes over; workers ask for nothing but words of leases."""
        if self.creates:
            return Lane.CREATE
        return Lane.LEASE if self.role is Role.WORKER else Lane.LOOK


def _look(
    answered: Answered = Answered.UP,
    takes: Takes = Takes.OBJECT,
    *,
    own: bool = False,
    parked: Parked = Parked.PROCESS,
) -> Command:
    return Command(
        role=Role.VIEWER, answered=answered, takes=takes, own=own, parked=parked
    )


def _create(
    role: Role = Role.PRODUCER, *, slow: bool = False, own: bool = False
) -> Command:
    return Command(role=role, creates=True, slow=slow, own=own)


_ALWAYS, _DOWN = Answered.ALWAYS, Answered.DOWN
_OPTIONAL, _ANYTHING = Takes.OPTIONAL, Takes.ANYTHING
_LEASE = Command(role=Role.WORKER, answered=_DOWN)
_PRODUCE = Command(role=Role.PRODUCER)
_OPERATE = Command(role=Role.OPERATOR)

COMMANDS: Final[dict[str, Command]] = {
    # actions on messages; those that make a new one have rows of their own below
    **dict.fromkeys(at(Door.SOCKET), _OPERATE),
    "ack_errs": Command(role=Role.OPERATOR, takes=_ANYTHING),
    # the queue itself
    KINDS: _look(_ALWAYS, _ANYTHING),
    "ping": _look(_ALWAYS, _ANYTHING, parked=Parked.FILE),
    "uptime": _look(_ALWAYS, _ANYTHING),
    "config": _look(_ALWAYS, _ANYTHING),
    "status": _look(_ALWAYS, _ANYTHING, parked=Parked.FILE),
    "detail": _look(_ALWAYS, _ANYTHING, parked=Parked.FILE),
    "figures": _look(_ALWAYS, _ANYTHING, parked=Parked.FILE),
    "wake": Command(role=Role.PRODUCER, answered=_ALWAYS, takes=_ANYTHING),
    "shutdown": Command(role=Role.ADMIN, answered=_ALWAYS, takes=_ANYTHING),
    "mind": Command(role=Role.ADMIN, answered=_ALWAYS, takes=_ANYTHING, own=True),
    "seal": Command(role=Role.OPERATOR, answered=_DOWN, takes=_ANYTHING),
    "expire": Command(role=Role.OPERATOR, takes=_OPTIONAL),
    "check": Command(role=Role.OPERATOR, answered=_DOWN, takes=_OPTIONAL, slow=True),
    "restored": _look(_DOWN, _OPTIONAL, parked=Parked.FILE),
    "restore": Command(role=Role.ADMIN, answered=_ALWAYS),
    # its messages
    "get_message": _look(),
    "get_attempts": _look(),
    "get_message_state": _look(parked=Parked.FOLDER),
    "get_message_status": _look(),
    "get_ends": _look(_DOWN, parked=Parked.FOLDER),
    "ends": _look(_DOWN, own=True),
    "get_states": _look(_DOWN, parked=Parked.FOLDER),
    "num_messages": _look(takes=_ANYTHING, parked=Parked.FILE),
    "messages": _look(),
    "list": _look(),
    "await_end": _look(),
    # new ones
    "create_message": _create(),
    "create_messages": _create(),
    "prep_message": _create(),
    "single_que": _create(),
    "attach_message": _create(slow=True),
    "delete_attach_message": _PRODUCE,
    "commit_message": _create(slow=True),
    "take_copy": _create(own=True),
    "clone_message": _create(Role.OPERATOR, slow=True),
    "edit_message": _create(Role.OPERATOR),
    # transactions
    "open_txn": _create(),
    "prepare_txn": _create(),
    "add_rows": _create(),
    "drop_rows": _OPERATE,
    "commit_txn": _create(slow=True),
    "abort_txn": _PRODUCE,
    "show_txn": _look(_DOWN),
    "list_txns": _look(_DOWN, _OPTIONAL),
    # leases
    "lease": _LEASE,
    "start": _LEASE,
    "renew": _LEASE,
    "progress": _LEASE,
    "log": _LEASE,
    "finish": _LEASE,
    "file": _LEASE,
    "release": _LEASE,
    "leases": _look(_DOWN, _OPTIONAL, parked=Parked.FILE),
    # many at once
    "bulk": Command(role=Role.OPERATOR, slow=True),
    "cancel_bulk": _OPERATE,
    "show_bulk": _look(_DOWN),
    "list_bulks": _look(_DOWN, _ANYTHING),
    # what ended messages owe, and whom the queue tells
    "owes": _look(_DOWN, own=True),
    "owed": _look(_DOWN, _OPTIONAL, parked=Parked.NOTHING),
    "resolve_owed": Command(role=Role.OPERATOR, answered=_DOWN),
    "notices": _look(_DOWN, _ANYTHING),
    "test_notice": Command(role=Role.OPERATOR, takes=_ANYTHING),
}
