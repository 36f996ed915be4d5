"""Slots in tasks of a local Spark: told to stop, and refused. On a cluster:
test_cluster.py."""

from __future__ import annotations

import threading

import psutil
import pytest
from harness.waiting import wait_until
from harness.web_server import served

pytest.importorskip("pyspark")

from rq.errors import Refused
from rq.spark import lease_work


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("work")) as found:
        yield found


def work(web, name, place, text="exit 1"):
    """Return what is to be done for a queue, by a script."""
    (place / "run").write_text(f"#!/bin/sh\n{text}\n")
    (place / "run").chmod(0o755)
    return lease_work.Work(
        url=f"http://127.0.0.1:{web.port}/q/{name}",
        slots=2,
        seconds=None,
        script=place,
        token=None,
        insecure=False,
        label="local",
    )


def test_a_stop_ends_the_scripts_and_gives_their_messages_back(spark, web, tmp_path):
    name = web.queue("exit 1", num_workers=0, pull={})
    msg_id = web.send(name, param1=str(tmp_path / "pid"))
    todo = work(web, name, tmp_path, 'echo $$ > "$RQ_PARAM1"; sleep 3600')
    ear = lease_work.Ear(threading.Event(), lambda text: None)
    thread = threading.Thread(target=lease_work.run, args=(spark, todo, ear))
    thread.start()
    try:
        script = psutil.Process(int(wait_until((tmp_path / "pid").read_text, 120)))
        assert script.is_running()
    finally:
        ear.stop.set()
        thread.join()
    wait_until(lambda: not script.is_running())
    wait_until(lambda: web.state(name, msg_id) == "que")
    assert (
        web.daemon.ask_queue(name, "get_message", {"msg_id": msg_id})[1]["count"] == 0
    )


def test_a_queue_that_hands_out_no_leases_is_told_in_its_own_sentence(
    spark, web, tmp_path
):
    todo = work(web, web.queue("exit 1"), tmp_path)
    ear = lease_work.Ear(threading.Event(), lambda text: None)
    with pytest.raises(Refused, match='hands out no leases: set "pull"'):
        lease_work.run(spark, todo, ear)


@pytest.mark.slow
def test_an_agent_that_stands_still_keeps_a_message_no_longer_than_its_lease(
    spark, web, tmp_path
):
    name = web.queue("exit 1", num_workers=0, pull={"seconds": 3})
    first = 'mkdir "$RQ_PARAM1" && { echo $$ > "$RQ_PARAM1/pid"; exec sleep 3600; }'
    todo = work(web, name, tmp_path, f"{first}\necho done again >&3")
    msg_id = web.send(name, param1=str(tmp_path / "first"))
    ear = lease_work.Ear(threading.Event(), lambda text: None)
    thread = threading.Thread(target=lease_work.run, args=(spark, todo, ear))
    thread.start()
    try:
        pid = int(wait_until((tmp_path / "first/pid").read_text, 120))
        agent = psutil.Process(pid).parent()
        agent.suspend()
        wait_until(lambda: web.state(name, msg_id) == "done", 120)
        agent.kill()
    finally:
        ear.stop.set()
        thread.join()
    told = web.daemon.ask_queue(name, "get_message", {"msg_id": msg_id})[1]
    assert told["count"] == 1
