"""The examples do what their README says, as they stand there."""

import contextlib
import gzip
import http.server
import json
import shutil
import threading

import pytest
from harness.checkout import CHECKOUT
from harness.queues import running_queue, short
from harness.waiting import wait_until

from rq import config
from rq.timers import timer

pytestmark = pytest.mark.process

EXAMPLES = CHECKOUT / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/run"))


@contextlib.contextmanager
def example(root, name):
    """Give an example as a queue, with the config it comes with."""
    settings = json.loads((EXAMPLES / name / "config.json").read_text())
    with running_queue(
        root, EXAMPLES / name / "run", name, nice=0, **settings
    ) as queue:
        yield queue


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_told_and_its_files_can_be_used(name):
    place = EXAMPLES / name
    assert f"**[{name}]({name}/run)**" in (EXAMPLES / "README.md").read_text()
    config.queue_config(
        {"script": "run", **config.read_json(place / "config.json")}, place
    )
    assert config.read_json(place / "form.json")
    for path in place.glob("timer.json"):
        assert timer.parse(path).queue == name


# ---- curl


@pytest.fixture
def site():
    """A web server with one page; others answer as they are called."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status = int(self.path[1:]) if self.path[1:].isdigit() else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"a page\n")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_fetches_and_tells_whose_fault_it_is(tmp_path, site):
    with example(tmp_path, "curl") as queue:
        good = queue.run(param1=f"{site}/a {site}/b")
        assert good["status"] == "done - 2 fetched"
        job = queue.folder(good["msg_id"]) / "job"
        assert [(job / name).read_text() for name in "12"] == ["a page\n"] * 2
        assert queue.run(param1=f"{site}/404")["status"].endswith("HTTP status 404")
        for url in ("", "file:///etc/passwd", "-o/etc/x", "*"):
            assert queue.run(param1=url)["state"] == "err"
        again = queue.send(param1=f"{site}/a {site}/503")
        tried(queue, again, "10-")
        lost = queue.send(param1="http://127.0.0.1:1/")
        assert "curl exit 7" in tried(queue, lost, "10-")["result"]["job_status"]


def tried(queue, msg_id, text):
    """Wait until a try of a message has asked for another; return the message."""

    def asked():
        result = queue.get(msg_id)["result"]
        return "finished" in result and text in result["job_status"]

    wait_until(asked)
    return queue.get(msg_id)


# ---- transcode


def send_files(queue, files, **fields):
    msg_id = short(queue.ok("prep_message", {"dest": queue.name, **fields}))
    for path in files:
        queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(path)})
    queue.ok("commit_message", {"msg_id": msg_id})
    return queue.ended(msg_id)


def test_transcode_makes_a_file_of_each_attachment(tmp_path):
    files = [tmp_path / name for name in ("one film.txt", "two.txt")]
    for path in files:
        path.write_text(path.name * 1000)
    with example(tmp_path, "transcode") as queue:
        ended = send_files(queue, files)
        assert ended["status"] == "done - 100%, 2 made"
        job = queue.folder(ended["msg_id"]) / "job"
        for path in files:
            assert gzip.decompress((job / f"{path.name}.gz").read_bytes()) == (
                path.read_bytes()
            )
        assert queue.run()["state"] == "err"
        queue.configure(env_vars={"TRANSCODE": "false"})
        queue.ask("wake")
        assert send_files(queue, files)["status"].endswith("exit 1 of false")


# ---- rotate-logs


def test_logs_are_rotated_and_packed(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "empty.log").touch()
    (logs / "-rf.log").write_text("odd name\n")
    with example(tmp_path / "root", "rotate-logs") as queue:
        for day in range(5):
            (logs / "a.log").write_text(f"day {day}\n")
            ended = queue.run(param1=str(logs), param2="3")
            assert ended["state"] == "done", ended["status"]
        assert queue.run(param1="logs")["state"] == "err"
        assert queue.run(param1=str(logs), param2="all")["state"] == "err"
    assert sorted(one.name for one in logs.iterdir()) == [
        "-rf.log.1",
        "a.log.1",
        "a.log.2.gz",
        "a.log.3.gz",
        "empty.log",
    ]
    assert (logs / "a.log.1").read_text() == "day 4\n"
    assert gzip.decompress((logs / "a.log.3.gz").read_bytes()) == b"day 2\n"


# ---- cron-job


def test_a_job_is_chosen_by_name_and_its_exit_status_counts(tmp_path):
    with example(tmp_path, "cron-job") as queue:
        ended = queue.run(param1="disk-space", param2=str(tmp_path))
        assert ended["status"] in ("done - disk-space", "err - disk-space: exit 1")
        assert "is used to" in queue.output(ended["msg_id"])
        for name in ("", "../run", "nothing", "-x", "a b"):
            assert queue.run(param1=name)["state"] == "err"
