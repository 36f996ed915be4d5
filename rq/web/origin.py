"""Where a request comes from: how its target is spelled, which address, which page."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import falcon
from falcon.asgi import Request

from rq.access import gate, target
from rq.access.gate import Asker

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def check_spelling(req: Request) -> None:
    """Refuse a target that the router and the gate could read differently."""
    raw = req.scope.get("raw_path") or quote(req.scope["path"]).encode()
    if not target.is_plain(raw):
        raise falcon.HTTPBadRequest(description=target.SPELLING)


def asker_of(req: Request) -> Asker:
    """Return what the gate wants to know of a request."""
    client = req.scope.get("client") or ("",)
    names = {name.decode("latin-1") for name, _ in req.scope["headers"]}
    return Asker(
        address=str(client[0]),
        host=req.get_header("Host"),
        uid=req.scope.get("rq.uid"),
        forwarded=gate.is_forwarded(names),
    )


def check_origin(req: Request) -> None:
    """Refuse what a page of another origin makes a browser send.

    Programs such as curl send neither header and pass.
    """
    site = req.get_header("Sec-Fetch-Site")
    if site is not None:
        if site in ("same-origin", "none"):
            return
    else:
        origin = req.get_header("Origin")
        if origin is None:
            return
        if _host_of(origin).lower() == (req.get_header("Host") or "").lower():
            return
    raise falcon.HTTPForbidden(
        description="This request comes from a page of another site; RQ refuses it."
    )


def _host_of(origin: str) -> str:
    """Return host and port of an origin; what is none is its own text, and no host.

    >>> _host_of("http://rq.example:3333"), _host_of("http://[")
    ('rq.example:3333', 'http://[')
    """
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return origin
