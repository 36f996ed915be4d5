"""Copies and webhooks that could not be delivered, and what a person says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import falcon
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.web import forms
from rq.web.answers import say
from rq.web.messages import who
from rq.web.routes import Routes
from rq.web.site import Site

_METHODS = ("delivered", "again", "dropped")
_SHOWN = 100  # of each queue


def add_routes(routes: Routes, site: Site) -> None:
    """Add the action of the lists on the pages of a queue and of the relay."""
    routes.post("/owed/{name}/{key}", Owing(site).resolve, Role.OPERATOR)


class Owing:
    """One thing owed; its key stands in the address with dashes for slashes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def resolve(self, req: Request, resp: Response, name: str, key: str) -> None:
        form = await forms.read(req)
        if form.get("_method") not in _METHODS:
            known = ", ".join(_METHODS)
            raise falcon.HTTPBadRequest(description=f"_method is none of {known}")
        asked = {"key": of_address(key), "as": form.get("_method"), "who": who(req)}
        reply = await self._site.owners.ask(name, "resolve_owed", asked)
        say(self._site, req, resp, form, reply, f"/q/{name}")


async def listed(site: Site, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what queues owe and could not deliver, those in doubt first; what is only
    on its way is left out."""
    replies = await site.owners.each(names, "owed", {"limit": _SHOWN})
    found = [
        {"queue": name, "path": f"/owed/{name}/{in_address(one['key'])}", **one}
        for name, reply in zip(names, replies, strict=True)
        if isinstance(reply, list) and reply[0] == "ok"
        for one in reply[1]
        if one["why"]
    ]
    return sorted(found, key=lambda one: (not one["in_doubt"], one["since"]))


def of_address(key: str) -> str:
    """Return the key in an address.

    >>> of_address("0badcafe-17-0")
    '0badcafe/17/0'
    """
    return key.replace("-", "/")


def in_address(key: str) -> str:
    """Return a key as it stands in an address."""
    return key.replace("/", "-")
