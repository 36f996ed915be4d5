"""Which status of HTTP each kind of failure has, and who reads it."""

from __future__ import annotations

from falcon.asgi import Request, Response

from rq.errors import RQError
from rq.kinds import HEADER, Kind
from rq.web.routes import API

STATUS_OF: dict[Kind, int] = {
    Kind.BAD_INPUT: 422,
    Kind.KEY_REUSED: 422,
    Kind.TOO_LARGE: 413,
    Kind.NO_SUCH_QUEUE: 404,
    Kind.NO_SUCH_MESSAGE: 404,
    Kind.WRONG_STATE: 409,
    Kind.NOT_UNIQUE: 409,
    Kind.CHANGED: 412,
    Kind.ALREADY_COMMITTED: 409,
    Kind.LEASE_OVER: 409,
    Kind.LEASE_FORGOTTEN: 410,
    Kind.WRONG_OFFSET: 409,
    Kind.NOT_WHOLE: 409,
    Kind.UNREADABLE: 409,
    Kind.REFUSED: 409,
    Kind.BUSY: 503,
    Kind.DOWN: 503,
    Kind.CLOSED: 503,
    Kind.NO_ROOM: 503,
    Kind.DISK_FAILED: 503,
    Kind.CANNOT_READ: 503,
    Kind.TOO_OFTEN: 429,
    Kind.LOGIN_NEEDED: 401,
    Kind.NOT_ALLOWED: 403,
    Kind.OTHER_QUEUE: 403,
    Kind.WRONG_HOST: 421,
    Kind.UNREACHABLE: 503,
    Kind.OUTCOME_UNKNOWN: 504,
    Kind.BAD_CONFIG: 500,
    Kind.DAMAGED: 500,
    Kind.NO_JAVA: 500,
    Kind.INTERNAL: 500,
}

# What HTTP itself refuses below /api/v1, before RQ is asked; a kind for each status.
KIND_OF_HTTP: dict[int, str] = {
    400: "bad_request",
    403: "other_site",
    404: "no_such_address",
    405: "no_such_method",
    411: "no_length",
    413: str(Kind.TOO_LARGE),
    415: "unsupported_media",
    416: "no_such_range",
}
KINDS = tuple(dict.fromkeys((*map(str, Kind), *KIND_OF_HTTP.values())))


def status_of(error: RQError) -> int:
    return STATUS_OF[error.kind]


def tell_kind(resp: Response, kind: str) -> None:
    """Say of which kind a failure is; a program needs no more."""
    resp.set_header(HEADER, kind)


def wants_page(req: Request) -> bool:
    """Return whether a browser asks for what may be a page."""
    is_data = req.path.endswith(".json") or is_api(req)
    return not is_data and "text/html" in req.accept


def wants_text(req: Request) -> bool:
    """Return whether a route of plain text is asked; in the API a file may end so."""
    return req.path.endswith(".txt") and not is_api(req)


def is_api(req: Request) -> bool:
    """Return whether a program asks, which goes by kinds."""
    return f"{API}/" in req.path
