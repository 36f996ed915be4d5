"""`/api/v1`: what a program sends, sees and changes by JSON alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import documents
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token

pytestmark = pytest.mark.system

API = "/api/v1/queues"
JSON, LINES = "application/json", "application/x-ndjson"
MEDIA = "unsupported_media"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("api")) as found:
        found.queue("echo done ok >&3", "demo")
        found.queue("echo err no >&3", "fails")
        found.queue("exit 1", "elsewhere", num_workers=0, pull={})
        yield found


def post(web, path, value=None, kind=JSON, **headers):
    body = value if isinstance(value, bytes) else json.dumps(value or {}).encode()
    return web.ask("POST", path, body, Content_Type=kind, **headers)


def sent(web, queue, **fields):
    answer = post(web, f"{API}/{queue}/messages", fields)
    assert answer.status == 201, answer.text
    return answer.json["msg_id"]


def refused(answer, status, kind=None):
    assert (answer.status, answer.kind) == (status, "application/problem+json"), answer
    assert answer.json.get("kind") == kind
    return answer.json["detail"]


def in_state(web, queue, msg_id, state):
    wait_until(lambda: web.state(queue, msg_id) == state, 30)


def test_a_message_is_sent_and_shown(web):
    answer = post(web, f"{API}/demo/messages", {"param1": "x", "own": [1]})
    assert answer.status == 201
    msg_id = answer.json["msg_id"]
    assert answer.json["queue"] == "demo"
    assert answer.json["url"].endswith(f"/q/demo/{msg_id}")
    in_state(web, "demo", msg_id, "done")
    found = web.get(answer.headers["location"])
    assert (found.status, found.kind) == (200, JSON)
    shown = found.json
    assert (shown["param1"], shown["own"], shown["dest"]) == ("x", [1], "demo")
    assert shown["state"] == "done"


def test_a_message_with_a_key_is_accepted_once(web):
    place, key = f"{API}/demo/messages", {"Idempotency_Key": "order 1"}
    first = post(web, place, {"param1": "x", "param2": "y"}, **key)
    again = post(web, place, {"param2": "y", "param1": "x", "dest": "demo"}, **key)
    assert again.json == first.json
    by_field = post(web, place, {"param1": "x", "param2": "y", "_key": "order 1"})
    assert by_field.json == first.json
    text = refused(post(web, place, {"param1": "z"}, **key), 422, "key_reused")
    assert first.json["msg_id"] in text
    both = post(web, place, {"_key": "order 2"}, **key)
    assert "not the same" in refused(both, 422, "bad_input")
    refused(post(web, place, {}, Idempotency_Key="x" * 201), 422, "bad_input")


def bulk(web, lines, name="demo", **headers):
    answer = post(web, f"{API}/{name}/messages/bulk", lines, LINES, **headers)
    assert (answer.status, answer.kind) == (200, LINES), answer.text
    return [json.loads(line) for line in answer.body.splitlines()]


def test_each_line_is_accepted_or_refused_for_itself(web):
    lines = [
        *(b'{"param1": 1}', b"{", b"", b'{"due": "x"}', b'{"max_cuont": 1}'),
        *(b'{"dest": "fails"}', b"5", b'{"param1": "%b"}' % (b"x" * 2_000_000), b"{}"),
    ]
    rows = bulk(web, b"\n".join(lines))
    assert [row["line"] for row in rows] == [1, 2, 4, 5, 6, 7, 8, 9]
    kinds = [row.get("kind") for row in rows]
    assert kinds == [None, *["bad_input"] * 5, "too_large", None]
    texts = " ".join(row.get("text", "") for row in rows)
    for word in ("not JSON", "due is not a number", "max_count", "messages go to demo"):
        assert word in texts
    assert rows[0]["msg_id"] < rows[-1]["msg_id"]
    assert web.get(f"{API}/demo/messages/{rows[0]['msg_id']}").json["param1"] == 1


def test_many_messages_are_sent_as_json(web):
    place, key = f"{API}/demo/messages/bulk", {"Idempotency_Key": "json 1"}
    wanted = {"messages": [{"param1": 1}, {"dest": "fails"}, {"max_cuont": 1}, {}]}
    answer = post(web, place, wanted, **key)
    assert (answer.status, answer.kind) == (200, JSON)
    rows = answer.json["results"]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert [row.get("kind") for row in rows] == [None, *["bad_input"] * 2, None]
    assert web.get(f"{API}/demo/messages/{rows[0]['msg_id']}").json["param1"] == 1
    assert post(web, place, wanted, **key).json["results"] == rows
    wrong = {"messages": [{}, {"due": "soon"}]}
    text = refused(post(web, place, wrong), 422, "bad_input")
    assert "messages[1].due" in text
    refused(post(web, place, {"messages": []}), 422, "bad_input")


def test_lines_of_several_requests_to_the_owner_keep_their_order(web):
    name = web.queue("exec sleep 60", num_workers=0)
    rows = bulk(web, b'{"param1": "x"}\n' * 2500, name)
    assert [row["line"] for row in rows] == list(range(1, 2501))
    ids = [row["msg_id"] for row in rows]
    assert ids == sorted(set(ids))
    assert web.get(f"{API}/{name}").json["detail"]["counts"]["que"] == 2500


def test_of_too_many_lines_the_rest_is_not_read(web):
    rows = bulk(web, b"5\n" * 100_003)
    assert len(rows) == 100_001
    assert (rows[-2]["kind"], rows[-1]["kind"]) == ("bad_input", "too_large")
    assert rows[-1]["line"] == 100_001


@pytest.mark.slow
def test_lines_without_a_content_length_are_bounded_as_they_come(web):
    """What came before the bound is looked at, and the rest is refused by one line."""
    wrong = (b"x" * 1_000_000 + b"\n" for _ in range(80))
    first, *others, last = chunked_bulk(web, "demo", (b"{}\n", *wrong))
    assert "msg_id" in first
    assert {row["kind"] for row in others} == {"bad_input"}
    assert len(others) == 67
    assert (last["line"], last["kind"]) == (69, "too_large")
    assert "67108864 bytes" in last["text"]


def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(web):
    lines = (b"{}\n", *(b"x" * 1_000_000 for _ in range(9)), b"\n{}\n")
    first, long, last = chunked_bulk(web, "demo", lines)
    assert (long["line"], long["kind"]) == (2, "too_large")
    assert "msg_id" in first
    assert "msg_id" in last


def chunked_bulk(web, name, pieces):
    """Send lines whose length nobody says; return what became of those that were read."""
    line = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    with contextlib.closing(line):
        line.putrequest("POST", f"{API}/{name}/messages/bulk")
        line.putheader("Content-Type", LINES)
        line.putheader("Transfer-Encoding", "chunked")
        line.endheaders()
        for piece in pieces:
            line.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        line.send(b"0\r\n\r\n")
        reply = line.getresponse()
        assert reply.status == 200
        return [json.loads(row) for row in reply.read().splitlines()]


def test_lines_that_are_sent_again_with_their_key_are_accepted_once(web):
    key = {"Idempotency_Key": "bulk 1"}
    first = bulk(web, b'{"param1": 1}\n{"_key": "own"}\n', **key)
    assert bulk(web, b'{"param1": 1}\n{"_key": "own"}\n', **key) == first
    changed = bulk(web, b'{"param1": 2}\n{"_key": "own"}\n', **key)
    assert (changed[0]["kind"], changed[1]) == ("key_reused", first[1])
    single = post(
        web, f"{API}/demo/messages", {"param1": 1}, Idempotency_Key="bulk 1/1"
    )
    assert single.json["msg_id"] == first[0]["msg_id"]


def test_lines_that_nobody_takes_fail_as_one(web):
    place = f"{API}/{{}}/messages/bulk"
    refused(post(web, place.format("nowhere"), b"{}", LINES), 404, "no_such_queue")
    refused(post(web, place.format("demo"), b"{}", "text/plain"), 415, MEDIA)
    name = web.queue("echo done >&3")
    web.post(f"/q/{name}/adminoper", {"down": "1"})
    refused(post(web, place.format(name), b"{}", LINES), 503, "down")


def test_queues_are_listed_and_shown(web):
    listed = web.get(API).json["queues"]
    assert {"name": "demo"} in listed
    shown = web.get(f"{API}/demo").json
    assert shown["detail"]["status"] == "UP"
    assert shown["config"]["name"] == "demo"
    assert refused(web.get(f"{API}/nowhere"), 404, "no_such_queue")


def test_a_list_is_read_page_by_page(web):
    name = web.queue("echo err no >&3")
    ids = [sent(web, name) for _ in range(5)]
    for msg_id in ids:
        in_state(web, name, msg_id, "err")
    pages, cursor = [], ""
    while cursor is not None:
        address = f"{API}/{name}/messages?state=err&limit=2"
        page = web.get(f"{address}&cursor={cursor}" if cursor else address).json
        pages.append([row["msg_id"] for row in page["messages"]])
        cursor = page["next"]
    assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]


def test_an_action_changes_a_message(web):
    msg_id = sent(web, "fails")
    in_state(web, "fails", msg_id, "err")
    here = f"{API}/fails/messages/{msg_id}"
    refused(post(web, f"{here}/run"), 409, "wrong_state")
    assert post(web, f"{here}/retry").json["msg_id"] == msg_id
    in_state(web, "fails", msg_id, "err")
    assert post(web, f"{here}/dismiss").status == 200
    copy = post(web, f"{here}/clone")
    assert (copy.status, copy.json["queue"]) == (201, "fails")
    assert post(web, f"{here}/delete").status == 200
    refused(web.get(here), 404, "no_such_message")
    refused(post(web, f"{here}/retry"), 404, "no_such_message")


def test_a_message_is_held_and_released(web):
    name = web.queue("echo done >&3")
    msg_id = sent(web, name, due=4e9)
    here = f"{API}/{name}/messages/{msg_id}"
    assert post(web, f"{here}/hold", {"why": "disk swap"}).json["text"] == "msg is held"
    assert post(web, f"{here}/hold").json["text"] == "msg is held already"
    assert web.get(here).json["held"]["why"] == "disk swap"
    refused(post(web, f"{here}/hold", {"why": 5}), 422, "bad_input")
    refused(post(web, f"{here}/run"), 409, "wrong_state")
    assert post(web, f"{here}/release").json["text"] == "msg is released"
    assert post(web, f"{here}/release").json["text"] == "msg is not held"
    assert "held" not in web.get(here).json


def test_an_action_does_nothing_when_somebody_else_was_faster(web):
    msg_id = sent(web, "fails")
    in_state(web, "fails", msg_id, "err")
    here = f"{API}/fails/messages/{msg_id}"
    seen = web.get(here).headers["etag"]
    assert seen == '"err-1"'
    assert web.get(here, If_None_Match=seen).status == 304
    assert post(web, f"{here}/retry", If_Match=f'"run-1", {seen}').status == 200
    wait_until(lambda: web.get(here).headers["etag"] == '"err-2"', 30)
    for action in ("retry", "dismiss", "delete", "run", "cancel", "cancelBatch"):
        text = refused(post(web, f"{here}/{action}", If_Match=seen), 412, "changed")
        assert "it is err-2" in text
    assert post(web, f"{here}/ack", If_Match='"err-2"').status == 200
    assert web.get(here).headers["etag"] == '"dismissed-2"'
    assert post(web, f"{here}/delete", If_Match="*").status == 200


def test_the_end_of_a_message_is_waited_for(web):
    name = web.queue("mkfifo go; read x < go; echo done >&3")
    msg_id = sent(web, name)
    here = f"{API}/{name}/messages/{msg_id}"
    in_state(web, name, msg_id, "run")
    assert web.get(f"{here}?wait=0.01&for=end").json["state"] == "run"
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(web.get, f"{here}?wait=60")
        root = web.daemon.root.path
        wait_until((root / web.get(here).json["path"] / "job/go").is_fifo, 30)
        (root / web.get(here).json["path"] / "job/go").write_text("go\n")
        answer = waiting.result(30)
    assert answer.json["state"] == "done"
    assert web.get(f"{here}?wait=60").json["state"] == "done"
    refused(web.get(f"{here}?wait=61"), 422, "bad_input")
    refused(web.get(f"{here}?wait=1&for=luck"), 422, "bad_input")
    gone = here.replace(msg_id, "20200101.0000.00.000.1")
    refused(web.get(f"{gone}?wait=60"), 404, "no_such_message")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"{", "the body is not JSON"),
        ([], "the request is not an object"),
        ({"due": "now"}, "due is not a number: 'now'"),
        ({"count": -1}, "count is -1, at least 0"),
        ({"post_run_webhook": ["x"]}, "post_run_webhook is not a list of http URLs"),
        ({"max_cuont": 1}, "did you mean 'max_count'"),
        ({"dest": "fails"}, "messages go to demo"),
    ],
    ids=str,
)
def test_what_is_wrong_is_422_and_named(web, value, sentence):
    value = json.dumps(value).encode() if value == [] else value
    text = refused(post(web, f"{API}/demo/messages", value), 422, "bad_input")
    assert sentence in text


def bearer(web, name, role, *queues):
    """Return the header of somebody with a token for these queues."""
    now, secret = time.time(), tokens.new_secret()
    digest = tokens.digest_of(secret)
    token = Token(
        name=name,
        sha256=digest,
        role=role,
        created=now,
        created_by="test",
        queues=queues,
    )
    tokens.create(web.daemon.root, token)
    return {"Authorization": f"Bearer {secret}"}


def test_who_may_ask_of_some_queues_sees_and_sends_to_no_others(web):
    ann = bearer(web, "ann", Role.PRODUCER, "demo")
    assert web.get(API, **ann).json == {"queues": [{"name": "demo"}]}
    assert post(web, f"{API}/demo/messages", **ann).status == 201
    for answer in (
        web.get(f"{API}/fails", **ann),
        post(web, f"{API}/fails/messages", **ann),
        post(web, f"{API}/fails/messages/bulk", b"{}", LINES, **ann),
        post(web, f"{API}/demo/messages", {"dest": "fails"}, **ann),
    ):
        refused(answer, 403, "other_queue")
    [row] = bulk(web, b'{"dest": "fails"}', **ann)
    assert row["kind"] == "other_queue"
    bob = bearer(web, "bob", Role.VIEWER, "*")
    refused(post(web, f"{API}/demo/messages", **bob), 403, "not_allowed")
    refused(
        post(web, f"{API}/demo/messages/bulk", b"{}", LINES, **bob), 403, "not_allowed"
    )
    nobody = {"Authorization": "Bearer rq_" + "0" * 64}
    refused(web.get(API, **nobody), 401, "login_needed")


def test_who_may_ask_of_some_queues_may_say_why_many_wait(web):
    eve = bearer(web, "eve", Role.OPERATOR, "demo")
    request = {"action": "hold", "filter": {"state": "que"}, "to": "disk swap"}
    assert post(web, f"{API}/demo/bulk", request, **eve).status == 202
    request |= {"action": "move", "to": "fails"}
    refused(post(web, f"{API}/demo/bulk", request, **eve), 403, "other_queue")


def test_a_queue_that_is_down_shows_its_messages_and_takes_none(web):
    name = web.queue("echo err no >&3")
    msg_id = sent(web, name)
    in_state(web, name, msg_id, "err")
    here = f"{API}/{name}/messages/{msg_id}"
    tag = web.get(here).headers["etag"]
    web.post(f"/q/{name}/adminoper", {"down": "1"})
    wait_until(lambda: web.get(f"{API}/{name}").json["detail"]["status"] == "DOWN", 30)
    silent = web.get(here)
    assert (silent.json["state"], silent.headers["etag"]) == ("err", tag)
    assert "_silent" in silent.json
    assert web.get(f"{here}?wait=60").json["state"] == "err"
    [row] = web.get(f"{API}/{name}/messages?state=err").json["messages"]
    assert row["msg_id"] == msg_id
    refused(post(web, f"{API}/{name}/messages"), 503, "down")
    refused(post(web, f"{here}/retry"), 503, "down")


def test_a_cursor_that_is_none_is_refused(web):
    answer = web.get(f"{API}/demo/messages?cursor=../x")
    refused(answer, 422, "bad_input")


def test_what_removes_others_takes_who_may_remove(web):
    ann = bearer(web, "cleaner.ann", Role.PRODUCER, "*")
    dest = {"dest": "http://h/q/cleaner"}
    refused(post(web, f"{API}/demo/messages", dest, **ann), 403, "not_allowed")
    [row] = bulk(web, json.dumps(dest).encode(), **ann)
    assert row["kind"] == "not_allowed"


def test_what_http_refuses_has_no_kind(web):
    place = f"{API}/demo/messages"
    assert "application/json" in refused(
        post(web, place, b"a=b", "text/plain"), 415, MEDIA
    )
    refused(post(web, place, b'"' + b"x" * 3_000_000 + b'"'), 413, "too_large")
    packed = refused(post(web, place, b"\x1f\x8b", Content_Encoding="gzip"), 415, MEDIA)
    assert "Content-Encoding gzip" in packed
    lines = f"{API}/demo/messages/bulk"
    refused(post(web, lines, b"\x1f\x8b", LINES, Content_Encoding="gzip"), 415, MEDIA)
    refused(web.ask("PUT", place), 405, "no_such_method")
    refused(web.get("/api/v1/nothing"), 404, "no_such_address")
    refused(web.get("/api/v1/nothing", Accept=BROWSER), 404, "no_such_address")
    chunked = {"Transfer_Encoding": "chunked"}
    refused(
        web.ask("POST", place, b"2\r\n{}\r\n0\r\n\r\n", **chunked), 411, "no_length"
    )
    assert "is given twice" in refused(
        web.get(f"{place}?limit=1&limit=2"), 422, "bad_input"
    )


def test_the_document_is_served_below_the_prefix_that_it_names(web):
    document = web.get("/api/v1/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": "/api/v1"}]


@pytest.mark.parametrize(
    "example",
    [text for text in documents.examples_of("sh", "http") if "/txn" not in text],
)
def test_the_examples_in_the_reference_work(web, tmp_path, example):
    documents.play(example, web.port, tmp_path)


def test_all_messages_that_match_are_changed_by_one_request(web):
    ids = [sent(web, "fails", param1="a lot") for _ in range(3)]
    for msg_id in ids:
        in_state(web, "fails", msg_id, "err")
    place = f"{API}/fails/bulk"
    asked = {"action": "ack", "filter": {"state": "err", "param1": "a lot"}}
    choice = post(web, f"{place}/count", asked)
    assert (choice.status, choice.json["messages"]) == (200, 3)
    assert choice.json["ids"] == sorted(ids)
    answer = post(web, place, asked)
    assert (answer.status, answer.json["messages"]) == (202, 3)
    here = answer.headers["location"]
    assert here.endswith(f"{place}/{answer.json['bulk']}")
    at = f"{place}/{answer.json['bulk']}"
    view = wait_until(lambda: (got := web.get(at).json)["state"] == "done" and got, 30)
    assert (view["changed"], view["action"]) == (3, "ack")
    assert view in web.get(place).json["bulks"]
    assert post(web, f"{at}/cancel").json == view
    assert all(web.get(f"{API}/fails/messages/{i}").json["acknowledged"] for i in ids)
    wrong = {**asked, "filter": {"state": "done"}}
    assert "ack is for messages in err" in refused(
        post(web, place, wrong), 422, "bad_input"
    )
    refused(web.get(f"{place}/x"), 404, "no_such_message")


def ids_of(web, queue, query, **headers):
    answer = web.get(f"{API}/{queue}/messages?{query}", **headers)
    assert answer.status == 200, answer.text
    return [row["msg_id"] for row in answer.json["messages"]], answer.json["next"]


def test_messages_are_listed_by_what_they_say(web):
    name = web.queue('echo err no room for "$RQ_PARAM1" >&3')
    ids = [sent(web, name, param1=text) for text in ("Anna", "Bert", "anna 2", "Carl")]
    for msg_id in ids:
        in_state(web, name, msg_id, "err")
    anna, bert, again, carl = ids
    assert ids_of(web, name, "state=err&find=anna") == ([again, anna], None)
    assert ids_of(web, name, "state=err&text=FOR+bert") == ([bert], None)
    assert ids_of(web, name, "state=err&param1=Carl") == ([carl], None)
    assert ids_of(web, name, "state=err&cause=said_err")[0] == ids[::-1]
    assert ids_of(web, name, "state=err&older=1h")[0] == []
    assert ids_of(web, name, "state=err&find=nobody") == ([], None)
    page, cursor = ids_of(web, name, "state=err&find=anna&limit=1")
    assert (page, cursor) == ([again], again)
    last = ids_of(web, name, f"state=err&find=anna&limit=1&cursor={cursor}")
    assert last == ([anna], None)
    wrong = web.get(f"{API}/{name}/messages?find=x&order=next")
    assert "leave order" in refused(wrong, 422, "bad_input")


def test_what_is_not_shown_is_not_found(web):
    """Nobody below admin reads a hidden address letter by letter."""
    viewer = bearer(web, "vera", Role.VIEWER, "*")
    web.queue("echo done >&3", "webhook", num_workers=0)
    msg_id = sent(web, "webhook", param1="https://h.example/secret-path")
    whole = "param1=https://h.example/secret-path"
    assert ids_of(web, "webhook", whole)[0] == [msg_id]
    assert ids_of(web, "webhook", whole, **viewer)[0] == []
    assert ids_of(web, "webhook", "find=secret", **viewer)[0] == []
    assert ids_of(web, "webhook", "find=h.example", **viewer)[0] == [msg_id]
    assert ids_of(web, "webhook", "key=x")[0] == []
    by_key = web.get(f"{API}/webhook/messages?key=x", **viewer)
    refused(by_key, 403, "not_allowed")
