"""The one door of flows: makes F, the message of the queue `flow` that sends the others.

The door that lets a flow in (the web, the command line, timers) has parsed its plan and checked
that its sender may send each message; F says who that is (`by`), and each message of the
flow is sent as theirs. What can be known beforehand of the queues and webhooks of a plan is
checked here, so that it is one sentence to who sends it, and no flow that is not begun.
What is asked here is the owner of the queue `flow`, three times:
prepare F, attach the plan, commit. With a key a request that was cut off is sent again, and
finds the same F.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

import orjson

from rq import names
from rq.builtin.flow.record import PLAN, QUEUE
from rq.config.values import did_you_mean
from rq.errors import BadInput, BadMessage, KeyReused, NoSuchQueue, RQError
from rq.flow.plan import Plan
from rq.layout import Root
from rq.message import fieldnames
from rq.message.message import from_request
from rq.outbound.webhooks import Webhooks
from rq.replies import MessageView
from rq.rpc import client
from rq.words.nesting import Json
from rq.words.states import State

PATIENCE = 3600.0  # seconds in which all messages of a flow have to be sent
_TIMEOUT = 60.0  # seconds for an answer
_SOME_ID = "20260102.0304.05.006.7"
_WEBHOOK = "post_run_webhook"
_PREPARER = (fieldnames.PREPARER, fieldnames.AS_OPERATOR)


class Sent(NamedTuple):
    """The message that stands for a flow."""

    msg_id: str
    url: str
    stood: bool  # its key has made it before


def every(queue: str) -> bool:
    """Which queues are seen by who may see all."""
    return True


def send(
    root: Root,
    plan: Plan,
    whose: Mapping[str, Json],
    sees: Callable[[str], bool] = every,
) -> Sent:
    """Check a flow and send it; return the message that stands for it. `whose`: who asks,
    as a request for a message says it; `sees`: which queues they may hear of. KeyReused:
    the key came with another flow."""
    is_timer = str(whose.get(fieldnames.BY) or "").startswith(fieldnames.OF_TIMER)
    check_queues(root, plan, sees)
    if not is_timer:  # no one listens: its work is done, as of any message of a timer
        check_webhooks(root, plan)
    return make(root, plan, whose)


def check(root: Root, plan: Plan) -> None:
    """Refuse a plan of which a message would be refused for certain."""
    check_queues(root, plan)
    check_webhooks(root, plan)


def check_queues(root: Root, plan: Plan, sees: Callable[[str], bool] = every) -> None:
    """NoSuchQueue when a message of a flow has none; it names a near one that is seen."""
    if (why := next(without_queue(root, plan, sees), None)) is not None:
        raise NoSuchQueue(why)


def without_queue(
    root: Root, plan: Plan, sees: Callable[[str], bool] = every
) -> Iterator[str]:
    """Give a sentence for each queue that a flow lacks; it names the first message that
    is for it."""
    first: dict[str, str] = {}
    for node in plan.nodes:
        first.setdefault(node.queue, node.name)
    for queue, name in first.items():
        if not root.queue(queue).config.is_file():
            yield f"{name}: {_no_queue(root, queue, sees)}"


def _no_queue(root: Root, queue: str, sees: Callable[[str], bool]) -> str:
    if os.path.lexists(root.scandir / queue):
        why = f"`rq status` says why scandir/{queue} is not used"
        return f"there is no queue {queue!r}: {why}"
    there = os.listdir(root.queues) if root.queues.is_dir() else []
    near = did_you_mean(queue, filter(sees, filter(names.is_queue_name, there)))
    return f"there is no queue {queue!r}{near or '; `rq queue ls` lists them'}"


def check_webhooks(root: Root, plan: Plan) -> None:
    """BadInput when nothing would be posted to a webhook of a message of a flow."""
    webhooks = Webhooks(root)
    _check_hooks(webhooks, "the flow", plan.webhooks)
    for node in plan.nodes:
        if node.message.get(_WEBHOOK):
            message = from_request(node.message, _SOME_ID, 0.0, _SOME_ID, is_new=True)
            _check_hooks(webhooks, node.name, message.post_run_webhook)


def _check_hooks(webhooks: Webhooks, whose: str, urls: tuple[str, ...]) -> None:
    try:
        webhooks.check(urls)
    except BadMessage as error:
        raise BadInput(f"{whose}: {error}") from None


def make(root: Root, plan: Plan, whose: Mapping[str, Json]) -> Sent:
    """Send a flow that was checked."""
    queue = root.queue(QUEUE)
    if not queue.config.is_file():
        raise NoSuchQueue(f"there is no queue {QUEUE}: `rq up` links it")
    data = orjson.dumps(plan.to_json())
    with client.Connection(queue.socket, _TIMEOUT) as line:
        msg_id, url, stands = _begin(line, plan, whose, data)
        if stands:
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


def _begin(
    line: client.Connection, plan: Plan, whose: Mapping[str, Json], data: bytes
) -> tuple[str, str, bool]:
    """Prepare F, or find the one of its key; return its id, its URL, and whether it
    stands. KeyReused: the key came with another flow.

    One that was not begun leaves its key to another plan, which is sent under a key that
    names it: a request that is sent again goes the same way."""
    fields = {**_fields(plan), **whose}
    while True:
        begun = _demand(line, "prep_message", fields)
        url = str(begun[1])
        msg_id = names.msg_id(url.rpartition("/")[2])
        if State.PREP in begun[2:] or plan.key is None:
            return msg_id, url, False
        view = cast(MessageView, _demand(line, "get_message", {"msg_id": msg_id})[1])
        if _holds(view, data):
            return msg_id, url, True
        if view["state"] != State.ERR:
            raise KeyReused(
                f"this key came with another flow before, {msg_id}: a key names one "
                "request"
            )
        fields[fieldnames.KEY] = f"in place of {QUEUE}/{msg_id}"


def _fields(plan: Plan) -> dict[str, Json]:
    fields: dict[str, Json] = {"dest": QUEUE, "deadline": time.time() + PATIENCE}
    if plan.name:
        fields["param1"] = plan.name
    if plan.webhooks:  # they hear of it itself only that the flow is not begun
        fields[_WEBHOOK] = [*plan.webhooks]
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


def _holds(view: MessageView, data: bytes) -> bool:
    """Return whether an F has this plan."""
    attached = view.get("_attachments", {}).get(PLAN)
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return attached is not None and attached["md5"] == digest
