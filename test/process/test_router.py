"""`rq_router` sends messages where its rules say, and tells before what it would do."""

import json

import pytest
from harness.checkout import CHECKOUT
from harness.cli import rq
from harness.limits import no_descriptors
from harness.queues import RunningQueue
from harness.waiting import wait_until

from rq import config
from rq.builtin.router import __main__ as program
from rq.builtin.router import rules
from rq.errors import CannotRead
from rq.scripts.pipe import Verb

pytestmark = pytest.mark.process

ROUTER = CHECKOUT / "rq/bundled/rq_router/run"
RULES = [
    {
        "name": "farm",
        "src": "web",
        "action": "relay",
        "route": ["a", ["b"]],
        "delay": 60,
    },
    {"name": "one", "dest": "^one$", "action": "balance", "route": ["a"], "log": True},
    {"name": "drop", "param1": "drop", "action": "done"},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A router, and a relay that only takes what comes."""
    root = tmp_path_factory.mktemp("router")
    router = RunningQueue(root, "rq_router", ROUTER, nice=0)
    relay = RunningQueue(root, "relay", "#!/bin/sh\necho done >&3\n", nice=0)
    try:
        router.start()
        relay.start()
        yield router, relay
        relay.close()
        router.close()
    finally:
        router.kill()
        relay.kill()


@pytest.fixture(autouse=True)
def ruled(site):
    write(site[0], RULES)


def write(router, found):
    router.root.router.write_text(json.dumps({"rules": found}))


def relayed(relay, known=()):
    # In the order in which a message goes through them: none is missed that moves.
    found = [
        one
        for state in ("que", "run", "done")
        for one in relay.ok("list", {"state": state})
    ]
    dests = {i["msg_id"]: relay.get(i["msg_id"]) for i in found}
    return [one for i, one in dests.items() if i not in known]


def known(relay):
    return [one["msg_id"] for one in relayed(relay)]


def test_a_copy_goes_to_each_host_when_it_is_due(site):
    router, relay = site
    before = known(relay)
    ended = router.run(dest="x", src="web1", param2="kept")
    assert ended["state"] == "done"
    assert ended["status"].startswith("done - relay by rule farm: http://a:3333/q/x")
    copies = relayed(relay, before)
    assert {one["dest"] for one in copies} == {
        "http://a:3333/q/x",
        "http://b:3333/q/x",
    }
    assert {one["param2"] for one in copies} == {"kept"}
    assert all(one["due"] > ended["due"] + 50 for one in copies)
    for one in copies:
        relay.ok("delete_message", {"msg_id": one["msg_id"]})


def test_one_of_several_hosts_and_a_line_in_the_log(site):
    router, relay = site
    before = known(relay)
    ended = router.run(dest="one", src="me")
    assert [one["dest"] for one in relayed(relay, before)] == ["http://a:3333/q/one"]
    line = (router.root.log / "rq_router.log").read_text().splitlines()[-1]
    assert line.split(" - ")[2:] == [
        "one",
        "balance",
        f"http://127.0.0.1:3333/q/rq_router/{ended['msg_id']}",
        "me",
    ]


def test_a_rule_may_end_a_message(site):
    router, _ = site
    assert router.run(dest="z", param1="drop")["status"] == "done - done by rule drop"
    assert router.run(dest="z")["status"] == "err - err by rule default"


def test_rules_that_are_bad_fail_the_message_with_the_reason(site):
    router, _ = site
    write(router, [{"name": "x", "dest": "(", "action": "done"}])
    ended = router.run(dest="z")
    assert ended["state"] == "err"
    assert "rule 1 (x): dest: '(' is no pattern" in ended["status"]


def test_an_attempt_after_a_failure_does_not_send_again_what_was_sent(site):
    router, relay = site
    before = known(relay)
    first = {"name": "r", "dest": "^y$", "action": "relay"}
    write(router, [{**first, "route": ["http://a:1/q/y", "http://b:1/q/y"]}])
    flag = router.root.down("relay")
    flag.touch()
    ended = router.run(dest="y")
    assert ended["status"] == "err - http://a:1/q/y: dup failed - status: DOWN"
    flag.unlink()
    relay.ask("wake")
    again = router.folder(ended["msg_id"]) / "job/sent"
    again.write_text("r 0\n")
    router.ok("retry_message", {"msg_id": ended["msg_id"]})
    wait_until(lambda: router.state(ended["msg_id"]) == "done")
    assert [one["dest"] for one in relayed(relay, before)] == ["http://b:1/q/y"]


def test_what_cannot_be_read_now_is_looked_at_later(tmp_path, monkeypatch):
    (tmp_path / "ID/job").mkdir(parents=True)
    (tmp_path / "ID/msg").write_text('{"dest": "y"}')
    monkeypatch.chdir(tmp_path / "ID/job")
    monkeypatch.setenv("RQ_ROOT", str(tmp_path))
    monkeypatch.setattr(program.signal, "alarm", lambda seconds: None)
    said = []
    monkeypatch.setattr(program.script, "say", lambda *words: said.append(words))
    with no_descriptors():
        assert program.main() == 0
    later = Verb.RESEND, "60-its file msg cannot be read: Too many open files"
    assert said == [later]

    def lacks(path):
        raise CannotRead("router.json cannot be read: Too many open files")

    monkeypatch.setattr(config, "read_json", lacks)
    assert program.main() == 0
    later = Verb.RESEND, "60-router.json cannot be read: Too many open files"
    assert said[1:] == [later]


# ---- the command line, and what the web asks


def test_rules_are_verified_as_the_ancestor_said_it(site, tmp_path):
    root = site[0].root.path
    good = rq("verify_rules", root=root)
    assert (good.returncode, good.stdout) == (0, "ok\n")
    bad = tmp_path / "bad.json"
    bad.write_text('{"rules": [{"action": "done"}]}')
    told = rq("verify_rules", "--path", str(bad), root=root)
    assert (told.returncode, told.stdout) == (1, "fail bad router rules file\n")
    more = rq("verify_rules", "--path", str(bad), "--verbose", root=root)
    assert f"{bad}: rule 1: it matches nothing" in more.stdout
    shown = rq("verify_rules", "--verbose", root=root).stdout
    assert json.loads(shown.removeprefix("ok\n"))["rules"][0]["name"] == "farm"


def test_the_ancestors_rules_are_printed_as_ours(site, tmp_path):
    old = tmp_path / "rules.rb"
    old.write_text("rule 'a'\nsrc /x/\naction :relay\nroute 'h'\n")
    root = site[0].root.path
    assert rq("verify_rules", "--path", str(old), root=root).stdout == "ok\n"
    printed = rq("router", "import", str(old), root=root)
    assert printed.returncode == 0
    new = tmp_path / "router.json"
    new.write_text(printed.stdout)
    assert rq("verify_rules", "--path", str(new), root=root).returncode == 0


def test_a_message_is_tried_without_being_sent(site, tmp_path):
    router, relay = site
    before = len(known(relay))
    message = tmp_path / "message.json"
    message.write_text(json.dumps({"dest": "x", "src": "web"}))
    told = rq("router", "try", str(message), "--json", root=router.root.path)
    assert json.loads(told.stdout) == {
        "rule": "farm",
        "action": "relay",
        "log": False,
        "delay": 60,
        "destinations": ["http://a:3333/q/x", "http://b:3333/q/x"],
    }
    text = rq("router", "try", str(message), root=router.root.path).stdout
    assert "to      http://a:3333/q/x\n" in text
    assert len(known(relay)) == before


def test_the_file_is_the_switch_of_the_webs_routes(site):
    root = site[0].root
    assert rules.addressed(root, "x") == "rq_router"
    for name in ("relay", "cleaner", "webhook", "rq_router"):
        assert rules.addressed(root, name) == name
    root.router.unlink()
    assert rules.addressed(root, "x") == "x"
