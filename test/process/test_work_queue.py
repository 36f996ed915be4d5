"""The agent `rq work` against a real RQ: a script at an agent ends as one of the queue."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from urllib.parse import quote

import pytest
from harness import cli
from harness.checkout import CHECKOUT
from harness.processes import lives
from harness.waiting import wait_until
from harness.web_server import served

from rq.config.settings import default_worker_env

pytestmark = pytest.mark.system

RUN = 'eval "$RQ_PARAM1"'


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web") / "root") as web:
        yield web


class Agent:
    """An agent, and the queue that it works for."""

    def __init__(self, web, path, **pull):
        self.web = web
        self.path = path
        self.queue = web.queue("exit 1", num_workers=0, pull=pull)
        self.script = path / "script"
        self.script.mkdir()
        self.runs(RUN)
        self.process = None

    def runs(self, script, **config):
        run = self.script / "run"
        run.write_text(f"#!/bin/sh\n{script}\n")
        run.chmod(0o755)
        (self.script / "config.json").write_text(json.dumps({"nice": 0, **config}))

    def words(self, *words):
        url = f"http://127.0.0.1:{self.web.port}/q/{self.queue}"
        base = ["--dir", str(self.path / "dir"), "--script", str(self.script)]
        return ["work", url, "--grace", "1", *base, *words]

    def once(self, *words):
        return cli.rq(*self.words("--once", *words), cwd=CHECKOUT)

    @contextlib.contextmanager
    def running(self, *words):
        command = ["rq.cli", *self.words(*words)]
        with open(os.devnull, "r+") as null:
            process = cli.start(command, {}, CHECKOUT, (null, null, null))
        self.process = process
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(30)

    def send(self, script="echo done >&3", **fields):
        return self.web.send(self.queue, param1=script, **fields)

    def ask(self, command, **about):
        return self.web.daemon.ask_queue(self.queue, command, about)

    def state(self, msg_id):
        return self.web.state(self.queue, msg_id)

    def shown(self, msg_id, queue=""):
        """Return what is shown of a message that has ended, without what differs."""
        message = self.web.daemon.ask_queue(
            queue or self.queue, "get_message", {"msg_id": msg_id}
        )[1]
        return {
            name: message.get(name)
            for name in ("status", "state", "count", "cause", "max_count", "attempt")
        }


@pytest.fixture
def agent(web, tmp_path):
    return Agent(web, tmp_path)


# ---- the table, row by row: what ends a message here ends it there

ENDS = [
    "say done fine",
    "say done",
    "say err by design",
    "say err by design; exit 3",
    "say fail old word",
    "exit 0",
    "say run half way",
    "exit 7",
    "say done fine; exit 1",
    "say resend 0-x; exit 2",
    "say run on; kill -9 $$",
    "say done; kill -TERM $$; sleep 9",
    "say done one; say err two",
    "say resend soon",
    "say later 1000000000000-x",
    "say forward nowhere at all",
    "say resend 0-again",
]


def test_a_script_ends_there_as_it_ends_here(web, agent):
    both = 'exec 2>&1\nsay() { echo "$@" >&3; }\n'
    here = web.queue(RUN, num_workers=2)
    there = [agent.send(both + script, max_count=2) for script in ENDS]
    ours = [web.send(here, param1=both + script, max_count=2) for script in ENDS]
    assert agent.once("--slots", "2").returncode == 0
    ended = ("done", "err")
    for script, far, near in zip(ENDS, there, ours, strict=True):
        wait_until(lambda near=near: web.state(here, near) in ended)
        assert agent.shown(far) == agent.shown(near, here), script


def plain(log, queue, msg_id):
    """Return the lines of a log without the names of its message."""
    text = log.replace(queue, "Q").replace(msg_id, "ID")
    return text.replace('"attempt":1,', "").splitlines()


def test_a_script_finds_there_what_it_finds_here(web, agent):
    looks = "env | sort; ls -a . ..; cat ../msg; echo; pwd; readlink /proc/self/fd/0; say done"
    both = 'exec 2>&1\nsay() { echo "$@" >&3; }\n' + looks
    due = {"due": 1000000000}
    home = {"HOME": default_worker_env()["HOME"]}  # what an agent gives a script
    here = web.queue(RUN, num_workers=1, env_vars=home)
    far, near = agent.send(both, **due), web.send(here, param1=both, **due)
    assert agent.once().returncode == 0
    wait_until(lambda: web.state(here, near) == "done")
    logs = [
        web.get(f"/q/{queue}/{msg_id}/log/stdio.log").text
        for queue, msg_id in ((agent.queue, far), (here, near))
    ]
    own = (
        "RQ_ROOT=",
        "RQ_SCRIPT=",
        "RQ_REALSCRIPT=",
        "RQ_LEASE=",
        "RQ_MSG_DIR=",
        "PWD=",
    )
    texts = [
        [
            line
            for line in plain(log, queue, msg_id)
            if not line.startswith((*own, "/")) and " - RQ " not in line
        ]
        for log, queue, msg_id in zip(
            logs, (agent.queue, here), (far, near), strict=True
        )
    ]
    assert texts[0] == texts[1]


def test_attachments_go_there_and_results_come_back(web, agent):
    prepared = agent.ask("prep_message", dest=agent.queue, param1=RESULT)[1]
    msg_id = prepared.rpartition("/")[2]
    file = agent.path / "sent"
    file.write_text("words to count\n" * 70_000)
    about = {"msg_id": msg_id, "pathname": str(file), "name": SENT}
    assert agent.ask("attach_message", **about)[0] == "ok"
    assert agent.ask("commit_message", msg_id=msg_id)[0] == "ok"
    ended = agent.once()
    assert agent.state(msg_id) == "done", ended.stderr
    assert web.get(f"/q/{agent.queue}/{msg_id}/attach/count").text.strip() == "210000"
    copy = web.get(f"/q/{agent.queue}/{msg_id}/attach/{quote(COPY)}")
    assert copy.body == file.read_bytes()


# As other systems call their files: also a decomposed letter, and an emoji of several.
SENT = "[sent] {a,b} #1?* cafe\u0301.txt"
COPY = "copy \u2713%#;`x` \U0001f469\u200d\U0001f680"
RESULT = f"""mkdir results
wc -w < "../attach/{SENT}" > results/count
cp ../attach/*.txt 'results/{COPY}'
echo done >&3"""


def test_attachments_are_not_fetched_if_the_queue_says_so(web, tmp_path):
    agent = Agent(web, tmp_path, fetch=False)
    prepared = agent.ask("prep_message", dest=agent.queue, param1=LOOK)[1]
    msg_id = prepared.rpartition("/")[2]
    about = {"msg_id": msg_id, "pathname": "/etc/passwd", "name": "sent.txt"}
    assert agent.ask("attach_message", **about)[0] == "ok"
    assert agent.ask("commit_message", msg_id=msg_id)[0] == "ok"
    agent.once()
    assert agent.shown(msg_id)["status"] == "done - without"


LOOK = "test -e ../attach || echo done without >&3"


def test_what_a_script_prints_is_seen_while_it_runs(web, agent):
    msg_id = agent.send(f"echo half; echo 'run half way' >&3; {wait_for(agent)}")
    log = f"/q/{agent.queue}/{msg_id}/log/stdio.log"
    with agent.running():
        wait_until(lambda: "half\n" in web.get(log).text)
        wait_until(lambda: "half way" in agent.shown(msg_id)["status"])
        (agent.path / "go").touch()
        wait_until(lambda: agent.state(msg_id) == "done")
    assert "RQ END - exit 0" in web.get(log).text


def wait_for(agent):
    return f"until test -e {agent.path}/go; do sleep 0.05; done; echo done >&3"


def busy(agent, **fields):
    """Send a message whose script lasts; return its id."""
    return agent.send(f"sleep 1000 & echo $! > {agent.path}/pid; wait", **fields)


def pid_of(agent):
    return int(wait_until((agent.path / "pid").read_text))


def test_a_cancelled_message_ends_there_and_here(agent):
    msg_id = busy(agent)
    with agent.running():
        pid = pid_of(agent)
        assert agent.ask("cancel_message", msg_id=msg_id, who="kim")[0] == "ok"
        wait_until(lambda: not lives(pid))
        wait_until(lambda: agent.state(msg_id) == "err")
    assert "cancelled by" in agent.shown(msg_id)["status"]


@pytest.mark.slow
def test_the_message_of_a_killed_agent_is_counted_and_run_again(web, tmp_path):
    agent = Agent(web, tmp_path, seconds=2)
    msg_id = agent.send(f"test $RQ_COUNT = 1 && exec echo done >&3; {LASTS}")
    with agent.running("--label", "first") as process:
        wait_until(lambda: "here" in agent.shown(msg_id)["status"])
        process.kill()
    with agent.running("--label", "second"):
        wait_until(lambda: agent.state(msg_id) == "done")
    assert agent.shown(msg_id)["count"] == 1


LASTS = "echo 'run here' >&3; sleep 1000"


@pytest.mark.slow
def test_an_agent_that_was_stopped_past_its_lease_changes_nothing(web, tmp_path):
    agent = Agent(web, tmp_path, seconds=1)
    msg_id = agent.send(f"test $RQ_COUNT = 1 && exec echo done second >&3; {LASTS}")
    with agent.running("--label", "first") as process:
        wait_until(lambda: "here" in agent.shown(msg_id)["status"])
        process.send_signal(signal.SIGSTOP)
        with agent.running("--label", "second"):
            wait_until(lambda: agent.state(msg_id) == "done")
        process.send_signal(signal.SIGCONT)
        folders = tmp_path / "dir"
        wait_until(lambda: not list(folders.glob("*/*/msg/*")))
        process.terminate()
        process.wait(30)
    assert agent.shown(msg_id)["status"] == "done - second"


def test_workers_are_listed_with_what_they_do(web, agent):
    busy(agent)
    with agent.running("--slots", "3", "--label", "blue"):
        pid_of(agent)
        words = ("worker", "ls", agent.queue, "--json")
        [row] = json.loads(cli.rq(*words, root=web.daemon.root.path).stdout)
    assert row["by"].endswith("/blue")
    assert (row["queue"], row["slots"], row["busy"]) == (agent.queue, 3, 1)


def test_a_queue_that_hands_out_nothing_says_what_to_set(web, tmp_path):
    agent = Agent(web, tmp_path)
    agent.queue = web.queue("exit 1")
    ended = agent.once()
    assert ended.returncode == 4
    assert '"pull"' in ended.stderr.splitlines()[-1]


def test_a_queue_that_is_not_there_is_named(web, agent):
    agent.queue = "nowhere"
    ended = agent.once()
    assert ended.returncode == 3
    assert "nowhere" in ended.stderr.splitlines()[-1]


def test_the_script_of_the_queue_itself_runs_there(web, tmp_path):
    agent = Agent(web, tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / "run").write_text("#!/bin/sh\necho done shared >&3\n")
    (own / "run").chmod(0o755)
    agent.queue = f"s{os.getpid()}"
    settings = {"name": agent.queue, "script": str(own / "run"), "num_workers": 0}
    settings |= {"exec_prefix": "", "pull": {"share_script": True}}
    assert web.daemon.ask("create_queue", settings)[0] == "success"
    msg_id = agent.send()
    words = agent.words("--once")
    at = words.index("--script")
    ended = cli.rq(*words[:at], *words[at + 2 :], cwd=CHECKOUT)
    assert agent.state(msg_id) == "done", ended.stderr
    assert agent.shown(msg_id)["status"] == "done - shared"


# ---- limits

LIMITED = [
    ("sleep 60", {"timeout": 0.5}, "timeout"),
    ("trap '' TERM; while :; do sleep 0.1; done", {"timeout": 0.5}, "timeout"),
    ("sleep 60", {"heartbeat": 0.5}, "heartbeat"),
    ("while :; do :; done", {"cpu_seconds": 1}, "cpu"),
    ("trap 'echo err gave up >&3; exit 1' TERM; sleep 60 & wait", {"timeout": 0.5, "grace": 30}, "said_err"),
    ("for n in 1 2 3 4; do echo $n; sleep 0.3; done; echo done >&3", {"heartbeat": 1}, "done"),
]  # fmt: skip


@pytest.mark.slow
def test_limits_hold_there_as_here(web, agent):
    sent = [
        agent.send(script, **{"grace": 0.3, **limits}) for script, limits, _ in LIMITED
    ]
    assert agent.once("--slots", "3").returncode == 0
    for msg_id, (_, limits, cause) in zip(sent, LIMITED, strict=True):
        message = agent.ask("get_message", msg_id=msg_id)[1]
        assert message["result"]["cause"] == cause, (message, limits)
        if cause in limits:
            assert message["story"]["why"].startswith("The script was killed after ")


@pytest.mark.slow
def test_settings_of_the_script_there_hold_too(web, agent):
    agent.runs(RUN, timeout=0.5)
    msg_id = agent.send("sleep 60", timeout=50)
    assert agent.once().returncode == 0
    assert agent.ask("get_message", msg_id=msg_id)[1]["result"]["cause"] == "timeout"
