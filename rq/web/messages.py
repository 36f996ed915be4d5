"""The ancestor's REST for messages: sending, asking, changing."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from datetime import UTC
from typing import cast

import falcon
import orjson
from falcon.asgi import Request, Response

from rq import names
from rq.access.gate import ANYBODY
from rq.access.roles import Principal, Role
from rq.builtin.router import rules
from rq.config import secrets
from rq.errors import (
    BadInput,
    BadMessage,
    Down,
    NoSuchMessage,
    OtherQueue,
)
from rq.kinds import Kind
from rq.message import fieldnames, guarded
from rq.message.action import Action, Door
from rq.message.actions import ACTIONS, Word, at
from rq.message.guarded import Sender
from rq.message.message import too_large
from rq.proc import users
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import forms, own, reading, rights
from rq.web.answers import (
    failure_in,
    for_asker,
    say,
    say_json,
    say_reply,
    sees_secrets,
    wants_json,
)
from rq.web.forms import Form
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import moments
from rq.words.nesting import Json, from_json

_SEND = {
    "commit": "create_message",
    "prep": "prep_message",
    "single_que": "single_que",
}
_METHODS = at(Door.REST)
_TO_QUEUE = "destroy"  # after which the ancestor leads to the queue
# Said by the web alone.
_OF_RQ = frozenset(
    {
        fieldnames.KEY_OF,
        fieldnames.PREPARER,
        fieldnames.AS_OPERATOR,
        fieldnames.BY,
    }
)
_FOR_OTHERS = frozenset({"relay", "rq_router"})  # their messages name other queues
_NO_METHOD = "400 - Invalid method param"
NOT_FOUND = own.NOT_FOUND
BEGIN_ANEW = (
    "cannot find message"  # the ancestor's sender sends all again, and then only
)
_IS_DOWN = "503 - Service Unavailable - Operationally Down"


def add_routes(routes: Routes, site: Site) -> None:
    """Add the routes of single messages."""
    messages = Messages(site)
    routes.get("/q/{name}/{msg_id}.json", messages.json, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/state.json", messages.state, Role.VIEWER)
    routes.post("/q/{name}/{msg_id}", messages.change, Role.PRODUCER)
    routes.post("/q/{name}/{msg_id}/clone", messages.clone, Role.PRODUCER)
    routes.post("/q/{name}/{msg_id}/run_now", messages.run_now, Role.OPERATOR)


class Messages:
    """Messages of a queue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    # ---- asking

    async def json(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        view = await reading.message(self._site, name, checked(msg_id))
        say_json(resp, for_asker(req, view, name))

    async def state(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        say_json(resp, [await reading.state(self._site, name, checked(msg_id))])

    # ---- changing

    async def change(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        form = await forms.read(req)
        method = form.get("_method")
        if method not in _METHODS:
            methods = ", ".join(_METHODS)
            raise falcon.HTTPBadRequest(description=f"{_NO_METHOD}: none of {methods}")
        action = _METHODS[method]
        rights.demand(req, Role(action.role))
        command = action.command_of(method)
        if wants_json(form) and not is_id(msg_id):
            say_reply(resp, wire.failure(_unknown(command), with_kind=True))
            return
        names_of = (fieldnames.KEY, *(takes.name for takes in action.takes))
        given = {field: form.get(field) for field in names_of if form.has(field)}
        if action.word is Word.MOVE:
            check_move(req, name, form.get("to"))
        reply = await self._ask(req, name, command, msg_id, **given)
        queue, here = f"/q/{name}", f"/q/{name}/{checked(msg_id)}"
        there = queue if action.gone or method == _TO_QUEUE else here
        text = "" if failure_in(reply) else sentence_of(action, msg_id, **given)
        say(self._site, req, resp, form, reply, there, text)

    async def clone(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        form = await forms.read(req)
        check_target(req, name)
        check_dest(req, name, await self._copied(name, msg_id))
        action = ACTIONS[Word.CLONE]
        reply = await self._ask(req, name, action.command, msg_id)
        text = sentence_of(action, msg_id, new=str(reply[1]).rpartition("/")[2])
        say(self._site, req, resp, form, reply, f"/q/{name}", text)

    async def _copied(self, name: str, msg_id: str) -> Mapping[str, object]:
        """Return the fields of a message that goes to the queue that it names."""
        if name not in _FOR_OTHERS:
            return {}
        try:
            return await reading.message(self._site, name, checked(msg_id))
        except NoSuchMessage:
            return {}  # the queue says so

    async def run_now(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        form = await forms.read(req)
        action = ACTIONS[Word.RUN]
        reply = await self._ask(req, name, action.command, msg_id)
        there, text = f"/q/{name}/{msg_id}", sentence_of(action, msg_id)
        say(self._site, req, resp, form, reply, there, text)

    async def _ask(
        self, req: Request, name: str, command: str, msg_id: str, **more: str
    ) -> Reply:
        request = with_user(req, {"msg_id": checked(msg_id), "who": who(req), **more})
        return await self._site.owners.ask(name, command, as_preparer(req, request))


def sentence_of(action: Action, msg_id: str, **given: str) -> str:
    """Return what a browser reads when an action is done, with what it was done."""
    return f"{msg_id} {action.done.format(**given)}"


async def send(site: Site, req: Request, name: str, form: Form) -> bytes:
    """Send the message of a form; return the reply of its queue as it came."""
    command, fields = request_of(form, time.time())
    fields = with_user(req, fields)
    if command == _SEND["prep"]:
        fields = as_preparer(req, fields)
    check_dest(req, name, fields)
    await own.check_after(site, req.context.principal, name, fields)
    if fieldnames.is_handed_on(fields, str(fields.get("_key"))):
        rights.demand_guarded(req, name, Sender.RELAY)
    data = orjson.dumps(fields)
    if len(data) > forms.REQUEST:  # the socket would speak of frames
        return orjson.dumps(wire.failure(too_large(len(data)), with_kind=True))
    name = rules.addressed(site.root, name)
    reply = await site.owners.ask_raw(name, command, data)
    if reply.startswith(wire.FAILED) and _is_down(reply):
        raise Down(_IS_DOWN)
    return reply


def request_of(form: Form, now: float) -> tuple[str, dict[str, Json]]:
    """Return the command and the message that a form asks for.

    Its field `mesg` is JSON, or there are fields `mesg[dest]` and so on, of which the
    blank ones are not set. `when` is its due as people say it.
    """
    if form.has("mesg"):
        fields = _message(form.get("mesg"))
    else:
        given = form.nested("mesg")
        fields = {name: value for name, value in given.items() if value != ""}
    if not fields:
        raise BadInput("say mesg, the message as JSON, or mesg[dest] and so on")
    if when := form.get("when").strip():
        fields["due"] = moments.due(when, now, UTC)
    method = fields.pop("_method", form.get("_method") or "commit")
    if not isinstance(method, str) or method not in _SEND:
        methods = ", ".join(_SEND)
        raise falcon.HTTPBadRequest(description=f"{_NO_METHOD}: none of {methods}")
    return _SEND[method], fields


def _is_down(reply: bytes) -> bool:
    error = wire.failure_in(orjson.loads(reply))
    return error is not None and error.kind is Kind.DOWN


def _message(text: str) -> dict[str, Json]:
    fields = from_json(text, "mesg")
    if not isinstance(fields, dict):
        raise BadMessage("mesg is not a JSON object")
    return fields


def checked(msg_id: str) -> str:
    """Return an id of an address; what is no id names no message."""
    try:
        return names.msg_id(msg_id)
    except BadInput as error:
        raise NoSuchMessage(str(error)) from None


def _unknown(command: str) -> NoSuchMessage:
    """Return what a queue says of a message that it does not know."""
    is_commit = command == ACTIONS[Word.COMMIT].command
    return NoSuchMessage(BEGIN_ANEW if is_commit else NOT_FOUND)


def is_id(msg_id: str) -> bool:
    """Return whether what an address names can be a message."""
    return names.is_msg_id(msg_id.removeprefix("."))


def who(req: Request) -> str:
    """Return who asks, for the message's story."""
    name: str = req.context.principal.name
    return f"web from {req.remote_addr}" if name == ANYBODY else name


def with_user(req: Request, fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return what an owner is asked, with who sends it, and whose its key is: the owner
    knows the web alone, whose word it believes. What a client says of that itself is left
    out."""
    kept = {name: value for name, value in fields.items() if name not in _OF_RQ}
    key, principal = kept.get(fieldnames.KEY), cast(Principal, req.context.principal)
    kept[fieldnames.BY] = principal.user
    is_of_relay = str(key).startswith(fieldnames.RELAY_KEY)
    if key is None or (is_of_relay and _is_own(principal)):
        return kept
    return {**kept, fieldnames.KEY_OF: principal.user}


def as_preparer(req: Request, request: Mapping[str, Json]) -> dict[str, Json]:
    """Return what an owner is asked to prepare, or to do with what is prepared, with the
    user who asks. An operator may do so with what any user has prepared."""
    principal: Principal = req.context.principal
    user = principal.user
    as_whom: dict[str, Json] = {fieldnames.PREPARER: user, fieldnames.BY: user}
    if principal.may(Role.OPERATOR):
        as_whom[fieldnames.AS_OPERATOR] = True
    return {**request, **as_whom}


def _is_own(principal: Principal) -> bool:
    """Whether it is RQ's own user or root. Their relay may ask over HTTP or by the socket,
    whichever the configuration of the moment says: the key is the same."""
    return principal.may(Role.ADMIN) and principal.of in _own_names()


@functools.cache
def _own_names() -> frozenset[str]:
    return frozenset(users.kernel_name(uid) for uid in (0, os.getuid()))


def check_dest(req: Request, queue: str, fields: Mapping[str, object]) -> None:
    """Refuse a message from a client that may not send it: one for the cleaner removes
    messages, and a router could take one to a queue that is not theirs to ask of; and
    one that would run in another queue than it says."""
    principal: Principal = req.context.principal
    dest = fields.get("dest")
    if to := guarded.named_in(str(dest)):
        rights.demand_guarded(req, to, principal.sender)
    if principal.is_limited and dest not in (None, queue):
        raise OtherQueue(
            f"{principal.name} may send to {', '.join(principal.queues)}; a message of "
            f"this route goes to {queue}, not to {dest!r:.80}."
        )
    if isinstance(dest, str) and dest and queue not in _FOR_OTHERS:
        _check_same(queue, dest)


def check_target(req: Request, dest: str) -> None:
    """Refuse to let messages go on, or run again, in a queue that the client may not
    ask of, though they may send to it."""
    principal: Principal = req.context.principal
    if principal.is_limited and not principal.sees(dest):
        raise OtherQueue(
            f"{principal.name} may ask of {', '.join(principal.queues)}, not of "
            f"{dest!r:.80}."
        )


def check_move(req: Request, queue: str, dest: str) -> None:
    """Refuse to let messages of a queue go on where the asking user may not ask, or would
    read what is hidden from them here."""
    secrets.check_leaving(queue, open_to=sees_secrets(req))
    check_target(req, dest)


def _check_same(queue: str, dest: str) -> None:
    """BadMessage when a message says that it is for another queue than the one that
    would take it; which host it names does not matter, for one has many names."""
    if _queue_named(dest) != queue:
        raise BadMessage(
            f"dest is {dest!r:.80}, and this route's messages go to {queue}: send it to "
            "the route of its own queue, or to that of relay when it is elsewhere"
        )


def _queue_named(dest: str) -> str:
    """Return the queue that a dest names, as the relay reads it.

    >>> [_queue_named(d) for d in ("mail", "/q/mail", "http://h:1/any/q/mail?x#y")]
    ['mail', 'mail', 'mail']
    """
    _, has_queue, rest = f"/{dest}".partition("/q/")
    return names.PARTS.split(rest, maxsplit=1)[0] if has_queue else dest
