"""Every call of a hand-over fails once, on either side: what was accepted arrives, once.

Four processes take part: the queue `relay` and its script here, the web and the queue
that is meant there. The calls of one of them fail.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call_relay

takes every call; else a sample.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib

import pytest
from harness.failing_calls import (
    Life,
    chosen,
    clear_refused,
    ended,
    failed,
    nth,
    sampled,
)
from harness.kills import site_at
from harness.ports import free_port
from harness.queues import short
from harness.relay import RUN
from harness.waiting import wait_until
from harness.web_server import start_web

from rq import config
from rq.config import files
from rq.errors import OutcomeUnknown, Unreachable
from rq.outbound import permits

pytestmark = pytest.mark.process

SAMPLE = sampled(4)
LETTER = "dear all\n" * 1000
PATIENCE = 30


class Hosts:
    """A root that sends, one that receives, and the four processes between."""

    def __init__(self, here, there, port, library):
        self.here, self.there, self.port = here, there, port
        self.library = library
        self.relay = here.queue(
            "relay", RUN.read_text(), worker="persistent", num_workers=2
        )
        self.sink = there.queue("sink", num_workers=2)
        permits.allow(here.root, ["127.0.0.1"])
        self.life = Life(self.relay, f"http://127.0.0.1:{port}/q/sink")
        self.with_letter = set()
        self.web = None
        self.calls = here.root.path / "calls"

    # ---- processes

    def start_web(self, **env):
        self.web, said = start_web(self.there.root.path, **env)
        return said == "\n"

    def stop_web(self):
        if self.web is not None:
            self.web.terminate()
            self.web.wait(30)

    def start(self, who, **env):
        """Start one of the four again; return whether it serves."""
        if who == "web":
            self.stop_web()
            return self.start_web(**env)
        if who == "script":
            self.configure(**env)
            env = {}
        queue = self.sink if who == "sink" else self.relay
        ended(queue)
        return queue.start(crash_at="never", **env).said == "\n"

    def configure(self, **env):
        """Let the script of the sender have more in its environment."""
        known = config.read_json(self.relay.dir.config)
        tag = {"TEST_TAG": self.here.tag}
        files.write_state(self.relay.dir.config, {**known, "env_vars": {**tag, **env}})

    def trouble(self, who, number, code):
        """Return the environment in which a call of `who` fails."""
        self.calls.unlink(missing_ok=True)
        site = self.here if who in ("relay", "script") else self.there
        place = "queue/" if who in ("relay", "sink") else ""
        root = f"{site.root.path}/{place}"
        env = nth(self.library, root, self.calls, number, code)
        return {**env, "NTH_SPENT": f"{self.here.root.path}/spent.{who}"}

    # ---- messages

    def tell(self):
        """Send one message with a letter and one without."""
        before = set(self.life.promised)
        self.life.attach()
        self.with_letter |= set(self.life.promised) - before
        self.life.submit()

    def settled(self):
        """Try what waits; whether all has gone, or nobody is there to ask."""
        if self.relay.process.poll() is not None:
            return True
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            states = [self.tried(one) for one in self.life.promised]
            return all(one in ("relayed", "err") for one in states)
        return False

    def tried(self, msg_id):
        state = self.relay.ask("get_message_state", {"msg_id": msg_id})[1]
        if state == "que":
            (self.relay.dir.path / "backoff.json").unlink(missing_ok=True)
            self.relay.ask("run_message", {"msg_id": msg_id})
        return state

    def arrive(self):
        """Let all that was accepted arrive; what has failed is sent again by hand."""
        wait_until(self.settled, PATIENCE)
        for one in self.life.promised:
            if self.relay.state(one) == "err":
                self.relay.ok("retry_message", {"msg_id": one})
        wait_until(self.settled, PATIENCE)
        states = [self.relay.state(one) for one in self.life.promised]
        assert set(states) <= {"relayed"}, self.relay.log()

    def received(self):
        """Return {id at the sender: message there}."""
        found = [self.sink.show(one) for one in self.sink.ids()]
        origins = [short(one["orig_msg_id"]) for one in found if one["state"] != "prep"]
        assert len(set(origins)) == len(origins), "arrived twice"
        return {short(one["orig_msg_id"]): one for one in found}

    def prove(self):
        got = self.received()
        assert set(self.life.promised) <= got.keys()
        digest = hashlib.sha256(LETTER.encode()).hexdigest()
        for one in self.with_letter:
            assert got[one]["attachments"]["letter"]["sha256"] == digest
        for one in got.values():
            wait_until(lambda i=one["msg_id"]: self.sink.state(short(i)) == "done", 30)
        for queue in (self.relay, self.sink):
            clear_refused(queue)
            queue.prove()


@pytest.fixture
def hosts(tmp_path, library):
    port = free_port()
    there_path = tmp_path / "there"
    with site_at(tmp_path / "here") as here, site_at(there_path, port=port) as there:
        for site in (here, there):
            files.make_root(site.root)
        (here.root.path / "letter").write_text(LETTER)
        hosts = Hosts(here, there, port, library)
        try:
            assert hosts.start_web()
            hosts.relay.start()
            hosts.sink.start()
            yield hosts
        finally:
            hosts.stop_web()


@pytest.mark.parametrize("who", ["relay", "script", "web", "sink"])
def test_each_call_may_fail_once_and_each_message_arrives_once(hosts, who):
    told(hosts, who, 0, 0)
    calls = hosts.calls.read_text().splitlines()
    assert len(calls) > 10
    for number, code in chosen(calls, SAMPLE):
        try:
            told(hosts, who, number, code)
        except AssertionError as error:
            which = failed(hosts.calls.read_text().splitlines(), number)
            name = errno.errorcode[code]
            raise AssertionError(f"{which} with {name}: {error}") from error
    hosts.prove()


def told(hosts, who, number, code):
    """Hand messages over while a call fails; all is well again, and they arrive."""
    if hosts.start(who, **hosts.trouble(who, number, code)):
        hosts.tell()
        wait_until(hosts.settled, PATIENCE)
    assert hosts.start(who)
    hosts.arrive()
    hosts.received()
