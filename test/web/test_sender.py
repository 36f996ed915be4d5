"""The role sender: it sends, sees and cancels its own messages, and of others it learns
nothing, whichever way it asks."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Principal, Role
from rq.access.tokens import Token
from rq.config.settings import RootConfig
from rq.errors import NotPermitted, OtherQueue
from rq.layout import Root
from rq.web import app, rights, site
from rq.web.credentials import Credentials
from rq.web.pages import templating
from rq.web.routes import API as ROOT
from rq.web.routes import Own

pytestmark = pytest.mark.system

API = f"{ROOT}/queues"
MESSAGE = f"{API}/{{name}}/messages/{{msg_id}}"
# All that a sender may ask. What is no row here is refused, whatever it is about.
OPEN = {
    ("GET", f"{ROOT}/openapi.json"): Own.LIST,
    ("POST", f"{API}/{{name}}/messages"): Own.SENDS,
    ("POST", f"{API}/{{name}}/messages/bulk"): Own.SENDS,
    ("POST", f"{API}/{{name}}/messages/prepare"): Own.SENDS,
    ("GET", f"{API}/{{name}}/messages"): Own.LIST,
    ("GET", f"{ROOT}/search"): Own.LIST,
    ("GET", MESSAGE): Own.MESSAGE,
    ("GET", f"{MESSAGE}/attempts"): Own.MESSAGE,
    ("GET", f"{MESSAGE}/log"): Own.MESSAGE,
    ("GET", f"{MESSAGE}/attachments"): Own.MESSAGE,
    ("GET", f"{MESSAGE}/attachments/{{file}}"): Own.MESSAGE,
    ("PUT", f"{MESSAGE}/attachments/{{file}}"): Own.MESSAGE,
    ("DELETE", f"{MESSAGE}/attachments/{{file}}"): Own.MESSAGE,
    ("POST", f"{MESSAGE}/commit"): Own.MESSAGE,
    ("POST", f"{MESSAGE}/cancel"): Own.MESSAGE,
}
# These look themselves whose a flow is.
OPEN |= dict.fromkeys(
    [
        ("GET", f"{ROOT}/flows"),
        ("GET", f"{ROOT}/flows/{{flow}}"),
        ("POST", f"{ROOT}/flows"),
        ("POST", f"{ROOT}/flows/{{flow}}/cancel"),
        ("POST", f"{ROOT}/flows/{{flow}}/rerun"),
    ],
    Own.LIST,
)
JSON = "application/json"
GONE = "20260102.0304.05.006.7"  # an id that was never given


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web") / "root") as web:
        yield web


def bearer(web, name, role=Role.SENDER, user="", queues=("*",), sends=()):
    secret = tokens.new_secret()
    token = Token(
        name=name, sha256=tokens.digest_of(secret), role=role, queues=queues,
        sends=sends, created=time.time(), created_by="test", user=user,
    )  # fmt: skip
    tokens.create(web.daemon.root, token)
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def ann(web):
    return bearer(web, "ann")


@pytest.fixture(scope="module")
def bob(web):
    return bearer(web, "bob")


def post(web, path, header, body=None, kind=JSON):
    data = b"" if body is None else json.dumps(body).encode()
    kinds = {"Content_Type": kind} if data else {}
    return web.ask("POST", path, data, **kinds, **header)


def send(web, queue, header, **fields):
    answer = post(web, f"{API}/{queue}/messages", header, {"param1": "x", **fields})
    assert answer.status in (200, 201), answer.text
    return answer.json["msg_id"]


def at(queue, msg_id, rest=""):
    return f"{API}/{queue}/messages/{msg_id}{rest}"


def listed(web, queue, header, state="que", more=""):
    answer = web.get(f"{API}/{queue}/messages?state={state}{more}", **header)
    assert answer.status == 200, answer.text
    return [row["msg_id"] for row in answer.json["messages"]]


# ---- which routes there are


def test_a_sender_may_ask_what_stands_here_and_nothing_else():
    routes = table()
    found = {}
    ann = Principal(name="ann", role=Role.SENDER)
    for path in routes.paths:
        for method in routes.methods(path):
            right = routes.right(path, method)
            assert (right.own is Own.MESSAGE) <= ("{msg_id}" in path)
            params = {"name": "mail", "msg_id": GONE}
            try:
                rights.check_right(ann, right, params)
            except NotPermitted:
                continue
            if method != "HEAD":
                found[method, path] = right.own
    assert found == OPEN


def test_each_route_is_refused_over_http_unless_it_stands_here(web, ann):
    """Over HTTP, with the message of another: by the same answer as one that is not."""
    queue = web.queue("exit 1", num_workers=0)
    theirs = web.send(queue, param1="xyzzy")
    for path in table().paths:
        for method in table().methods(path):
            if path in ("/login", "/logout"):
                continue
            answers = [
                web.ask(method, filled(path, queue, msg_id), **ann)
                for msg_id in (theirs, GONE)
            ]
            own = OPEN.get(("GET" if method == "HEAD" else method, path))
            if own is None:
                assert {answer.status for answer in answers} == {403}, (method, path)
            elif own is Own.MESSAGE:
                assert {answer.status for answer in answers} == {404}, (method, path)
            same = {answer.text.replace(theirs, GONE) for answer in answers}
            assert len(same) == 1 or own is Own.SENDS, (method, path)
            assert "xyzzy" not in answers[0].text


def table():
    served = site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32)
    served.templates = templating.environment(served)
    return app.table(served, Credentials(served))


def filled(path, queue, msg_id):
    """Return an address with a queue and a message in it; of all else with some text."""
    path = path.replace("{name}", queue).replace("{msg_id}", msg_id)
    return re.sub(r"\{[^}]*\}", "a.txt", path)


def test_a_role_that_sends_nothing_has_no_messages_of_its_own():
    right = table().right(f"{MESSAGE}/cancel", "POST")
    for role in (Role.VIEWER, Role.WORKER):
        with pytest.raises(NotPermitted):
            rights.check_right(Principal(name="v", role=role), right, {"name": "mail"})
    assert right.own is Own.MESSAGE


def test_a_sender_to_another_queue_is_told_of_the_queue_and_not_of_a_role():
    right = table().right("/api/v1/queues/{name}/messages", "POST")
    ann = Principal(name="ann", role=Role.SENDER, queues=("mail", "pdf"))
    rights.check_right(ann, right, {"name": "mail"})
    with pytest.raises(
        OtherQueue, match=r"ann may send to mail, pdf; this is about the"
    ):
        rights.check_right(ann, right, {"name": "debug"})


# ---- what a sender does


def test_a_sender_sends_sees_waits_for_and_reads_its_own(web, ann):
    queue = web.queue("echo said; echo done it-is >&3")
    msg_id = send(web, queue, ann, colour="red")
    view = web.get(at(queue, msg_id, "?wait=30"), **ann).json
    assert (view["state"], view["by"], view["colour"]) == ("done", "token:ann", "red")
    assert view["result"]["job_status"] == "it-is"
    assert view["story"]["what"].startswith("It succeeded in attempt 1")
    assert "path" not in view
    assert web.get(at(queue, msg_id, "/log"), **ann).text.splitlines()[2] == "said"
    [attempt] = web.get(at(queue, msg_id, "/attempts"), **ann).json["attempts"]
    assert attempt["outcome"] == "done"
    assert "pid" not in attempt
    assert listed(web, queue, ann, "done") == [msg_id]


def test_a_sender_attaches_files_and_reads_them_again(web, ann, bob):
    queue = web.queue("exit 1", num_workers=0)
    begun = post(web, f"{API}/{queue}/messages/prepare", ann, {}).json["msg_id"]
    file = at(queue, begun, "/attachments/a.txt")
    kind = {"Content_Type": "application/octet-stream"}
    assert web.ask("PUT", file, b"abc", **kind, **bob).status == 404
    assert web.ask("PUT", file, b"abc", **kind, **ann).status == 200
    assert listed(web, queue, ann, "prep") == [begun]
    assert listed(web, queue, bob, "prep") == []
    assert post(web, at(queue, begun, "/commit"), bob).status == 404
    assert post(web, at(queue, begun, "/commit"), ann).status == 200
    assert web.get(file, **ann).text == "abc"
    assert web.get(file, **bob).status == 404
    [row] = web.get(at(queue, begun, "/attachments"), **ann).json["attachments"]
    assert row["name"] == "a.txt"
    view = web.get(at(queue, begun), **ann).json
    assert str(web.daemon.root.path) not in json.dumps(view)


def test_a_sender_sends_many_and_lists_them_a_page_at_a_time(web, ann, bob):
    queue = web.queue("exit 1", num_workers=0)
    path = f"{API}/{queue}/messages"
    for header in (ann, bob, ann):
        body = b'{"param1": 1}\n{"param1": 2}\n'
        answer = web.ask(
            "POST", f"{path}/bulk", body, Content_Type="application/x-ndjson", **header
        )
        assert answer.status == 200
    pages, cursor = [], ""
    while True:
        page = web.get(f"{path}?state=que&limit=3{cursor}", **ann).json
        pages.append([row["msg_id"] for row in page["messages"]])
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert [len(page) for page in pages] == [3, 1]
    assert len({i for page in pages for i in page}) == 4
    both = {*listed(web, queue, ann), *listed(web, queue, bob)}
    assert len(both) == 6 == len(listed(web, queue, {}))


@pytest.mark.parametrize("role", [Role.SENDER, Role.PRODUCER])
@pytest.mark.parametrize("state", ["que", "run"])
def test_who_has_sent_a_message_cancels_it_and_no_other(web, role, state):
    script = "exec sleep 100" if state == "run" else "exit 1"
    queue = web.queue(script, num_workers=4 if state == "run" else 0)
    header = bearer(web, f"{role}-{state}", role)
    mine, theirs = send(web, queue, header), web.send(queue, param1="x")
    wait_until(lambda: web.state(queue, theirs) == web.state(queue, mine) == state)
    refused = post(web, at(queue, theirs, "/cancel"), header)
    assert refused.status == (404 if role is Role.SENDER else 403)
    assert web.state(queue, theirs) == state
    assert post(web, at(queue, mine, "/cancel"), header).status == 200
    wait_until(lambda: web.get(at(queue, mine), **header).json.get("state") != state)
    if role is Role.PRODUCER:
        assert "of messages of other senders this needs operator" in refused.text
        hold = post(web, at(queue, theirs, "/hold"), header, {"why": "x"})
        assert hold.status == 403
    web.daemon.ask_queue(queue, "cancel", {"msg_id": theirs})


def test_a_renewed_token_sees_and_cancels_what_the_one_before_sent(web):
    queue = web.queue("exit 1", num_workers=0)
    sent = send(web, queue, bearer(web, "shop"))
    other = bearer(web, "shop-2", user="token:shop")
    assert listed(web, queue, other) == [sent]
    assert web.get(at(queue, sent), **other).status == 200
    stranger = bearer(web, "shop-3")
    assert web.get(at(queue, sent), **stranger).status == 404
    assert post(web, at(queue, sent, "/cancel"), other).status == 200


def test_a_sender_for_some_queues_sends_to_these_alone(web):
    here, there = (web.queue("exit 1", num_workers=0) for _ in range(2))
    eve = bearer(web, "eve", queues=(here,))
    assert send(web, here, eve)
    assert post(web, f"{API}/{there}/messages", eve, {}).status == 403
    assert post(web, f"{API}/{here}/messages", eve, {"dest": there}).status == 403
    assert web.get(f"{API}/{there}/messages", **eve).status == 403
    more = bearer(web, "eve-more", queues=(here,), sends=(there,))
    assert post(web, f"{API}/{there}/messages", more, {}).status == 201
    for queue in ("cleaner", "webhook", "notice"):
        assert post(web, f"{API}/{queue}/messages", eve, {}).status == 403


# ---- what it might try


def test_no_spelling_of_an_id_shows_another_s_message(web, ann):
    queue = web.queue("exit 1", num_workers=0)
    theirs = web.send(queue, param1="xyzzy")
    for spelled in (
        theirs, f".{theirs}", f"%2e{theirs}", f"{theirs}%00", f"{queue}%2f{theirs}",
        f"{theirs};x", f"../messages/{theirs}", f"{theirs}/", f"{theirs}?by=token:ann",
    ):  # fmt: skip
        for rest in ("", "/log", "/attempts", "/attachments", "?wait=0.1"):
            answer = web.get(at(queue, spelled, rest), **ann)
            assert answer.status in (400, 403, 404, 422), (spelled, rest)
            assert "xyzzy" not in answer.text


def test_no_filter_or_cursor_lists_another_s_message(web, ann):
    queue = web.queue("exit 1", num_workers=0)
    theirs = web.send(queue, param1="xyzzy")
    for more in (
        "&filter=%7B%7D", "&by=token%3Abob", "&user=bob", "&find=xyzzy",
        f"&cursor={theirs}0", "&order=next", "&limit=1", "&key=x",
    ):  # fmt: skip
        answer = web.get(f"{API}/{queue}/messages?state=que{more}", **ann)
        assert theirs not in answer.text.replace(f"cursor={theirs}", "")
        assert "xyzzy" not in answer.text


@pytest.mark.parametrize("conflict", ["join", "reject", "replace"])
@pytest.mark.parametrize("how", ["params", "key"])
def test_equal_messages_of_two_senders_know_nothing_of_each_other(
    web, ann, bob, conflict, how
):
    unique = {"params": [1], "conflict": conflict}
    queue = web.queue("exit 1", num_workers=0, unique=unique)
    fields = {"unique_key": "same"} if how == "key" else {"param1": "same"}
    first = send(web, queue, ann, **fields)
    answer = post(web, f"{API}/{queue}/messages", bob, {"param1": "y", **fields})
    assert answer.status == 201, answer.text
    assert first not in answer.text
    assert web.get(at(queue, first), **ann).json["state"] == "que"
    again = post(web, f"{API}/{queue}/messages", ann, {"param1": "x", **fields})
    assert again.status == {"join": 200, "reject": 409, "replace": 201}[conflict]


def test_keys_of_two_senders_know_nothing_of_each_other(web, ann, bob):
    queue = web.queue("exit 1", num_workers=0)
    first = send(web, queue, ann, _key="order-1")
    assert send(web, queue, ann, _key="order-1") == first
    assert send(web, queue, bob, _key="order-1") != first


def test_why_its_message_waits_names_no_message_of_another(web, ann):
    settings = {"num_workers": 1, "blocking_params": [1]}
    queue = web.queue("exec sleep 100", **settings)
    theirs = web.send(queue, param1="x")
    wait_until(lambda: web.state(queue, theirs) == "run")
    mine = [send(web, queue, ann, param1=p) for p in ("x", "y")]
    for msg_id in mine:
        view = web.get(at(queue, msg_id), **ann)
        assert theirs not in view.text
        assert view.json["_why"] == {
            "reason": "slot", "text": "It waits for its turn.", "until": None, "by": None
        }  # fmt: skip
        assert view.json["story"]["why"] == "It waits for its turn."
        assert theirs in web.get(at(queue, msg_id)).text  # to who may look at all
    rows = web.get(f"{API}/{queue}/messages?state=que", **ann)
    assert len(rows.json["messages"]) == 2
    assert theirs not in rows.text
    web.daemon.ask_queue(queue, "cancel", {"msg_id": theirs})


def test_the_output_of_a_batch_is_not_its_sender_s_alone(web, ann):
    queue = web.queue("echo all; echo done >&3", batch={"max": 2, "wait": 30})
    theirs, mine = web.send(queue, param1="xyzzy"), send(web, queue, ann)
    wait_until(lambda: web.state(queue, mine) == "done")
    for more in ("", "?attempt=1"):
        answer = web.get(at(queue, mine, f"/log{more}"), **ann)
        assert (answer.status, "takes the role viewer" in answer.text) == (403, True)
    view = web.get(at(queue, mine), **ann).text
    attempts = web.get(at(queue, mine, "/attempts"), **ann).text
    for text in (view, attempts):
        assert theirs not in text
        assert "batch" not in json.loads(text).get("result", {})


def test_a_sender_makes_none_run_after_another_s_message(web, ann, bob):
    """Whether it is accepted would tell that there is such a message, and when it ends."""
    queue = web.queue("exit 1", num_workers=0)
    theirs, mine = send(web, queue, bob), send(web, queue, ann)
    path = f"{API}/{queue}/messages"
    assert post(web, path, ann, {"after": [mine]}).status == 201
    answers = [post(web, path, ann, {"after": [i]}) for i in (theirs, GONE)]
    assert [answer.status for answer in answers] == [422, 422], answers[0].text
    assert answers[0].text.replace(theirs, GONE) == answers[1].text
    elsewhere = [f"http://other.example:3333/q/{queue}/{mine}"]
    refused = post(web, path, ann, {"after": elsewhere})
    assert (refused.status, "there is no message" in refused.text) == (422, True)
    line = json.dumps({"after": [theirs]}).encode()
    kind = {"Content_Type": "application/x-ndjson"}
    row = web.ask("POST", f"{path}/bulk", line, **kind, **ann)
    assert "that you may read" in row.text
    many = post(web, f"{path}/bulk", ann, {"messages": [{"after": [theirs]}, {}]})
    assert [row.get("kind") for row in many.json["results"]] == ["bad_input", None]
    prepared = post(web, f"{path}/prepare", ann, {"after": [theirs]})
    assert prepared.status == 422


def test_a_sender_sees_and_ends_its_own_flows_and_no_others(web, ann, bob):
    queue = web.queue("exit 1", num_workers=0)
    web.queue("exit 1", "flow", num_workers=0)
    nodes = {"messages": [{"name": "xyzzy", "dest": queue}]}
    flow = post(web, f"{ROOT}/flows", bob, nodes)
    assert flow.status == 201, flow.text
    place = f"{ROOT}/flows/{flow.json['msg_id']}"
    assert web.get(place, **bob).status == 200
    assert web.get(f"{ROOT}/flows", **ann).json["flows"] == []
    assert len(web.get(f"{ROOT}/flows", **bob).json["flows"]) == 1
    for at_last, body in (("", None), ("/cancel", {}), ("/rerun", {"from": "xyzzy"})):
        said = []
        for where in (place, f"{ROOT}/flows/{GONE}"):
            way = "GET" if body is None else "POST"
            data = b"" if not body else json.dumps(body).encode()
            kind = {"Content_Type": JSON} if data else {}
            answer = web.ask(way, where + at_last, data, **kind, **ann)
            assert answer.status == 404, (at_last, answer.text)
            said.append(answer.text.replace(flow.json["msg_id"], GONE))
        assert said[0] == said[1]
    assert post(web, f"{place}/retry", bob).status == 403
    assert post(web, f"{place}/cancel", bob).status == 200


@pytest.mark.parametrize("page", ["/", "/search?words=abc", "/q/demo", "/runs"])
def test_a_page_tells_a_sender_why_it_is_closed_and_where_to_look(web, ann, page):
    shown = web.get(page, Accept="text/html", **ann)
    assert (shown.status, shown.kind) == (403, "text/html")
    assert "what others have sent" in shown.text
    assert "listMessages, search, getMessage" in shown.text
