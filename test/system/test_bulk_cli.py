"""Many messages changed by one command, as an operator sees it."""

import json
import time

import pytest
from harness.cli import BUNDLED, define, rq, running
from harness.queues import short
from harness.sockets import old_ask
from harness.waiting import wait_until

from rq.layout import Root

pytestmark = [pytest.mark.system, pytest.mark.long]

WORK = """#!/bin/sh
[ -e "$RQ_ROOT/good" ] || { echo "err the $RQ_PARAM1 is gone" >&3; exit 0; }
echo "done fine" >&3
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("bulk") / "root"
    path.mkdir()
    define(path, "work", WORK, num_workers=4)
    define(path, "later", WORK, num_workers=4)
    with running(path, without=BUNDLED):
        yield path


@pytest.fixture
def failed(root):
    """Messages that have failed: nine of a disk, three of a net; none is left of those
    that came before."""
    (root / "good").unlink(missing_ok=True)
    for state in ("err", "dismissed"):
        asked = {"action": "delete", "filter": {"state": state}}
        assert at_queue(root, "work", "bulk", asked)[0] == "ok"
        rows = {"state": state, "limit": 1}
        wait_until(lambda rows=rows: at_queue(root, "work", "list", rows) == ["ok", []])
    ids = sent(root, "work", *["disk"] * 9, *["net"] * 3)
    wait_until(lambda: counts(root)["err"] == 12)
    return ids


def at_queue(root, name, command, arg=b""):
    return old_ask(Root(root).queue(name).socket, command, arg)


def sent(root, name, *params, **fields):
    """Send a message for each param; return their ids."""
    wanted = [{"dest": name, "param1": param, **fields} for param in params]
    replies = [at_queue(root, name, "create_message", fields) for fields in wanted]
    return [short(full_id) for _, full_id in replies]


def ok(root, *words):
    done = rq(*words, root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counts(root):
    return at_queue(root, "work", "detail")[1]["counts"]


def test_all_that_failed_run_again_by_one_command(root, failed):
    (root / "good").touch()
    before = counts(root)["done"]
    said = ok(root, "retry", "--queue", "work", "--state", "err", "--yes")
    assert said == "work: 12 messages will run again\n"
    ok(root, "wait", *failed)
    assert counts(root)["done"] == before + 12
    row = ok(root, "bulk", "ls", "work").splitlines()[1]
    assert row.split()[1:5] == ["retry", "done", "12", "12"]


def test_a_dry_run_shows_ten_and_changes_nothing(root, failed):
    said = ok(root, "retry", "--queue", "work", "--dry-run").splitlines()
    assert said[0] == "work: 12 messages in err would match"
    shown = [line.strip().rpartition("/")[2] for line in said[1:11]]
    assert set(shown) < set(failed)
    assert said[11:] == ["  and 2 more"]
    assert counts(root)["err"] == 12


def test_options_make_them_fewer(root, failed):
    for words, number in (
        (["--text", "net is"], 3),
        (["--param1", "disk"], 9),
        (["--older", "1h"], 0),
        (["--cause", "crash"], 0),
    ):
        said = ok(root, "ack", "--queue", "work", *words, "--dry-run")
        assert said.startswith(f"work: {number} messages in err would match"), words


LISTED = (
    (["--text", "NET is"], 3),
    (["--cause", "said_err"], 12),
    (["--cause", "crash"], 0),
    (["--since", "1h"], 12),
    (["--since", "2020-01-01T00:00"], 12),
    (["--since", "+1h"], 0),
    (["--text", "disk", "--since", "1h"], 9),
)


def listed(root, *words):
    return json.loads(ok(root, "ls", "work", "--state", "err", "--json", *words))


def test_a_list_is_of_what_is_meant(root, failed):
    for words, number in LISTED:
        assert len(listed(root, *words)) == number, words
    newest = listed(root, "--text", "disk", "--limit", "2")
    assert [row["msg_id"] for row in newest] == failed[8:6:-1]
    said = rq("ls", "work", "--state", "err", "--text", "moon", root=root).stderr
    assert "no message in err of queue work that is meant" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cause", "luck"], "no cause is 'luck'"),
        (["--since", "soon"], "not a time that is past: 'soon'; say 2h, 18:00"),
    ],
)
def test_a_list_of_what_cannot_be_is_refused(root, words, said):
    done = rq("ls", "work", *words, root=root)
    assert done.returncode == 2
    assert said in done.stderr


def test_it_is_said_why_the_messages_of_a_queue_wait(root):
    ok(root, "queue", "pause", "later", "--why", "the disk is new")
    try:
        sent(root, "later", "a", "b")
        first, reason = ok(root, "why", "later").splitlines()
        assert first == "later: 2 messages wait"
        assert reason.startswith("  2: ")
        assert "the disk is new" in reason
        [answer] = json.loads(ok(root, "why", "later", "--json"))
        assert [(r["reason"], r["messages"]) for r in answer["reasons"]] == [
            ("paused", 2)
        ]
    finally:
        ok(root, "queue", "resume", "later")
    wait_until(lambda: ok(root, "why", "later") == "later: no message waits\n")


def test_what_failed_alike_in_all_queues_is_changed_by_one_command(root, failed):
    sent(root, "later", "disk")
    alike = {"state": "err", "filter": {"text": "disk"}}
    wait_until(lambda: len(at_queue(root, "later", "list", alike)[1]) == 1)
    count = {"dry_run": True, "groups": True, "filter": {"state": "err"}}
    groups = at_queue(root, "work", "bulk", count)[1]["groups"]
    [disk] = [row["group"] for row in groups if "disk" in row["wording"]]
    said = ok(root, "ack", "--group", disk, "--dry-run").splitlines()
    assert said[0] == "10 messages in err of 2 queues would match"
    assert said[1:] == ["  later: 1", "  work: 9"]
    done = rq("ack", "--group", disk, root=root)
    assert done.returncode == 2
    assert "say --yes" in done.stderr
    assert counts(root)["err"] == 12
    said = ok(root, "ack", "--group", disk, "--yes").splitlines()
    assert said[-2:] == [
        "later: 1 message acknowledged",
        "work: 9 messages acknowledged",
    ]
    assert counts(root)["err"] == 3
    said = ok(root, "ack", "--group", disk, "--yes")
    assert said == "0 messages in err of 0 queues would match\n"


def test_without_a_terminal_it_wants_yes(root, failed):
    done = rq("delete", "--queue", "work", "--state", "err", root=root)
    assert done.returncode == 2
    assert "Delete 12 messages for good" in done.stderr
    assert "say --yes" in done.stderr
    assert counts(root)["err"] == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["retry"], "say which: ID..., --queue QUEUE, or --group GROUP of all queues"),
        (
            ["retry", "x", "--queue", "work"],
            "say which: ID..., --queue QUEUE, or --group GROUP of all queues",
        ),
        (["delete", "--queue", "work"], "say --state STATE, too"),
        (["ack", "--all", "work", "--queue", "work"], "say which"),
        (["cancel", "--batch", "--queue", "work"], "say which: --batch ID..."),
        (["retry", "--queue", "work", "--state", "done", "--yes"], "retry is for"),
        (["retry", "--queue", "work", "--older", "soon"], "not a duration"),
        (
            ["hold", "--why", "disk swap"],
            "say which: ID..., --queue QUEUE, or --group GROUP of all queues",
        ),
        (
            ["release", "x", "--queue", "work"],
            "say which: ID..., --queue QUEUE, or --group GROUP of all queues",
        ),
        (["hold", "--queue", "work", "--state", "err", "-y"], "hold is for messages"),
        (["release", "--queue", "work", "--state", "run", "-y"], "release is for"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(root, words, said):
    done = rq(*words, root=root)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_one_that_has_ended_cannot_be_cancelled(root, failed):
    ok(root, "ack", "--queue", "work", "--yes")
    [first, *_] = json.loads(ok(root, "bulk", "ls", "work", "--json"))
    done = rq("bulk", "cancel", "work", first["bulk"], root=root)
    assert done.returncode == 4
    assert "is done already" in done.stderr
    assert rq("bulk", "cancel", "work", "x", root=root).returncode == 3


def test_all_are_acknowledged_and_that_is_taken_back(root, failed):
    assert ok(root, "ack", "--all", "work") == "work: 12 messages acknowledged\n"
    assert counts(root)["err"] == 0
    said = ok(root, "unack", failed[0])
    assert said == f"work/{failed[0]} needs a person again\n"
    done = rq("unack", failed[0], root=root)
    assert (done.returncode, "is not acknowledged" in done.stderr) == (4, True)
    ok(root, "unack", "--queue", "work", "--yes")
    assert counts(root)["err"] == 12


def test_messages_move_to_another_queue_and_get_another_time(root, failed):
    said = ok(root, "move", failed[0], "--to", "later")
    assert said == f"work/{failed[0]} is moved to later\n"
    said = ok(root, "move", "--to", "later", "--queue", "work", "--state", "err", "-y")
    assert said == "work: 11 messages moved\n"
    ok(root, "wait", *failed)
    (root / "good").touch()
    late = ok(root, "send", "later", "--id-only", "--due", "1d").strip()
    said = ok(root, "priority", "--to", "7", f"later/{late}")
    assert said == f"later/{late} has priority 7\n"
    ok(root, "priority", "--to", "8", "--queue", "later", "--yes")
    assert json.loads(ok(root, "show", late, "--json"))["priority"] == 8
    said = ok(root, "due", "--at", "2d", "--queue", "later", "--yes")
    assert "given another time" in said
    assert "is due at" in ok(root, "due", late, "--at", "+0")
    ok(root, "wait", late)


def waiting(root, *params):
    """Send messages to `later` that are due tomorrow, and would succeed; return ids."""
    (root / "good").touch()
    return sent(root, "later", *params, due=time.time() + 86400)


def shown(root, msg_id):
    return at_queue(root, "later", "get_message", {"msg_id": msg_id})[1]


def test_all_that_match_are_held_until_they_are_released(root):
    *two, other = ids = waiting(root, "disk", "disk", "net")
    match = ("--queue", "later", "--param1", "disk")
    said = ok(root, "hold", *match, "--dry-run").splitlines()
    assert said[0] == "later: 2 messages in que would match"
    asked = rq("hold", *match, root=root)
    assert (asked.returncode, "say --yes" in asked.stderr) == (2, True)
    assert "Hold 2 messages until they are released?" in asked.stderr
    assert not any("held" in shown(root, msg_id) for msg_id in ids)
    said = ok(root, "hold", *match, "--why", "disk swap", "--yes")
    assert said == "later: 2 messages held\n"
    assert [shown(root, msg_id)["held"]["why"] for msg_id in two] == ["disk swap"] * 2
    ok(root, "due", "--at", "+0", "--queue", "later", "--yes")
    ok(root, "wait", other)
    assert [shown(root, msg_id)["state"] for msg_id in two] == ["que", "que"]
    said = ok(root, "release", "--queue", "later", "--yes")
    assert said == "later: 2 messages released\n"
    ok(root, "wait", *two)


def test_a_release_of_many_is_of_those_that_are_held(root):
    one, other = waiting(root, "disk", "net")
    assert ok(root, "hold", one) == f"later/{one} is held\n"
    done = rq("release", "--queue", "later", "-y", root=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "later: 1 message released\n"
    assert "held" not in shown(root, one)
    ok(root, "delete", one, other, "--yes")


def test_one_message_is_held_with_a_reason_and_released(root):
    [msg_id] = waiting(root, "disk")
    said = ok(root, "hold", msg_id, "--why", "disk swap")
    assert said == f"later/{msg_id} is held\n"
    assert ok(root, "hold", msg_id) == f"later/{msg_id} is held already\n"
    held = shown(root, msg_id)["held"]
    assert (held["why"], bool(held["by"])) == ("disk swap", True)
    assert ": disk swap" in ok(root, "why", msg_id)
    done = rq("run", msg_id, root=root)
    assert (done.returncode, "release it first" in done.stderr) == (4, True)
    done = rq("hold", msg_id, "--why", "x" * 501, root=root)
    assert (done.returncode, "at most 500" in done.stderr) == (2, True)
    assert ok(root, "release", msg_id) == f"later/{msg_id} is released\n"
    assert ok(root, "release", msg_id) == f"later/{msg_id} is not held\n"
    ok(root, "run", msg_id)
    ok(root, "wait", msg_id)
    done = rq("hold", msg_id, root=root)
    assert (done.returncode, "is for messages in que" in done.stderr) == (4, True)


def test_where_and_when_have_to_be_said(root, failed):
    for words, said in (
        (["move", "--queue", "work", "--state", "err", "--yes"], "--to"),
        (["due", "--queue", "work", "--at", "soon", "--yes"], "not a time"),
        (["move", "--to", "work", "--queue", "work", "--state", "err", "-y"], "say an"),
    ):
        done = rq(*words, root=root)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert counts(root)["err"] == 12


def test_a_message_is_edited_and_sent_again(root, failed, monkeypatch):
    said = ok(root, "edit", failed[0], "--param1", "paper")
    assert said.startswith(f"work/{failed[0]} is sent again as ")
    monkeypatch.setenv("EDITOR", "sed -i s/disk/tape/")
    monkeypatch.delenv("VISUAL", raising=False)
    ok(root, "edit", failed[1])
    monkeypatch.setenv("EDITOR", "true")
    assert "nothing is sent" in ok(root, "edit", failed[2])
    monkeypatch.setenv("EDITOR", "false")
    assert rq("edit", failed[2], root=root).returncode == 2
    assert counts(root)["err"] >= 10
