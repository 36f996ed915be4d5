"""Leases over HTTP: what a worker with an HTTP library asks, and what it is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.cli import rq
from harness.leases import API, JSON, begun, leased, pulled, say
from harness.processes import standing_still
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("leases")) as found:
        yield found


# ---- a life


def test_a_message_is_leased_begun_and_finished(web):
    name = pulled(web)
    msg_id = web.send(name, param1="x")
    [lease] = leased(web, name, label="blue")
    assert lease["msg_id"] == msg_id
    assert lease["message"]["param1"] == "x"
    assert (lease["attempt"], lease["seconds"]) == (1, 60)
    place = f"{name}/leases/{lease['token']}"
    assert say(web, "PATCH", place, {"seconds": 90}).json["seconds"] == 90
    [row] = web.get(f"{API}/{name}/leases").json["leases"]
    assert row["by"].endswith("/blue")
    assert (row["msg_id"], row["seconds"]) == (msg_id, 90)
    ended = say(web, "POST", f"{place}/finish", {"word": "done", "text": "well"})
    assert (ended.status, ended.json["state"]) == (200, "done")
    assert web.state(name, msg_id) == "done"
    assert web.get(f"{API}/{name}/leases").json["leases"] == []


def test_a_second_finish_is_told_the_same_and_another_one_what_became_of_it(web):
    name = pulled(web)
    lease = begun(web, name)
    place = f"{name}/leases/{lease['token']}"
    first = say(web, "POST", f"{place}/finish", {"word": "done"})
    again = say(web, "POST", f"{place}/finish", {"word": "done"})
    assert (first.status, again.status) == (200, 200)
    assert again.json["state"] == "done"
    other = say(web, "POST", f"{place}/finish", {"word": "err", "text": "no"})
    assert (other.status, other.json["kind"]) == (409, "lease_over")
    assert other.headers["x-rq-kind"] == "lease_over"
    assert "finished as done" in other.json["text"]
    assert say(web, "PATCH", place, {}).status == 409
    assert web.ask("DELETE", f"{API}/{place}").status == 409


def test_many_words_in_one_request_are_answered_one_by_one(web):
    name = pulled(web)
    for _ in range(3):
        web.send(name)
    held = [lease["token"] for lease in leased(web, name, count=5)]
    assert len(held) == 3
    strange = f"{held[0][:-32]}{'0' * 32}"
    asked = {"tokens": [*held, strange]}
    for word in ("start", "renew"):
        results = say(web, "POST", f"{name}/leases/{word}", asked).json["results"]
        assert [row["ok"] for row in results] == [True, True, True, False]
        assert [row["token"] for row in results] == asked["tokens"]
    ends = [
        {"token": held[0], "word": "done"},
        {"token": strange, "word": "done"},
        {"token": held[1], "word": "err", "text": "no"},
    ]
    results = say(web, "POST", f"{name}/leases/finish", {"finishes": ends}).json
    assert [row.get("state") for row in results["results"]] == ["done", None, "err"]
    back = say(web, "POST", f"{name}/leases/release", {"tokens": held[2:], "why": "x"})
    assert back.json["results"][0]["state"] == "que"


def test_a_lease_that_is_given_back_is_leased_again_uncounted(web):
    name = pulled(web)
    lease = begun(web, name)
    place = f"{API}/{name}/leases/{lease['token']}"
    assert web.ask("DELETE", f"{place}?why=full").json["state"] == "que"
    [again] = leased(web, name)
    assert (again["msg_id"], again["message"]["count"]) == (lease["msg_id"], 0)
    assert again["token"] != lease["token"]


def test_the_same_request_gets_the_same_leases(web):
    name = pulled(web)
    for _ in range(2):
        web.send(name)
    first = leased(web, name, request="r1", label="a")
    assert leased(web, name, request="r1", label="a") == first
    assert leased(web, name, request="r2", label="a") != first


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"count": 1001}, "count is 1001, at most 1000"),
        ({"wait": 61}, "wait is 61, at most 60"),
        ({"seconds": 0}, "seconds is 0, at least 1"),
        ({"label": "x" * 65}, "label"),
        ({"labl": "x"}, "labl is no field of this request"),
    ],
    ids=str,
)
def test_what_is_wrong_is_422_and_named(web, wanted, sentence):
    answer = say(web, "POST", f"{pulled(web)}/leases", wanted)
    assert (answer.status, answer.json["kind"]) == (422, "bad_input")
    assert sentence in answer.json["detail"]


def test_a_queue_without_pull_leases_nothing(web):
    answer = say(web, "POST", f"{web.queue('echo done >&3')}/leases")
    assert (answer.status, answer.json["kind"]) == (409, "wrong_state")
    assert 'set "pull" in its config.json' in answer.json["detail"]


# ---- waiting


def test_a_wait_ends_when_a_message_comes(web):
    name = pulled(web)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(leased, web, name, wait=60)
        sent = web.send(name)
        [lease] = waiting.result()
    assert lease["msg_id"] == sent


def test_a_wait_ends_without_anything_in_its_time(web):
    answer = say(web, "POST", f"{pulled(web)}/leases", {"wait": 0.05})
    assert answer.json["leases"] == []
    assert answer.json["why"] == "nothing is due"


def test_a_client_that_has_gone_is_leased_nothing(web):
    name = pulled(web)
    with contextlib.closing(asking(web, name, {"wait": 60, "label": "gone"})) as line:
        wait_until(lambda: heard_of(web, name, "gone"))
        line.shutdown(socket.SHUT_RDWR)
    web.send(name)
    [lease] = leased(web, name, wait=5)
    assert lease["attempt"] == 1


def test_a_client_that_hangs_up_while_it_waits_is_no_error(web):
    """An agent does so each time when one of its slots is free again."""
    name = pulled(web)
    log = web.daemon.root.log / "web.log"
    before = log.read_text()
    with contextlib.closing(asking(web, name, {"wait": 60, "label": "gone"})) as line:
        wait_until(lambda: heard_of(web, name, "gone"))
        line.shutdown(socket.SHUT_RDWR)
    web.send(name)
    assert leased(web, name, wait=5)
    assert log.read_text() == before


@pytest.mark.slow
def test_a_wait_is_answered_when_the_web_stops(web):
    """Its worker would else read half a connection, and wait for no answer."""
    name = pulled(web)
    with contextlib.closing(asking(web, name, {"wait": 60, "label": "stays"})) as line:
        wait_until(lambda: heard_of(web, name, "stays"))
        pid = web.daemon.child("web")["pid"]
        os.kill(pid, signal.SIGTERM)
        answer = line.makefile("rb").read()
    wait_until(lambda: web.daemon.child("web")["pid"] not in (pid, None), 60)
    web.daemon.until_up("web")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"this process stops, and the wait with it: ask again" in answer


def worker_of(web):
    """Return the process of the web that answers: the one that was started starts it."""
    pid = web.daemon.child("web")["pid"]
    [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(worker)


def asking(web, name, wanted):
    """Return a connection that has asked for leases."""
    body = json.dumps(wanted).encode()
    head = (
        f"POST {API}/{name}/leases HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    line = socket.create_connection(("127.0.0.1", web.port))
    line.sendall(head.encode() + body)
    return line


def heard_of(web, name, label):
    workers = web.get(f"{API}/{name}/leases").json["workers"]
    return any(worker["by"].endswith(f"/{label}") for worker in workers)


def test_a_cancelled_message_is_told_to_a_worker_that_waits(web):
    name = pulled(web)
    web.send(name)
    [lease] = leased(web, name, label="busy")
    with ThreadPoolExecutor() as pool:
        news = pool.submit(web.get, f"{API}/{name}/leases?wait=60&label=busy")
        say(web, "POST", f"{name}/messages/{lease['msg_id']}/cancel")
        told = news.result().json["cancels"]
    assert list(told) == [lease["msg_id"]]
    result = say(web, "PATCH", f"{name}/leases/{lease['token']}", {})
    assert result.json["cancel"] == told[lease["msg_id"]]


# ---- what people see


def test_the_page_of_a_queue_shows_who_works_elsewhere_and_on_what(web):
    name = pulled(web, max=7)
    shown = web.page(f"/q/{name}")
    assert "no worker elsewhere has asked since the queue started" in shown
    assert f"/q/{name}" in shown.partition("On another machine this starts one:")[2]
    assert "at most 7 are out at a time" in shown
    web.send(name)
    hostile = "<b>blue"
    [lease] = leased(web, name, label=hostile, slots=4, version="9.8")
    shown = web.page(f"/q/{name}")
    for text in (
        "Workers elsewhere",
        "1 worker elsewhere, heard of",
        "1 message is leased now",
        "Waiting or leased",
        "last hour: 1 waiting or leased now, 1 at most",
        f"/{hostile}",
        "9.8",
    ):
        assert text in shown
    assert hostile not in web.get(f"/q/{name}", Accept=BROWSER).text
    assert "1 message at work elsewhere" in shown
    message = web.page(f"/q/{name}/{lease['msg_id']}")
    assert "It is worked on elsewhere" in message
    assert f"/{hostile} has had it for" in message
    assert "lease runs out" in message
    overview = web.page("/")
    assert f"/{hostile}" in overview
    assert "1 worker elsewhere, heard of" in overview
    totals = web.get("/overview.json").json["totals"]
    assert totals["leased"] >= 1
    assert f"/q/{name}/{lease['msg_id']}/confirm/cancel" in message


def test_a_queue_whose_workers_are_all_here_shows_none_elsewhere(web):
    assert "Workers elsewhere" not in web.page(f"/q/{web.queue('echo done >&3')}")


def test_the_shell_shows_who_holds_a_message(web):
    name = pulled(web)
    web.send(name)
    [lease] = leased(web, name, label="blue")
    root = web.daemon.root.path
    [row] = json.loads(rq("ls", name, "--json", root=root).stdout)
    assert row["leased_by"].endswith("/blue")
    assert f"[{row['leased_by']}]" in rq("ls", name, root=root).stdout
    assert row["leased_by"] in rq("show", lease["msg_id"], root=root).stdout


@pytest.mark.parametrize("hangs_up_first", [True, False], ids=["first", "after"])
def test_a_client_that_hangs_up_as_a_message_comes_is_leased_nothing(
    web, hangs_up_first
):
    """The web hears of both in one turn. Last: pages count the workers that it leaves."""
    name = pulled(web)
    for number in range(5):
        label = f"x{number}"
        with contextlib.closing(
            asking(web, name, {"wait": 60, "label": label})
        ) as line:
            wait_until(lambda label=label: heard_of(web, name, label))
            with standing_still(worker_of(web)):
                if hangs_up_first:
                    line.shutdown(socket.SHUT_RDWR)
                sent = rq("send", name, root=web.daemon.root.path)
                if not hangs_up_first:
                    line.shutdown(socket.SHUT_RDWR)
        assert sent.returncode == 0, sent
        [lease] = leased(web, name, wait=5, seconds=900)
        assert lease["message"]["count"] == 0
