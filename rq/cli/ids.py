"""Which message is meant by what a person types."""

from __future__ import annotations

import os

from rq import names
from rq.cli import place
from rq.cli.owner import Reader
from rq.errors import BadInput, NoSuchMessage
from rq.layout import QueueDir, Root


def resolve(reader: Reader, text: str) -> tuple[str, str]:
    """Return (queue, short id) for a short id or its beginning, QUEUE/ID, or a URL."""
    if "/" in text:
        return _in_named_queue(reader, text)
    bare = text.removeprefix(".")
    if names.is_msg_id(bare):
        found = [
            (queue, bare)
            for queue in place.queue_names(reader.root)
            if reader.state(queue, bare) is not None
        ]
    else:
        found = _by_beginning(reader.root, place.queue_names(reader.root), bare)
    return _the_one(text, found)


def _in_named_queue(reader: Reader, text: str) -> tuple[str, str]:
    path = text.split("/q/", 1)[1] if "/q/" in text else text.removeprefix("q/")
    queue, _, rest = path.partition("/")
    place.queue_dir(reader.root, queue)
    bare = rest.partition("/")[0].removeprefix(".")
    if names.is_msg_id(bare):
        return queue, bare
    return _the_one(text, _by_beginning(reader.root, [queue], bare))


_BEGINNING_STATES = ("prep", "que", "run", "err")


def _by_beginning(root: Root, queues: list[str], text: str) -> list[tuple[str, str]]:
    if not text or not text.replace(".", "").isdigit():
        if text in queues:
            raise BadInput(
                f"{text} is a queue, not a message: `rq ls {text}` lists the ids of its "
                f"messages, `rq ls {text} --state done` those that succeeded"
            )
        raise BadInput(
            f"not a message id: {text!r}; it looks like 20260102.0304.05.006.7"
        )
    return [
        (queue, one)
        for queue in queues
        for state in _BEGINNING_STATES
        for one in _ids_in(root.queue(queue), state)
        if one.startswith(text)
    ]


def _ids_in(queue: QueueDir, state: str) -> list[str]:
    try:
        found = os.listdir(queue.path / state)
    except FileNotFoundError:
        return []
    return [one.removeprefix(".") for one in found if names.is_msg_id(one.lstrip("."))]


def _the_one(text: str, found: list[tuple[str, str]]) -> tuple[str, str]:
    if not found:
        raise NoSuchMessage(
            f"there is no message {text}; `rq ls` lists what waits, runs and failed"
        )
    if len(found) > 1:
        some = ", ".join(f"{queue}/{one}" for queue, one in found[:3])
        raise BadInput(f"{text} fits {len(found)} messages: {some}; say more of it")
    return found[0]
