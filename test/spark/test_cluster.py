"""On a cluster: rows become messages, all of a job or none, whatever becomes of its tasks
and of its driver; and slots work on the messages of a queue."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness.waiting import wait_until
from harness.web_server import served

pytest.importorskip("pyspark")

from harness.leases import credentials
from harness.spark_cluster import cluster_at, end
from harness.spark_slots import SAY, Slots

from rq.access.roles import Role
from rq.spark import lease_task

HERE = Path(__file__).resolve().parent
ROWS = list(range(40))
ENDING = ("plain", "once", "always")  # of write_job.py: those that end
SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "3s",
}


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("sink")) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(java_home, tmp_path_factory):
    with cluster_at(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("j")


# The drivers of this file. One that waits to be killed keeps its cores, and the test that
# kills it may be one of another day: who needs the cluster next ends it.
DRIVERS = []


def end_earlier():
    while DRIVERS:
        end(DRIVERS.pop())


@contextlib.contextmanager
def driver_of(cluster, web, place, *cases, **conf):
    """Run a driver that writes to a queue for each case."""
    end_earlier()
    env = cluster.environment(web.daemon.root.path)
    env["RQ_SPARK_CONF"] = json.dumps({**json.loads(env["RQ_SPARK_CONF"]), **conf})
    for case in cases:
        name = f"{place.name}-{case}"
        web.queue("echo done >&3", name)
        web.post(f"/q/{name}/adminoper", {"pause": "1"})
    url = f"http://127.0.0.1:{web.port}/"
    words = [str(HERE / "write_job.py"), str(place), url, place.name, *cases]
    with (place / "driver.log").open("ab") as log:
        made = subprocess.Popen(
            [sys.executable, *words],
            env=env,
            cwd=place,
            stdout=log,
            stderr=log,
        )
    DRIVERS.append(made)
    try:
        yield made
    finally:
        end(made)


@pytest.fixture(scope="module")
def driver(cluster, web, place):
    with driver_of(cluster, web, place, *ENDING, "during") as made:
        yield made


@pytest.fixture(scope="module")
def second_driver(cluster, web, place):
    cases = ("slow", "twice", "before")
    with driver_of(cluster, web, place, *cases, **SPECULATING) as made:
        yield made


def until_there(driver, *files):
    """Wait until the driver has made these files."""
    wait_until(
        lambda: driver.poll() is not None or all(one.exists() for one in files), 300
    )
    log = files[0].parent / "driver.log"
    assert all(one.exists() for one in files), log.read_text()[-4000:]


def sent(web, name):
    """Return which rows wait in que, read from their folders; None while some are
    still to be made, or are in prep."""
    counts = web.get(f"/q/{name}.json").json
    texts = web.daemon.root.queue(name).path.glob("que/*/msg")
    rows = sorted(int(json.loads(one.read_bytes())["param2"]) for one in texts)
    settled = counts["prep_size"] == 0 and counts["que_size"] == len(rows)
    return rows if settled else None


def transactions(web, name):
    return web.get(f"/api/v1/queues/{name}/txn").json["transactions"]


@pytest.mark.slow
@pytest.mark.usefixtures("all_on_loopback")
def test_a_job_sends_each_row_once_though_its_tasks_fail(driver, web, place):
    said = [place / f"{case}.said" for case in ENDING]
    until_there(driver, *said)
    wait_until(lambda: all(one.read_text() for one in said), 30)
    assert [one.read_text() for one in said] == ["ok", "ok", "failed"]
    for case in ENDING:
        name, rows = f"{place.name}-{case}", [] if case == "always" else ROWS
        wait_until(lambda name=name: sent(web, name) is not None, 30)
        assert sent(web, name) == rows
        assert transactions(web, name) == []


@pytest.mark.slow
def test_a_driver_that_is_killed_while_it_commits_has_sent_all(driver, web, place):
    until_there(driver, place / "during.there")
    kill(driver)
    wait_until(lambda: sent(web, f"{place.name}-during") == ROWS, 60)
    assert transactions(web, f"{place.name}-during") == []


@pytest.mark.slow
def test_of_two_attempts_of_a_task_the_one_that_ends_first_counts(
    second_driver, web, place
):
    said = place / "slow.said"
    until_there(second_driver, said)
    assert (place / "slow-0").exists()  # both had prepared their rows
    assert (place / "slow-1").exists()
    wait_until(said.read_text, 30)
    assert said.read_text() == "ok"
    name = f"{place.name}-slow"
    wait_until(lambda: sent(web, name) is not None, 30)
    assert sent(web, name) == ROWS
    assert transactions(web, name) == []


@pytest.mark.slow
def test_a_driver_that_is_killed_before_it_commits_has_sent_nothing(
    second_driver, web, place
):
    until_there(second_driver, place / "before.there")
    kill(second_driver)
    # It stays as it was, until its time is over or somebody says so.
    name = f"{place.name}-before"
    [left] = transactions(web, name)
    assert left["messages"] >= len(ROWS)  # more if a task was slow, and tried twice
    web.post(f"/api/v1/queues/{name}/txn/{left['txn']}/abort")
    wait_until(lambda: sent(web, name) == [], 60)
    # What had been decided stays, though it was asked for twice.
    assert (place / "twice.said").read_text() == "ok"
    assert sent(web, f"{place.name}-twice") == ROWS


def kill(driver):
    """kill -9 a driver and all that it has started."""
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


# ---- slots of a queue

ENDS = [
    "say done fine",
    "say err by design; exit 3",
    "say run half way",
    "exit 7",
    "say done fine; exit 1",
    "say resend 0-again",
    "kill -9 $$",
    "exec python3 -c 'import os; os.write(3, b\"done python\\n\")'",
    'exec perl -e \'open(F, ">&=3"); print F "err perl\\n"\'',
    'exec ruby -e \'IO.for_fd(3, "w").puts "done ruby"\'',
]


@pytest.fixture(scope="module")
def token_file(web, tmp_path_factory):
    """Give a file with a token that may lease, and nothing else."""
    header = credentials(web.daemon.root, "slots", Role.WORKER)["Authorization"]
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(header.removeprefix("Bearer "))
    path.chmod(0o600)
    return path


def told_to(events):
    """Let Spark write down all that its pages would show."""
    events.mkdir()
    directory = {"spark.eventLog.dir": events.as_uri()}
    plain = {"spark.eventLog.compress": "false", "spark.eventLog.enabled": "true"}
    return {**directory, **plain, "spark.eventLog.rolling.enabled": "false"}


@pytest.fixture(scope="module")
def slots(cluster, web, token_file, tmp_path_factory):
    place = tmp_path_factory.mktemp("slots")
    (place / "run").write_text('#!/bin/sh\neval "$RQ_PARAM1"\n')
    (place / "run").chmod(0o755)
    name = web.queue("exit 1", "slots", num_workers=0, pull={"seconds": 10})
    env = cluster.environment(place)
    nowhere = {
        f"spark.executorEnv.{var}": "/nowhere" for var in ("PYTHONPATH", "RQ_ROOT")
    }
    env["RQ_SPARK_CONF"] = json.dumps(
        {**json.loads(env["RQ_SPARK_CONF"]), **nowhere, **told_to(place / "events")}
    )
    end_earlier()
    url = f"http://127.0.0.1:{web.port}/q/{name}"
    words = ["spark", "work", url, "--slots", "2", "--script", str(place)]
    words += ["--token-file", str(token_file)]
    with (place / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rq.cli", "--root", str(place), *words],
            env=env, cwd=place, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield Slots(web, name, process, place)
    finally:
        end(process)


@pytest.mark.slow
def test_a_script_ends_on_a_cluster_as_it_ends_here(slots, web):
    here = web.queue('eval "$RQ_PARAM1"', "here", num_workers=2)
    fields = {"max_count": 2}
    there = [web.send(slots.name, param1=SAY + text, **fields) for text in ENDS]
    ours = [web.send(here, param1=SAY + text, **fields) for text in ENDS]
    for text, far, near in zip(ENDS, there, ours, strict=True):
        assert slots.shown(slots.name, far) == slots.shown(here, near), text


@pytest.mark.slow
def test_files_come_with_a_message_and_stay_with_it(slots, web, tmp_path):
    (tmp_path / "in").write_text("a file")
    turn = "mkdir results; tr a-z A-Z < ../attach/in > results/out; say done"
    msg_id = slots.sent_with(tmp_path / "in", turn)
    assert slots.shown(slots.name, msg_id)["state"] == "done"
    [out] = web.daemon.root.queue(slots.name).path.glob(
        f"done/*/*/*/{msg_id}/attach/out"
    )
    assert out.read_text() == "A FILE"


def known_to(script):
    """Return what a script and its agent are told, and have open."""
    agent = script.parent()
    files = [one.path for one in [*agent.open_files(), *script.open_files()]]
    told = [agent.environ(), script.environ(), agent.cmdline(), script.cwd(), files]
    assert agent.environ()["PYTHONPATH"].startswith(lease_task.own_directory())
    return json.dumps(told)


def of_spark(script, who):
    """Return the worker of Spark, or the executor, above a script."""
    agent = script.parent()
    worker = agent.parent()
    if who == "worker":
        return worker
    return next(one for one in worker.parents() if one.name() == "java")


def test_the_token_of_slots_is_in_no_argument_no_log_and_no_page(
    slots, web, cluster, token_file, tmp_path
):
    slots.held(tmp_path / "held")
    [lease] = slots.ask("leases")["leases"]
    assert lease["by"].startswith("token:slots/")
    secret = token_file.read_bytes()
    shown = [*psutil.process_iter(["cmdline", "environ"])]
    assert len([one for one in shown if one.info["cmdline"]]) > 5
    assert [one for one in shown if secret.decode() in str(one.info)] == []
    places = [cluster.place, slots.place, Path(lease_task.own_directory())]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(slots.place / "events") for path in files)
    assert [path for path in files if secret in content(path)] == []
    (tmp_path / "held/go").touch()


def content(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Spark has removed it
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", "executor"])
def test_a_slot_that_is_killed_ends_its_script_and_gives_the_message_back(
    slots, web, tmp_path, who
):
    msg_id, script = slots.held(tmp_path / "held")
    assert str(web.daemon.root.path) not in known_to(script)
    of_spark(script, who).kill()
    wait_until(lambda: not script.is_running())
    (tmp_path / "held/go").touch()
    shown = slots.shown(slots.name, msg_id)
    assert (shown["status"], shown["count"]) == ("done - held", 0)
    assert len((tmp_path / "held/pids").read_text().split()) == 2


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_no_script_and_no_lease(slots, tmp_path):
    msg_id, script = slots.held(tmp_path / "held")
    kill(slots.process)
    wait_until(lambda: not script.is_running())
    wait_until(lambda: slots.ask("leases")["leases"] == [], 60)
    assert slots.web.state(slots.name, msg_id) == "que"
