"""Attachments that can go on where they were cut: PUT with a digest, raw, in pieces.

What has come lies in a file under `config/tmp`, called by what it will be: its message,
name and digest. It is hashed as it comes; the owner compares, and gives it its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.config import files
from rq.errors import AlreadyCommitted, BadInput, Busy
from rq.kinds import PASSING
from rq.replies import AttachmentView
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import views
from rq.web.answers import failure_in, say_reply
from rq.web.intake import (
    Intake,
    cannot_take,
    check_room,
    go_on_from,
    nameless,
    pour,
)
from rq.web.messages import as_preparer, checked
from rq.web.routes import Routes
from rq.web.site import Site
from rq.web.unfinished_uploads import name_of
from rq.words.nesting import Json
from rq.words.states import State

DIGEST = "X-RQ-SHA256"
_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})")


def add_routes(routes: Routes, site: Site) -> None:
    """Add the route of uploads that can go on."""
    routes.put(
        "/q/{name}/{msg_id}/attach/{file}", ResumableUploads(site).put, Role.PRODUCER
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is sent: from which byte of how many; from None is asked how many came."""

    start: int | None
    size: int
    sha256: str


class ResumableUploads:
    """Uploads in pieces, as the pages and the ancestor's REST answer them."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def put(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        wanted = wanted_by(req)
        place = Place(name, checked(msg_id), names.attachment(file))
        request = as_preparer(req, place.about)
        state = await self._site.owners.ask(name, "get_message_state", request)
        if state != ["ok", State.PREP]:
            await req.stream.exhaust()
            already = AlreadyCommitted("msg already commited")
            failed = wire.failure(already, with_kind=True)
            say_reply(resp, failed if state[0] == "ok" else state)
            return
        upload = await take_piece(self._site, req, place, wanted)
        if upload.reply is None and wanted.start is None:
            say_reply(resp, await self._progress(place, wanted, upload.have))
        else:
            say_reply(resp, upload.reply or _go_on_from(upload.have))

    async def _progress(self, place: Place, wanted: Wanted, have: int) -> Reply:
        """Answer how many bytes have come; or that it is attached already."""
        held = await attached(self._site, place)
        if held is not None and held["sha256"] == wanted.sha256:
            return ["ok", f"{held['md5']}-Attached successfully"]
        return ["ok", have]


# ---- an attachment, for every door


@dataclass(frozen=True, slots=True)
class Place:
    """An attachment, and of which message."""

    queue: str
    msg_id: str
    file: str

    @property
    def about(self) -> dict[str, str]:
        return {"msg_id": self.msg_id, "name": self.file}


@dataclass(frozen=True, slots=True)
class Upload:
    """How much of an attachment is here, and what its queue said when all of it was."""

    have: int
    digests: Mapping[str, str | int] = field(default_factory=dict)
    reply: Reply | None = None


async def attached(site: Site, place: Place) -> AttachmentView | None:
    """Return what a message holds under the name of an attachment."""
    message = await views.message(site.owners, place.queue, place.msg_id)
    return message.get("_attachments", {}).get(place.file)


async def take_piece(site: Site, req: Request, place: Place, wanted: Wanted) -> Upload:
    """Take a piece of an attachment, and give it to its queue once it is whole."""
    of = [place.queue, place.msg_id, place.file]
    async with taking_piece(site, req, of, wanted, req.stream) as here:
        if not here.is_whole:
            return Upload(here.have)
        sent = {"sha256": wanted.sha256}
        reply = await _attach(site, req, place, here.intake, sent)
        error = failure_in(reply)
        if error is None or error.kind not in PASSING:  # else it is kept for that
            here.forget()
        return Upload(here.have, here.intake.digests(), reply)


async def take_whole(
    site: Site, req: Request, place: Place, sha256: str | None
) -> Upload:
    """Take an attachment that comes in one request; `sha256`: of it, as its sender says."""
    async with taking_whole(site, req, req.stream) as intake:
        sent = {} if sha256 is None else {"sha256": sha256}
        reply = await _attach(site, req, place, intake, sent)
        return Upload(req.content_length or 0, intake.digests(), reply)


async def _attach(
    site: Site, req: Request, place: Place, intake: Intake, sent: Mapping[str, str]
) -> Reply:
    about: dict[str, Json] = {
        **place.about,
        **sent,
        "pathname": f"/{place.file}",
        "digests": intake.digests(),
    }
    request = as_preparer(req, about)
    return await site.owners.with_file(
        place.queue, "attach_message", request, intake.fd
    )


# ---- files of any kind that come in pieces, or whole


@dataclass(frozen=True, slots=True)
class Piece:
    """What is here of a file, with the piece that has just come."""

    have: int
    intake: Intake
    is_whole: bool
    forget: Callable[[], None]  # call it when nothing of it is needed here any more


@contextlib.asynccontextmanager
async def taking_piece(
    site: Site,
    req: Request,
    of: Sequence[str],
    wanted: Wanted,
    stream: AsyncIterable[bytes],
) -> AsyncIterator[Piece]:
    """Take a piece of a file, which is known by `of`; it is locked until this ends."""
    # What there is no room for must not count as begun.
    check_room(site, 0 if wanted.start is None else left(wanted))
    what = "\n".join([*of, wanted.sha256, str(wanted.size)])
    part = site.uploads.admit(name_of(what, req.context.principal.name), wanted.size)
    forget = partial(site.uploads.forget, part.name)
    with contextlib.closing(opened(part)) as intake:
        have = os.fstat(intake.fd).st_size
        if wanted.start is None or wanted.start > have:
            await req.stream.exhaust()
            if not have:
                forget()
            yield Piece(have, intake, False, forget)
            return
        await go_on_from(site, intake, wanted.start)
        await pour(site, no_more(stream, left(wanted)), intake)
        have = os.fstat(intake.fd).st_size
        yield Piece(have, intake, have >= wanted.size, forget)


@contextlib.asynccontextmanager
async def taking_whole(
    site: Site, req: Request, stream: AsyncIterable[bytes]
) -> AsyncIterator[Intake]:
    """Take a file that comes in one request; BadInput when its end does not come."""
    size = req.content_length
    if size is None:
        raise BadInput(f"say Content-Length, or {DIGEST} and Content-Range")
    check_room(site, size)
    with contextlib.closing(nameless(site.root.uploads)) as intake:
        await pour(site, no_more(stream, size), intake)
        if os.fstat(intake.fd).st_size < size:
            raise BadInput("the file ended before its last byte; send it again")
        yield intake


def _go_on_from(have: int) -> list[str]:
    """Return the reply to a piece that does not end the file: more has to come."""
    error = Busy(f"message has {have} bytes of it: go on from there")
    return wire.failure(error, with_kind=True)


def left(wanted: Wanted) -> int:
    """Return how many bytes are to come."""
    return max(0, wanted.size - (wanted.start or 0))


async def no_more(pieces: AsyncIterable[bytes], most: int) -> AsyncIterator[bytes]:
    """Give what comes, and never more than was announced."""
    async for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise BadInput(f"{-most} bytes more came than were announced")
        yield piece


def wanted_by(req: Request) -> Wanted:
    """Return what a request says that it sends; BadInput without it."""
    sha256 = req.get_header(DIGEST) or ""
    match = _RANGE.fullmatch(req.get_header("Content-Range") or "")
    if match is None or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BadInput(
            f"say {DIGEST}, and Content-Range: bytes FIRST-LAST/SIZE, or bytes */SIZE "
            "to ask how many have come"
        )
    start = None if match[1] is None else int(match[1])
    return Wanted(start, int(match[2]), sha256)


def opened(part: Path) -> Intake:
    """Return the file, which only one request writes at a time."""
    while True:
        try:
            fd = _descriptor(part)
        except OSError as error:
            raise cannot_take(error) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_ours(fd, part):
                return Intake(fd)
        except BlockingIOError:
            os.close(fd)
            text = "another connection is sending this attachment right now"
            raise Busy(text) from None
        os.close(fd)


def _descriptor(part: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(part, flags | os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError:  # its owner attached it, and locked what it holds
        return os.open(part, flags | os.O_RDONLY)


def _is_ours(fd: int, part: Path) -> bool:
    """Whether the file is to be written still: one that was attached meanwhile, and has
    a name as such, never is."""
    info = os.fstat(fd)
    try:
        named = os.stat(part, follow_symlinks=False).st_ino == info.st_ino
    except FileNotFoundError:
        return False
    attached = info.st_nlink > 1 or not info.st_mode & stat.S_IWUSR
    if named and attached:
        files.remove_upload(part)
    return named and not attached
