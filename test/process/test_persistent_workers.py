"""Workers that stay: started when wanted, renewed in time, ended with the queue; one that
dies costs its message one attempt, and nobody else anything."""

import contextlib
import json
import os
import re
import signal
import time

import pytest
from harness.processes import lives
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

from rq.scripts.worker import ODDITIES

pytestmark = pytest.mark.process

# Says who it is, and notes when it begins and when it is told to end.
WORKER = """#!/bin/sh
. "$RQ_SHARE/rq_worker.sh"
note() { echo "$1 $$" >> "$RQ_ROOT/notes"; }
hold() { until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done; }
note begin
while rq_next; do
    eval "$RQ_PARAM1"
    echo "done $$" >&3
done
note end
"""


@contextlib.contextmanager
def workers(path, script=WORKER, grace=0.3, **settings):
    """Give a queue of workers that stay, with little patience at its end."""
    (path / "config").mkdir()
    (path / "config/config.json").write_text(json.dumps({**SETTINGS, "grace": grace}))
    with running_queue(path, script, worker="persistent", **settings) as queue:
        yield queue


@pytest.fixture
def fresh(tmp_path):
    with workers(tmp_path) as queue:
        yield queue


@pytest.fixture
def patient(tmp_path):
    with workers(tmp_path, grace=10) as queue:
        yield queue


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with workers(tmp_path_factory.mktemp("shared")) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    for name in ("notes", "go"):
        (shared.root.path / name).unlink(missing_ok=True)
    yield shared
    shared.check()


def pid_of(queue, **fields):
    """Run a message; return the pid of the worker that took it."""
    message = queue.run(**fields)
    assert message["state"] == "done", message["status"]
    assert (message["count"], message["attempt"]) == (0, 1)
    return int(message["status"].removeprefix("done - "))


def notes(queue, word):
    """Return the pids of workers that have noted `word`."""
    with contextlib.suppress(FileNotFoundError):
        lines = (queue.root.path / "notes").read_text().splitlines()
        return [int(one.split()[1]) for one in lines if one.split()[0] == word]
    return []


def go(queue):
    (queue.root.path / "go").touch()


def held(queue, **fields):
    """Start a message that holds; return its id and the pid of its worker."""
    msg_id = queue.send(param1="hold", **fields)
    pid = wait_until(lambda: queue.until(msg_id, "run")["result"]["pid"])
    return msg_id, pid


# ---- beginning


def test_none_is_started_before_a_message_wants_one(fresh):
    assert notes(fresh, "begin") == []
    first = pid_of(fresh)
    assert notes(fresh, "begin") == [first]


def test_as_many_are_started_as_messages_wait_and_no_more_than_may_be(tmp_path):
    with workers(tmp_path, num_workers=3) as queue:
        ids = [queue.send(param1="hold") for _ in range(5)]
        wait_until(lambda: queue.ask("num_messages")["run"] == 3)
        assert queue.ask("num_messages")["que"] == 2
        go(queue)
        pids = {queue.ended(one)["status"] for one in ids}
        assert len(pids) == len(notes(queue, "begin")) == 3


def test_one_that_takes_its_time_to_begin_costs_no_message_an_attempt(tmp_path):
    slow = WORKER.replace("note begin\n", "note begin; hold\n")
    with workers(tmp_path, slow) as queue:
        msg_id = queue.send()
        wait_until(lambda: notes(queue, "begin"))
        assert queue.state(msg_id) == "que"
        go(queue)
        assert queue.ended(msg_id)["attempt"] == 1


def test_it_has_these_descriptors_and_leads_its_group(tmp_path):
    script = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
def work(message):
    found = sorted({*map(int, os.listdir("/proc/self/fd"))} - {5})
    return f"{found} {os.getpgid(0) == os.getpid()} {os.get_blocking(4)}"
rq_worker.serve(work)
"""
    with workers(tmp_path, script) as queue:
        assert queue.run()["status"] == "done - [0, 1, 2, 3, 4, 963] True True"


# ---- dying


def test_one_that_dies_without_a_message_costs_nobody(queue):
    first = pid_of(queue)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "without a message: SIGKILL" in queue.log())
    assert pid_of(queue) != first


def test_one_that_dies_with_a_message_ends_that_one_only(tmp_path):
    with workers(tmp_path, num_workers=2) as queue:
        poor, pid = held(queue)
        other, _ = held(queue)
        waiting = queue.send()
        os.kill(pid, signal.SIGKILL)
        message = queue.ended(poor)
        assert message["result"]["cause"] == "signal"
        assert (message["count"], message["attempt"]) == (0, 1)
        go(queue)
        for msg_id in (other, waiting):
            message = queue.ended(msg_id)
            assert message["state"] == "done"
            assert (message["count"], message["attempt"]) == (0, 1)


TWICE = """#!/bin/sh
hold() { until [ -e "$RQ_ROOT/$1" ]; do sleep 0.05; done; }
echo ready >&3
hold handed
echo ready >&3
echo said $$ >> "$RQ_ROOT/notes"
before
while read -r line <&4; do
    touch "$RQ_ROOT/read"
    hold go
    line="${line#*RQ_PARAM1\\":\\"}"
    echo "done ${line%%\\"*}" >&3
    echo ready >&3
done
"""


@pytest.mark.parametrize("before", ["hold go", ":"])
def test_ready_twice_ends_no_message_that_was_not_read(tmp_path, before):
    script = TWICE.replace("before\n", f"{before}\n")
    with workers(tmp_path, script) as queue:
        first, second = queue.send(param1="one"), queue.send(param1="two")
        queue.until(first, "run")
        wait_until(lambda: queue.ok("detail")["workers"][0]["phase"] == "taken")
        (tmp_path / "handed").touch()
        wait_until(lambda: notes(queue, "said"))
        if before == ":":
            wait_until((tmp_path / "read").exists)
        for _ in range(3):  # turns of its loop, in which it has heard the second
            queue.ok("check")
        go(queue)
        assert queue.ended(first)["status"] == "done - one"
        assert queue.ended(second)["status"] == "done - two"


def test_a_word_before_the_message_is_read_is_none_of_it(tmp_path):
    script = TWICE.replace("before\n", "echo done early >&3; hold go\n")
    with workers(tmp_path, script) as queue:
        msg_id = queue.send(param1="one")
        queue.until(msg_id, "run")
        wait_until(lambda: queue.ok("detail")["workers"][0]["phase"] == "taken")
        (tmp_path / "handed").touch()
        wait_until(lambda: re.search("ignores it: .*done early", queue.log()))
        go(queue)
        assert queue.ended(msg_id)["status"] == "done - one"


def test_one_that_says_ready_for_ever_does_not_fill_the_log(tmp_path):
    with workers(tmp_path, "#!/bin/sh\nexec yes ready >&3\n") as queue:
        msg_id = queue.send()
        wait_until(lambda: "RQ ignores it" in queue.log())
        for _ in range(20):
            queue.ask("ping")
        assert queue.log().count("RQ ignores it") <= ODDITIES
        queue.ok("cancel_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["result"]["cause"] == "cancelled"


def test_what_is_cancelled_before_it_was_read_is_acknowledged(tmp_path):
    """An end that was wanted is nothing to look at, whether or not a script had begun."""
    script = "#!/bin/sh\necho ready >&3\nexec sleep 300\n"
    with workers(tmp_path, script) as queue:
        msg_id = queue.send()
        queue.until(msg_id, "run")
        queue.ok("cancel_message", {"msg_id": msg_id, "who": "anna"})
        message = queue.ended(msg_id)
        assert (message["state"], message["acknowledged"]) == ("err", True)
        assert message["status"] == "err - cancelled by anna"
        assert queue.ask("num_messages")["err"] == 0


def test_one_that_exits_behind_its_ready_has_ended_its_message(tmp_path):
    """It has said so much that its last words are heard when it has exited."""
    talk = "seq 3000 | sed 's/^/run /'; echo done; echo ready"
    script = f'#!/bin/sh\n. "$RQ_SHARE/rq_worker.sh"\nrq_next\n{{ {talk}; }} >&3\n'
    with workers(tmp_path, script) as queue:
        for _ in range(3):
            assert queue.run()["status"] == "done"
        assert "Traceback" not in queue.log()


def test_what_it_leaves_behind_is_ended_with_it(queue):
    act = "setsid sleep 300 & echo $! > child; sleep 300 & kill -9 $$"
    message = queue.run(param1=act)
    assert message["result"]["signal"] == "SIGKILL"
    child = int((queue.folder(message["msg_id"]) / "job/child").read_text())
    assert not lives(child)
    pid_of(queue)


def test_what_it_leaves_behind_without_a_message_is_ended_too(queue):
    message = queue.run(param1="setsid sleep 300 & echo $! > child")
    child = int((queue.folder(message["msg_id"]) / "job/child").read_text())
    assert lives(child)
    os.kill(int(message["status"].split()[-1]), signal.SIGKILL)
    wait_until(lambda: not lives(child))
    pid_of(queue)


# ---- scripts that are none

NEVER_READY = {
    "ends": ("#!/bin/sh\nexit 3\n", "before it said ready: exit status 3"),
    "is no worker": (
        "#!/bin/sh\necho done >&3\n",
        "before it said ready: exit status 0",
    ),
    "dies": ("#!/bin/sh\nkill -9 $$\n", "before it said ready: SIGKILL"),
    "has no interpreter": ("#!/no/such\n", "its first line names /no/such"),
}


@pytest.mark.parametrize("how", NEVER_READY)
def test_a_script_that_never_gets_ready_is_an_error_that_costs_no_message(
    tmp_path, how
):
    text, reason = NEVER_READY[how]
    with workers(tmp_path, text) as queue:
        msg_id = queue.send()
        detail = wait_until(
            lambda: (
                queue.ok("detail")
                if queue.ok("detail")["status"] == "SCRIPTERROR"
                else None
            )
        )
        assert reason in detail["reason"]
        assert reason in queue.get(msg_id)["story"]["why"]
        queue.script.write_text(WORKER)
        queue.ask("wake")
        message = queue.ended(msg_id)
        assert (message["state"], message["attempt"]) == ("done", 1)
        assert queue.ok("detail")["status"] == "UP"


@pytest.mark.slow
def test_a_script_that_lives_and_never_says_ready_is_named_to_who_asks(tmp_path):
    with workers(tmp_path, "#!/bin/sh\nexec sleep 600\n") as queue:
        msg_id = queue.send()
        why = wait_until(
            lambda: (
                text
                if "has not reported `ready`"
                in (text := queue.get(msg_id)["story"]["why"])
                else None
            ),
            30,
        )
        assert f"pid {queue.ok('detail')['workers'][0]['pid']})" in why
        assert "writes `ready`" in queue.get(msg_id)["story"]["todo"]
        queue.script.write_text(WORKER)
        queue.ask("wake")
        assert queue.ended(msg_id, 60)["state"] == "done"


def test_a_script_that_dies_at_once_is_started_less_and_less_often(tmp_path):
    text = '#!/bin/sh\necho >> "$RQ_ROOT/starts"; exit 1\n'
    with workers(tmp_path, text) as queue:
        queue.send()
        wait_until((queue.root.path / "starts").exists)
        time_is_up = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > time_is_up)
        assert len((queue.root.path / "starts").read_text()) <= 3
        queue.script.write_text(WORKER)


@pytest.mark.parametrize("rest", ["exit 0", "sleep 0.1; kill -9 $$"])
def test_one_that_dies_before_it_has_read_its_message_costs_no_attempt(tmp_path, rest):
    text = f'#!/bin/sh\necho >> "$RQ_ROOT/starts"; echo ready >&3; {rest}\n'
    with workers(tmp_path, text) as queue:
        msg_id = queue.send()
        wait_until(lambda: len((queue.root.path / "starts").read_text()) > 1)
        time_is_up = time.monotonic() + 0.7
        wait_until(lambda: time.monotonic() > time_is_up)
        assert len((queue.root.path / "starts").read_text()) <= 3
        queue.script.write_text(WORKER)
        queue.ask("wake")
        message = queue.ended(msg_id)
        assert message["state"] == "done"
        assert (message["count"], message["attempt"]) == (0, 1)


def test_a_message_that_was_not_read_can_be_cancelled(tmp_path):
    text = "#!/bin/sh\necho ready >&3; sleep 300\n"
    with workers(tmp_path, text) as queue:
        msg_id = queue.send()
        queue.until(msg_id, "run")
        queue.ok("destroy_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["result"]["cause"] == "cancelled"


def test_a_missing_script_is_an_error_as_it_is_for_others(tmp_path):
    with workers(tmp_path) as queue:
        pid_of(queue)
        queue.script.rename(tmp_path / "away")
        queue.ask("wake")
        msg_id = queue.send()
        wait_until(lambda: queue.ok("detail")["status"] == "SCRIPTERROR")
        assert queue.state(msg_id) == "que"
        (tmp_path / "away").rename(queue.script)
        queue.ask("wake")
        assert queue.ended(msg_id)["state"] == "done"


# ---- renewed


def test_one_is_renewed_after_so_many_messages(tmp_path):
    with workers(tmp_path, grace=10, worker_messages=3) as queue:
        pids = [pid_of(queue) for _ in range(7)]
        assert [pids.count(one) for one in dict.fromkeys(pids)] == [3, 3, 1]
        wait_until(lambda: notes(queue, "end") == [pids[0], pids[3]])


def test_one_is_renewed_after_so_many_seconds(tmp_path):
    with workers(tmp_path, grace=10, worker_seconds=0.3) as queue:
        first = pid_of(queue)
        wait_until(lambda: pid_of(queue) != first)
        wait_until(lambda: first in notes(queue, "end"))


@pytest.fixture
def change(patient):
    queue = patient

    def config():
        queue.configure(nice=queue.settings.get("nice", 0) + 1)

    def hangup():
        os.kill(queue.pid, signal.SIGHUP)

    def edited():
        queue.script.write_text(WORKER + "# edited\n")

    def replaced():
        other = queue.script.with_name("other")
        other.write_text(WORKER)
        other.chmod(0o755)
        other.rename(queue.script)

    def relinked():
        other = queue.script.with_name("elsewhere")
        other.write_text(WORKER)
        other.chmod(0o755)
        queue.script.unlink()
        queue.script.symlink_to(other)

    return locals()


@pytest.mark.parametrize("how", ["config", "hangup", "edited", "replaced", "relinked"])
def test_all_are_renewed_when_something_changes_each_after_its_message(
    patient, change, how
):
    queue = patient
    msg_id, first = held(queue)
    change[how]()
    queue.ask("wake")
    waiting = queue.send()
    go(queue)
    assert queue.ended(msg_id)["status"] == f"done - {first}"
    queue.ended(waiting)
    wait_until(lambda: pid_of(queue) != first)
    wait_until(lambda: first in notes(queue, "end"))


def test_one_that_does_not_end_when_told_is_made_to(tmp_path):
    stubborn = WORKER + "trap '' TERM\nwhile :; do sleep 0.05; done\n"
    with workers(tmp_path, stubborn, worker_messages=1) as queue:
        first = pid_of(queue)
        assert pid_of(queue) != first
        wait_until(lambda: not lives(first))


def test_a_queue_can_be_turned_to_workers_that_stay_and_back(tmp_path):
    plain = '#!/bin/sh\necho "done once" >&3\n'
    with running_queue(tmp_path, WORKER, worker="persistent") as queue:
        first = pid_of(queue)
        queue.script.write_text(plain)
        queue.configure(worker="once")
        queue.ask("wake")
        assert queue.run()["status"] == "done - once"
        wait_until(lambda: not lives(first))
        queue.script.write_text(WORKER)
        queue.configure(worker="persistent")
        queue.ask("wake")
        assert pid_of(queue) == pid_of(queue)


# ---- cancelled, stopped


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
def test_cancelling_a_message_ends_its_worker_and_another_goes_on(queue, deaf):
    msg_id = queue.send(param1=f"{deaf}hold")
    pid = wait_until(lambda: queue.until(msg_id, "run")["result"]["pid"])
    waiting = queue.send()
    queue.ok("destroy_message", {"msg_id": msg_id})
    message = queue.ended(msg_id)
    assert (message["state"], message["result"]["cause"]) == ("err", "cancelled")
    assert not lives(pid)
    assert queue.ended(waiting)["state"] == "done"


def test_a_message_that_ends_while_it_is_cancelled_is_cancelled(queue):
    msg_id = queue.send(param1="trap '' TERM; hold")
    queue.until(msg_id, "run")
    wait_until(lambda: queue.get(msg_id)["phase"] == "running")
    queue.ok("destroy_message", {"msg_id": msg_id})
    go(queue)
    assert queue.ended(msg_id)["result"]["cause"] == "cancelled"
    pid_of(queue)


def test_a_stop_lets_a_free_worker_read_its_end(patient):
    fresh = patient
    pid = pid_of(fresh)
    assert fresh.stop() == 0
    assert notes(fresh, "end") == [pid]
    assert not lives(pid)


def test_a_stop_lets_a_message_end_within_its_grace(patient):
    fresh = patient
    msg_id, pid = held(fresh)
    fresh.process.terminate()
    wait_until(lambda: "stopping" in fresh.log())
    go(fresh)
    assert fresh.process.wait(60) == 0
    assert notes(fresh, "end") == [pid]
    fresh.start()
    assert fresh.get(msg_id)["status"] == f"done - {pid}"


def test_what_a_stop_cuts_short_is_not_counted(fresh):
    msg_id, pid = held(fresh)
    assert fresh.stop() == 0
    assert not lives(pid)
    go(fresh)
    fresh.start()
    message = fresh.ended(msg_id)
    assert (message["state"], message["count"], message["attempt"]) == ("done", 0, 2)


def test_a_stop_ends_one_that_never_gets_ready(tmp_path):
    with workers(tmp_path, '#!/bin/sh\necho $$ > "$RQ_ROOT/pid"; sleep 300\n') as queue:
        msg_id = queue.send()
        pid = int(wait_until(lambda: (tmp_path / "pid").read_text().strip()))
        assert queue.stop() == 0
        assert not lives(pid)
        queue.start()
        assert queue.get(msg_id)["attempt"] == 0


# ---- with other rules of a queue


def test_riders_end_with_the_message_that_ran_for_them(tmp_path):
    with workers(tmp_path, coalesce_params=[2]) as queue:
        first = queue.send(param1="hold", param2="x")
        queue.until(first, "run")
        ids = [queue.send(param1="note ran", param2="y") for _ in range(4)]
        go(queue)
        for msg_id in ids:
            assert queue.ended(msg_id)["state"] == "done"
        assert len(notes(queue, "ran")) == 1


def test_equal_messages_do_not_run_at_once(tmp_path):
    with workers(tmp_path, num_workers=2, blocking_params=[2]) as queue:
        first = queue.send(param1="hold", param2="x")
        queue.until(first, "run")
        second = queue.send(param2="x")
        other = queue.send(param2="y")
        assert queue.ended(other)["state"] == "done"
        assert queue.state(second) == "que"
        go(queue)
        assert queue.ended(second)["state"] == "done"


def test_a_paused_queue_gives_out_nothing(queue):
    pid_of(queue)
    pause = queue.root.pause(queue.name)
    pause.touch()
    queue.ask("wake")
    msg_id = queue.send()
    assert queue.state(msg_id) == "que"
    pause.unlink()
    queue.ask("wake")
    assert queue.ended(msg_id)["state"] == "done"


# ---- many


@pytest.mark.slow
def test_thousands_of_messages_are_each_done_once_and_lie_where_they_belong(tmp_path):
    counting = WORKER.replace('eval "$RQ_PARAM1"', 'note "$RQ_PARAM1"')
    settings = {"num_workers": 3, "worker_dir": False, "worker_messages": 150}
    with workers(tmp_path, counting, **settings) as queue:
        ids = [queue.send(param1=f"m{n}") for n in range(600)]
        wait_until(lambda: queue.ask("num_messages")["done"] == 600, 120)
        queue.check()
        ran = [one.split()[0] for one in (tmp_path / "notes").read_text().splitlines()]
        assert sorted(one for one in ran if one[0] == "m") == sorted(
            f"m{n}" for n in range(600)
        )
        for msg_id in ids[::60]:
            status = json.loads((queue.folder(msg_id) / "status").read_text())
            assert status["outcome"] == "done"
