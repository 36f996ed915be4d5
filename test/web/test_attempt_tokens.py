"""The token of an attempt that runs as another user: what it may, and when it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.users import NOBODY, open_root
from harness.waiting import wait_until
from harness.web_server import BROWSER, served

from rq.config import files

SCRIPT = """
echo "$RQ_TOKEN" > token
mv token told
while [ ! -e end ]; do sleep 0.05; done
echo done >&3"""


@pytest.fixture(scope="module")
def web():
    with open_root() as root, served(root) as web:
        yield web


@pytest.fixture(scope="module")
def queue(web):
    """A queue whose scripts run as another user until they are told to end."""
    return as_nobody(web, SCRIPT)


def as_nobody(web, script):
    """Make a queue whose scripts run as another user."""
    name = web.queue(script, num_workers=8)
    config = web.daemon.root.queue(name).config
    files.write_state(config, {**json.loads(config.read_text()), "user": NOBODY})
    os.kill(web.daemon.child(name)["pid"], signal.SIGHUP)
    wait_until(lambda: web.daemon.ask_queue(name, "config")[1].get("user") == "65534")
    return name


@pytest.fixture
def attempt(web, queue):
    """A message at work: its id, its directory, and its token."""
    msg_id = web.send(queue)
    job = web.daemon.root.queue(queue).path / "run" / msg_id / "job"
    wait_until((job / "told").exists)
    yield msg_id, job, (job / "told").read_text().strip()
    if web.state(queue, msg_id) == "run":
        (job / "end").touch()
        wait_until(lambda: web.state(queue, msg_id) == "done")


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def send(web, secret, dest):
    return web.ask(
        "POST",
        f"/api/v1/queues/{dest}/messages",
        b'{"param1": "x"}',
        **{"Content_Type": "application/json", **bearer(secret)},
    )


def test_it_sends_to_all_queues_and_looks_at_its_own(web, queue, attempt):
    other = web.queue("echo done >&3")
    secret = attempt[2]
    assert send(web, secret, other).status in (200, 201)
    assert web.get(f"/api/v1/queues/{queue}/messages", **bearer(secret)).status == 200
    assert web.get(f"/api/v1/queues/{other}/messages", **bearer(secret)).status in (
        403,
        404,
    )
    answer = web.ask("POST", f"/api/v1/queues/{queue}/pause", b"{}", **bearer(secret))
    assert answer.status in (403, 404, 405)


def test_it_runs_no_message_again_in_a_queue_that_it_may_not_see(web, queue, attempt):
    other = web.queue("echo done >&3")
    msg_id = web.send(other)
    wait_until(lambda: web.state(other, msg_id) == "done")
    place, secret = f"{other}/messages/{msg_id}/clone", bearer(attempt[2])
    ways = (f"/api/v1/queues/{place}", f"/q/{other}/{msg_id}/clone")
    assert [web.ask("POST", way, b"", **secret).status for way in ways] == [403, 403]
    assert web.daemon.ask_queue(other, "num_messages")["done"] == 1


def test_it_ends_with_its_attempt(web, queue, attempt):
    msg_id, job, secret = attempt
    assert send(web, secret, queue).status in (200, 201)
    (job / "end").touch()
    wait_until(lambda: web.state(queue, msg_id) == "done")
    assert send(web, secret, queue).status == 401


def test_it_ends_with_the_process_that_gave_it(web, queue, attempt):
    msg_id, _, secret = attempt
    child = web.daemon.child(queue)
    assert web.get("/api/v1/queues", **bearer(secret)).status == 200
    os.kill(child["pid"], signal.SIGKILL)
    wait_until(lambda: web.get("/api/v1/queues", **bearer(secret)).status == 401)
    web.daemon.until_up(queue)
    assert send(web, secret, queue).status == 401
    assert not any(
        json.loads(left.read_text())["of"] == msg_id and secret in left.read_text()
        for left in web.daemon.root.attempt_tokens.iterdir()
    )


def test_it_signs_nobody_in(web, queue, attempt):
    answer = web.post("/login", {"token": attempt[2]}, Accept=BROWSER)
    assert (answer.status, answer.headers.get("set-cookie")) == (401, None)


def test_no_secret_lies_in_a_log_the_journal_or_a_line_of_arguments(
    web, queue, attempt
):
    secret = attempt[2].encode()
    root = web.daemon.root
    places = [root.log, root.config_dir, root.queue(queue).journal]
    for place in places:
        for file in (path for path in place.rglob("*") if path.is_file()):
            assert secret not in file.read_bytes(), file
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                assert secret not in file.read()
        except OSError:
            continue


def test_no_request_makes_a_queue_of_another_user(web):
    wanted = {"name": "mine", "script": "/bin/true", "user": "nobody"}
    word, why = web.daemon.ask("create_queue", wanted)
    assert word == "fail"
    assert "user and group are not taken from a request" in why
    body = json.dumps(wanted).encode()
    answer = web.ask("POST", "/api/v1/queues", body, Content_Type="application/json")
    assert 400 <= answer.status < 500, answer
    assert not web.daemon.root.queue("mine").path.exists()


# `python` may lie where only root can reach it: what is needed is imported before.
AS_NOBODY = """
import encodings.idna, http.client, os, sys
from rq import cli
from rq.cli import by_token, named_files, send
from rq.access import owner
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(cli.main(["--root", *sys.argv[1:]]))
"""


def test_rq_send_of_a_script_uses_it(web, attempt):
    secret, other = attempt[2], web.queue("echo done >&3")
    env = {**os.environ, "RQ_TOKEN": secret, "PYTHONPATH": str(CHECKOUT)}
    env["RQ_HOST"] = f"http://127.0.0.1:{web.port}/"

    def send_as_nobody(*words):
        command = [sys.executable, "-c", AS_NOBODY, str(web.daemon.root.path), "send"]
        return subprocess.run(
            [*command, *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = send_as_nobody(other, "-p1", "from nobody", "--id-only")
    assert done.returncode == 0, done.stderr
    msg_id = done.stdout.strip()
    message = web.daemon.ask_queue(other, "get_message", {"msg_id": msg_id})[1]
    assert message["param1"] == "from nobody"
    done = send_as_nobody(other, "--wait")
    assert done.returncode == 2
    assert done.stderr.startswith("rq: --wait cannot be done with RQ_TOKEN")
    done = send_as_nobody("nobody")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    env["RQ_TOKEN"] = "rq_0000"
    done = send_as_nobody(other)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    env["RQ_HOST"] = "http://127.0.0.1:1/"
    done = send_as_nobody(other)
    assert done.stderr.startswith("rq: http://127.0.0.1:1 does not answer: ")


def test_self_is_the_message_that_the_attempt_works_on(web, queue, attempt):
    msg_id, job, secret = attempt
    other = web.queue("echo done >&3")
    path, body = f"/api/v1/queues/{other}/messages", b'{"after": ["self"]}'
    kind = {"Content_Type": "application/json"}
    refused = web.ask("POST", path, body, **kind)
    assert "self is the message that a script works on" in refused.json["detail"]
    after = web.ask("POST", path, body, **kind, **bearer(secret)).json["msg_id"]
    view = web.get(f"{path}/{after}").json
    assert (view["after"], view["state"]) == ([f"{queue}/{msg_id}"], "que")
    (job / "end").touch()
    wait_until(lambda: web.state(other, after) == "done")
    flow = json.dumps({"messages": [{"name": "a", "dest": other, "after": ["self"]}]})
    refused = web.ask("POST", "/api/v1/flows", flow.encode(), **kind)
    assert "self is the message that a script works on" in refused.json["detail"]
