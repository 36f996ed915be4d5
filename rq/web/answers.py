"""How an action answers: JSON for programs, a redirect and a sentence for browsers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import cast

import falcon
import orjson
from falcon.asgi import Request, Response

from rq.access.roles import Principal, Role
from rq.config import secrets
from rq.config.secrets import Said
from rq.errors import Refused, RQError
from rq.message.waits import Reason
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web.forms import Form
from rq.web.session import flash
from rq.web.site import Site
from rq.web.statuses import tell_kind
from rq.words.nesting import Json

# A path on this site: not `//host`, not `/\host`, nothing that ends a header.
_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")


def sees_secrets(req: Request) -> bool:
    """Return whether the values of a config that look like secrets are for this asker."""
    principal: Principal | None = req.context.principal
    return principal is not None and principal.may(Role.ADMIN)


def for_asker(req: Request, value: Said, queue: str) -> Said:
    """Return what is said of messages of a queue as the asker may see it."""
    if sees_secrets(req):
        return value
    if req.context.principal.is_limited:
        value = cast("Said", _without_standings(value))
    return secrets.below_admin(value, queue)


_WAITS = "It waits for other messages to end (after)."


def _without_standings(value: object) -> object:
    """Return what is said of messages without how those stand that some of them wait for:
    they may be of queues that the asker may not ask of."""
    if isinstance(value, list | tuple):
        return [_without_standings(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _without_standings(field) for name, field in value.items()}
    for name in ("_why", "why"):
        why = value.get(name)
        if isinstance(why, dict) and why.get("reason") == Reason.AFTER:
            plain |= _plainer(value, name)
    return plain


def _plainer(message: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the fields of a message that say why it waits for others, without these."""
    why, story = message[name], message.get("story")
    plain: dict[str, object] = {"waiting": _WAITS, name: {"reason": Reason.AFTER}}
    if isinstance(why, dict):
        plain[name] = {**why, "text": _WAITS, "by": None}
    if isinstance(story, dict):
        plain["story"] = {**story, "why": _WAITS}
    return {field: text for field, text in plain.items() if field in message}


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


def say_reply(resp: Response, reply: object) -> None:
    """Answer 200 with a reply of an owner; a failure as the ancestor said it, its kind
    in a header."""
    error = wire.failure_in(reply)
    if error is not None:
        tell_kind(resp, error.kind)
        reply = wire.failure(error, with_kind=False)
    say_json(resp, reply)


def wants_json(form: Form, default: str = "html") -> bool:
    return form.get("x_format", default) == "json"


def back_of(site: Site, form: Form, default: str) -> str:
    """Return where the asker wants to be next; only a path of this site counts."""
    wanted = form.get("back")
    return wanted if local_path(wanted) else site.url(default)


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
    reply: Sequence[object],
    default: str,
    text: str = "",
) -> None:
    """Answer an action by the reply it got.

    Programs get the reply itself. Browsers go to `back`, or to `default`, and read what
    happened there; without a `back` a refusal is an error of its own.
    """
    if wants_json(form):
        say_reply(resp, reply)
        return
    error = failure_in(reply)
    if error is not None and not form.has("back"):
        raise error
    text = str(error or text or reply[-1])
    kind = "error" if error is not None else "notice"
    go(site, resp, back_of(site, form, default), kind, text)


async def reply_of(call: Awaitable[Json]) -> Reply:
    """Return what a process that is no owner answers, as an owner would reply."""
    try:
        return ["ok", await call]
    except RQError as error:
        return wire.failure(error, with_kind=True)


def failure_in(reply: object) -> RQError | None:
    """Return the failure of an action, by the reply it got; None: it was done."""
    if isinstance(reply, list) and reply and reply[0] in ("ok", "success"):
        return None
    return wire.failure_in(reply) or Refused(
        f"RQ does not understand the reply {reply!r:.80}"
    )
