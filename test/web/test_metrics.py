"""What Prometheus reads: each metric is in the reference, and counts what happened."""

import re

import pytest
from harness import documents
from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until
from harness.web_server import served, web_alone

pytestmark = pytest.mark.process

SCRIPT = "#!/bin/sh\necho ${RQ_PARAM1} >&3\n"
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def values(web):
    """Return the samples: by name and labels."""
    lines = web.get("/metrics").text.splitlines()
    samples = [LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(samples)
    every = {(sample[1], sample[2] or ""): float(sample[3]) for sample in samples}
    assert len(every) == len(samples)
    return every


def test_what_a_queue_does_is_counted(tmp_path):
    with kept(RunningQueue(tmp_path, "t", SCRIPT)) as queue, web_alone(tmp_path) as web:
        for word in ("done", "done", "err"):
            queue.ended(queue.send(param1=word))
        queue.send(due=4e9)
        seen = values(web)
        q = 'queue="t"'
        assert seen["rq_messages_accepted_total", q] == 4
        assert seen["rq_attempts_total", f'{q},outcome="done"'] == 2
        assert seen["rq_attempts_total", f'{q},outcome="failed"'] == 1
        assert seen["rq_messages_ended_total", f'{q},state="err",cause="said_err"'] == 1
        assert seen["rq_messages_ended_total", f'{q},state="done",cause="done"'] == 2
        assert seen["rq_message_wait_seconds_count", q] == 3
        assert seen["rq_attempt_run_seconds_count", q] == 3
        assert seen["rq_attempt_run_seconds_bucket", f'{q},le="+Inf"'] == 3
        assert 0 < seen["rq_attempt_run_seconds_sum", q] < 30
        assert seen["rq_queue_messages", f'{q},state="que"'] == 1
        assert seen["rq_queue_up", q] == 1
        assert seen["rq_disk_free_bytes", ""] > 0
        queue.close()
        assert values(web)["rq_queue_up", q] == 0


def test_a_process_that_ended_is_counted(tmp_path):
    with served(tmp_path) as web:
        name = web.queue("echo done >&3")
        label = f'kind="queue",process="{name}"'
        assert values(web)["rq_process_restarts_total", label] == 0
        web.daemon.kill(name)
        web.daemon.until_up(name)
        wait_until(lambda: values(web)["rq_process_restarts_total", label] == 1)


def test_messages_of_a_transaction_and_riders_are_counted(tmp_path):
    settings = {"coalesce_params": [1]}
    made = RunningQueue(tmp_path, "t", SCRIPT, **settings)
    with kept(made) as queue, web_alone(tmp_path) as web:
        queue.root.pause("t").touch()
        queue.ask("wake")
        txn = queue.ok("open_txn", {})["txn"]
        rows = [{"param1": "done"}] * 3
        ids = queue.ok("prepare_txn", {"txn": txn, "messages": rows})
        queue.ok("commit_txn", {"txn": txn, "ids": ids})
        assert values(web)["rq_messages_accepted_total", 'queue="t"'] == 3
        queue.root.pause("t").unlink()
        queue.ask("wake")
        for msg_id in ids:
            queue.ended(msg_id)
        seen = values(web)
        ended = {
            labels: number
            for (name, labels), number in seen.items()
            if name == "rq_messages_ended_total"
        }
        assert sum(ended.values()) == 3
        assert (
            seen["rq_attempts_total", 'queue="t",outcome="done"']
            == ended['queue="t",state="done",cause="done"']
        )


def test_the_reference_tells_of_each_metric():
    source = (CHECKOUT / "rq/web/metrics.py").read_text()
    names = set(re.findall(r'"(rq_[a-z_]+)"', source))
    names |= {
        f"rq_broker_queue_{word}"
        for word in re.findall(r'(?m)^        \("(\w+)", "gauge"', source)
    }
    page = documents.REFERENCE / "metrics.md"
    told = {
        word
        for title in ("The root", "Queues", "The broker")
        for row in documents.rows(documents.section(page, title), "metric")
        for word in documents.WORD.findall(row[0])
    }
    assert told == names
