"""Where a request comes from: how its target is spelled, which address, which page."""

from __future__ import annotations

from urllib.parse import quote

import falcon
from falcon.asgi import Request

from rq import names
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
        if is_same(origin, req.get_header("Host") or ""):
            return
    raise falcon.HTTPForbidden(
        description="This request comes from a page of another site; RQ refuses it."
    )


def is_same(origin: str, host: str) -> bool:
    """Return whether the page of an Origin is of the host that a request is sent to. What
    cannot be read is of none.

    >>> is_same("http://RQ.example:3333", "rq.example:3333"), is_same("null", "")
    (True, False)
    """
    _, _, authority = origin.partition("://")
    try:
        return names.authority(authority) == names.authority(host)
    except ValueError:
        return False
