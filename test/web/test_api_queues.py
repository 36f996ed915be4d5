"""`/api/v1`: queues are made, changed, counted, taken down and put away."""

from __future__ import annotations

import json
import time

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token

pytestmark = pytest.mark.system

API = "/api/v1/queues"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("queues"), allow_new_queue=True) as found:
        found.queue("echo done ok >&3", "demo", num_workers=0)
        yield found


@pytest.fixture
def script(web):
    file = web.daemon.root.path / "done.script"
    file.write_text("#!/bin/sh\necho done ok >&3\n")
    file.chmod(0o755)
    return str(file)


def ask(web, method, path, value=None, **headers):
    body = json.dumps(value or {}).encode()
    return web.ask(method, path, body, Content_Type="application/json", **headers)


def bearer(web, name, role, *queues):
    secret = tokens.new_secret()
    token = Token(
        name=name,
        sha256=tokens.digest_of(secret),
        role=role,
        queues=queues,
        created=time.time(),
        created_by="test",
    )
    tokens.create(web.daemon.root, token)
    return {"Authorization": f"Bearer {secret}"}


def refused(answer, status, kind):
    assert (answer.status, answer.json.get("kind")) == (status, kind), answer.text
    return answer.json["detail"]


def test_a_queue_is_made_changed_and_put_away(web, script):
    wanted = {"name": "made", "script": script, "exec_prefix": "", "num_workers": 1}
    answer = ask(web, "POST", API, wanted)
    assert answer.status == 201, answer.text
    assert (answer.status, answer.headers["location"]) == (201, f"{API}/made")
    assert answer.json["config"]["script"] == script
    sent = ask(web, "POST", f"{API}/made/messages").headers["location"]
    wait_until(lambda: web.get(sent).json["state"] == "done", 30)
    changed = ask(web, "PATCH", f"{API}/made", {"num_workers": 0, "timeout": "2m"})
    assert changed.json["config"]["num_workers"] == 0
    assert changed.json["config"]["timeout"] == 120
    wait_until(lambda: web.get(f"{API}/made").json["config"]["num_workers"] == 0)
    back = ask(web, "PATCH", f"{API}/made", {"timeout": None})
    assert "timeout" not in back.json["config"]
    assert ask(web, "DELETE", f"{API}/made").json["name"] == "made"
    wait_until(lambda: web.get(f"{API}/made").status == 404)
    wait_until(lambda: list(web.daemon.root.trash.glob("made*")))


@pytest.mark.parametrize(
    ("wanted", "status", "kind", "sentence"),
    [
        ({}, 422, "bad_input", "name"),
        ({"name": "../x", "script": "x"}, 422, "bad_input", "name"),
        ({"name": "a"}, 422, "bad_input", "script"),
        (
            {"name": "a", "script": "x", "num_worker": 1},
            422,
            "bad_input",
            "num_workers",
        ),
        ({"name": "a", "script": "x", "num_workers": -1}, 422, "bad_input", "num_work"),
        ({"name": "a", "script": "x", "user": "root"}, 422, "bad_input", "as root"),
        ({"name": "demo", "script": "x"}, 409, "wrong_state", "already"),
    ],
)
def test_a_queue_that_is_not_right_is_not_made(web, wanted, status, kind, sentence):
    text = refused(ask(web, "POST", API, wanted), status, kind)
    assert sentence in text
    assert not web.daemon.root.queue("a").path.exists()


def test_what_a_request_may_not_change_stays(web):
    demo = f"{API}/demo"
    before = web.daemon.root.queue("demo").config.read_bytes()
    refused(ask(web, "PATCH", demo, {"name": "other"}), 422, "bad_input")
    refused(ask(web, "PATCH", demo, {"num_workers": "x"}), 422, "bad_input")
    refused(ask(web, "PATCH", demo, {"no_such": 1}), 422, "bad_input")
    assert "for root" in refused(ask(web, "PATCH", demo, {"user": "x"}), 409, "refused")
    refused(ask(web, "PATCH", f"{API}/nowhere", {"nice": 1}), 404, "no_such_queue")
    refused(ask(web, "PATCH", f"{API}/..%2fdemo", {"nice": 1}), 400, "bad_request")
    assert web.daemon.root.queue("demo").config.read_bytes() == before


def test_a_queue_of_a_link_is_changed_where_the_link_leads(web):
    web.daemon.link("linked", web.daemon.define("linked", {}))
    web.daemon.until_up("linked")
    text = refused(ask(web, "PATCH", f"{API}/linked", {"nice": 1}), 409, "refused")
    assert "scandir/linked" in text


def test_a_queue_is_taken_down_and_up_and_restarted(web):
    name = web.queue("echo done >&3", num_workers=0)
    assert (
        ask(web, "POST", f"{API}/{name}/down").json["text"] == f"{name} is taken down"
    )
    refused(ask(web, "POST", f"{API}/{name}/messages"), 503, "down")
    assert ask(web, "POST", f"{API}/{name}/up").status == 200
    wait_until(lambda: ask(web, "POST", f"{API}/{name}/messages").status == 201)
    assert ask(web, "POST", f"{API}/{name}/restart").status == 200
    refused(ask(web, "POST", f"{API}/nowhere/restart"), 404, "no_such_queue")


def test_only_an_admin_of_all_queues_makes_or_changes_one(web, script):
    wanted = {"name": "theirs", "script": script}
    for role in (Role.VIEWER, Role.PRODUCER, Role.WORKER, Role.OPERATOR):
        word = bearer(web, f"all-{role}", role, "*")
        refused(ask(web, "POST", API, wanted, **word), 403, "not_allowed")
        refused(
            ask(web, "PATCH", f"{API}/demo", {"nice": 1}, **word), 403, "not_allowed"
        )
        refused(ask(web, "DELETE", f"{API}/demo", **word), 403, "not_allowed")
        if role is not Role.OPERATOR:
            down = ask(web, "POST", f"{API}/demo/down", **word)
            refused(down, 403, "not_allowed")
    some = bearer(web, "some", Role.ADMIN, "demo")
    refused(ask(web, "POST", API, wanted, **some), 403, "other_queue")
    for method in ("PATCH", "DELETE"):
        text = refused(ask(web, method, f"{API}/demo", **some), 403, "other_queue")
        assert "an admin of all queues" in text
    assert not web.daemon.root.queue("theirs").path.exists()


def test_the_messages_of_all_queues_are_counted_at_once(web):
    name = web.queue("echo done >&3", num_workers=0)
    for _ in range(3):
        ask(web, "POST", f"{API}/{name}/messages")
    rows = {row["name"]: row for row in web.get("/api/v1/counts").json["queues"]}
    assert rows[name]["counts"]["que"] == 3
    assert rows[name]["status"] == "UP"
    assert rows[name]["oldest_due_age"] >= 0
    assert rows["demo"]["counts"]["que"] == 0
    some = bearer(web, "counter", Role.VIEWER, "demo")
    seen = web.get("/api/v1/counts", **some).json["queues"]
    assert [row["name"] for row in seen] == ["demo"]
    ask(web, "POST", f"{API}/{name}/down")
    wait_until(lambda: status_of(web, name) == "DOWN")


def status_of(web, name):
    rows = {row["name"]: row for row in web.get("/api/v1/counts").json["queues"]}
    return rows[name]["status"]


def test_where_queues_are_not_made_they_are_not_changed(tmp_path):
    with served(tmp_path) as web:
        web.queue("echo done >&3", "demo", num_workers=0)
        for answer in (
            ask(web, "POST", API, {"name": "x", "pull": {}}),
            ask(web, "PATCH", f"{API}/demo", {"nice": 1}),
        ):
            assert "allow_new_queue" in refused(answer, 403, "not_allowed")
        assert not web.daemon.root.queue("x").path.exists()
