"""The operations that carry bytes: the log of an attempt, its result files, and the
script of the queue."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from falcon.asgi import Request

from rq import names
from rq.access.roles import Role
from rq.errors import BadInput, Refused, RQError, TooLarge
from rq.kinds import Kind
from rq.replies import WordResult
from rq.rpc import client
from rq.rpc.lines.line import DEADLINE
from rq.web import views
from rq.web.api.leases import KIND, OVER, PLACE, answer_of, say, say_one
from rq.web.api.operation import OF_OWNERS, Answer, Handler, Header, Media, Operation
from rq.web.intake import PIECE, Intake
from rq.web.resumable_uploads import (
    DIGEST,
    Wanted,
    taking_piece,
    taking_whole,
    wanted_by,
)
from rq.web.site import Site
from rq.words.nesting import Json

OFFSET, GAP = "Upload-Offset", "Gap"
_OFFSET = re.compile(r"\d{1,18}", re.ASCII)
_RENEW = 3  # times within a lease, while a file comes
_SENT = 64 * 1024  # bytes of a script that are written at a time


# ---- the log


async def put_log(
    site: Site, req: Request, body: None, name: str, token: str
) -> Answer:
    """Append to the log of an attempt, a piece after the other."""
    offset = req.get_header(OFFSET) or ""
    if not _OFFSET.fullmatch(offset):
        raise BadInput(f"say {OFFSET}: how many bytes of the log were sent before")
    at, gap = int(offset), req.get_header(GAP) == "true"
    result: WordResult = {}
    async for piece in _pieces(req):
        request: dict[str, Json] = {
            "token": token,
            "offset": at,
            "data": base64.b64encode(piece).decode(),
            "gap": gap,
        }
        result = await say_one(site, req, name, "log", request)
        if not result["ok"]:
            await req.stream.exhaust()
            break
        at, gap = result["have"], False  # a note stands for what a gap has lost
    return answer_of(result)


async def _pieces(req: Request) -> AsyncIterator[bytes]:
    """Give the body in large pieces; of an empty one an empty piece."""
    held = bytearray()
    async for chunk in req.stream:
        held += chunk
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    yield bytes(held)


# ---- result files


@dataclass(frozen=True, slots=True)
class _Place:
    """A result file that is sent, and of which lease."""

    queue: str
    token: str
    file: str

    @property
    def about(self) -> dict[str, str]:
        return {"token": self.token, "name": self.file}


async def put_file(
    site: Site, req: Request, body: None, name: str, token: str, file: str
) -> Answer:
    """Take a result file, whole or a piece of it; the lease goes on meanwhile."""
    place = _Place(name, token, names.attachment(file))
    renewed = (await say(site, req, name, "renew", {"tokens": [token]}))["results"][0]
    if not renewed["ok"]:
        await req.stream.exhaust()
        return answer_of(renewed)
    coming = _Coming(req.stream)
    renewing = asyncio.create_task(_renew(site, req, place, renewed, coming))
    try:
        if req.get_header("Content-Range") is None and req.get_header(DIGEST) is None:
            return answer_of(await _whole(site, req, place, coming))
        return answer_of(await _piece(site, req, place, wanted_by(req), coming))
    finally:
        renewing.cancel()


class _Coming:
    """The body of a request, and whether something of it has come lately."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream
        self._news = True
        self._is_whole = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._news = True
            yield piece
        self._is_whole = True

    def goes_on(self) -> bool:
        """Whether something has come since this was asked last, or all is here."""
        news, self._news = self._news, False
        return news or self._is_whole


async def _renew(
    site: Site, req: Request, place: _Place, last: WordResult, coming: _Coming
) -> None:
    """Renew a lease while a file of it comes, as long as it is one. Of a sender who was
    cut off nothing comes, and this process does not hear that it has gone."""
    request = {"tokens": [place.token]}
    seconds = last.get("seconds", DEADLINE)
    while last["ok"]:
        await asyncio.sleep(seconds / _RENEW)
        if coming.goes_on():
            with contextlib.suppress(RQError):  # its owner may be back the next time
                reply = await say(site, req, place.queue, "renew", request)
                last = reply["results"][0]


async def _whole(
    site: Site, req: Request, place: _Place, coming: _Coming
) -> WordResult:
    """Take a file that comes in one request."""
    await _check_size(site, place, req.content_length or 0)
    async with taking_whole(site, req, coming) as intake:
        return await _hand_over(site, place, intake)


async def _check_size(site: Site, place: _Place, size: int) -> None:
    """TooLarge for a file that its queue would refuse when all of it is here."""
    pull = (await views.config(site.owners, place.queue)).get("pull")
    most = pull.get("result_bytes") if isinstance(pull, dict) else None
    if isinstance(most, int) and size > most:
        raise TooLarge(
            f"{place.file} has {size} bytes, and an attempt hands in at most {most} "
            "(pull.result_bytes)"
        )


async def _piece(
    site: Site, req: Request, place: _Place, wanted: Wanted, coming: _Coming
) -> WordResult:
    """Take a piece of a file, and hand the file over once it is whole."""
    await _check_size(site, place, wanted.size)
    of = [place.queue, place.token, place.file]
    async with taking_piece(site, req, of, wanted, coming) as here:
        if wanted.start is None:
            return {"token": place.token, "ok": True, "have": here.have}
        if not here.is_whole:
            return _go_on_from(place, here.have)
        result = await _hand_over(site, place, here.intake, {"sha256": wanted.sha256})
        here.forget()
        return result


def _go_on_from(place: _Place, have: int) -> WordResult:
    return {
        "token": place.token,
        "ok": False,
        "kind": Kind.WRONG_OFFSET,
        "text": f"{have} bytes of {place.file} are here: go on from there",
        "have": have,
    }


async def _hand_over(
    site: Site, place: _Place, intake: Intake, sent: Mapping[str, str] | None = None
) -> WordResult:
    """Give a file to its queue; `sent`: the digest that its sender has said."""
    about = {**place.about, **(sent or {}), "digests": intake.digests()}
    reply = await site.owners.with_file(place.queue, "file", about, intake.fd)
    return cast(WordResult, client.demanded(reply))


# ---- the script


async def get_script(site: Site, req: Request, body: None, name: str) -> Answer:
    settings = await views.config(site.owners, name)
    if why := _why_no_script(settings):
        raise Refused(f"queue {name} {why}")
    script = Path(site.root.path, str(settings["script"]))
    data, digest = await site.pools.file(site.scripts.of, script, time.time())
    return Answer(pieces=_cut(data), headers={"ETag": f'"{digest}"'})


def _why_no_script(settings: Mapping[str, object]) -> str:
    """Return why agents get no script of a queue, and what to do; "": they get it."""
    pull, own = settings.get("pull"), "give the agent one with --script DIR"
    if not isinstance(pull, dict):
        return 'hands out no leases: set "pull" in its config.json'
    if not settings.get("script"):
        return f"has no script: {own}"
    if not pull.get("share_script"):
        more = 'say "share_script": true in the setting pull of its config.json'
        return f"shares no script: {own}, or {more}"
    return ""


async def _cut(data: bytes) -> AsyncIterator[bytes]:
    """Give a tar piece by piece: what is given is held a second time until it is taken."""
    view = memoryview(data)
    for start in range(0, len(data), _SENT):
        yield bytes(view[start : start + _SENT])


def _upload(
    operation_id: str,
    path: str,
    handler: Handler,
    summary: str,
    headers: Mapping[str, str],
    *failures: Kind,
) -> Operation:
    """Return the row of bytes that an attempt hands in. `path` is below its token;
    `headers`: what each is about; `failures`: those that the other has not."""
    return Operation(
        operation_id=operation_id,
        method="PUT",
        path=f"{PLACE}/{{token}}/{path}",
        role=Role.WORKER,
        summary=summary,
        request=None,
        reply=WordResult,
        failures=(*OF_OWNERS, *OVER, Kind.WRONG_OFFSET, *failures),
        handler=handler,
        takes=(Media.BYTES,),
        headers=tuple(
            Header(name=name, about=about) for name, about in headers.items()
        ),
        reply_headers=(KIND,),
    )


ROWS = (
    _upload(
        "putLog",
        "log",
        put_log,
        "Append to the log of an attempt.",
        {
            OFFSET: "how many bytes of this attempt were sent before",
            GAP: "true: the bytes between are lost",
        },
    ),
    _upload(
        "putResultFile",
        "files/{file}",
        put_file,
        "Send a result file, which becomes an attachment when its lease is done.",
        {
            DIGEST: "SHA-256 of the whole file; with Content-Range",
            "Content-Range": "bytes FIRST-LAST/SIZE of a piece; bytes */SIZE asks what "
            "is there",
        },
        Kind.NOT_WHOLE,
        Kind.REFUSED,
        Kind.NO_ROOM,
        Kind.TOO_LARGE,
    ),
    Operation(
        operation_id="getScript",
        method="GET",
        path="/queues/{name}/script",
        role=Role.WORKER,
        summary="Fetch the directory of the queue's script, so that it runs elsewhere.",
        request=None,
        reply=object,
        failures=(*OF_OWNERS, Kind.REFUSED, Kind.UNREADABLE),
        handler=get_script,
        gives=Media.TAR,
        headers=(Header(name="If-None-Match", about="the ETag of a tar that is here"),),
        reply_headers=(Header(name="ETag", about="the SHA-256 of the tar, in quotes"),),
    ),
)
