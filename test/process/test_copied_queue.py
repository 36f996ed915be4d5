"""A queue whose directory was copied or restored: it waits, tells, and takes a word."""

import json
import os
import shutil
import subprocess

import pytest
from harness.extent import rotated
from harness.queues import RunningQueue, kept
from harness.supervisor import Daemon
from harness.waiting import wait_until
from harness.web_server import web_alone

from rq import cli
from rq.access.roles import Role
from rq.errors import OutcomeUnknown
from rq.journal import history
from rq.rpc.lines.commands import COMMANDS, Answered

pytestmark = pytest.mark.process

TAKER = "#!/bin/sh\necho done got it >&3\n"
FORWARD = "echo forward b >&3"


@pytest.fixture
def a(tmp_path):
    with kept(RunningQueue(tmp_path, "a", "obey")) as queue:
        yield queue
        if not queue.alive:
            queue.start()


def copy_of(queue, name):
    """Return a copy of a queue in the same root, as `cp -a` makes it; not started."""
    shutil.copytree(
        queue.dir.path,
        queue.root.queue(name).path,
        symlinks=True,
        ignore=lambda _, names: {one for one in names if one.endswith(".sock")},
    )
    return RunningQueue(queue.root.path, name, queue.script)


def filled(queue):
    """Let a queue hold a message that waits and one that owes a copy, and end by a kill;
    return the two."""
    ended = queue.run(param1=FORWARD)
    assert ended["state"] == "done", ended
    assert queue.ok("detail")["owed"] == 1
    queue.root.pause(queue.name).touch()
    queue.ask("wake")
    waiting = queue.send(param1="echo done >&3")
    queue.ok("check")
    queue.crash()
    queue.root.pause(queue.name).unlink()
    return waiting, ended["msg_id"]


def files(queue):
    """Return what lies in the directories of messages and of the journal."""
    return {
        path: path.read_bytes()
        for name in ("prep", "que", "run", "done", "err", "new", "journal", "history")
        for path in (queue.dir.path / name).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def b(tmp_path):
    """The queue that takes copies; it does not run yet, so they are owed."""
    queue = RunningQueue(tmp_path, "b", TAKER)
    try:
        yield queue
        if queue.alive:
            queue.close()
    finally:
        queue.kill()


@pytest.fixture
def copy(a, b):
    """A copy of a queue with a message that waits and one that owes a copy."""
    waiting, ended = filled(a)
    with kept(copy_of(a, "c")) as queue:
        queue.waiting, queue.done = waiting, ended
        yield queue
        if queue.ok("restored")["why"]:
            accepted(queue, "same")


def accepted(queue, how):
    said = queue.ok("restore", {"as": how})
    wait_until(lambda: queue.ok("restored")["why"] is None)
    return said


def test_a_copy_starts_paused_and_tells_what_it_would_run_and_deliver(copy):
    before = files(copy)
    found = copy.ok("restored")
    assert "`rq restore accept c`" in found["why"]
    assert (found["messages"], found["ids"]) == (1, [copy.waiting])
    assert found["owed"] == 1
    assert [one["msg_id"] for one in found["deliveries"]] == [copy.done]
    told = copy.ok("detail")
    assert (told["status"], told["accepting"]) == ("PAUSE", False)
    assert told["restored"] == told["closed_reason"] == found["why"]
    assert copy.ask("status") == ["PAUSE"]
    assert copy.state(copy.waiting) == "que"
    assert copy.get(copy.done)["state"] == "done"
    copy.ask("wake")
    assert files(copy) == before


def test_before_the_word_nothing_is_taken_or_changed(copy):
    before = files(copy)
    of_one = {"msg_id": copy.waiting, "dest": "c", "param1": "x"}
    for command, one in COMMANDS.items():
        if one.role is not Role.VIEWER and one.answered is not Answered.ALWAYS:
            assert "rq restore accept c" in copy.refused(command, of_one), command
    assert files(copy) == before


@pytest.mark.slow
def test_pages_say_that_a_message_waits_for_the_word_and_offer_no_more(copy, tmp_path):
    story = copy.get(copy.waiting)["story"]
    assert story["why"] == "Its queue waits for a decision, which `rq restore` tells."
    assert "`rq restore accept c`" in story["todo"]
    with web_alone(tmp_path) as web:
        (section,) = web.get("/q/c/queue.json?state=que").json["sections"]
        assert [one["text"] for one in section["rows"]] == [story["why"]]
        page = web.page("/q/c")
        assert "<code>rq restore accept c</code>" in page
        assert "/q/c/new_message" not in page.partition("<main")[2]
        assert "/confirm/run" not in web.page(f"/q/c/{copy.waiting}")
        assert "/confirm/delete" not in web.page(f"/q/c/{copy.done}")
        copy.ask("restore", {"as": "same"})
        wait_until(lambda: copy.ok("restored")["why"] is None)
        copy.ended(copy.waiting)
        assert "/confirm/delete" in web.page(f"/q/c/{copy.done}")


def test_before_the_word_nothing_runs_and_nothing_is_delivered(b, copy):
    b.start()
    for _ in range(30):  # turns of both
        copy.ask("wake")
        assert copy.ok("restored")["owed"] == 1
        assert not any(b.ok("detail")["counts"].values())
    assert copy.state(copy.waiting) == "que"
    assert copy.log().count("ready:") == 1


def test_a_stop_and_a_kill_before_the_word_leave_all_as_it_was(copy):
    before = files(copy)
    assert copy.stop() == 0
    copy.start()
    assert copy.ok("restored")["messages"] == 1
    copy.crash()
    copy.start()
    assert copy.ok("restored")["owed"] == 1
    assert files(copy) == before


def test_the_word_is_one_of_two_and_asked_for_once(copy):
    assert "one of same, copy" in copy.refused("restore", {"as": "yes"})
    assert "as the queue that it was" in accepted(copy, "same")
    assert "needs no decision" in copy.refused("restore", {"as": "same"})
    assert copy.refused("restore", {"as": 5})


@pytest.mark.parametrize("how", ["same", "copy"])
def test_after_the_word_it_runs_what_waits(copy, how):
    first = copy.ok("detail")["journal_id"]
    accepted(copy, how)
    assert copy.ended(copy.waiting)["state"] == "done"
    assert (copy.ok("detail")["journal_id"] == first) is (how == "same")
    copy.restart()
    assert copy.ok("restored")["why"] is None
    assert copy.run(param1="echo done >&3")["state"] == "done"
    if how == "copy":
        assert first in history.journals(copy.dir.journal_dir)


@pytest.mark.slow
def test_what_both_owe_arrives_once_and_what_they_owe_anew_twice(a, b, copy):
    """The old entry has one key in both; those that came after have one each, though
    they stand at the same place of the same journal."""
    accepted(copy, "same")
    a.start()
    for queue in (a, copy):
        queue.ended(copy.waiting)
    ends = [queue.run(param1=FORWARD)["state"] for queue in (a, copy)]
    assert ends == ["done", "done"]
    b.start()
    for queue in (a, copy):
        wait_until(lambda queue=queue: queue.ok("detail")["owed"] == 0, 60)
    wait_until(lambda: b.ok("detail")["counts"]["done"] == 3, 60)
    b.ok("check")


@pytest.mark.parametrize(
    ("point", "how"), [("mark:before-write", "same"), ("mark:written", "copy")]
)
def test_a_kill_at_the_word_leaves_it_waiting_or_going_on(copy, point, how):
    copy.crash_at(point)
    with pytest.raises(OutcomeUnknown):
        copy.ask("restore", {"as": how})
    copy.process.wait(20)
    copy.start()
    waits = copy.ok("restored")["why"] is not None
    assert waits is (point == "mark:before-write")
    if waits:
        accepted(copy, how)
    assert copy.ended(copy.waiting)["state"] == "done"


@pytest.mark.parametrize(
    "point",
    rotated(
        [
            "mark:written",
            "segment:before-link",
            "recovery:before-retire",
            "seal:written",
        ],
        2,
    ),
)
def test_a_kill_between_the_new_journal_and_its_first_lines_loses_nothing(copy, point):
    first = copy.ok("detail")["journal_id"]
    # The word writes the mark, and the start after it writes it again.
    copy.crash_at(f"{point}#2" if point == "mark:written" else point)
    copy.ok("restore", {"as": "copy"})
    copy.process.wait(20)
    copy.start()
    found = copy.ok("detail")
    assert found["journal_id"] != first
    assert copy.ended(copy.waiting)["state"] == "done"
    assert copy.ok("detail")["owed"] == 1


def rq(queue, *words):
    return cli.main(["--root", str(queue.root.path), "restore", *words])


def test_an_operator_looks_and_says_at_the_command_line(a, copy, capfd, monkeypatch):
    from rq.cli import place

    monkeypatch.setattr(place, "demand_running", lambda root: None)
    monkeypatch.setattr(place, "queue_names", lambda root: ["c"])
    assert rq(copy) == 0
    out = capfd.readouterr().out
    assert f"would run 1 messages: {copy.waiting}" in out
    assert f"of {copy.done} to b" in out
    assert rq(copy, "ls", "--json") == 0
    [one] = json.loads(capfd.readouterr().out)
    assert (one["queue"], one["messages"]) == ("c", 1)
    assert rq(copy, "accept", "nobody") == cli.NOT_FOUND
    assert rq(copy, "accept", "--copy", "nobody") == cli.NOT_FOUND
    assert rq(copy, "--copy") == 0
    assert "a queue of its own" in capfd.readouterr().out
    wait_until(lambda: copy.ok("restored")["why"] is None)
    assert rq(copy, "accept", "c") == cli.REFUSED
    assert "needs no decision" in capfd.readouterr().err
    assert rq(copy, "accept") == 0
    assert rq(copy, "ls") == 0
    assert "nothing waits for an answer" in capfd.readouterr().err


def test_one_that_was_renamed_goes_on_as_ever(a):
    waiting = a.run(param1="echo done >&3")["msg_id"]
    assert a.stop() == 0
    aside = a.root.path / "aside"
    os.rename(a.dir.path, aside)
    os.rename(aside, a.dir.path)
    a.start()
    assert a.ok("restored")["why"] is None
    assert a.state(waiting) == "done"


def test_without_journal_and_history_the_folders_alone_tell(a, tmp_path):
    done = a.run(param1="echo done >&3")["msg_id"]
    waiting, removed = (a.send(due=4e9) for _ in range(2))
    a.restart()
    a.ok("delete_message", {"msg_id": removed})
    late = [a.send(due=4e9) for _ in range(2)]
    a.check()  # all folders are made
    a.crash()
    for name in ("journal", "history"):
        (a.dir.path / name).rename(tmp_path / f"{name}.aside")
    a.start()
    assert a.state(done) == "done"
    assert {a.state(one) for one in (waiting, *late)} == {"que"}
    assert a.ok("detail")["counts"]["que"] == 3
    assert "not found" in a.refused("get_message", {"msg_id": removed})


@pytest.fixture
def daemons(tmp_path):
    """A root with two queues, and a place for its copy."""
    first, second = Daemon(tmp_path / "first"), Daemon(tmp_path / "second")
    try:
        first.start()
        for name in ("a", "b"):
            first.create(name)
            first.until_up(name)
        yield first, second
    finally:
        first.close()
        second.close()


@pytest.mark.slow
def test_a_copied_root_starts_with_all_its_queues_waiting(daemons, capfd):
    first, second = daemons
    first.root.pause("a").touch()
    first.ask_queue("a", "wake")
    assert first.ask_queue("a", "create_message", {"dest": "a"})[0] == "ok"
    assert first.stop() == 0
    shutil.rmtree(second.root.path)
    subprocess.run(["cp", "-a", first.root.path, second.root.path], check=True)
    second.root.pause("a").unlink()
    second.start()
    for name in ("a", "b"):
        second.until_up(name)
    words = ["--root", str(second.root.path)]
    assert cli.main([*words, "status"]) == cli.FAILED
    out = capfd.readouterr().out
    assert "`rq restore accept a`" in out
    assert cli.main([*words, "restore"]) == 0
    assert "would run 1 messages" in capfd.readouterr().out
    pids = [second.child(name)["pid"] for name in ("a", "b")]
    assert cli.main([*words, "restore", "accept", "--copy"]) == 0
    told = lambda: second.ask_queue("a", "detail")[1]  # noqa: E731
    wait_until(lambda: told()["counts"]["done"] == 1)
    wait_until(lambda: second.ask_queue("b", "restored")[1]["why"] is None)
    assert cli.main([*words, "status"]) == 0
    assert [second.child(name)["pid"] for name in ("a", "b")] == pids
    first.start()
    first.until_up("a")
    assert first.ask_queue("a", "restored")[1]["why"] is None
