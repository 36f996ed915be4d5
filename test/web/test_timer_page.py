"""The pages of timers: what fires next, what became of the last, and a person's word."""

import json
import urllib.parse

import pytest
from harness.waiting import wait_until
from harness.web_server import served

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("timers")) as web:
        web.queue("echo done >&3", "backup")
        web.daemon.until_up("timers")
        yield web


def written(web, name):
    rule = {"cron": "30 3 * * *", "timezone": "Asia/Kathmandu"}
    path = web.daemon.root.timers / f"{name}.json"
    path.write_text(json.dumps({**rule, "msg": {"dest": "backup"}}))
    wait_until(lambda: name in names(web), 60)


def names(web):
    return [row["name"] for row in web.get("/api/v1/timers").json["timers"]]


def of(web, name):
    return web.get(f"/api/v1/timers/{name}").json


@pytest.mark.parametrize("name", ["nightly", "a b", "50%", "ümläut", "x?y#z&w"])
def test_each_timer_has_a_page_with_its_next_fires_and_its_last(web, name):
    written(web, name)
    place = f"/timers/{urllib.parse.quote(name, safe='')}"
    listed = web.page("/timers")
    assert f'href="{place}"' in listed
    page = web.page(place)
    assert "30 3 * * *" in page
    assert page.count("03:30:00 +0545") == 10
    assert "It has not fired yet." in page
    sent = web.post(place, {"_method": "run", "x_format": "json"}).json
    assert sent[0] == "ok"
    msg_id = sent[1].rpartition("/")[2]
    wait_until(lambda: "by hand" in web.page(place))
    wait_until(lambda: "badge done" in web.page(place), 60)
    assert f"/q/backup/{msg_id}" in web.page(place)


def test_a_person_pauses_a_timer_and_lets_it_go_on(web):
    written(web, "rests")
    assert (
        web.post("/timers/rests", {"_method": "pause", "x_format": "json"}).json[0]
        == "ok"
    )
    assert of(web, "rests")["paused"] > 0
    assert of(web, "rests")["next"] == []
    assert "It fires nothing since" in web.page("/timers/rests")
    assert "paused" in web.page("/")
    web.post("/timers/rests", {"_method": "resume", "x_format": "json"})
    assert of(web, "rests")["paused"] is None
    assert len(of(web, "rests")["next"]) == 10


def test_of_a_timer_that_is_not_there_a_sentence_is_told(web):
    answer = web.get("/api/v1/timers/nobody")
    assert (answer.status, answer.json["kind"]) == (404, "no_such_message")
    assert answer.json["detail"] == "there is no timer 'nobody'"
    assert web.get("/timers/nobody").status == 404
    assert web.post("/timers/nobody", {"_method": "run"}).status == 404
    assert web.post("/timers/nobody", {"_method": "fly"}).status == 400


def test_a_queue_that_is_down_is_told_by_its_kind(web):
    written(web, "nightly")
    web.daemon.ask("down_queue", "backup")
    wait_until(lambda: web.daemon.ask_queue("backup", "status") == ["DOWN"])
    answer = web.ask("POST", "/api/v1/timers/nightly/run")
    assert (answer.status, answer.json["kind"]) == (503, "down")
    web.daemon.ask("up_queue", "backup")


def test_a_timer_whose_message_failed_says_why_until_a_person_acknowledges_it(web):
    web.queue("echo err no space >&3", "full")
    rule = {"cron": "30 3 * * *", "expect": {"within": "26h"}}
    path = web.daemon.root.timers / "fails.json"
    path.write_text(json.dumps({**rule, "msg": {"dest": "full"}}))
    wait_until(lambda: "fails" in names(web), 60)
    web.post("/timers/fails", {"_method": "run", "x_format": "json"})
    wait_until(lambda: of(web, "fails")["trouble"], 60)
    for page in ("/timers", "/timers/fails"):
        assert "the last failed: no space" in web.page(page)
        assert 'value="ack"' in web.page(page)
    assert "a success within 1 d 2 h" in web.page("/timers/fails")

    def faults():
        return [t["fault"] for t in web.get("/api/v1/verdict").json["troubles"]]

    wait_until(lambda: "timer_failed" in faults(), 60)
    answer = web.ask("POST", "/api/v1/timers/fails/ack")
    assert (answer.status, answer.json["trouble"]) == (200, None)
    assert "the last failed" not in web.page("/timers")
    wait_until(lambda: "timer_failed" not in faults(), 60)


@pytest.mark.slow
def test_only_a_success_ends_what_is_overdue_so_no_button_acknowledges_it(web):
    rule = {"cron": "30 3 * * *", "expect": {"within": "1m"}}
    path = web.daemon.root.timers / "late.json"
    path.write_text(json.dumps({**rule, "msg": {"dest": "backup"}}))
    wait_until(lambda: "late" in names(web) and of(web, "late")["trouble"], 120)
    page = web.page("/timers/late")
    assert "a success was expected" in page
    assert 'value="ack"' not in page
    wait_until(lambda: ">timers/late</a>" in web.page("/"), 60)


def test_a_message_that_has_not_run_says_that_its_queue_is_paused(web):
    web.queue("echo done >&3", "asleep")
    web.daemon.ask("pause_queue", "asleep")
    path = web.daemon.root.timers / "waits.json"
    path.write_text(json.dumps({"cron": "30 3 * * *", "msg": {"dest": "asleep"}}))
    wait_until(lambda: "waits" in names(web), 60)
    web.post("/timers/waits", {"_method": "run", "x_format": "json"})
    wait_until(lambda: "queue is paused" in web.page("/timers/waits"), 60)
