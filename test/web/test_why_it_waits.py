"""Why a message waits: the socket, the API, the page and the command line agree."""

import json

import pytest
from harness.cli import rq
from harness.waiting import wait_until
from harness.web_server import served

from rq.message.waits import Reason

pytestmark = pytest.mark.process
FAR = 4e9
HELD_UP = {"num_workers": 1}


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("why")) as web:
        yield web


def whys(web, queue, msg_id):
    """Return what each of them says of a message."""
    api = f"/api/v1/queues/{queue}/messages"
    row = next(r for r in web.get(f"{api}?order=next").json["messages"]
               if r["msg_id"] == msg_id)  # fmt: skip
    sections = web.get(f"/q/{queue}/queue.json?state=que").json["sections"]
    shown = next(r for s in sections for r in s["rows"] if r["msg_id"] == msg_id)
    root = web.daemon.root.path
    told = json.loads(rq("why", f"{queue}/{msg_id}", "--json", root=root).stdout)
    listed = json.loads(rq("ls", queue, "--why", "--json", root=root).stdout)
    refused = rq("ls", queue, "--why", "--state", "err", root=root)
    assert (refused.returncode, "leave --state out" in refused.stderr) == (2, True)
    return [
        web.daemon.ask_queue(queue, "get_message", {"msg_id": msg_id})[1]["_why"],
        web.get(f"{api}/{msg_id}").json["_why"],
        row["why"],
        shown["why"],
        told[0],
        next(r["why"] for r in listed if r["msg_id"] == msg_id),
    ]


def check(web, queue, msg_id, reason, by=None, stable=True):
    said = whys(web, queue, msg_id)
    assert {one["reason"] for one in said} == {reason}
    assert {one["by"] for one in said} == {by}
    if stable:
        assert len({one["text"] for one in said}) == 1, said
    return said[0]


def test_a_held_message(web):
    name = web.queue("echo done >&3")
    msg_id = web.send(name, due=FAR)
    asked = {"msg_id": msg_id, "why": "disk swap", "who": "ann"}
    web.daemon.ask_queue(name, "hold_message", asked)
    by = web.daemon.ask_queue(name, "get_message", {"msg_id": msg_id})[1]["held"]["by"]
    check(web, name, msg_id, Reason.HELD, by)
    row = rq("why", msg_id, root=web.daemon.root.path).stdout
    assert "`rq release" in row
    assert "disk swap" in row
    assert "</svg>held</span>" in "".join(web.page(f"/q/{name}").split("\n"))


def test_one_that_is_not_due(web):
    name = web.queue("echo done >&3")
    why = check(web, name, web.send(name, due=FAR), Reason.DUE, stable=False)
    assert why["until"] == FAR


def test_one_of_a_queue_that_is_paused(web):
    name = web.queue("echo done >&3")
    asked = {"queue": name, "why": "disk swap", "until": FAR, "who": "ann"}
    web.daemon.ask("pause_queue", json.dumps(asked))
    wait_until(lambda: web.daemon.ask_queue(name, "status") == ["PAUSE"])
    msg_id = web.send(name)
    by = web.daemon.ask_queue(name, "detail")[1]["paused"]["by"]
    why = check(web, name, msg_id, Reason.PAUSED, by)
    assert why["text"].endswith("UTC: disk swap.")
    page = web.page(f"/q/{name}")
    assert "disk swap" in page
    assert "disk swap" in web.page("/")
    assert "disk swap" in rq("status", root=web.daemon.root.path).stdout


def test_one_without_a_slot_and_one_behind_a_key(web):
    name = web.queue("exec sleep 600", num_workers=1)
    first = web.send(name)
    wait_until(lambda: web.state(name, first) == "run", 30)
    check(web, name, web.send(name), Reason.SLOT, first)
    name = web.queue("exec sleep 600", num_workers=2, blocking_params=[1])
    first = web.send(name, param1="a")
    wait_until(lambda: web.state(name, first) == "run", 30)
    check(web, name, web.send(name, param1="a"), Reason.KEY, first)


def test_one_for_which_the_rate_has_no_room(web):
    name = web.queue("echo done >&3", rate={"number": 1, "per": "hour", "burst": 1})
    first = web.send(name)
    wait_until(lambda: web.state(name, first) == "done", 30)
    why = check(web, name, web.send(name), Reason.RATE, stable=False)
    assert why["until"]


def test_one_in_a_queue_without_slots_for_whom_nobody_asks(web):
    name = web.queue("exit 1", num_workers=0, pull={})
    check(web, name, web.send(name), Reason.LEASE, stable=False)


def test_one_whose_script_is_missing(web):
    name = web.queue("echo done >&3")
    script = web.daemon.root.queue(name).path / "gone"
    config = web.daemon.root.queue(name).config
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "script": str(script)})
    )
    web.daemon.ask_queue(name, "wake")
    msg_id = web.send(name)
    wait_until(lambda: web.daemon.ask_queue(name, "status") == ["SCRIPTERROR"], 30)
    check(web, name, msg_id, Reason.SCRIPT)


def test_one_of_a_queue_that_is_down_and_one_that_is_held_there(web):
    name = web.queue("echo done >&3", num_workers=0)
    held, other = web.send(name, hold="disk swap"), web.send(name)
    assert f"/q/{name}/{held}/confirm/release" in web.page(f"/q/{name}?state=que")
    wait_until(lambda: not web.daemon.ask_queue(name, "detail")[1]["lag"], 30)
    web.daemon.ask("down_queue", name)
    wait_until(lambda: web.daemon.ask_queue(name, "status") == ["DOWN"])
    root = web.daemon.root.path
    for msg_id in (held, other):
        shown = web.get(f"/q/{name}/{msg_id}.json").json["_why"]
        (told,) = json.loads(rq("why", f"{name}/{msg_id}", "--json", root=root).stdout)
        sections = web.get(f"/q/{name}/queue.json?state=que").json["sections"]
        (row,) = (r for s in sections for r in s["rows"] if r["msg_id"] == msg_id)
        assert {shown["text"], told["text"], row["why"]["text"]} == {
            "The queue is DOWN."
        }
        assert {shown["reason"], told["reason"], row["why"]["reason"]} == {Reason.DOWN}


def test_what_waits_is_listed_in_the_order_in_which_it_runs(web):
    name = web.queue("echo done >&3", num_workers=0)
    late = web.send(name, due=FAR)
    low, high = web.send(name), web.send(name, priority=7)
    held = web.send(name, hold="disk swap", priority=9)
    order = [high, low, late, held]
    api = f"/api/v1/queues/{name}/messages"
    assert [r["msg_id"] for r in web.get(f"{api}?order=next").json["messages"]] == order
    newest = web.get(api).json["messages"]
    assert [r["msg_id"] for r in newest] == sorted(order, reverse=True)
    (section,) = web.get(f"/q/{name}/queue.json?state=que").json["sections"]
    assert [r["msg_id"] for r in section["rows"]] == order
    rows = rq("ls", name, "--state", "que", "--json", root=web.daemon.root.path).stdout
    assert [r["msg_id"] for r in json.loads(rows)] == order


def audited(web):
    """Return the requests of which the audit log tells, with their answers."""
    lines = (web.daemon.root.log / "audit.log").read_text().splitlines()
    return [line.partition("what=")[2] for line in lines]


def test_who_lets_messages_wait_is_in_the_audit_log(web):
    name = web.queue("echo done >&3")
    msg_id = web.send(name, due=FAR)
    page, api = f"/q/{name}", f"/api/v1/queues/{name}"
    before = len(audited(web)) if (web.daemon.root.log / "audit.log").exists() else 0
    for verb in ("hold", "release"):
        form = {"_method": verb, "why": "hush", "x_format": "json"}
        assert web.post(f"{page}/{msg_id}", form).json[0] == "ok"
        many = {"action": verb, "state": "que", "to": "hush", "x_format": "json"}
        assert web.post(f"{page}/bulk", many).json[0] == "ok"
        json_api = {"Content_Type": "application/json"}
        path = f"{api}/messages/{msg_id}/{verb}"
        assert web.ask("POST", path, b"{}", **json_api).status == 200
        to = {"to": "hush"} if verb == "hold" else {}
        body = json.dumps({"action": verb, "filter": {"state": "que"}, **to}).encode()
        assert web.ask("POST", f"{api}/bulk", body, **json_api).status == 202
    for verb in ("pause", "resume"):
        form = {verb: "1", "why": "hush", "x_format": "json"}
        assert web.post(f"{page}/adminoper", form).json[0] == "ok"
        assert web.ask("POST", f"{api}/{verb}", b"{}", **json_api).status == 200
    assert audited(web)[before:] == [
        *(
            line
            for verb in ("hold", "release")
            for line in (
                f'"POST {page}/{msg_id} _method={verb}" answer=200',
                f'"POST {page}/bulk action={verb}" answer=200',
                f'"POST {api}/messages/{msg_id}/{verb}" answer=200',
                f'"POST {api}/bulk action={verb}" answer=202',
            )
        ),
        *(
            line
            for verb in ("pause", "resume")
            for line in (
                f'"POST {page}/adminoper {verb}=1" answer=200',
                f'"POST {api}/{verb}" answer=200',
            )
        ),
    ]
