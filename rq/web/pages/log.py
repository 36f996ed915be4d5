"""The log of a message: as a page, as text, as a stream, and searched."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import falcon
from falcon.asgi import Request, Response

from rq import names, visible
from rq.layout import ATTACH, JOB, STDIO_LOG
from rq.spool import folders
from rq.spool.folders import File
from rq.web import livelog, logwatch
from rq.web.pages import page
from rq.web.pages.message import facts_of, shown

if TYPE_CHECKING:
    from rq.web.site import Site

FIRST = 64 * 1024  # bytes that are shown at first
_BLOCK = 1024 * 1024
_FOUND = 200
_SEARCH_FOR = 2.0  # seconds; then the search says where it stopped
_AROUND = 120  # bytes of a line shown before and after what was found


class LogPages:
    """Everything under /q/NAME/ID that shows what its script wrote."""

    def __init__(self, site: Site, hub: livelog.Hub) -> None:
        self._site = site
        self._hub = hub

    async def page(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        if page.wants_json(req):
            await self.twin(req, resp, name, msg_id)
            return
        await self._show(req, resp, name, msg_id, "log.html")

    async def _show(
        self, req: Request, resp: Response, name: str, msg_id: str, template: str
    ) -> None:
        told = await facts_of(self._site, name, msg_id)
        file = self._log(name, msg_id)
        size = _size(file)
        start = _whole(req, "from", max(0, size - FIRST))
        values = {
            "facts": told,
            "message": told,
            "queue_name": name,
            "shown": shown(told),
            "start": min(start, size),
            "size": size,
            "tail": await self._site.pools.file(plain_text, file, start),
            "find": req.get_param("find", default="")[:200],
        }
        await page.show(req, resp, self._site, template, values)

    async def twin(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        """Answer where the log is and how large; with `find`, where a text is in it."""
        told = await facts_of(self._site, name, msg_id)
        file = self._log(name, msg_id)
        known: dict[str, Any] = {
            "size": _size(file),
            "url": self._site.url(f"/q/{name}/{msg_id}/log/{STDIO_LOG}"),
            "follow": self._site.url(f"/q/{name}/{msg_id}/follow"),
            **logwatch.state_of(told),
        }
        wanted = req.get_param("find", default="")[:200]
        if wanted:
            start = _whole(req, "from", 0)
            known |= await self._site.pools.search(search, file, wanted, start)
        resp.cache_control = ["no-store"]
        resp.media = known

    async def follow(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        """Answer with the stream of server-sent events."""
        await facts_of(self._site, name, msg_id)
        start = _whole(req, "from", 0)
        resumed = req.get_header("Last-Event-ID")
        if resumed and resumed.isascii() and resumed.isdigit():
            start = int(resumed[:18])
        bare = names.msg_id(msg_id)
        viewer = logwatch.Viewer(start, patient="keep" in req.params)
        viewer.who = req.context.principal.name
        viewer.stands = getattr(req.context, "stands", viewer.stands)
        resp.sse = self._hub.follow(name, bare, viewer)  # type: ignore[assignment]
        resp.cache_control = ["no-store"]
        resp.set_header("X-Accel-Buffering", "no")

    async def tail_of_log(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        """The ancestor's address of the live view."""
        if file != STDIO_LOG:
            await self._tail(req, resp, name, msg_id, (JOB, file))
            return
        await self._show(req, resp, name, msg_id, "log.html")

    async def tail_of_attachment(
        self, req: Request, resp: Response, name: str, msg_id: str, file: str
    ) -> None:
        await self._tail(req, resp, name, msg_id, (ATTACH, file))

    async def _tail(
        self,
        req: Request,
        resp: Response,
        name: str,
        msg_id: str,
        place: tuple[str, str],
    ) -> None:
        """Show the end of another file of a message."""
        await facts_of(self._site, name, msg_id)
        directory, file = place
        found = self._file(name, msg_id, directory, file)
        with _opened(found) as fd:
            if fd is None:
                raise falcon.HTTPNotFound(description=f"There is no file {file!r:.80}.")
            size = os.fstat(fd).st_size
        start = max(0, size - FIRST)
        word = "log" if directory == JOB else "attach"
        values = {
            "facts": {"file": file, "size": size},
            "queue_name": name,
            "msg_id": msg_id,
            "file": file,
            "size": size,
            "start": start,
            "raw": self._site.url(f"/q/{name}/{msg_id}/{word}/{file}"),
            "tail": await self._site.pools.file(plain_text, found, start),
        }
        await page.show(req, resp, self._site, "tail.html", values)

    def _file(self, name: str, msg_id: str, directory: str, file: str) -> File | None:
        """Return a file of a message; None when its name could lead elsewhere."""
        if not names.is_attachment(file):
            return None
        return self._inner(name, msg_id, f"{directory}/{file}")

    def _log(self, name: str, msg_id: str) -> File | None:
        return self._inner(name, msg_id, f"{JOB}/{STDIO_LOG}")

    def _inner(self, name: str, msg_id: str, inner: str) -> File | None:
        queue, bare = self._site.root.queue(name), names.msg_id(msg_id)
        state = folders.find(queue, bare)
        return None if state is None else folders.file_of(queue, state, bare, inner)


@contextlib.contextmanager
def _opened(file: File | None) -> Iterator[int | None]:
    """Open a file; nothing is there if it has not been written, or cannot be trusted."""
    try:
        fd = None if file is None else file.open()
    except OSError:
        fd = None
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _whole(req: Request, name: str, default: int) -> int:
    text = req.get_param(name, default="")
    return int(text[:18]) if text.isascii() and text.isdigit() else default


def _size(file: File | None) -> int:
    with _opened(file) as fd:
        return 0 if fd is None else os.fstat(fd).st_size


def plain_text(file: File | None, start: int) -> str:
    """Return a piece of a log for those who have no script: no escapes, no colours."""
    with _opened(file) as fd:
        data = b"" if fd is None else os.pread(fd, FIRST, start)
    return visible.uncoloured(data.decode("utf-8", "replace"))


def search(file: File | None, wanted: str, start: int) -> dict[str, Any]:
    """Return where `wanted` is in a file, from byte `start` on; case does not matter.

    Both the answer and the time are bounded; `next` says where to go on, None when the
    file was read to its end.
    """
    with _opened(file) as fd:
        return {"found": [], "next": None} if fd is None else _search(fd, wanted, start)


def _search(fd: int, wanted: str, start: int) -> dict[str, Any]:
    pattern = re.compile(re.escape(wanted.encode()), re.IGNORECASE)
    found: list[dict[str, Any]] = []
    overlap = len(wanted.encode()) + _AROUND
    end = time.monotonic() + _SEARCH_FOR
    at = start
    while data := os.pread(fd, _BLOCK, at):
        more = len(data) == _BLOCK
        usable = len(data) - overlap if more else len(data)
        for hit in pattern.finditer(data):
            if hit.start() >= usable:
                break
            found.append({"at": at + hit.start(), "text": _excerpt(data, hit)})
            if len(found) == _FOUND:
                return {"found": found, "next": at + hit.end()}
        at += usable
        if not more:
            return {"found": found, "next": None}
        if time.monotonic() > end:
            return {"found": found, "next": at}
    return {"found": found, "next": None}


def _excerpt(data: bytes, hit: re.Match[bytes]) -> str:
    left = data.rfind(b"\n", max(0, hit.start() - _AROUND), hit.start()) + 1
    left = left or max(0, hit.start() - _AROUND)
    right = data.find(b"\n", hit.end(), hit.end() + _AROUND)
    right = right if right >= 0 else hit.end() + _AROUND
    text = data[left:right].decode("utf-8", "replace")
    # A file with holes is mostly zeros, which say nothing here.
    return visible.uncoloured(text.replace("\0", "")).strip()
