"""scandir with a real supervisor: links are queues, and mistakes remove nothing."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest
from harness.cli import rq
from harness.supervisor import annoy
from harness.waiting import wait_until
from harness.without import refusing

from rq import config
from rq.config import trash
from rq.errors import NoSuchQueue, Refused
from rq.rpc import client, wire
from rq.scandir.passes import GONE_FOR

pytestmark = pytest.mark.process


@pytest.fixture
def running(daemon):
    daemon.start()
    daemon.until_up("scandir")
    return daemon


def hide_watchdog(daemon, tmp_path):
    """Let the machine be one without watchdog."""
    package = tmp_path / "hidden" / "watchdog"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('hidden')\n")
    daemon.env["PYTHONPATH"] = str(tmp_path / "hidden")


def linked(daemon, name, settings=None):
    directory = daemon.define(name, settings)
    daemon.link(name, directory)
    daemon.until_up(name)
    return directory


def errors(daemon):
    return daemon.ask("status")["scandir"].get("errors", {})


def settings_of(daemon, name):
    return daemon.ask_queue(name, "config")[1]


def listed(daemon):
    return daemon.ask("queues")


# ---- making


def test_a_link_is_a_queue_soon(shared):
    directory = shared.define("q", {"num_workers": "3", "coalesce_params": [1]})
    (directory / "form.json").write_text('{"default": "hidden"}')
    shared.link("q", directory)
    shared.until_up("q", 20)
    queue = shared.root.queue("q")
    written = config.read_json(queue.config)
    assert written["name"] == "q"
    assert written["script"] == str(directory / "run")
    assert written["num_workers"] == 3
    assert written["exec_prefix"] == ""
    assert json.loads(queue.form.read_text()) == {"default": "hidden"}


@pytest.mark.slow
def test_a_link_is_a_queue_without_hints_too(daemon, tmp_path):
    hide_watchdog(daemon, tmp_path)
    daemon.start()
    linked(daemon, "q")
    (daemon.root.scandir / "q").unlink()
    wait_until(lambda: listed(daemon) == [], 60)


@pytest.mark.slow
def test_a_link_is_a_queue_where_the_kernel_gives_no_hints(daemon):
    """As where all instances of inotify that a user may have are used up."""
    daemon.before = refusing(inotify="EMFILE")
    daemon.start()
    linked(daemon, "q")
    assert daemon.child("scandir")["restarts"] == 0
    (daemon.root.scandir / "q").unlink()
    wait_until(lambda: listed(daemon) == [], 60)
    said = rq("doctor", "--quick", root=daemon.root.path).stdout
    assert "timers and flags are found by looking every second: no hints of" in said
    assert "raise fs.inotify.max_user_instances with sysctl" in said


def test_a_component_that_dies_at_its_start_leaves_its_traceback_in_its_own_log(
    daemon, tmp_path
):
    package = tmp_path / "broken" / "watchdog"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ZeroDivisionError('broken')\n")
    daemon.env["PYTHONPATH"] = str(tmp_path / "broken")
    daemon.root.log.mkdir(exist_ok=True)
    (daemon.root.log / "scandir.log").write_text("I an older line\n")
    daemon.start()
    why = "ended with status 1; the last line of its log: ZeroDivisionError: broken"
    wait_until(lambda: daemon.child("scandir")["reason"] == why, 60)
    log = (daemon.root.log / "scandir.log").read_text()
    assert "Traceback (most recent call last)" in log


def test_a_definition_without_config_gets_the_defaults(shared):
    linked(shared, "q")
    settings = settings_of(shared, "q")
    assert settings["num_workers"] == 1
    assert settings["exec_prefix"] == ""


def test_a_relative_link_works_and_its_form_does_not_dangle(shared):
    directory = shared.define("q")
    (directory / "form.json").write_text("{}")
    (shared.root.scandir / "q").symlink_to("../definitions/q")
    shared.until_up("q")
    assert shared.root.queue("q").form.exists()
    (directory / "form.json").unlink()
    wait_until(lambda: not shared.root.queue("q").form.is_symlink(), 60)


def test_a_link_through_a_moving_target_keeps_the_moving_part(shared):
    releases = shared.root.path / "releases"
    for number in ("1", "2"):
        shutil.copytree(shared.define("q"), releases / number / "q")
    (releases / "current").symlink_to("1")
    (shared.root.scandir / "q").symlink_to(releases / "current" / "q")
    shared.until_up("q")
    assert settings_of(shared, "q")["script"] == str(releases / "current/q/run")


@pytest.mark.slow
def test_a_new_queue_is_not_restarted_afterwards(shared):
    linked(shared, "q", {"num_workers": 2})
    before = shared.child("q")
    end = time.monotonic() + 5
    wait_until(lambda: time.monotonic() > end)
    after = shared.child("q")
    assert (after["pid"], after["restarts"]) == (before["pid"], 0)


def test_a_changed_config_arrives_without_a_restart(shared):
    directory = linked(shared, "q", {"num_workers": 2})
    pid = shared.child("q")["pid"]
    (directory / "config.json").write_text('{"num_workers": 5}')
    wait_until(lambda: settings_of(shared, "q")["num_workers"] == 5, 60)
    (directory / "config.json").unlink()
    wait_until(lambda: settings_of(shared, "q")["num_workers"] == 1, 60)
    assert shared.child("q")["pid"] == pid


def test_a_directory_without_run_is_a_queue_whose_workers_are_elsewhere(shared):
    directory = shared.define("q", {"pull": {}})
    (directory / "run").unlink()
    shared.link("q", directory)
    shared.until_up("q")
    assert errors(shared) == {}
    assert settings_of(shared, "q")["num_workers"] == 0
    (directory / "config.json").write_text("{}")
    wait_until(lambda: '"pull": {}' in errors(shared).get("q", ""), 60)


# ---- mistakes


MISTAKES = [
    (lambda d: (d / "config.json").write_text("{"), "is not JSON"),
    (lambda d: (d / "config.json").write_text('{"nice": "x"}'), "nice"),
    (lambda d: (d / "config.json").write_text('{"num_worker": 1}'), "num_workers"),
    (lambda d: (d / "run").chmod(0o644), "is not executable"),
    (lambda d: (d / "run").unlink(), "is missing"),
    (lambda d: d.rename(d.with_name("elsewhere")), "leads to"),
]


def test_a_mistake_is_shown_and_the_queue_goes_on(shared):
    directory = linked(shared, "q", {"num_workers": 2})
    good = shutil.copytree(directory, directory.with_name("good"))
    pid = shared.child("q")["pid"]
    for mistake, told in MISTAKES:
        mistake(directory)
        wait_until(lambda told=told: told in errors(shared).get("q", ""), 60)
        assert listed(shared) == ["q"], told
        assert settings_of(shared, "q")["num_workers"] == 2, told
        assert shared.child("q")["pid"] == pid, told
        shutil.copytree(good, directory, dirs_exist_ok=True)
        wait_until(lambda: errors(shared) == {})


def test_a_mistake_that_is_mended_is_shown_no_longer(shared):
    directory = linked(shared, "q")
    (directory / "config.json").write_text("{")
    wait_until(lambda: "q" in errors(shared))
    (directory / "config.json").write_text('{"num_workers": 4}')
    wait_until(lambda: errors(shared) == {})
    wait_until(lambda: settings_of(shared, "q")["num_workers"] == 4)


def test_what_is_no_link_or_has_no_good_name_is_shown(shared):
    (shared.root.scandir / "folder").mkdir()
    shared.link("no.good", shared.define("x"))
    wait_until(lambda: set(errors(shared)) == {"folder", "no.good"})
    assert "is not a symlink" in errors(shared)["folder"]
    assert "invalid characters" in errors(shared)["no.good"]
    assert listed(shared) == []


@pytest.mark.slow
def test_a_scandir_that_cannot_be_read_removes_nothing(shared):
    linked(shared, "q")
    shared.root.scandir.rename(shared.root.path / "away")
    wait_until(lambda: "scandir" in errors(shared), 60)
    assert listed(shared) == ["q"]
    (shared.root.path / "away").rename(shared.root.scandir)
    wait_until(lambda: errors(shared) == {}, 60)
    assert listed(shared) == ["q"]


# ---- removing, the trash, coming back


def test_a_removed_link_moves_the_queue_to_the_trash_and_a_new_one_brings_it_back(
    shared,
):
    directory = linked(shared, "q")
    keepsake = shared.root.queue("q").path / "keepsake"
    keepsake.write_text("1")
    (shared.root.scandir / "q").unlink()
    wait_until(lambda: listed(shared) == [])
    [one] = trash.ls(shared.root)
    assert one.name == "q"
    assert (one.path / "keepsake").exists()
    shared.link("q", directory)
    shared.until_up("q")
    assert keepsake.read_text() == "1"
    assert trash.ls(shared.root) == []


def test_kept_trash_does_not_come_back(shared):
    directory = linked(shared, "q")
    (shared.root.queue("q").path / "keepsake").write_text("1")
    (shared.root.scandir / "q").unlink()
    wait_until(lambda: listed(shared) == [])
    trash.keep(shared.root, "q")
    shared.link("q", directory)
    shared.until_up("q")
    assert not (shared.root.queue("q").path / "keepsake").exists()
    [one] = trash.ls(shared.root)
    assert one.kept
    assert list(trash.empty([one])) == [one]
    assert trash.ls(shared.root) == []


@pytest.mark.slow
def test_a_link_that_is_replaced_in_two_steps_removes_nothing(shared):
    directory = linked(shared, "q")
    for _ in range(5):
        pid = shared.until_up("q")["pid"]
        times = [replaced(shared, directory) for _ in range(5)]
        time.sleep(3)
        if sum(times) < GONE_FOR:
            break  # else a busy machine came between, and it was removed indeed
    assert shared.child("q")["pid"] == pid
    assert trash.ls(shared.root) == []


def replaced(daemon, directory):
    """Replace the link to a definition; return the seconds that this took."""
    began = time.monotonic()
    (daemon.root.scandir / "q").unlink()
    daemon.link("q", directory)
    return time.monotonic() - began


@pytest.mark.slow
def test_queues_made_through_the_api_are_not_scandirs(daemon):
    daemon.start()
    daemon.create("api")
    directory = linked(daemon, "linked")
    daemon.stop()
    (daemon.root.scandir / "linked").unlink()
    daemon.start()
    wait_until(lambda: listed(daemon) == ["api"], 60)
    daemon.until_up("api")
    daemon.link("api", directory)
    wait_until(lambda: "made through the API" in errors(daemon).get("api", ""))
    assert settings_of(daemon, "api")["script"] == str(daemon.script)


@pytest.mark.slow
def test_a_linked_queue_that_was_deleted_stays_deleted_until_it_is_linked_anew(shared):
    directory = linked(shared, "q")
    assert shared.ask("delete_queue", "q")[0] == "ok"
    wait_until(lambda: "was deleted" in errors(shared).get("q", ""), 60)
    assert listed(shared) == []
    (shared.root.scandir / "q").unlink()
    shared.link("q", directory)
    shared.until_up("q")


@pytest.mark.slow
def test_queues_of_the_ancestor_are_adopted_when_linked_and_else_left_alone(daemon):
    for name in ("linked", "other"):
        path = daemon.root.queue(name).path
        for state in ("prep", "que", "run", "done", "relayed", "err"):
            (path / state).mkdir(parents=True)
        settings = {"name": name, "script": str(daemon.script), "num_workers": "1"}
        (path / "config.json").write_text(json.dumps(settings))
    directory = daemon.define("linked", {"num_workers": 2})
    daemon.link("linked", directory)
    daemon.start()
    daemon.until_up("other")
    daemon.until_up("linked")
    wait_until(lambda: settings_of(daemon, "linked")["num_workers"] == 2, 60)
    assert settings_of(daemon, "linked")["script"] == str(directory / "run")
    (daemon.root.scandir / "linked").unlink()
    wait_until(lambda: listed(daemon) == ["other"], 60)


def test_only_the_trash_that_was_looked_at_is_deleted(daemon):
    for name in ("shown.1", "later.2"):
        (daemon.root.trash / name).mkdir()
        if name == "shown.1":
            shown = trash.ls(daemon.root)
    assert [one.name for one in trash.empty(shown)] == ["shown"]
    assert [one.name for one in trash.ls(daemon.root)] == ["later"]
    assert list(trash.empty(shown)) == []


def test_a_trash_that_is_owned_or_unknown_is_not_touched(shared):
    shared.create("q")
    with pytest.raises(Refused):
        trash.put(shared.root, shared.root.queue("q"))
    with pytest.raises(NoSuchQueue):
        trash.keep(shared.root, "q")
    assert shared.ask_queue("q", "ping") == ["pong"]


# ---- hints


def test_who_answers_a_hint_with_nonsense_does_not_end_scandir(daemon):
    heard = threading.Semaphore(0)
    ready, theirs = os.pipe()
    told = daemon.command("rq.scandir", "--ready-fd", str(theirs))
    with client.listen(daemon.root.timers_socket) as sock:
        sock.setblocking(True)
        talker = threading.Thread(target=babble, args=(sock, heard), daemon=True)
        talker.start()
        process = subprocess.Popen(**told, pass_fds=(theirs,))
        os.close(theirs)
        assert os.read(ready, 10) == b"\n"
        os.close(ready)
        for number in range(3):
            asked = time.monotonic()
            while not heard.acquire(timeout=0.5):
                (daemon.root.timers / f"{number}.json").touch()
                assert time.monotonic() < asked + 30
                assert process.poll() is None
        sock.shutdown(socket.SHUT_RDWR)
        talker.join(60)
    process.kill()
    process.wait()


def babble(sock, heard):
    with contextlib.suppress(OSError):
        while True:
            line, _ = sock.accept()
            with line:
                line.recv(4096)
                line.sendall(wire.frame(b"nonsense", wire.MAGIC2))
            heard.release()


def test_a_flag_made_by_hand_reaches_the_queue_at_once(shared):
    linked(shared, "q")
    shared.root.down("q").touch()
    wait_until(lambda: shared.ask_queue("q", "status") == ["DOWN"])
    shared.root.down("q").unlink()
    wait_until(lambda: shared.ask_queue("q", "status") == ["UP"])


@pytest.mark.slow
def test_scandir_goes_on_after_kill_and_when_the_supervisor_is_annoyed(running):
    linked(running, "q")
    dead = running.kill("scandir")
    for line in annoy(running.root.supervisor_socket):
        line.close()
    wait_until(
        lambda: running.is_up("scandir") and running.child("scandir")["pid"] != dead
    )
    assert running.child("q")["restarts"] == 0
    linked(running, "r")
    assert os.listdir(running.root.trash) == []


def test_a_name_that_is_no_text_is_said_and_stops_no_other(shared):
    odd = os.fsdecode(b"caf\xe9")
    directory = linked(shared, "good")
    away = shared.root.path / odd
    (shared.root.scandir / odd).symlink_to(directory)
    (shared.root.scandir / "away").symlink_to(away)
    (shared.root.timers / f"{odd}.json").write_text("{}")
    wait_until(lambda: {"caf<U+DCE9>", "away"} <= set(errors(shared)))
    wait_until(lambda: shared.ask("status")["timers"].get("errors"))
    assert list(shared.ask("status")["timers"]["errors"]) == ["caf<U+DCE9>.json"]
    rows = rq("timer", "ls", "--json", root=shared.root.path)
    assert [row["name"] for row in json.loads(rows.stdout)] == ["caf<U+DCE9>.json"]
    settings = directory / "config.json"
    settings.write_text(json.dumps({"num_workers": 3}))
    wait_until(lambda: settings_of(shared, "good")["num_workers"] == 3)
