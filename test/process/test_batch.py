"""Batches: who goes together, what is said of one and of all, and what becomes of them."""

import json
import math
import os
import time
from pathlib import Path

import pytest
from harness.extent import rotated
from harness.processes import lives
from harness.queues import SETTINGS, RunningQueue, running_queue
from harness.waiting import wait_until

from rq.queues.schedule.destinations import MOST

pytestmark = pytest.mark.process

PATIENCE = 60.0
LONG = 3600
# Tells of its start, then does as the test says; `ids` are its messages.
SCRIPT = r"""#!/bin/bash
mapfile -t ids < <(sed -n 's/^{"msg_id":"\([^"]*\)".*/\1/p' "$RQ_BATCH_FILE")
hold() { until [ -e "$RQ_ROOT/${1:-go}" ]; do sleep 0.05; done; }
echo "$RQ_BATCH_ID $$ ${ids[*]}" >> "$RQ_ROOT/ran"
echo "this is process $$"
. "$RQ_ROOT/act"
"""


class Batches:
    """A queue with batches, and what their processes have told."""

    def __init__(self, queue: RunningQueue) -> None:
        self.queue = queue

    def act(self, text):
        """Let all batches from now on run these lines of bash."""
        new = self.queue.root.path / "act.new"
        new.write_text(text)
        new.rename(self.queue.root.path / "act")

    def go(self, name="go"):
        (self.queue.root.path / name).touch()

    def ran(self):
        """Return the batches that were started: (pid, ids) of each."""
        try:
            text = (self.queue.root.path / "ran").read_text()
        except FileNotFoundError:
            return []
        lines = text[
            : text.rfind("\n") + 1
        ].splitlines()  # the last may be half written
        return [(int(words[1]), words[2:]) for words in map(str.split, lines)]

    def until_ran(self, number=1):
        return wait_until(lambda: len(self.ran()) >= number and self.ran(), PATIENCE)

    def send(self, number, **fields):
        return [self.queue.send(**fields) for _ in range(number)]

    def until(self, msg_id, state):
        return self.queue.until(msg_id, state, seconds=PATIENCE)

    def until_said(self, text):
        """Wait for a line in the queue's log."""
        wait_until(lambda: text in self.queue.log(), PATIENCE)

    def detail(self):
        return self.queue.ok("detail")


@pytest.fixture
def make(tmp_path):
    """Make a queue with batches; the settings are those of `batch`, but num_workers."""
    opened = []

    def make(num_workers=1, **batch):
        found = running_queue(
            tmp_path, SCRIPT, batch={"wait": LONG, **batch}, num_workers=num_workers
        )
        opened.append(found)
        made = Batches(found.__enter__())
        made.act("echo done fine >&3")
        return made

    yield make
    for one in opened:
        (tmp_path / "go").touch()
        one.__exit__(None, None, None)


# ---- who goes together, and when


def test_as_many_as_the_setting_says_run_in_one_process(make):
    batches = make(max=3)
    ids = batches.send(7)
    for msg_id in ids[:6]:
        assert batches.until(msg_id, "done")["status"] == "done - fine"
    assert sorted(one for _, one in batches.ran()) == [ids[:3], ids[3:6]]
    assert batches.queue.state(ids[6]) == "que"


@pytest.mark.slow
def test_five_hundred_messages_cost_one_start(make):
    batches = make(max=500)
    ids = batches.send(500)
    batches.until(ids[-1], "done")
    assert [one for _, one in batches.ran()] == [ids]
    wait_until(lambda: batches.queue.ask("num_messages")["done"] == 500, PATIENCE)


def test_a_batch_that_is_not_full_starts_when_its_first_has_waited(make):
    batches = make(max=100, wait="1s")
    began = time.time()
    ids = batches.send(2)
    batches.until(ids[1], "done")
    assert time.time() - began >= 1
    assert batches.queue.get(ids[0])["result"]["wait_us"] > 500_000
    assert all(len(one) <= 2 for _, one in batches.ran())


def test_what_it_waits_for_is_told(make):
    batches = make(max=3)
    first, _ = batches.send(2)

    def why():
        return batches.queue.get(first)["story"]["why"]

    wait_until(lambda: "when 3 messages are there (now 2), or in " in why(), PATIENCE)


def test_only_messages_with_the_same_value_go_together(make):
    batches = make(max=2, by="param1")
    odd, even = [], []
    for number in range(4):
        [msg_id] = batches.send(1, param1=["even", "odd"][number % 2])
        (odd if number % 2 else even).append(msg_id)
    for msg_id in odd + even:
        batches.until(msg_id, "done")
    assert sorted(one for _, one in batches.ran()) == [even, odd]


def test_a_batch_starts_when_all_parts_are_there(make):
    batches = make(max=100, by="param1", complete="param2")
    other = batches.send(2, param1="other", param2=3)
    ids = batches.send(3, param1="whole", param2=3)
    for msg_id in ids:
        batches.until(msg_id, "done")
    assert [one for _, one in batches.ran()] == [ids]
    assert batches.queue.state(other[0]) == "que"


def test_one_that_is_told_to_run_takes_along_who_is_there(make):
    batches = make(max=100)
    ids = batches.send(3)
    batches.queue.ok("run_message", {"msg_id": ids[1]})
    for msg_id in ids:
        batches.until(msg_id, "done")
    [(_, ran)] = batches.ran()
    assert ran == [ids[1], ids[0], ids[2]]


def test_one_that_is_not_due_is_not_waited_for(make):
    batches = make(max=2)
    [later] = batches.send(1, due=time.time() + LONG)
    ids = batches.send(2)
    batches.until(ids[1], "done")
    assert [one for _, one in batches.ran()] == [ids]
    assert batches.queue.state(later) == "que"


def test_one_that_was_deleted_is_not_in_it(make):
    batches = make(max=2)
    [gone] = batches.send(1)
    batches.queue.ok("delete_message", {"msg_id": gone})
    ids = batches.send(2)
    batches.until(ids[1], "done")
    assert [one for _, one in batches.ran()] == [ids]


def test_one_that_cannot_be_read_goes_to_err_and_the_others_run(make):
    batches = make(max=3)
    batches.queue.root.pause("t").touch()
    ids = batches.send(3)
    batches.queue.check()
    (batches.queue.dir.path / "que" / ids[0] / "msg").write_text("{")
    batches.queue.root.pause("t").unlink()
    batches.queue.ask("wake")
    assert batches.until(ids[0], "err")["result"]["cause"] == "bad_message"
    for msg_id in ids[1:]:
        batches.until(msg_id, "done")
    assert [one for _, one in batches.ran()] == [ids[1:]]


def test_as_many_batches_run_side_by_side_as_the_setting_says(make):
    batches = make(num_workers=2, max=2)
    batches.act("hold; echo done >&3")
    ids = batches.send(6)
    batches.until_ran(2)
    wait_until(lambda: len(batches.detail()["running"]) == 2, PATIENCE)
    assert [batches.queue.state(one) for one in ids] == ["run"] * 4 + ["que"] * 2
    batches.go()
    for msg_id in ids:
        batches.until(msg_id, "done")


def test_a_paused_queue_starts_none(make):
    batches = make(max=2)
    batches.queue.root.pause("t").touch()
    batches.queue.ask("wake")
    ids = batches.send(2)
    assert "paused" in batches.queue.get(ids[0])["story"]["why"]
    batches.queue.root.pause("t").unlink()
    batches.queue.ask("wake")
    batches.until(ids[1], "done")
    assert [one for _, one in batches.ran()] == [ids]


def test_messages_that_wait_run_alone_when_the_setting_is_taken_away(make):
    batches = make(max=100)
    ids = batches.send(2)
    plain = "#!/bin/sh\necho done alone $RQ_MSG_ID >&3\n"
    batches.queue.script.write_text(plain)
    batches.queue.configure(batch={})
    batches.queue.ask("wake")
    for msg_id in ids:
        assert batches.until(msg_id, "done")["status"] == f"done - alone {msg_id}"


def test_a_script_that_is_missing_costs_no_attempt(make):
    batches = make(max=2)
    away = batches.queue.script.with_name("away")
    batches.queue.script.rename(away)
    ids = batches.send(2)
    wait_until(lambda: batches.detail()["status"] == "SCRIPTERROR", PATIENCE)
    assert "cannot be started" in batches.queue.get(ids[0])["story"]["why"]
    away.rename(batches.queue.script)
    batches.queue.ask("wake")
    shown = batches.until(ids[1], "done")
    assert (shown["count"], shown["attempt"]) == (0, 1)


def test_an_interpreter_that_is_missing_costs_no_attempt(make):
    batches = make(max=2)
    good = batches.queue.script.read_text()
    batches.queue.script.write_text(good.replace("/bin/bash", "/no/such/program"))
    ids = batches.send(2)
    wait_until(lambda: batches.detail()["status"] == "SCRIPTERROR", PATIENCE)
    batches.queue.script.write_text(good)
    batches.queue.ask("wake")
    shown = batches.until(ids[1], "done")
    assert (shown["count"], shown["attempt"]) == (0, 1)
    assert [one for _, one in batches.ran()] == [ids]


# ---- what its process is given


def test_its_process_finds_all_that_it_needs(make):
    batches = make(max=2)
    batches.act(
        'cp "$RQ_BATCH_FILE" "$RQ_ROOT/given"; env > "$RQ_ROOT/env"\n'
        'pwd > "$RQ_ROOT/pwd"; echo done >&3'
    )
    first, second = batches.send(1, param1={"a": [1]}) + batches.send(1, src="x")
    batches.until(second, "done")
    root = batches.queue.root.path
    given = json.loads((root / "given").read_text())
    assert given["batch_id"] == f"{first}.1"
    assert (given["queue"], given["count"]) == ("t", 2)
    one, other = given["messages"]
    assert (one["msg_id"], one["param1"]) == (first, {"a": [1]})
    assert (one["count"], one["attempt"]) == (0, 1)
    assert (other["msg_id"], other["src"]) == (second, "x")
    assert one["full_msg_id"] == f"http://127.0.0.1:3333/q/t/{first}"
    assert one["dir"] == str(batches.queue.dir.path / "run" / first)
    env = dict(
        line.split("=", 1) for line in (root / "env").read_text().splitlines() if line
    )
    place = str(batches.queue.dir.path / "batch" / f"{first}.1")
    assert env["RQ_BATCH"] == "1"
    assert env["RQ_BATCH_ID"] == f"{first}.1"
    assert env["RQ_BATCH_FILE"] == f"{place}/batch.json"
    assert env["RQ_MSG_DIR"] == (root / "pwd").read_text().strip() == place
    assert "RQ_MSG_ID" not in env
    assert "RQ_PARAM1" not in env


def test_its_directory_is_removed_when_it_has_ended(make):
    batches = make(max=1)
    batches.act("mkdir -p a/b; : > a/b/c; echo done >&3")
    [msg_id] = batches.send(1)
    batches.until(msg_id, "done")
    place = batches.queue.dir.path
    wait_until(lambda: not [*place.glob("batch/*"), *place.glob("gone/*")], PATIENCE)


def test_its_output_is_in_the_log_of_each_message(make):
    batches = make(max=2)
    ids = batches.send(2)
    batches.until(ids[1], "done")
    [(pid, _)] = batches.ran()
    wait_until(lambda: "RQ END - exit 0" in batches.queue.output(ids[0]), PATIENCE)
    first, second = (batches.queue.output(one) for one in ids)
    assert first == second
    assert first.startswith(f"\n{pid} - ")
    assert f"this is process {pid}\n" in first


def test_the_log_of_an_earlier_attempt_is_kept(make):
    batches = make(max=2)
    batches.act(
        'grep -q \'"count":0\' "$RQ_BATCH_FILE" && echo "resend 0-again" >&3 && exit\n'
        "echo done >&3"
    )
    ids = batches.send(2)
    batches.until(ids[1], "done")
    (first, _), (second, _) = batches.ran()
    for msg_id in ids:
        place = batches.queue.folder(msg_id) / "job"
        assert f"process {first}\n" in (place / "stdio.1.log").read_text()
        assert f"process {second}\n" in (place / "stdio.log").read_text()


# ---- what it says


def test_what_is_said_of_single_ones_stands_and_the_last_word_is_for_the_rest(make):
    batches = make(max=5)
    batches.act(
        'echo "msg ${ids[0]} done early" >&3\n'
        'echo "msg ${ids[1]} err broken" >&3\n'
        f'echo "msg ${{ids[2]}} resend {LONG}-later" >&3\n'
        f'echo "msg ${{ids[3]}} later {LONG}-not yet" >&3\n'
        'echo "done all the rest" >&3'
    )
    ids = batches.send(5)
    for msg_id, state in zip(ids, ["done", "err", "que", "que", "done"], strict=True):
        batches.until(msg_id, state)
    found = [batches.queue.get(one) for one in ids]
    assert [one["status"] for one in found] == [
        "done - early",
        "err - broken",
        f"que - {LONG}-later",
        f"que - {LONG}-not yet",
        "done - all the rest",
    ]
    causes = [one["result"]["cause"] for one in found]
    assert causes == ["done", "said_err", "resend", "later", "done"]
    assert [one["count"] for one in found] == [0, 0, 1, 0, 0]
    assert found[2]["due"] > time.time() + LONG / 2
    assert {one["result"]["batch"] for one in found} == {f"{ids[0]}.1"}


def test_one_ends_when_that_is_said_while_the_others_go_on(make):
    batches = make(max=2)
    batches.act('echo "msg ${ids[0]} done early" >&3; hold; echo done >&3')
    first, second = batches.send(2)
    batches.until(first, "done")
    assert batches.queue.state(second) == "run"
    assert batches.queue.folder(first).is_relative_to(batches.queue.dir.path / "done")
    [shown] = batches.detail()["running"]
    assert (shown["batch"], shown["msg_id"]) == (f"{first}.1", second)
    assert (shown["messages"], shown["left"]) == (2, 1)
    result = batches.queue.get(second)["result"]
    assert (result["batch"], result["messages"], result["left"]) == (f"{first}.1", 2, 1)
    batches.go()
    batches.until(second, "done")


def test_one_that_runs_again_waits_for_the_end_of_the_process(make):
    batches = make(num_workers=2, max=2)
    batches.act(
        '[ -e "$RQ_ROOT/second" ] && { echo done >&3; exit; }\n'
        ': > "$RQ_ROOT/second"; echo "msg ${ids[0]} resend 0-at once" >&3\n'
        'echo "run it was said" >&3; hold; echo done >&3'
    )
    first, second = batches.send(2)
    wait_until(
        lambda: batches.queue.get(second)["status"] == "run - it was said", PATIENCE
    )
    assert batches.queue.state(first) == "run"
    assert len(batches.ran()) == 1
    batches.go()
    batches.until(second, "done")
    batches.queue.ok("run_message", {"msg_id": first})
    assert batches.until(first, "done")["count"] == 1


def test_progress_is_shown_on_all_and_that_of_one_on_it(make):
    batches = make(max=2)
    batches.act(
        'echo "run all of us" >&3; echo "msg ${ids[0]} run half of me" >&3\nhold\n'
        "echo done >&3"
    )
    first, second = batches.send(2)

    def shown(msg_id):
        return batches.queue.get(msg_id)["status"]

    wait_until(lambda: shown(first) == "run - half of me", PATIENCE)
    assert shown(second) == "run - all of us"
    [together] = batches.detail()["running"]
    assert together["status"] == "all of us"
    rows = batches.queue.ok("list", {"state": "run"})
    assert [(one["batch"], one["messages"]) for one in rows] == [(f"{first}.1", 2)] * 2
    batches.go()
    assert batches.until(first, "done")["result"]["job_status"] == ""


def test_what_cannot_be_meant_is_ignored_and_told(make):
    batches = make(max=3)
    batches.act(
        'for line in "msg" "msg ${ids[0]}" "msg 12 done x" "msg ${ids[0]} dup 0-X-t"\\\n'
        '  "msg ${ids[1]} done first" "msg ${ids[1]} err second"\\\n'
        '  "msg ${ids[2]} resend 3600-first" "msg ${ids[2]} done second"; do\n'
        '  echo "$line" >&3\ndone; echo "done rest" >&3'
    )
    ids = batches.send(3)
    assert batches.until(ids[0], "done")["status"] == "done - rest"
    assert batches.until(ids[1], "done")["status"] == "done - first"
    assert batches.until(ids[2], "que")["status"] == "que - 3600-first"
    told = [one for one in batches.queue.log().splitlines() if "ignores" in one]
    assert [one.partition("reason=")[2] for one in told] == [
        '"it is not in the batch"',
        '"say: msg ID WORD TEXT, and no dup"',
        '"it is not in the batch"',
        '"say: msg ID WORD TEXT, and no dup"',
        '"it has ended"',
        '"how it ends was said before"',
    ]


def test_a_resend_of_one_that_cannot_be_read_is_an_error_of_that_one(make):
    batches = make(max=2)
    batches.act('echo "msg ${ids[0]} resend soon" >&3; echo done >&3')
    first, second = batches.send(2)
    assert batches.until(first, "err")["result"]["cause"] == "bad_report"
    batches.until(second, "done")


def test_one_that_asks_once_too_often_goes_to_err_at_once(make):
    batches = make(max=2)
    batches.act('echo "msg ${ids[0]} resend 0-again" >&3; hold; echo done >&3')
    first, second = batches.send(1, max_count=1) + batches.send(1)
    assert batches.until(first, "err")["result"]["cause"] == "resend_limit"
    assert batches.queue.state(second) == "run"


@pytest.mark.slow
def test_with_too_many_names_to_wait_for_a_message_waits_alone(make):
    batches = make(max=MOST + 1)
    batches.act(
        'for one in "${ids[@]}"; do echo "msg $one later 600@$one shut" >&3; done'
    )
    ids = [batches.queue.send(dest=f"shop{n}") for n in range(MOST + 1)]
    batches.until_said("a batch has ended")
    found = [batches.queue.get(one) for one in ids]
    assert {one["count"] for one in found} == {0}
    away = [one["due"] > time.time() + 300 for one in found]
    assert away == [False] * MOST + [True]


def test_dup_is_refused(make):
    batches = make(max=1)
    batches.act('echo "dup 0-X-t" >&3; read -r answer <&4; echo "done $answer" >&3')
    [msg_id] = batches.send(1)
    told = "done - fail dup failed - a batch is many messages, and dup copies one"
    assert batches.until(msg_id, "done")["status"] == told


def test_a_batch_that_is_handed_on_owes_a_copy_of_each_message(make, tmp_path):
    batches = make(max=2)
    with running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", name="next") as target:
        batches.act("echo forward next >&3")
        ids = batches.send(2, param1="x")
        for msg_id in ids:
            batches.until(msg_id, "done")
        wait_until(lambda: target.ask("num_messages")["done"] == 2, PATIENCE)


# ---- how it ends

ENDINGS = {
    "said nothing": ("exit 0", "exit status 0"),
    "exited with 3": ("echo done >&3; exit 3", "exit status 3"),
    "was killed": ("echo done >&3; kill -9 $$", "SIGKILL"),
    "asked for a resend, then failed": (
        "echo resend 60-x >&3; exit 1",
        "exit status 1",
    ),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_those_of_which_nothing_was_said_are_counted_when_their_process_dies(make, how):
    batches = make(max=3)
    act, told = ENDINGS[how]
    batches.act(f'echo "msg ${{ids[0]}} done early" >&3; hold\n{act}')
    ids = batches.send(2) + batches.send(1, max_count=1)
    assert batches.until(ids[0], "done")["status"] == "done - early"
    batches.queue.root.pause("t").touch()  # so that none starts again meanwhile
    batches.queue.ask("wake")
    batches.go()
    shown = batches.until(ids[1], "que")
    assert (shown["count"], shown["attempt"]) == (1, 1)
    assert shown["result"]["cause"] == "batch"
    assert f"its batch ended with {told}" in shown["result"]["job_status"]
    assert shown["story"]["why"]
    shown = batches.until(ids[2], "err")
    assert shown["count"] == 1
    assert shown["result"]["cause"] == "crash_limit"
    assert shown["status"].startswith(
        "err - its attempt was lost once; tries used: 1 - its batch ended with "
    )


POISON = """
for one in "${ids[@]}"; do
  grep -qs '"param1": *"poison"' "$RQ_ROOT/queue/t/run/$one/msg" && kill -9 $$
done
echo done >&3
"""


def poisoned(batches, number, at, **fields):
    """Send that many messages of which one kills its process; return it, and the
    others."""
    ids = batches.send(at, **fields)
    poison = batches.queue.send(param1="poison", **fields)
    return poison, ids + batches.send(number - at - 1, **fields)


@pytest.mark.slow
def test_one_message_of_a_hundred_that_kills_its_process_is_soon_alone(make):
    batches = make(max=100)
    batches.act(POISON)
    poison, others = poisoned(batches, 100, 55)
    for one in others:
        batches.until(one, "done")
    wait_until(lambda: [poison] in [ids for _, ids in batches.ran()], PATIENCE)
    ran = [ids for _, ids in batches.ran() if ids != [poison]]
    sizes = sorted(len(ids) for ids in ran)
    assert sizes == [1] * 9 + [10] * 10 + [100] * 2
    assert sum(poison in ids for ids in ran) == 3
    batches.act("echo done >&3")
    batches.until(poison, "done")


@pytest.mark.parametrize("at", rotated([0, 19]))
def test_none_ends_in_err_for_another_that_kills_its_process(make, at):
    batches = make(max=20, num_workers=2)
    batches.act(POISON)
    poison, others = poisoned(batches, 20, at, max_count=2)
    assert batches.until(poison, "err")["status"].startswith(
        "err - its attempt was lost 2 times; tries used: 2 - its batch ended with "
    )
    for one in others:
        assert batches.until(one, "done")["count"] == 1


def test_a_batch_that_died_once_goes_round_whole(make):
    batches = make(max=20)
    batches.act('mkdir "$RQ_ROOT/died" 2>/dev/null && kill -9 $$\necho done >&3')
    ids = batches.send(20)
    for one in ids:
        assert batches.until(one, "done")["count"] == 1
    assert [len(ids) for _, ids in batches.ran()] == [20, 20]


@pytest.mark.slow
def test_a_script_that_kills_every_batch_is_not_started_for_each_message(make):
    batches = make(max=100)
    batches.act("exit 1")
    ids = batches.send(100)
    first, again, *others = [len(ids) for _, ids in batches.until_ran(22)]
    assert (first, again) == (100, 100)
    assert set(others) == {10}
    batches.act("echo done >&3")
    for one in ids:
        batches.until(one, "done")


def test_parts_of_a_whole_stay_together_when_their_process_dies(make):
    batches = make(max=50, by="param1", complete="param2")
    batches.act("exit 1")
    ids = batches.send(20, param1="a", param2="20", max_count=2)
    for one in ids:
        batches.until(one, "err")
    assert [len(ids) for _, ids in batches.ran()] == [20, 20]


@pytest.mark.slow
def test_each_time_that_its_process_dies_it_waits_longer(make):
    batches = make(max=1)
    batches.act("exit 1")
    [msg_id] = batches.send(1, max_count=3)
    shown = batches.until(msg_id, "err")
    assert (shown["count"], shown["attempt"]) == (3, 3)
    assert len(batches.ran()) == 3
    events = journal(batches.queue)
    retries = [one for one in events if one["ev"] == "retry"]
    # A line is written after its time was reckoned.
    delays = [math.ceil(one["due"] - one["ts"] / 1e6 - 0.01) for one in retries]
    assert delays == [1, 2]


def journal(queue):
    """Return the lines of the journal."""
    queue.ok("seal")
    found = []
    for path in sorted(queue.dir.history.glob("*/*.jsonl")):
        found += [json.loads(line) for line in path.read_bytes().splitlines()]
    return found


@pytest.mark.parametrize("status", [0, 1])
def test_err_as_the_last_word_is_for_the_rest_whatever_the_exit(make, status):
    batches = make(max=2)
    batches.act(
        f'echo "msg ${{ids[0]}} done early" >&3; echo "err all lost" >&3; exit {status}'
    )
    first, second = batches.send(2)
    assert batches.until(second, "err")["status"] == "err - all lost"
    assert batches.queue.state(first) == "done"


def test_a_resend_as_the_last_word_is_for_the_rest(make):
    batches = make(max=2)
    batches.act(f'echo "msg ${{ids[0]}} done" >&3; echo "resend {LONG}-no disk" >&3')
    first, second = batches.send(2)
    batches.until(first, "done")
    shown = batches.until(second, "que")
    assert (shown["count"], shown["status"]) == (1, f"que - {LONG}-no disk")


def test_all_are_claimed_in_one_group_of_the_journal(make):
    batches = make(max=20)
    ids = batches.send(20)
    batches.until(ids[-1], "done")
    claims = [one for one in journal(batches.queue) if one["ev"] == "claim"]
    assert [one["msg"] for one in claims] == ids
    assert {one["batch"] for one in claims} == {f"{ids[0]}.1"}
    assert len({one["g"] for one in claims}) == 1


def test_what_it_leaves_behind_is_ended_before_its_messages_run_again(make):
    batches = make(max=1)
    batches.act(
        '[ -e "$RQ_ROOT/pid" ] && { '
        "echo done $(sed 's/.*) //; s/ .*//' /proc/$(<\"$RQ_ROOT/pid\")/stat) >&3; exit; }\n"
        "setsid sleep 300 963>&- &\n"
        'echo $! > "$RQ_ROOT/pid"; echo resend 0-x >&3'
    )
    [msg_id] = batches.send(1)
    assert batches.until(msg_id, "done")["status"] in ("done", "done - Z")


def test_a_stop_lets_it_end(make, tmp_path):
    settings = tmp_path / "config/config.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({**SETTINGS, "grace": PATIENCE}))
    batches = make(max=2)
    batches.act("hold; echo done >&3")
    ids = batches.send(2)
    batches.until_ran()
    batches.queue.process.terminate()
    batches.until_said("stopping")
    batches.go()
    assert batches.queue.process.wait(PATIENCE) == 0
    batches.queue.start()
    assert [batches.queue.state(one) for one in ids] == ["done", "done"]


def test_a_stop_that_cuts_it_short_counts_nothing(make):
    batches = make(max=3)
    batches.act(
        '[ -e "$RQ_ROOT/go" ] && { echo done >&3; exit; }\n'
        'echo "msg ${ids[0]} done early" >&3; hold'
    )
    ids = batches.send(3)
    batches.until(ids[0], "done")
    batches.queue.restart()
    [(pid, _)] = batches.ran()
    assert not lives(pid)
    for msg_id in ids[1:]:
        shown = batches.queue.get(msg_id)
        assert (shown["state"], shown["count"]) == ("que", 0)
        assert shown["result"]["cause"] == "stop"
    batches.go()
    batches.queue.ok("run_message", {"msg_id": ids[1]})
    for msg_id in ids[1:]:
        batches.until(msg_id, "done")


def test_a_process_that_goes_on_when_all_have_ended_is_ended_by_a_stop(make):
    batches = make(max=2)
    batches.act('for id in ${ids[@]}; do echo "msg $id done" >&3; done; hold never')
    ids = batches.send(2)
    for msg_id in ids:
        batches.until(msg_id, "done")
    [(pid, _)] = batches.ran()
    [shown] = batches.detail()["running"]
    assert (shown["pid"], shown["left"]) == (pid, 0)
    batches.queue.restart()
    assert not lives(pid)
    assert [batches.queue.state(one) for one in ids] == ["done", "done"]


# ---- people


def test_a_process_that_goes_on_when_all_have_ended_can_be_ended(make):
    batches = make(max=1)
    batches.act('echo "msg ${ids[0]} done" >&3; hold never')
    [msg_id] = batches.send(1)
    batches.until(msg_id, "done")
    reply = batches.queue.ok("cancel_batch", {"msg_id": msg_id})
    assert reply == "batch of 0 is being cancelled"
    wait_until(lambda: not batches.detail()["running"], PATIENCE)
    [(pid, _)] = batches.ran()
    assert not lives(pid)
    assert batches.queue.state(msg_id) == "done"


def test_one_of_many_cannot_be_cancelled(make):
    batches = make(max=3)
    batches.act("hold; echo done >&3")
    ids = batches.send(3)
    batches.until(ids[1], "run")
    batches.until_ran()
    for verb in ("cancel_message", "destroy_message"):
        reason = batches.queue.refused(verb, {"msg_id": ids[1]})
        assert "in a batch with 2 more" in reason
        assert f"`rq cancel --batch {ids[1]}`" in reason
    batches.go()
    batches.until(ids[1], "done")


def test_a_batch_is_cancelled_whole_but_for_what_has_ended(make):
    batches = make(max=4)
    batches.act(
        f'echo "msg ${{ids[0]}} done" >&3; echo "msg ${{ids[1]}} resend {LONG}-x" >&3\n'
        'echo "run it was said" >&3; hold'
    )
    ids = batches.send(4)
    wait_until(
        lambda: batches.queue.get(ids[3])["status"] == "run - it was said", PATIENCE
    )
    reply = batches.queue.ok("cancel_batch", {"msg_id": ids[2], "who": "Ada"})
    assert reply == "batch of 3 is being cancelled"
    for msg_id in ids[2:]:
        shown = batches.until(msg_id, "err")
        assert shown["result"]["cause"] == "cancelled"
        assert "Ada" in shown["status"]
    assert batches.queue.state(ids[0]) == "done"
    assert batches.until(ids[1], "que")["count"] == 1
    [(pid, _)] = batches.ran()
    assert not lives(pid)


def test_a_batch_of_one_is_cancelled_like_any_message(make):
    batches = make(max=1)
    batches.act("hold")
    [msg_id] = batches.send(1)
    batches.until_ran()
    wait_until(lambda: batches.detail()["running"], PATIENCE)
    batches.queue.ok("cancel_message", {"msg_id": msg_id})
    assert batches.until(msg_id, "err")["result"]["cause"] == "cancelled"


@pytest.mark.slow
def test_a_batch_that_cannot_be_started_is_cancelled_all_the_same(make):
    """It is cancelled while its folders are made; then its interpreter is not found."""
    batches = make(max=1000)
    batches.queue.script.write_text("#!/no/such/interpreter\n")
    ids = batches.send(1000)
    request = {"msg_id": ids[0], "who": "Ada"}
    wait_until(lambda: batches.queue.ask("cancel_batch", request)[0] == "ok", PATIENCE)
    for msg_id in ids[0], ids[-1]:
        shown = batches.until(msg_id, "err")
        assert shown["result"]["cause"] == "cancelled"


def test_what_is_in_no_batch_cannot_be_cancelled_as_one(make):
    batches = make(max=2)
    [msg_id] = batches.send(1)
    reason = batches.queue.refused("cancel_batch", {"msg_id": msg_id})
    assert reason == "msg does not run in a batch"


def test_one_that_failed_is_sent_round_again_only_when_its_batch_has_ended(make):
    batches = make(max=2)
    batches.act(
        '[ -e "$RQ_ROOT/go" ] && { echo done >&3; exit; }\n'
        'echo "msg ${ids[0]} err broken" >&3; hold; echo done >&3'
    )
    first, second = batches.send(2)
    batches.until(first, "err")
    reason = batches.queue.refused("retry_message", {"msg_id": first})
    assert "batch" in reason
    batches.go()
    batches.until(second, "done")
    wait_until(lambda: not batches.detail()["running"], PATIENCE)
    batches.queue.ok("retry_message", {"msg_id": first})
    batches.queue.ok("run_message", {"msg_id": first})
    batches.until(first, "done")


def test_a_folder_that_a_script_has_spoiled_does_not_stop_the_others(make):
    batches = make(max=2)
    batches.act(
        '[ -e "$RQ_ROOT/go" ] && { echo done >&3; exit; }\n'
        'job="$RQ_ROOT/queue/t/run/${ids[0]}/job"; rm -r "$job"; : > "$job"\n'
        'touch "$RQ_ROOT/go"; echo "resend 0-x" >&3'
    )
    first, second = batches.send(2)
    wait_until(lambda: len(batches.ran()) >= 2, PATIENCE)
    assert batches.until(first, "err")["result"]["cause"] == "bad_message"
    batches.until(second, "done")
    assert os.path.isfile(Path(batches.queue.folder(first)) / "job")
