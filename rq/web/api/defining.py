"""The operations that make queues, change their settings, take them down and up, and put
them away: as the pages, where `allow_new_queue` allows what could run another program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, TypedDict

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.config import read_json, secrets
from rq.config.settings import QueueConfig
from rq.errors import NotPermitted, OtherQueue
from rq.kinds import Kind
from rq.rpc import client
from rq.web.answers import failure_in, sees_secrets
from rq.web.api.operation import (
    OF_OWNERS,
    PREFIX,
    Answer,
    Handler,
    Header,
    Operation,
)
from rq.web.api.shapes import Limits, with_fields
from rq.web.deeds import OF_QUEUE
from rq.web.forms import Form
from rq.web.site import Site

# By the words of the reference; what a value may be beyond that, the table of settings says.
_KINDS: Mapping[str, object] = {
    "text": str | None,
    "whole": int | str | None,
    "number": float | None,
    "seconds": float | str | None,
    "bytes": int | str | None,
    "flag": bool | None,
    "list": list[object] | None,
    "object": Mapping[str, object] | None,
    "notice": object,
}
_OF_ROOT = frozenset({"user", "group"})  # which no request says
_SETTINGS = {
    setting.name: _KINDS[setting.metadata["kind"]]
    for setting in dataclasses.fields(QueueConfig)
    if setting.name not in _OF_ROOT
}


@with_fields({name: kind for name, kind in _SETTINGS.items() if name != "name"})
class NewQueue(TypedDict, total=False):
    """The settings of a new queue; each has a default but its name, and `script` or `pull`
    says who works."""

    name: Annotated[str, Limits(shortest=1, longest=80)]


@with_fields({name: kind for name, kind in _SETTINGS.items() if name != "name"})
class QueueChanges(TypedDict, total=False):
    """The settings that are other from now on; null takes one away."""


class Settings(TypedDict):
    """What a queue's config.json says."""

    name: str
    config: Annotated[Mapping[str, object], "secrets are hidden from all but admins"]


class QueueAddress(TypedDict):
    """A queue that was asked to do something."""

    name: str
    text: str


async def create(site: Site, req: Request, body: NewQueue) -> Answer:
    _check_allowed(site)
    name = str(body.get("name", ""))
    req.context.form = Form([("queue_name", name)])  # as a form: for the audit log
    reply = await site.owners.supervisor("create_queue", {**body})
    if error := failure_in(reply):  # it says "success", as the ancestor's
        raise error
    place = f"{PREFIX}/queues/{name}"
    value = await site.pools.file(_settings, site, req, name)
    return Answer(value=value, headers={_LOCATION.name: site.url(place)})


async def change(site: Site, req: Request, body: QueueChanges, name: str) -> Settings:
    _check_allowed(site)
    _check_whole(req)
    wanted = {"name": name, "changes": {**body}}
    client.demanded(await site.owners.supervisor("change_queue", wanted))
    return await site.pools.file(_settings, site, req, name)


def _check_allowed(site: Site) -> None:
    if not site.config.allow_new_queue:
        raise NotPermitted(
            "Queues may not be made here, nor changed: allow_new_queue is not true in "
            "config/config.json."
        )


def _check_whole(req: Request) -> None:
    """Refuse an admin of some queues: what a queue runs could ask of all of them."""
    principal: Principal = req.context.principal
    if principal.is_limited:
        raise OtherQueue(
            f"{principal.name} may ask of {', '.join(principal.queues)}; to change or "
            "delete a queue takes an admin of all queues"
        )


async def delete(site: Site, req: Request, body: None, name: str) -> QueueAddress:
    _check_whole(req)
    client.demanded(await site.owners.supervisor("delete_queue", name))
    return {"name": name, "text": f"{name} is stopped and goes to the trash"}


def _settings(site: Site, req: Request, name: str) -> Settings:
    config: Mapping[str, object] = read_json(site.root.queue(name).config)
    if not sees_secrets(req):
        config = secrets.masked(config)
    return {"name": name, "config": config}


def _deed(command: str, done: str) -> Handler:
    async def act(site: Site, req: Request, body: None, name: str) -> QueueAddress:
        client.demanded(await site.owners.supervisor(command, name))
        return {"name": name, "text": done.format(name=name)}

    return act


def _row(
    operation_id: str, method: str, path: str, role: Role, handler: Handler, about: str
) -> Operation:
    return Operation(
        operation_id=operation_id,
        method=method,
        path=f"/queues/{{name}}{path}",
        role=role,
        summary=about,
        request=None,
        reply=QueueAddress,
        failures=(*OF_OWNERS, Kind.REFUSED),
        handler=handler,
    )


def _turn(word: str) -> Operation:
    """Return the row that takes a queue down, or up."""
    deed = OF_QUEUE[word]
    act = _deed(f"{word}_queue", deed.done)
    return _row(f"{word}Queue", "POST", f"/{word}", Role.OPERATOR, act, deed.about)


_LOCATION = Header(name="Location", about="the address of the queue")
_OF_SETTINGS = (*OF_OWNERS, Kind.REFUSED, Kind.WRONG_STATE)
ROWS = (
    Operation(
        operation_id="createQueue",
        method="POST",
        path="/queues",
        role=Role.ADMIN,
        summary="Make a queue, where allow_new_queue is true; it serves when it is answered.",
        request=NewQueue,
        reply=Settings,
        failures=_OF_SETTINGS,
        handler=create,
        status=201,
        reply_headers=(_LOCATION,),
    ),
    Operation(
        operation_id="changeQueue",
        method="PATCH",
        path="/queues/{name}",
        role=Role.ADMIN,
        summary="Change settings of a queue, where allow_new_queue is true.",
        request=QueueChanges,
        reply=Settings,
        failures=_OF_SETTINGS,
        handler=change,
    ),
    _row(
        "deleteQueue",
        "DELETE",
        "",
        Role.ADMIN,
        delete,
        "Stop a queue and move it to the trash, with all its messages.",
    ),
    _turn("down"),
    _turn("up"),
    _row(
        "restartQueue",
        "POST",
        "/restart",
        Role.OPERATOR,
        _deed("restart_queue", "{name} is restarting"),
        "Restart the process of a queue; what runs is stopped, and runs again.",
    ),
)
