"""Every address of the web that sends, and every guarded queue: producers are refused,
operators are not, and a relay is where the operator has named its host."""

import json
import re
from pathlib import Path

import pytest
from harness.leases import credentials
from harness.web_server import web_alone

from rq import guarded
from rq.access.roles import Role
from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import app, site
from rq.web.site import Site
from rq.webhook import signing

pytestmark = pytest.mark.process

FIELD = re.compile(r"\{(\w+)[^}]*\}")
GONE = "20260102.0304.05.006.7"


def sending() -> list[tuple[str, str]]:
    """Return each method and path that takes the role producer."""
    made: Site = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
    table = app.table(made)
    return [
        (method, path)
        for path in table.paths
        for method in table.methods(path)
        if table.right(path, method).role is Role.PRODUCER and method != "HEAD"
    ]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("guarded")
    with web_alone(path) as found:
        found.asks = {
            role: credentials(Root(path), str(role), role)
            for role in (Role.PRODUCER, Role.OPERATOR)
        }
        yield found


@pytest.mark.parametrize("queue", sorted(guarded.QUEUES))
def test_no_address_takes_from_a_producer_what_is_an_operator_s_to_order(web, queue):
    doors = sending()
    assert ("POST", "/q/{name}/new_message") in doors
    assert len(doors) > 10
    for method, path in doors:
        url = FIELD.sub(lambda m: queue if m[1] == "name" else GONE, path)
        refused = web.ask(method, url, b"", **web.asks[Role.PRODUCER])
        assert refused.status == 403, (method, url, refused)
        told = web.ask(method, url, b"", **web.asks[Role.OPERATOR])
        assert told.status != 403, (method, url, told)


@pytest.mark.parametrize("queue", ["notice", "webhook"])
def test_an_operator_moves_no_hidden_address_to_where_it_is_read(web, queue):
    bulk = {"action": "move", "to": "mail", "filter": {"state": "err"}}
    as_json = {"Content_Type": "application/json"}
    api = f"/api/v1/queues/{queue}"

    def moves(**asks):
        form = {"_method": "move", "to": "mail"}
        fields = {"action": "move", "to": "mail", "state": "err"}
        move = json.dumps({"to": "mail"}).encode()
        path = f"{api}/messages/{GONE}/move"
        yield web.post(f"/q/{queue}/{GONE}", form, **asks)
        yield web.post(f"/q/{queue}/bulk", fields, **asks)
        yield web.ask("POST", path, move, **asks, **as_json)
        yield web.ask(
            "POST", f"{api}/bulk", json.dumps(bulk).encode(), **asks, **as_json
        )

    for answer in moves(**web.asks[Role.OPERATOR]):
        assert (answer.status, "an admin may move" in answer.text) == (403, True), (
            answer
        )
    assert [answer.status for answer in moves() if answer.status == 403] == []


@pytest.mark.parametrize("queue", sorted(guarded.QUEUES))
@pytest.mark.parametrize("path", ["relay", "rq_router", "mail"])
@pytest.mark.parametrize("dest", ["{}", "http://127.0.0.1:3333/q/{}", "q/x/q/{}?y"])
def test_nor_does_a_way_around_lead_there(web, queue, path, dest):
    form = {"mesg": json.dumps({"dest": dest.format(queue)})}
    place = f"/q/{path}/new_message"
    assert web.post(place, form, **web.asks[Role.PRODUCER]).status == 403
    assert web.post(place, form, **web.asks[Role.OPERATOR]).status != 403


@pytest.mark.parametrize("more", [{"orig_msg_id": "x"}, {"_key": "relay/0123"}])
def test_what_a_relay_hands_over_is_refused_though_it_asks_as_an_admin(web, more):
    form = {"mesg": json.dumps({"dest": "notice", "_method": "prep", **more})}
    refused = web.post("/q/notice/new_message", form)
    assert (refused.status, "not from a relay" in refused.text) == (403, True)


@pytest.mark.parametrize(
    "path", ["/q/notice/new_message", "/api/v1/queues/cleaner/messages", "/q/x/restart"]
)
def test_what_a_webhook_posts_here_is_at_most_a_producer_s(web, path):
    """It comes from RQ's own user, to an address that a producer gave."""
    sent = signing.headers("msg_1", 0, b"{}", [])
    refused = web.ask(
        "POST", path, b"{}", **{"Content-Type": "application/json"}, **sent
    )
    assert refused.status == 403, refused
    told = web.ask("POST", path, b"{}", **{"Content-Type": "application/json"})
    assert told.status != 403, told


def test_a_host_that_the_operator_names_may_relay_there(tmp_path):
    with web_alone(tmp_path, trusted_relays=["127.0.0.1"]) as web:
        asks = credentials(Root(tmp_path), "old", Role.PRODUCER)
        fields = {"dest": "notice", "_method": "prep", "orig_msg_id": "x"}
        form = {"mesg": json.dumps(fields)}
        assert web.post("/q/notice/new_message", form, **asks).status == 404
        asks["X_Forwarded_For"] = "192.0.2.1"  # then the host is the proxy's
        assert web.post("/q/notice/new_message", form, **asks).status == 403
