"""`batch.json`: what the script of a batch reads about its messages."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from rq.config.settings import RootConfig
from rq.layout import folder
from rq.message import Message
from rq.states import State


def content(
    config: RootConfig,
    queue: str,
    path: str,
    batch_id: str,
    messages: Iterable[Message],
) -> bytes:
    """Return `batch.json`: a line of JSON for each message, with where its folder lies
    and its whole id, then its own fields."""
    lines = [
        orjson.dumps(
            {
                "msg_id": message.msg_id,
                "dir": f"{path}/{folder(State.RUN, message.msg_id)}",
                "full_msg_id": config.full_id(queue, message.msg_id),
                "attempt": message.attempt,
                **message.to_json(),
            }
        )
        for message in messages
    ]
    head = orjson.dumps({"batch_id": batch_id, "queue": queue, "count": len(lines)})
    return head[:-1] + b',"messages":[\n' + b",\n".join(lines) + b"\n]}\n"
