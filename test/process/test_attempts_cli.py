"""Attempts and results on the command line, with the queue's process and without it."""

import json

import pytest
from harness.cli import rq
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ACT = """echo "this is $RQ_COUNT"
echo "result value $RQ_COUNT" >&3
[ "$RQ_COUNT" -ge 1 ] && { echo done well >&3; exit; }
exit 75
"""


@pytest.fixture(scope="module", params=["running", "stopped"])
def tried(request, tmp_path_factory):
    """A queue, and a message that was tried twice."""
    root = tmp_path_factory.mktemp("root")
    setting = {"on": [75], "wait": 0}
    with running_queue(root, retry=setting) as queue:
        msg_id = queue.run(param1=ACT)["msg_id"]
        queue.check()
        if request.param == "stopped":
            assert queue.stop() == 0
        yield queue, msg_id
        if request.param == "stopped":
            queue.start()


def say(tried, verb, *words):
    queue, msg_id = tried
    return rq(verb, f"{queue.name}/{msg_id}", *words, root=queue.root.path)


def test_the_log_of_one_attempt_is_printed(tried):
    for number in (1, 2):
        done = say(tried, "logs", "--attempt", str(number))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("this is") == 1
        assert f"this is {number - 1}\n" in done.stdout
        assert "RQ END" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--attempt", "3"), 3, "nothing is kept of attempt 3; those are 1, 2"),
        (("--attempt", "1", "-f"), 2, "say it without -f"),
        (("--attempt", "0"), 2, "--attempt"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(tried, words, code, sentence):
    done = say(tried, "logs", *words)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_each_attempt_is_told(tried):
    done = say(tried, "show")
    assert done.returncode == 0, done.stderr
    assert "HOW IT ENDED" in done.stdout
    assert "exit status 75" in done.stdout
    assert "value 1" in done.stdout
    rows = json.loads(say(tried, "show", "--json").stdout)["attempts"]
    assert [row["result"] for row in rows] == ["value 0", "value 1"]


def test_the_result_is_printed_alone(tried):
    done = say(tried, "wait", "--result")
    assert (done.returncode, done.stdout) == (0, "value 1\n")
    rows = json.loads(say(tried, "wait", "--json").stdout)
    assert rows[0]["result"] == "value 1"


def test_when_the_next_attempt_is_and_why_is_in_the_list(tmp_path):
    setting = {"on": ["exit"], "times": 4, "wait": 40}
    with running_queue(tmp_path, retry=setting) as queue:
        msg_id = queue.send(param1="exit 75")
        wait_until(lambda: queue.get(msg_id).get("next_attempt"))
        listed = rq("ls", queue.name, root=tmp_path).stdout
        assert "attempt 2 of 5 at " in listed
        assert "exit status 75, waits 40 s" in listed
        shown = rq("show", f"{queue.name}/{msg_id}", root=tmp_path).stdout
        assert "exit status 75, waits 40 s" in shown
        assert queue.stop() == 0
        assert "attempt 2 of 5 at " in rq("ls", queue.name, root=tmp_path).stdout
        queue.start()
