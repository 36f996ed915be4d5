"""The one door of flows: makes F, the message of the queue `flow` that sends the others.

Whoever lets a flow in (the web, the command line, timers) has parsed its plan and checked
that its sender may send each message; F says who that is (`by`), and each message of the
flow is sent as theirs. What is asked here is the owner of the queue `flow`, three times:
prepare F, attach the plan, commit. With a key a request that was cut off is sent again, and
finds the same F.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from typing import NamedTuple, cast

import orjson

from rq import names
from rq.builtin.flow.record import PLAN, QUEUE
from rq.errors import KeyReused, NoSuchQueue, RQError
from rq.flow.plan import Plan
from rq.layout import Root
from rq.message import fieldnames
from rq.replies import MessageView
from rq.rpc import client
from rq.words.nesting import Json
from rq.words.states import State

PATIENCE = 3600.0  # seconds in which all messages of a flow have to be sent
_TIMEOUT = 60.0  # seconds for an answer
_PREPARER = (fieldnames.PREPARER, fieldnames.AS_OPERATOR)


class Sent(NamedTuple):
    """The message that stands for a flow."""

    msg_id: str
    url: str
    stood: bool  # its key has made it before


def send(root: Root, plan: Plan, whose: Mapping[str, Json]) -> Sent:
    """Send a flow; return the message that stands for it. `whose`: who asks, as a request for a message says it. KeyReused: the key
    came with another flow."""
    queue = root.queue(QUEUE)
    if not queue.config.is_file():
        raise NoSuchQueue(f"there is no queue {QUEUE}: `rq up` links it")
    data = orjson.dumps(plan.to_json())
    with client.Connection(queue.socket, _TIMEOUT) as line:
        begun = _demand(line, "prep_message", {**_fields(plan), **whose})
        url = str(begun[1])
        msg_id = names.msg_id(url.rpartition("/")[2])
        if State.PREP not in begun[2:] and plan.key is not None:
            _check_same(line, msg_id, data)
            return Sent(msg_id, url, stood=True)
        preparer = {name: whose[name] for name in _PREPARER if name in whose}
        try:
            _attach(line, {**preparer, "msg_id": msg_id}, data)
            _demand(line, "commit_message", {**preparer, "msg_id": msg_id})
        except RQError:
            if plan.key is None:  # with one it is found again
                with contextlib.suppress(RQError):
                    line.ask("delete_message", {"msg_id": msg_id})
            raise
    return Sent(msg_id, url, stood=False)


def _fields(plan: Plan) -> dict[str, Json]:
    fields: dict[str, Json] = {"dest": QUEUE, "deadline": time.time() + PATIENCE}
    if plan.name:
        fields["param1"] = plan.name
    if plan.key is not None:
        fields[fieldnames.KEY] = plan.key
    return fields


def _demand(line: client.Connection, command: str, request: object) -> list[Json]:
    reply = line.ask(command, request)
    client.demanded(reply, f"queue {QUEUE}: ")
    return cast("list[Json]", reply)


def _attach(line: client.Connection, request: Mapping[str, Json], data: bytes) -> None:
    """Hand the plan over as an open file."""
    fd = os.memfd_create(PLAN)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        place = {"name": PLAN, "pathname": f"/{PLAN}"}
        reply = line.ask("attach_message", {**request, **place}, (fd,))
        client.demanded(reply, f"queue {QUEUE}: ")
    finally:
        os.close(fd)


def _check_same(line: client.Connection, msg_id: str, data: bytes) -> None:
    """KeyReused when a key came with another flow before."""
    view = cast(MessageView, _demand(line, "get_message", {"msg_id": msg_id})[1])
    attached = view.get("_attachments", {}).get(PLAN)
    if (
        attached is None
        or attached["md5"] != hashlib.md5(data, usedforsecurity=False).hexdigest()
    ):
        raise KeyReused(
            f"this key came with another flow before, {msg_id}: a key names one request"
        )
