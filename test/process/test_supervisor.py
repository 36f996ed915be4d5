"""The supervisor with real processes: what it promises when any of them is killed."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from harness.extent import rotated
from harness.supervisor import annoy, daemon_on
from harness.waiting import wait_until

from rq import config
from rq.config import files, trash
from rq.errors import Unreachable
from rq.queues.process import ORPHANED
from rq.rpc import client
from rq.supervisor.table import Table
from rq.words.states import Child

pytestmark = pytest.mark.process


@pytest.fixture
def running(daemon):
    daemon.start()
    return daemon


def inodes(pid):
    """Return what the descriptors of a process are."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def writable_pipes(pid):
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            flags = re.search(
                r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
            )
            if target.startswith("pipe:") and int(flags[1], 8) & os.O_WRONLY:
                found.add(target)
    return found


# ---- commands


def test_every_command_answers_as_the_ancestor_did(shared):
    ask = shared.ask
    assert ask("ping") == ["pong"]
    assert isinstance(ask("uptime")[0], int)
    assert ask("environment") == ["test"]
    assert ask("queues") == []
    shared.create("one")
    assert ask("queues") == ["one"]
    one = {"name": "one", "script": str(shared.script)}
    assert ask("create_queue", one) == ["fail", "already created"]
    bad = {"name": "../one", "script": "x"}
    assert ask("create_queue", bad) == ["fail", "queue name has invalid characters"]
    assert ask("create_queue", "no json") == ["fail", "queue not created"]
    for verb in ("up", "down", "pause", "resume"):
        assert ask(f"{verb}_queue", "one") == ["ok", "one"]
        assert ask(f"{verb}_queue", "no") == ["fail", "invalid queue name"]
        assert ask(f"{verb}_queue", "../x") == ["fail", "invalid queue name"]
    assert ask("restart_queue", "one") == ["ok", "one"]
    assert ask("restart_queue", "no") == ["fail", "invalid queue name"]
    assert ask("restart_queue") == ["fail", "invalid queue name"]
    assert ask("delete_queue", "no") == ["fail", "no such queue"]
    assert ask("delete_queue", "one") == ["ok", "started deleting queue"]
    assert ask("whatever") == ["error"]


def test_a_created_queue_has_a_normal_config(shared):
    asked = {"name": "n", "script": str(shared.script), "num_workers": "7"}
    shared.ask("create_queue", asked)
    written = config.read_json(shared.root.queue("n").config)
    assert written == {
        "name": "n",
        "script": str(shared.script),
        "num_workers": 7,
        "exec_prefix": "bash -lc ",
        "env_vars": {},
        "coalesce_params": [],
        "blocking_params": [],
    }


def test_a_config_with_a_mistake_makes_no_queue(shared):
    reply = shared.ask("create_queue", {"name": "n", "script": "x", "num_worker": 1})
    assert reply[0] == "fail"
    assert "num_workers" in reply[1]
    assert not shared.root.queue("n").path.exists()


def test_down_and_pause_are_files_that_the_queue_heeds_at_once(shared):
    shared.create("q")
    shared.ask("pause_queue", "q")
    assert shared.root.pause("q").exists()
    wait_until(lambda: shared.ask_queue("q", "status") == ["PAUSE"])
    shared.ask("down_queue", "q")
    wait_until(lambda: shared.ask_queue("q", "status") == ["DOWN"])
    shared.ask("up_queue", "q")
    shared.ask("resume_queue", "q")
    assert not shared.root.down("q").exists()
    wait_until(lambda: shared.ask_queue("q", "status") == ["UP"])


def test_a_deleted_queue_lies_in_the_trash_whole(shared):
    shared.create("q")
    inode = shared.root.queue("q").path.stat().st_ino
    shared.ask("delete_queue", "q")
    wait_until(lambda: shared.ask("queues") == [])
    assert (shared.root.trash / f"q.{inode}" / "config.json").exists()
    assert not shared.root.queue("q").path.exists()
    shared.create("q")


@pytest.mark.slow
def test_a_deletion_that_was_answered_is_done_after_a_crash(daemon):
    daemon.start()
    daemon.create("q")
    os.kill(daemon.child("q")["pid"], signal.SIGSTOP)
    daemon.ask("delete_queue", "q")
    pid = daemon.child("q")["pid"]
    daemon.crash()
    os.kill(pid, signal.SIGKILL)
    daemon.start()
    wait_until(lambda: daemon.ask("queues") == [])
    assert len(os.listdir(daemon.root.trash)) == 1


def test_a_restart_gives_a_new_process(shared):
    shared.create("q")
    before = shared.child("q")["pid"]
    shared.ask("restart_queue", "q")
    wait_until(lambda: shared.is_up("q") and shared.child("q")["pid"] != before)
    assert shared.child("q")["restarts"] == 0


# ---- one instance


def test_a_second_supervisor_names_the_first_and_ends(shared):
    told = shared.command("rq.supervisor")
    second = subprocess.run(**told, capture_output=True, timeout=60, check=False)
    assert second.returncode == 1
    assert str(shared.process.pid) in second.stderr.decode()
    assert second.stderr.decode().count("\n") == 1
    assert shared.ask("ping") == ["pong"]


def test_a_root_without_config_is_refused_in_one_sentence(tmp_path, daemon):
    daemon.root.config.unlink()
    told = daemon.command("rq.supervisor")
    ended = subprocess.run(**told, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.decode().count("\n") == 1
    assert "config.json is missing" in ended.stderr.decode()


# ---- kill -9


@pytest.mark.slow
def test_a_killed_queue_comes_back_each_time_a_little_later(running):
    running.create("q")
    gaps = []
    for number in (1, 2):
        began = time.monotonic()
        running.kill("q")
        wait_until(lambda n=number: running.child("q")["restarts"] == n)
        running.until_up("q")
        gaps.append(time.monotonic() - began)
    assert gaps[0] >= 1.0
    assert gaps[1] >= 2.0
    log = (running.root.log / "queuemgr.log").read_text()
    assert "was killed by SIGKILL" in log


def test_a_queue_killed_by_a_signal_without_a_name_comes_back(shared):
    shared.create("q")
    dead = shared.child("q")["pid"]
    os.kill(dead, signal.SIGRTMIN + 1)
    wait_until(lambda: shared.child("q")["pid"] not in (dead, None), 60)
    shared.until_up("q", 60)
    log = (shared.root.log / "queuemgr.log").read_text()
    assert f"was killed by signal {signal.SIGRTMIN + 1}" in log


@pytest.mark.parametrize("helper", ["scandir", "timers"])
def test_a_killed_helper_comes_back_and_takes_nothing_with_it(shared, helper):
    shared.create("q")
    queue = shared.child("q")["pid"]
    dead = shared.kill(helper)
    wait_until(lambda: shared.is_up(helper) and shared.child(helper)["pid"] != dead)
    assert shared.child("q")["pid"] == queue
    assert shared.process.poll() is None


@pytest.mark.slow
def test_queues_outlive_the_fork_server_and_a_new_one_serves(shared):
    shared.create("q")
    queue = shared.child("q")["pid"]
    dead = shared.kill("forks")
    wait_until(lambda: shared.is_up("forks") and shared.child("forks")["pid"] != dead)
    assert shared.child("q")["pid"] == queue
    assert shared.ask_queue("q", "ping") == ["pong"]
    shared.create("later")
    # Its death is noticed although its parent is gone.
    shared.kill("q")
    wait_until(lambda: shared.is_up("q") and shared.child("q")["pid"] != queue)


@pytest.mark.slow
def test_a_new_supervisor_takes_over_the_queues_of_a_killed_one(daemon):
    daemon.start()
    daemon.create("a")
    daemon.create("b")
    for _ in range(5):
        before = {name: daemon.until_up(name)["pid"] for name in ("a", "b")}
        began = time.monotonic()
        daemon.crash()
        daemon.start()
        took = time.monotonic() - began
        after = {name: daemon.until_up(name)["pid"] for name in ("a", "b")}
        if after == before or took < ORPHANED:
            break  # else a busy machine took longer to start it than they wait
    assert after == before
    # They are its own now: a death is seen, and they outlast the two seconds.
    daemon.kill("a")
    wait_until(lambda: daemon.is_up("a") and daemon.child("a")["pid"] != before["a"])
    time_up = time.monotonic() + 2.0
    wait_until(lambda: time.monotonic() > time_up)
    assert daemon.child("b")["pid"] == before["b"]
    assert daemon.stop() == 0
    assert daemon.processes() == []


@pytest.mark.slow
def test_everything_ends_when_the_supervisor_is_killed_for_good(daemon):
    daemon.start()
    daemon.create("a")
    wait_until(lambda: len(daemon.processes()) >= 5)
    daemon.crash()
    wait_until(lambda: daemon.processes() == [], 60)
    daemon.start()
    daemon.until_up("a")


@pytest.mark.slow
def test_a_supervisor_is_not_kept_from_starting_by_queues_that_still_end(daemon):
    daemon.start()
    daemon.create("a")
    pid = daemon.child("a")["pid"]
    os.kill(pid, signal.SIGSTOP)
    daemon.crash()
    daemon.start()
    assert daemon.ask("ping") == ["pong"]
    os.kill(pid, signal.SIGCONT)
    daemon.until_up("a", 60)


# ---- stopping


@pytest.mark.parametrize("number", rotated([signal.SIGTERM, signal.SIGINT]))
def test_a_stop_leaves_no_process_no_socket_and_no_pid_file(running, number):
    running.create("a")
    running.create("b")
    running.process.send_signal(number)
    assert running.process.wait(60) == 0
    assert running.processes() == []
    assert not running.root.supervisor_socket.exists()
    assert not running.root.supervisor_pid.exists()
    assert not running.root.queue("a").socket.exists()


@pytest.mark.slow
def test_a_stop_ends_with_queues_that_had_given_up_or_wait(running):
    running.create("a")
    running.create("b")
    running.kill("a")
    running.root.queue("b").config.write_text("{")
    running.ask("restart_queue", "b")
    wait_until(lambda: running.child("b")["state"] == Child.FATAL)
    assert running.stop() == 0


@pytest.mark.slow
def test_shutdown_by_command_stops_all(running):
    running.create("a")
    assert running.ask("shutdown") == ["ok"]
    assert running.process.wait(60) == 0


def test_systemd_is_told(daemon, tmp_path):
    heard, wanted = [], {b"WATCHDOG=1", b"STATUS=1 of 1 queues up"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(tmp_path / "notify"))
        inbox.settimeout(20)
        daemon.env["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        daemon.env["WATCHDOG_USEC"] = "400000"
        # It must be read all the time: the kernel keeps ten, what comes then is lost.
        listener = threading.Thread(target=_listen, args=(inbox, heard))
        listener.start()
        daemon.start()
        daemon.create("a")
        wait_until(lambda: wanted <= set(heard), 60)
        daemon.stop()
        listener.join(30)
    assert b"STOPPING=1" in heard


def test_systemd_hears_that_it_serves_once_queues_answer(daemon, tmp_path):
    """Of two, one cannot start: it does not keep the other from being used."""
    daemon.start()
    for name in ("good", "bad"):
        daemon.create(name)
    daemon.until_up("bad")
    daemon.stop()
    daemon.root.queue("bad").config.write_text('{"name": "bad", "scrip": "x"}')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(tmp_path / "notify"))
        inbox.settimeout(60)
        daemon.env["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        daemon.start()
        while inbox.recv(999) != b"READY=1":
            continue
        assert daemon.ask_queue("good", "status") == ["UP"]
        assert daemon.child("bad")["state"] in (Child.BACKOFF, Child.FATAL)


def _listen(inbox, heard):
    with contextlib.suppress(TimeoutError):
        while b"STOPPING=1" not in heard:
            heard.append(inbox.recv(999))


# ---- queues that cannot start


@pytest.mark.slow
def test_a_queue_that_only_a_person_can_mend_is_not_tried_again(shared):
    shared.create("q")
    config_path = shared.root.queue("q").config
    good = config_path.read_text()
    config_path.write_text('{"name": "q", "scrip": "x"}')
    shared.ask("restart_queue", "q")
    wait_until(lambda: shared.child("q")["state"] == Child.FATAL)
    assert "script" in shared.child("q")["reason"]
    assert shared.ask("queues") == ["q"]
    assert shared.ask("restart_queue", "q") == ["ok", "q"]
    wait_until(lambda: shared.child("q")["restarts"] == 2)
    config_path.write_text(good)
    shared.until_up("q")


@pytest.mark.slow
def test_a_config_that_is_mended_before_the_end_is_heard_of_is_tried(shared):
    shared.create("q")
    config_path = shared.root.queue("q").config
    good = config_path.read_text()
    config_path.write_text('{"name": "q", "scrip": "x"}')
    forks = shared.child("forks")["pid"]
    os.kill(forks, signal.SIGSTOP)
    try:
        shared.kill("q")
        wait_until(lambda: shared.child("q")["state"] == Child.STARTING)
        shared.process.send_signal(signal.SIGSTOP)
    finally:
        os.kill(forks, signal.SIGCONT)
    try:
        log = shared.root.log / "queue-q.log"
        wait_until(lambda: "'scrip'" in log.read_text())
        config_path.write_text(good)
    finally:
        shared.process.send_signal(signal.SIGCONT)
    shared.until_up("q")


def test_hup_takes_up_what_was_made_by_hand_and_drops_what_is_gone(shared):
    shared.create("old")
    path = shared.root.queue("new").path
    path.mkdir()
    files.write_state(
        path / "config.json", {"name": "new", "script": str(shared.script)}
    )
    shared.root.queue("old").config.unlink()
    shared.process.send_signal(signal.SIGHUP)
    shared.until_up("new")
    wait_until(lambda: shared.ask("queues") == ["new"])
    assert shared.root.queue("old").path.exists()


def test_hup_takes_up_what_has_changed_in_the_config(running):
    kept = json.loads(running.root.config.read_text())
    files.write_state(running.root.config, {**kept, "env": "another", "grace": 600})
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: running.ask("environment") == ["another"], 60)


def test_a_queue_whose_directory_comes_back_while_it_stops_is_minded_again(daemon):
    queue, table = daemon.root.queue("q"), Table(daemon.root, grace=1.0)
    files.make_queue(queue, {"script": str(daemon.script)}, {})
    table.mind_queues()
    queue.config.rename(queue.path / "away")
    table.mind_queues()
    assert (table.queue("q").wanted, table.forgetting) == (False, {"q"})
    (queue.path / "away").rename(queue.config)
    table.mind_queues()
    assert (table.queue("q").wanted, table.forgetting) == (True, set())


def test_what_is_no_queue_is_left_alone(daemon):
    for name in ("x.deleted.12", ".hidden", "no-config"):
        daemon.root.queue(name).path.mkdir()
    daemon.start()
    assert daemon.ask("queues") == []


# ---- bad clients


@pytest.mark.slow
def test_bad_clients_cost_only_themselves(shared):
    shared.create("q")
    before = {one["name"]: one["pid"] for one in shared.children()}
    sockets = [shared.root.supervisor_socket, shared.root.queue("q").socket]
    silent = [line for path in sockets for line in annoy(path)]
    assert shared.ask("ping") == ["pong"]
    assert shared.ask_queue("q", "ping") == ["pong"]
    assert {one["name"]: one["pid"] for one in shared.children()} == before
    # Half a frame is given up after its deadline.
    assert silent[0].recv(10) == b""
    for line in silent:
        line.close()


def test_many_silent_connections_do_not_shut_others_out_for_good(shared):
    path = shared.root.supervisor_socket
    lines = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(path))
            lines.append(line)
    for line in lines:
        line.close()
    wait_until(lambda: shared.ask("ping") == ["pong"])


# ---- descriptors, places


def test_children_get_no_descriptor_but_their_own(daemon):
    leak_read, leak = os.pipe()
    os.set_inheritable(leak, True)
    daemon.start(pass_fds=(leak,))
    daemon.create("a")
    daemon.create("b")
    leaked = os.readlink(f"/proc/self/fd/{leak}")
    pids = {one["name"]: one["pid"] for one in daemon.children()}
    of_supervisor = inodes(daemon.process.pid)
    for name, pid in pids.items():
        seen = inodes(pid)
        assert leaked not in seen, name
        shared = {one for one in seen & of_supervisor if one.startswith("socket:")}
        assert shared == set(), name
        assert not any(one.startswith("anon_inode:[pidfd]") for one in seen), name
    common = inodes(pids["a"]) & inodes(pids["b"])
    pipes = {one for one in common if one.startswith(("pipe:", "socket:"))}
    assert len(pipes) <= 1, "the sign of the supervisor's life alone"
    # Nobody but the supervisor can make it live on.
    for pid in pids.values():
        assert not pipes & writable_pipes(pid)
    os.close(leak)
    os.close(leak_read)


@pytest.mark.slow
def test_a_deep_root_works(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60) / "root"
    with daemon_on(deep) as daemon:
        daemon.start()
        daemon.create("q" * 100)
        assert daemon.ask_queue("q" * 100, "ping") == ["pong"]
        assert daemon.stop() == 0


def test_nobody_answers_when_it_does_not_run(daemon):
    with pytest.raises(Unreachable):
        client.ask(daemon.root.supervisor_socket, "ping")


def test_status_tells_what_the_command_line_needs(shared):
    shared.create("q")
    status = shared.ask("status")
    assert status["pid"] == shared.process.pid
    assert status["environment"] == "test"
    kinds = {one["kind"] for one in status["children"]}
    assert kinds == {"forks", "scandir", "timers", "queue"}
    one = next(one for one in status["children"] if one["name"] == "q")
    assert set(one) == {
        "name",
        "kind",
        "state",
        "wanted",
        "pid",
        "since",
        "restarts",
        "reason",
        "held",
    }
    assert abs(one["since"] - time.time()) < 30


# ---- what cannot be started


@pytest.mark.slow
def test_a_queue_whose_lock_cannot_be_opened_is_tried_again_and_ends(running):
    running.create("a")
    running.create("b")
    lock = running.root.queue("a").lock
    spare = lock.with_name("lock.spare")
    lock.rename(spare)
    lock.mkdir()
    running.kill("a")
    wait_until(lambda: "lock" in running.child("a")["reason"])
    assert running.ask_queue("b", "ping") == ["pong"]
    lock.rmdir()
    spare.rename(lock)
    running.until_up("a", 60)
    lock.unlink()
    lock.mkdir()
    running.kill("a")
    wait_until(lambda: "lock" in running.child("a")["reason"])
    assert running.stop() == 0
    assert running.processes() == []


@pytest.mark.slow
def test_a_supervisor_without_descriptors_tries_again_and_ends(running):
    running.create("a")
    pid = running.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    line = client.Connection(running.root.supervisor_socket, 20)
    with line:
        assert line.ask("ping") == ["pong"]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, before[1]))

        def child(name):
            children = line.ask("status")["children"]
            return next(one for one in children if one["name"] == name)

        for name in ("timers", "scandir", "a"):
            os.kill(child(name)["pid"], signal.SIGKILL)
        for name in ("timers", "scandir", "a"):
            wait_until(lambda name=name: "open files" in child(name)["reason"])
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    for name in ("timers", "scandir", "a"):
        running.until_up(name, 60)
    assert running.stop() == 0
    assert running.processes() == []


# ---- what lies in queue/ and is none


@pytest.mark.slow
def test_a_link_to_a_queue_is_no_queue_and_its_deletion_harms_none(running):
    running.create("a")
    kept = running.ask_queue("a", "create_message", {"dest": "a", "due": 4e9})
    pid = running.child("a")["pid"]
    queues = running.root.queues
    (queues / "b").symlink_to("a")
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "link to queue a" in running.ask("status")["unusable"]["b"])
    assert running.ask("queues") == ["a"]
    made = {"name": "b", "script": str(running.script)}
    assert running.ask("create_queue", made) == ["fail", "already created"]
    word, why = running.ask("define_queue", {"config": made, "link": "b"})
    assert (word, "link to another queue" in why) == ("fail", True)
    assert running.ask("delete_queue", "b") == ["ok", "started deleting queue"]
    wait_until(lambda: not os.path.lexists(queues / "b"))
    assert running.ask("status")["unusable"] == {}
    (link,) = trash.ls(running.root)
    assert (link.name, os.readlink(link.path)) == ("b", "a")
    assert [one.path for one in trash.empty([link])] == [link.path]
    running.process.send_signal(signal.SIGHUP)
    assert running.stop() == 0
    running.start()
    assert running.until_up("a")["pid"] != pid
    found = running.ask_queue("a", "get_message", {"msg_id": kept[1].split("/")[-1]})
    assert found[1]["state"] == "que"
    assert not os.path.lexists(link.path)


def test_what_cannot_be_a_queue_is_named(shared):
    odd = shared.root.queues / "two words"
    odd.mkdir()
    (odd / "config.json").write_text("{}")
    assert "letters" in shared.ask("status")["unusable"]["two words"]
    done = subprocess.run(
        **shared.command("rq.cli", "status"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "queue/two words is not used: " in done.stdout
