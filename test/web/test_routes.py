"""The route table and what the reference tells of it are the same."""

from __future__ import annotations

from pathlib import Path

from harness import documents

from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import app, rest, signin, site
from rq.web.credentials import Credentials
from rq.web.pages import templating
from rq.web.routes import API, Routes


def test_each_route_for_programs_is_told_with_its_methods_and_roles():
    served = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
    served.templates = templating.environment(served)
    looking, table = Routes(), app.table(served, Credentials(served))
    rest.add_routes(looking, served)
    paths = [
        path for path in table.paths if path in looking.paths or changes(table, path)
    ]
    there = {path: described(table, path) for path in paths}
    there["/livez"] = there["/readyz"] = ("GET", "anybody")
    assert told() == there


def changes(table, path):
    """Return whether a route that is no page of signing in, nor of /api/v1, changes something."""
    is_told_elsewhere = path.startswith(API) or path in signin.PATHS
    return not is_told_elsewhere and bool({"POST", "PUT"} & set(table.methods(path)))


def described(table, path):
    """Return the methods of a path, and the role that each needs."""
    methods = [method for method in table.methods(path) if method != "HEAD"]
    roles = [table.right(path, method).role for method in methods]
    return ", ".join(methods), ", ".join(roles)


def told():
    routes = documents.section(documents.REFERENCE / "http.md", "Routes")
    rows = documents.rows(routes, "route")
    return {
        path: (row[1], row[2])
        for row in rows
        for path in documents.WORD.findall(row[0])
    }
