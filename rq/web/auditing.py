"""Which requests get a line in the audit logs, and what it says."""

from __future__ import annotations

import asyncio
import time

from falcon.asgi import Request, Response

from rq.access.audit import PERIOD, Audit, Deed
from rq.access.roles import Role
from rq.access.target import for_logs
from rq.web.origin import SAFE
from rq.web.site import Site

_REFUSED = frozenset({401, 403, 421, 429})
# Fields that say what was done; no other field of a form is written down.
_FIELDS = (
    "_method",
    "action",
    "queue_name",
    "queue[name]",
    "pause",
    "resume",
    "down",
    "up",
)
_HUNG_UP = "hung-up"  # in place of a status: the client did not wait for the answer
_LONGEST = 60  # characters of a field


class Auditor:
    """Falcon's middleware: writes down what operators and admins did, and refusals.

    Messages that are sent are not here: the journal holds each of them.
    """

    def __init__(self, site: Site) -> None:
        self._audit = Audit(site.root)
        self._flushing: asyncio.TimerHandle | None = None

    async def process_request(self, req: Request, resp: Response) -> None:
        """Write a line also for a client that hangs up before the answer."""
        req.context.audited = False
        task = asyncio.current_task()
        if req.method not in SAFE and task is not None:
            task.add_done_callback(lambda _: self._note_unanswered(req))

    def _note_unanswered(self, req: Request) -> None:
        """Write what was asked for and may be done by now."""
        if not req.context.audited and _changes(req):
            self._audit.note(_deed(req, _name(req), _what(req), _HUNG_UP), time.time())

    async def process_response(
        self, req: Request, resp: Response, resource: object, succeeded: bool
    ) -> None:
        req.context.audited = True
        status = str(resp.status_code)
        done: tuple[str, str] | None = getattr(req.context, "deed", None)
        if done is not None:
            what, who = done
            self._audit.note(_deed(req, who, what, status), time.time())
        elif resp.status_code in _REFUSED:
            deed = _deed(req, _name(req), _what(req), status)
            if not self._audit.refuse(deed, time.time()):
                self._flush_later()
        elif _changes(req):
            self._audit.note(_deed(req, _name(req), _what(req), status), time.time())

    def _flush_later(self) -> None:
        """Write how many were left out also when no further request is refused."""
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(PERIOD + 1, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        self._audit.flush(time.time())


def _changes(req: Request) -> bool:
    """Return whether a request is one that operators or admins make to change things."""
    role: Role | None = getattr(req.context, "role", None)
    return req.method not in SAFE and role is not None and role.covers(Role.OPERATOR)


def _deed(req: Request, who: str, what: str, answer: str) -> Deed:
    client = req.scope.get("client") or ("",)
    return Deed(
        who=who,
        address=str(client[0]),
        what=what,
        answer=answer,
        forwarded_for=req.get_header("X-Forwarded-For") or "",
    )


def _name(req: Request) -> str:
    principal = getattr(req.context, "principal", None)
    claimed: str = getattr(req.context, "claimed", "")
    return principal.name if principal is not None else claimed


def _what(req: Request) -> str:
    """Return the method, the path without its query, and what a form asks for."""
    form = getattr(req.context, "form", None)
    fields = form.fields if form is not None else []
    words = [f"{key}={value[:_LONGEST]}" for key, value in fields if key in _FIELDS]
    return " ".join((req.method, for_logs(req.path), *words[: len(_FIELDS)]))
