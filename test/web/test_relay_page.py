"""/relay: what is on its way to other hosts, and what a person does about it."""

import html
import itertools
import time
from urllib.parse import quote

import pytest
from harness.ancestor_http import old_receiver
from harness.relay import pair_at
from harness.waiting import wait_until
from harness.web_server import BROWSER, web_alone

from rq.relay import host_back_off

pytestmark = pytest.mark.process

PORTS = itertools.count(2)  # that nobody listens at


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with pair_at(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture(scope="module")
def web(pair):
    """Give the web of the sender."""
    with web_alone(pair.path / "sender") as web:
        yield web


@pytest.fixture
def in_doubt(pair):
    """Give a receiver of the ancestor's kind, and what it may have had and has lost."""
    with old_receiver() as old:
        old.lose.append("commit")
        msg_id = pair.send(dest=old.url, param1="<script>alert(1)</script>")
        wait_until(old.delivered, 30)
        old.states.clear()
        assert pair.relayed(msg_id, 30)["state"] == "err"
        pair.sender.ok("check")
        yield old, msg_id


def listed(web, msg_id):
    """Return the row of a message; None when it is not listed."""
    rows = {one["msg_id"]: one for one in web.get("/relay.json").json["transfers"]}
    return rows.get(msg_id)


def waiting(pair, web, host=""):
    """Return a message that was tried in vain and waits; its host is its own, for one
    that is left alone is not tried again for others."""
    host = host or f"http://127.0.0.1:{next(PORTS)}"
    msg_id = pair.send(dest=f"{host}/q/sink")

    def there():
        pair.sender.ok("check")
        found = listed(web, msg_id)
        return found and found["state"] == "que"

    wait_until(there, 30)
    return msg_id


def left_alone(pair, msg_id):
    """Let the host of a message be left alone for minutes, and the message wait."""
    peer = pair.sender.get(msg_id)["dest"].rpartition("/q/")[0]

    def leave(table):
        if peer in table:
            table[peer].until = time.time() + 300

    def waits():
        # Looked at first: one that was just told to run is at it, whatever its status says.
        if (seconds := pause(pair, msg_id)) > 100:
            return True
        host_back_off.change(pair.sender.dir, leave)
        if seconds >= 0:
            pair.sender.ask("run_message", {"msg_id": msg_id})
        return False

    wait_until(waits, 30)


def pause(pair, msg_id):
    """Return the seconds that a message has to wait for its host, as its status says."""
    said = pair.sender.get(msg_id)["status"].removeprefix("que - ")
    seconds = said.partition("@")[0]
    return int(seconds) if seconds.isdigit() else -1


def was_asked(pair, msg_id):
    """Whether a host that was left alone for minutes has been asked since."""
    return 0 <= pause(pair, msg_id) <= 100


def question(web, path):
    """Return what a confirmation asks, as programs see it."""
    answer = web.get(path, Accept="application/json")
    assert answer.status == 200, answer
    return answer.json


def page(web, path="/relay", **headers):
    answer = web.get(path, Accept=BROWSER, **headers)
    assert answer.status == 200, answer
    assert answer.kind == "text/html"
    return html.unescape(answer.text)


def test_what_could_not_be_handed_over_is_told_with_its_host_and_the_reason(pair, web):
    nobody = "http://127.0.0.1:1"
    msg_id = waiting(pair, web, nobody)
    told = web.get("/relay.json").json
    [row] = [one for one in told["transfers"] if one["msg_id"] == msg_id]
    assert (row["dest"], row["step"]) == (f"{nobody}/q/sink", "prepare")
    assert "refused" in row["answer"].lower()
    [peer] = [one for one in told["peers"] if one["name"] == nobody]
    assert peer["failures"] >= 1
    assert peer["messages"] >= 1
    assert "refused" in peer["reason"].lower()
    shown = page(web)
    assert all(text in shown for text in (msg_id[9:20], row["dest"], row["answer"]))


def test_a_retry_is_confirmed_and_asks_a_host_that_is_left_alone(pair, web):
    msg_id = waiting(pair, web)
    left_alone(pair, msg_id)
    asked = question(web, f"/relay/{msg_id}/confirm/retry")
    assert asked["post"] == f"/relay/{msg_id}"
    answer = web.post(asked["post"], asked["fields"])
    assert (answer.status, answer.headers["location"]) == (303, "/relay")
    wait_until(lambda: was_asked(pair, msg_id), 30)


def test_all_are_tried_again_but_those_in_doubt(pair, web, in_doubt):
    _, doubtful = in_doubt
    tried = [waiting(pair, web) for _ in range(2)]
    for one in tried:
        left_alone(pair, one)
    before = pair.sender.get(doubtful)["attempt"]
    asked = question(web, "/relay/confirm/retry")
    answer = web.post(asked["post"], {**asked["fields"], "x_format": "json"})
    assert answer.json[0] == "ok"
    wait_until(lambda: all(was_asked(pair, one) for one in tried), 30)
    assert pair.sender.get(doubtful)["attempt"] == before
    assert listed(web, doubtful)["in_doubt"]


@pytest.mark.parametrize("how", ["arrived", "again"])
def test_a_person_says_whether_what_is_in_doubt_has_arrived(pair, web, in_doubt, how):
    old, msg_id = in_doubt
    assert listed(web, msg_id)["in_doubt"]
    assert "in doubt" in page(web)
    asked = question(web, f"/relay/{msg_id}/confirm/{how}")
    answer = web.post(asked["post"], asked["fields"])
    assert answer.status == 303, answer
    if how == "arrived":
        assert pair.sender.get(msg_id)["acknowledged"]
    else:
        assert pair.relayed(msg_id, 30)["state"] == "relayed"
    assert len(old.delivered()) == (how == "again")
    pair.sender.ok("check")
    assert listed(web, msg_id) is None


def test_a_page_that_has_not_looked_at_all_messages_says_so(pair, web):
    for _ in range(2):
        waiting(pair, web)

    def told():
        """Whether a look at one of each state has left some out: they move meanwhile."""
        found = web.get("/relay.json?most=1").json
        waits = [one for one in found["transfers"] if one["state"] == "que"]
        assert len(waits) <= 1
        shown = html.unescape(web.get("/relay?most=1", Accept=BROWSER).text)
        return found["not_looked_at"] and (
            "messages of the queue were not read" in shown and "Read 100,000" in shown
        )

    wait_until(told, 30)
    assert "were not read" not in page(web)
    for odd in ("", "0", "-1", "x", "9" * 400, "\u0663"):
        answer = web.get(f"/relay.json?most={quote(odd)}")
        assert answer.status == 200, odd


def test_what_is_not_in_doubt_is_not_sent_as_a_new_message(pair, web):
    msg_id = waiting(pair, web)
    answer = web.post(f"/relay/{msg_id}", {"_method": "again"})
    assert answer.status == 409
    assert "is not in doubt" in answer.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/relay/20260102.0304.05.006.7/confirm/retry", 404),
        ("GET", "/relay/nothing/confirm/retry", 404),
        ("GET", "/relay/confirm/forget", 404),
        ("POST", "/relay/20260102.0304.05.006.7", 404),
        ("POST", "/relay", 400),
    ],
)
def test_what_is_not_there_is_refused(web, method, path, status):
    asked = web.get if method == "GET" else web.post
    assert asked(path).status == status


def test_all_pages_lead_there_when_there_is_a_relay(web, tmp_path):
    assert 'href="/relay"' in page(web, "/timers")
    with web_alone(tmp_path / "without") as other:
        assert 'href="/relay"' not in page(other, "/timers")
        shown = page(other)
        assert "scandir/relay" in shown
        assert shown.count('class="command"') == 3
        assert other.get("/relay.json").json["queue"] is None


@pytest.mark.slow
def test_one_without_anything_on_its_way_shows_three_commands(tmp_path):
    with pair_at(tmp_path) as pair, web_alone(pair.path / "sender") as web:
        assert page(web).count('class="command"') == 3
