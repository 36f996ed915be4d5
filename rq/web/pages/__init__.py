"""The pages."""

from __future__ import annotations

from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add every page."""
