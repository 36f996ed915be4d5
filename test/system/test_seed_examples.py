"""The examples of the first README, corrected, in all their branches."""

import shutil

import pytest
from harness.queues import SCRIPTS, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.system
NOP = "#!/bin/sh\necho done nothing to do >&3\n"
FIRST = "run - Finished looking for RQ environment variables"


@pytest.fixture
def bash(tmp_path):
    with running_queue(tmp_path, "seed_bash", "test") as queue:
        yield queue


def seen_while(queue, msg_id):
    """Return every status that a message shows until it has ended."""
    shown = []

    def look():
        found = queue.ok("get_message_status", {"msg_id": msg_id})
        if found["status"] not in shown:
            shown.append(found["status"])
        return found["state"] in ("done", "err")

    wait_until(look, 60)
    return shown


def test_the_bash_example_completes_happily(bash):
    message = bash.run()
    assert message["status"] == "done - script completed happily"
    output = bash.output(message["msg_id"])
    assert f"RQ_MSG_ID={message['msg_id']}\n" in output
    assert "RQ_DEST_QUEUE=test\n" in output


@pytest.mark.slow
def test_the_bash_example_shows_what_it_does_while_it_is_slow(bash):
    msg_id = bash.send(param1="slow", param2="3")  # so that it is seen
    shown = seen_while(bash, msg_id)
    assert "run - start sleeping for 3" in shown
    assert shown[-1] == "done - script completed happily"
    assert "This script should execute slowly" in bash.output(msg_id)


def test_the_bash_example_fails_by_design(bash):
    message = bash.run(param1="err")
    assert message["status"] == "err - by design"
    assert message["result"]["cause"] == "said_err"
    assert "should end up with err status" in bash.output(message["msg_id"])


def test_the_bash_example_makes_a_duplicate_and_learns_its_full_id(bash):
    with running_queue(bash.root.path, NOP, "test_nop") as nop:
        message = bash.run(param1="duplicate")
        assert message["status"] == "done - script completed happily"
        output = bash.output(message["msg_id"])
        full_id = output.partition("The duplicate is ")[2].split()[0]
        assert full_id.startswith("http://127.0.0.1:3333/q/test_nop/")
        copy = nop.ended(full_id.rpartition("/")[2])
        assert copy["status"] == "done - nothing to do"
        assert copy["param1"] == "duplicate"


def test_the_bash_example_notices_that_no_duplicate_was_made(bash):
    message = bash.run(param1="duplicate")
    assert message["status"] == "err - duplication failed"
    told = "properly : fail couldn't connect to queue - test_nop"
    assert told in bash.output(message["msg_id"])


@pytest.mark.parametrize("flag", ["down", "pause"])
def test_the_bash_example_notices_a_queue_that_is_not_up(bash, flag):
    with running_queue(bash.root.path, NOP, "test_nop") as nop:
        path = getattr(nop.root, flag)("test_nop")
        path.touch()
        message = bash.run(param1="duplicate")
        path.unlink()
    assert message["status"] == "err - duplication failed"


@pytest.mark.parametrize("prefix", ["", "bash -lc "])
def test_the_shell_example_runs_with_and_without_a_login_shell(tmp_path, prefix):
    bare = {"HOME": str(tmp_path)}  # not the start-up files of whoever runs the tests
    with running_queue(
        tmp_path, "seed_shell", exec_prefix=prefix, env_vars=bare
    ) as queue:
        message = queue.run()
        assert message["status"] == "done - script completed happily"
        output = queue.output(message["msg_id"])
        parts = output.split("-----------------------------")
        assert f"/queue/t/run/{message['msg_id']}/job" in parts[0]
        assert "RQ_WRITE=3\n" in parts[1]
        assert "PATH=" in parts[2]


def test_the_shell_example_that_fails_half_way_is_an_err(tmp_path):
    with running_queue(tmp_path, "seed_shell") as queue:
        message = queue.run(param1="x")
    assert message["state"] == "err"
    assert message["result"]["cause"] == "exit"
    assert message["result"]["exit"] == 1


@pytest.mark.slow
def test_the_ruby_example_counts_down(tmp_path):
    if shutil.which("ruby") is None:
        pytest.skip("no ruby -> apt-get install ruby")
    with running_queue(tmp_path, "seed_ruby") as queue:
        msg_id = queue.send(param1="1")  # so that each step is seen
        shown = seen_while(queue, msg_id)
        assert "run - just started" in shown
        assert "run - 2 done - 3 to go" in shown
        assert shown[-1] == "done"
        output = queue.output(msg_id)
        assert f"/queue/t/run/{msg_id}/job" in output
        assert "RQ_WRITE" in output
        assert output.count("sleeping") == 6
        assert output.rstrip().splitlines()[-2].endswith(" - done")
        assert (SCRIPTS / "seed_ruby").exists()
