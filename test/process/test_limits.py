"""Limits of an attempt, kept with real scripts."""

import contextlib
import os
import time

import pytest
from harness import processes
from harness.extent import rotated
from harness.queues import SCRIPTS, RunningQueue, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
NOBODY_ELSE = 54321
LIMITED = 'limited() { grep -q "Max $1 .* $2 " /proc/self/limits; }; limited'


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, num_workers=4, grace=0.3) as queue:
        yield queue
        queue.check()


def run(queue, script, **fields):
    return queue.run(
        param1=f'exec 2>&1\nsay() {{ echo "$@" >&3; }}\n{script}', **fields
    )


def failed(queue, script, cause, **fields):
    """Run a script that is ended by a limit; return the text of its end."""
    message = run(queue, script, **fields)
    assert message["state"] == "err", message
    assert message["result"]["cause"] == cause, message
    assert message["result"]["job_status"] in message["story"]["why"]
    return message["result"]["job_status"]


def done(queue, script, **fields):
    message = run(queue, script, **fields)
    assert message["state"] == "done", message["result"]


# ---- time


def test_a_script_is_ended_at_its_timeout(queue):
    text = failed(queue, "sleep 60", "timeout", timeout=0.4)
    assert text.startswith("killed after ")
    assert text.endswith(": over its timeout of 400 ms")


def test_one_that_ends_in_time_is_not(queue):
    done(queue, "say done", timeout=30, heartbeat=30, deadline=time.time() + 60)


def test_one_that_ignores_term_is_killed_after_its_grace(queue):
    script = "trap '' TERM; while :; do sleep 0.1; done"
    began = time.monotonic()
    failed(queue, script, "timeout", timeout=0.3, grace=0.2)
    assert time.monotonic() - began < 20


def test_what_it_says_in_its_grace_stands(queue):
    script = "trap 'say err gave up; exit 1' TERM; sleep 60 & wait"
    message = run(queue, script, timeout=0.3, grace=30)
    assert (message["result"]["cause"], message["state"]) == ("said_err", "err")
    script = "trap 'say done after all; exit 0' TERM; sleep 60 & wait"
    done(queue, script, timeout=0.3, grace=30)


def test_nothing_of_it_is_left_that_has_hidden(queue, tmp_path):
    """A child in a session of its own, whose parent has ended, and that ignores TERM."""
    pid = tmp_path / "pid"
    hidden = f"trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 60"
    script = f'(setsid bash -c "{hidden}" &) ; while :; do sleep 0.1; done'
    failed(queue, script.replace("$$", "\\$\\$"), "timeout", timeout=1, grace=0.2)
    assert not processes.lives(int(pid.read_text()))


def test_a_silent_script_is_ended(queue):
    text = failed(queue, "say run a; sleep 60", "heartbeat", heartbeat=0.4)
    assert text.endswith(": no word for 400 ms, its heartbeat")


@pytest.mark.parametrize("word", rotated(["say run", "echo"]))
def test_words_and_output_are_signs_of_life(queue, word):
    beats = f"for n in $(seq 12); do {word} $n; sleep 0.2; done; say done"
    done(queue, beats, heartbeat=2)


def test_what_is_past_its_deadline_is_not_started(queue, tmp_path):
    text = failed(queue, f"touch {tmp_path}/it", "deadline", deadline=time.time() - 1)
    assert "its deadline was 20" in text
    assert not (tmp_path / "it").exists()
    done(queue, "say done", deadline=time.time() + 1000)


def test_a_bad_limit_is_refused_by_its_name(queue):
    for name, value, text in [
        ("timeout", 0, "timeout: 0 is not more than 0 and at most 366 days"),
        ("timeout", "soon", "timeout: not a duration"),
        ("memory", "12 parsecs", "memory: '12 parsecs' is not a size"),
        ("memory", 5, "memory: 5 is not between"),
        ("open_files", 1.5, "open_files: 1.5 is not a whole number"),
        ("deadline", "tomorrow", "deadline: "),
    ]:
        word, said = queue.ask("create_message", {"dest": "t", name: value})
        assert (word, text in said) == ("fail", True), said


# ---- what the kernel keeps


def test_a_memory_hog_is_told_from_other_failures(queue):
    hog = "python3 -c \"x = []\nwhile True: x.append(b'x' * (1 << 20))\""
    text = failed(queue, f"exec {hog}", "memory", memory="300 MiB")
    assert text.endswith(": over its 300 MiB")
    message = run(queue, "exit 3", memory="300 MiB")
    assert message["result"]["cause"] == "exit"


@pytest.mark.parametrize(
    "burn", rotated(["while :; do :; done", "(while :; do :; done)"])
)
def test_one_that_burns_the_processor_is_ended(queue, burn):
    text = failed(queue, burn, "cpu", cpu_seconds=1)
    assert text.endswith(": over its 1.0 s of processor time")


def test_files_and_processes_are_counted(queue):
    script = f"{LIMITED} open 100 && {LIMITED} processes 77 && say done"
    done(queue, script, open_files=100, processes=77)


@pytest.fixture
def of_another_user(tmp_path):
    """A queue of a user who has no other processes."""
    if os.geteuid() != 0:
        pytest.skip("it needs a user without processes -> run it as root")
    for place in (tmp_path, *tmp_path.parents[:-2]):
        place.chmod(0o755)
    queue = RunningQueue(tmp_path, "t", (SCRIPTS / "obey").read_text())
    for top, folders, files in os.walk(tmp_path):
        for name in (".", *folders, *files):
            os.chown(os.path.join(top, name), NOBODY_ELSE, NOBODY_ELSE)
    try:
        queue.start(user=str(NOBODY_ELSE))
        yield queue
        queue.close()
    finally:
        queue.kill()


def test_a_fork_bomb_meets_its_limit(of_another_user):
    bomb = "for n in $(seq 200); do sleep 30 & done; echo done >&3"
    began = time.monotonic()
    message = of_another_user.run(param1=bomb, processes=30)
    assert message["state"] == "err", message
    assert time.monotonic() - began < 25, "its children were not ended"


def test_the_stricter_of_two_holds(tmp_path):
    with running_queue(tmp_path, cpu_seconds=1, open_files=90) as queue:
        failed(queue, "while :; do :; done", "cpu", cpu_seconds=1000)
        done(queue, f"{LIMITED} open 50 && say done", open_files=50)
        done(queue, f"{LIMITED} open 90 && say done", open_files=500)


def test_a_config_that_changes_holds_for_the_next(tmp_path):
    with running_queue(tmp_path, grace=0.2) as queue:
        waiting = queue.send(param1="sleep 2; echo done >&3")
        wait_until(lambda: queue.state(waiting) == "run")
        queue.configure(timeout=0.3)
        queue.ask("wake", None)
        assert queue.ended(waiting)["state"] == "done"
        failed(queue, "sleep 60", "timeout")


@pytest.mark.parametrize("limit", ["timeout", "heartbeat"])
def test_the_setting_retry_may_let_it_run_again(tmp_path, limit):
    retry = {"on": ["timeout"], "times": 3, "wait": 0}
    with running_queue(tmp_path, grace=0.2, retry=retry) as queue:
        script = "[ $RQ_COUNT = 0 ] && sleep 60; say done"
        message = run(queue, script, **{limit: 0.5})
        assert (message["state"], message["count"]) == ("done", 1)


# ---- output

LINES = "printf 'line %08d\\n' $(seq {})"


def log_of(queue, msg_id):
    return (queue.folder(msg_id) / "job/stdio.log").read_bytes()


def test_of_too_much_output_head_and_tail_are_kept(queue):
    msg_id = queue.send(param1=f"{LINES.format(5000)}; echo done >&3", log_bytes=10_000)
    assert queue.ended(msg_id)["state"] == "done"
    text = log_of(queue, msg_id)
    head, tail = text.split(b"\n[60000 bytes are left out here: log_bytes is 10000]\n")
    assert b"RQ START" in head
    assert b"line 00000001\n" in head
    lines = tail.splitlines()
    assert b"RQ END - exit 0" in lines[-1]
    assert lines[-2] == b"line 00005000"
    assert 10_000 < len(text) < 10_400


def test_each_attempt_keeps_its_own_output(queue):
    script = f"{LINES.format(1000)}; [ $RQ_COUNT = 0 ] && w='resend 0-x' || w=done; echo $w >&3"
    message = queue.run(param1=script, log_bytes=5000)
    assert message["state"] == "done"
    text = log_of(queue, message["msg_id"])
    assert text.count(b"[9000 bytes are left out here") == 2
    assert text.count(b"line 00001000\n") == 2
    assert text.count(b"line 00000001\n") == 2


def test_a_torrent_of_output_hurts_nobody(queue):
    """It writes as fast as it can for some seconds: the disk keeps its room, the script
    goes on, and the queue answers others meanwhile."""
    flood = "timeout 3 dd if=/dev/zero bs=1M 2>/dev/null; echo; echo last words; echo done >&3"
    msg_id = queue.send(param1=flood, log_bytes="8 MiB")
    queue.until(msg_id, "run")
    most, size = 0, 0
    while queue.state(msg_id) == "run":
        queue.ask("ping")
        with contextlib.suppress(OSError):
            file = os.stat(f"{queue.dir.path}/run/{msg_id}/job/stdio.log")
            most, size = max(most, file.st_blocks * 512), max(size, file.st_size)
        time.sleep(0.01)  # looked at often, but not all the time
    assert queue.get(msg_id)["state"] == "done"
    assert most < size or size < 64 << 20, "the whole of it is on the disk"
    text = log_of(queue, msg_id)
    assert text.rstrip().splitlines()[-2] == b"last words"
    assert len(text) < (8 << 20) + 1000


def test_a_script_that_is_not_there_is_waited_for_as_without_limits(tmp_path):
    with running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", open_files=64) as queue:
        queue.script.rename(tmp_path / "away")
        msg_id = queue.send()
        wait_until(lambda: queue.ok("detail")["reason"])
        assert queue.state(msg_id) == "que"
        (tmp_path / "away").rename(queue.script)
        assert queue.ended(msg_id)["state"] == "done"
