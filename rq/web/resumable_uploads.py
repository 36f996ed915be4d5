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
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.config import files
from rq.errors import AlreadyCommitted, BadInput, Busy
from rq.kinds import PASSING
from rq.rpc import wire
from rq.rpc.lines.owners import Reply
from rq.web import views
from rq.web.answers import failure_in, say_reply
from rq.web.intake import Intake, cannot_take, check_room, go_on_from, pour
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
    """Uploads in pieces."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._parts = site.uploads

    async def put(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        wanted = wanted_by(req)
        place = {"msg_id": checked(msg_id), "name": names.attachment(file)}
        request = as_preparer(req, place)
        state = await self._site.owners.ask(name, "get_message_state", request)
        if state != ["ok", State.PREP]:
            await req.stream.exhaust()
            already = AlreadyCommitted("msg already commited")
            failed = wire.failure(already, with_kind=True)
            say_reply(resp, failed if state[0] == "ok" else state)
            return
        # What there is no room for must not count as begun.
        check_room(self._site, 0 if wanted.start is None else left(wanted))
        part = self._parts.admit(_name(req, name, place, wanted), wanted.size)
        with contextlib.closing(opened(part)) as intake:
            say_reply(resp, await self._take(req, name, place, wanted, part, intake))

    async def _take(
        self,
        req: Request,
        name: str,
        place: dict[str, str],
        wanted: Wanted,
        part: Path,
        intake: Intake,
    ) -> Reply:
        have = os.fstat(intake.fd).st_size
        if wanted.start is None:
            if not have:
                self._parts.forget(part.name)
            return await self._progress(name, place, wanted, have)
        if wanted.start > have:
            await req.stream.exhaust()
            return _go_on_from(have)
        await go_on_from(self._site, intake, wanted.start)
        await pour(self._site, no_more(req.stream, left(wanted)), intake)
        have = os.fstat(intake.fd).st_size
        if have < wanted.size:
            return _go_on_from(have)
        about: dict[str, Json] = {
            **place,
            "pathname": f"/{place['name']}",
            "sha256": wanted.sha256,
            "digests": intake.digests(),
        }
        owners = self._site.owners
        request = as_preparer(req, about)
        reply = await owners.with_file(name, "attach_message", request, intake.fd)
        error = failure_in(reply)
        if error is None or error.kind not in PASSING:  # else it is kept for that
            self._parts.forget(part.name)
        return reply

    async def _progress(
        self, name: str, place: dict[str, str], wanted: Wanted, have: int
    ) -> Reply:
        """Answer how many bytes have come; or that it is attached already."""
        message = await views.message(self._site.owners, name, place["msg_id"])
        held = message.get("_attachments", {}).get(place["name"])
        if held is not None and held["sha256"] == wanted.sha256:
            return ["ok", f"{held['md5']}-Attached successfully"]
        return ["ok", have]


def _name(req: Request, name: str, place: dict[str, str], wanted: Wanted) -> str:
    """Return what the file is called in which the pieces are put together."""
    what = [name, place["msg_id"], place["name"], wanted.sha256, str(wanted.size)]
    return name_of("\n".join(what), req.context.principal.name)


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
