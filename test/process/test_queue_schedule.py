"""What runs when: slots, order, due, keys, riders, and what the operator wants."""

import json
import os
import re
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from harness.extent import rotated
from harness.processes import lives
from harness.queues import SETTINGS, RunningQueue, running_queue
from harness.waiting import wait_until

from rq.rpc import client
from rq.spool import check

pytestmark = pytest.mark.process
# Notes its start in the file `order` of the root, then does what param1 says.
NOTE = """#!/bin/sh
echo "$RQ_MSG_ID" >> "$RQ_ROOT/order"
eval "$RQ_PARAM1"
echo "done" >&3
"""
HOLD = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.05; done'


@pytest.fixture
def make(tmp_path):
    """Start queues with the script above; they are checked and ended."""
    queues = []

    def started(env=(), **settings):
        queue = RunningQueue(tmp_path, "t", NOTE, **settings)
        queue.env.update(env)
        queues.append(queue)
        queue.start()
        return queue

    yield started
    try:
        (tmp_path / "go").touch()
        for one in queues:
            for msg_id, _ in one.ask("messages", {"state": "run"}):
                one.ended(msg_id)
            one.close()
    finally:
        for one in queues:
            one.kill()


def order(queue):
    path = queue.root.path / "order"
    return path.read_text().split() if path.exists() else []


def running(queue):
    return queue.ask("num_messages")["run"]


def pause(queue):
    queue.root.pause("t").touch()
    queue.ask("wake")


def resume(queue):
    queue.root.pause("t").unlink()
    queue.ask("wake")


def go(queue):
    (queue.root.path / "go").touch()


@pytest.fixture
def patient(tmp_path):
    """Let a stop wait as long for scripts as a busy machine may take for them."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.json").write_text(json.dumps({**SETTINGS, "grace": 20}))


# ---- slots and order


def test_all_free_slots_are_filled_at_once(make):
    queue = make(num_workers=5)
    pause(queue)
    ids = [queue.send(param1=HOLD) for _ in range(7)]
    began = time.monotonic()
    resume(queue)
    wait_until(lambda: running(queue) == 5)
    assert time.monotonic() - began < 15
    wait_until(lambda: len(order(queue)) == 5)
    assert sorted(order(queue)) == ids[:5]
    waits = queue.get(ids[5])["story"]["why"]
    assert waits == "All 5 slots are taken (num_workers)."
    go(queue)
    for msg_id in ids:
        assert queue.ended(msg_id)["state"] == "done"


def test_equal_due_runs_in_the_order_of_arrival_and_sooner_runs_before(make):
    queue = make(num_workers=1)
    pause(queue)
    now = time.time()
    same = [queue.send(due=now - 5) for _ in range(5)]
    sooner = queue.send(due=now - 10)
    later = queue.send(due=now - 1)
    queue.restart()
    resume(queue)
    queue.ended(later)
    assert order(queue) == [sooner, *same, later]


@pytest.mark.slow
def test_those_that_wait_for_the_same_are_not_tried_until_one_has_found_it(make):
    queue = make(num_workers=1)
    shop = '[ -e "$RQ_ROOT/open" ] || { echo "later 1@shop is shut" >&3; exit; }'
    ids = [queue.send(param1=shop) for _ in range(10)]
    wait_until(lambda: len(order(queue)) >= 3, 60)
    (queue.root.path / "open").touch()
    for msg_id in ids:
        assert queue.ended(msg_id, 60)["state"] == "done"
    tried = order(queue)
    in_vain = len(tried) - len(ids)
    assert set(tried[:in_vain]) < set(ids)
    # All have kept their places, but for those that were tried.
    assert [one for one in tried[in_vain:] if one not in tried[:in_vain]] == [
        one for one in ids if one not in tried[:in_vain]
    ]
    assert queue.get(ids[0])["count"] == 0


def test_a_message_runs_when_it_is_due_and_not_before(make):
    queue = make()
    later = queue.send(due=time.time() + 900)
    assert "It is due in" in queue.get(later)["story"]["why"]
    due = time.time() + 0.8
    msg_id = queue.send(due=due, param1="date +%s.%N > when")
    queue.ended(msg_id)
    late = float((queue.folder(msg_id) / "job/when").read_text()) - due
    assert late >= 0


@pytest.mark.parametrize("batch", [{}, {"max": 10, "wait": 0}], ids=["alone", "batch"])
def test_a_message_for_which_no_slot_can_be_had_waits_for_one(make, batch):
    queue = make(num_workers=1, batch=batch)
    slot = queue.dir.path / "lease" / "0"
    slot.unlink(missing_ok=True)
    slot.mkdir()  # as when the disk has no room, or no file can be opened
    ids = [queue.send() for _ in range(3)]
    wait_until(lambda: "could not be started" in queue.log())
    assert queue.send(due=time.time() + 900)  # it goes on to answer
    assert [queue.state(one) for one in ids] == ["que"] * 3
    slot.rmdir()
    for msg_id in ids:
        assert queue.ended(msg_id, 60)["state"] == "done"


@pytest.mark.parametrize("batch", [{}, {"max": 10, "wait": 0}], ids=["alone", "batch"])
@pytest.mark.parametrize("spare", rotated([1, 6, 2, 3, 7, 8], 2))
def test_a_queue_that_may_open_no_more_files_lets_its_messages_wait(make, batch, spare):
    queue = make(num_workers=1, batch=batch)
    pause(queue)
    msg_id = queue.send()
    folder = queue.dir.path / "que" / msg_id
    wait_until(folder.exists)
    queue.restart()  # it has the message on disk only
    with client.Connection(queue.dir.socket) as line:
        line.ask("ping")
        limit = resource.RLIMIT_NOFILE
        before = resource.prlimit(queue.pid, limit)
        files = os.listdir(f"/proc/{queue.pid}/fd")
        most = max(map(int, files)) + spare
        resource.prlimit(queue.pid, limit, (most, before[1]))
        queue.root.pause("t").unlink()
        line.send("wake")
        wait_until(lambda: "could not be started" in queue.log() or not folder.exists())
        resource.prlimit(queue.pid, limit, before)
        assert queue.ended(msg_id, 60)["state"] == "done"
        most = len(files) + 1  # one may be opened for good at first use; a pipe is two
        wait_until(lambda: len(os.listdir(f"/proc/{queue.pid}/fd")) <= most)


def test_without_descriptors_no_message_gets_into_the_batch_of_others(make):
    queue = make(num_workers=2, batch={"max": 10, "wait": 0.2, "by": "param2"})
    pause(queue)
    sent = [queue.send(param2=one) for one in "ab"]
    wait_until(lambda: all((queue.dir.path / "que" / one).exists() for one in sent))
    queue.restart()  # it has the messages on disk only
    with client.Connection(queue.dir.socket) as line:
        line.ask("ping")
        limit = resource.RLIMIT_NOFILE
        before = resource.prlimit(queue.pid, limit)
        resource.prlimit(queue.pid, limit, (3, before[1]))
        queue.root.pause("t").unlink()
        line.send("wake")
        wait_until(lambda: "could not be started" in queue.log())
        resource.prlimit(queue.pid, limit, before)
        batches = [queue.ended(one, 60)["result"]["batch"] for one in sent]
    assert batches[0] != batches[1]


def test_without_workers_nothing_runs_and_nothing_is_lost(make):
    queue = make(num_workers=0)
    msg_id = queue.send()
    queue.ask("wake")
    assert queue.get(msg_id)["story"]["why"] == "num_workers is 0, so nothing runs."
    assert order(queue) == []
    queue.configure(num_workers=1)
    queue.ask("wake")
    assert queue.ended(msg_id)["state"] == "done"


# ---- blocking_params


def test_messages_with_equal_blocking_params_run_one_at_a_time(make):
    queue = make(num_workers=4, blocking_params=[2])
    first = queue.send(param1=HOLD, param2="a")
    second = queue.send(param1=HOLD, param2="a")
    other = queue.send(param1=HOLD, param2="b")
    none = [queue.send(param1=HOLD) for _ in range(2)]
    wait_until(lambda: running(queue) == 3)
    wait_until(lambda: len(order(queue)) == 3)
    assert sorted(order(queue)) == sorted([first, other, none[0]])
    why = queue.get(second)["story"]["why"]
    assert why == f"{first} is running, with equal blocking_params."
    go(queue)
    for msg_id in (first, second, other, *none):
        assert queue.ended(msg_id)["state"] == "done"


def test_a_blocked_message_does_not_block_others_behind_it(make):
    queue = make(num_workers=2, blocking_params=["2"])
    queue.send(param1=HOLD, param2="a")
    blocked = [queue.send(param2="a") for _ in range(3)]
    free = queue.send(param2="b")
    assert queue.ended(free)["state"] == "done"
    queue.ok("delete_message", {"msg_id": blocked[0]})
    go(queue)
    for msg_id in blocked[1:]:
        assert queue.ended(msg_id)["state"] == "done"


# ---- coalesce_params


def leader_and_riders(queue, script, number=2):
    """Return a message that runs, and as many that ride with it."""
    pause(queue)
    leader = queue.send(param1=script, param2="same")
    riders = [queue.send(param1="true", param2="same") for _ in range(number)]
    resume(queue)
    wait_until(lambda: queue.state(leader) == "run")
    wait_until(lambda: order(queue))
    return leader, riders


def test_riders_end_with_their_leader_and_name_it(make):
    queue = make(num_workers=4, coalesce_params=[2])
    leader, riders = leader_and_riders(queue, HOLD, 3)
    other = queue.send(param2="other")
    late = queue.send(param1="true", param2="same", due=4e9)
    assert queue.ended(other)["state"] == "done"
    assert queue.state(riders[0]) == "que"
    assert queue.ask("num_messages")["que"] == 1
    assert riders[0] not in str(queue.ask("messages", {"state": "que"}))
    why = queue.get(riders[0])["story"]["why"]
    assert why == f"It is equal to {leader}, which runs for both (coalesce_params)."
    refused = queue.refused("run_message", {"msg_id": riders[0]})
    assert refused == "msg not in runnable state"
    go(queue)
    url = f"http://127.0.0.1:3333/q/t/{leader}"
    for msg_id in riders:
        message = queue.ended(msg_id)
        assert message["status"] == f"done - duplicate {url}"
        assert message["dup"] == url
        assert message["result"]["cause"] == "duplicate"
    dups = [f"http://127.0.0.1:3333/q/t/{i}" for i in reversed(riders)]
    assert queue.ended(leader)["dups"] == dups
    assert order(queue) == [leader, other]
    assert queue.state(late) == "que"
    queue.ok("delete_message", {"msg_id": late})


@pytest.mark.parametrize("word", ["err broken", "resend 0-again"])
def test_riders_return_when_their_leader_does_not_succeed(make, word):
    queue = make(num_workers=1, coalesce_params=[2])
    script = f"[ $RQ_COUNT = 0 ] && {{ {HOLD}; echo {word} >&3; exit; }}"
    leader, riders = leader_and_riders(queue, script)
    go(queue)
    for msg_id in riders:
        assert queue.ended(msg_id)["state"] == "done"
    message = queue.ended(leader)
    assert "dups" not in message
    assert message["state"] == ("err" if word[0] == "e" else "done")
    # One of the two ran for all that were left.
    assert len(order(queue)) == 2


def test_a_rider_can_be_deleted_without_harm(make):
    queue = make(num_workers=1, coalesce_params=[2])
    leader, riders = leader_and_riders(queue, HOLD)
    queue.ok("delete_message", {"msg_id": riders[0]})
    go(queue)
    assert queue.ended(riders[1])["state"] == "done"
    assert len(queue.ended(leader)["dups"]) == 1
    assert queue.run()["state"] == "done"  # the slot is free


@pytest.mark.parametrize("word", ["done", "err"])
def test_a_rider_whose_folder_a_hand_removed_does_not_wedge_its_leader(make, word):
    queue = make(num_workers=1, coalesce_params=[2])
    leader, riders = leader_and_riders(queue, f"{HOLD}; echo {word} >&3")
    folder = queue.folder(riders[0])
    (folder / "msg").unlink()
    (folder / "status").unlink(missing_ok=True)
    folder.rmdir()
    go(queue)
    assert queue.ended(leader)["state"] == word
    assert queue.ended(riders[1])["state"] == "done"
    assert queue.run(param2="x")["state"] == "done"


def test_a_crash_gives_riders_back(make):
    queue = make(num_workers=1, coalesce_params=[2])
    leader, riders = leader_and_riders(queue, HOLD)
    queue.crash()
    go(queue)
    queue.start()
    for msg_id in (leader, *riders):
        assert queue.ended(msg_id)["state"] == "done"


# ---- UP, PAUSE, DOWN


def test_pause_lets_what_runs_go_on_and_starts_nothing(make):
    queue = make(num_workers=2)
    first = queue.send(param1=HOLD)
    wait_until(lambda: order(queue))
    pause(queue)
    second = queue.send()
    assert queue.ask("status") == ["PAUSE"]
    go(queue)
    assert queue.ended(first)["state"] == "done"
    queue.ask("wake")
    assert queue.state(second) == "que"
    resume(queue)
    assert queue.ended(second)["state"] == "done"


def test_down_beats_pause_and_refuses_while_what_runs_goes_on(make):
    queue = make()
    first = queue.send(param1=HOLD)
    wait_until(lambda: order(queue))
    queue.root.pause("t").touch()
    queue.root.down("t").touch()
    assert queue.refused("create_message", {"dest": "t"}) == "status: DOWN"
    assert queue.ask("status") == ["DOWN"]
    go(queue)
    queue.root.down("t").unlink()
    assert queue.ask("status") == ["PAUSE"]
    queue.root.pause("t").unlink()
    assert queue.ended(first)["state"] == "done"


@pytest.mark.slow
def test_files_are_noticed_without_being_told_within_seconds(make):
    queue = make()
    pause(queue)
    msg_id = queue.send()
    queue.root.pause("t").unlink()
    queue.configure(num_workers=7)
    wait_until(lambda: order(queue) == [msg_id], 20)  # nobody asks it anything
    wait_until(lambda: queue.ok("config")["num_workers"] == 7, 60)
    assert queue.until(msg_id, "done")


# ---- SCRIPTERROR


def broken(queue, msg_id, text):
    """Wait for the queue to say what is wrong; nothing is counted."""
    wait_until(lambda: queue.ask("status") == ["SCRIPTERROR"])
    assert text in queue.ok("detail")["reason"]
    # For a moment it may be tried again.
    message = wait_until(lambda: (m := queue.get(msg_id))["state"] == "que" and m)
    assert message["count"] == 0
    assert "cannot be started" in message["story"]["what"] + message["story"]["why"]
    assert text in message["story"]["why"]


def test_a_script_that_lost_its_x_bit_heals_at_once_when_told(make):
    queue = make()
    queue.script.chmod(0o644)
    msg_id = queue.send()
    broken(queue, msg_id, "not executable")
    queue.script.chmod(0o755)
    queue.ask("wake")
    assert queue.until(msg_id, "done")


BREAKS = {
    "no such file": lambda path: path.unlink(),
    "not executable": lambda path: path.chmod(0o644),
    "names /no/such/interpreter, which is not there": lambda path: path.write_text(
        "#!/no/such/interpreter\n"
    ),
    "format": lambda path: path.write_text("no first line at all\n"),
}


@pytest.mark.slow
def test_a_script_that_cannot_be_started_waits_in_que_and_heals_by_itself(tmp_path):
    queues = {
        text: RunningQueue(tmp_path, f"t{number}", NOTE)
        for number, text in enumerate(BREAKS)
    }
    sent = {}
    try:
        for text, queue in queues.items():
            queue.start()
            BREAKS[text](queue.script)
            sent[text] = [queue.send() for _ in range(2)]
        for text, queue in queues.items():
            broken(queue, sent[text][0], text)
        for queue in queues.values():
            queue.script_file(NOTE)
        for text, queue in queues.items():
            for msg_id in sent[text]:
                message = queue.until(msg_id, "done")
                assert message["result"]["attempt"] == 1
                assert message["count"] == 0
            assert queue.ask("status") == ["UP"]
            queue.close()
    finally:
        for queue in queues.values():
            queue.kill()


@pytest.mark.slow
def test_a_script_that_the_kernel_refuses_is_tried_less_and_less_often(make):
    """Each try writes to the journal; looking at files now and then begins none."""
    queue = make()
    queue.script_file("#!/no/such/interpreter\n")
    msg_id = queue.send()
    log = queue.dir.message("que", msg_id) / "job/stdio.log"

    def tries():
        lines = log.read_text().splitlines() if log.exists() else []
        words = [one.split() for one in lines if "RQ START" in one]
        return [datetime.fromisoformat(f"{w[2]} {w[3]}{w[4]}") for w in words]

    found = wait_until(lambda: tries() if len(tries()) >= 4 else None, 60)
    assert (
        found[3] - found[2]
    ).total_seconds() >= 6  # 8, and the log has whole seconds
    queue.script_file(NOTE)
    assert queue.until(msg_id, "done", seconds=60)


def test_a_mended_script_clears_the_error_though_nothing_waits(make):
    queue = make()
    queue.script.chmod(0o644)
    msg_id = queue.send()
    broken(queue, msg_id, "not executable")
    queue.ok("delete_message", {"msg_id": msg_id})
    queue.script.chmod(0o755)
    queue.ask("wake")
    wait_until(lambda: queue.ask("status") == ["UP"])


def test_a_program_of_the_prefix_that_is_missing_is_a_script_error(make):
    queue = make(exec_prefix="no-such-shell -lc")
    msg_id = queue.send()
    broken(queue, msg_id, "no such program")
    queue.configure(exec_prefix="")
    queue.ask("wake")
    assert queue.until(msg_id, "done")


# ---- config


def test_a_changed_config_is_taken_at_hup_and_at_wake(make):
    queue = make({"TEST_HOUR": "9999"}, num_workers=1)  # it looks not by itself
    queue.configure(num_workers=2)
    os.kill(queue.pid, signal.SIGHUP)
    wait_until(lambda: queue.ok("config")["num_workers"] == 2)
    queue.configure(num_workers=3)
    queue.ask("wake")
    assert queue.ok("config")["num_workers"] == 3


def test_a_config_that_changes_while_the_queue_starts_is_taken(tmp_path, make):
    (tmp_path / "config").mkdir()
    settings = json.dumps({**SETTINGS, "grace": 60})
    (tmp_path / "config/config.json").write_text(settings)
    queue = make(num_workers=1, nice=0)
    # The script outlives kill -9 and goes on after TERM: the next start waits for its end.
    script = f'trap \': >"$RQ_ROOT/told"\' TERM; : >"$RQ_ROOT/set"; {HOLD}'
    queue.send(param1=script)
    wait_until((tmp_path / "set").exists)
    queue.crash()
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(queue.start)
        wait_until((tmp_path / "told").exists)
        assert not started.done()
        queue.configure(num_workers=2)
        (tmp_path / "go").touch()
        started.result()
    assert queue.ok("config")["num_workers"] == 2


def test_a_typo_in_the_config_keeps_the_old_one_and_is_shown(make):
    queue = make(num_workers=3)
    good = queue.dir.config.read_text()
    for text, reason in (
        ('{"name": "t",', "is not JSON"),
        (json.dumps({"script": "x", "num_worker": 2}), "did you mean 'num_workers'"),
        (json.dumps({"num_workers": 2}), "the mandatory key 'script' is missing"),
        (json.dumps({"script": "x", "num_workers": -1}), "-1 is not between"),
    ):
        queue.dir.config.write_text(text)
        queue.ask("wake")
        wait_until(lambda r=reason: r in str(queue.ok("detail")["reason"]))
        assert queue.ok("config")["num_workers"] == 3
        assert queue.run()["state"] == "done"
    queue.dir.config.write_text(good)
    queue.ask("wake")
    wait_until(lambda: queue.ok("detail")["reason"] is None)


def test_a_queue_without_a_config_that_can_be_used_says_so_and_does_not_start(tmp_path):
    queue = RunningQueue(tmp_path, "t", NOTE)
    queue.dir.config.write_text('{"num_workers": 1}')
    with pytest.raises(AssertionError, match=r"FATAL .*script"):
        queue.start()
    assert queue.process.wait(20) == 3


# ---- the end


@pytest.mark.usefixtures("patient")
def test_a_stop_lets_a_short_script_finish(make):
    queue = make()
    msg_id = queue.send(param1="sleep 0.5")
    wait_until(lambda: order(queue))
    assert queue.stop() == 0
    queue.start()
    assert queue.state(msg_id) == "done"
    assert order(queue) == [msg_id]


@pytest.mark.slow
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_stop_cuts_a_long_script_uncounted_and_clean(make, stubborn):
    queue = make()
    trap = "trap '' TERM; " if stubborn else ""
    msg_id = queue.send(
        param1=f"{trap}echo $$ > pid; touch ready; while ! [ -e $RQ_ROOT/go ]; do sleep .1; done"
    )
    path = queue.dir.path / "run" / msg_id / "job"
    wait_until((path / "ready").exists)
    pid = int((path / "pid").read_text())
    assert queue.stop() == 0
    assert not lives(pid)
    point = json.loads(queue.dir.checkpoint.read_text())
    assert point["clean"] is True
    assert (queue.dir.path / "que" / msg_id / "msg").exists()
    go(queue)
    queue.start()
    message = queue.ended(msg_id)
    assert message["state"] == "done"
    assert message["count"] == 0
    assert queue.ok("check") == {"problems": []}


@pytest.mark.usefixtures("patient")
def test_nothing_new_is_accepted_while_a_queue_stops(make):
    queue = make()
    queue.send(param1=HOLD)
    wait_until(lambda: order(queue))
    queue.process.terminate()
    refused = ["fail", "not accepted: the queue is stopping"]
    wait_until(lambda: queue.ask("create_message", {"dest": "t"}) == refused)
    go(queue)
    assert queue.process.wait(30) == 0
    queue.start()


def test_after_a_clean_stop_a_hand_may_move_an_error_to_que(make):
    queue = make()
    script = "[ -e again ] || { touch again; echo err by design >&3; exit; }"
    msg_id = queue.run(param1=script)["msg_id"]
    gone = queue.run()["msg_id"]
    folder = queue.folder(gone)
    assert queue.stop() == 0
    (queue.dir.path / "err" / msg_id).rename(queue.dir.path / "que" / msg_id)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    found = {one.subject: one.text for one in check.check(queue.dir)}
    assert found["done"].startswith("counted 1, there are 0, ")
    assert check.check(queue.dir, fix=True) == []
    queue.start()
    assert queue.until(msg_id, "done")
    assert queue.refused("get_message", {"msg_id": gone}) == "msg not found"
    counts = queue.ask("num_messages")
    assert (counts["done"], counts["err"]) == (1, 0)


def test_a_start_after_a_crash_says_that_the_end_was_not_clean(make):
    queue = make()
    queue.run()
    queue.restart()
    assert re.findall("clean=.*", queue.log())[-1] == "clean=True"
    queue.run()
    queue.crash()
    queue.start()
    assert re.findall("clean=.*", queue.log())[-1] == "clean=False"


@pytest.mark.usefixtures("patient")
def test_a_second_term_does_not_hurry_a_stop(make):
    queue = make()
    msg_id = queue.send(param1="sleep 0.5")
    wait_until(lambda: order(queue))
    queue.process.terminate()
    queue.process.terminate()
    assert queue.process.wait(30) == 0
    queue.start()
    assert queue.state(msg_id) == "done"


def test_a_root_holds_many_queues_side_by_side(tmp_path):
    with (
        running_queue(tmp_path, NOTE, "a") as one,
        running_queue(tmp_path, NOTE, "b") as two,
    ):
        assert one.run()["path"].startswith("queue/a/")
        assert two.run()["path"].startswith("queue/b/")
