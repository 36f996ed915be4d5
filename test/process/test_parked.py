"""Parked queues: without a process while they have nothing to do, and there at once for the
next who asks."""

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from harness import cli
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.cli import FAILED
from rq.config import parked
from rq.errors import RQError
from rq.proc import locks
from rq.rpc import client
from rq.timers.outcomes import Outcomes

pytestmark = pytest.mark.process
LONG = 60.0  # seconds; a busy machine


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with daemon_on(tmp_path_factory.mktemp("parked") / "root") as daemon:
        yield daemon


@pytest.fixture
def daemon(shared):
    if not shared.runs:
        shared.start()
    yield shared
    if not shared.runs:
        shared.start()
    shared.clear()


def state(daemon, name="q"):
    return daemon.child(name)["state"]


def until_parked(daemon, name="q"):
    wait_until(lambda: state(daemon, name) == "PARKED", LONG)


def make_parked(daemon, name="q", **settings):
    daemon.create(name, park="1s", **settings)
    until_parked(daemon, name)
    return daemon.root.queue(name)


def send(daemon, name="q", **fields):
    with client.Connection(daemon.root.queue(name).socket) as line:
        return client.demanded(line.ask("create_message", {"dest": name, **fields}))


def counts(daemon, name="q"):
    return daemon.ask_queue(name, "num_messages")


def until_done(daemon, number, name="q"):
    wait_until(lambda: counts(daemon, name)["done"] == number, LONG)


# ---- parked, and woken


def test_it_has_no_process_and_answers_the_next_message(daemon):
    queue = make_parked(daemon)
    assert daemon.child("q")["pid"] is None
    assert not queue.pid.exists()
    assert not locks.is_locked(queue.lock)
    assert parked.answer(daemon.root, "q", "ping") == ["pong"]
    send(daemon)
    until_done(daemon, 1)
    assert not queue.parked.exists()
    assert daemon.child("q")["restarts"] == 0
    until_parked(daemon)
    assert parked.answer(daemon.root, "q", "num_messages")["done"] == 1


def test_a_crowd_that_connects_at_once_is_answered_by_one_process(daemon):
    make_parked(daemon)
    answers = []

    def ask():
        answers.append(send(daemon))

    crowd = [threading.Thread(target=ask) for _ in range(30)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join(LONG)
    assert len(set(answers)) == 30
    until_done(daemon, 30)
    assert daemon.child("q")["restarts"] == 0


@pytest.mark.slow
def test_its_own_chores_do_not_keep_its_process(daemon):
    daemon.create("q", park=11)  # longer than from one round of chores to the next
    until_parked(daemon)


@pytest.mark.slow
def test_a_message_that_becomes_due_starts_it(daemon):
    daemon.create("q", park="1s")
    send(daemon, due=time.time() + 8)
    until_parked(daemon)
    left = parked.read(daemon.root.queue("q"))
    assert left.wakes_at is not None
    assert left.answers["num_messages"]["que"] == 1
    wait_until(lambda: state(daemon) != "PARKED", LONG)
    until_done(daemon, 1)


def test_a_message_whose_due_a_clock_that_was_set_has_passed_starts_it(daemon):
    queue = make_parked(daemon)
    send(daemon, due=time.time() + 3600)
    until_parked(daemon)
    left = parked.read(queue)
    assert left.wakes_at > time.time()
    parked.write(queue, replace(left, wakes_at=time.time() - 1))
    assert parked.answer(daemon.root, "q", "num_messages") is None
    wait_until(lambda: not queue.parked.exists(), LONG)


@pytest.mark.slow
def test_old_messages_are_removed_by_a_queue_that_never_stays_for_long(daemon):
    queue = make_parked(daemon, retention={"done": {"count": 1}})
    for _ in range(3):
        send(daemon)
    until_done(daemon, 3)
    until_parked(daemon)
    left = parked.read(queue)
    assert left.retained_at < left.wakes_at
    parked.write(queue, replace(left, retained_at=left.retained_at - 86400))
    daemon.ask_queue("q", "uptime")  # wakes it, and has nothing for it to do
    until_done(daemon, 1)
    until_parked(daemon)
    assert parked.read(queue).retained_at > left.retained_at
    assert not list((queue.path / "que").iterdir())


@pytest.mark.slow
def test_a_message_that_is_due_soon_or_runs_keeps_its_process(daemon):
    script = daemon.root.path / "waits"
    script.write_text("#!/bin/sh\nsleep 4\necho done >&3\n")
    script.chmod(0o755)
    daemon.create("q", park="1s", script=str(script))
    pid = daemon.child("q")["pid"]
    send(daemon)
    until_done(daemon, 1)
    assert daemon.child("q")["pid"] == pid
    until_parked(daemon)


def test_a_file_in_new_starts_it(daemon):
    queue = make_parked(daemon)
    deposit = queue.path / "new" / "mine"
    deposit.mkdir()
    (deposit / "msg").write_text(json.dumps({"dest": "q"}))
    wait_until(lambda: state(daemon) != "PARKED", LONG)
    until_done(daemon, 1)


def test_a_line_that_stayed_open_goes_on_over_another_connection(daemon):
    daemon.create("q", park="1s")
    with client.Connection(daemon.root.queue("q").socket) as line:
        assert line.ask("ping") == ["pong"]
        until_parked(daemon)
        assert client.demanded(line.ask("create_message", {"dest": "q"}))
        assert line.ask("ping") == ["pong"]


@pytest.mark.slow
def test_what_is_not_asked_yet_keeps_its_process(daemon):
    daemon.create("q", park="1s")
    pid = daemon.child("q")["pid"]
    with client.connect(daemon.root.queue("q").socket, LONG) as silent:
        wait_until(lambda: state(daemon) == "UP", LONG)
        silent.sendall(b"rq1 0000")  # a request has begun
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 5, LONG)
        assert daemon.child("q")["pid"] == pid


def test_a_deposit_that_came_while_it_was_being_parked_starts_it(daemon):
    queue = make_parked(daemon)
    daemon.stop()
    deposit = queue.path / "new" / "mine"
    deposit.mkdir()
    (deposit / "msg").write_text(json.dumps({"dest": "q"}))
    left = parked.read(queue)  # as if it had come before the queue noted how all looks
    parked.write(queue, replace(left, stamps=parked.stamps(daemon.root, "q")))
    assert parked.answer(daemon.root, "q", "num_messages") is None
    assert not parked.is_current(daemon.root, "q")
    daemon.start()
    until_done(daemon, 1)


def test_timers_learn_what_became_of_a_message_without_starting_it(daemon):
    queue = make_parked(daemon, script="/bin/false")
    full_id = send(daemon)
    wait_until(lambda: counts(daemon)["err"] == 1, LONG)
    ids = [full_id.rpartition("/")[2], "20261128.0000.00.001.1"]
    said = daemon.ask_queue("q", "get_ends", {"msg_ids": ids})
    until_parked(daemon)
    outcomes = Outcomes(daemon.root, None, asyncio.Event())
    assert asyncio.run(outcomes._ends("q", ids)) == said[1]
    assert queue.parked.exists()
    assert state(daemon) == "PARKED"


# ---- what a supervisor does with it


@pytest.mark.slow
def test_the_supervisor_stops_and_starts_with_it(daemon):
    queue = make_parked(daemon)
    daemon.stop()
    assert not queue.socket.exists()
    daemon.start()
    assert state(daemon) == "PARKED"
    assert parked.answer(daemon.root, "q", "ping") == ["pong"]
    send(daemon)
    until_done(daemon, 1)
    until_parked(daemon)
    daemon.stop()
    (queue.path / "que" / "x").mkdir()  # a person edits it
    daemon.start()
    wait_until(lambda: state(daemon) in {"STARTING", "UP"}, LONG)


@pytest.mark.slow
def test_a_supervisor_that_was_killed_leaves_queues_that_start(daemon):
    make_parked(daemon)
    daemon.crash()
    daemon.start()
    send(daemon)
    until_done(daemon, 1)


def test_one_whose_supervisor_was_killed_has_none_to_hand_its_socket_to(daemon):
    daemon.create("q", park="1s")
    queue = daemon.root.queue("q")
    with client.connect(queue.socket, LONG) as silent:
        wait_until(lambda: state(daemon) == "UP", LONG)
        silent.sendall(b"rq1 0000")  # it is not parked before the supervisor has ended
        daemon.crash()
    wait_until(lambda: not locks.is_locked(queue.lock), LONG)
    said = (daemon.root.log / "queue-q.log").read_text()
    assert "the supervisor has ended" in said
    assert "did not stop cleanly" not in said


@pytest.mark.slow
def test_it_is_restarted_reloaded_deleted_like_any_other(daemon):
    make_parked(daemon)
    assert daemon.ask("restart_queue", "q") == ["ok", "q"]
    wait_until(lambda: state(daemon) == "UP", LONG)
    until_parked(daemon)
    changes = {"name": "q", "changes": {"num_workers": 3}}
    assert daemon.ask("change_queue", changes) == ["ok", "q"]
    wait_until(lambda: state(daemon) == "UP", LONG)
    until_parked(daemon)
    assert daemon.ask("delete_queue", "q")[0] == "ok"
    wait_until(lambda: "q" not in daemon.ask("queues"), LONG)
    assert not daemon.root.queue("q").path.exists()


@pytest.mark.slow
def test_who_holds_its_lock_is_waited_for_and_no_failure_counted(daemon):
    queue = make_parked(daemon)
    held = locks.lock(queue.lock)
    with client.Connection(queue.socket) as line:
        line.send("create_message", {"dest": "q"})
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 2, LONG)
        assert state(daemon) == "PARKED"
        os.close(held)
        assert client.demanded(line.receive())
    assert daemon.child("q")["restarts"] == 0


def test_what_another_version_of_rq_has_left_is_not_believed(daemon):
    queue = make_parked(daemon)
    daemon.stop()
    parked.write(queue, replace(parked.read(queue), version="3.9.9"))
    assert parked.answer(daemon.root, "q", "detail") is None
    daemon.start()
    assert state(daemon) != "PARKED"
    daemon.until_up("q")


# ---- what a person does to its directory


def test_folders_that_were_edited_count_and_answers_of_before_do_not(daemon):
    queue = make_parked(daemon)
    send(daemon, due=time.time() + 3600)
    until_parked(daemon)
    assert parked.answer(daemon.root, "q", "num_messages")["que"] == 1
    (waiting,) = (queue.path / "que").iterdir()
    shutil.rmtree(waiting)
    assert parked.answer(daemon.root, "q", "num_messages") is None
    assert counts(daemon)["que"] == 0


@pytest.mark.slow
def test_a_socket_whose_name_was_taken_is_bound_anew(daemon):
    queue = make_parked(daemon)
    with client.connect(queue.socket, LONG):
        queue.socket.unlink()
    wait_until(lambda: state(daemon) == "UP", LONG)
    send(daemon)
    until_done(daemon, 1)


def test_one_whose_socket_was_removed_is_woken_all_the_same(daemon):
    queue = make_parked(daemon)
    queue.socket.unlink()
    daemon.ask("wake_queue", "q")
    wait_until(queue.socket.exists, LONG)
    send(daemon)
    until_done(daemon, 1)


@pytest.mark.slow
def test_a_directory_that_was_replaced_is_held(daemon):
    queue = make_parked(daemon)
    away = daemon.root.path / "away"
    queue.path.rename(away)
    shutil.copytree(away, queue.path, ignore=shutil.ignore_patterns("*.sock"))
    daemon.ask("restart_queue", "q")
    wait_until(lambda: state(daemon) == "FATAL", LONG)
    assert "q" in daemon.ask("status")["displaced"]
    shutil.rmtree(queue.path)
    away.rename(queue.path)
    daemon.ask("restart_queue", "q")
    wait_until(lambda: state(daemon) in {"UP", "PARKED"}, LONG)


@pytest.mark.slow
def test_one_that_cannot_be_woken_is_not_shown_as_it_was_parked(daemon):
    journal = make_parked(daemon).path / "journal"
    segment = min(journal.glob("0*"))
    for file in (journal / "checkpoint", segment):
        with file.open("r+b") as damaged:  # in place: its directory looks as before
            damaged.write(b"?")
    assert parked.is_current(daemon.root, "q")
    with pytest.raises(RQError):
        send(daemon)
    wait_until(lambda: state(daemon) == "FATAL", LONG)
    assert not parked.is_current(daemon.root, "q")
    status = cli.run("rq.cli", "status", root=daemon.root.path)
    assert status.returncode == FAILED
    assert "its first line is bad" in status.stdout


def test_a_copy_of_before_that_was_laid_over_it_waits_for_a_person(daemon):
    queue = make_parked(daemon)
    send(daemon)
    until_done(daemon, 1)
    until_parked(daemon)
    copy, stays = daemon.root.path / "copy", {queue.socket.name, queue.lock.name}
    shutil.copytree(queue.path, copy, ignore=shutil.ignore_patterns(*stays))
    for _ in range(2):
        send(daemon)
    until_done(daemon, 3)
    until_parked(daemon)
    held = locks.lock(queue.lock)  # while it is replaced nothing starts it
    for each in queue.path.iterdir():  # the directory itself stays, and its inode
        if each.name not in stays:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.copytree(copy, queue.path, dirs_exist_ok=True)
    os.close(held)
    word, about = daemon.ask_queue("q", "restored")
    assert word == "ok"
    assert "restored" in about["why"]
    assert state(daemon) == "UP"


# ---- kills on the way


@pytest.mark.slow
@pytest.mark.parametrize("point", ["stopped", "written", "handed-over"])
def test_a_kill_on_the_way_loses_nothing(tmp_path, point):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env["RQ_CRASH_AT"] = f"park:{point}"
        daemon.start()
        daemon.create("q", park="1s")
        send(daemon)
        for number in (1, 2):
            wait_until(lambda: daemon.child("q")["restarts"] >= number, LONG)  # noqa: B023
        daemon.until_up("q")
        send(daemon)
        until_done(daemon, 2)


@pytest.mark.slow
def test_one_that_hangs_after_it_handed_over_its_socket_is_killed(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env["RQ_HANG_AT"] = "park:handed-over"
        daemon.start()
        daemon.create("q", park="1s")
        queue = daemon.root.queue("q")
        wait_until(queue.parked.exists, LONG)
        send(daemon)  # waits in the socket, until another process has it
        until_done(daemon, 1)
        assert daemon.child("q")["restarts"] >= 1


@pytest.mark.slow
def test_who_has_connected_waits_though_the_woken_process_is_killed(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env["RQ_CRASH_AT"] = "park:woken"
        daemon.start()
        queue = make_parked(daemon)
        name = parked.stamp(queue.socket)
        with client.connect(queue.socket, LONG):
            wait_until(lambda: daemon.child("q")["restarts"] >= 2, LONG)
            assert parked.stamp(queue.socket) == name  # each start serves it


@pytest.mark.slow
def test_it_goes_on_if_the_supervisor_ends_before_it_has_taken_its_socket(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.env["RQ_HANG_AT"] = "park:written"
        daemon.start()
        daemon.create("q", park="1s")
        queue, pid = daemon.root.queue("q"), daemon.child("q")["pid"]
        wait_until(lambda: is_stopped(pid), LONG)
        with client.Connection(queue.socket, LONG) as line:
            line.send("create_message", {"dest": "q"})  # waits in its backlog
            daemon.crash()
            os.kill(pid, signal.SIGCONT)
            assert client.demanded(line.receive())
        wait_until(
            lambda: not locks.is_locked(queue.lock), LONG
        )  # it ends as an orphan
        assert not queue.socket.exists()
        log = (daemon.root.log / "queue-q.log").read_text()
        assert "it goes on: the supervisor did not take its socket" in log
        assert "did not stop cleanly" not in log
        del daemon.env["RQ_HANG_AT"]
        daemon.start()
        until_parked(daemon)
        assert parked.answer(daemon.root, "q", "num_messages")["done"] == 1
        log = (daemon.root.log / "queue-q.log").read_text()
        assert "clean=False" not in log


def is_stopped(pid):
    """Whether a process stands still."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@pytest.mark.slow
def test_who_has_connected_is_answered_though_no_room_was_left_for_what_is_read(daemon):
    queue = daemon.root.queue("q")
    daemon.create("q", park="1s")
    (queue.path / "parked.json.tmp").mkdir()  # nothing can be written there
    until_parked(daemon)
    assert not queue.parked.exists()
    name = parked.stamp(queue.socket)
    send(daemon)
    assert parked.stamp(queue.socket) == name
    until_done(daemon, 1)
