"""The form that makes a message, or sends one that has ended again with other fields; a
queue's form.json shapes its own. For programs: `api.messages` and `api.actions`."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC

import falcon
import orjson
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.config import read_json, read_queue
from rq.errors import BadConfig, BadInput, Down, NoSuchQueue, RQError, WrongState
from rq.message import table
from rq.message.actions import ACTIONS, Word
from rq.message.table import PARAMS, ROWS, Kind, Row
from rq.replies import MessageView
from rq.rpc import wire
from rq.web import forms, messages, reading
from rq.web.answers import (
    back_of,
    failure_in,
    for_asker,
    go,
    say,
    say_reply,
    wants_json,
)
from rq.web.forms import Form
from rq.web.messages import check_dest, checked, sentence_of, who, with_user
from rq.web.pages import page
from rq.web.pages.message import facts_of
from rq.web.pages.page import OF_A_FORM
from rq.web.routes import Routes
from rq.web.site import Site
from rq.web.statuses import status_of, wants_page
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import FINAL, State, version_of

WHEN = "when"  # the field that says when in people's words
SEEN, NUMBER = "if_version", "number"  # of a form: see `seen`
_LONGEST = 64  # characters of a number
# What a form edits; the others stay, and it says again when it is due.
EDITED = table.names(lambda row: bool(row.form) and not (row.fixed or row.is_moment))
_ROWS = {f"mesg_{row.name}": row for row in ROWS if row.form}  # by key of form.json
_STAYS = frozenset(key for key, row in _ROWS.items() if row.fixed)  # in an edit
METHODS = (
    ("commit", "Send it"),
    ("prep", "Only prepare it, so that files can be attached"),
    ("single_que", "Send it, unless a message of this queue waits already"),
)


def add_routes(routes: Routes, site: Site) -> None:
    """Add the form of a new message, that of an edit, and what they send."""
    pages = Forms(site)
    new, edit = "/q/{name}/new_message", "/q/{name}/{msg_id}/edit"
    routes.get(new, pages.new_message, Role.PRODUCER)
    routes.post(new, pages.send, Role.PRODUCER)
    routes.get(edit, pages.edit, Role.OPERATOR)
    routes.post(edit, pages.send_edit, Role.OPERATOR)


class Forms:
    """/q/NAME/new_message and /q/NAME/ID/edit."""

    def __init__(self, site: Site) -> None:
        self._site = site

    # ---- a new one

    async def new_message(self, req: Request, resp: Response, name: str) -> None:
        names = map(_name, _ROWS.values())
        given = {name: req.get_param(name, default="") for name in names}
        given["dest"] = given["dest"] or name
        await self._show(req, resp, name, given)

    async def send(self, req: Request, resp: Response, name: str) -> None:
        """Send a message: from the form, or as the ancestor's programs do."""
        form = await forms.read(req)
        if form.get("x_format", "json") == "html":
            await self._send_form(req, resp, name, form)
            return
        reply = await messages.send(self._site, req, name, form)
        if reply.startswith(wire.FAILED):
            say_reply(resp, orjson.loads(reply))
            return
        resp.content_type = falcon.MEDIA_JSON
        resp.data = reply

    async def _send_form(
        self, req: Request, resp: Response, name: str, form: Form
    ) -> None:
        """Send, and bring a browser to the new message; back to its form, with all that
        was written there, when it is refused."""
        try:
            reply = orjson.loads(await messages.send(self._site, req, name, form))
            if error := failure_in(reply):
                raise error
        except (NoSuchQueue, Down):
            raise
        except RQError as error:
            await self._refill(req, resp, name, form, error)
            return
        queue, short = names.split_url(
            str(reply[1])
        )  # its router's, where there is one
        address = back_of(self._site, form, f"/q/{queue}/{short}")
        text = f"message {short} is accepted"
        if "joined" in reply[2:]:
            text = (
                f"nothing new was made: message {short} is equal, and stands (unique)"
            )
        go(self._site, resp, address, "notice", text)

    # ---- an edit

    async def edit(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        message = await facts_of(self._site, req, name, msg_id)
        if State(message["state"]) not in FINAL:
            raise WrongState(
                f"Message {msg_id} has not ended, it is in {message['state']}: only one "
                "that has ended is sent again with other fields."
            )
        given = {**texts(message), **seen(message)}
        await self._show(req, resp, name, given, edited=msg_id)

    async def send_edit(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        """Send it, and bring a browser to the new message; back to its form, with all that
        was written there, when it is refused."""
        form = await forms.read(req)
        message = await reading.message(self._site, name, checked(msg_id))
        check_dest(req, name, message)
        # Which is what the form was filled with.
        message = for_asker(req, message, name)
        action = ACTIONS[Word.EDIT]
        try:
            changed = changes(form, message, time.time())
            request: dict[str, Json] = {"msg_id": msg_id, "who": who(req)}
            request = with_user(req, {**request, **_once(form), "changes": changed})
            reply = await self._site.owners.ask(name, action.command, request)
            if error := failure_in(reply):
                raise error
        except RQError as error:
            if wants_json(form):
                say_reply(resp, wire.failure(error, with_kind=True))
            else:
                await self._refill(req, resp, name, form, error, edited=msg_id)
            return
        short = str(reply[1]).rpartition("/")[2]
        text = sentence_of(action, msg_id, new=short)
        say(self._site, req, resp, form, reply, f"/q/{name}/{short}", text)

    # ---- either, as it is shown

    async def _refill(
        self,
        req: Request,
        resp: Response,
        name: str,
        form: Form,
        error: RQError,
        edited: str = "",
    ) -> None:
        """Answer a form that was refused with itself: a person need not write it again."""
        must_be_page(req, error, form.nested("mesg"))
        resp.status = falcon.code_to_http_status(status_of(error))
        await self._show(req, resp, name, _given(form), str(error), edited)

    async def _show(
        self,
        req: Request,
        resp: Response,
        name: str,
        given: Mapping[str, str],
        why: str = "",
        edited: str = "",
    ) -> None:
        """Show the form of a queue with what is given; `why` it was refused so; which
        message is `edited`."""
        page.check_queue(self._site, name)
        form, wrong = self._form(name)
        left_out = set(_STAYS) if edited else set[str]()
        if not given.get("unique_key") and not _is_unique(self._site, name):
            left_out.add("mesg_unique_key")
        inputs = [field for field in fields(form, given) if field.key not in left_out]
        values = {
            "facts": {"queue": name, "fields": inputs, "methods": dict(METHODS)},
            "queue_name": name,
            "fields": inputs,
            "methods": METHODS,
            "chosen": given.get("_method", METHODS[0][0]),
            "method_hidden": _is_hidden(form, "mesg_status"),
            "method": _text(form, "mesg_status", "label") or "What to do with it",
            "wrong": wrong,
            "why": why,
            "edited": edited,
            "kept": {name: given.get(name, "") for name in (SEEN, NUMBER)},
        }
        resp.set_header("Content-Security-Policy", OF_A_FORM)
        await page.show(req, resp, self._site, "new_message.html", values)

    def _form(self, name: str) -> tuple[Mapping[str, object], str]:
        path = self._site.root.queue(name).form
        if not path.exists():  # also a link that leads nowhere
            return {}, ""
        try:
            return read_json(path), ""
        except BadConfig as error:
            return {}, str(error)


def _given(form: Form) -> dict[str, str]:
    """Return what was written into the form of a message."""
    nested = form.nested("mesg").items()
    given = {name: text for name, text in nested if isinstance(text, str)}
    kept = (WHEN, SEEN, NUMBER)
    return {**given, **{name: form.get(name) for name in kept}}


def must_be_page(req: Request, error: RQError, given: Mapping[str, object]) -> None:
    """Raise the error for a program, and when there is nothing to fill in."""
    if not given or not wants_page(req) or page.wants_json(req):
        raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the form of a message."""

    key: str  # in form.json
    name: str  # under which it is sent
    value: str
    label: str
    help: str
    hidden: bool
    long: bool  # it may have several lines


def fields(form: Mapping[str, object], given: Mapping[str, str]) -> list[Field]:
    """Return the fields of a message form, as a queue's form.json wants them."""
    return [_field(key, row, form, given) for key, row in _ROWS.items()]


def _name(row: Row) -> str:
    """Return under which name what people write is sent."""
    return WHEN if row.is_moment else row.name


def _field(
    key: str, row: Row, form: Mapping[str, object], given: Mapping[str, str]
) -> Field:
    assert row.form is not None
    name = _name(row)
    return Field(
        key=key,
        name=name if name == WHEN else f"mesg[{name}]",
        value=given.get(name, ""),
        label=_text(form, key, "label") or row.form.label or row.name,
        help=_text(form, key, "help") or row.form.help,
        hidden=_is_hidden(form, key),
        long=row.kind is Kind.JSON,
    )


def _is_unique(site: Site, name: str) -> bool:
    """Return whether a queue knows equal messages; no, when its config is wrong."""
    try:
        return bool(read_queue(site.root.queue(name)).unique)
    except BadConfig:
        return False


def _is_hidden(form: Mapping[str, object], key: str) -> bool:
    return form.get("default") == "hidden" and key not in form


def _text(form: Mapping[str, object], key: str, name: str) -> str:
    own = form.get(key)
    text = own.get(name) if isinstance(own, dict) else None
    return text if isinstance(text, str) else ""


# ---- what an edit makes other


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
    return {name: _as_text(name, message[name]) for name in EDITED if message.get(name)}


def _as_text(name: str, value: object) -> str:
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
        if name not in EDITED or not isinstance(given, str):
            raise BadInput(f"mesg[{name:.80}] cannot be edited: send a new message")
        was = before.get(name, "")
        if _as_shown(name, given) != _as_shown(name, was):
            lines = given if "\r" in was else given.replace("\r\n", "\n")
            changed[name] = lines or None
    if when := form.get(WHEN).strip():
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
