"""Agents and queues whose scripts run as another user: that user may work on them, and
root does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from harness.checkout import CHECKOUT
from harness.processes import only_root
from harness.users import GROUP, NOBODY, open_root
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.config import files
from rq.scripts.run_as import setpriv

pytestmark = [pytest.mark.process, only_root]
SCRIPT = 'echo "done as $(id -u)" >&3'


@pytest.fixture(scope="module")
def web():
    with open_root() as path, served(path / "root") as web:
        yield web


class Agents:
    """Agents for one queue, with a script of their own."""

    def __init__(self, web, place):
        self.web, self.place = web, place
        self.script = place / "script"
        self.script.mkdir()
        (self.script / "run").write_text(f"#!/bin/sh\n{SCRIPT}\n")
        (self.script / "run").chmod(0o755)
        self.says()
        secret = tokens.new_secret()
        token = Token(
            name=place.name, sha256=tokens.digest_of(secret), role=Role.WORKER,
            created=time.time(), created_by="test",
        )  # fmt: skip
        tokens.create(web.daemon.root, token)
        self.token = place / "token"
        self.token.write_text(secret)
        self.token.chmod(0o600)

    def says(self, **config):
        (self.script / "config.json").write_text(json.dumps({"nice": 0, **config}))

    def words(self, queue, *more):
        url = f"http://127.0.0.1:{self.web.port}/q/{queue}"
        own = ["--token-file", str(self.token), "--dir", str(self.place / "dir")]
        script = ["--script", str(self.script), "--grace", "1"]
        return [sys.executable, "-m", "rq.cli", "work", url, *own, *script, *more]

    def once(self, queue, *before):
        return subprocess.run(
            [*before, *self.words(queue, "--once")],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def agents(web, tmp_path):
    with open_root() as place:
        yield Agents(web, place)


def theirs(web, **settings):
    settings = {"num_workers": 0, "pull": {}, "user": str(NOBODY), **settings}
    name = web.queue("exit 1", num_workers=0, pull={})
    configure(web, name, **settings)
    return name


def configure(web, queue, **settings):
    config = web.daemon.root.queue(queue).config
    files.write_state(config, {**json.loads(config.read_text()), **settings})
    web.daemon.ask_queue(queue, "wake", {})


def test_an_agent_of_root_starts_nothing_for_a_queue_of_another_user(web, agents):
    queue = theirs(web)
    msg_id = web.send(queue)
    ended = agents.once(queue)
    assert ended.returncode == 4, ended.stderr
    said = f"the queue says user {NOBODY}, and scripts would run here as root"
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    shown = web.daemon.ask_queue(queue, "get_message", {"msg_id": msg_id})[1]
    assert (shown["state"], shown["count"]) == ("que", 0)


def test_that_user_works_on_it(web, agents):
    queue = theirs(web)
    msg_id = web.send(queue)
    # Python may be one that root alone may read: its rights are those of `nobody` but
    # that it may read it.
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    user = [f"--reuid={NOBODY}", f"--regid={GROUP}", "--clear-groups"]
    for path in (agents.place, agents.token):
        os.chown(path, NOBODY, GROUP)
    ended = agents.once(queue, setpriv(), *user, *reads, "--")
    assert ended.returncode == 0, ended.stderr
    shown = web.daemon.ask_queue(queue, "get_message", {"msg_id": msg_id})[1]
    assert shown["status"] == f"done - as {NOBODY}"


def test_a_user_that_is_named_while_root_works_ends_the_agent(web, agents):
    queue = theirs(web, user="")
    with subprocess.Popen(
        agents.words(queue), cwd=CHECKOUT, stderr=subprocess.PIPE, text=True
    ) as agent:
        try:
            first = web.send(queue)
            wait_until(lambda: web.state(queue, first) == "done")
            configure(web, queue, user=str(NOBODY))
            second = web.send(queue)
            _, said = agent.communicate(timeout=30)
        finally:
            agent.kill()
    assert agent.returncode == 4, said
    assert web.state(queue, second) == "que"


def test_a_script_whose_own_config_names_a_user_is_not_started_by_root(web, agents):
    queue = theirs(web, user="")
    msg_id = web.send(queue)
    agents.says(user="nobody")
    ended = agents.once(queue)
    assert ended.returncode == 4, ended.stderr
    assert "config.json says user nobody" in ended.stderr
    assert web.state(queue, msg_id) == "que"


def test_a_shift_on_spark_is_not_root_s_either(web):
    queue = theirs(web)
    web.daemon.link("spark-work", CHECKOUT / "rq/bundled/spark-work")
    web.daemon.until_up("spark-work")
    shift = web.send("spark-work", param1=queue)
    wait_until(lambda: web.state("spark-work", shift) == "err")
    shown = web.daemon.ask_queue("spark-work", "get_message", {"msg_id": shift})[1]
    assert f"queue {queue} says user {NOBODY}" in shown["status"]
