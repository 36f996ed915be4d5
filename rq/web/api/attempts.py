"""The operations that look at the attempts on a message: how each ended, and its log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from falcon.asgi import Request

from rq.access.roles import Role
from rq.errors import NoSuchMessage
from rq.kinds import Kind
from rq.layout import JOB, STDIO_LOG
from rq.replies import AttemptsView
from rq.spool import attempts_kept
from rq.spool.attempts_kept import Part
from rq.web import downloads, reading
from rq.web.api.messages import PLACE
from rq.web.api.operation import OF_OWNERS, Answer, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.messages import checked
from rq.web.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which part of a log is wanted."""

    attempt: Annotated[
        int | None, Limits(least=1, most=2**31 - 1), "the whole file, if absent"
    ] = None


async def list_attempts(
    site: Site, req: Request, body: None, name: str, msg_id: str
) -> AttemptsView:
    return await reading.attempts(site, name, checked(msg_id))


async def get_log(
    site: Site, req: Request, body: Which, name: str, msg_id: str
) -> Answer:
    part = await part_of(site, name, msg_id, body.attempt)
    inner = f"{JOB}/{part.file}"
    fd = await downloads.open_file(site, name, checked(msg_id), inner)
    end = os.fstat(fd).st_size if part.end is None else part.end
    if req.method == "HEAD":  # it has no body
        os.close(fd)
        return Answer(data=b"")
    return Answer(pieces=downloads.pieces(site, fd, part.begin, end))


async def part_of(site: Site, name: str, msg_id: str, attempt: int | None) -> Part:
    """Return where the output of an attempt is, of all when none is named; NoSuchMessage
    when there is none of it."""
    if attempt is None:
        return Part(STDIO_LOG, 0, None)
    rows = (await reading.attempts(site, name, checked(msg_id)))["attempts"]
    part = attempts_kept.part_of(rows, attempt)
    if part is None:
        raise NoSuchMessage(attempts_kept.why_none(rows, attempt))
    return part


_OF_ONE = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE, Kind.UNREADABLE)
ROWS = (
    Operation(
        operation_id="listAttempts",
        method="GET",
        path=f"{PLACE}/{{msg_id}}/attempts",
        role=Role.VIEWER,
        summary="Tell how each attempt on a message ended, and which runs.",
        request=None,
        reply=AttemptsView,
        failures=_OF_ONE,
        handler=list_attempts,
    ),
    Operation(
        operation_id="getLog",
        method="GET",
        path=f"{PLACE}/{{msg_id}}/log",
        role=Role.VIEWER,
        summary="Give what scripts have printed for a message, or one attempt's part.",
        request=Which,
        reply=object,
        failures=_OF_ONE,
        handler=get_log,
        gives=Media.BYTES,
    ),
)
