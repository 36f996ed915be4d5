"""The ancestor's REST (spec of its routes: PROTOCOLS.md), for programs and forms alike."""

from __future__ import annotations

from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add every route that is no page."""
