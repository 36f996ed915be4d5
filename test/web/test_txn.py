"""Transactions over HTTP: what is committed runs, what is not never does."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from harness import documents
from harness.waiting import wait_until
from harness.web_server import served

from rq.errors import NoSuchQueue, NotKnown
from rq.spark.queue_door import Door, Target

pytestmark = pytest.mark.system

DONE = "echo done ok >&3"
PLACE = "/api/v1/queues/{}/txn"
LINES = "application/x-ndjson"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("txn")) as found:
        found.queue(DONE, "demo")
        yield found


@pytest.fixture
def name(web):
    return web.queue(DONE)


def post(web, path, value=None, kind="application/json", **headers):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    body = b"" if value is None else body
    return web.ask("POST", path, body, Content_Type=kind, **headers)


def good(answer):
    assert (answer.status, answer.kind) == (200, "application/json"), answer.text
    return answer.json


def refused(answer, status):
    assert (answer.status, answer.kind) == (status, "application/problem+json")
    assert answer.json["status"] == status
    return answer.json["detail"]


def opened(web, name, **asked):
    """Open a transaction; return its path."""
    place = PLACE.format(name)
    return f"{place}/{good(post(web, place, asked))['txn']}"


def counted(web, name, **wanted):
    """Wait until as many messages are in these states."""

    def there():
        found = web.get(f"/q/{name}.json").json
        return all(found[f"{one}_size"] == number for one, number in wanted.items())

    wait_until(there, 30)


@pytest.mark.slow
def test_messages_are_prepared_in_several_requests_and_accepted_at_once(web, name):
    here = opened(web, name, key="a job", ttl=60)
    one = good(post(web, f"{here}/messages", {"param1": "one"}))["ids"]
    lines = b'{"param1": "two"}\n\n{"param1": "three"}\n'
    more = good(post(web, f"{here}/messages", lines, LINES))["ids"]
    shown = good(web.get(here))
    assert (shown["state"], shown["messages"], shown["ttl"]) == ("open", 3, 60)
    assert good(web.get(PLACE.format(name)))["transactions"] == [shown]
    assert web.state(name, one[0]) == "prep"
    answer = good(post(web, f"{here}/commit", {"ids": [*one, more[1]]}))
    assert (answer["state"], answer["messages"]) == ("committed", 2)
    counted(web, name, done=2, prep=0, que=0, run=0)
    assert web.get(f"/q/{name}/{more[1]}.json").json["param1"] == "three"
    assert web.get(f"/q/{name}/{more[0]}.json").status == 404


def test_a_lost_answer_is_asked_for_again(web, name):
    here = opened(web, name, key="k")
    ids = good(post(web, f"{here}/messages", {}))["ids"]
    first = good(post(web, f"{here}/commit", {"ids": ids}))
    assert good(post(web, f"{here}/commit", {"ids": ids})) == first
    assert good(post(web, PLACE.format(name), {"key": "k"})) == first
    counted(web, name, done=1)


def test_what_comes_too_late_is_refused_with_409(web, name):
    here = opened(web, name)
    ids = good(post(web, f"{here}/messages", b"{}\n{}\n", LINES))["ids"]
    good(post(web, f"{here}/commit", {"ids": ids[:1]}))
    text = refused(post(web, f"{here}/messages", {}), 409)
    assert text.endswith("is committed: nothing can be added to it")
    assert "other messages" in refused(post(web, f"{here}/commit", {"ids": ids}), 409)
    assert "committed already" in refused(post(web, f"{here}/abort"), 409)
    counted(web, name, done=1, prep=0)


def test_an_abort_leaves_nothing(web, name):
    here = opened(web, name)
    ids = good(post(web, f"{here}/messages", {}))["ids"]
    for _ in range(2):
        assert good(post(web, f"{here}/abort"))["state"] == "aborted"
    assert "is aborted" in refused(post(web, f"{here}/commit", {"ids": ids}), 409)
    counted(web, name, prep=0, que=0, done=0)


def test_what_is_not_there_is_404(web, name):
    nobody = "20200101.0000.00.000.1"
    place = PLACE.format(name)
    assert refused(web.get(f"{place}/{nobody}"), 404).startswith("no transaction")
    refused(post(web, f"{place}/{nobody}/messages", {}), 404)
    refused(post(web, PLACE.format("nowhere"), {}), 404)
    refused(post(web, PLACE.format(".."), {}), 400)


def test_what_is_wrong_is_422_and_prepares_nothing(web, name):
    here, place = opened(web, name), PLACE.format(name)
    assert "due" in refused(post(web, f"{here}/messages", {"due": "x"}), 422)
    text = refused(post(web, f"{here}/messages", b"{}\n{\n", LINES), 422)
    assert text.startswith("line 2 is not JSON")
    text = refused(post(web, f"{here}/messages", b'{}\n{"due": "x"}', LINES), 422)
    assert text.startswith("messages[1]: due")
    for value in ([], 5, b"{", b"\xff"):
        refused(post(web, f"{here}/messages", value), 422)
        refused(post(web, f"{here}/commit", value), 422)
    for asked in ({}, {"ids": 5}, {"ids": ["../x"]}, {"ids": [5]}):
        refused(post(web, f"{here}/commit", asked), 422)
    for asked in ({"ttl": 0}, {"ttl": "x"}, {"ttl": 90000}, {"key": "x" * 201}):
        refused(post(web, place, asked), 422)
    assert good(web.get(here))["messages"] == 0


def test_what_is_too_large_or_no_json_is_refused(web, name):
    here = opened(web, name)
    huge = b'{"x": "' + b"x" * 3_000_000 + b'"}'
    assert "several" in refused(post(web, f"{here}/messages", huge), 413)
    refused(post(web, f"{here}/messages", b"a=b", "text/plain"), 415)
    refused(post(web, f"{here}/commit", b"a=b", "text/plain"), 415)
    assert web.ask("GET", f"{here}/commit").status == 405


def test_a_page_of_another_site_cannot_use_them(web, name):
    here = opened(web, name)
    for headers in (
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://evil.example"},
    ):
        refused(post(web, f"{here}/messages", {}, **headers), 403)
        refused(post(web, PLACE.format(name), {}, **headers), 403)
    refused(post(web, f"{here}/messages", {}, Host="evil.example"), 421)
    assert good(web.get(here))["messages"] == 0


def test_the_example_in_the_reference_sends_its_four_messages(web, tmp_path):
    [example] = [text for text in documents.examples_of("sh", "http") if "txn" in text]
    printed = documents.play(example, web.port, tmp_path)
    assert printed.split() == ["true", "true"]
    counted(web, "demo", done=4, prep=0)


@pytest.mark.slow
def test_a_client_with_a_password_reaches_it_below_a_prefix(tmp_path):
    users = {"ann": "s3cret: pass"}
    asked = {"relative_root": "/rq/", "basic_auth": {"users": users}}
    with served(tmp_path, **asked) as web:
        web.queue(DONE, "demo")
        at = f"127.0.0.1:{web.port}/rq/"
        known = Target(queue="demo", url=f"http://ann:s3cret%3A%20pass@{at}", root=None)
        with closing(Door(known)) as door:
            txn = door.open("a job")["txn"]
            ids = door.prepare(txn, [{"param1": "x"}, {"param1": "y"}])
            door.commit(txn, ids[:1])
            assert door.show(txn)["messages"] == 1
        stranger = Target(queue="demo", url=f"http://{at}", root=None)
        with closing(Door(stranger)) as door, pytest.raises(NotKnown, match=r"^http:"):
            door.open("a job")
        nobody = Target(queue="nobody", url=known.url, root=None)
        with closing(Door(nobody)) as door, pytest.raises(NoSuchQueue):
            door.open("a job")
