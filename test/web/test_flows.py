"""Flows over HTTP and on the command line: who may send and see what of them."""

import json
import time

import pytest
from harness.cli import rq
from harness.flows import DIAMOND, GO, node, running_stage
from harness.leases import credentials
from harness.waiting import wait_until
from harness.web_server import web_alone

from rq.access.roles import Role
from rq.errors import BadConfig, BadInput
from rq.flow import plan
from rq.names import created
from rq.timers import timer

pytestmark = pytest.mark.process
AS_JSON = {"Content_Type": "application/json"}
API = "/api/v1/flows"


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with running_stage(tmp_path_factory.mktemp("flows")) as stage:
        yield stage


@pytest.fixture(scope="module")
def web(stage):
    with web_alone(stage.root.path) as web:
        rights = {
            "operator": (Role.OPERATOR, {}),
            "viewer": (Role.VIEWER, {}),
            "worker": (Role.WORKER, {}),
            "producer": (Role.PRODUCER, {}),
            "of work": (Role.PRODUCER, {"queues": ("work",)}),
            "sees other": (Role.VIEWER, {"queues": ("other",)}),
            "operates other": (Role.OPERATOR, {"queues": ("other",)}),
            "sender": (Role.SENDER, {}),
            "another sender": (Role.SENDER, {}),
            "stranger": (Role.OPERATOR, {"queues": ("mail",)}),
        }
        web.asks = {
            who: credentials(stage.root, who.replace(" ", "-"), role, **more)
            for who, (role, more) in rights.items()
        }
        yield web


def post(web, path, body, who=None, **headers):
    data = json.dumps(body).encode()
    asks = web.asks[who] if who else {}
    return web.ask("POST", path, data, **AS_JSON, **asks, **headers)


def sent(web, messages, who="operator", **more):
    answer = post(web, API, {"messages": messages, **more}, who)
    assert answer.status == 201, answer
    return answer.json["msg_id"]


def shown(web, msg_id, who="operator"):
    return web.get(f"{API}/{msg_id}", **web.asks[who])


def until(web, msg_id, mark):
    wait_until(lambda: shown(web, msg_id).json["mark"] == mark)
    return shown(web, msg_id).json


def test_a_flow_is_sent_looked_at_and_listed(stage, web):
    answer = post(web, API, {"messages": DIAMOND, "name": "diamond"}, "producer")
    msg_id = answer.json["msg_id"]
    assert answer.status == 201
    assert answer.headers["location"] == f"{API}/{msg_id}"
    told = until(web, msg_id, "done")
    assert [each["name"] for each in told["nodes"]] == [
        "first",
        "left",
        "right",
        "last",
    ]
    assert told["sums"] == {"done": 4}
    [row] = [
        r
        for r in web.get(API, **web.asks["viewer"]).json["flows"]
        if r["msg_id"] == msg_id
    ]
    assert (row["name"], row["mark"]) == ("diamond", "done")
    assert "diamond" in web.page("/flows", **web.asks["viewer"])
    assert "rq flow show" in web.page(f"/flows/{msg_id}", **web.asks["viewer"])
    assert f"/flows/{msg_id}" in web.page(f"/q/flow/{msg_id}", **web.asks["viewer"])
    assert web.get(f"/flows/{msg_id}.json", **web.asks["viewer"]).json == told


def test_a_flow_is_its_senders(stage, web):
    msg_id = sent(web, DIAMOND, "producer")
    told = until(web, msg_id, "done")
    for each in told["nodes"]:
        view = stage.queues[each["queue"]].get(each["msg_id"])
        assert view["by"] == "token:producer"
    assert stage.flow.get(msg_id)["by"] == "token:producer"


def test_a_key_names_one_flow_of_its_user(web):
    body = {"messages": DIAMOND, "key": "k1"}
    first = post(web, API, body, "producer")
    again = post(web, API, {"messages": DIAMOND}, "producer", Idempotency_Key="k1")
    other = post(web, API, body, "operator")
    assert (first.status, again.status, other.status) == (201, 200, 201)
    assert first.json["msg_id"] == again.json["msg_id"] != other.json["msg_id"]
    reused = post(web, API, {"messages": DIAMOND[:1], "key": "k1"}, "producer")
    assert reused.json["kind"] == "key_reused"


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([], "bad_input"),
        ([node("a", "a")], "bad_input"),
        ([{"name": "a"}], "bad_input"),
        ([node("a", 3)], "bad_input"),
        ([node("a", colour="x", prio=3)], "bad_input"),
        ([node("a", queue="cleaner")], "not_allowed"),
        ([node("a", queue="flow")], "not_allowed"),
        ([node("a", queue="webhook")], "not_allowed"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_whole(stage, web, messages, kind):
    before = number_of(stage.flow)
    answer = post(web, API, {"messages": messages}, "producer")
    assert answer.json["kind"] == kind, answer
    assert number_of(stage.flow) == before


def number_of(queue):
    """Return how many messages a queue has, in whatever state: others' flows go on."""
    return sum(queue.ok("detail")["counts"].values())


WRONG: list[list[object]] = [
    [1],
    [node("a"), "x"],
    [{"dest": "work"}],
    [{"name": 3, "dest": "work"}],
    [{"name": "x" * 200, "dest": "work"}],
    [{"name": "a", "dest": 3}],
    [{"name": "a", "dest": "work", "priority": "x"}],
    [{"name": "a", "dest": "work", "priority": 200}],
    [{"name": "a", "dest": "work", "after": "b"}],
    [{"name": "a", "dest": "work", "after": [3]}],
    [{"name": "a", "dest": "work", "max_count": -1}],
    [{"name": "a", "dest": "work", "after_rule": 7}],
]


def test_each_door_names_a_message_that_is_wrong_alike(web, tmp_path):
    """By its name, and one without a name by its number; so do the timers."""
    for messages in WRONG:
        with pytest.raises(BadInput) as refused:
            plan.parse(messages)
        answer = post(web, API, {"messages": messages}, "producer")
        assert answer.json["detail"] == str(refused.value)
        assert str(refused.value).startswith(("a", "message "))
        path = tmp_path / "wrong.json"
        path.write_text(json.dumps({"period": 60, "flow": messages}))
        with pytest.raises(BadConfig) as of_timer:
            timer.parse(path)
        assert str(of_timer.value).endswith(f"'flow': {refused.value}")


HOOK = "http://169.254.1.1/hook"
REFUSED = [
    (
        {"queue": "wrk"},
        "no_such_queue",
        "there is no queue 'wrk'; did you mean 'work'?",
    ),
    (
        {"post_run_webhook": [HOOK]},
        "bad_input",
        "post_run_webhook names 169.254.1.1:80",
    ),
]


@pytest.mark.parametrize(("more", "kind", "sentence"), REFUSED)
def test_what_a_queue_would_refuse_is_refused_at_each_door(
    stage, web, tmp_path, more, kind, sentence
):
    before = flows_of(stage)
    messages = [node("a"), node("b", "a", **more)]
    answer = post(web, API, {"messages": messages}, "producer")
    assert answer.json["kind"] == kind, answer
    assert answer.status == (404 if kind == "no_such_queue" else 422)
    assert answer.json["detail"].startswith(f"b: {sentence}")
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(messages))
    for words in ([], ["--check"]):
        done = rq("flow", "run", file, *words, root=stage.root.path)
        assert (done.returncode, done.stderr) == (
            3 if kind == "no_such_queue" else 2,
            f"rq: {answer.json['detail']}\n",
        )
    assert flows_of(stage) == before


def flows_of(stage):
    """Return how many flows there are, in whatever state."""
    return sum(stage.flow.ask("num_messages").values())


def test_a_queue_that_the_asker_may_not_see_is_no_hint(web):
    messages = [node("a", queue="wrk")]
    told = post(web, API, {"messages": messages}, "of work").json
    assert told["kind"] == "other_queue"
    assert "did you mean" not in told["detail"]


def test_a_flow_that_waits_for_a_retry_is_not_rerun_in_part(web):
    msg_id = sent(web, [node("bad", param3="err"), node("then", "bad")])
    until(web, msg_id, "failed")
    refused = post(web, f"{API}/{msg_id}/rerun", {"from": "bad"}, "operator")
    assert refused.json["kind"] == "wrong_state", refused
    assert f"rq flow retry {msg_id}" in refused.json["detail"]
    assert post(web, f"{API}/{msg_id}/cancel", {}, "operator").status == 200
    again = post(web, f"{API}/{msg_id}/rerun", {"from": "bad"}, "operator")
    assert again.status == 201


def test_a_list_tells_when_a_flow_was_sent_and_by_whom(web):
    msg_id = sent(web, DIAMOND, "producer", name="a name of several words")
    until(web, msg_id, "done")
    rows = web.get(API, **web.asks["viewer"]).json["flows"]
    row = next(each for each in rows if each["msg_id"] == msg_id)
    assert row["by"] == "token:producer"
    assert row["sent"] == pytest.approx(created(msg_id), abs=0.001)
    page = web.page("/flows", **web.asks["viewer"])
    assert "token:producer" in page
    assert f'data-when="{int(row["sent"])}"' in page


def test_the_page_tells_where_a_message_was_moved_and_how_far_one_is(stage, web):
    says = f'echo "run 12 of 40 files" >&3; {GO}'
    msg_id = sent(
        web, [node("moved", due=time.time() + 3600), node("runs", param2=says)]
    )
    wait_until(lambda: shown(web, msg_id).json["is_begun"])
    was = shown(web, msg_id).json["nodes"][0]["msg_id"]
    stage.work.ok("move_message", {"msg_id": was, "to": "other", "who": "ann"})
    wait_until(lambda: "was" in shown(web, msg_id).json["nodes"][0])
    wait_until(lambda: "text" in shown(web, msg_id).json["nodes"][1])
    page = web.page(f"/flows/{msg_id}", **web.asks["viewer"])
    assert f'was <a href="/q/work/{was}">' in page
    assert 'width="44.4"' in page  # of the bar in the graph
    assert "12 of 40 files" in page
    hidden = shown(web, msg_id, "of work").json["nodes"]
    assert [each["name"] for each in hidden] == ["#1", "runs"]
    url = f"http://127.0.0.1/flows/{msg_id}"  # as `rq timer run` prints it
    lines = rq("flow", "show", url, root=stage.root.path).stdout
    assert f"(was work/{was})" in lines
    assert post(web, f"{API}/{msg_id}/cancel", {}, "operator").json["changed"] == 2


@pytest.mark.parametrize("who", ["viewer", "worker", "sees other"])
def test_who_may_not_send_sends_no_flow(web, who):
    assert post(web, API, {"messages": DIAMOND}, who).status == 403


def test_each_message_needs_the_right_to_send_it(web):
    answer = post(web, API, {"messages": DIAMOND}, "of work")
    assert answer.json["kind"] == "other_queue"
    assert answer.json["detail"].startswith("right: ")
    assert post(web, API, {"messages": [node("a")]}, "of work").status == 201
    other = "other/20260102.0304.05.006.1767323045007"
    hidden = post(web, API, {"messages": [node("a", other)]}, "of work")
    assert hidden.status == 422
    assert other in hidden.json["detail"]


def test_a_reader_sees_of_a_flow_what_is_of_their_queues(web):
    msg_id = sent(web, DIAMOND, name="secret" * 3)
    until(web, msg_id, "done")
    told = shown(web, msg_id, "sees other").json
    names = [each["name"] for each in told["nodes"]]
    assert names == ["#1", "#2", "right", "#4"]
    assert told["sums"] == {"done": 1, "hidden": 3}
    assert all(
        "queue" not in each for each in told["nodes"] if each["mark"] == "hidden"
    )
    page = web.page(f"/flows/{msg_id}", **web.asks["sees other"])
    assert "work" not in page.partition("<main")[2].partition("</main>")[0]
    assert "left" not in page.partition("<main")[2].partition("</main>")[0]
    assert page.count("a message of another queue") >= 3


def test_who_sees_no_queue_of_a_flow_is_told_that_there_is_none(web):
    msg_id = sent(web, DIAMOND)
    none = shown(web, "20260102.0304.05.006.7", "stranger").json
    told = shown(web, msg_id, "stranger").json
    assert told["kind"] == none["kind"] == "no_such_message"
    assert told["detail"] == none["detail"].replace("20260102.0304.05.006.7", msg_id)
    assert web.get(API, **web.asks["stranger"]).json == {"flows": []}
    for verb in ("cancel", "retry", "rerun"):
        answer = post(web, f"{API}/{msg_id}/{verb}", {}, "stranger")
        assert answer.json["kind"] == "no_such_message", verb


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_flow_is_changed_by_who_may_change_each_message(stage, web, verb):
    messages = [node("first", param3="err"), node("then", "first", queue="other")]
    msg_id = sent(web, messages)
    until(web, msg_id, "failed")
    path = f"{API}/{msg_id}/{verb}"
    assert post(web, path, {}, "producer").status == 403
    assert post(web, path, {}, "operates other").json["kind"] == "other_queue"
    form = {"_method": verb}
    assert web.post(f"/flows/{msg_id}", form, **web.asks["producer"]).status == 403
    done = {"changed": 1, "failures": [], "left": 0}
    assert post(web, path, {}, "operator").json == done


def test_a_retry_over_http_leaves_what_was_cancelled_unless_it_is_meant(stage, web):
    msg_id = sent(web, [node("runs", param2=GO), node("then", "runs")])
    until(web, msg_id, "runs")
    place = stage.sent(msg_id)["runs"].partition("/")[2]
    stage.work.ok("cancel_message", {"msg_id": place, "who": "ann"})
    told = until(web, msg_id, "cancelled")
    assert told["sums"] == {"cancelled": 1, "waits": 1}
    path = f"{API}/{msg_id}/retry"
    answer = {"changed": 0, "failures": [], "left": 1}
    assert web.post(path, b"", **web.asks["operator"]).json == answer
    meant = post(web, path, {"cancelled": True}, "operator").json
    assert meant == {"changed": 1, "failures": [], "left": 0}
    until(web, msg_id, "runs")
    assert post(web, f"{API}/{msg_id}/cancel", {}, "operator").json["changed"] == 2


def test_an_answer_waits_until_nothing_of_a_flow_goes_on(stage, web):
    held = node("held", "first", "moved", hold=True)
    messages = [node("first"), node("moved", "first", queue="other"), held]
    msg_id = sent(web, messages)
    told = web.get(f"{API}/{msg_id}?wait=60&for=end", **web.asks["viewer"]).json
    assert told["sums"] == {"held": 1, "done": 2}
    begun = time.monotonic()
    assert (
        web.get(f"{API}/{msg_id}?wait=60", **web.asks["viewer"]).json["mark"] == "held"
    )
    assert time.monotonic() - begun < 30
    runs = sent(web, [node("runs", param2=GO), node("then", "runs")])
    told = web.get(f"{API}/{runs}?wait=0.3", **web.asks["viewer"]).json
    assert told["mark"] in ("unsent", "runs")
    for each in (msg_id, runs):
        post(web, f"{API}/{each}/cancel", {}, "operator")
    told = web.get(f"{API}/{runs}?wait=60", **web.asks["viewer"]).json
    assert told["mark"] == "cancelled"
    assert web.get(f"{API}/{runs}?wait=61", **web.asks["viewer"]).status == 422


def test_a_part_is_sent_again_over_http_and_by_a_button(web):
    msg_id = sent(web, DIAMOND)
    until(web, msg_id, "done")
    again = post(web, f"{API}/{msg_id}/rerun", {"from": "left"}, "producer")
    assert again.status == 201
    assert until(web, again.json["msg_id"], "done")["sums"] == {"done": 2}
    nobody = post(web, f"{API}/{msg_id}/rerun", {"from": "x"}, "producer")
    assert "no message called 'x'" in nobody.json["detail"]
    form = {"_method": "rerun", "from": "last"}
    answer = web.post(f"/flows/{msg_id}", form, **web.asks["producer"])
    assert answer.status == 303
    assert "/flows/" in answer.headers["location"]
    for verb in ("cancel", "retry", "rerun"):
        question = f"/flows/{msg_id}/confirm/{verb}"
        assert "flow" in web.page(question, **web.asks["operator"])


@pytest.mark.slow
def test_a_flow_of_ten_thousand_is_taken_shown_and_ended(stage, web):
    """2.4 MB of plan; the second queue holds it back, so that nothing runs."""
    wide = [node(f"w{at}", "gate") for at in range(4999)]
    chain = [node(f"c{at}", f"w{at}", queue="other") for at in range(5000 - 1)]
    gate = node("gate", param2=GO)
    messages = [gate, *wide, *chain, node("end", *(f"c{at}" for at in range(4999)))]
    answer = post(web, API, {"messages": messages}, "operator")
    assert answer.status == 201, answer.text[:300]
    msg_id = answer.json["msg_id"]
    stage.flow.ended(msg_id)
    told = shown(web, msg_id).json
    assert sum(told["sums"].values()) == len(messages) == 10_000
    assert web.page(f"/flows/{msg_id}").count('<g class="box') == 4
    done = post(web, f"{API}/{msg_id}/cancel", {}, "operator").json
    assert (done["changed"], done["failures"]) == (10_000, [])
    assert until(web, msg_id, "cancelled")["sums"] == {"cancelled": 10_000}


def test_a_sender_sends_sees_and_cancels_its_own_flows_and_no_others(web):
    messages = [node("runs", param2=GO), node("then", "runs", queue="other")]
    own, other = sent(web, messages, "sender"), sent(web, messages, "operator")
    assert [
        row["msg_id"] for row in web.get(API, **web.asks["sender"]).json["flows"]
    ] == [own]
    told = shown(web, own, "sender").json
    assert [each["name"] for each in told["nodes"]] == ["runs", "then"]
    for who, msg_id in (("sender", other), ("another sender", own)):
        assert shown(web, msg_id, who).json["kind"] == "no_such_message"
        for verb in ("cancel", "rerun"):
            answer = post(web, f"{API}/{msg_id}/{verb}", {}, who)
            assert answer.json["kind"] == "no_such_message", (who, verb)
    assert post(web, f"{API}/{own}/retry", {}, "sender").status == 403
    assert web.get("/flows", **web.asks["sender"]).status == 403
    wait_until(lambda: "msg_id" in shown(web, other).json["nodes"][0])
    foreign = shown(web, other).json["nodes"][0]
    named = [node("a", f"{foreign['queue']}/{foreign['msg_id']}")]
    assert (
        "you may read" in post(web, API, {"messages": named}, "sender").json["detail"]
    )
    for msg_id, who in ((own, "sender"), (other, "operator")):
        wait_until(lambda flow=msg_id: shown(web, flow).json["mark"] == "runs")
        assert post(web, f"{API}/{msg_id}/cancel", {}, who).json["changed"] == 2


# ---- the command line


def test_the_command_line_sends_shows_lists_and_ends(stage, tmp_path):
    root = stage.root.path
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"name": "cli", "messages": DIAMOND}))
    checked = rq("flow", "run", file, "--check", root=root)
    assert checked.stdout == "4 messages in 3 layers, for other, work\n"
    ended = rq("flow", "run", file, "--wait", "--id-only", root=root)
    msg_id = ended.stdout.strip()
    assert (ended.returncode, ended.stderr) == (
        0,
        f"flow/{msg_id} done: all of its 4 messages are done\n",
    )
    lines = rq("flow", "show", msg_id, root=root).stdout.splitlines()
    assert lines[0] == f"flow/{msg_id} cli: all of its 4 messages are done"
    assert [line.split()[-4:-3] for line in lines[2:3]] == [["✓"]]
    assert json.loads(rq("flow", "show", msg_id, "--json", root=root).stdout)["nodes"]
    assert "cli" in rq("flow", "ls", root=root).stdout
    again = rq("flow", "rerun", msg_id, "--from", "last", "--wait", root=root)
    assert "1 message in 1 layer" in again.stdout
    assert again.returncode == 0
    assert again.stderr.endswith(" done: its message is done\n")
    assert (
        rq("flow", "cancel", msg_id, "--yes", root=root).stdout == "0 messages ended\n"
    )
    assert rq("flow", "show", "20260102.0304.05.006.7", root=root).returncode == 3


def test_the_command_line_waits_for_what_needs_a_person(stage, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps([node("bad", param3="err"), node("then", "bad")]))
    ended = rq("flow", "run", file, "--wait", "--id-only", root=stage.root.path)
    assert ended.returncode == 8
    assert ended.stderr.endswith("failed: 1 failed, 1 waiting\n")
    file.write_text(json.dumps([node("runs", param2=GO)]))
    late = rq("flow", "run", file, "--wait", "--timeout", "1", root=stage.root.path)
    assert late.returncode == 7
    stage.go()


def test_a_file_that_is_no_plan_is_said_in_a_sentence(stage, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text("[{")
    assert "is no JSON" in rq("flow", "run", file, root=stage.root.path).stderr
    file.write_text("{}")
    wrong = rq("flow", "run", file, root=stage.root.path)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    file.write_text(json.dumps([node("a", queue="wrk")]))
    missing = rq("flow", "run", file, root=stage.root.path)
    assert (missing.returncode, "wrk" in missing.stderr) == (3, True)
