"""Scripts that plant links, fifos and the like where RQ writes: RQ touches nothing else."""

import os

import pytest
from harness.queues import running_queue

pytestmark = pytest.mark.process
VICTIM = "the file of another\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running_queue(tmp_path_factory.mktemp("root"), num_workers=2) as queue:
        yield queue


@pytest.fixture
def queue(shared):
    yield shared
    assert shared.run(param1="echo done still here >&3")["state"] == "done"
    shared.check()


@pytest.fixture
def victim(tmp_path):
    """A file and a directory that no message has to do with."""
    (tmp_path / "file").write_text(VICTIM)
    (tmp_path / "dir").mkdir()
    yield tmp_path
    assert (tmp_path / "file").read_text() == VICTIM
    assert os.listdir(tmp_path / "dir") == []
    assert sorted(os.listdir(tmp_path)) == ["dir", "file"]


LOGS = {
    "a link": "ln -s {v}/file stdio.log",
    "a link that leads nowhere": "ln -s {v}/made stdio.log",
    "a hard link": "ln {v}/file stdio.log",
    "a fifo": "mkfifo stdio.log",
    "a device": "mknod stdio.log c 1 7",
    "a directory": "mkdir stdio.log",
}


@pytest.mark.parametrize("what", LOGS)
def test_a_log_that_was_replaced_gets_no_last_line(queue, victim, what):
    plant = LOGS[what].format(v=victim)
    message = queue.run(param1=f"rm stdio.log; {plant}; echo done >&3")
    assert message["state"] == "done"


@pytest.mark.parametrize("what", LOGS)
def test_the_next_attempt_writes_through_nothing_that_was_planted(queue, victim, what):
    plant = LOGS[what].format(v=victim)
    again = "[ $RQ_COUNT = 0 ] || { echo hello; echo done >&3; exit; }\n"
    msg_id = queue.send(param1=f"{again} rm stdio.log; {plant}; echo resend 0-x >&3")
    message = queue.ended(msg_id)
    if what == "a hard link":  # as the log of a batch, which is set aside
        assert message["state"] == "done"
        log = (queue.folder(msg_id) / "job/stdio.log").read_text()
        assert "hello" in log
        assert VICTIM not in log
    else:
        assert message["state"] == "err"
        assert message["result"]["cause"] == "bad_message"
        assert "stdio.log" in message["result"]["job_status"]
        queue.ok("delete_message", {"msg_id": msg_id})


def test_a_working_directory_that_leads_elsewhere_is_not_worked_in(queue, victim):
    again = "[ $RQ_COUNT = 0 ] || { touch here; echo done >&3; exit; }\n"
    plant = f"cd ..; rm -rf job; ln -s {victim}/dir job"
    msg_id = queue.send(param1=f"{again} {plant}; echo resend 0-x >&3")
    message = queue.ended(msg_id)
    assert message["state"] == "err"
    assert message["result"]["cause"] == "bad_message"
    queue.ok("delete_message", {"msg_id": msg_id})


FILES = {
    "links": "for n in msg msg.tmp status status.tmp; do ln -sf {v}/file $n; done",
    "hard links": "for n in msg msg.tmp status status.tmp; do ln -f {v}/file $n; done",
    "dangling links": "for n in msg.tmp status status.tmp; do ln -sf {v}/made $n; done",
}


@pytest.mark.parametrize("last", ["run half", "resend 0-x", "err no", "done well"])
@pytest.mark.parametrize("what", FILES)
def test_what_rq_writes_of_a_message_goes_into_files_of_its_own(
    queue, victim, what, last
):
    again = "[ $RQ_COUNT = 0 ] || { echo done >&3; exit; }\n"
    plant = f"cd ..; {FILES[what].format(v=victim)}"
    script = f"{again} {plant}; echo {last} >&3; sleep 0.2; echo done >&3"
    msg_id = queue.send(param1=script)
    message = queue.ended(msg_id)
    if message["state"] == "err":
        queue.ok("delete_message", {"msg_id": msg_id})


@pytest.mark.slow
def test_a_folder_thousands_of_levels_deep_is_removed_with_its_message(queue):
    dig = "import os\nfor n in range(1500): os.mkdir('d'); os.chdir('d')"
    message = queue.run(param1=f'"$RQ_PYTHON" -c "{dig}"; echo done >&3', seconds=60)
    queue.ok("delete_message", {"msg_id": message["msg_id"]})
    assert queue.run(param1="echo done >&3")["state"] == "done"
