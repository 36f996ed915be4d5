"""The log of a message: as a page, as text, as a stream, and searched."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.errors import NoSuchMessage
from rq.layout import ATTACH, JOB, STDIO_LOG, QueueDir
from rq.spool import attempts_kept, folders
from rq.spool.folders import File
from rq.web import livelog, reading
from rq.web.pages import page
from rq.web.pages.message import attempts_of, facts_of, view_of
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words import visible

FIRST = 64 * 1024  # bytes that are shown at first
_BEFORE = 4096  # bytes, of those before what is looked for, in which a line may begin
_BLOCK = 1024 * 1024
_MOST_HITS = 200
_SEARCH_FOR = 2.0  # seconds; then the search says where it stopped
_AROUND = 120  # bytes of a line shown before and after what was found


def add_routes(routes: Routes, site: Site) -> None:
    """Add the log of a message in all its forms."""
    site.streams.append(hub := livelog.Hub(site))
    log = LogPages(site, hub)
    here = "/q/{name}/{msg_id}"
    routes.get(f"{here}/log", log.page, Role.VIEWER)
    routes.get(f"{here}/log.json", log.twin, Role.VIEWER)
    routes.get(f"{here}/follow", log.follow, Role.VIEWER)
    routes.get(f"{here}/tailviewlog/{{file}}", log.tail_of_log, Role.VIEWER)
    routes.get(f"{here}/tailview/{{file}}", log.tail_of_attachment, Role.VIEWER)


class LogPages:
    """Everything under /q/NAME/ID that shows what its script wrote."""

    def __init__(self, site: Site, hub: livelog.Hub) -> None:
        self._site = site
        self._hub = hub

    async def page(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        if page.wants_json(req):
            await self.twin(req, resp, name, msg_id)
            return
        if number := _whole(req, "attempt", 0):
            await self._attempt(req, resp, name, msg_id, number)
            return
        await self._show(req, resp, name, msg_id, "log.html")

    async def _show(
        self, req: Request, resp: Response, name: str, msg_id: str, template: str
    ) -> None:
        message = await facts_of(self._site, req, name, msg_id)
        file = self._log(name, msg_id)
        size = _size(file)
        from_byte = _whole(req, "from", -1)
        start = await self._site.pools.file(begin_of, file, from_byte, size)
        values = {
            "facts": message,
            "message": message,
            "queue_name": name,
            "view": view_of(message),
            "start": start,
            "size": size,
            "tail": await self._site.pools.file(plain_text, file, start),
            "find": req.get_param("find", default="")[:200],
            "attempts": await attempts_of(self._site, req, name, message),
        }
        await page.show(req, resp, self._site, template, values)

    async def _attempt(
        self, req: Request, resp: Response, name: str, msg_id: str, number: int
    ) -> None:
        """Show what one attempt has printed."""
        message = await facts_of(self._site, req, name, msg_id)
        rows = (await reading.attempts(self._site, name, names.msg_id(msg_id)))[
            "attempts"
        ]
        part = attempts_kept.part_of(rows, number)
        if part is None:
            raise NoSuchMessage(attempts_kept.why_none(rows, number))
        file = self._file(name, msg_id, JOB, part.file)
        end = _size(file) if part.end is None else part.end
        start = max(part.begin, begin_of(file, -1, end))
        tail = await self._site.pools.file(plain_text, file, start, end)
        api = f"/api/v1/queues/{name}/messages/{message['msg_id']}"
        values = {
            "facts": {"file": part.file, "size": end - part.begin},
            "queue_name": name,
            "msg_id": msg_id,
            "file": f"attempt {number}",
            "size": end - part.begin,
            "start": start - part.begin,
            "raw": self._site.url(f"{api}/log?attempt={number}"),
            "tail": tail,
            "attempts": {"attempts": rows, "left_out": 0},
            "number": number,
        }
        await page.show(req, resp, self._site, "tail.html", values)

    async def twin(self, req: Request, resp: Response, name: str, msg_id: str) -> None:
        """Answer where the log is and how large; with `find`, where a text is in it."""
        message = await facts_of(self._site, req, name, msg_id)
        file = self._log(name, msg_id)
        size = _size(file)
        facts: dict[str, object] = {
            "size": size,
            "start": begin_of(file, -1, size),
            "url": self._site.url(f"/q/{name}/{msg_id}/log/{STDIO_LOG}"),
            "follow": self._site.url(f"/q/{name}/{msg_id}/follow"),
            **livelog.state_of(message),
        }
        wanted = req.get_param("find", default="")[:200]
        if wanted:
            start = _whole(req, "from", 0)
            hits = await self._site.pools.search(search, file, wanted, start)
            facts |= {"found": [asdict(hit) for hit in hits.hits], "next": hits.next}
        resp.cache_control = ["no-store"]
        resp.media = facts

    async def follow(
        self, req: Request, resp: Response, name: str, msg_id: str
    ) -> None:
        """Answer with the stream of server-sent events."""
        await facts_of(self._site, req, name, msg_id)
        start = _whole(req, "from", 0)
        resumed = req.get_header("Last-Event-ID")
        if resumed and resumed.isascii() and resumed.isdigit():
            start = int(resumed[:18])
        bare = names.msg_id(msg_id)
        viewer = livelog.Viewer(start, patient="keep" in req.params)
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
        inner: tuple[str, str],
    ) -> None:
        """Show the end of another file of a message."""
        await facts_of(self._site, req, name, msg_id)
        directory, file = inner
        place = self._file(name, msg_id, directory, file)
        with _opened(place) as fd:
            if fd is None:
                raise falcon.HTTPNotFound(description=f"There is no file {file!r:.80}.")
            size = os.fstat(fd).st_size
        start = begin_of(place, -1, size)
        word = "log" if directory == JOB else "attach"
        values = {
            "facts": {"file": file, "size": size},
            "queue_name": name,
            "msg_id": msg_id,
            "file": file,
            "size": size,
            "start": start,
            "raw": self._site.url(f"/q/{name}/{msg_id}/{word}/{file}"),
            "tail": await self._site.pools.file(plain_text, place, start),
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


def begin_of(file: File | None, from_byte: int, size: int) -> int:
    """Return at which byte the view of a file begins: near the one that is asked for; of
    less than 0, so that its last ones are shown."""
    start = size - FIRST if from_byte < 0 else from_byte
    with _opened(file) as fd:
        if fd is None or not 0 < start < size:
            return max(0, min(start, size))
        most = size - start if from_byte < 0 else _BEFORE
        # The byte before: a view that begins with a line begins where it was asked to.
        piece = os.pread(fd, most + 1, start - 1)
        return start - 1 + livelog.line_start(piece)


def last_lines(queue: QueueDir, msg_id: str, most: int) -> str:
    """Return the last lines that a message's script has written; "" when there are none."""
    state = folders.find(queue, msg_id)
    if state is None:
        return ""
    file = folders.file_of(queue, state, msg_id, f"{JOB}/{STDIO_LOG}")
    size = _size(file)
    lines = plain_text(file, max(0, size - _BEFORE)).rstrip().split("\n")
    return "\n".join(lines[-most:])


def plain_text(file: File | None, start: int, end: int | None = None) -> str:
    """Return a piece of a log for browsers without scripts: no escapes, no colours."""
    with _opened(file) as fd:
        most = FIRST if end is None else min(FIRST, max(0, end - start))
        data = b"" if fd is None else os.pread(fd, most, start)
    return visible.uncoloured(data.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in a log that holds what was looked for."""

    at: int  # byte
    text: str  # around it


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search has brought; `next` is the byte where the next one goes on, None
    when the file was read to its end."""

    hits: list[Hit]
    next: int | None


def search(file: File | None, wanted: str, start: int) -> Hits:
    """Return where `wanted` is in a file, from byte `start` on; case does not matter.

    Both the answer and the time are bounded.
    """
    with _opened(file) as fd:
        return Hits([], None) if fd is None else _search(fd, wanted, start)


def _search(fd: int, wanted: str, start: int) -> Hits:
    pattern = re.compile(re.escape(wanted.encode()), re.IGNORECASE)
    hits: list[Hit] = []
    overlap = len(wanted.encode()) + _AROUND
    end = time.monotonic() + _SEARCH_FOR
    at = start
    while data := os.pread(fd, _BLOCK, at):
        more = len(data) == _BLOCK
        usable = len(data) - overlap if more else len(data)
        for match in pattern.finditer(data):
            if match.start() >= usable:
                break
            hits.append(Hit(at + match.start(), _excerpt(data, match)))
            if len(hits) == _MOST_HITS:
                return Hits(hits, at + match.end())
        at += usable
        if not more:
            return Hits(hits, None)
        if time.monotonic() > end:
            return Hits(hits, at)
    return Hits(hits, None)


def _excerpt(data: bytes, hit: re.Match[bytes]) -> str:
    left = data.rfind(b"\n", max(0, hit.start() - _AROUND), hit.start()) + 1
    left = left or max(0, hit.start() - _AROUND)
    right = data.find(b"\n", hit.end(), hit.end() + _AROUND)
    right = right if right >= 0 else hit.end() + _AROUND
    text = data[left:right].decode("utf-8", "replace")
    # A file with holes is mostly zeros, which say nothing here.
    return visible.uncoloured(text.replace("\0", "")).strip()
