"""The route table and what PROTOCOLS.md tells of it are the same."""

from __future__ import annotations

import re
from pathlib import Path

from harness.web_server import CHECKOUT

from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import app, rest, site
from rq.web.credentials import Credentials
from rq.web.pages import templating
from rq.web.routes import Routes

CELL = re.compile(r"`([^`]+)`")


def test_each_route_for_programs_is_told_with_its_methods_and_roles():
    served = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
    served.templates = templating.environment(served)
    own, table = Routes(), app.table(served, Credentials(served))
    rest.add_routes(own, served)
    there = {path: described(table, path) for path in own.paths}
    there["/livez"] = there["/readyz"] = ("GET", "anybody")
    assert told() == there


def described(table, path):
    """Return the methods of a path, and the role that each needs."""
    methods = [method for method in table.methods(path) if method != "HEAD"]
    roles = [table.right(path, method).role for method in methods]
    return ", ".join(methods), ", ".join(roles)


def told():
    text = (CHECKOUT / "PROTOCOLS.md").read_text()
    section = text.partition("\n## HTTP\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    return {path: (row[1], row[2]) for row in rows for path in CELL.findall(row[0])}
