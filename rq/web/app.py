"""The application: all routes in one table, all failures explained in one place."""

from __future__ import annotations

import os
from pathlib import Path

import falcon
import falcon.asgi

from rq import config
from rq.access import tokens
from rq.layout import Root
from rq.web import guard, monitoring, pages, rest, session, signin
from rq.web import site as sites
from rq.web.api import table as api
from rq.web.auditing import Auditor
from rq.web.credentials import Credentials
from rq.web.pages import templating
from rq.web.refusals import Refusals
from rq.web.routes import Routes
from rq.web.session import Flashes
from rq.web.site import Site

App = falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]


def create_app(site: Site) -> App:
    """Return the ASGI application that serves `site`."""
    site.templates = templates = templating.environment(site)
    for name in templates.list_templates():
        templates.get_template(name)  # compiled now, not with the first request
    credentials = Credentials(site)
    app: App = falcon.asgi.App(
        middleware=[Auditor(site), guard.Guard(site, credentials), Flashes(site)]
    )
    app.req_options.strip_url_path_trailing_slash = False
    app.req_options.keep_blank_qs_values = True
    refusals = Refusals(site)
    refusals.install(app)
    table(site, credentials).install(app, site.prefix)
    monitoring.install(app, site)
    return app


def table(site: Site, credentials: Credentials | None = None) -> Routes:
    """Return every route below the relative root."""
    routes = Routes()
    signin.add_routes(routes, site, credentials or Credentials(site))
    rest.add_routes(routes, site)
    api.add_routes(routes, site)
    pages.add_routes(routes, site)
    return routes


def get_app() -> App:
    """Return the application for the root in $RQ_ROOT, for other ASGI servers."""
    root = Root(Path(os.environ["RQ_ROOT"]).absolute())
    settings = config.read_root(root)
    guard.check_config(settings, tokens.exist(root))
    return create_app(sites.make(root, settings, session.secret_of(root)))
