"""The first start of a version that asks for permission allows the hosts of before."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harness import ancestor
from harness.ancestor import message_at
from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, kept, running_queue
from harness.relay import RUN, SETTINGS

from rq.layout import Root
from rq.outbound import past_hosts, permits

pytestmark = pytest.mark.process

TOLD = "#!/bin/sh\ncase $RQ_PARAM1 in err) echo err no >&3;; *) echo relayed x >&3;; esac\n"
ALLOW = "import sys; from rq import config; from rq.outbound import past_hosts; "
ALLOW += "past_hosts.allow_once(config.find_root(sys.argv[1]))"


@pytest.fixture
def root(tmp_path):
    """Give a root with a history and messages that wait, as an old version left it."""
    with running_queue(tmp_path, TOLD, "relay", nice=0) as queue:
        for host in ("10.0.0.7:3333", "inner.example", "8.8.8.8", "127.0.0.1:3333"):
            queue.run(dest=f"http://{host}/q/x")
        queue.run(dest="http://10.9.9.9/q/x", param1="err")
        queue.ok("seal")
        queue.run(dest="https://[fd00::1]/q/x")
        queue.send(dest="http://10.0.0.8:1/q/x", due=32000000000)
        queue.ok("prep_message", {"dest": "http://10.0.0.9/q/x"})
        queue.send(dest="http://h:99999/q/x", due=32000000000)
    return queue.root


HOSTS = [
    "10.0.0.7:3333",
    "10.0.0.8:1",
    "10.0.0.9:80",
    "[fd00::1]:443",
    "inner.example:80",
]


def allowed(root):
    return sorted(one["host"] for one in permits.listed(root))


def test_the_hosts_of_the_history_and_of_what_waits_are_allowed(root):
    past_hosts.allow_once(root)
    assert allowed(root) == HOSTS
    assert past_hosts.news(root) == (HOSTS, [])
    past_hosts.note_shown(root)
    assert past_hosts.news(root) == ([], [])
    assert past_hosts.entered(root) == HOSTS


def test_it_is_done_once_and_what_a_person_took_back_stays_so(root):
    past_hosts.allow_once(root)
    permits.forbid(root, "10.0.0.7:3333")
    past_hosts.allow_once(root)
    assert "10.0.0.7:3333" not in allowed(root)


def test_what_the_operator_has_set_is_kept(root):
    peer = {"https://10.0.0.1": {"user": "u", "password": "p"}}
    root.peers.write_text(json.dumps({"allow": ["10.0.0.7:3333"], "peers": peer}))
    root.peers.chmod(0o600)
    past_hosts.allow_once(root)
    kept = json.loads(root.peers.read_text())
    assert kept["peers"] == peer
    assert sorted(kept["allow"]) == HOSTS


@pytest.mark.parametrize(
    "point", ["before-rename#1", "after-rename#1", "before-rename#2"]
)
def test_a_start_that_is_killed_in_the_middle_is_harmless(root, point):
    env = {**os.environ, "RQ_CRASH_AT": f"durable:{point}", "PYTHONPATH": str(CHECKOUT)}
    words = [sys.executable, "-c", ALLOW, str(root.path)]
    assert subprocess.run(words, env=env, check=False).returncode == -signal.SIGKILL
    assert not root.relay_hosts.exists()
    past_hosts.allow_once(root)
    assert allowed(root) == HOSTS


def test_a_root_without_history_allows_nobody_later(tmp_path):
    queue = RunningQueue(tmp_path, "relay", RUN, **SETTINGS)
    past_hosts.allow_once(queue.root)
    assert not queue.root.peers.exists()
    with kept(queue):
        queue.send(dest="http://10.0.0.7:1/q/x", due=32000000000)
        past_hosts.allow_once(queue.root)
        assert not queue.root.peers.exists()


def test_a_file_that_cannot_be_used_is_left_and_the_hosts_are_named(root, caplog):
    root.peers.write_text("{")
    past_hosts.allow_once(root)
    assert root.peers.read_text() == "{"
    assert f"say `rq relay allow {' '.join(HOSTS)}`" in caplog.text
    assert root.relay_hosts.exists()


def test_a_root_of_the_ruby_rq_brings_the_hosts_of_its_relay_and_its_webhooks(tmp_path):
    root = Root(ancestor.build(tmp_path / "root"))
    today = time.strftime("%Y%m%d", time.gmtime())
    for at, (queue, place, fields) in enumerate(
        (
            ("relay", f"relayed/{today}/10/00/", {"dest": "http://10.0.0.7:3333/q/x"}),
            ("relay", "relayed/20150301/10/00/", {"dest": "http://10.0.0.1/q/x"}),
            ("webhook", f"done/{today}/10/00/", {"param1": "http://10.0.0.8:80/hook"}),
            ("webhook", "que/", {"param1": "http://127.0.0.1:9/hook"}),
            ("webhook", "done/20150301/10/00/", {"param1": "http://10.0.0.2/hook"}),
            ("work", "que/", {"post_run_webhook": ["https://inner.example/a"]}),
            ("work", "que/", {"post_run_webhook": ["https://8.8.8.8/a"]}),
        )
    ):
        day = place.split("/")[1] or today
        (root.queue(queue).path).mkdir(exist_ok=True)
        root.queue(queue).config.touch()
        message_at(
            root.queue(queue).path / f"{place}{day}.1000.00.00{at}.41{at}",
            queue,
            "que",
            **fields,
        )
    root.webhooks.write_text('{"allow": ["10.9.0.0/16"], "ca": "/x"}')
    past_hosts.allow_once(root)
    posted = ["10.0.0.8:80", "127.0.0.1:9", "inner.example:443"]
    assert allowed(root) == ["10.0.0.7:3333"]
    written = json.loads(root.webhooks.read_text())
    assert written == {"allow": ["10.9.0.0/16", *posted], "ca": "/x"}
    assert past_hosts.news(root) == (["10.0.0.7:3333"], posted)
