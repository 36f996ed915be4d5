"""The examples of the reference do what they say, as they stand there."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from harness.documents import GUIDE, REFERENCE, examples_of
from harness.documents import examples as on_page
from harness.queues import running_queue, short
from harness.waiting import wait_until

from rq import config
from rq.builtin import command
from rq.builtin.router import rules
from rq.builtin.webhook import settings
from rq.flow import plan
from rq.layout import Root
from rq.outbound import peers
from rq.timers import timer

pytestmark = pytest.mark.process

SCRIPT = "#!/bin/sh\necho done >&3\n"


def number(found):
    """Return the examples as parameters of a test, counted."""
    assert found
    return [pytest.param(one, id=str(n)) for n, one in enumerate(found, 1)]


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, SCRIPT, name="demo") as queue:
        yield queue


def run(queue, *words):
    """Run an example in the root of a queue."""
    env = {"PATH": os.environ["PATH"], "RQ_ROOT": str(queue.root.path)}
    ran = subprocess.run(
        words, env=env, cwd="/", capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def counts_at_rest(queue):
    """Return the counts once everything that was handed over has ended."""

    def rest():
        queue.ask("wake")
        waits = [*os.listdir(queue.dir.path / "new")]
        counts = queue.ask("num_messages")
        return None if waits or counts["que"] or counts["run"] else counts

    return wait_until(rest, 60)


def client_and_reader():
    """Return the client of the socket's page, and the journal's reader behind it."""
    pages = [REFERENCE / f"{name}.md" for name in ("socket", "journal")]
    blocks = [example for page in pages for example in on_page(page)]
    return "".join(block.text for block in blocks if block.use == "run")


@pytest.mark.parametrize("text", number(examples_of("sh", "run")))
def test_an_example_in_sh_hands_over_what_then_succeeds(queue, text):
    run(queue, "sh", "-eu", "-c", text)
    counts = counts_at_rest(queue)
    assert counts["done"] == 1
    assert counts["err"] == 0


def test_the_client_in_python_gets_all_that_it_asserts(queue):
    run(queue, sys.executable, "-c", client_and_reader())
    counts = counts_at_rest(queue)
    assert counts == {
        "prep": 0,
        "que": 0,
        "run": 0,
        "done": 103,
        "relayed": 0,
        "err": 0,
    }


@pytest.mark.parametrize("text", number(examples_of("sh", "script")))
def test_an_example_of_a_script_ends_as_it_says(tmp_path, text):
    with running_queue(tmp_path, text, name="demo") as queue:
        ended = queue.run(dest="demo")
        assert ended["state"] == "done", ended["status"]
        assert counts_at_rest(queue)["err"] == 0


@pytest.mark.parametrize(
    "text", number([*examples_of("python", "worker"), *examples_of("sh", "worker")])
)
def test_an_example_of_a_worker_that_stays_takes_message_after_message(tmp_path, text):
    with running_queue(tmp_path, text, name="demo", worker="persistent") as queue:
        for name in ("first", 'sec"on\\d'):
            ended = queue.run(dest="demo", param1=name)
            assert ended["status"] == f"done - hello {name}"
        assert f"working on {ended['msg_id']}" in queue.output(ended["msg_id"])


def test_the_example_of_a_batch_works_on_all_and_fails_who_brought_nothing(tmp_path):
    [text] = examples_of("sh", "batch")
    batch = {"max": 3, "wait": 60}
    with running_queue(tmp_path, text, name="demo", batch=batch) as queue:
        file = tmp_path / "numbers.txt"
        file.write_text("3\n1\n2\n")
        brought = [queue.ok("prep_message", {"dest": "demo"}) for _ in range(2)]
        for full_id in brought:
            asked = {"msg_id": short(full_id), "pathname": str(file)}
            queue.ok("attach_message", asked)
            queue.ok("commit_message", asked)
        nothing = queue.send()
        assert queue.ended(nothing, 60)["status"] == "err - it cannot be read"
        for full_id in brought:
            assert queue.ended(short(full_id), 60)["status"] == "done - 6 numbers"
            got = queue.folder(short(full_id)) / "job/sorted"
            assert got.read_text() == "1\n1\n2\n2\n3\n3\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        *((text, config.root_config) for text in examples_of("json", "root")),
        *((text, config.queue_config) for text in examples_of("json", "queue")),
        *((text, config.queue_config) for text in examples_of("json", "queue", GUIDE)),
    ],
)
def test_an_example_of_a_config_is_one(text, read):
    data = json.loads(text)
    parsed = json.loads(json.dumps(asdict(read(data, Path("example")))))
    assert all(covers(parsed[name], value) for name, value in data.items())


def covers(parsed, given):
    """Whether a value holds all that was given; what is left out gets its default."""
    if isinstance(given, dict):
        return all(covers(parsed.get(name), value) for name, value in given.items())
    return not parsed if given is None else parsed == given


def test_the_example_of_a_queue_with_batches_is_one():
    [text] = examples_of("json", "batch")
    found = config.queue_config(json.loads(text), Path("example")).batch
    assert found == {**json.loads(text)["batch"], "wait": 60.0}


def test_the_example_of_notices_is_one():
    [text] = examples_of("json", "notice")
    told = config.queue_config(json.loads(text), Path("example")).on_output
    assert told["mail"] == ["me@example.org"]


def test_the_example_of_a_timer_is_one(tmp_path):
    texts = examples_of("json", "timer")
    assert texts
    for text in texts:
        path = tmp_path / "example.json"
        path.write_text(text)
        given = json.loads(text)
        dest = given["msg"]["dest"] if "msg" in given else "flow"
        assert timer.parse(path).queue == dest


def test_the_example_of_a_flow_is_one():
    [text] = examples_of("json", "flow")
    nodes = plan.parse(json.loads(text)).nodes
    assert [node.name for node in nodes] == ["fetch", "pack"]


def test_the_example_of_webhook_settings_is_one(tmp_path):
    [text] = examples_of("json", "webhooks")
    root = Root(tmp_path)
    root.config_dir.mkdir()
    root.webhooks.write_text(text)
    root.webhooks.chmod(0o600)
    found = settings.read(root, "https://example.org/hooks/x")
    assert found.secrets == tuple(
        json.loads(text)["urls"]["https://example.org/hooks/"]["secrets"]
    )
    assert settings.read(root, "http://127.0.0.1:3333/q/x/new_message").body == "form"


def test_the_example_of_peers_is_one(tmp_path):
    [text] = examples_of("json", "peers")
    root = Root(tmp_path)
    root.config_dir.mkdir()
    root.peers.write_text(text)
    root.peers.chmod(0o600)
    first = peers.read(root, peers.target("https://rq.example.org/q/x"))
    assert (first.user, first.ca) == ("relay", "/etc/ssl/our-ca.pem")
    other = peers.read(root, peers.target("https://10.0.0.7:3443/q/x"))
    assert (other.user, other.ca) == (None, "/etc/ssl/other-ca.pem")


def test_the_example_of_a_peer_in_the_guide_is_one(tmp_path):
    [text] = examples_of("json", "peers", GUIDE)
    root = Root(tmp_path)
    root.config_dir.mkdir()
    root.peers.write_text(text)
    root.peers.chmod(0o600)
    [url] = json.loads(text)["peers"]
    peer = peers.read(root, peers.target(f"{url}/q/deploy"))
    assert peer.token == json.loads(text)["peers"][url]["token"]


def test_the_example_of_routing_rules_is_one():
    [text] = examples_of("json", "router")
    assert len(rules.parse(json.loads(text)).rules) == 2


def test_the_example_of_a_queues_command_is_one():
    [text] = examples_of("json", "command")
    found = command.parse(json.loads(text))
    command.check(found)
    assert found.to_json() == json.loads(text)


@pytest.mark.parametrize("text", examples_of("python", "job"))
def test_the_example_of_a_job_on_spark_is_python(text):
    compile(text, "job", "exec")


def test_every_example_that_is_marked_is_run():
    known = {("sh", "run"), ("python", "run"), ("sh", "script")}
    known |= {("json", name) for name in ("root", "queue", "timer", "notice", "flow")}
    known |= {("json", name) for name in ("webhooks", "router", "peers", "command")}
    known |= {(language, "worker") for language in ("sh", "python")}
    known |= {(language, "batch") for language in ("sh", "json")}
    known |= {("sh", "web"), ("sh", "http"), ("python", "job")}  # by web and spark
    marked = {
        (example.language, example.use)
        for page in REFERENCE.glob("*.md")
        for example in on_page(page)
        if example.use not in ("", "shown")
    }
    assert marked == known
