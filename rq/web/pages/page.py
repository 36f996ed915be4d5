"""Answering with a page: HTML for people, its JSON twin for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import urlencode

import orjson
from falcon.asgi import Request, Response

from rq import tables
from rq.access.roles import Principal, Role
from rq.errors import NoSuchQueue
from rq.relay.transfers import QUEUE
from rq.web.site import Site

HTML = "text/html; charset=utf-8"
JSON = "application/json"
_LONGEST = 255  # characters of a field of an address
THEMES = ("light", "dark")
_INDEXED = (("/runs", "Runs"), ("/failures", "Failures"))  # what the index answers
# What a page may load, and from where.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
# Of `display: none;`, by which the ancestor's forms hid a field: who reads the page may
# look for that. No other inline style is let in.
_HIDES = "sha256-biLFinpqYMtWHmXfkA1BPeCY0/fNt46SAZ+BBk5YUog="
OF_A_FORM = f"{CONTENT_POLICY}; style-src-attr 'unsafe-hashes' '{_HIDES}'"


def check_queue(site: Site, name: str) -> None:
    """Raise NoSuchQueue unless there is such a queue."""
    if not site.is_queue(name):
        raise NoSuchQueue(f"There is no queue {name!r:.80}.")


def wants_json(req: Request) -> bool:
    """Return whether the twin is asked for, by its name or by `Accept`."""
    if req.path.endswith(".json"):
        return True
    return req.client_prefers((HTML.partition(";")[0], JSON)) == JSON


async def show(
    req: Request,
    resp: Response,
    site: Site,
    template: str,
    values: Mapping[str, object],
) -> None:
    """Answer with a template, or with the JSON of its `facts`."""
    resp.cache_control = ["no-store"]
    resp.append_header("Vary", "Accept")
    if wants_json(req):
        resp.content_type = JSON
        resp.data = orjson.dumps(values["facts"])
        return
    resp.content_type = HTML
    if req.get_header("X-RQ-Live"):
        # A page that only renews itself leaves what is to be said to the next one.
        req.context.flashes = []
    resp.text = html(req, site, template, values)


def html(req: Request, site: Site, template: str, values: Mapping[str, object]) -> str:
    """Return a page as it looks for this reader."""
    theme = req.cookies.get("rq_theme", "")
    return site.render(
        template,
        theme=theme if theme in THEMES else "",
        flashes=getattr(req.context, "flashes", []),
        here=req.path,
        may=may(getattr(req.context, "principal", None)),
        reader=getattr(req.context, "principal", None),
        has_session=bool(getattr(req.context, "has_session", False)),
        places=places(site, getattr(req.context, "principal", None)),
        back=back(req),
        now=time.time(),
        **values,
    )


def may(principal: Principal | None) -> dict[str, bool]:
    """Return which roles a reader has: {"viewer": True, "producer": False, …}."""
    return {str(role): principal is not None and principal.may(role) for role in Role}


def places(site: Site, principal: Principal | None) -> list[tuple[str, str]]:
    """Return path and name of what the head of each page leads to: to nothing that is
    refused to who may ask of some queues only."""
    sees = principal is None or principal.sees(QUEUE)
    there = sees and site.root.queue(QUEUE).config.is_file()
    relay = [("/relay", "Relay")] if there else []
    indexed = _INDEXED if site.config.index is not None else ()
    has_flows = site.root.queue("flow").config.is_file()
    first = [("/", "Overview"), *indexed, *([("/flows", "Flows")] if has_flows else [])]
    first += [("/tables", "Tables")] if tables.are_any(site.root) else []
    if principal is not None and principal.is_limited:
        return [*first, *relay]
    broker = [("/broker", "Broker")] if site.root.broker_config.is_file() else []
    rest = [("/history", "History"), ("/timers", "Timers"), ("/system", "System")]
    return [*first, *relay, *broker, *rest]


def back(req: Request) -> str:
    """Return where an action comes back to: this page with its query."""
    return f"{req.path}?{req.query_string}" if req.query_string else str(req.path)


def error_html(site: Site, req: Request, status: int, title: str, sentence: str) -> str:
    """Return the page of a failure; it asks no other process and cannot fail."""
    values = {"status": status, "title": title, "sentence": sentence}
    return html(req, site, "error.html", values)


def filled_in(req: Request, names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of an address, "" for what it does not say."""
    return {name: req.get_param(name, default="")[:_LONGEST].strip() for name in names}


def address(fields: Mapping[str, str]) -> str:
    """Return fields as the query of an address; those that say nothing are left out."""
    return "?" + urlencode({name: text for name, text in fields.items() if text})
