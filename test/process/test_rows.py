"""Rows: messages of a transaction that wait as lines of files; each is one message once,
whatever is killed."""

import collections
import contextlib
import json
import random

import pytest
from harness.cli import rq
from harness.extent import rotated
from harness.kills import site_at
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable
from rq.spool import offline

pytestmark = pytest.mark.process

# Says whose turn it is, and nothing else: there are many.
SAYS = '#!/bin/sh\necho "start $RQ_PARAM1" >> "$RQ_ROOT/rows"\necho done >&3\n'


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        yield site


@pytest.fixture
def queue(site):
    queue = site.queue(script=SAYS, num_workers=2).start(TEST_TICK="0.2")
    queue.pause()
    return queue


def opened(queue, **asked):
    return queue.ok("open_txn", asked)["txn"]


def hand_in(queue, txn, *values, **fields):
    """Hand in a row for each value; return the name of their file."""
    rows = [{"param1": value, **fields} for value in values]
    return queue.ok("add_rows", {"txn": txn, "messages": rows})["rows"]


def values(number, start=0):
    return [f"row {one}" for one in range(start, start + number)]


def commit(queue, txn, *files, ids=()):
    return queue.ok("commit_txn", {"txn": txn, "ids": list(ids), "rows": list(files)})


def refused(queue, command, **asked):
    word, text = queue.ask(command, asked)
    assert word == "fail"
    return text


def files_of(queue):
    return sorted(path.name for path in queue.dir.journal.glob("*rows-*"))


def that_ran(queue):
    with contextlib.suppress(FileNotFoundError):
        lines = (queue.site.root.path / "rows").read_text().splitlines()
        return collections.Counter(line.removeprefix("start ") for line in lines)
    return collections.Counter()


def counts(queue):
    return queue.ok("detail")["counts"]


def none_waits(queue):
    found = counts(queue)
    return found["que"] == found["run"] == 0


def run_all(queue, wanted):
    """Let all run: each of the wanted is one message that is done, and nothing else."""
    queue.resume()
    wait_until(lambda: none_waits(queue), 120)
    assert that_ran(queue) == collections.Counter(wanted)
    assert counts(queue)["done"] == len(wanted)
    wait_until(lambda: files_of(queue) == [], 30)
    queue.prove()


def test_rows_are_accepted_together_and_run_once(queue):
    txn = opened(queue, key="k")
    first, second = hand_in(queue, txn, "a", "b"), hand_in(queue, txn, "c")
    left_out = hand_in(queue, txn, "never")
    wanted = {"txn": txn, "messages": [{"param1": "d"}, {"param1": "e"}]}
    ids = queue.ok("prepare_txn", wanted)
    assert queue.ok("show_txn", {"txn": txn})["messages"] == 6
    assert len(files_of(queue)) == 3
    for _ in range(2):  # a reply may be lost
        told = commit(queue, txn, first, second, ids=ids[:1])
        assert (told["state"], told["messages"]) == ("committed", 4)
    text = refused(queue, "commit_txn", txn=txn, ids=ids[:1], rows=[first])
    assert text.endswith("is committed, with other rows than these")
    text = refused(queue, "commit_txn", txn=txn, ids=ids[:1])
    assert text.endswith("is committed, with other rows than these")
    wait_until(lambda: f"rows-{left_out}" not in files_of(queue), 30)
    assert counts(queue)["que"] == 4
    run_all(queue, ["a", "b", "c", "d"])


@pytest.mark.parametrize("how", ["abort", "time"])
def test_what_is_not_committed_goes_with_its_transaction(queue, how):
    txn = opened(queue, ttl=1.0 if how == "time" else 60.0)
    hand_in(queue, txn, "never")
    if how == "abort":
        queue.ok("abort_txn", {"txn": txn})
    wait_until(lambda: queue.ok("show_txn", {"txn": txn})["state"] == "aborted", 60)
    wait_until(lambda: files_of(queue) == [], 30)
    run_all(queue, [])


def test_rows_that_cannot_be_messages_are_refused_together(queue):
    txn = opened(queue)
    for rows, text in (
        ([], "a list of 1 to 5,000 messages"),
        ([{}] * 5001, "a list of 1 to 5,000 messages"),
        ("x", "a list of 1 to 5,000 messages"),
        ([{}, 7], "messages[1]: it is not a JSON object"),
        ([{}, {"param1": "a\0b"}], "messages[1]: param1 holds a NUL byte"),
        ([{"param1": "x" * 200_000}], "messages[0]: param1 is 200000 bytes"),
        ([{"due": 1}], "messages[0]: due is not for rows"),
        ([{"priority": 3}], "messages[0]: priority is not for rows"),
        ([{"hold": "why"}], "messages[0]: hold is not for rows"),
        ([{"retries": 3}], "messages[0]: 'retries' is no field of a message"),
    ):
        assert text in refused(queue, "add_rows", txn=txn, messages=rows)
    assert files_of(queue) == []
    other = opened(queue)
    strange = hand_in(queue, other, "never")
    for rows, text in (
        ("x", "'rows' is not a list"),
        ([7], "'rows' is not a list"),
        (["../../config"], "holds no rows ../../config"),
        ([strange], f"holds no rows {strange}"),
    ):
        assert text in refused(queue, "commit_txn", txn=txn, ids=[], rows=rows)
    bound = opened(queue, of=txn)
    assert "hand rows in with that" in refused(
        queue, "add_rows", txn=bound, messages=[{}]
    )
    queue.ok("abort_txn", {"txn": other})
    commit(queue, txn)
    assert "is committed: nothing can be added" in refused(
        queue, "add_rows", txn=txn, messages=[{}]
    )
    run_all(queue, [])


@pytest.mark.parametrize(
    "config",
    [
        {"unique": {"params": [1]}},
        {"coalesce_params": [1]},
        {"blocking_params": [1]},
        {"fair_params": [1]},
        {"batch": {"max": 5, "wait": 1}},
    ],
    ids=lambda config: next(iter(config)),
)
def test_a_queue_that_compares_what_waits_takes_none(site, config):
    queue = site.queue(**config).start()
    told = queue.ok("open_txn", {})
    assert told["takes_rows"] is False
    text = refused(queue, "add_rows", txn=told["txn"], messages=[{}])
    assert f"a queue with `{next(iter(config))}` takes no rows" in text
    queue.prove()


# ---- few at a time


def test_a_few_become_messages_at_a_time(site):
    queue = site.queue(script=SAYS).start(TEST_ROWS="3")
    queue.pause()
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, *values(12)))
    wait_until(lambda: queue.ok("detail")["rows"] == 9, 30)
    assert counts(queue)["que"] == 12
    later = queue.submit("later")  # it does not overtake what was accepted before
    assert queue.stop() == 0
    assert offline.counts(queue.dir)["que"] == 13
    queue.start(TEST_ROWS="3")
    assert queue.ok("detail")["rows"] == 9
    queue.resume()
    wait_until(lambda: queue.state(later) == "done", 60)
    text = (site.root.path / "rows").read_text()
    assert text.split("\n")[:-1] == [f"start {one}" for one in [*values(12), "later"]]
    queue.prove()


def test_who_acts_on_all_that_wait_has_to_wait_until_all_are_there(site):
    queue = site.queue(script=SAYS).start(TEST_ROWS="2")
    queue.pause()
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, *values(9)))
    wait_until(lambda: queue.ok("detail")["rows"] == 7, 30)
    asked = {"action": "delete", "filter": {"state": "que"}}
    text = refused(queue, "bulk", **asked)
    assert "7 rows have still to become messages" in text
    wait_until(lambda: queue.ok("detail")["rows"] == 0, 30)
    assert queue.ok("bulk", asked)["messages"] == 9
    wait_until(lambda: counts(queue)["que"] == 0, 30)
    run_all(queue, [])


def test_a_setting_that_compares_what_waits_lets_all_become_messages(site):
    queue = site.queue(script=SAYS).start(TEST_ROWS="2", TEST_TICK="0.2")
    queue.pause()
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, *["same"] * 5))
    wait_until(lambda: queue.ok("detail")["rows"] == 3, 30)
    config = json.loads(queue.dir.config.read_text()) | {"coalesce_params": [1]}
    queue.dir.config.write_text(json.dumps(config))
    wait_until(lambda: queue.ok("detail")["rows"] == 0, 30)
    queue.resume()
    wait_until(lambda: none_waits(queue), 60)
    assert that_ran(queue) == {"same": 1}
    assert counts(queue)["done"] == 5
    queue.prove()


@pytest.mark.parametrize("killed", [False, True])
def test_rows_that_wait_can_be_dropped(site, killed):
    """By whoever wrote a million by mistake, or has lost a file of them."""
    queue = site.queue(script=SAYS).start(TEST_ROWS="2", TEST_TICK="0.2")
    queue.pause()
    first, second = opened(queue, key="first"), opened(queue)
    file = hand_in(queue, first, *values(9))
    commit(queue, first, file)
    assert "is open, and no rows of it wait" in refused(queue, "drop_rows", txn=second)
    commit(queue, second, hand_in(queue, second, "other"))
    wait_until(lambda: queue.ok("detail")["rows"] == 8, 30)
    listed = [(txn["txn"], txn["rows"]) for txn in queue.ok("list_txns", {"rows": 1})]
    assert listed == [(first, 7), (second, 1)]
    if killed:
        asked = {"txn": first}
        queue.crash("journal:written", lambda: queue.ask("drop_rows", asked))
        queue.start()
    else:
        assert queue.ok("drop_rows", {"txn": first})["messages"] == 7
    assert "is committed, and no rows of it wait" in refused(
        queue, "drop_rows", txn=first
    )
    told = commit(queue, first, file)
    assert (told["state"], told["messages"]) == ("committed", 9)
    queue.restart()
    run_all(queue, [*values(2), "other"])


def test_the_command_line_names_rows_that_wait_and_drops_them(site):
    queue = site.queue(script=SAYS).start(TEST_ROWS="2")
    queue.pause()
    txn, root = opened(queue, key="a million"), site.root.path
    commit(queue, txn, hand_in(queue, txn, *values(9)))
    wait_until(lambda: queue.ok("detail")["rows"] == 7, 30)
    head, row = rq("txn", "ls", "t", root=root).stdout.splitlines()
    assert head.split() == ["ID", "STATE", "MESSAGES", "ROWS", "UNTIL", "KEY"]
    assert row.split()[:4] == [txn, "committed", "9", "7"]
    [view] = json.loads(rq("txn", "ls", "t", "--json", root=root).stdout)
    assert (view["rows"], view["key"]) == (7, "a million")
    dropped = rq("txn", "drop", "t", txn, root=root)
    said = f"{txn}: 7 rows discarded; what is a message already stays\n"
    assert (dropped.returncode, dropped.stdout) == (0, said)
    again = rq("txn", "drop", "t", txn, root=root)
    assert again.returncode == 4
    assert "no rows of it wait" in again.stderr
    assert rq("txn", "ls", "t", root=root).stdout == ""
    run_all(queue, values(2))


def test_rows_run_in_the_order_in_which_their_commit_names_them(site):
    queue = site.queue(script=SAYS).start()
    queue.pause()
    txn = opened(queue)
    first, second = hand_in(queue, txn, "a", "b"), hand_in(queue, txn, "c", "d")
    commit(queue, txn, second, first)
    queue.restart()
    run_all(queue, ["a", "b", "c", "d"])
    lines = (site.root.path / "rows").read_text().split()
    assert [line for line in lines if line != "start"] == ["c", "d", "a", "b"]


def test_what_waits_for_another_day_keeps_no_rows_back(site):
    queue = site.queue(script=SAYS).start(TEST_ROWS="3")
    queue.pause()
    for _ in range(4):
        queue.submit("late", due=4e9)
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, *values(9)))
    queue.restart()
    assert queue.stop() == 0
    queue.start(TEST_ROWS="3")
    queue.resume()
    wait_until(lambda: counts(queue)["done"] == 9, 60)
    assert counts(queue)["que"] == 4
    queue.prove()


def test_rows_are_not_hurried_for_ever(site):
    """Somebody has asked for all that wait, and one file cannot be used."""
    queue = site.queue(script=SAYS).start(TEST_ROWS="2")
    queue.pause()
    txn = opened(queue)
    commit(queue, txn, lost := hand_in(queue, txn, *values(9)))
    wait_until(lambda: queue.ok("detail")["rows"] == 7, 30)
    assert queue.stop() == 0
    (queue.dir.journal / f"rows-{lost}").unlink()
    queue.start(TEST_ROWS="2")
    wait_until(lambda: queue.ok("detail")["reason"], 30)
    wanted = {"action": "delete", "filter": {"state": "que"}, "dry_run": True}
    assert queue.ok("bulk", wanted)["messages"] == 2
    other = opened(queue)
    commit(queue, other, hand_in(queue, other, *values(50)))
    assert queue.ok("detail")["rows"] == 7 + 50
    queue.ok("drop_rows", {"txn": txn})
    queue.resume()
    wait_until(lambda: counts(queue)["done"] == 52, 60)
    queue.prove()


def test_a_rule_that_comes_before_the_decision_holds_for_rows(queue):
    txn = opened(queue)
    file = hand_in(queue, txn, "a", "a")
    config = json.loads(queue.dir.config.read_text()) | {"unique": {"params": [1]}}
    queue.dir.config.write_text(json.dumps(config))
    wait_until(lambda: not queue.ok("open_txn", {})["takes_rows"], 30)
    text = refused(queue, "commit_txn", txn=txn, ids=[], rows=[file])
    assert "a queue with `unique` takes no rows" in text
    assert queue.ok("show_txn", {"txn": txn})["state"] == "open"


def test_rows_that_were_accepted_before_a_rule_stand_and_are_met_by_what_comes(queue):
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, "a", "a"))
    config = json.loads(queue.dir.config.read_text()) | {"unique": {"params": [1]}}
    queue.dir.config.write_text(json.dumps(config))
    wait_until(lambda: not queue.ok("open_txn", {})["takes_rows"], 30)
    wait_until(lambda: queue.ok("detail")["rows"] == 0, 30)
    word, _, how = queue.ask("create_message", {"dest": "t", "param1": "a"})[:3]
    assert (word, how) == ("ok", "joined")
    run_all(queue, ["a", "a"])


def test_a_row_that_grows_with_its_due_is_refused_before(queue):
    txn = opened(queue)
    text = refused(
        queue, "add_rows", txn=txn, messages=[{"own": "x" * (1024 * 1024 - 7000)}]
    )
    assert "messages[0]: the message is" in text
    hand_in(queue, txn, "a", own="x" * (1024 * 1024 - 20_000))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_rows_outlive_the_loss_of_the_index_and_of_old_history(site, how):
    """Nothing of the journal tells of them any more; the checkpoint does."""
    small = {"TEST_ROWS": "2", "TEST_CHECKPOINT_SECONDS": "0.2", "TEST_SEGMENT": "4096"}
    retention = {"history": {"bytes": 1}}
    queue = site.queue(script=SAYS, num_workers=2, retention=retention).start(**small)
    queue.pause()
    txn = opened(queue)
    commit(queue, txn, hand_in(queue, txn, *values(10)))
    wait_until(lambda: queue.ok("detail")["rows"] == 8, 30)
    assert queue.stop() == 0
    queue.start(**small)
    queue.submit("later")
    before = queue.ok("detail")["seq"]
    wait_until(lambda: queue.ok("detail")["checkpoint_seq"] >= before, 30)
    queue.ok("seal")
    queue.ask("expire", {})
    wait_until(lambda: not [e for e in queue.events() if e.get("txn") == txn], 30)
    if how == "stop":
        assert queue.stop() == 0
    else:
        queue.kill()
    queue.dir.index.unlink()
    queue.start(**small)
    assert queue.ok("detail")["rows"] == 8
    run_all(queue, [*values(10), "later"])


# ---- kill -9


@pytest.mark.parametrize(
    "point", ["rows:written", "journal:before-write", "journal:written"]
)
def test_rows_whose_answer_was_lost_are_handed_in_again(queue, point):
    txn = opened(queue, key="k")
    first = hand_in(queue, txn, "a")
    asked = {"txn": txn, "messages": [{"param1": "b"}]}
    assert queue.crash(point, lambda: queue.ask("add_rows", asked)) is None
    queue.start()
    assert len(files_of(queue)) == (2 if point == "journal:written" else 1)
    assert opened(queue, key="k") == txn
    again = hand_in(queue, txn, "b")
    commit(queue, txn, first, again)
    run_all(queue, ["a", "b"])


@pytest.mark.parametrize(
    ("point", "standing"),
    rotated(
        [
            ("journal:before-write#1", "open"),
            ("journal:written#1", "committed"),
            ("journal:after-sync#1", "committed"),
            ("journal:before-write#2", "committed"),
            ("journal:written#2", "committed"),
            ("journal:after-sync#2", "committed"),
            ("journal:before-write#3", "committed"),
            ("journal:written#3", "committed"),
        ],
        3,
    ),
)
def test_each_row_is_a_message_once_whenever_it_is_killed(queue, point, standing):
    txn = opened(queue)
    files = [hand_in(queue, txn, *values(60, at)) for at in (0, 60)]
    hand_in(queue, txn, "never")
    queue.arm(point)
    with contextlib.suppress(OutcomeUnknown, Unreachable):
        commit(queue, txn, *files)
    assert queue.died()
    queue.start(TEST_TICK="0.2")
    assert queue.ok("show_txn", {"txn": txn})["state"] == standing
    assert counts(queue)["que"] == (120 if standing == "committed" else 0)
    commit(queue, txn, *files)
    queue.restart()
    run_all(queue, values(120))


@pytest.mark.slow
def test_each_row_is_a_message_once_after_many_kills(site):
    """Killed at any moment while rows become messages and these run; checkpoints, the
    index and clean stops come in between."""
    dice = random.Random(7)
    small = {"TEST_CHECKPOINT_SECONDS": "0.2", "TEST_ROWS": "40"}
    queue = site.queue(script=SAYS, num_workers=2).start(**small)
    txn = opened(queue)
    files = [hand_in(queue, txn, *values(100, at)) for at in range(0, 600, 100)]
    commit(queue, txn, *files)
    for _ in range(8):
        left = queue.ok("detail")["rows"]
        wait_until(lambda n=left: queue.ok("detail")["rows"] < max(1, n - 20), 60)
        if dice.random() < 0.3:
            assert queue.stop() == 0
        else:
            queue.kill()
        queue.start(**small)
    wait_until(lambda: none_waits(queue), 120)
    # One that ran when it was killed runs again; it is still one message.
    assert that_ran(queue).keys() == set(values(600))
    assert counts(queue)["done"] == 600
    wait_until(lambda: files_of(queue) == [], 30)
    queue.prove()


def test_rows_outlive_checkpoints_the_index_and_stops(site):
    small = {"TEST_CHECKPOINT_SECONDS": "0.2", "TEST_ROWS": "2"}
    queue = site.queue(script=SAYS, num_workers=2).start(**small)
    queue.pause()
    done, undecided = opened(queue), opened(queue, key="k")
    commit(queue, done, hand_in(queue, done, *values(6)))
    file = hand_in(queue, undecided, "late")
    before = queue.ok("detail")["seq"]
    wait_until(lambda: queue.ok("detail")["checkpoint_seq"] >= before, 60)
    assert queue.stop() == 0  # the index is written
    queue.start(**small)
    queue.kill()
    queue.start(**small)
    assert counts(queue)["que"] == 6
    commit(queue, undecided, file)
    assert queue.stop() == 0
    queue.start()
    run_all(queue, [*values(6), "late"])
