"""One-file jobs in queues: what they read, say and send, and what a kill leaves."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import time

import pyarrow as pa
import pytest
from harness.processes import lives
from harness.queues import SETTINGS, running_queue
from harness.spark_jobs import HEAD, TAKE, job_settings, prepared
from harness.waiting import wait_until

from rq.spark import doctor

PATIENCE = 300.0  # seconds for what starts a JVM, on a busy machine
LONG = 3600


def log(*entries):
    """Return a log of (url, status) in the form `common`."""
    line = '10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] "GET {} HTTP/1.1" {} 12\n'
    return "".join(line.format(*entry) for entry in entries).encode()


@pytest.fixture
def jobs(tmp_path, spark_env):
    """Give what makes a queue of a job; all of them are in one root."""
    with contextlib.ExitStack() as stack:
        stack.callback(end_jobs, tmp_path)

        def make(script, name="logs", **settings):
            given = {**job_settings(tmp_path, spark_env), **settings}
            text = script if script.startswith("#!") else HEAD + script
            return stack.enter_context(running_queue(tmp_path, text, name, **given))

        yield make


def end_jobs(root):
    """End what a test that fails has left running."""
    for path in root.glob("pid-*"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGKILL)


# ---- a whole batch

COUNT = """
import os

with open(os.environ["RQ_ROOT"] + "/starts", "a") as file:
    file.write("1\\n")

@job
def run(q):
    hits = q.parse(q.lines(allow_empty=True), "common")
    bad = hits.where("status >= 500").groupBy("src", "url").count().orderBy("src", "url")
    q.attach(bad, "errors.csv")
    rejects = q.rejects.orderBy("msg_id", "lineno").select("file", "lineno", "line")
    q.attach(rejects, "rejects.jsonl")
    q.err([one.msg_id for one in q.messages if one["param2"] == "bad"], "no log")
    q.resend([one.msg_id for one in q.messages if one["param2"] == "early"], "1h", "wait")
    q.send("deliver", param1="report")
"""


@pytest.mark.slow
def test_500_messages_are_one_start_of_spark_and_one_result(jobs):
    deliver = jobs(TAKE, "deliver")
    logs = jobs(COUNT, batch={"max": 500, "wait": LONG})
    packed = pa.Codec("zstd").compress(log(("/b", 500)) * 3, asbytes=True)
    sent = [
        prepared(
            logs, {"a.gz": gzip.compress(log(("/a", 500), ("/a", 200)))}, src="w1"
        ),
        prepared(logs, {"b.zst": packed}, src="w1"),
        prepared(logs, {"c": log(("/a", 503)) + b"no log line\n"}, src="w2"),
        prepared(logs, {"cut.gz": gzip.compress(log(("/a", 500)) * 9)[:-9]}),
        logs.send(param2="bad"),
        logs.send(param2="early"),
    ]
    sent += [logs.send() for _ in range(494)]
    assert logs.ended(sent[0], PATIENCE)["status"].startswith("done - sent deliver/")
    assert logs.ended(sent[-1], PATIENCE)["status"].startswith("done - sent deliver/")
    cut = logs.ended(sent[3])["status"]
    assert cut.startswith("err - cut.gz: Compressed file ended")
    assert logs.ended(sent[4])["status"] == "err - no log"
    waits = logs.until(sent[5], "que", seconds=PATIENCE)
    assert waits["due"] > time.time() + LONG / 2
    # Its process was one; the function was called again without the bad file.
    assert (logs.root.path / "starts").read_text() == "1\n"
    [result] = delivered(deliver, 1)
    assert (result / "attach/errors.csv").read_text() == (
        '"src","url","count"\n"w1","/a",1\n"w1","/b",3\n"w2","/a",1\n'
    )
    assert (result / "attach/rejects.jsonl").read_text() == (
        '{"file": "c", "lineno": 2, "line": "no log line"}\n'
    )


def delivered(deliver, number):
    """Wait for so many messages to be done; return their folders."""

    def found():
        deliver.ok("check")
        folders = [one.parent for one in deliver.dir.path.glob("done/*/*/*/*/msg")]
        return folders if len(folders) >= number else None

    folders = wait_until(found, PATIENCE)
    assert len(folders) == number
    return folders


# ---- once

DYING = """
import os
from pathlib import Path
from rq.spark import sending

ROOT = Path(os.environ["RQ_ROOT"])
prepare, commit = sending.Sender.prepare, sending.Sender.commit

def die_once(self, when):
    mark = ROOT / f"{self._queue}-died-{when}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)

def prepare_and_die(self, *of):
    made = prepare(self, *of)
    die_once(self, "prepared")
    return made

def commit_and_die(self, prepared):
    commit(self, prepared[:1])
    die_once(self, "one")
    commit(self, prepared[1:])
    die_once(self, "all")

sending.Sender.prepare, sending.Sender.commit = prepare_and_die, commit_and_die

@job
def run(q):
    for param in ("first", "second"):
        q.attach("".join(f"{one}\\n" for one in q.ids), "ids.txt")
        q.send("deliver", param1=param, param2=q.queue)
"""


def test_what_a_killed_job_sends_is_delivered_once(jobs):
    deliver = jobs(TAKE, "deliver")
    many = jobs(DYING, "many", batch={"max": 9, "wait": 1}, num_workers=1)
    lone = jobs(DYING, "lone")
    sent = {"many": [many.send(), many.send()], "lone": [lone.send()]}
    # One that comes later: whoever goes round again is in another batch than before.
    wait_until((many.root.path / "many-died-one").exists, PATIENCE)
    sent["many"].append(many.send())
    for msg_id in sent["many"]:
        assert many.ended(msg_id, PATIENCE)["state"] == "done"
    # One alone that kills itself needs a person each time.
    while lone.ended(sent["lone"][0], PATIENCE)["state"] == "err":
        lone.ok("retry_message", {"msg_id": sent["lone"][0]})
    died = {one.name for one in many.root.path.glob("*-died-*")}
    assert died >= {"many-died-prepared", "many-died-one", "many-died-all"}
    # What it sent is settled before it is run again: then nothing is left to kill.
    assert died >= {"lone-died-prepared", "lone-died-one"}
    found = {}
    deliver.ok("check")
    for folder in deliver.dir.path.glob("done/*/*/*/*"):
        message = deliver.get(folder.name)
        name = message["param2"], message["param1"]
        ids = (folder / "attach/ids.txt").read_text().split()
        found.setdefault(name, []).extend(ids)
    for queue, ids in sent.items():
        for param in ("first", "second"):
            assert sorted(found[queue, param]) == sorted(ids)


# ---- how it ends

FAILING = """
@job
def run(q):
    if q.messages[0]["param1"] == "nowhere":
        q.send("nowhere")
    elif q.messages[0]["param1"] in ("asleep", "down"):
        q.send(q.messages[0]["param1"])
    elif q.messages[0]["param1"] == "unsent":
        q.attach("text", "lost.txt")
    elif q.messages[0]["param1"] == "wrong":
        q.lines(select=7)
    else:
        raise ValueError("there is no column x\\nor y")
"""


def tried_once(queue, msg_id):
    """Return a message when its first attempt has ended."""
    return wait_until(lambda: (one := queue.get(msg_id))["count"] and one, PATIENCE)


def test_how_a_job_fails_is_said_in_one_line(jobs):
    logs = jobs(FAILING)
    (logs.root.queues / "asleep").mkdir()
    failed = logs.run(PATIENCE)
    assert failed["status"] == "err - ValueError: there is no column x"
    assert "Traceback" in logs.output(failed["msg_id"])
    for param, text in (
        ("nowhere", "err - there is no queue nowhere to send to"),
        ("unsent", "err - lost.txt: attached, but no q.send follows"),
        (
            "wrong",
            "err - q.lines: 'select' is not known; these are: allow_empty",
        ),
    ):
        failed = logs.run(PATIENCE, param1=param)
        assert failed["status"] == text
        assert "Traceback" not in logs.output(failed["msg_id"])
    down = jobs(TAKE, "down")
    down.root.down("down").touch()
    wait_until(lambda: down.ask("status") == ["DOWN"])
    for param, why in (("asleep", "nobody answers"), ("down", "down: status: DOWN")):
        later = logs.send(param1=param)
        found = tried_once(logs, later)
        assert found["due"] > time.time() + 5
        assert why in found["status"]
    down.root.down("down").unlink()


SLOW = """
import os, time
from pathlib import Path

def sleep(batches):
    Path(os.environ["RQ_ROOT"], "asleep-spark").touch()
    time.sleep(3600)
    yield from batches

@job
def run(q):
    kind = q.messages[0]["param1"]
    Path(os.environ["RQ_ROOT"], f"pid-{kind}").write_text(str(os.getpid()))
    if kind == "python":
        time.sleep(3600)
    q.spark.range(4).mapInArrow(sleep, "id long").count()
"""


PATIENT = """
import os, subprocess, time
from pathlib import Path

@job
def run(q):
    Path(os.environ["RQ_ROOT"], f"pid-{q.queue}").write_text(str(os.getpid()))
    subprocess.run(["sleep", "3600"])  # until TERM
    time.sleep(1)
    raise ValueError("cut off")
"""


def test_a_stop_of_the_queue_gives_a_job_back_and_counts_no_attempt(jobs, tmp_path):
    (tmp_path / "config").mkdir()
    # So that it is TERM that ends it.
    settings = {**SETTINGS, "grace": 5}
    (tmp_path / "config/config.json").write_text(json.dumps(settings))
    queues = jobs(PATIENT, "lone"), jobs(PATIENT, "many", batch={"max": 2, "wait": 0})
    sent = [one.send() for one in queues]
    for one in queues:
        wait_until((tmp_path / f"pid-{one.name}").read_text, PATIENCE)
        one.root.pause(one.name).touch()
        one.process.terminate()
    for one, msg_id in zip(queues, sent, strict=True):
        assert one.process.wait(PATIENCE) == 0
        one.start()
        found = one.get(msg_id)
        assert (found["state"], found["count"]) == ("que", 0), found


@pytest.mark.slow
def test_term_ends_a_job_whatever_it_waits_for(jobs, tmp_path):
    (tmp_path / "config").mkdir()
    # So that it is TERM that ends it.
    settings = {**SETTINGS, "grace": 120}
    (tmp_path / "config/config.json").write_text(json.dumps(settings))
    logs = jobs(SLOW, batch={"max": 2, "wait": LONG, "by": "param1"}, num_workers=2)
    sent = {
        name: [logs.send(param1=name) for _ in "12"] for name in ("spark", "python")
    }
    wait_until((tmp_path / "asleep-spark").exists, PATIENCE)
    wait_until((tmp_path / "pid-python").read_text, PATIENCE)
    found = doctor.sockets()
    assert found
    assert all(one.on_loopback for one in found)
    for ids in sent.values():
        logs.ok("cancel_batch", {"msg_id": ids[0]})
    for name, ids in sent.items():
        for msg_id in ids:
            ended = logs.ended(msg_id, PATIENCE)
            assert ended["state"] == "err"
            assert "signal" not in (ended["story"] or {}), name
        assert not lives(int((tmp_path / f"pid-{name}").read_text()))
