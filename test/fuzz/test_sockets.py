"""Running processes whose sockets are asked what nobody would ask: each answers with a
sentence, lives on, forgets nothing, and keeps no descriptor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

import orjson
import pytest
from harness.hostile_values import json_value, mangled, near
from harness.queues import running_queue
from harness.supervisor import daemon_on
from harness.waiting import wait_until
from hypothesis import example, given
from hypothesis import strategies as st

from rq.errors import OutcomeUnknown
from rq.rpc import client, wire
from rq.rpc.lines.commands import COMMANDS

pytestmark = pytest.mark.process

SCRIPT = "#!/bin/sh\necho done >&3\n"
QUIET = {"shutdown", "mind"}  # these end the process, one way or the other
WORDS = sorted(set(COMMANDS) - QUIET)  # all of them are asked each time
ID = "20270115.0800.00.000.1"
ARG = {
    "msg_id": ID, "dest": "t", "due": 4e9, "state": "que", "limit": 5, "before": 1.0,
    "keep": 1, "key": "a/1/0", "as": "sent", "txn": "cafe", "messages": [{"dest": "t"}],
    "ids": [ID], "ttl": 5, "pathname": "/etc/hostname", "name": "a", "sha256": "0" * 64,
    "attachment_name": "a", "_key": "a/1/0", "batch": True, "who": "me", "after": ID,
    "param1": "x", "max_count": 3, "from": ID, "offset": 1, "sort": "due", "q": "x",
}  # fmt: skip


def as_text(value):
    """Return JSON as a client would send it, or what it may send in its place."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class Victim:
    """A queue under fire, and what it has promised meanwhile."""

    def __init__(self, queue):
        self.queue = queue
        self.pid = queue.pid
        self.promised = [queue.send(due=4e9)]
        self.ended = queue.run()["msg_id"]
        self.fds = self.open_fds()
        self.number = 0

    def open_fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def lives(self):
        """Now and then somebody else asks as one should."""
        self.number += 1
        if self.number % 10 == 0:
            self.promised.append(self.queue.send(due=4e9))
        assert self.queue.alive

    def prove(self):
        for msg_id in self.promised:
            assert self.queue.state(msg_id) == "que"
        wait_until(lambda: self.open_fds() <= self.fds + 5, 30)
        assert "Traceback" not in self.queue.log()


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), SCRIPT) as queue:
        victim = Victim(queue)
        yield victim
        victim.prove()


def shout(path, data):
    """Send bytes and an end; return what is answered until the other side hangs up."""
    said = b""
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(120)
        with client.near(Path(path)) as near_path:
            line.connect(near_path)
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        while more := line.recv(65536):
            said += more
    return said


GOOD = wire.request("ping") + wire.request("get_message", orjson.dumps({"msg_id": ID}))


@given(st.one_of(st.binary(max_size=200), mangled(GOOD), st.just(bytes(100_000))))
def test_any_bytes_at_a_queue_are_refused_or_answered(victim, data):
    said = wire.Frames().feed(shout(victim.queue.dir.socket, data))
    assert b"the command failed" not in b"".join(said)
    victim.lives()


@given(st.one_of(near(ARG).map(as_text), json_value.map(as_text)))
@example(as_text({**ARG, "state": []}))
def test_any_argument_of_any_verb_is_refused_in_a_sentence(victim, arg):
    asked = [wire.frame(word.encode() + b" " + spared(victim, arg)) for word in WORDS]
    data = shout(victim.queue.dir.socket, b"".join(asked))
    answers = wire.Frames(limit=2**26).feed(data)
    assert len(answers) == len(WORDS)
    for word, answer in zip(WORDS, answers, strict=True):
        assert b"the command failed" not in answer, (word, arg)
    victim.lives()


def spared(victim, arg):
    """What is promised to another is not asked to go, the message that ended may be."""
    return arg.replace(ID.encode(), victim.ended.encode())


# ---- the supervisor, the timers, scandir

SPARED = {"shutdown", "delete_queue", "undefine_queue", "down_queue", "pause_queue"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with daemon_on(tmp_path_factory.mktemp("daemon")) as daemon:
        daemon.start()
        daemon.create("t")
        for one in daemon.children():
            daemon.until_up(one["name"])
        before = {one["name"]: one["pid"] for one in daemon.children()}
        yield daemon
        found = {one["name"]: one["pid"] for one in daemon.children()}
        assert {name: found.get(name) for name in before} == before
        for log in daemon.root.log.iterdir():
            assert "Traceback" not in log.read_text(errors="replace"), log
        assert daemon.stop() == 0


CONFIG = {"config": {"name": "odd", "script": "/x"}, "link": "/x", "form": {}}
VERBS = ["status", "queues", "create_queue", "define_queue", "up_queue", "wake_queue"]
VERBS += ["restart_queue", "resume_queue", "uptime", "version", "environment", ""]


@given(
    st.sampled_from(VERBS),
    st.one_of(
        near(CONFIG).map(as_text), json_value.map(as_text), st.binary(max_size=30)
    ),
)
@example("define_queue", b'{"config": []}')
@example("define_queue", b'{"config": {"name": {}}}')
def test_any_question_to_the_supervisor_is_answered_in_a_sentence(daemon, word, arg):
    if b'"config"' in arg and word == "create_queue":
        return  # it would wait until a queue is up
    asked = wire.frame(word.encode() + b" " + arg)
    said = shout(daemon.root.supervisor_socket, asked)
    assert b"the command failed" not in said, (word, arg)
    assert daemon.ask("ping") == ["pong"]


@given(st.one_of(json_value.map(as_text), st.binary(max_size=60)))
def test_any_question_to_the_timers_is_answered_in_a_sentence(daemon, arg):
    said = shout(daemon.root.timers_socket, wire.frame(arg, wire.MAGIC2))
    assert b"the command failed" not in said
    with contextlib.suppress(OutcomeUnknown):
        assert client.ask_timers(daemon.root.timers_socket, "status", timeout=30)
