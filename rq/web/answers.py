"""How an action answers: JSON for programs, a redirect and a sentence for browsers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import falcon
import orjson
from falcon.asgi import Request, Response

from rq import client
from rq.access.roles import Principal, Role
from rq.web.forms import Form
from rq.web.session import flash
from rq.web.site import Site

# A path on this site: not `//host`, not `/\host`, nothing that ends a header.
_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")


def sees_secrets(req: Request) -> bool:
    """Return whether the values of a config that look like secrets are for this asker."""
    principal: Principal | None = req.context.principal
    return principal is not None and principal.may(Role.ADMIN)


def say_json(resp: Response, value: object) -> None:
    """Answer 200 with JSON."""
    resp.content_type = falcon.MEDIA_JSON
    resp.cache_control = ["no-store"]
    resp.data = orjson.dumps(value)


def say_text(resp: Response, text: str) -> None:
    """Answer 200 with plain text."""
    resp.content_type = "text/plain; charset=utf-8"
    resp.cache_control = ["no-store"]
    resp.text = text


def wants_json(form: Form, default: str = "html") -> bool:
    return form.get("x_format", default) == "json"


def back_of(site: Site, form: Form, default: str) -> str:
    """Return where the asker wants to be next; only a path of this site counts."""
    asked = form.get("back")
    return asked if local_path(asked) else site.url(default)


def local_path(text: str) -> bool:
    """Return whether an address is a path of this site."""
    return bool(_PATH.fullmatch(text))


def go(site: Site, resp: Response, address: str, kind: str, text: str) -> None:
    """Send the browser to a page that says `text`."""
    flash(site, resp, kind, text)
    resp.status = falcon.HTTP_303
    resp.set_header("Location", address)


def say(
    site: Site,
    req: Request,
    resp: Response,
    form: Form,
    reply: Any,
    default: str,
    text: str = "",
) -> None:
    """Answer an action by the reply it got.

    Programs get the reply itself. Browsers go to `back`, or to `default`, and read what
    happened there; without a `back` a refusal is an error of its own.
    """
    if wants_json(form):
        say_json(resp, reply)
        return
    good = succeeded(reply)
    said = str(reply[-1]) if isinstance(reply, Sequence) and reply else str(reply)
    if not good and not form.has("back"):
        raise client.refusal(said, said)
    shown = text if good and text else said
    go(site, resp, back_of(site, form, default), "notice" if good else "error", shown)


def succeeded(reply: Any) -> bool:
    """Return whether a reply says that it was done."""
    return isinstance(reply, list) and bool(reply) and reply[0] in ("ok", "success")
