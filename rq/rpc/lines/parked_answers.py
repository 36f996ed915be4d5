"""What is answered for a parked queue without starting it: the table of commands says of each
whether `parked.json` has the answer, or a folder, or only a process.

It holds as long as everything lies as the queue has left it; else None says: ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeGuard

from rq import names
from rq.config import parked
from rq.config.crowd import Crowd
from rq.config.parked import Answer
from rq.errors import NoSuchMessage
from rq.layout import QueueDir, Root
from rq.rpc import wire
from rq.rpc.lines.commands import COMMANDS, MOST_ENDS, MOST_STATES, Parked
from rq.words.states import public


def answer(root: Root, name: str, command: str, arg: object = b"") -> Answer | None:
    """Return what a parked queue answers; None: it has to be asked, or is not parked."""
    match COMMANDS[command].parked:
        case Parked.FILE:
            return parked.answer(root, name, command)
        case Parked.NOTHING if parked.is_current(root, name):
            return ["ok", []]
        case Parked.FOLDER if isinstance(arg, Mapping):
            return _from_folders(root, name, command, arg)
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
        case Parked.FOLDER if isinstance(arg, Mapping):
            look = _FOLDERS[command]
            answers = {
                name: look(root.queue(name), arg) for name in crowd.current(queues)
            }
            # As in `_from_folders`: what a message leaves and enters is no one moment.
            return {
                name: each
                for name in crowd.current(answers)
                if (each := answers[name]) is not None
            }
    return {}


def _from_folders(
    root: Root, name: str, command: str, arg: Mapping[str, object]
) -> Answer | None:
    """Return what folders of messages say: all that is parked is settled. None: they may
    have changed meanwhile, or only a process says what is wrong with the question."""
    if not parked.is_current(root, name):
        return None
    said = _FOLDERS[command](root.queue(name), arg)
    return said if parked.is_current(root, name) else None


def _state(queue: QueueDir, arg: Mapping[str, object]) -> Answer | None:
    from rq.spool import folders  # what only asks a process need not load it

    msg_id = arg.get("msg_id")
    if {*arg} != {"msg_id"} or not _is_msg_id(msg_id):
        return None
    state = folders.find(queue, msg_id)
    if state is None:
        return wire.failure(NoSuchMessage("msg not found"), with_kind=True)
    return ["ok", public(state)]


def _states(queue: QueueDir, arg: Mapping[str, object]) -> Answer | None:
    from rq.spool import at_rest

    deep, follow = arg.get("deep") is True, arg.get("follow") is True
    msg_ids = _msg_ids(arg, MOST_STATES)
    if msg_ids is None:
        return None
    said = {
        each: at_rest.standing(queue, each, deep=deep, follow=follow)
        for each in msg_ids
    }
    return ["ok", said]


def _ends(queue: QueueDir, arg: Mapping[str, object]) -> Answer | None:
    from rq.spool import at_rest

    msg_ids = _msg_ids(arg, MOST_ENDS)
    if msg_ids is None:
        return None
    return ["ok", {each: at_rest.end(queue, each) for each in msg_ids}]


def _msg_ids(arg: Mapping[str, object], most: int) -> list[str] | None:
    msg_ids = arg.get("msg_ids")
    if not isinstance(msg_ids, list) or len(msg_ids) > most:
        return None
    return msg_ids if all(map(_is_msg_id, msg_ids)) else None


def _is_msg_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and names.is_msg_id(value)


_FOLDERS: Final[
    Mapping[str, Callable[[QueueDir, Mapping[str, object]], Answer | None]]
] = {"get_message_state": _state, "get_states": _states, "get_ends": _ends}
