"""The commands of the control socket: what each answers, to the letter."""

import json
import os
import pwd
import re
import subprocess
import sys
import time

import pytest
from harness.queues import ask_at_once, running_queue, short
from harness.waiting import wait_until

from rq.rpc import client
from rq.rpc.lines.commands import COMMANDS

pytestmark = pytest.mark.process
WIDE = "\uff12\uff10\uff12\uff10" + "0101.0000.00.000.1"  # digits, but not of ASCII
NOBODY = "20200101.0000.00.000.1"
DONE = "echo done fine >&3"
ERR = "echo err by design >&3"
HOLD = "echo run holding >&3; exec sleep 60"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), num_workers=2) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    shared.check()


@pytest.fixture
def paused(queue):
    """The queue, not starting anything."""
    queue.root.pause("t").touch()
    queue.ask("wake")
    yield queue
    for state in ("que", "err"):
        for one in queue.ok("list", {"state": state}):
            queue.ok("delete_message", {"msg_id": one["msg_id"]})
    queue.root.pause("t").unlink()
    queue.ask("wake")


@pytest.fixture
def down(queue):
    queue.root.down("t").touch()
    yield queue
    queue.root.down("t").unlink()


def held(queue):
    """Return a message that runs until it is ended."""
    msg_id = queue.send(param1=HOLD)
    wait_until(lambda: "holding" in queue.get(msg_id)["status"])
    return msg_id


# ---- always answered


def test_questions_about_the_queue_are_answered(queue):
    assert queue.ask("ping") == ["pong"]
    [seconds] = queue.ask("uptime")
    assert isinstance(seconds, int)
    assert queue.ask("status") == ["UP"]
    word, config = queue.ask("config")
    assert word == "ok"
    assert config == {
        "name": "t",
        "script": str(queue.script),
        "num_workers": 2,
        "exec_prefix": "",
        "env_vars": {},
        "coalesce_params": [],
        "blocking_params": [],
        "nice": 0,
    }


def test_an_unknown_command_is_an_error_in_the_ancestors_way(queue):
    for command in ("no_such", "", "PING", "__class__", "\x00", "ping\n"):
        assert queue.ask(command) == ["ERROR"]


def test_a_queue_that_is_down_answers_questions_about_itself_only(down):
    always = {
        "kinds",
        "owes",
        "ping",
        "uptime",
        "config",
        "status",
        "detail",
        "wake",
        "seal",
        "check",
    }
    always |= {"owed", "resolve_owed", "restored", "restore"}
    always |= {"show_txn", "list_txns", "show_bulk", "list_bulks"}
    always |= {"get_ends", "get_states", "ends", "figures"}
    always |= {"lease", "start", "renew", "progress", "log", "file", "finish"}
    always |= {"release", "leases", "notices"}
    assert down.ask("status") == ["DOWN"]
    for command in COMMANDS.keys() - {"shutdown", "mind"}:
        reply = down.ask(command, {"msg_id": NOBODY, "dest": "t"})
        assert (reply == ["fail", "status: DOWN"]) is (command not in always), command


def test_a_paused_queue_does_everything_but_start(paused):
    assert paused.ask("status") == ["PAUSE"]
    msg_id = paused.send(param1=DONE)
    assert "The queue is paused since " in paused.get(msg_id)["story"]["why"]
    assert paused.state(msg_id) == "que"


# ---- making messages


def test_a_message_is_created_and_its_full_id_answered(queue):
    word, full_id = queue.ask("create_message", {"dest": "t", "param1": DONE})
    assert word == "ok"
    shape = r"http://127\.0\.0\.1:3333/q/t/\d{8}\.\d{4}\.\d{2}\.\d{3}\.\d+"
    assert re.fullmatch(shape, full_id)
    assert queue.ended(short(full_id))["state"] == "done"


REFUSED = {
    "no dest": ({}, 'input missing required "dest" parameter'),
    "an empty dest": ({"dest": ""}, 'input missing required "dest" parameter'),
    "a dest of another type": ({"dest": 5}, "dest is not text: 5"),
    "a due of another type": ({"dest": "t", "due": {}}, "due is not epoch seconds"),
    "a due of text": ({"dest": "t", "due": "soon"}, "due is not epoch seconds"),
    "a due that is no number": ({"dest": "t", "due": "nan"}, "due is not epoch sec"),
    "a due without end": ({"dest": "t", "due": 1e99}, "due is not epoch seconds"),
    "a count of text": ({"dest": "t", "count": "7z"}, "count is not a whole number"),
    "a negative count": ({"dest": "t", "max_count": -1}, "max_count is not a whole"),
    "a webhook that is no URL": (
        {"dest": "t", "post_run_webhook": ["ftp://x"]},
        "post_run_webhook is not a list of http URLs",
    ),
    "a webhook of another type": (
        {"dest": "t", "post_run_webhook": 5},
        "post_run_webhook is not a list of http URLs",
    ),
    "too many webhooks": (
        {"dest": "t", "post_run_webhook": "http://h/x " * 21},
        "post_run_webhook has 21 URLs, at most 20 are told",
    ),
    "a NUL in a param": ({"dest": "t", "param1": "a\0b"}, "param1 holds a NUL byte"),
    "a NUL in dest": ({"dest": "a\0b"}, "dest is too long or holds a NUL byte"),
    "a param too large": (
        {"dest": "t", "param2": "x" * 131_072},
        "param2 is 131072 bytes, an environment variable holds 131061",
    ),
    "wide characters too large": (
        {"dest": "t", "param2": "€" * 50_000},
        "param2 is 150000 bytes, an environment variable holds 131061",
    ),
    "too much in all": (
        {"dest": "t", "extra": "x" * 1_100_000},
        "the message is 11",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("command", ["create_message", "prep_message", "single_que"])
def test_a_message_that_cannot_be_one_is_refused_at_the_door(queue, command, what):
    fields, text = REFUSED[what]
    before = queue.ask("num_messages")
    assert queue.refused(command, fields).startswith(text)
    assert queue.ask("num_messages") == before


def test_the_largest_param_that_is_accepted_can_be_run(queue):
    largest = "x" * 131_061
    script = "echo done ${#RQ_PARAM2} ${#RQ_PARAM3} ${#RQ_PARAM4} >&3"
    fields = {"param2": largest, "param3": largest, "param4": largest}
    assert queue.run(param1=script, **fields)["status"] == "done - 131061 131061 131061"


def test_fields_nobody_knows_survive_and_bookkeeping_does_not(queue):
    message = queue.run(
        param1=DONE, invoice={"a": [1, None]}, status="liar", state="done", path="/x",
        msg_id=NOBODY, attempt=9, attachments={"x": 1}, dups=["y"],
    )  # fmt: skip
    assert message["invoice"] == {"a": [1, None]}
    assert message["status"] == "done - fine"
    assert message["msg_id"] != NOBODY
    assert "attachments" not in message
    assert "dups" not in message


def test_numbers_as_text_are_taken_as_the_ancestor_did(paused):
    msg_id = paused.send(due="4000000000", count="3", max_count="7")
    message = paused.get(msg_id)
    assert (message["due"], message["count"], message["max_count"]) == (4e9, 3, 7)


def test_single_que_answers_the_message_that_waits(paused):
    first = paused.ok("single_que", {"dest": "t"})
    assert paused.ok("single_que", {"dest": "t", "param1": "other"}) == first
    second = paused.ok("create_message", {"dest": "t"})
    assert paused.ok("single_que", {"dest": "t"}) == second
    assert paused.ask("num_messages")["que"] == 2


def test_single_que_does_not_see_what_runs(queue):
    running = held(queue)
    full_id = queue.ok("single_que", {"dest": "t", "param1": DONE})
    assert short(full_id) != running
    queue.ended(short(full_id))
    queue.ok("destroy_message", {"msg_id": running})
    queue.ended(running)


# ---- two phases


def test_a_prepared_message_waits_for_its_commit(queue):
    msg_id = short(queue.ok("prep_message", {"dest": "t", "param1": DONE}))
    assert queue.state(msg_id) == "prep"
    assert queue.get(msg_id)["status"] == "prep"
    assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg commited"
    assert queue.ended(msg_id)["state"] == "done"
    assert queue.ok("commit_message", {"msg_id": msg_id}) == "msg already commited"


def test_a_commit_of_nothing_cannot_find_it(queue):
    for msg_id in (NOBODY, f".{NOBODY}"):
        text = queue.refused("commit_message", {"msg_id": msg_id})
        assert text == "cannot find message"


# ---- looking


def test_a_message_that_is_not_there_is_not_found(queue):
    for command in (
        "get_message",
        "get_message_state",
        "get_message_status",
        "delete_message",
        "destroy_message",
        "run_message",
        "set_message",
        "clone_message",
        "delete_attach_message",
        "retry_message",
        "cancel_message",
    ):
        asked = {"msg_id": NOBODY, "attachment_name": "x", "priority": 1}
        assert queue.refused(command, asked) == "msg not found", command


def test_a_message_can_be_looked_at_in_three_ways(queue):
    msg_id = queue.run(param1=DONE)["msg_id"]
    queue.check()  # until then its folder may lie where it was
    date, hour, minute = msg_id[:8], msg_id[9:11], msg_id[11:13]
    path = f"queue/t/done/{date}/{hour}/{minute}/{msg_id}"
    assert queue.ok("get_message_state", {"msg_id": msg_id}) == "done"
    assert queue.ok("get_message_status", {"msg_id": msg_id}) == {
        "path": path,
        "status": "done - fine",
        "state": "done",
    }
    assert queue.get(msg_id)["path"] == path


def test_how_many_messages_ended_is_told_at_once(queue):
    done = queue.run(param1=DONE)["msg_id"]
    ends = queue.ok("get_ends", {"msg_ids": [done, NOBODY]})
    gone = {"state": "gone", "acknowledged": False}
    assert ends[NOBODY] == {**gone, "cause": "", "text": "", "ended": None}
    said = {"state": "done", "cause": "done", "text": "fine"}
    assert {**ends[done], **said} == ends[done]
    assert abs(ends[done]["ended"] - time.time()) < 60
    for wrong in ({}, {"msg_ids": [done] * 101}, {"msg_ids": ["x"]}):
        assert queue.refused("get_ends", wrong)


def test_messages_are_counted_and_listed_by_state(paused):
    before = paused.ask("num_messages")
    prepared = [short(paused.ok("prep_message", {"dest": "t"})) for _ in range(2)]
    waiting = [paused.send(due=n + 4e9, param1=f"n{n}") for n in range(3)]
    now = paused.ask("num_messages")
    assert set(now) == {"prep", "que", "run", "done", "relayed", "err"}
    assert now["prep"] - before["prep"] == 2
    assert now["que"] - before["que"] == 3
    assert set(prepared) <= set(paused.ask("messages", {"state": "prep"}))
    pairs = [[i, n + 4e9] for n, i in enumerate(waiting)]
    assert paused.ask("messages", {"state": "que"}) == pairs[::-1]
    assert paused.ask("messages", {"state": "que", "limit": 2}) == pairs[:0:-1]
    assert len(paused.ask("messages", {"state": "que", "limit": 0})) == 3
    rows = paused.ok("list", {"state": "que", "limit": 2})
    assert [one["param1"] for one in rows] == ["n2", "n1"]
    after = paused.ok("list", {"state": "que", "after": rows[-1]["msg_id"]})
    assert [one["param1"] for one in after] == ["n0"]
    for msg_id in prepared:
        paused.ok("delete_message", {"msg_id": msg_id})


def test_done_messages_are_listed_newest_first_and_filtered_after_the_limit(queue):
    ids = [queue.run(param1=DONE, param2=f"mark{n}")["msg_id"] for n in range(3)]
    assert queue.ask("messages", {"state": "done", "limit": 3}) == ids[::-1]
    wanted = {"state": "done", "limit": 3, "filter": "mark1"}
    assert queue.ask("messages", wanted) == [ids[1]]
    wanted = {"state": "done", "limit": 1, "filter": "mark1"}
    assert queue.ask("messages", wanted) == []


def test_a_list_is_cut_to_what_a_filter_means(queue):
    ids = [queue.run(param1=DONE, param2=f"kind{n % 2}")["msg_id"] for n in range(4)]
    wanted = {"state": "done", "limit": 10, "filter": {"param2": "kind1"}}
    assert [row["msg_id"] for row in queue.ok("list", wanted)] == [ids[3], ids[1]]
    older = {**wanted, "after": ids[3]}
    assert [row["msg_id"] for row in queue.ok("list", older)] == [ids[1]]
    assert queue.refused("list", {**wanted, "filter": {"color": "red"}}).startswith(
        "a filter has no field color"
    )
    assert "JSON object" in queue.refused("list", {**wanted, "filter": "kind1"})


def test_a_filter_names_messages(queue):
    queue.ask("ack_errs")
    ids = [queue.run(param1=ERR)["msg_id"] for _ in range(3)]
    wanted = {"state": "err", "filter": {"ids": [ids[2], ids[0], NOBODY]}}
    assert [row["msg_id"] for row in queue.ok("list", wanted)] == [ids[2], ids[0]]
    count = {"dry_run": True, "filter": {"state": "err", "ids": ids[:1]}}
    assert queue.ok("bulk", {**count, "action": "ack"})["ids"] == ids[:1]
    begun = queue.ok("bulk", {**count, "action": "ack", "dry_run": False})
    assert begun["messages"] == 1
    wait_until(lambda: queue.get(ids[0]).get("acknowledged"))
    assert queue.ask("num_messages")["err"] == 2
    for bad in ("x", ["../x"], [5], [NOBODY] * 1001):
        assert queue.refused("list", {"state": "err", "filter": {"ids": bad}})


def test_a_list_says_how_long_an_attempt_ran_and_waited(queue):
    ended = queue.run(param1=DONE)["msg_id"]
    row = queue.ok("list", {"state": "done", "limit": 1})[0]
    assert row["msg_id"] == ended
    assert 0 <= row["run_us"] < 60e6
    assert 0 <= row["wait_us"] < 60e6
    assert abs(row["ended"] - time.time()) < 60
    assert row["cause"] == "done"
    running = queue.send(param1=HOLD)
    queue.until(running, "run")
    row = queue.ok("list", {"state": "run"})[0]
    assert abs(row["started"] - time.time()) < 60
    assert "ended" not in row
    queue.ok("cancel_message", {"msg_id": running})
    queue.until(running, "err")


@pytest.mark.parametrize("state", [None, "", "nowhere", 5, [], "errackk"])
def test_a_state_that_is_none_is_refused(queue, state):
    text = f"invalid or missing 'state' field ({state})"
    assert queue.refused("messages", {"state": state}) == text
    assert queue.refused("list", {"state": state}) == text


@pytest.mark.parametrize("limit", ["x", None, 1.5, [], True])
def test_a_limit_that_is_no_number_is_refused(queue, limit):
    assert "limit" in queue.refused("messages", {"state": "done", "limit": limit})


# ---- errors, seen and sent round again


def test_errors_are_acknowledged_one_by_one_or_all_at_once(queue):
    queue.ask("ack_errs")
    ids = [queue.run(param1=ERR)["msg_id"] for _ in range(3)]
    assert queue.ask("messages", {"state": "err"}) == ids[::-1]
    assert queue.ok("ack_errs", {"msg_id": ids[0]}) == 1
    assert queue.ask("num_messages")["err"] == 2
    assert queue.ok("ack_errs") == 2
    assert queue.ok("ack_errs") == 0
    assert queue.ask("num_messages")["err"] == 0
    dotted = [f".{i}" for i in ids[::-1]]
    assert queue.ask("messages", {"state": "errack"})[:3] == dotted
    queue.check()  # until then its folder may lie where it was
    message = queue.get(dotted[0])
    assert message["path"] == f"queue/t/err/{dotted[0]}"
    assert message["status"] == "err - by design"
    queue.ok("delete_message", {"msg_id": dotted[1]})


def test_an_error_can_be_sent_round_again_with_the_same_id(queue):
    script = f"[ -e again ] && {{ echo done $RQ_COUNT >&3; exit; }}; touch again; {ERR}"
    message = queue.run(param1=script, count=4)
    again = queue.ok("retry_message", {"msg_id": message["msg_id"]})
    assert again == "msg sent round again"
    message = queue.until(message["msg_id"], "done")
    assert message["status"] == "done - 0"
    assert message["result"]["attempt"] == 2
    assert "RQ END" in queue.output(message["msg_id"])


def test_an_error_can_be_sent_round_again_each_time_that_it_fails(queue):
    msg_id = queue.run(param1=ERR)["msg_id"]
    for attempt in (2, 3):
        queue.ok("retry_message", {"msg_id": msg_id})
        wait_until(lambda n=attempt: queue.get(msg_id)["result"]["attempt"] == n)
        assert queue.ended(msg_id)["state"] == "err"


def test_sent_round_again_twice_in_one_turn_it_runs_once(queue):
    # A second search for its old processes would end those of the new attempt.
    script = (
        f"[ -e again ] && {{ sleep 0.2; echo done >&3; exit; }}; touch again; {ERR}"
    )
    msg_id = queue.run(param1=script)["msg_id"]
    asked = ("retry_message", {"msg_id": msg_id})
    replies = ask_at_once(queue.dir.socket, queue.pid, asked, asked)
    sent, refused = (
        ["ok", "msg sent round again"],
        ["fail", "msg is already being retried"],
    )
    assert sorted(replies) == [refused, sent]
    assert queue.until(msg_id, "done")["result"]["attempt"] == 2


def test_an_attempt_that_is_no_number_in_a_status_file_hides_no_message(queue):
    msg_id = queue.run(param1=ERR)["msg_id"]
    (queue.folder(msg_id) / "status").write_text('{"attempt": "many"}')
    assert queue.get(msg_id)["attempt"] == 0
    rows = {row["msg_id"]: row for row in queue.ok("list", {"state": "err"})}
    assert rows[msg_id]["attempt"] == 0
    assert queue.ok("retry_message", {"msg_id": msg_id}) == "msg sent round again"
    assert queue.ended(msg_id)["attempt"] == 1


def test_a_status_file_of_other_types_hides_no_message(queue):
    msg_id = queue.run(param1=ERR)["msg_id"]
    other = {"cause": "said_err", "run_us": "long", "job_status": [], "finished": 1e99}
    (queue.folder(msg_id) / "status").write_text(json.dumps(other))
    message = queue.get(msg_id)
    assert message["result"] == {"cause": "said_err"}
    assert message["story"]["what"] == "It failed in attempt 0 after ?."


@pytest.mark.parametrize("dismissed", [False, True])
def test_a_clone_is_a_new_message_with_the_old_content(queue, dismissed):
    message = queue.run(param1=ERR, param2="two", count=3, zz="kept")
    msg_id = message["msg_id"]
    if dismissed:
        queue.ok("ack_errs", {"msg_id": msg_id})
    clone = queue.ended(short(queue.ok("clone_message", {"msg_id": msg_id})))
    assert clone["msg_id"] != msg_id
    assert clone["cloned_from"] == msg_id
    assert clone["count"] == 0
    for name in ("param2", "zz", "orig_msg_id", "due", "max_count"):
        assert clone[name] == message[name]
    assert clone["result"]["attempt"] == 1


def test_a_copy_without_a_message_is_refused(queue):
    msg_id = queue.run(param1=DONE)["msg_id"]
    reason = queue.refused("take_copy", {"queue": queue.name, "msg_id": msg_id})
    assert reason == "a message is a JSON object"


def test_only_what_has_ended_is_cloned(paused):
    msg_id = short(paused.ok("prep_message", {"dest": "t"}))
    for state in ("prep", "que"):
        text = paused.refused("clone_message", {"msg_id": msg_id})
        assert text == f"cannot clone message in {state} state"
        paused.ok("commit_message", {"msg_id": msg_id})


# ---- ending and removing


@pytest.mark.parametrize("state", ["prep", "que", "done", "err", "errack"])
def test_a_message_that_does_not_run_can_be_deleted(queue, state):
    if state == "prep":
        msg_id = short(queue.ok("prep_message", {"dest": "t"}))
    elif state == "que":
        msg_id = queue.send(due=4e9)
    else:
        msg_id = queue.run(param1=DONE if state == "done" else ERR)["msg_id"]
    if state == "errack":
        queue.ok("ack_errs")
    folder = queue.folder(msg_id)
    assert queue.ok("delete_message", {"msg_id": msg_id}) == "msg deleted"
    assert queue.refused("get_message", {"msg_id": msg_id}) == "msg not found"
    wait_until(lambda: not folder.exists())


def test_a_running_message_is_destroyed_not_deleted(queue):
    msg_id = held(queue)
    text = queue.refused("delete_message", {"msg_id": msg_id})
    assert text == "msg is running: destroy it first"
    text = queue.refused("run_message", {"msg_id": msg_id})
    assert text == "msg already running"
    assert queue.ok("destroy_message", {"msg_id": msg_id}) == "msg destroyed"
    message = queue.ended(msg_id)
    assert message["state"] == "err"
    assert (
        message["status"] == f"err - cancelled by {pwd.getpwuid(os.getuid()).pw_name}"
    )


def test_one_that_does_not_run_is_not_said_to_be_missing(queue):
    """The text is the ancestor's for both; the kind tells them apart."""
    msg_id = queue.send(due=4e9)
    for asked, kind in ((msg_id, "wrong_state"), (NOBODY, "no_such_message")):
        reply = client.ask(queue.dir.socket, "destroy_message", {"msg_id": asked})
        assert reply == ["fail", "msg not found", kind]
    queue.ok("delete_message", {"msg_id": msg_id})


def test_a_running_message_is_cancelled_by_somebody(queue):
    msg_id = held(queue)
    asked = {"msg_id": msg_id, "who": "drew@host"}
    assert queue.ok("cancel_message", asked) == "msg is being cancelled"
    message = queue.ended(msg_id)
    assert message["status"] == "err - cancelled by drew@host"
    assert message["result"]["cause"] == "cancelled"
    text = queue.refused("cancel_message", asked)
    assert text == "msg is not running, it is in err"


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_person_has_ended_is_no_error_to_look_at(queue, clean):
    msg_id = held(queue)
    queue.ok("cancel_message", {"msg_id": msg_id, "who": "drew@host"})
    assert queue.ended(msg_id)["acknowledged"]
    queue.stop() if clean else queue.crash()
    queue.start()
    assert msg_id not in queue.ask("messages", {"state": "err"})
    assert f".{msg_id}" in queue.ask("messages", {"state": "errack"})
    message = queue.get(msg_id)
    assert message["acknowledged"]
    assert message["status"] == "err - cancelled by drew@host"
    assert message["result"]["cause"] == "cancelled"
    assert queue.ask("retry_message", {"msg_id": msg_id})[0] == "ok"
    assert queue.until(msg_id, "run")["attempt"] == 2


@pytest.mark.parametrize("who", [5, "", " ", "a\nb", None, "x" * 5000])
def test_whoever_cancels_cannot_forge_a_line(queue, who):
    msg_id = held(queue)
    queue.ok("cancel_message", {"msg_id": msg_id, "who": who})
    status = queue.ended(msg_id)["status"]
    assert status.startswith("err - cancelled by ")
    assert "\n" not in status
    assert len(status) < 200


def test_a_message_sent_to_the_front_stays_there_over_a_restart(tmp_path):
    with running_queue(tmp_path) as queue:
        queue.root.pause("t").touch()
        queue.ask("wake")
        script = "date +%s.%N > ran; echo done >&3"
        ids = [queue.send(param1=script) for _ in range(3)]
        future = queue.send(param1=script, due=4e9)
        answer = "msg sent to front of run queue"
        assert queue.ok("run_message", {"msg_id": future}) == answer
        queue.restart()
        assert queue.get(future)["due"] < queue.get(ids[0])["due"]
        queue.root.pause("t").unlink()
        queue.ask("wake")
        order = [future, *ids]
        for msg_id in order:
            queue.ended(msg_id)
        times = [float((queue.folder(i) / "job/ran").read_text()) for i in order]
        assert times == sorted(times)
        text = queue.refused("run_message", {"msg_id": future})
        assert text == "msg not in runnable state"


# ---- garbage


GARBAGE = [
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"{}", b'{"msg_id": 5}',
    b'{"msg_id": null}', b'{"msg_id": []}', b'{"msg_id": "*"}', b'{"msg_id": "../../x"}',
    b'{"msg_id": "20200101.0000.00.000.1\\u0000"}', b'{"msg_id": "' + b"9" * 5000 + b'"}',
    b"[" * 3000, b'{"dest": ' + b"[" * 3000, b'{"dest": "t", "x": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"dest": "t", "due": 1e999}', b'{"dest": "t", "due": 1e400, "state": "que"}',
    b'{"message": 5, "queue": "t", "msg_id": "20200101.0000.00.000.1"}',
    b'{"queue": "../t", "msg_id": "20200101.0000.00.000.1"}',
    b'{"dest": "t", "_key": [], "msg_id": 1}', b'{"dest":"t","param1":"\\ud800"}',
]  # fmt: skip
# `mind` makes the asker the parent of the queue, which then ends with its connection.
LEFT_OUT = {"shutdown", "mind"}
HARMLESS = {"kinds", "ping", "figures", "uptime", "config", "status", "detail", "wake", "num_messages",
            "ack_errs", "seal", "check", "flow", "expire", "open_txn", "list_txns", "owed", "restored",
            "leases", "log", "progress", "list_bulks", "notices"}  # fmt: skip


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - LEFT_OUT))
def test_no_argument_whatever_hurts_the_queue(queue, command):
    with client.Connection(queue.dir.socket, timeout=30) as line:
        for arg in GARBAGE:
            reply = line.ask(command, arg)
            if command not in HARMLESS:
                made = reply[0] == "ok" and b'"dest"' in arg
                assert made or reply[0] == "fail", (arg[:99], reply)
            assert "the command failed" not in str(reply), (arg[:99], reply)
    assert queue.alive
    assert queue.ask("ping") == ["pong"]


def test_ids_are_never_paths_nor_patterns(queue):
    (queue.root.path / "outside").mkdir(exist_ok=True)
    for msg_id in (
        "../../outside",
        "*",
        ".",
        "..",
        "/etc",
        "que/../..",
        ".2026",
        "",
        WIDE,
    ):
        for command in ("delete_message", "get_message", "get_message_state"):
            assert "not a message id" in queue.refused(command, {"msg_id": msg_id})
    assert (queue.root.path / "outside").is_dir()


def test_a_missing_id_is_named_as_the_ancestor_did(queue):
    for command in ("get_message", "commit_message", "destroy_message", "run_message"):
        assert queue.refused(command, {}) == "lacking 'msg_id' field"


# ---- the end


def test_shutdown_is_answered_and_ends_cleanly(tmp_path):
    with running_queue(tmp_path) as queue:
        assert queue.ask("shutdown") == ["ok"]
        assert queue.process.wait(30) == 0
        queue.start()


@pytest.mark.slow
def test_a_queue_whose_parent_hangs_up_stops(tmp_path):
    with running_queue(tmp_path) as queue:
        line = client.Connection(queue.dir.socket)
        assert line.ask("mind") == ["ok", queue.pid]
        began = time.monotonic()
        line.close()
        assert queue.process.wait(30) == 0
        assert time.monotonic() - began > 1.5  # in which another could adopt it
        queue.start()


def test_a_queue_has_one_owner(queue):
    ready, theirs = os.pipe()
    code = (
        "import sys; from pathlib import Path; from rq.queues.process import main; "
        f"sys.exit(main(Path({str(queue.root.path)!r}), 't', ready_fd={theirs}, "
        "life_fd=None))"
    )
    second = subprocess.run(
        [sys.executable, "-c", code], pass_fds=[theirs], timeout=60, check=False
    )
    os.close(theirs)
    os.close(ready)
    assert second.returncode == 1
    assert queue.ask("ping") == ["pong"]
    assert queue.process.poll() is None


# The other door takes garbage too, and nothing of it holds up what lies beside it.
AT_THE_DOOR = {
    "deep": '{"dest": "t", "x": ' + "[" * 500 + "]" * 500 + "}",
    "number": '{"dest": "t", "x": 1e999}',
    "half": '{"dest": "t"',
    "list": "[]",
    "nothing": "",
    "nul": '{"dest": "t", "param1": "a\\u0000b"}',
    "large": '{"dest": "t", "x": "' + "x" * 1_100_000 + '"}',
}


def test_nothing_at_the_other_door_holds_up_what_lies_beside_it(queue, tmp_path):
    door = queue.dir.path / "new"
    before = queue.ask("num_messages")["err"]
    for name, text in {**AT_THE_DOOR, "zz-good": '{"dest": "t"}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "msg").write_text(text)
        (tmp_path / name).rename(door / name)
    (door / "a-file").write_text("x")
    (door / "a-link").symlink_to("/etc")
    wait_until(lambda: queue.ask("wake") and not os.listdir(door))
    # All end in err: the last for a script that has nothing to say.
    number = len(AT_THE_DOOR) + 3
    wait_until(lambda: queue.ask("num_messages")["err"] == before + number)
    for one in queue.ok("list", {"state": "err", "limit": number}):
        assert "?" not in queue.get(one["msg_id"])["story"]["why"]


def test_a_queue_that_is_down_leaves_what_lies_at_its_door(queue, tmp_path):
    door, made = queue.dir.path / "new", tmp_path / "made"
    made.mkdir()
    (made / "msg").write_text(json.dumps({"dest": "t", "param1": DONE}))
    queue.root.down("t").touch()
    try:
        made.rename(door / "made")
        assert queue.ask("wake") == ["ok"]  # what it takes is accepted then
        assert os.listdir(door) == ["made"]
    finally:
        queue.root.down("t").unlink()
    wait_until(lambda: queue.ask("wake") and not os.listdir(door))


def test_messages_of_one_request_are_accepted_each_for_itself(paused):
    wanted = [{"dest": "t"}, {"dest": "t", "due": "x"}, 5, {"dest": "t", "_key": "b/1"}]
    first = paused.ok("create_messages", {"messages": wanted})
    assert [row[0] for row in first] == ["ok", "fail", "fail", "ok"]
    assert first[1][2] == first[2][2] == "bad_input"
    assert paused.ok("create_messages", {"messages": wanted[3:]}) == first[3:]
    assert paused.state(first[0][1]) == paused.state(first[3][1]) == "que"
    for wrong in ({}, {"messages": {}}, {"messages": [{}] * 5001}):
        assert "at most 5000" in paused.refused("create_messages", wrong)


def test_an_end_is_told_once_it_is_there(queue):
    ended, running = queue.send(param1=DONE), queue.send(param1=HOLD)
    assert queue.ok("await_end", {"msg_id": ended}) == "done"
    queue.until(running, "run")
    assert queue.ok("await_end", {"msg_id": running, "wait": 0}) == "run"
    with client.Connection(queue.dir.socket, timeout=20) as line:
        line.send("await_end", {"msg_id": running})
        queue.ok("cancel_message", {"msg_id": running})
        assert line.receive() == ["ok", "err"]
    assert queue.refused("await_end", {"msg_id": NOBODY})
    for wrong in (-1, "1", True, None):
        text = queue.refused("await_end", {"msg_id": ended, "wait": wrong})
        assert text.startswith("wait is not seconds")
