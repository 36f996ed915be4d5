"""What is answered for a parked queue without starting it: the table of commands says of each
whether `parked.json` has the answer, or a folder, or only a process.

It holds as long as everything lies as the queue has left it; else None says: ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rq import names
from rq.config import parked
from rq.config.crowd import Crowd
from rq.config.parked import Answer
from rq.errors import NoSuchMessage
from rq.layout import QueueDir, Root
from rq.rpc import wire
from rq.rpc.lines.commands import COMMANDS, Parked
from rq.words.states import public


def answer(root: Root, name: str, command: str, arg: object = b"") -> Answer | None:
    """Return what a parked queue answers; None: it has to be asked, or is not parked."""
    match COMMANDS[command].parked:
        case Parked.FILE:
            return parked.answer(root, name, command)
        case Parked.NOTHING if parked.is_current(root, name):
            return ["ok", []]
        case Parked.FOLDER if isinstance(arg, Mapping) and {*arg} == {"msg_id"}:
            if names.is_msg_id(arg["msg_id"]) and parked.is_current(root, name):
                return _state(root.queue(name), arg["msg_id"])
    return None


def of_many(
    root: Root, crowd: Crowd, queues: Sequence[str], command: str, arg: object = b""
) -> Mapping[str, Answer]:
    """As `answer`, of many that are looked at together: those that need not be asked."""
    match COMMANDS[command].parked:
        case Parked.FILE:
            return crowd.answers(queues, command)
        case Parked.NOTHING:
            return {name: ["ok", []] for name in crowd.current(queues)}
        case Parked.FOLDER if isinstance(arg, Mapping) and {*arg} == {"msg_id"}:
            if names.is_msg_id(msg_id := arg["msg_id"]):
                return {
                    name: _state(root.queue(name), msg_id)
                    for name in crowd.current(queues)
                }
    return {}


def _state(queue: QueueDir, msg_id: str) -> Answer:
    """Return where the folder of a message lies: all that is parked is settled."""
    from rq.spool import folders  # what only asks a process need not load it

    state = folders.find(queue, msg_id)
    if state is None:
        return wire.failure(NoSuchMessage("msg not found"), with_kind=True)
    return ["ok", public(state)]
