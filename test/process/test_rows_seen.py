"""Rows that have still to become messages are told of, and so is a file that keeps them
from it; once it is back each of them runs once."""

import json

import pytest
from harness.cli import rq
from harness.queues import kept
from harness.rows import RowsQueue, each_once, flip
from harness.supervisor import daemon_on
from harness.waiting import wait_until

pytestmark = pytest.mark.process

LINE = "t: {} of que are rows still: messages are made of them as their turn nears"


def shown(queue, *words):
    """Return what a verb prints, and what it notes."""
    done = rq(*words, root=queue.root.path)
    return done.stdout, done.stderr


def test_rows_are_told_where_the_messages_of_a_queue_are_counted_or_listed(tmp_path):
    with kept(RowsQueue(tmp_path)) as queue:
        for words in (("status",), ("queue", "ls"), ("ls", "t")):
            assert "rows still" not in "".join(shown(queue, *words))
        queue.add(10, 15)
        queue.until_rows(15)
        for words in (("status",), ("queue", "ls")):
            assert LINE.format(15) in shown(queue, *words)[0].splitlines()
        listed, note = shown(queue, "ls", "t", "--state", "que", "--limit", "100")
        assert len(listed.splitlines()) == 1 + 10
        assert note == f"{LINE.format(15)}, and listed then\n"
        assert " 25 " in shown(queue, "ls", "t", "--count")[0]
        assert "rows still" not in shown(queue, "ls", "t", "--state", "done")[1]
        rows, note = shown(queue, "ls", "t", "--json")
        assert (len(json.loads(rows)), note) == (10, "")
        assert queue.stop() == 0
        for words in (("status",), ("queue", "ls"), ("ls", "t")):
            assert LINE.format(15) in "".join(shown(queue, *words))
        queue.start()
        queue.each_ran_once(25)


def test_a_transaction_is_listed_with_its_rows(tmp_path):
    with kept(RowsQueue(tmp_path)) as queue:
        txn = queue.ok("open_txn", {})["txn"]
        queue.add_to(txn, 7)
        queue.ok("prepare_txn", {"txn": txn, "messages": [{}] * 2})
        row = shown(queue, "txn", "ls", "t")[0].splitlines()[1].split()
        assert row[:4] == [txn, "open", "9", "7"]
        queue.ok("abort_txn", {"txn": txn})


def assert_told(queue, file, why):
    """Status, and the check, tell what is wrong with a file of rows."""
    assert f"! t has a problem: {file} {why}" in shown(queue, "status")[0]
    assert checked(queue) == [("rows", file.name)]


def checked(queue, *words):
    done = rq("check", "t", "--json", *words, root=queue.root.path)
    return [(row["kind"], row["subject"]) for row in json.loads(done.stdout)]


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_file_of_rows_that_was_brought_back_becomes_its_messages(tmp_path, how):
    with kept(RowsQueue(tmp_path)) as queue:
        files = queue.add(4, 6, 15)
        queue.until_rows(15)
        assert queue.stop() == 0
        assert checked(queue) == []
        whole = flip(files[2])
        if how == "lost":
            files[2].unlink()
        assert checked(queue) == [("rows", files[2].name)]
        said = rq("check", "t", root=queue.root.path).stdout
        assert "bring it back from a backup; 15 messages wait there" in said
        queue.limit_to(1000)
        queue.start()
        wait_until(lambda: queue.ok("detail")["reason"])
        why = "is not what was accepted" if how == "damaged" else "is not there"
        assert_told(queue, files[2], why)
        assert LINE.format(15) in shown(queue, "status")[0]
        queue.add(4)  # what comes later goes on
        queue.until_rows(15)
        files[2].write_bytes(whole)
        assert checked(queue) == []
        queue.restart()
        queue.until_rows(0)
        assert queue.ok("detail")["reason"] is None
        queue.each_ran_once(29)


@pytest.mark.slow
def test_a_file_of_rows_that_comes_back_is_gone_on_with_without_a_restart(tmp_path):
    with kept(RowsQueue(tmp_path, most=11)) as queue:
        files = queue.add(10, 2000)  # there is room for a part of the second
        wait_until(lambda: len(queue.listed()) > 10)
        assert queue.stop() == 0
        whole = flip(files[1])
        queue.limit_to(1000, again=0.3)
        queue.start()
        wait_until(lambda: queue.ok("detail")["reason"])
        assert_told(queue, files[1], "is not what was accepted")
        assert 10 < len(queue.listed()) < 2010
        files[1].write_bytes(whole)
        wait_until(lambda: len(queue.listed()) >= 1000)
        assert queue.ok("detail")["rows"] > 0
        assert "t has a problem" not in shown(queue, "status")[0]
        queue.limit_to(5000)
        queue.restart()
        queue.until_rows(0)
        assert queue.listed() == each_once(2010)


@pytest.mark.slow
def test_doctor_names_a_file_of_rows_that_cannot_be_read(tmp_path):
    with daemon_on(tmp_path / "rq") as daemon:
        daemon.start()
        daemon.create("t")
        daemon.until_up("t")
        path = daemon.root.path
        assert "has a problem" not in rq("doctor", "--quick", root=path).stdout
        txn = daemon.ask_queue("t", "open_txn", {})[1]["txn"]
        asked = {"txn": txn, "messages": [{"param1": "row"}] * 3}
        name = daemon.ask_queue("t", "add_rows", asked)[1]["rows"]
        file = daemon.root.queue("t").journal / f"rows-{name}"
        flip(file)
        daemon.ask_queue("t", "commit_txn", {"txn": txn, "ids": [], "rows": [name]})
        wait_until(lambda: daemon.ask_queue("t", "detail")[1]["reason"])
        said = f"t has a problem: {file} is not what was accepted"
        assert f"warning: queue {said}" in rq("doctor", "--quick", root=path).stdout
        done = rq("status", root=path)
        assert f"! {said}" in done.stdout
        assert done.returncode == 1


@pytest.mark.slow
def test_check_after_a_crash_names_a_file_of_rows_once_the_journal_is_replayed(
    tmp_path,
):
    with kept(RowsQueue(tmp_path)) as queue:
        files = queue.add(10, 15)
        queue.until_rows(15)
        queue.crash()
        whole = flip(files[1])
        assert checked(queue) == [("unclean", "t")]
        assert checked(queue, "--fix") == [("rows", files[1].name)]
        files[1].write_bytes(whole)
        assert checked(queue) == []
        queue.start()
        queue.each_ran_once(25)
