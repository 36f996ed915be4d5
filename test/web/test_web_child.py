"""The web as a child of the supervisor: started, minded, stopped, and never in the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import pytest
from harness.ports import free_port
from harness.supervisor import Daemon
from harness.waiting import wait_until
from harness.web_server import Client, served, write_config

from rq.words.states import Child

pytestmark = pytest.mark.system


@pytest.fixture
def daemon(tmp_path):
    made = Daemon(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_killed_web_comes_back(tmp_path):
    with served(tmp_path) as web:
        name = web.queue("echo done >&3")
        master = web.daemon.kill("web")
        wait_until(lambda: web.daemon.child("web")["pid"] not in (master, None))
        web.daemon.until_up("web")
        assert name in web.get("/q.json").json
        worker = int(
            subprocess.check_output(
                ["pgrep", "-P", str(web.daemon.child("web")["pid"])]
            )
        )
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: name in web.get("/q.json").json)
        assert web.daemon.child("web")["restarts"] == 1


@pytest.mark.slow
def test_a_config_that_is_refused_stops_the_web_alone_until_it_is_mended(daemon):
    port = free_port()
    write_config(daemon.root.path, port, addr="0.0.0.0")
    daemon.start()
    wait_until(lambda: daemon.child("web")["state"] == Child.FATAL, 60)
    assert "basic_auth" in daemon.child("web")["reason"]
    daemon.create("q")
    assert daemon.is_up("q")
    write_config(daemon.root.path, port, addr="0.0.0.0", open_without_auth=True)
    daemon.until_up("web")
    assert Client(port).get("/q.json").json == ["q"]


@pytest.mark.slow
def test_a_taken_port_is_said_and_tried_again(daemon):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write_config(daemon.root.path, port)
        daemon.start()
        said = f"cannot listen on 127.0.0.1:{port}"

        def waits():
            child = daemon.child("web")
            return child["state"] == Child.BACKOFF and said in child["reason"]

        wait_until(waits, 60)
        daemon.create("q")
    daemon.until_up("web")


@pytest.mark.slow
def test_a_changed_config_is_in_force_after_hup(tmp_path):
    with served(tmp_path) as web:
        users = {"users": {"ann": "a plain password"}}
        write_config(tmp_path, web.port, basic_auth=users)
        assert web.daemon.process is not None
        web.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: web.get("/q.json").status == 401, 60)


@pytest.mark.slow
def test_the_instance_is_ready_when_its_queues_are(tmp_path):
    with served(tmp_path) as web:
        web.queue("echo done >&3")
        wait_until(lambda: web.get("/readyz").text == "ok\n")
        answer = web.get("/readyz", Host="unknown.example")
        assert (answer.status, answer.kind) == (200, "text/plain")
        assert web.get("/livez").text == "ok\n"


@pytest.mark.slow
def test_the_instance_is_not_ready_while_its_disk_is_full(tmp_path):
    with served(tmp_path, min_free_bytes=2**60) as web:
        name = web.queue("echo done >&3")
        full = f"queue {name} accepts no messages: the disk is full"
        wait_until(lambda: full in web.get("/readyz").text, 60)
        assert "free some, or lower min_free_bytes" in web.get("/readyz").text
        assert web.get("/readyz").status == 503
        assert web.get("/livez").text == "ok\n"


@pytest.mark.slow
def test_a_stop_waits_for_no_open_connection(tmp_path):
    with served(tmp_path) as web:
        name = web.queue("echo begun; exec sleep 60")
        msg_id = web.send(name)
        wait_until(lambda: web.state(name, msg_id) == "run")
        path = f"/q/{name}/{msg_id}/follow"
        lines = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(20)]
        for one in lines[:10]:
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            one.sendall(request.encode())
            assert b" 200 " in one.recv(4096)
        pids = web.daemon.processes()
        begun = time.monotonic()
        assert web.daemon.stop() == 0
        assert time.monotonic() - begun < 20
        # What was killed is there until the kernel has removed it.
        wait_until(lambda: not {*pids} & {*web.daemon.processes()})
        for one in lines:
            one.close()


@pytest.mark.slow
def test_the_web_ends_with_its_supervisor(tmp_path):
    with served(tmp_path) as web:
        web.daemon.crash()
        wait_until(lambda: web.daemon.processes() == [], 60)
