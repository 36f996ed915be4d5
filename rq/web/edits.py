"""A message that has ended, sent again with other fields: from its form; for programs:
`api.actions`."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from datetime import UTC

import orjson
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import BadInput, RQError
from rq.message.actions import ACTIONS, Word
from rq.message.table import PARAMS, names
from rq.replies import MessageView
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import forms, reading
from rq.web.answers import failure_in, for_asker, say, say_reply, wants_json
from rq.web.forms import Form
from rq.web.messages import check_dest, checked, sentence_of, who, with_user
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import version_of

SEEN, NUMBER = "if_version", "number"  # of a form: see `seen`
_LONGEST = 64  # characters of a number
# What a form edits; the others stay, and it says again when it is due.
FIELDS = names(lambda row: bool(row.form) and not (row.fixed or row.is_moment))


def add_routes(routes: Routes, site: Site) -> None:
    """Add what the form of an edit is posted to."""
    routes.post("/q/{name}/{msg_id}/edit", Edits(site).send, Role.OPERATOR)


class Edits:
    """Messages sent again with other fields."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def send(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        """Send it, and bring a browser to the new message; back to its form, with all that
        was written there, when it is refused."""
        form = await forms.read(req)
        message = await reading.message(self._site, name, checked(msg_id))
        check_dest(req, name, message)
        message = for_asker(
            req, message, name
        )  # which is what the form was filled with
        try:
            changed = changes(form, message, time.time())
            request: dict[str, Json] = {"msg_id": msg_id, "who": who(req)}
            request |= {**_once(form), "changes": changed}
            reply = await self._ask(name, with_user(req, request))
        except RQError as error:
            if wants_json(form):
                say_reply(resp, wire.failure(error, with_kind=True))
            else:
                await self._site.refilled.edit(req, resp, (name, msg_id), form, error)
            return
        short = str(reply[1]).rpartition("/")[2]
        text = sentence_of(ACTIONS[Word.EDIT], msg_id, new=short)
        say(self._site, req, resp, form, reply, f"/q/{name}/{short}", text)

    async def _ask(self, name: str, request: Mapping[str, Json]) -> Reply:
        reply = await self._site.owners.ask(name, ACTIONS[Word.EDIT].command, request)
        if error := failure_in(reply):
            raise error
        return reply


def seen(message: MessageView) -> dict[str, str]:
    """Return what a form remembers of the message that it was filled from, beside its
    fields: as what it was seen, and a name of the form itself."""
    return {SEEN: version_of(message), NUMBER: secrets.token_hex(16)}


def _once(form: Form) -> dict[str, Json]:
    """Return what lets a form be sent once, and of the message alone that it shows. Sent
    again as it was, it is the same request; with other fields it is another one."""
    said: dict[str, Json] = {SEEN: [form.get(SEEN)]} if form.get(SEEN) else {}
    if number := form.get(NUMBER)[:_LONGEST]:
        text = orjson.dumps(sorted(form.fields))
        said["_key"] = f"edit/{number}/{hashlib.sha256(text).hexdigest()[:32]}"
    return said


def texts(message: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a message as its form shows them.

    >>> texts({"param1": ["x"], "priority": 3, "post_run_webhook": ["http://a", "http://b"]})
    {'param1': '["x"]', 'priority': '3', 'post_run_webhook': 'http://a http://b'}
    """
    return {name: _text(name, message[name]) for name in FIELDS if message.get(name)}


def _text(name: str, value: object) -> str:
    if name == "post_run_webhook" and isinstance(value, list):
        return " ".join(str(url) for url in value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def changes(form: Form, message: Mapping[str, object], now: float) -> dict[str, Json]:
    """Return the fields that a form makes other than they are; None: one is left out.

    What the form does not hold stays, and what a browser alone makes other: it ends each
    line with CR and LF, whatever ended it, and a field of one line loses its ends.
    """
    before, changed = texts(message), dict[str, Json]()
    for name, given in form.nested("mesg").items():
        if name not in FIELDS or not isinstance(given, str):
            raise BadInput(f"mesg[{name:.80}] cannot be edited: send a new message")
        was = before.get(name, "")
        if _as_shown(name, given) != _as_shown(name, was):
            lines = given if "\r" in was else given.replace("\r\n", "\n")
            changed[name] = lines or None
    if when := form.get("when").strip():
        changed["due"] = moments.due(when, now, UTC)
    if not changed:
        raise BadInput(
            "nothing was changed: clone the message to send it again as it was"
        )
    return changed


def _as_shown(name: str, text: str) -> str:
    """Return a text as its field of the form holds it, whatever ends its lines.

    >>> _as_shown("param1", "a\\rb\\r\\nc"), _as_shown("src", "a\\nb")
    ('a\\nb\\nc', 'ab')
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if name in PARAMS else lines.replace("\n", "")
