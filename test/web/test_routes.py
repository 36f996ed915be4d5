"""The route table and what PROTOCOLS.md tells of it are the same."""

from __future__ import annotations

import re
from pathlib import Path

from webbing import CHECKOUT

from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import app, rest, site
from rq.web.pages import templating
from rq.web.routes import Routes

CELL = re.compile(r"`([^`]+)`")


def test_each_route_for_programs_is_told_with_its_methods():
    served = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
    served.templates = templating.environment(served)
    own, table = Routes(), app.table(served)
    rest.add_routes(own, served)
    there = {
        path: ", ".join(one for one in table.methods(path) if one != "HEAD")
        for path in own.paths
    }
    there["/livez"] = there["/readyz"] = "GET"
    assert told() == there


def told():
    text = (CHECKOUT / "PROTOCOLS.md").read_text()
    section = text.partition("\n## HTTP\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    return {path: row[1] for row in rows for path in CELL.findall(row[0])}
