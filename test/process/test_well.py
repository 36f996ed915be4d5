"""`rq status` and /readyz: what is not well is said, each to who can do something."""

import http.client
import json
import os
import signal

import pytest
from harness.cli import rq
from harness.waiting import wait_until
from harness.web_server import served

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("well")) as web:
        yield web


@pytest.fixture(autouse=True)
def well(web):
    """At the start of each test all is well: it leaves no queue behind."""
    wait_until(lambda: web.get("/readyz").text == "ok\n", 60)
    yield
    for name in web.daemon.ask("queues"):
        assert web.daemon.ask("delete_queue", name)[0] == "ok"
    wait_until(lambda: not web.daemon.ask("queues"), 60)


def status(web):
    """Return exit code, printed text, and the sentences of `rq status`."""
    path = web.daemon.root.path
    for _ in range(3):  # what is not well may change between the two
        shown = json.loads(rq("status", "--json", root=path).stdout)
        done = rq("status", root=path)
        if shown["well"] is (done.returncode == 0):
            break
    assert shown["well"] is (done.returncode == 0)
    return done.returncode, done.stdout, [one["said"] for one in shown["trouble"]]


def test_a_queue_at_work_is_well(web):
    name = web.queue("echo done >&3")
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "done")
    wait_until(lambda: web.get("/readyz").text == "ok\n")
    code, _, said = status(web)
    assert (code, said) == (0, [])


def test_errors_are_told_by_status_and_do_not_close_the_door(web):
    name = web.queue("echo err >&3")
    for _ in range(2):
        msg_id = web.send(name)
        wait_until(lambda one=msg_id: web.state(name, one) == "err")
    code, text, _ = status(web)
    assert code == 1
    assert f"{name} has 2 messages that failed: `rq ls {name} --state err`" in text
    assert web.get("/readyz").text == "ok\n"
    assert rq("ack", "--all", name, root=web.daemon.root.path).returncode == 0
    assert status(web)[0] == 0


def test_a_queue_that_stands_still_is_told_by_both(web):
    name = web.queue("echo done >&3", num_workers=0)
    assert status(web)[0] == 0
    web.send(name)
    code, text, _ = status(web)
    assert code == 1
    assert f"{name} makes no progress: messages are due, and num_workers is 0" in text
    answer = web.get("/readyz")
    assert (answer.status, answer.text) == (503, f"queue {name} makes no progress\n")
    assert rq("queue", "pause", name, root=web.daemon.root.path).returncode == 0
    wait_until(lambda: web.get("/readyz").text == "ok\n")  # somebody wants it so
    wait_until(lambda: status(web)[0] == 0)


@pytest.mark.slow
def test_queues_that_stand_frozen_do_not_keep_a_monitor_waiting(web):
    """It hangs up after some seconds, and would not read which queue it is."""
    names = sorted(web.queue("echo done >&3") for _ in range(3))
    wait_until(lambda: web.get("/readyz").text == "ok\n")
    pids = [web.daemon.child(name)["pid"] for name in names]
    line = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        line.request("GET", "/readyz")
        assert (
            line.getresponse().read() == f"queue {names[0]} does not answer\n".encode()
        )
    finally:
        line.close()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: web.get("/readyz").text == "ok\n")


def test_a_script_that_cannot_be_started_is_told_by_both(web):
    name = web.queue("echo done >&3")
    (web.daemon.root.path / f"{name}.script").unlink()
    web.send(name)
    said = f"queue {name} cannot start its script\n"
    wait_until(lambda: web.get("/readyz").text == said)
    code, text, _ = status(web)
    assert code == 1
    assert f"{name} cannot start its script: " in text
    assert "no such file" in text


def test_a_queue_that_should_be_up_and_is_not_is_told_by_both(web):
    name = web.queue("echo done >&3")
    web.daemon.root.queue(name).config.write_text("{")
    web.daemon.ask("restart_queue", name)
    said = f"queue {name} is FATAL\n"
    wait_until(lambda: web.get("/readyz").text == said, 60)
    assert web.get("/readyz").status == 503
    code, text, _ = status(web)
    assert code == 1
    assert f"{name} is FATAL: " in text
    assert rq("queue", "down", name, root=web.daemon.root.path).returncode == 0
    wait_until(lambda: web.get("/readyz").text == "ok\n")
    assert status(web)[0] == 0


def test_a_timer_that_cannot_be_read_is_told_by_status(web):
    broken = web.daemon.root.timers / "daily.json"
    broken.write_text("{")
    try:
        wait_until(lambda: status(web)[0] == 1)
        assert "timers/daily.json: " in status(web)[1]
    finally:
        broken.unlink()
    wait_until(lambda: status(web)[0] == 0)


def test_an_rq_that_does_not_run_has_its_own_exit_code(tmp_path):
    (tmp_path / "config").mkdir()
    done = rq("status", root=tmp_path)
    assert done.returncode == 6
    assert "RQ is not running" in done.stdout
