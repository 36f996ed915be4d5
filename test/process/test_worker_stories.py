"""Every message says what happened, why, and what to do: each cause, by real processes."""

import os
import resource
import shutil
from pathlib import Path

import pytest
from harness.processes import end, lives
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.message.causes import Cause
from rq.rpc import client

pytestmark = pytest.mark.process
HOLD = "echo $$ > pid; echo run half way >&3; touch ready; exec sleep 60"


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, num_workers=2, coalesce_params=[4]) as one:
        yield one


def held(queue, **fields):
    """Return a message that runs, and its pid."""
    msg_id = queue.send(param1=HOLD, param4=os.urandom(4).hex(), **fields)
    job = queue.dir.path / "run" / msg_id / "job"
    wait_until((job / "ready").exists)
    return msg_id, int((job / "pid").read_text())


def pause(queue):
    queue.root.pause("t").touch()
    queue.ask("wake")


def says(script):
    return lambda queue: queue.run(param1=script)


def duplicate(queue):
    pause(queue)
    ids = [queue.send(param1="echo done >&3", param4="x") for _ in range(2)]
    queue.root.pause("t").unlink()
    queue.ask("wake")
    return queue.ended(ids[1])


def resend(queue):
    msg_id = queue.send(param1="echo resend 900-no route >&3")
    wait_until(lambda: queue.get(msg_id)["count"] == 1)
    return queue.get(msg_id)


def not_yet(queue):
    msg_id = queue.send(param1="echo later 900-not before noon >&3")
    return wait_for_cause(queue, msg_id, "later")


ONCE = """
if [ "$RQ_ORIG_MSG_ID" = "$RQ_FULL_MSG_ID" ]; then echo forward t >&3
else echo done >&3; fi
"""


def resend_limit(queue):
    return queue.run(param1="echo resend 0-no route >&3", max_count=2)


def script(queue):
    queue.configure(script="/no/such/script")
    queue.ask("wake")
    wait_until(lambda: queue.ok("config")["script"] == "/no/such/script")
    (queue.root.path / "gone").write_text("#!/no/such/interpreter\n")
    (queue.root.path / "gone").chmod(0o755)
    queue.configure(script=str(queue.root.path / "gone"))
    queue.ask("wake")
    msg_id = queue.send(param1="echo done >&3")
    return wait_for_cause(queue, msg_id, "script")


def wait_for_cause(queue, msg_id, cause):
    wait_until(lambda: queue.get(msg_id)["result"].get("cause") == cause)
    return queue.get(msg_id)


def spawn(queue):
    limit = resource.RLIMIT_NOFILE
    with client.Connection(queue.dir.socket) as line:
        line.ask("ping")
        before = resource.prlimit(queue.pid, limit)
        # A thread may have something open for a moment: that is no place that is taken.
        looks = (os.listdir(f"/proc/{queue.pid}/fd") for _ in range(200))
        number = min(max(map(int, fds)) for fds in looks) + 2
        resource.prlimit(queue.pid, limit, (number, before[1]))
        reply = line.ask("create_message", {"dest": "t", "param1": "echo done >&3"})
        asked = {"msg_id": reply[1].rpartition("/")[2]}
        found = wait_until(
            lambda: (
                (m := line.ask("get_message", asked)[1])["result"].get("cause") and m
            )
        )
        resource.prlimit(queue.pid, limit, before)
    assert queue.ended(asked["msg_id"])["state"] == "done"
    assert queue.get(asked["msg_id"])["result"]["attempt"] == 1
    return found


def too_large(queue):
    limit = resource.RLIMIT_STACK
    before = resource.prlimit(queue.pid, limit)
    resource.prlimit(queue.pid, limit, (256 * 1024, before[1]))
    found = queue.run(
        param1="echo done >&3", param2="x" * 100_000, param3="x" * 100_000
    )
    resource.prlimit(queue.pid, limit, before)
    return found


def bad_message(queue):
    folder = queue.root.path / "made"
    folder.mkdir()
    (folder / "msg").write_text('{"dest": "t", "due": {}}')
    folder.rename(queue.dir.path / "new" / "made")
    queue.ask("wake")
    [msg_id] = wait_until(lambda: queue.ask("messages", {"state": "err"}))
    return queue.get(msg_id)


def crash(queue):
    msg_id, pid = held(queue)
    pause(queue)
    queue.crash()
    queue.start()
    assert not lives(pid)
    return queue.get(msg_id)


def crash_limit(queue):
    msg_id, _ = held(queue, max_count=1)
    queue.crash()
    queue.start()
    return queue.get(msg_id)


def host(queue):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no mount namespace -> sudo ./test/run_tests.sh process")
    msg_id, pid = held(queue)
    pause(queue)
    queue.crash()
    end(pid)
    other = queue.root.path / "boot"
    other.write_text("11111111-2222-3333-4444-555555555555\n")
    bind = f"mount --bind {other} /proc/sys/kernel/random/boot_id"
    queue.start(("unshare", "-m", "sh", "-c", f'{bind} && exec "$@"', "-"))
    found = queue.get(msg_id)
    queue.ok("delete_message", {"msg_id": msg_id})
    return found


def cancelled(queue):
    msg_id, _ = held(queue)
    queue.ok("cancel_message", {"msg_id": msg_id, "who": "drew@host"})
    return queue.ended(msg_id)


def stop(queue):
    msg_id, _ = held(queue)
    pause(queue)
    queue.restart()
    return queue.get(msg_id)


def operator(queue):
    msg_id = queue.run(param1="echo err broken >&3")["msg_id"]
    pause(queue)
    queue.ok("retry_message", {"msg_id": msg_id, "who": "drew@host"})
    return queue.get(msg_id)


# cause: how it comes about, its state, words of what and of why
CAUSES = {
    Cause.DONE: (says("echo done fine >&3"), "done", "succeeded in attempt 1", "fine"),
    Cause.RELAYED: (says("echo relayed http://x >&3"), "relayed", "handed", "http://x"),
    Cause.DUPLICATE: (duplicate, "done", "together with another", "params): http://"),
    Cause.SAID_ERR: (
        says("echo err broken >&3"),
        "err",
        "failed in attempt 1",
        "broken",
    ),
    Cause.FORWARDED: (says(ONCE), "done", "was handed on", "forwarded to t"),
    Cause.REFUSED: (
        says("echo forward nobody >&3"),
        "err",
        "failed in attempt 1",
        "refused: there is no queue nobody",
    ),
    Cause.LATER: (not_yet, "que", "Attempt 1 ended", "run later: not before noon"),
    Cause.RESEND: (
        resend,
        "que",
        "Attempt 1 ended",
        "retry 1 of 15): no route. It is due",
    ),
    Cause.RESEND_LIMIT: (resend_limit, "err", "run again 2 times", "max_count is 2"),
    Cause.BAD_REPORT: (says("echo resend soon >&3"), "err", "failed", "resend SECONDS"),
    Cause.EXIT: (says("exit 7"), "err", "failed in attempt 1", "status 7"),
    Cause.SIGNAL: (says("kill -9 $$"), "err", "failed in attempt 1", "SIGKILL"),
    Cause.NO_WORD: (says("exit 0"), "err", "failed in attempt 1", "never reported"),
    Cause.SCRIPT: (script, "que", "cannot be started", "which is not there"),
    Cause.SPAWN: (spawn, "que", "no process could be", "Too many open files"),
    Cause.TOO_LARGE: (too_large, "err", "before it was started", "of a process (200"),
    Cause.BAD_MESSAGE: (bad_message, "err", "refused when its", "due is not epoch"),
    Cause.CRASH: (crash, "que", "Attempt 1 was lost", "without warning"),
    Cause.HOST: (host, "que", "Attempt 1 was lost", "machine restarted"),
    Cause.CRASH_LIMIT: (crash_limit, "err", "was lost once", "RQ, the machine"),
    Cause.CANCELLED: (cancelled, "err", "cancelled in attempt 1", "by drew@host"),
    Cause.STOP: (stop, "que", "Attempt 1 was cut short", "queue was stopped"),
    Cause.OPERATOR: (operator, "que", "waits to run again", "by drew@host"),
}


ELSEWHERE = {
    Cause.AFTER: "test_after.py",
    Cause.NOT_NEEDED: "test_after.py",
    Cause.BATCH: "test_batch.py",
    Cause.EXITED: "test_success_exit.py",
    Cause.FOLDER: "test_one_folder.py",
    Cause.FOLDER_LIMIT: "test_one_folder.py",
    Cause.FAULT: "test_one_folder.py",
    Cause.TIMEOUT: "test_limits_shared.py",
    Cause.HEARTBEAT: "test_limits_shared.py",
    Cause.MEMORY: "test_limits.py",
    Cause.CPU: "test_limits.py",
    Cause.DEADLINE: "test_limits.py",
    Cause.MOVED: "test_bulk.py",
    Cause.JOINED: "test_unique.py",
    Cause.REPLACED: "test_unique.py",
    Cause.NOT_UNIQUE: "test_unique.py",
    Cause.LEASE_ENDED: "test_leases.py",
    Cause.NOT_TAKEN: "test_leases.py",
    Cause.RELEASED: "test_leases.py",
}


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_walked(cause):
    if cause not in CAUSES:
        tests = Path(__file__).parents[1].glob(f"*/{ELSEWHERE[cause]}")
        assert any(f'"{cause}"' in test.read_text() for test in tests)


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_tells_its_story(queue, cause):
    make, state, what, why = CAUSES[cause]
    message = make(queue)
    story = message["story"]
    assert message["result"]["cause"] == cause
    assert message["state"] == state
    assert what in story["what"]
    assert why in story["why"]
    for sentence in story.values():
        assert sentence
        assert sentence[0].isupper() or sentence[0] == "`"
        assert "?" not in sentence
        assert "None" not in sentence
    if state == "err":
        assert message["msg_id"] in story["todo"] or cause in (
            Cause.TOO_LARGE,
            Cause.BAD_MESSAGE,
        )


PLAIN = {
    "prep": "It is being prepared.",
    "que": "It waits in the queue.",
    "run": "It is running, attempt 1.",
}


def test_a_message_that_has_no_cause_yet_tells_its_story_too(queue):
    prepared = queue.ok("prep_message", {"dest": "t"}).rpartition("/")[2]
    waiting = queue.send(due=4e9)
    running, _ = held(queue)
    wait_until(lambda: "half way" in queue.get(running)["status"])
    for msg_id, state in ((prepared, "prep"), (waiting, "que"), (running, "run")):
        story = queue.get(msg_id)["story"]
        assert story["what"] == PLAIN[state]
        assert "?" not in "".join(story.values())
    queue.ok("destroy_message", {"msg_id": running})
    queue.ended(running)


def test_a_message_that_cannot_be_read_is_in_lists_and_can_be_removed(queue):
    message = bad_message(queue)
    msg_id = message["msg_id"]
    assert message["unreadable"]
    [row] = queue.ok("list", {"state": "err"})
    assert row["msg_id"] == msg_id
    assert row["status"] == "err - due is not epoch seconds: {}"
    assert queue.ask("retry_message", {"msg_id": msg_id})[0] == "fail"
    assert queue.ask("clone_message", {"msg_id": msg_id})[0] == "fail"
    queue.ok("delete_message", {"msg_id": msg_id})


def test_a_message_that_waits_again_says_what_it_waits_for_and_why(queue):
    message = resend(queue)
    assert "It is due in" in message["story"]["why"]
    pause(queue)
    assert "The queue is paused since" in queue.get(message["msg_id"])["story"]["why"]


def test_the_log_of_a_cut_attempt_says_how_it_ended(queue):
    msg_id, _ = held(queue)
    pause(queue)
    queue.restart()
    output = (queue.folder(msg_id) / "job/stdio.log").read_text()
    assert "RQ END - SIGTERM" in output
