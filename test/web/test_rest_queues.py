"""The ancestor's routes for queues, asked as its clients asked them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

pytestmark = pytest.mark.system

SLEEP = "exec sleep 60"
DONE = "echo done ok >&3"
ERR = "echo err no >&3"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("rest"), allow_new_queue=True) as found:
        found.queue(DONE, "plain")
        yield found


def test_the_names_of_all_queues_are_json_and_text(web):
    assert "plain" in web.get("/q.json").json
    assert web.get("/q.json").kind == "application/json"
    text = web.get("/q.txt")
    assert "q/plain.txt" in text.text.splitlines()
    assert text.kind == "text/plain"


def test_counts_and_status_of_a_queue_are_json_and_text(web):
    web.send("plain")
    wait_until(lambda: web.get("/q/plain.json").json["done_size"] >= 1)
    found = web.get("/q/plain.json").json
    sizes = {f"{one}_size" for one in ("prep", "que", "run", "done", "err", "relayed")}
    assert found.keys() == {"status", "uptime"} | sizes
    lines = web.get("/q/plain.txt").text.splitlines()
    assert lines[0] == "status: UP"
    assert any(line.startswith("uptime: ") for line in lines)
    assert f"done: {found['done_size']}" in lines


def test_a_queue_that_is_down_says_only_that(web):
    name = web.queue(DONE)
    assert web.post(f"/q/{name}/adminoper", {"down": "1"}).status == 303
    wait_until(lambda: web.get(f"/q/{name}.json").json == {"status": "DOWN"})
    assert web.get(f"/q/{name}.txt").text == "status: DOWN\n"
    refused = web.post(f"/q/{name}/new_message", {"mesg": json.dumps({"dest": name})})
    assert refused.status == 503
    assert "503 - Service Unavailable - Operationally Down" in refused.json["detail"]
    assert web.get(f"/q/{name}/config").json["name"] == name
    assert web.get(f"/q/{name}/done.json").json == ["fail", "status: DOWN"]
    web.post(f"/q/{name}/adminoper", {"up": "1"})
    wait_until(lambda: web.get(f"/q/{name}.json").json["status"] == "UP")


def test_a_queue_is_paused_and_resumed(web):
    name = web.queue(DONE)
    answer = web.post(f"/q/{name}/adminoper", {"pause": "1", "back": f"/q/{name}"})
    assert (answer.status, answer.headers["location"]) == (303, f"/q/{name}")
    msg_id = web.send(name)
    wait_until(lambda: web.get(f"/q/{name}.json").json["status"] == "PAUSE")
    assert web.state(name, msg_id) == "que"
    web.post(f"/q/{name}/adminoper", {"resume": "1"})
    wait_until(lambda: web.state(name, msg_id) == "done")


def test_adminoper_without_a_word_is_refused(web):
    refused = web.post("/q/plain/adminoper", {"adminoper": "pause"})
    assert refused.status == 422
    assert "pause=1" in refused.json["detail"]
    every = dict.fromkeys(("pause", "resume", "down", "up"), "1")
    assert web.post("/q/plain/adminoper", every).status == 422


def test_done_lists_the_newest_first_up_to_a_limit(web):
    name = web.queue(DONE)
    sent = [web.send(name) for _ in range(12)]
    wait_until(lambda: web.get(f"/q/{name}.json").json["done_size"] == 12)
    assert web.get(f"/q/{name}/done.json").json == sent[::-1][:10]
    assert web.get(f"/q/{name}/done.json?limit=3").json == sent[::-1][:3]
    assert web.get(f"/q/{name}/done.json?limit=x").status == 400


def test_the_config_is_the_file_and_the_one_in_force(web):
    stored, live = web.get("/q/plain/config.json"), web.get("/q/plain/config")
    assert stored.kind == live.kind == "application/json"
    assert stored.json["name"] == live.json["name"] == "plain"


def test_what_is_unknown_is_404_for_programs_and_people(web):
    for path in ("/q/none.json", "/q/none/done.json", "/q/none/config", "/nothing"):
        answer = web.get(path)
        assert (answer.status, answer.kind) == (404, "application/problem+json"), path
        assert answer.json["status"] == 404
    assert web.get("/q/none/config.json").status == 404
    assert web.get("/q/none.txt").status == 404
    assert web.get("/q/none.txt").kind == "text/plain"
    page = web.get("/nothing", Accept=BROWSER)
    assert (page.status, page.kind) == (404, "text/html")
    assert web.post("/q/none/new_message", {"mesg": '{"dest":"none"}'}).status == 404
    for word in ("ack_errs", "restart"):
        assert web.post(f"/q/none/{word}").status == 404
    assert web.get("/q/..%2f..%2fetc/config.json").status == 400


def test_what_is_odd_in_an_address_is_answered_in_a_sentence(web):
    big = "9" * 30
    lead = web.get("/q/plain/", Accept=BROWSER)
    assert (lead.status, lead.headers["location"]) == (303, "/q/plain")
    assert web.get("/q/none/", Accept=BROWSER).status == 404
    msg_id = web.send("plain")
    for path, status in (
        (f"/q/plain/done.json?limit={big}", 400),
        ("/q/plain/done.json?limit=x", 400),
        (f"/q/plain/{msg_id}/tailview/%3Cb%3E", 404),
        (f"/q/plain/{msg_id}/tailviewlog/..%2fmsg", 400),
        (f"/q/plain/{msg_id}/tailview/{'x' * 400}", 404),
        (f"/q/plain/{msg_id}/log.json?from={big}", 200),
        (f"/q/plain/queue.json?after={big}&state=%00", 200),
    ):
        answer = web.get(path)
        assert answer.status == status, path
        if status != 200:
            assert answer.kind == "application/problem+json"
            assert len(answer.json["detail"]) < 300
    assert web.post("/delete_queue", {"queue_name": "none"}).status == 404
    assert web.post("/delete_queue", {"queue_name": "../x"}).status == 404
    assert web.post("/delete_queue").status == 404


def test_a_method_that_is_not_there_is_405(web):
    answer = web.ask("DELETE", "/q.json")
    assert (answer.status, answer.kind) == (405, "application/problem+json")
    assert "GET" in answer.headers["allow"]


def test_head_is_get_without_its_body(web):
    answer = web.ask("HEAD", "/q.json")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) == len(web.get("/q.json").body)


def test_errors_are_acknowledged(web):
    name = web.queue(ERR)
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "err")
    place = f"/q/{name}/ack_errs"
    for word in ("noon", "nan", "1e999"):
        refused = web.post(place, {"before": word, "x_format": "json"}).json
        assert refused[0] == "fail"
        assert "before" in refused[1]
    answer = web.post(place, {"back": f"/q/{name}"})
    assert answer.status == 303
    assert web.get(f"/q/{name}.json").json["err_size"] == 0


def test_what_fails_while_an_operator_is_asked_is_not_acknowledged(web):
    name = web.queue(ERR)
    first = web.send(name)
    wait_until(lambda: web.state(name, first) == "err")
    asked = web.get(f"/q/{name}/confirm/ack_errs").text
    before = re.search(r'name="before" value="([^"]+)"', asked)[1]
    later = web.send(name)
    wait_until(lambda: web.state(name, later) == "err")
    answer = web.post(f"/q/{name}/ack_errs", {"before": before, "x_format": "json"})
    assert answer.json == ["ok", 1, 1]
    listed = web.get(f"/api/v1/queues/{name}/messages?state=err").json["messages"]
    assert [row["msg_id"] for row in listed] == [later]


def test_a_queue_is_restarted(web):
    name = web.queue(DONE)
    pid = web.daemon.child(name)["pid"]
    assert web.post(f"/q/{name}/restart").status == 303
    wait_until(lambda: web.daemon.until_up(name)["pid"] != pid)
    pid = web.daemon.until_up("plain")["pid"]
    answer = web.post("/q/plain/restart", {"x_format": "json"})
    assert answer.json == ["ok", "plain"]
    wait_until(lambda: web.daemon.until_up("plain")["pid"] != pid)


def test_a_queue_is_made_and_removed_by_forms(web):
    script = web.daemon.root.path / "script"
    fields = {
        "queue[name]": "made",
        "queue[script]": str(script),
        "queue[num_workers]": "2",
        "queue[exec_prefix]": "",
        "queue[coalesce_params][]": "1",
    }
    answer = web.post("/new_queue", fields)
    assert (answer.status, answer.headers["location"]) == (303, "/q/made")
    found = web.get("/q/made/config").json
    assert (found["num_workers"], found["coalesce_params"]) == (2, [1])
    assert found["exec_prefix"] == ""  # said to be none: not that of a queue without
    again = web.post("/new_queue", {**fields, "x_format": "json"})
    assert again.json == ["fail", "already created"]
    page = web.post("/new_queue", fields, Accept=BROWSER)
    assert "There is already a queue made" in page.text
    hostile = {**fields, "queue[name]": "<b>/", "queue[script]": '"x'}
    page = web.post("/new_queue", hostile, Accept=BROWSER)
    assert (page.status, page.kind) == (422, "text/html")
    for shown in (
        "queue name has invalid characters",
        'value="&lt;b&gt;/"',
        'value="&#34;x"',
        'name="queue[coalesce_params][]" value="1" checked',
    ):
        assert shown in page.text
    assert web.post("/new_queue").status == 422
    answer = web.post("/delete_queue", {"queue_name": "made"})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    wait_until(lambda: "made" not in web.get("/q.json").json)


def test_a_queue_for_workers_elsewhere_is_made_without_a_script(web):
    fields = {"queue[name]": "pulled", "queue[script]": "", "queue[num_workers]": "1"}
    page = web.post("/new_queue", fields, Accept=BROWSER)
    assert page.status == 422
    assert "Name a script that runs here, or let workers elsewhere take" in page.text
    answer = web.post("/new_queue", {**fields, "queue[pull]": "1"})
    assert (answer.status, answer.headers["location"]) == (303, "/q/pulled")
    found = web.get("/q/pulled/config").json
    assert (found["num_workers"], found["pull"]["max"]) == (0, 1000)
    again = web.post("/new_queue", {**fields, "queue[pull]": "1"}, Accept=BROWSER)
    assert re.search(r'name="queue\[pull\]"[^>]* checked', again.text)
    assert web.post("/delete_queue", {"queue_name": "pulled"}).status == 303


def test_what_an_action_did_is_said_once_on_the_next_page(web):
    name = web.queue(DONE)
    answer = web.post(f"/q/{name}/adminoper", {"pause": "1"}, Accept=BROWSER)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    pair = cookie.partition(";")[0]
    page = web.get(f"/q/{name}", Accept=BROWSER, Cookie=pair)
    assert f"{name} is paused" in page.text
    assert "rq_session=" in page.headers["set-cookie"]
    forged = pair[:-4] + "0000"
    page = web.get(f"/q/{name}", Accept=BROWSER, Cookie=forged)
    assert f"{name} is paused" not in page.text


def test_back_leads_nowhere_else(web):
    for bad in ("//evil.example/", "https://evil.example/", "/\\evil", "/a\r\nX: y"):
        answer = web.post("/q/plain/ack_errs", {"back": bad})
        assert (answer.status, answer.headers["location"]) == (303, "/q/plain"), bad


def test_check_rq_reads_the_verdict_and_the_text_routes(web):
    def check(*words):
        command = [sys.executable, "-m", "rq.cli.check_rq", "-p", str(web.port), *words]
        env = {"PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, check=False
        )
        return done.returncode, done.stdout

    name = web.queue(ERR)
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "err")
    status, said = check("-d")
    assert status == 2
    assert " that failed: `rq " in said
    assert f"{name}: status=UP" in said
    web.post(f"/q/{name}/ack_errs")
    for other in web.get("/q.json").json:
        web.post(f"/q/{other}/adminoper", {"resume": "1"})
        web.post(f"/q/{other}/ack_errs")
    wait_until(lambda: check()[0] == 0)
    status, said = check("-t", "25:40:0:3500")
    assert status == 1
    assert said.startswith("WARNING: ")
