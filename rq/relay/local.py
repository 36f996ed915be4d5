"""A message whose host is this one: copied by the queue itself, no HTTP between."""

from __future__ import annotations

from collections.abc import Mapping

from rq.errors import NoSuchQueue, OutcomeUnknown, Unreachable
from rq.relay import answers
from rq.relay.task import Task
from rq.relay.two_phase import Answer, Heard
from rq.rpc import client
from rq.words.nesting import Json


def deliver(task: Task, queue: str, fields: Mapping[str, Json], key: str) -> Answer:
    """Let `queue` take a copy, attachments included; once for a key."""
    there = task.root.queue(queue)
    if not there.config.is_file():
        raise NoSuchQueue(f"there is no queue {queue} here")
    request = {
        "message": dict(fields),
        "queue": task.queue.name,
        "msg_id": task.message.msg_id,
        "_key": key,
    }
    try:
        reply = client.ask(there.socket, "take_copy", request)
    except (OutcomeUnknown, Unreachable) as error:
        return Answer(Heard.SILENT, str(error))
    return answers.copied(reply)
