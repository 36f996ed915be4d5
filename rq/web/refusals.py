"""What a failure means to HTTP: a status, and a body in the asker's own language.

Browsers get a page, callers of text routes a line, all others problem+json (RFC 9457).
The ancestor's own refusals, 200 with `["fail", TEXT]`, are the resources' business.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Mapping

import falcon
import orjson
from falcon.asgi import App, Request, Response

from rq.access.target import for_logs
from rq.errors import NotUnique, RQError, TooOften, WrongOffset
from rq.kinds import URN
from rq.web import signin
from rq.web.pages import page
from rq.web.site import Site
from rq.web.statuses import (
    KIND_OF_HTTP,
    is_api,
    status_of,
    tell_kind,
    wants_page,
    wants_text,
)

PROBLEM = "application/problem+json"

log = logging.getLogger(__name__)


class Refusals:
    """Turns every failure into an answer."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def install(self, app: App[Request, Response]) -> None:
        app.add_error_handler(Exception, self._unexpected)
        app.add_error_handler(falcon.HTTPError, self._http)
        app.add_error_handler(RQError, self._refused)

    async def _refused(
        self, req: Request, resp: Response, error: Exception, params: object
    ) -> None:
        assert isinstance(error, RQError)
        status = status_of(error)
        if status == 401:
            resp.set_header("WWW-Authenticate", self._challenge(req))
        if isinstance(error, TooOften):
            resp.set_header("Retry-After", str(math.ceil(error.wait)))
        if status in (503, 504):
            resp.set_header("Retry-After", "1")
        self.answer(req, resp, status, str(error), error.kind, _more_of(error))
        tell_kind(resp, error.kind)

    def _challenge(self, req: Request) -> str:
        """Return how a program may log in. A browser would ask for a password in a
        dialog of its own, so it hears nothing of passwords: it gets the form."""
        basic = self._site.config.basic_auth
        if not basic or wants_page(req) or req.get_header("Sec-Fetch-Mode"):
            return "Bearer"
        realm = str(basic.get("realm") or "RQ").replace("\\", "").replace('"', "")
        return f'Basic realm="{realm}", charset="UTF-8", Bearer'

    async def _http(
        self, req: Request, resp: Response, error: Exception, params: object
    ) -> None:
        assert isinstance(error, falcon.HTTPError)
        for name, value in dict(error.headers or {}).items():
            resp.set_header(name, value)
        text = error.description or _default_text(error.status_code, req)
        kind = KIND_OF_HTTP.get(error.status_code, "") if is_api(req) else ""
        self.answer(req, resp, error.status_code, text, kind)
        if kind:
            tell_kind(resp, kind)

    async def _unexpected(
        self, req: Request, resp: Response, error: Exception, params: object
    ) -> None:
        if isinstance(error, falcon.HTTPStatus):
            resp.status = error.status
            return
        number = uuid.uuid4().hex[:12]
        path = for_logs(req.path)
        log.error("%s %s failed, as %s", req.method, path, number, exc_info=error)
        text = f"Something went wrong here; the web's log says more, as {number}."
        await self._refused(req, resp, RQError(text), params)

    def answer(
        self,
        req: Request,
        resp: Response,
        status: int,
        text: str,
        kind: str = "",
        more: Mapping[str, object] | None = None,
    ) -> None:
        """Answer with a status and a sentence; programs go by the kind, if there is one.
        `more` is what a kind tells beside it."""
        resp.status = line = falcon.code_to_http_status(status)
        resp.stream = resp.sse = resp.media = resp.data = None
        title = line.partition(" ")[2]
        outside = not req.path.startswith(self._site.prefix + "/")
        if outside and status == 404:
            text = f"Not Found: {req.path}"
        if outside or wants_text(req):
            resp.content_type = "text/plain; charset=utf-8"
            resp.text = text + "\n"
        elif wants_page(req) and _may_sign_in(req, status):
            # No complaint for a first visit: the form alone is enough.
            has_come = status == 401 and self._site.config.basic_auth
            said = "" if has_come and not signin.was_tried(req) else text
            signin.answer(self._site, req, resp, said)
        elif wants_page(req):
            resp.content_type = falcon.MEDIA_HTML
            resp.text = page.error_html(self._site, req, status, title, text)
        else:
            resp.content_type = PROBLEM
            named = {"type": f"{URN}{kind}", "kind": kind} if kind else {}
            body = {**named, "title": title, "status": status, "detail": text}
            resp.data = orjson.dumps({**body, **(more or {})})


def _more_of(error: RQError) -> Mapping[str, object]:
    """Return what a program wants to know of a failure beside its kind."""
    if isinstance(error, NotUnique) and error.msg_id:
        return {"msg_id": error.msg_id}
    return {"have": error.have} if isinstance(error, WrongOffset) else {}


def _may_sign_in(req: Request, status: int) -> bool:
    """Return whether the form may help: the client has not signed in, and that is why."""
    is_unknown = getattr(req.context, "principal", None) is None
    may = getattr(req.context, "may_sign_in", False)
    return may and is_unknown and status in (401, 403, 429)


def _default_text(status: int, req: Request) -> str:
    if status == 404:
        return f"There is nothing at {req.path}."
    if status == 405:
        return f"{req.method} is not answered at {req.path}."
    if status == 416:
        return "The file has no such bytes; Content-Range says how long it is."
    return "The request cannot be answered."
