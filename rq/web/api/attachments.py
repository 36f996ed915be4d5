"""The operations of a message with files: it is prepared, its files are attached, and then
it is committed (`commitMessage`), which is when it is accepted."""

from __future__ import annotations

import re
from typing import Annotated, NotRequired, TypedDict, cast

from falcon.asgi import Request

from rq import names
from rq.access.roles import Role
from rq.builtin.router import rules
from rq.errors import AlreadyCommitted, BadInput, WrongOffset
from rq.kinds import Kind
from rq.layout import ATTACH
from rq.rpc import client
from rq.web import downloads, own, reading
from rq.web.api import requests
from rq.web.api.message_shape import NewMessage
from rq.web.api.messages import (
    KEY,
    LOCATION,
    PLACE,
    Sent,
    key_of,
    sent,
)
from rq.web.api.operation import (
    OF_OWNERS,
    Answer,
    Header,
    Media,
    OpenFile,
    Operation,
)
from rq.web.messages import as_preparer, check_dest, checked, with_user
from rq.web.resumable_uploads import (
    DIGEST,
    Place,
    Upload,
    attached,
    take_piece,
    take_whole,
    wanted_by,
)
from rq.web.routes import Own
from rq.web.site import Site
from rq.words.nesting import Json
from rq.words.states import State

_RANGE = "Content-Range"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILES = f"{PLACE}/{{msg_id}}/attachments"
_FILE = f"{_FILES}/{{file}}"


async def prepare(site: Site, req: Request, body: NewMessage, name: str) -> Answer:
    """Begin a message: it is on disk, and nothing more happens until it is committed."""
    message = {**body, "dest": body.get("dest") or name}
    check_dest(req, name, message)
    await own.check_after(site, req.context.principal, name, message)
    if (key := key_of(req, body.get("_key"))) is not None:
        message["_key"] = key
    request = as_preparer(req, with_user(req, cast("dict[str, Json]", message)))
    queue = rules.addressed(site.root, name)
    reply = await site.owners.ask(queue, "prep_message", request)
    url = client.demanded(reply)
    was_committed = reply[2:3] not in ([], [str(State.PREP)])
    return sent(site, str(url), joined=was_committed)


# ---- its files


class Attachment(TypedDict):
    """A file of a message."""

    name: str
    size: Annotated[int, "bytes"]
    sha256: str
    md5: str


class Attachments(TypedDict):
    """The files of a message, in the order of their names."""

    attachments: list[Attachment]


class Attached(TypedDict):
    """What is here of a file that is sent."""

    name: str
    have: Annotated[int, "bytes that are here"]
    attached: Annotated[bool, "it is whole, and belongs to the message"]
    sha256: NotRequired[str]


async def list_all(
    site: Site, req: Request, body: None, name: str, msg_id: str
) -> Attachments:
    view = await reading.message(site, name, checked(msg_id))
    held = view.get("_attachments", {})
    rows: list[Attachment] = [
        {"name": file, "size": it["size"], "sha256": it["sha256"], "md5": it["md5"]}
        for file, it in sorted(held.items())
    ]
    return {"attachments": rows}


async def get(
    site: Site, req: Request, body: None, name: str, msg_id: str, file: str
) -> Answer:
    inner = f"{ATTACH}/{downloads.plain(file)}"
    fd = await downloads.open_file(site, name, checked(msg_id), inner)
    saved = {"Content-Disposition": downloads.saved_as(file)}
    media = downloads.type_of(file)
    return Answer(file=OpenFile(fd=fd, media=media), headers=saved)


async def put(
    site: Site, req: Request, body: None, name: str, msg_id: str, file: str
) -> Answer:
    """Take a file, whole or a piece of it, as the headers say."""
    requests.check_packing(req)
    place = Place(name, checked(msg_id), _named(file))
    digest = _digest_of(req)
    request = as_preparer(req, place.about)
    state = await site.owners.demand(name, "get_message_state", request)
    if state != State.PREP:
        await req.stream.exhaust()
        return await _as_before(site, place, digest)
    if req.get_header(_RANGE) is None:
        return _answer(place, await take_whole(site, req, place, digest))
    wanted = wanted_by(req)
    upload = await take_piece(site, req, place, wanted)
    if upload.reply is None and wanted.start is None:
        held = await attached(site, place)
        if held is not None and held["sha256"] == wanted.sha256:
            return _is_attached(place, held["size"], held["sha256"])
    elif upload.reply is None and (wanted.start or 0) > upload.have:
        raise WrongOffset(
            f"{upload.have} bytes of {place.file} are here: go on from there",
            upload.have,
        )
    return _answer(place, upload)


def _named(file: str) -> str:
    """Return a name that a file may have; what is no UTF-8 in an address is none."""
    if "\ufffd" in file:
        raise BadInput("the name of the file is not UTF-8")
    return names.attachment(file)


def _digest_of(req: Request) -> str | None:
    digest = req.get_header(DIGEST)
    if digest is not None and not _SHA256.fullmatch(digest):
        raise BadInput(f"{DIGEST} is not a SHA-256, 64 digits from 0 to f")
    return digest


async def _as_before(site: Site, place: Place, digest: str | None) -> Answer:
    """Answer a sender who may not have heard that a file was attached before its message
    was committed."""
    held = await attached(site, place)
    if held is None or held["sha256"] != digest:
        raise AlreadyCommitted(f"message {place.msg_id} was committed before")
    return _is_attached(place, held["size"], held["sha256"])


def _answer(place: Place, upload: Upload) -> Answer:
    """Answer what has become of a file; an RQError when its queue refuses it."""
    if upload.reply is not None:
        client.demanded(upload.reply)
        return _is_attached(place, upload.have, str(upload.digests["sha256"]))
    more: Attached = {"name": place.file, "have": upload.have, "attached": False}
    return Answer(value=more, status=202)


def _is_attached(place: Place, size: int, sha256: str) -> Answer:
    value: Attached = {
        "name": place.file,
        "have": size,
        "attached": True,
        "sha256": sha256,
    }
    return Answer(value=value)


class Removed(TypedDict):
    """A file that a message has no more."""

    name: str


async def delete(
    site: Site, req: Request, body: None, name: str, msg_id: str, file: str
) -> Removed:
    place = {"msg_id": checked(msg_id), "attachment_name": _named(file)}
    await site.owners.demand(name, "delete_attach_message", as_preparer(req, place))
    return {"name": file}


_OF_ONE = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE, Kind.UNREADABLE)
_CHANGES = (*_OF_ONE, Kind.WRONG_STATE)
ROWS = (
    Operation(
        operation_id="prepareMessage",
        method="POST",
        path=f"{PLACE}/prepare",
        role=Role.PRODUCER,
        summary="Begin a message: files are attached, then it is committed.",
        request=NewMessage,
        reply=Sent,
        failures=(*OF_OWNERS, Kind.TOO_LARGE, Kind.NO_ROOM),
        own=Own.SENDS,
        handler=prepare,
        status=201,
        other_status=200,
        headers=(KEY,),
        reply_headers=(LOCATION,),
    ),
    Operation(
        operation_id="listAttachments",
        method="GET",
        path=_FILES,
        role=Role.VIEWER,
        summary="List the files of a message.",
        request=None,
        reply=Attachments,
        failures=_OF_ONE,
        own=Own.MESSAGE,
        handler=list_all,
    ),
    Operation(
        operation_id="getAttachment",
        method="GET",
        path=_FILE,
        role=Role.VIEWER,
        summary="Give a file of a message, or the part that Range asks for.",
        request=None,
        reply=object,
        failures=_OF_ONE,
        own=Own.MESSAGE,
        handler=get,
        gives=Media.BYTES,
        ranges=True,
        headers=(
            Header(name="Range", about="bytes=FIRST-LAST, one range"),
            Header(name="If-Range", about="the ETag of which the part is wanted"),
            Header(name="If-None-Match", about="the ETag of a file that is here"),
        ),
        reply_headers=(
            Header(name="ETag", about="of the file"),
            Header(name="Content-Disposition", about="its name"),
        ),
    ),
    Operation(
        operation_id="putAttachment",
        method="PUT",
        path=_FILE,
        role=Role.PRODUCER,
        summary="Attach a file to a message that is prepared, whole or in pieces.",
        request=None,
        reply=Attached,
        failures=(
            *_CHANGES,
            Kind.ALREADY_COMMITTED,
            Kind.NOT_WHOLE,
            Kind.WRONG_OFFSET,
            Kind.NO_ROOM,
            Kind.TOO_LARGE,
        ),
        own=Own.MESSAGE,
        handler=put,
        takes=(Media.BYTES,),
        other_status=202,
        headers=(
            Header(name=DIGEST, about="SHA-256 of the whole file; of pieces a must"),
            Header(
                name=_RANGE,
                about="bytes FIRST-LAST/SIZE of a piece; bytes */SIZE asks what is here",
            ),
        ),
    ),
    Operation(
        operation_id="deleteAttachment",
        method="DELETE",
        path=_FILE,
        role=Role.PRODUCER,
        summary="Take a file from a message that is prepared.",
        request=None,
        reply=Removed,
        failures=_CHANGES,
        own=Own.MESSAGE,
        handler=delete,
    ),
)
