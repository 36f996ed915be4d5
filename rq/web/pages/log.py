"""The log of a message: as a page, as text, as a stream, and searched."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.layout import ATTACH, JOB, STDIO_LOG
from rq.spool import folders
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
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


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
        path = self._path(name, msg_id)
        size = _size(path)
        start = _whole(req, "from", max(0, size - FIRST))
        values = {
            "facts": told,
            "message": told,
            "queue_name": name,
            "shown": shown(told),
            "start": min(start, size),
            "size": size,
            "tail": await asyncio.to_thread(plain_text, path, start),
            "find": req.get_param("find", default="")[:200],
        }
        await page.show(req, resp, self._site, template, values)

    async def twin(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        """Answer where the log is and how large; with `find`, where a text is in it."""
        told = await facts_of(self._site, name, msg_id)
        path = self._path(name, msg_id)
        known: dict[str, Any] = {
            "size": _size(path),
            "url": self._site.url(f"/q/{name}/{msg_id}/log/{STDIO_LOG}"),
            "follow": self._site.url(f"/q/{name}/{msg_id}/follow"),
            **logwatch.state_of(told),
        }
        wanted = req.get_param("find", default="")[:200]
        if wanted:
            start = _whole(req, "from", 0)
            known |= await asyncio.to_thread(search, path, wanted, start)
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
        path = self._file(name, msg_id, directory, file)
        if path is None:
            raise falcon.HTTPNotFound(description=f"There is no file {file!r:.80}.")
        size = _size(path)
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
            "tail": await asyncio.to_thread(plain_text, path, start),
        }
        await page.show(req, resp, self._site, "tail.html", values)

    def _file(self, name: str, msg_id: str, directory: str, file: str) -> Path | None:
        """Return a regular file of a message; None when there is none, or its name
        could lead elsewhere."""
        folder = self._folder(name, msg_id)
        if folder is None or not names.is_attachment(file):
            return None
        path = folder / directory / file
        return None if path.is_symlink() or not path.is_file() else path

    def _folder(self, name: str, msg_id: str) -> Path | None:
        queue, bare = self._site.root.queue(name), names.msg_id(msg_id)
        state = folders.find(queue, bare)
        return queue.message(state, bare) if state is not None else None

    def _path(self, name: str, msg_id: str) -> Path | None:
        folder = self._folder(name, msg_id)
        return folder / JOB / STDIO_LOG if folder else None


def _whole(req: Request, name: str, default: int) -> int:
    text = req.get_param(name, default="")
    return int(text[:18]) if text.isascii() and text.isdigit() else default


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except OSError:
        return 0


def plain_text(path: Path | None, start: int) -> str:
    """Return a piece of a log for those who have no script: no escapes, no colours."""
    data = _read(path, start, FIRST)
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = (one.rpartition("\r")[2] for one in _ESCAPES.sub("", text).split("\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", "\n".join(lines))


def _read(path: Path | None, start: int, length: int) -> bytes:
    if path is None:
        return b""
    try:
        fd = folders.open_regular(path)
    except OSError:
        return b""
    try:
        return os.pread(fd, length, start)
    finally:
        os.close(fd)


def search(path: Path | None, wanted: str, start: int) -> dict[str, Any]:
    """Return where `wanted` is in a file, from byte `start` on; case does not matter.

    Both the answer and the time are bounded; `next` says where to go on, None when the
    file was read to its end.
    """
    pattern = re.compile(re.escape(wanted.encode()), re.IGNORECASE)
    found: list[dict[str, Any]] = []
    overlap = len(wanted.encode()) + _AROUND
    end = time.monotonic() + _SEARCH_FOR
    at = start
    while data := _read(path, at, _BLOCK):
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
    return _CONTROLS.sub("", _ESCAPES.sub("", text)).strip()
