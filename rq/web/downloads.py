"""Files of messages: attachments and what their scripts wrote, whole or by range.

A file is never taken for a page of this site: what is not plain text is offered to be
saved, and a sandbox holds whatever a browser shows all the same.
"""

from __future__ import annotations

import contextlib
import mimetypes
import os
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import quote

import falcon
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import BadInput, NoSuchMessage, RQError
from rq.kinds import PASSING
from rq.layout import ATTACH, JOB, folder
from rq.spool import folders
from rq.web import views
from rq.web.messages import checked
from rq.web.routes import Routes
from rq.web.site import Site

CHUNK = 256 * 1024
SANDBOX = "sandbox; default-src 'none'; frame-ancestors 'self'"
_UNQUOTABLE = re.compile(r'[^ -~]|["\\%]')
_TEXT = (".log", ".txt", ".out", ".err")


def add_routes(routes: Routes, site: Site) -> None:
    """Add the routes of files."""
    files = Downloads(site)
    routes.get("/q/{name}/{msg_id}/attach/{file}", files.attachment, Role.VIEWER)
    routes.get("/q/{name}/{msg_id}/log/{file}", files.log, Role.VIEWER)


class Downloads:
    """Sends files of messages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def attachment(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        fd = await open_file(self._site, name, msg_id, f"{ATTACH}/{plain(file)}")
        resp.set_header("Content-Disposition", saved_as(file))
        send_file(self._site, req, resp, fd, type_of(file))

    async def log(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        fd = await open_file(self._site, name, msg_id, f"{JOB}/{plain(file)}")
        if file.endswith(_TEXT):
            send_file(self._site, req, resp, fd, "text/plain; charset=utf-8")
        else:
            resp.set_header("Content-Disposition", saved_as(file))
            send_file(self._site, req, resp, fd, type_of(file))


def plain(file: str) -> str:
    """Return a file name that stays in its directory and is no half upload."""
    if not file or file.startswith(".") or "/" in file or "\0" in file:
        raise _no_file(file)
    return file


def type_of(file: str) -> str:
    """Return the type of a file. Our policy lets pages load scripts and styles from this
    site; what a stranger attached must never be taken for one."""
    guess = mimetypes.guess_type(file)[0] or ""
    loaded = guess == "text/css" or guess.endswith(("javascript", "ecmascript"))
    return "application/octet-stream" if loaded or not guess else guess


def _no_file(file: str) -> NoSuchMessage:
    return NoSuchMessage(f"There is no file {file}.")


def saved_as(file: str) -> str:
    """Return the header that offers a file to be saved under its name (RFC 6266), of
    which nothing can end the header or its quotes.

    >>> saved_as("a b.txt")
    'attachment; filename="a b.txt"'
    >>> saved_as('q".txt')
    'attachment; filename="q_.txt"; filename*=UTF-8\'\'q%22.txt'
    """
    plain = _UNQUOTABLE.sub("_", file)
    if plain == file:
        return f'attachment; filename="{file}"'
    whole = quote(file.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{whole}"


# ---- finding and opening


async def folder_of(site: Site, queue: str, msg_id: str) -> str:
    """Return the folder of a message, below its queue: its owner knows, the disk when
    it does not answer."""
    short = checked(msg_id)
    try:
        path = await views.path(site.owners, queue, short)
    except RQError as error:
        if error.kind not in PASSING:
            raise
        state = folders.find(site.root.queue(queue), short)
        if state is None:
            raise NoSuchMessage(f"there is no message {short} in {queue}") from None
        return folder(state, short)
    return path.removeprefix(f"queue/{queue}/")


async def open_file(site: Site, queue: str, msg_id: str, inner: str) -> int:
    """Return a descriptor of a regular file of a message; it may just be moving."""
    for _ in range(3):
        path = await folder_of(site, queue, msg_id)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return _opened(folders.File(site.root.queue(queue), f"{path}/{inner}"))
    raise _no_file(inner.partition("/")[2])


def _opened(file: folders.File) -> int:
    try:
        return file.open()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        name = file.path.rpartition("/")[2]
        raise falcon.HTTPNotFound(
            description=f"{name} cannot be read: {error.strerror}."
        ) from None


# ---- sending


def send_file(
    site: Site, req: Request, resp: Response, fd: int, content_type: str
) -> None:
    """Answer with an open file, or the part of it that is asked for; closes it."""
    info = os.fstat(fd)
    etag = f'"{info.st_mtime_ns:x}-{info.st_size:x}"'
    resp.content_type = content_type
    resp.set_header("Content-Security-Policy", SANDBOX)
    resp.set_header("Accept-Ranges", "bytes")
    resp.set_header("ETag", etag)
    resp.set_header("Last-Modified", formatdate(info.st_mtime, usegmt=True))
    # A client that resumes, or asks for changes, keeps the file itself.
    resp.set_header("Cache-Control", "no-store")
    if _is_known(req, etag, info.st_mtime):
        os.close(fd)
        resp.status = falcon.HTTP_304
        return
    header = (
        req.get_header("Range") if _range_counts(req, etag, info.st_mtime) else None
    )
    try:
        part = parse_range(header or "", info.st_size)
    except BadInput:
        os.close(fd)
        raise falcon.HTTPRangeNotSatisfiable(info.st_size) from None
    start, end = part or (0, info.st_size)
    if part is not None:
        resp.status = falcon.HTTP_206
        resp.set_header("Content-Range", f"bytes {start}-{end - 1}/{info.st_size}")
    resp.set_header("Content-Length", str(end - start))
    if req.method == "HEAD":
        os.close(fd)
        return
    resp.stream = pieces(site, fd, start, end)


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return (start, end) of the one range asked for, end exclusive; None for all.

    BadInput: the file has no such bytes. What is no single range of bytes is ignored,
    as RFC 9110 allows.
    """
    unit, _, spec = header.partition("=")
    first, dash, last = spec.strip().partition("-")
    digits = all(text.isascii() and text.isdigit() for text in (first, last) if text)
    if unit.strip() != "bytes" or not dash or not digits or not (first or last):
        return None
    if max(len(first), len(last)) > 18:
        raise BadInput("the file has no such bytes")
    if not first:
        wanted = min(int(last), size)
        if wanted == 0:
            raise BadInput("the file has no such bytes")
        return size - wanted, size
    start = int(first)
    end = min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return None
    if start >= size:
        raise BadInput("the file has no such bytes")
    return start, end


def _is_known(req: Request, etag: str, mtime: float) -> bool:
    """Return whether the asker has this very content."""
    etags = req.get_header("If-None-Match")
    if etags is not None:
        return etags.strip() == "*" or etag in [tag.strip() for tag in etags.split(",")]
    return _not_newer(req.get_header("If-Modified-Since"), mtime)


def _range_counts(req: Request, etag: str, mtime: float) -> bool:
    """Return whether the asker's part is of this content (If-Range)."""
    condition = req.get_header("If-Range")
    return condition is None or condition == etag or _is_moment(condition, mtime)


def _is_moment(text: str, mtime: float) -> bool:
    return text == formatdate(mtime, usegmt=True)


def _not_newer(text: str | None, mtime: float) -> bool:
    if text is None:
        return False
    try:
        since = parsedate_to_datetime(text)
    except ValueError:
        return False
    if since.tzinfo is None:
        return False
    return datetime.fromtimestamp(int(mtime), UTC) <= since


async def pieces(site: Site, fd: int, start: int, end: int) -> AsyncIterator[bytes]:
    """Read a file in pieces, on a thread: a cold disk must not stop all others."""
    try:
        while start < end:
            size = min(CHUNK, end - start)
            data = await site.pools.file(os.pread, fd, size, start)
            if not data:
                return  # the file was cut meanwhile; the client sees it by the length
            start += len(data)
            yield data
    finally:
        os.close(fd)
