"""`"success": "exit"`: the exit status speaks for scripts that say nothing themselves."""

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
IMPROPER = "err - PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was "


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with running_queue(root, num_workers=2, success="exit") as queue:
        yield queue
        queue.check()


def run(queue, script, **fields):
    return queue.run(
        param1=f'exec 2>&1\nsay() {{ echo "$@" >&3; }}\n{script}', **fields
    )


ROWS = {
    # script: (state and status, cause)
    "exit 0": ("done", "exited"),
    "echo printed; exit 0": ("done", "exited"),
    "say run half way; exit 0": ("done - half way", "exited"),
    "echo no room; exit 7": ("err - no room", "exit"),
    "say run half way; echo no room; exit 7": ("err - no room", "exit"),
    "printf 'cut off'; exit 1": ("err - cut off", "exit"),
    "printf 'last\\n\\n  \\n'; exit 1": ("err - last", "exit"),
    "printf '10%%\\r90%%\\r\\033[31mno\\troom\\033[0m\\a\\n'; exit 1": (
        "err - no room",
        "exit",
    ),
    "exit 3": ("err - it printed nothing", "exit"),
    "echo dying; kill -9 $$": ("err - dying", "signal"),
    # What is said stands.
    "say done fine": ("done - fine", "done"),
    "say relayed x": ("relayed - x", "relayed"),
    "say err by design; exit 0": ("err - by design", "said_err"),
    "echo printed; say err by design; exit 3": ("err - by design", "said_err"),
    "say done; exit 1": (f"{IMPROPER}done but exit status was 1", "exit"),
    "say resend 0-x; exit 2": (
        f"{IMPROPER}resend but exit status was 2 - 0-x",
        "exit",
    ),
    "say resend soon; exit 0": (None, "bad_report"),
}


@pytest.mark.parametrize("script", ROWS)
def test_a_word_that_is_missing_is_filled_in(queue, script):
    status, cause = ROWS[script]
    found = run(queue, script)
    assert found["result"]["cause"] == cause
    assert status in (None, found["status"])


def test_the_words_for_people_tell_what_happened(queue):
    good = run(queue, "exit 0")["story"]
    assert good["why"].startswith("The script exited with 0, which is success")
    bad = run(queue, "echo no room; exit 7")["story"]
    assert "status 7" in bad["why"]
    assert "no room" in bad["why"]


def test_a_long_line_is_cut_and_a_large_log_is_read_at_its_end_alone(queue):
    found = run(queue, "yes | head -c 2000000; echo; printf '%0500d' 0; exit 1")
    assert found["status"] == "err - " + "0" * 200


def test_only_what_this_attempt_printed_is_told(queue):
    script = """
    if [ "$RQ_COUNT" -eq 0 ]; then echo secret of the first; say resend 0-again
    else exit 4; fi"""
    assert run(queue, script)["status"] == "err - it printed nothing"


@pytest.mark.parametrize("how", ["ln -s /etc/passwd", "mkfifo", "mkdir"])
def test_no_other_file_is_read_in_the_place_of_the_log(queue, how):
    found = run(queue, f"rm stdio.log; {how} stdio.log; exit 1")
    assert found["status"] == "err - it printed nothing"


def test_a_message_that_is_cancelled_or_stopped_has_not_succeeded(tmp_path):
    # It takes TERM as a reason to end well, as servers do.
    script = "trap 'exit 0' TERM; touch $RQ_ROOT/began; while :; do sleep 0.05; done"
    began = tmp_path / "root" / "began"
    with running_queue(tmp_path / "root", success="exit") as queue:
        msg_id = queue.send(param1=script)
        wait_until(began.exists)
        queue.ok("cancel_message", {"msg_id": msg_id})
        assert queue.ended(msg_id)["result"]["cause"] == "cancelled"
        began.unlink()
        msg_id = queue.send(param1=script)
        wait_until(began.exists)
        queue.stop()
        queue.root.pause("t").touch()
        queue.start()
        found = queue.get(msg_id)
        assert (found["state"], found["result"]["cause"]) == ("que", "stop")
        assert found["count"] == 0
        queue.ok("delete_message", {"msg_id": msg_id})


def test_a_script_that_was_lost_with_its_queue_has_not_succeeded(tmp_path):
    hold = "touch $RQ_ROOT/began; [ $RQ_COUNT -gt 0 ] || exec sleep 60; exit 0"
    with running_queue(tmp_path / "root", success="exit") as queue:
        msg_id = queue.send(param1=hold)
        wait_until((tmp_path / "root" / "began").exists)
        queue.crash()
        queue.start()
        assert queue.until(msg_id, "done")["count"] == 1
