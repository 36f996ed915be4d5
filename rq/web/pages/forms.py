"""The form that makes a message; a queue's form.json shapes its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import falcon
from falcon.asgi import Request, Response

from rq.config import read_json, read_queue
from rq.errors import BadConfig, RQError, WrongState
from rq.message.table import ROWS, Kind, Row
from rq.web import edits
from rq.web.forms import Form
from rq.web.pages import page
from rq.web.pages.message import facts_of
from rq.web.pages.page import OF_A_FORM
from rq.web.site import Site
from rq.web.statuses import status_of, wants_page
from rq.words.states import FINAL, State

WHEN = "when"  # the field that says when in people's words
_ROWS = {f"mesg_{row.name}": row for row in ROWS if row.form}  # by key of form.json
METHODS = (
    ("commit", "Send it"),
    ("prep", "Only prepare it, so that files can be attached"),
    ("single_que", "Send it, unless a message of this queue waits already"),
)


class Forms:
    """GET /q/NAME/new_message and GET /q/NAME/ID/edit."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def new_message(self, req: Request, resp: Response, name: str) -> None:
        names = map(_name, _ROWS.values())
        given = {name: req.get_param(name, default="") for name in names}
        given["dest"] = given["dest"] or name
        await self.show_message(req, resp, name, given)

    async def edit(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        message = await facts_of(self._site, req, name, msg_id)
        if State(message["state"]) not in FINAL:
            raise WrongState(
                f"Message {msg_id} has not ended, it is in {message['state']}: only one "
                "that has ended is sent again with other fields."
            )
        given = {**edits.texts(message), **edits.seen(message)}
        await self.show_message(req, resp, name, given, edited=msg_id)

    async def show_message(
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
        left_out = {"mesg_dest"} if edited else set[str]()
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
            "kept": {name: given.get(name, "") for name in (edits.SEEN, edits.NUMBER)},
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


class Refill:
    """Answers a form that was refused with itself: a person need not write it again."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    async def message(
        self, req: Request, resp: Response, name: str, form: Form, error: RQError
    ) -> None:
        nested = form.nested("mesg")
        must_be_page(req, error, nested)
        resp.status = falcon.code_to_http_status(status_of(error))
        await self._forms.show_message(req, resp, name, _given(form), str(error))

    async def edit(
        self,
        req: Request,
        resp: Response,
        which: tuple[str, str],
        form: Form,
        error: RQError,
    ) -> None:
        must_be_page(req, error, form.nested("mesg"))
        resp.status = falcon.code_to_http_status(status_of(error))
        name, msg_id = which
        given, why = _given(form), str(error)
        await self._forms.show_message(req, resp, name, given, why, edited=msg_id)


def _given(form: Form) -> dict[str, str]:
    """Return what was written into the form of a message."""
    nested = form.nested("mesg").items()
    given = {name: text for name, text in nested if isinstance(text, str)}
    kept = (WHEN, edits.SEEN, edits.NUMBER)
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
