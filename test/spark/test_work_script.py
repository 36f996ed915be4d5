"""The bundled queue `spark-work`: shifts of slots on Spark."""

from __future__ import annotations

import json
import shutil

import pytest
from harness.checkout import CHECKOUT
from harness.waiting import wait_until
from harness.web_server import served

pytest.importorskip("pyspark")

import psutil

from rq.errors import BadInput
from rq.spark import work_script
from rq.spark.work_script import Shift

PATIENCE = 240.0  # seconds: a busy machine starts Spark slowly
SCRIPT = '#!/bin/sh\necho "done in $PWD" >&3\n'


@pytest.fixture(scope="module")
def web(spark_env, tmp_path_factory):
    place = tmp_path_factory.mktemp("shifts")
    with served(place / "root") as found:
        root = found.daemon.root
        definition = place / "definition"
        definition.mkdir()
        (definition / "run").write_text(SCRIPT)
        (definition / "run").chmod(0o755)
        (definition / "config.json").write_text('{"num_workers": 0, "pull": {}}')
        found.daemon.link("far", definition)
        found.daemon.link("spark-work", bundled(place / "spark-work", spark_env))
        for name in ("far", "spark-work"):
            found.daemon.until_up(name)
        assert (root.scandir / "far" / "run").exists()
        yield found


def bundled(place, spark_env):
    """Return a copy of the bundled definition, with a small Spark."""
    shutil.copytree(CHECKOUT / "rq/bundled/spark-work", place)
    config = json.loads((place / "config.json").read_text())
    conf = json.loads(spark_env["RQ_SPARK_CONF"])
    config["spark"] = {"master": spark_env["RQ_SPARK_MASTER"], "conf": conf}
    config["env_vars"] = {"JAVA_HOME": spark_env["RQ_JAVA_HOME"]}
    (place / "config.json").write_text(json.dumps(config))
    return place


def shown(web, msg_id):
    return web.daemon.ask_queue("spark-work", "get_message", {"msg_id": msg_id})[1]


@pytest.mark.slow
def test_a_shift_works_on_a_queue_and_goes_on_after_a_stop(web):
    shift = web.send("spark-work", param1="far", param2="2")
    sent = [web.send("far", param1=str(number)) for number in range(4)]
    wait_until(
        lambda: all(web.state("far", msg_id) == "done" for msg_id in sent), PATIENCE
    )
    [java] = javas(web)
    assert shown(web, shift)["state"] == "run"
    pid = web.daemon.child("spark-work")["pid"]
    psutil.Process(pid).terminate()  # as a stop of RQ does
    wait_until(lambda: not java.is_running(), PATIENCE)
    wait_until(lambda: web.daemon.child("spark-work")["pid"] != pid, PATIENCE)
    web.daemon.until_up("spark-work")
    wait_until(lambda: shown(web, shift)["state"] == "run", PATIENCE)
    assert shown(web, shift)["count"] == 0
    late = web.send("far")
    wait_until(lambda: web.state("far", late) == "done", PATIENCE)
    web.daemon.ask_queue("spark-work", "cancel_message", {"msg_id": shift})
    wait_until(lambda: shown(web, shift)["state"] == "err", PATIENCE)
    assert "cancelled" in shown(web, shift)["status"]
    wait_until(lambda: not javas(web), PATIENCE)


def javas(web):
    """Return the Javas of the queue's scripts."""
    queue = psutil.Process(web.daemon.child("spark-work")["pid"])
    return [one for one in queue.children(recursive=True) if one.name() == "java"]


def test_a_shift_ends_with_its_time(web):
    shift = web.send("spark-work", param1="far", param3="1s")
    wait_until(lambda: shown(web, shift)["state"] == "done", PATIENCE)
    assert shown(web, shift)["status"] == "done - worked on far for 1 s"


@pytest.mark.parametrize(
    ("param1", "told"),
    [
        ("none-such", "there is no queue none-such here"),
        ("http://evil.example/q/far", "param1 names the queue to work on"),
    ],
)
def test_only_queues_of_this_root_are_worked_on(web, param1, told):
    shift = web.send("spark-work", param1=param1)
    wait_until(lambda: shown(web, shift)["state"] == "err", PATIENCE)
    assert told in shown(web, shift)["status"]


def test_what_a_message_asks_for():
    assert work_script.parse_shift(("q", "", "", "")) == Shift("q", 1, 3600.0)
    assert work_script.parse_shift(("q", "8", "10m", "")) == Shift("q", 8, 600.0)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (("", "", "", ""), "^param1 names the queue"),
        (("../q", "", "", ""), "^param1 names the queue"),
        (("q", "many", "", ""), "^param2 is the number of slots"),
        (("q", "0", "", ""), "^param2 is the number of slots"),
        (("q", "5000", "", ""), "^param2 is the number of slots"),
        (("q", "1", "for ever", ""), "^not a duration"),
    ],
)
def test_what_it_may_not_ask_for_is_told(params, told):
    with pytest.raises(BadInput, match=told):
        work_script.parse_shift(params)
