"""Which message is meant by what a person types."""

from __future__ import annotations

import os

from rq import names
from rq.cli import place
from rq.cli.owner import Reader
from rq.errors import BadInput, NoSuchMessage
from rq.layout import QueueDir, Root
from rq.message.after import GATES

_Target = tuple[str, str]  # queue, short id
_BEGINNING_STATES = ("prep", "que", "run", "err")


def resolve(reader: Reader, text: str) -> _Target:
    """Return (queue, short id) for a short id or its beginning, QUEUE/ID, or a URL."""
    if "/" in text:
        return _in_named_queue(reader, text)
    bare = text.removeprefix(".")
    if names.is_msg_id(bare):
        targets = [
            (queue, bare)
            for queue in place.queue_names(reader.root)
            if reader.state(queue, bare) is not None
        ]
    else:
        targets = _by_beginning(reader.root, place.queue_names(reader.root), bare)
    return _single(text, targets)


def _in_named_queue(reader: Reader, text: str) -> _Target:
    queue, _, rest = _path(text).partition("/")
    place.queue_dir(reader.root, queue)
    bare = rest.partition("/")[0].removeprefix(".")
    if names.is_msg_id(bare):
        return queue, bare
    return _single(text, _by_beginning(reader.root, [queue], bare))


def _path(text: str) -> str:
    """Return QUEUE/ID and what follows; `/flows/ID` is where the web shows a flow."""
    if "/q/" in text:
        return text.split("/q/", 1)[1]
    if "/flows/" in text:
        return f"{GATES}/{text.split('/flows/', 1)[1]}"
    return text.removeprefix("q/")


def _by_beginning(root: Root, queues: list[str], text: str) -> list[_Target]:
    if not text or not text.replace(".", "").isdigit():
        if text in queues:
            raise BadInput(
                f"{text} is a queue, not a message: `rq ls {text}` lists the ids of its "
                f"messages, `rq ls {text} --state done` those that succeeded"
            )
        raise BadInput(
            f"{text!r} is not a message id, which looks like 20260102.0304.05.006.7"
        )
    return [
        (queue, msg_id)
        for queue in queues
        for state in _BEGINNING_STATES
        for msg_id in _ids_in(root.queue(queue), state)
        if msg_id.startswith(text)
    ]


def _ids_in(queue: QueueDir, state: str) -> list[str]:
    try:
        entries = os.listdir(queue.path / state)
    except FileNotFoundError:
        return []
    return [
        name.removeprefix(".") for name in entries if names.is_msg_id(name.lstrip("."))
    ]


def _single(text: str, targets: list[_Target]) -> _Target:
    if not targets:
        raise NoSuchMessage(
            f"there is no message {text}; `rq ls` lists what waits, runs and failed"
        )
    if len(targets) > 1:
        some = ", ".join(f"{queue}/{msg_id}" for queue, msg_id in targets[:3])
        raise BadInput(
            f"{len(targets)} messages begin with {text}: {some}; type more of it"
        )
    return targets[0]
