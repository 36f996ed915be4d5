"""What a failure means to HTTP: a status, and a body in the asker's own language.

Browsers get a page, callers of text routes a line, all others problem+json (RFC 9457).
The ancestor's own refusals, 200 with `["fail", TEXT]`, are the resources' business.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

import falcon
import orjson
from falcon.asgi import App, Request, Response

from rq.errors import (
    BadConfig,
    BadInput,
    BadMessage,
    NoSuchMessage,
    NoSuchQueue,
    OutcomeUnknown,
    Refused,
    RQError,
    Unreachable,
    WrongState,
)
from rq.web.pages import page
from rq.web.site import Site

STATUS_OF: tuple[tuple[type[RQError], int], ...] = (
    (NoSuchQueue, 404),
    (NoSuchMessage, 404),
    (BadMessage, 422),
    (BadInput, 422),
    (WrongState, 409),
    (Refused, 503),
    (Unreachable, 503),
    (OutcomeUnknown, 504),
    (BadConfig, 500),
    (RQError, 500),
)
PROBLEM = "application/problem+json"

log = logging.getLogger(__name__)


class Refusals:
    """Turns every failure into an answer."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def install(self, app: App[Any, Any]) -> None:
        app.add_error_handler(Exception, self._unexpected)
        app.add_error_handler(falcon.HTTPError, self._http)
        app.add_error_handler(RQError, self._refused)

    async def _refused(
        self, req: Request, resp: Response, error: Exception, params: Any
    ) -> None:
        assert isinstance(error, RQError)
        status = status_of(error)
        if status in (503, 504):
            resp.set_header("Retry-After", "1")
        self.answer(req, resp, status, str(error))

    async def _http(
        self, req: Request, resp: Response, error: Exception, params: Any
    ) -> None:
        assert isinstance(error, falcon.HTTPError)
        for name, value in dict(error.headers or {}).items():
            resp.set_header(name, value)
        text = error.description or _default_text(error.status_code, req)
        self.answer(req, resp, error.status_code, text)

    async def _unexpected(
        self, req: Request, resp: Response, error: Exception, params: Any
    ) -> None:
        if isinstance(error, falcon.HTTPStatus):
            resp.status = error.status
            return
        number = uuid.uuid4().hex[:12]
        log.error("%s %s failed, as %s", req.method, req.path, number, exc_info=error)
        text = f"Something went wrong here; the web's log says more, as {number}."
        self.answer(req, resp, 500, text)

    def answer(self, req: Request, resp: Response, status: int, text: str) -> None:
        """Answer with a status and a sentence."""
        resp.status = line = falcon.code_to_http_status(status)
        resp.stream = resp.sse = resp.media = resp.data = None
        title = line.partition(" ")[2]
        outside = not req.path.startswith(self._site.prefix + "/")
        if outside and status == 404:
            text = f"Not Found: {req.path}"
        if outside or req.path.endswith(".txt"):
            resp.content_type = "text/plain; charset=utf-8"
            resp.text = text + "\n"
        elif wants_page(req):
            resp.content_type = falcon.MEDIA_HTML
            resp.text = page.error_html(self._site, req, status, title, text)
        else:
            resp.content_type = PROBLEM
            problem = {"title": title, "status": status, "detail": text}
            resp.data = orjson.dumps(problem)


def status_of(error: RQError) -> int:
    """Return the status of an error, as of the nearest kind that has one."""
    return next(one for kind, one in STATUS_OF if isinstance(error, kind))


def wants_page(req: Request) -> bool:
    """Return whether a browser asks, rather than a program."""
    return not req.path.endswith(".json") and "text/html" in req.accept


def _default_text(status: int, req: Request) -> str:
    if status == 404:
        return f"There is nothing at {req.path}."
    if status == 405:
        return f"{req.method} is not answered at {req.path}."
    if status == 416:
        return "The file has no such bytes; Content-Range says how long it is."
    return "The request cannot be answered."
