"""One verdict at every door: `rq status`, `check_rq`, `/api/v1/verdict`, the overview."""

import json

import pytest
from harness.checkout import CHECKOUT
from harness.cli import rq, run
from harness.leases import credentials
from harness.waiting import wait_until
from harness.web_server import served

from rq import layout
from rq.access.roles import Role

pytestmark = pytest.mark.process
DONE, ERR = "echo done >&3", "echo err >&3"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("verdict")) as web:
        yield web


@pytest.fixture(autouse=True)
def well(web):
    wait_until(lambda: check(web)[0] == 0, 60)
    yield
    for name in web.daemon.ask("queues"):
        assert web.daemon.ask("delete_queue", name)[0] == "ok"
    wait_until(lambda: not web.daemon.ask("queues"), 60)


def check(web, *words):
    done = run("rq.cli.check_rq", "-s", "127.0.0.1", "-p", str(web.port), *words)
    assert done.stderr == ""
    return done.returncode, done.stdout


def faults(troubles):
    return {
        (trouble["fault"], trouble["level"], trouble["who"]) for trouble in troubles
    }


def at_every_door(web):
    """Return what each door says: the troubles, and how bad it is."""
    shown = json.loads(rq("status", "--json", root=web.daemon.root.path).stdout)
    view, page = web.get("/api/v1/verdict").json, web.get("/overview.json").json
    return [
        (faults(shown["trouble"]), shown["level"]),
        (faults(view["troubles"]), view["level"]),
        (faults(page["trouble"]), page["level"]),
    ]


def all_say(web, *expected):
    level = max(
        (level for _, level, _ in expected), key=["OK", "WARNING", "CRITICAL"].index
    )
    wait_until(lambda: at_every_door(web) == [(set(expected), level)] * 3, 60)
    code, text = check(web)
    assert (code, text.partition(":")[0]) == (
        ["OK", "WARNING", "CRITICAL"].index(level),
        level,
    )
    return text


def test_a_queue_that_stands_still_is_critical(web):
    name = web.queue(DONE, num_workers=0)
    web.send(name)
    text = all_say(web, ("stalled", "CRITICAL", name))
    assert "num_workers is 0" in text


def test_failures_are_critical_until_the_operator_wants_them_told_later(web):
    name = web.queue(ERR)
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "err")
    all_say(web, ("failed", "CRITICAL", name))
    assert check(web, "--errors", "1:2")[0] == 1
    assert check(web, "--errors", "2:3")[0] == 0


def test_a_pause_is_a_warning(web):
    name = web.queue(DONE)
    assert rq("queue", "pause", name, root=web.daemon.root.path).returncode == 0
    all_say(web, ("paused", "WARNING", name))
    assert rq("status", root=web.daemon.root.path).returncode == 0


def test_a_timer_to_a_queue_that_is_missing_is_told_before_it_fires(web):
    path = web.daemon.root.timers / "nightly.json"
    path.write_text(json.dumps({"cron": "0 3 1 1 *", "msg": {"dest": "nowhere"}}))
    try:
        text = all_say(web, ("timer", "WARNING", "timers/nightly"))
        assert "there is no queue 'nowhere'" in text
    finally:
        path.unlink()
        wait_until(lambda: check(web)[0] == 0, 30)


def test_who_sees_some_queues_gets_the_verdict_on_these(web):
    ours, theirs = web.queue(ERR, "ours"), web.queue(ERR, "theirs")
    ids = {name: web.send(name) for name in (ours, theirs)}
    for name, msg_id in ids.items():
        wait_until(lambda q=name, m=msg_id: web.state(q, m) == "err")
    root = layout.Root(web.daemon.root.path)
    limited = credentials(root, "limited", Role.VIEWER, queues=("ours",))
    view = web.get("/api/v1/verdict", **limited).json
    assert faults(view["troubles"]) == {("failed", "CRITICAL", "ours")}
    figures = view["figures"]
    assert (figures["queues"], figures["failed"]) == (1, 1)
    assert "theirs" not in json.dumps(view)
    assert "disk_free_bytes" not in figures
    everything = web.get("/api/v1/verdict").json
    (trouble,) = everything["troubles"]
    assert trouble["queues"] == ["ours", "theirs"]


@pytest.mark.slow
def test_a_full_disk_is_one_critical_line_and_one_that_fills_a_warning(tmp_path):
    with served(tmp_path, min_free_bytes=2**60) as web:
        for name in ("a", "b"):
            web.queue(DONE, name)
        text = all_say(web, ("disk_full", "CRITICAL", "2 queues (a, b)"))
        assert text.count("the disk is full") == 1


def test_the_sample_failure_of_the_bundled_demo_is_no_alarm_and_that_of_another_is(web):
    root = web.daemon.root.path
    bundled = CHECKOUT / "rq/bundled/demo/run"
    web.daemon.create("demo", script=str(bundled), exec_prefix="")
    web.daemon.until_up("demo")
    msg_id = web.send("demo", param1="fail")
    wait_until(lambda: web.state("demo", msg_id) == "err")
    all_say(web, ("sample", "OK", "demo"))
    assert rq("status", root=root).returncode == 0
    assert web.daemon.ask("delete_queue", "demo")[0] == "ok"
    wait_until(lambda: "demo" not in web.daemon.ask("queues"), 60)
    name = web.queue(ERR, "demo")
    msg_id = web.send(name)
    wait_until(lambda: web.state(name, msg_id) == "err")
    all_say(web, ("failed", "CRITICAL", "demo"))
