"""Attachments over REST: received into a file without a name, which the owner gives one."""

from __future__ import annotations

import contextlib
import hashlib

import falcon
from falcon.asgi import Request, Response
from falcon.asgi.multipart import BodyPart
from falcon.media.multipart import MultipartParseError

from rq.access.roles import Role
from rq.errors import AlreadyCommitted, NoSuchMessage
from rq.kinds import Kind
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import forms, views
from rq.web.answers import back_of, failure_in, go, say_reply, wants_json
from rq.web.forms import Form
from rq.web.intake import Intake, nameless, pour
from rq.web.messages import BEGIN_ANEW, NOT_FOUND, as_preparer, checked, is_id
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import State

_NOT_THERE = wire.failure(NoSuchMessage(NOT_FOUND), with_kind=True)
_FIELD_LIMIT = 64 * 1024  # bytes of a field that is no file


def add_routes(routes: Routes, site: Site) -> None:
    """Add the routes that change attachments."""
    attachments = Attachments(site)
    routes.post("/q/{name}/{msg_id}/attach/new", attachments.upload, Role.PRODUCER)
    routes.post("/q/{name}/{msg_id}/attach/{file}", attachments.change, Role.PRODUCER)


class Attachments:
    """Attachments of messages in prep."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def upload(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        message = {"msg_id": msg_id.removeprefix(".")}
        state: Reply = _NOT_THERE
        if is_id(msg_id):
            request = as_preparer(req, message)
            state = await self._site.owners.ask(name, "get_message_state", request)
        if state == ["ok", State.PREP]:
            reply, form = await self._take(req, name, message)
        else:
            # Read the body to its end: a client that is still sending reads no answer.
            form, sent = await _skim(req)
            reply, error = state, failure_in(state)
            if error is None:
                reply = await self._too_late(name, message, sent)
            elif error.kind is Kind.NO_SUCH_MESSAGE:
                reply = await self._not_there(req, name, message, sent)
        self._say(resp, form, name, msg_id, reply)

    async def _take(
        self, req: Request, name: str, message: dict[str, str]
    ) -> tuple[Reply, Form]:
        """Receive a file and let the owner attach it; return its reply, and the form."""
        upload: tuple[str, Intake] | None = None
        fields: list[tuple[str, str]] = []
        with contextlib.ExitStack() as held:
            try:
                async for part in forms.parts(req):
                    if part.name == "filedata" and upload is None:
                        upload = await self._receive(part, held)
                        continue
                    data = await part.stream.read(_FIELD_LIMIT)
                    fields.append((part.name or "", data.decode("utf-8", "replace")))
            except MultipartParseError as error:
                raise forms.unreadable(error) from None
            if upload is None:
                raise _no_file()
            # Only now, at the end of the form, is it known that no line was cut in it.
            file, intake = upload
            about = {**message, "name": file, "pathname": f"/{file}"}
            wanted = as_preparer(req, {**about, "digests": intake.digests()})
            reply = await self._site.owners.with_file(
                name, "attach_message", wanted, intake.fd
            )
        return reply, Form(fields)

    async def _receive(
        self, part: BodyPart, held: contextlib.ExitStack
    ) -> tuple[str, Intake]:
        """Write a file down; return its name and what came, which `held` closes."""
        file = _base_name(part.filename or "")
        if not file:
            raise _no_file()
        new = nameless(self._site.root.uploads)
        intake = held.enter_context(contextlib.closing(new))
        await pour(self._site, part.stream, intake)
        return file, intake

    async def _too_late(self, name: str, message: dict[str, str], sent: str) -> Reply:
        """Answer a sender who has not heard that its message was accepted: it has what
        was sent, or it is too late."""
        view = await views.message(self._site.owners, name, message["msg_id"])
        attached = view.get("_attachments", {})
        if sent in [f"{file} {held['md5']}" for file, held in attached.items()]:
            return ["ok", f"{sent.rpartition(' ')[2]}-Attached successfully"]
        already = AlreadyCommitted("msg already commited")
        return wire.failure(already, with_kind=True)

    async def _not_there(
        self, req: Request, name: str, message: dict[str, str], sent: str
    ) -> Reply:
        """Answer a sender whose message is not here. It may have been committed, and the
        sender has only not heard so: an ancestor's asks for nothing else before it sends
        all again, which it does for no other words than these."""
        if sent and is_id(message["msg_id"]):
            request = as_preparer(req, message)
            reply = await self._site.owners.ask(name, "commit_message", request)
            if reply[0] == "ok":
                return ["ok", f"{sent.rpartition(' ')[2]}-Attached successfully"]
        return wire.failure(NoSuchMessage(BEGIN_ANEW), with_kind=True)

    async def change(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        form = await forms.read(req)
        if form.get("_method") != "delete":
            raise falcon.HTTPBadRequest(
                description="400 - Invalid method param: only delete is known here"
            )
        reply: Reply = _NOT_THERE
        if is_id(msg_id) or not wants_json(form):
            place = {"msg_id": checked(msg_id), "attachment_name": file}
            request = as_preparer(req, place)
            reply = await self._site.owners.ask(name, "delete_attach_message", request)
        self._say(resp, form, name, msg_id, reply)

    def _say(
        self, resp: Response, form: Form, name: str, msg_id: str, reply: Reply
    ) -> None:
        if wants_json(form):
            say_reply(resp, reply)
            return
        error = failure_in(reply)
        if error is not None and not form.has("back"):
            raise wire.failure_in(reply, f"{name}/{msg_id}: ") or error
        address = back_of(self._site, form, f"/q/{name}/{msg_id}")
        kind = "error" if error is not None else "notice"
        go(self._site, resp, address, kind, str(error or reply[-1]))


async def _skim(req: Request) -> tuple[Form, str]:
    """Read a body without keeping its file; return `NAME MD5` of that, too."""
    fields, sent = [], ""
    async for part in forms.parts(req):
        if part.filename is None:
            data = await part.stream.read(_FIELD_LIMIT)
            fields.append((part.name or "", data.decode("utf-8", "replace")))
            continue
        digest = hashlib.md5(usedforsecurity=False)
        async for piece in part.stream:
            digest.update(piece)
        sent = f"{_base_name(part.filename)} {digest.hexdigest()}"
    return Form(fields), sent


def _base_name(file: str) -> str:
    """Return a file name without the directories that some browsers send. In a form a
    quotation mark is spelled `%22` (HTML's multipart/form-data), and nothing else is.

    >>> _base_name("C:\\\\scans\\\\100% %22raw%22.png")
    '100% "raw".png'
    """
    base = file.replace("\\", "/").rpartition("/")[2]
    return base.replace("%22", '"')


def _no_file() -> falcon.HTTPNotFound:
    return falcon.HTTPNotFound(description="The field filedata holds no file.")
