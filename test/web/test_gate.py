"""Every route, spelled in every way, in every configuration: nobody comes in unasked."""

from __future__ import annotations

import http.client
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from harness.web_server import web_alone

from rq.access.roles import Principal, Role
from rq.config import passwords
from rq.config.settings import RootConfig
from rq.errors import NotPermitted
from rq.layout import Root
from rq.message.action import Door
from rq.message.actions import at
from rq.web import app, rights, site
from rq.web.credentials import Credentials
from rq.web.pages import templating
from rq.web.routes import Right, Routes

pytestmark = pytest.mark.system

FIELDS = {
    "{name}": "mail",
    "{table}": "hits",
    "{msg_id}": "20260102.0304.05.006.7",
    "{file}": "a.txt",
    "{txn}": "20260102.0304.05.006.8",
    "{flow}": "20260102.0304.05.006.5",
    "{bulk}": "20260102.0304.05.006.9",
    "{token}": "20260102.0304.05.006.9~1~" + "0" * 32,
    "{verb}": "delete",
    "{group}": "exit-9d3d54b0f8",
    "{timer}": "daily",
    "{key}": "0badcafe-1-0",
    "{queue}": "mail",
    "{job}": "D-abababab",
    "{path:path}": "rq.css",
}
HEALTH = ("/livez", "/readyz")
LOGIN = ("/login", "/logout")
REFUSED = (400, 401, 403, 404, 405, 421)


def table(root="/nowhere") -> Routes:
    served = site.make(Root(Path(root)), RootConfig(), b"x" * 32)
    served.templates = templating.environment(served)
    return app.table(served, Credentials(served))


def filled(path):
    for field, value in FIELDS.items():
        path = path.replace(field, value)
    assert "{" not in path, f"{path}: say in FIELDS what stands there"
    return path


ROUTES = [
    (method, filled(path))
    for path in table().paths
    for method in table().methods(path)
    if path not in LOGIN
]


def spellings(path, port):
    """Return a path as somebody might write it who wants past a guard."""
    bare = path[1:]
    return [
        path,
        bare,
        f"{bare}?://",
        f"{path}?://",
        f"/{path}",
        f"//{path}",
        f"/%2f{bare}",
        f"/%2F{bare}",
        f"%2f{bare}",
        f"/%252f{bare}",
        f"/.{path}",
        f"/x/..{path}",
        f"/%2e%2e{path}",
        f"/..{path}",
        f"\\{bare}",
        f"/\\{bare}",
        f"/%5c{bare}",
        f"{path}/",
        f"{path}//",
        f"{path}/.",
        f"{path}%2f",
        f"{path}%00",
        f"{path};x=.css",
        f"{path}#x",
        path.upper(),
        path.replace("/", "//"),
        "".join(f"%{byte:02x}" for byte in path.encode()),
        "/" + "".join(f"%{byte:02x}" for byte in bare.encode()),
        f"http://127.0.0.1:{port}{path}",
        f"http://localhost{path}",
        f"http:{path}",
        f"//127.0.0.1:{port}{path}",
        f"livez/..{path}",
        f"/livez/..{path}",
        f"/livez/%2e%2e{path}",
        f"/livez{path}",
        f"127.0.0.1:{port}",
        "*",
    ]


class Stranger:
    """Sends requests as they are written, over a connection that it keeps."""

    def __init__(self, port, headers=()):
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._headers = dict(header.split(": ") for header in headers)

    def close(self):
        self._line.close()

    def status(self, method, spelled, **more):
        """Return the status of the answer; 0: the connection was closed instead."""
        headers = {"Content-Length": "0", **self._headers, **more}
        for _ in range(2):  # the server may just have closed what was kept
            try:
                self._line.putrequest(method, spelled, skip_accept_encoding=True)
                for name, value in headers.items():
                    self._line.putheader(name, value)
                self._line.endheaders()
                answer = self._line.getresponse()
                answer.read()
                return answer.status
            except (http.client.HTTPException, ConnectionError):
                self._line.close()
        return 0


LOGINS = {"users": {"ann": passwords.make("correct horse")}}
CONFIGURATIONS = {
    "a login": ({"basic_auth": LOGINS}, ()),
    "a login below /rq": ({"basic_auth": LOGINS, "relative_root": "/rq"}, ()),
    "a login, a proxy": ({"basic_auth": LOGINS}, ("Via: 1.1 proxy",)),
    "no login, a proxy": ({}, ("X-Forwarded-For: 127.0.0.1",)),
    "no login, a proxy below /rq": (
        {"relative_root": "/rq"},
        ("Forwarded: for=127.0.0.1",),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_spelling_of_any_route_lets_a_stranger_in(tmp_path, name):
    settings, headers = CONFIGURATIONS[name]
    prefix = settings.get("relative_root", "")
    let_in = []
    with web_alone(tmp_path, **settings) as web, ExitStack() as opened:
        stranger = opened.enter_context(closing(Stranger(web.port, headers)))
        for method, path in ROUTES:
            paths = {path, prefix + path}
            for spelled in {s for p in paths for s in spellings(p, web.port)}:
                status = stranger.status(method, spelled)
                if status not in REFUSED and status != 0:
                    let_in.append((method, spelled, status))
        open_paths = {p for path in HEALTH for p in (path, prefix + path)}
        for path in open_paths:
            assert stranger.status("GET", path) in (200, 503)
    assert let_in == []


def test_a_stranger_learns_nothing_of_what_there_is(tmp_path):
    with web_alone(tmp_path, basic_auth=LOGINS) as web, ExitStack() as opened:
        stranger = opened.enter_context(closing(Stranger(web.port)))
        answers = {
            path: stranger.status("GET", path)
            for path in ("/q/there", "/nothing", "/q.json", "/static/rq.css")
        }
    assert set(answers.values()) == {401}, answers


# ---- roles

PAGES = {
    "/": "viewer",
    "/overview.json": "viewer",
    "/css/rq.css": "viewer",
    "/favicon.ico": "viewer",
    "/static/{path:path}": "viewer",
    "/runs": "viewer",
    "/runs.json": "viewer",
    "/failures": "viewer",
    "/failures.json": "viewer",
    "/failures/{group}": "viewer",
    "/search": "viewer",
    "/search.json": "viewer",
    "/timers": "viewer",
    "/timers.json": "viewer",
    "/timers/{timer}": "viewer",
    "/system": "viewer",
    "/broker": "viewer",
    "/broker.json": "viewer",
    "/broker/q/{queue}": "viewer",
    "/broker/q/{queue}.json": "viewer",
    "/broker/q/{queue}/confirm/{verb}": "operator",
    "/broker/job/{job}": "viewer",
    "/broker/job/{job}.json": "viewer",
    "/broker/job/{job}/confirm/{verb}": "operator",
    "/system.json": "viewer",
    "/history": "viewer",
    "/history.json": "viewer",
    "/tables": "viewer",
    "/tables.json": "viewer",
    "/tables/{name}/{table}": "viewer",
    "/tables/{name}/{table}.json": "viewer",
    "/relay.json": "viewer",
    "/relay/confirm/{verb}": "operator",
    "/relay/{msg_id}/confirm/{verb}": "operator",
    "/owed/{name}/{key}/confirm/{verb}": "operator",
    "/q/{name}": "viewer",
    "/q/{name}/queue.json": "viewer",
    "/q/{name}/days": "viewer",
    "/q/{name}/days.json": "viewer",
    "/q/{name}/history": "viewer",
    "/q/{name}/history.json": "viewer",
    "/q/{name}/confirm/{verb}": "operator",
    "/q/{name}/txn": "viewer",
    "/q/{name}/txn.json": "viewer",
    "/q/{name}/txn/{txn}/confirm/{verb}": "operator",
    "/q/{name}/{msg_id}/confirm/{verb}": "operator",
    "/q/{name}/{msg_id}/log": "viewer",
    "/q/{name}/{msg_id}/log.json": "viewer",
    "/q/{name}/{msg_id}/follow": "viewer",
    "/q/{name}/{msg_id}/tailviewlog/{file}": "viewer",
    "/q/{name}/{msg_id}/tailview/{file}": "viewer",
    "/flows": "viewer",
    "/flows/{flow}": "viewer",
    "/flows/{flow}/confirm/{verb}": "producer",
}
# Those of the routes for programs stand in the reference (test_routes.py).


def test_each_page_names_the_role_that_may_see_it():
    routes = table()
    rights = {path: routes.right(path, "GET").role for path in PAGES}
    assert rights == PAGES
    for path in routes.paths:
        for method in routes.methods(path):
            right = routes.right(path, method)
            assert right.role in Role, (path, method)
            marks = path == "/failures"  # for the reader alone, that they have looked
            shows = method in ("GET", "HEAD") or path in LOGIN or marks
            assert shows or right.role is not Role.VIEWER


SHARED = {
    "/login",
    "/logout",
    "/",
    "/overview.json",
    "/runs",
    "/runs.json",
    "/failures",
    "/failures.json",
    "/failures/{group}",
    # Their handlers look at what of a flow the asker may see (test_flows.py).
    "/flows",
    "/flows.json",
    "/flows/{flow}",
    "/flows/{flow}.json",
    "/flows/{flow}/confirm/{verb}",
    *(f"/api/v1/flows{rest}" for rest in ("", "/{flow}")),
    *(f"/api/v1/flows/{{flow}}/{verb}" for verb in ("rerun", "retry", "cancel")),
    "/search",
    "/search.json",
    # Of queues that the asker may ask of (test/spark/test_tables_page.py).
    "/tables",
    "/tables.json",
    "/api/v1/runs",
    "/api/v1/failures",
    "/api/v1/search",
    "/api/v1/openapi.json",
    "/api/v1/queues",
    "/api/v1/counts",
    "/api/v1/events",
    "/api/v1/verdict",
    "/q.txt",
    "/q.json",
    "/css/rq.css",
    "/favicon.ico",
    "/static/{path:path}",
}


def test_what_is_about_no_queue_is_closed_to_who_may_ask_of_some():
    routes = table()
    ann = Principal(name="ann", role=Role.ADMIN, queues=("mail-*",))
    for path in routes.paths:
        for method in routes.methods(path):
            right = routes.right(path, method)
            makes_queues = (method, path) == ("POST", "/api/v1/queues")
            is_shared = path in SHARED and not makes_queues
            assert right.shared == is_shared, (path, method)
            if right.shared:
                continue
            with pytest.raises(NotPermitted, match="mail-"):
                rights.check_right(ann, right, {"name": "other"})
            if "{name}" in path:
                rights.check_right(ann, right, {"name": "mail-1"})


MAY = {
    Role.SENDER: "sender",
    Role.VIEWER: "viewer",
    Role.PRODUCER: "sender viewer producer",
    Role.WORKER: "viewer worker",
    Role.OPERATOR: "sender viewer producer worker operator",
    Role.ADMIN: "sender viewer producer worker operator admin",
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_may_do_what_it_covers_and_nothing_more(role, needed):
    somebody = Principal(name="somebody", role=role)
    right = Right(role=needed)
    if needed in MAY[role].split():
        rights.check_right(somebody, right, {})
    else:
        with pytest.raises(NotPermitted, match=f"is {role} here; .* {needed}"):
            rights.check_right(somebody, right, {})


def test_a_worker_sends_only_to_the_queues_that_it_was_given_for_that():
    worker = Principal(name="w", role=Role.WORKER, queues=("mail",), sends=("audit-*",))
    send, lease = Right(role=Role.PRODUCER), Right(role=Role.WORKER)
    rights.check_right(worker, send, {"name": "audit-1"})
    rights.check_right(worker, lease, {"name": "mail"})
    for right, queue in ((send, "mail"), (lease, "audit-1"), (send, "other")):
        with pytest.raises(NotPermitted):
            rights.check_right(worker, right, {"name": queue})


def test_nobody_may_use_what_names_no_right():
    with pytest.raises(NotPermitted):
        rights.check_right(Principal(name="a", role=Role.ADMIN), Right(role=None), {})
    with pytest.raises(NotPermitted):
        rights.check_right(None, Right(role=Role.VIEWER), {})


def test_to_change_a_message_takes_more_than_to_send_one():
    roles = {method: Role(action.role) for method, action in at(Door.REST).items()}
    assert roles.pop("commit") is Role.PRODUCER
    assert set(roles.values()) == {Role.OPERATOR}
