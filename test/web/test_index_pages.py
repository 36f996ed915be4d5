"""What ran, what failed alike, where a message is: each door says the same, and of queues
that the reader may see only."""

import json
import re
import time

import pytest
from harness import cli
from harness import timers as timer_harness
from harness.index import Lines, fill, message_id
from harness.kills import site_at
from harness.queues import running_queue
from harness.waiting import wait_until
from harness.web_server import web_alone

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.config import files
from rq.layout import Root
from rq.message.group import group

pytestmark = pytest.mark.process
MAIL, WAGES = "mail", "wages"
SECRET = "salary-of-anna"
ANN = "ann"
HOSTILE = "<script>alert(1)</script>"
DISK = group("exit", "no room at /var/1")


def history():
    """Two queues with rows of the same words beside each other."""
    mail, wages = Lines(MAIL), Lines(WAGES, time.time() - 1800)
    for number in range(5):
        msg_id = message_id(number)
        mail.accept(msg_id, param1=f"order-{13990 + number}", param2=HOSTILE)
        mail.fail(msg_id, text=f"no room at /var/{number}")
    mail.accept(message_id(12), param1="plum", by="bob")
    mail.run(message_id(12), ran=3.0)
    mail.accept(message_id(10), param1="order-1", key="root\ttimer/nightly/1700000000")
    mail.run(message_id(10), ran=7200.0)
    mail.accept(message_id(11), param1="pear", by=f"token:{ANN}")
    for number in range(20, 23):
        wages.accept(message_id(number), param1=f"order-13992 {SECRET}")
        wages.fail(message_id(number), text=f"no room at /home/{number}")
    wages.accept(message_id(30), param1=SECRET)
    wages.run(message_id(30), ran=9000.0, text=SECRET)
    wages.accept(message_id(31), param1=SECRET, by=f"token:{ANN}")
    return mail, wages


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    files.make_root(Root(path))
    for name in (MAIL, WAGES):
        queue = Root(path).queue(name)
        queue.path.mkdir(parents=True)
        queue.config.write_text(json.dumps({"name": name, "script": "/bin/true"}))
    with web_alone(path) as web:
        web.root = Root(path)
        fill(web.root, *history())
        yield web


@pytest.fixture(scope="module")
def viewer(web):
    """The header of one who may look at one queue only."""
    return bearer(web.root, "vic", Role.VIEWER, queues=(MAIL,))


@pytest.fixture(scope="module")
def sender(web):
    """The header of one who sees what it has sent to one queue."""
    return bearer(web.root, ANN, Role.SENDER, queues=(MAIL,))


def bearer(root, name, role, queues):
    secret = tokens.new_secret()
    token = Token(
        name=name,
        sha256=tokens.digest_of(secret),
        role=role,
        queues=queues,
        created=time.time(),
        created_by="ann",
    )
    tokens.create(root, token)
    return {"Authorization": f"Bearer {secret}"}


DOORS = {
    "runs": ("/runs?since=2d", "/api/v1/runs?since=2d", ["runs", "--since", "2d"]),
    "failures": ("/failures", "/api/v1/failures", ["failures"]),
    "search": (
        "/search?words=order-13992",
        "/api/v1/search?words=order-13992",
        ["find", "order-13992"],
    ),
}
SENT = {
    "by": ("/search?by=bob", "/api/v1/search?by=bob", ["find", "--by", "bob"], 1),
    "both": (
        "/search?words=plum&by=bob",
        "/api/v1/search?words=plum&by=bob",
        ["find", "plum", "--by", "bob"],
        1,
    ),
    "other": (
        "/search?words=pear&by=bob",
        "/api/v1/search?words=pear&by=bob",
        ["find", "pear", "--by", "bob"],
        0,
    ),
}


@pytest.mark.parametrize("case", SENT)
def test_what_a_user_has_sent_is_found_with_and_without_words(web, case):
    page, api, words, count = SENT[case]
    of_page = web.get(page.replace("/search", "/search.json")).json["answer"]
    said = cli.rq(*words, "--json", root=web.root.path).stdout
    for answer in (web.get(api).json, of_page, json.loads(said)):
        assert [row["by"] for row in answer["messages"]] == ["bob"] * count
        assert answer["count"] == count
    assert "sent by bob" in web.page(page)
    said = cli.rq(*words, root=web.root.path).stdout
    assert ("plum" in said) == (count == 1)


def test_without_words_and_without_a_sender_nothing_is_meant(web):
    answer = web.get("/api/v1/search?words=%20")
    assert (answer.status, answer.json["kind"]) == (422, "bad_input")
    assert cli.rq("find", root=web.root.path).returncode == 2


@pytest.mark.parametrize("asked", ["", "?by=bob", "?words=plum", "?words=order-13992"])
def test_a_sender_finds_what_it_has_sent_and_nothing_else(web, sender, asked):
    answer = web.get(f"/api/v1/search{asked}", **sender)
    assert answer.status == 200, answer.text
    ids = [row["msg_id"] for row in answer.json["messages"]]
    assert ids == ([] if "words" in asked else [message_id(11)])
    assert answer.json["count"] == len(ids)
    assert SECRET not in answer.text


@pytest.mark.parametrize("door", DOORS)
def test_page_api_and_command_give_the_same_answer(web, door):
    page, api, words = DOORS[door]
    of_api = web.get(api).json
    twin = page.replace(f"/{door}", f"/{door}.json")
    of_page = web.get(twin).json["answer"]
    of_cli = json.loads(cli.rq(*words, "--json", root=web.root.path).stdout)
    for answer in (of_api, of_page, of_cli):
        answer.pop("index")
        answer.pop("since", None)
        assert answer.pop("misses", []) == []
    assert of_api == of_page == of_cli
    assert HOSTILE not in web.get(page, Accept="text/html").text


def test_what_ran_begins_with_its_sums(web):
    shown = web.page("/runs?since=2d")
    assert "11 runs, 8 failed, slowest 2 h 30 min" in shown
    assert "12 runs" not in shown
    said = cli.rq("runs", "--since", "2d", root=web.root.path).stdout
    assert said.startswith("11 runs, 8 failed, slowest 2 h 30 min\n")
    assert shown.count("<path class=") >= 10  # a stripe a run
    few = web.page("/runs?since=2d&failed=1&queue=wages&sort=ran")
    assert "3 runs, 3 failed" in few
    assert 'aria-sort="ascending"' in few
    timed = web.page("/runs?since=2d&timer=nightly")
    assert "1 run, 0 failed, slowest 2 h" in timed
    assert "timer:nightly" in timed
    of_bob = web.page("/runs?since=2d&by=bob")
    assert "1 run, 0 failed, slowest 3.0 s" in of_bob
    assert 'data-label="sent by">bob</td>' in of_bob
    said = cli.rq("runs", "--since", "2d", "--by", "bob", root=web.root.path).stdout
    assert said.startswith("1 run, 0 failed, slowest 3.0 s\n")
    assert " bob" in said.splitlines()[-1]


@pytest.mark.parametrize("door", DOORS)
def test_a_viewer_gets_rows_counts_groups_hits_and_sums_of_his_queues_only(
    web, viewer, door
):
    page, api, _ = DOORS[door]
    for path in (page, api, page.replace(f"/{door}", f"/{door}.json")):
        answer = web.get(path, Accept="text/html" if path == page else "*/*", **viewer)
        assert answer.status == 200, answer
        for word in (WAGES, SECRET, "9000", "2 h 30", "/home/"):
            assert word not in answer.text, (path, word)
    told = web.get(api, **viewer).json
    if door == "runs":
        sums = told["sums"]
        assert (sums["runs"], sums["failed"], sums["slowest"]["ran"]) == (7, 5, 7200.0)
    elif door == "failures":
        [alike] = told["failures"]
        assert (alike["count"], alike["queues"]) == (5, {MAIL: 5})
        assert (told["messages"], sum(alike["trend"])) == (5, 5)
    else:
        assert (told["count"], len(told["messages"])) == (1, 1)


@pytest.mark.parametrize("path", ["runs?since=2d&", "failures?", "search?words=order&"])
def test_a_queue_that_a_viewer_may_not_see_is_none(web, viewer, path):
    assert web.get(f"/api/v1/{path}queue={WAGES}", **viewer).status == 404
    shown = web.get(f"/{path}queue={WAGES}", Accept="text/html", **viewer).text
    assert "there is no queue" in shown
    assert SECRET not in shown


def test_a_viewer_changes_nothing_by_group_and_may_not_know_of_others(web, viewer):
    place = f"/failures/{DISK}"
    assert "5 messages" in re.sub("<[^>]*>", "", web.page(place, **viewer))
    assert 'name="action"' not in web.page(place, **viewer)
    fields = {"action": "delete", "before": str(time.time())}
    assert web.post(place, fields, **viewer).status == 403
    assert web.get("/failures/exit-0000000000", Accept="text/html").status == 404


def test_the_overview_looks_for_words_that_are_no_queue(web):
    answer = web.ask("GET", "/?find=order-13992", Accept="text/html")
    assert (answer.status, answer.headers["location"]) == (
        303,
        "/search?words=order-13992",
    )
    assert web.ask("GET", "/?find=mai", Accept="text/html").status == 200


def test_all_that_match_lead_to_the_bulk_page_with_the_words(web):
    shown = web.page("/search?words=order+room")
    assert f"/q/{MAIL}/bulk?state=err&find=order%20room" in shown


def test_a_move_that_one_queue_forbids_begins_in_none(tmp_path):
    with running_queue(tmp_path, name=MAIL) as mail:
        mail.root.queue("webhook").path.mkdir()
        (mail.root.queue("webhook").config).write_text('{"script": "/bin/true"}')
        with web_alone(tmp_path) as web:
            kinds = [Lines(name) for name in (MAIL, "webhook")]
            for number, lines in enumerate(kinds):
                lines.accept(message_id(number))
                lines.fail(message_id(number), text="no room at /var/1")
            fill(mail.root, *kinds)
            form = {"action": "move", "to": WAGES, "before": f"{time.time()}"}
            oscar = bearer(mail.root, "oscar", Role.OPERATOR, queues=("*",))
            shown = web.get("/failures.json", **oscar).json
            assert list(shown["answer"]["failures"][0]["queues"]) == [MAIL, "webhook"]
            mail.root.queue(WAGES).path.mkdir()
            (mail.root.queue(WAGES).config).write_text('{"script": "/bin/true"}')
            answer = web.post(f"/failures/{DISK}", form, **oscar)
            assert (answer.status, "an admin may move" in answer.text) == (403, True)
        assert mail.ok("list_bulks") == []


def test_new_is_what_failed_since_the_reader_looked(web):
    assert "badge err" not in web.page("/failures")
    web.post("/failures", {"_method": "looked", "back": "/failures"})
    assert "you looked last at" in web.page("/failures")
    kept = json.loads((web.root.config_dir / "seen").read_text())["failures"]
    [reader] = kept
    old = {"failures": {reader: time.time() - 7 * 86400}}
    (web.root.config_dir / "seen").write_text(json.dumps(old))
    assert '<span class="badge err">new</span>' in web.page("/failures")
    (web.root.config_dir / "seen").write_text("[")
    assert "you looked last at" not in web.page("/failures")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("runs?since=soon", "not a time that is past"),
        ("runs?sort=colour", "sort is 'colour'"),
        ("search?words=ab", "too short"),
        ("search?words=order&state=gone", "state is 'gone'"),
    ],
)
def test_what_is_wrong_with_a_question_is_said_in_place_and_by_the_api(
    web, query, said
):
    assert said in web.page(f"/{query}")
    answer = web.get(f"/api/v1/{query}")
    assert (answer.status, said in answer.text) == (422, True)
    assert web.get("/api/v1/runs?colour=blue").status == 422


def test_while_the_index_is_built_it_is_said_how_far_it_is(tmp_path):
    root = Root(tmp_path)
    files.make_root(root)
    with web_alone(tmp_path) as web:
        for door, (page, api, words) in DOORS.items():
            assert "not there yet" in web.page(page), door
            assert web.get(api).status == 503
            done = cli.rq(*words, root=tmp_path)
            assert (done.returncode, "not there yet" in done.stderr) == (6, True)
        fill(root, *history(), is_built=False)
        for door, (page, api, _) in DOORS.items():
            assert "the index is being built: as of" in web.page(page), door
            assert web.get(api).json["index"]["is_building"] is True
    with web_alone(tmp_path, index=False) as web:
        assert "the index is off" in web.page("/runs")
        assert '"/runs"' not in web.page("/")


def due_long_ago(site):
    """Let a timer's fire be missed: its queue's earlier message runs still."""
    saved = {**timer_harness.past(site), "last": time.time() - 90000}
    site.root.timers_state.write_text(json.dumps({"timers": {"daily": saved}}))


def missed_of(answer):
    return [(row["timer"], row["queue"], row["count"]) for row in answer["misses"]]


def test_a_missed_fire_is_a_row_for_who_may_see_its_queue(tmp_path):
    with site_at(tmp_path / "root") as site:
        site.queue("q").start()
        site.root.timers.mkdir()
        site.act("hold", "hold")
        timer_harness.write(site, param1="hold", overlap="skip")
        with timer_harness.timers(site):
            wait_until(lambda: timer_harness.sent(site) == 1, 60)
            wait_until(lambda: timer_harness.past(site).get("result"), 60)
        due_long_ago(site)
        fill(site.root)
        with timer_harness.timers(site), web_alone(site.root.path) as web:
            api = "/api/v1/runs?since=3d"
            wait_until(lambda: web.get(api).json["misses"], 60)
            answer = web.get(api).json
            assert (missed_of(answer), answer["sums"]["missed"]) == (
                [("daily", "q", 1)],
                1,
            )
            shown = web.page("/runs?since=3d")
            assert "0 runs, 0 failed, 1 missed" in shown
            assert "1 fire without a message" in shown
            said = cli.rq("runs", "--since", "3d", root=site.root.path).stdout
            assert "missed" in said.splitlines()[2]
            for query, number in (("timer=daily", 1), ("timer=x", 0), ("failed=1", 0)):
                answer = web.get(f"{api}&{query}").json
                assert (len(answer["misses"]), answer["sums"]["missed"]) == (
                    number,
                ) * 2
            viewer = bearer(site.root, "vic", Role.VIEWER, queues=("other-*",))
            answer = web.get(api, **viewer).json
            assert (answer["misses"], answer["sums"]["missed"]) == ([], 0)
        site.go()
