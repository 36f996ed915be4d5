"""Pages tell how many of those that wait are rows, which have still to become messages."""

import pytest
from harness.queues import kept
from harness.rows import RowsQueue, flip
from harness.waiting import wait_until
from harness.web_server import web_alone

pytestmark = pytest.mark.process

STILL = "of those waiting are rows still"
NEARS = "messages are made of them as their turn nears, and are listed here then."


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    with kept(RowsQueue(tmp_path_factory.mktemp("root"))) as queue:
        yield queue


@pytest.fixture(scope="module")
def web(queue):
    with web_alone(queue.root.path) as web:
        yield web


def gauge(web):
    [line] = [
        line
        for line in web.get("/metrics").text.splitlines()
        if line.startswith("rq_queue_rows{")
    ]
    return line


def test_rows_are_told_beside_the_messages_that_wait(queue, web):
    assert STILL not in web.page("/q/t")
    assert gauge(web) == 'rq_queue_rows{queue="t"} 0'
    [_, file] = queue.add(10, 1500)
    queue.until_rows(1500)
    for path in ("/q/t", "/q/t?state=que", "/q/t?find=row"):
        assert f"1,500 {STILL}: {NEARS}" in web.page(path)
    for path in ("/q/t?state=done", "/q/t?state=prep"):
        assert STILL not in web.page(path)
    shown = web.get("/q/t/queue.json").json["queue"]
    assert (shown["rows"], shown["counts"]["que"]) == (1500, 1510)
    assert gauge(web) == 'rq_queue_rows{queue="t"} 1500'
    assert f"{1510:,}" in web.page("/q/t")
    assert queue.stop() == 0
    assert f"1,500 {STILL}" in web.page("/q/t?state=que")  # as its checkpoint has it
    whole = flip(file)
    queue.limit_to(10_000)
    queue.start()
    wait_until(lambda: queue.ok("detail")["reason"])
    assert f"{file} is not what was accepted" in web.page("/q/t")
    file.write_bytes(whole)
    queue.restart()
    queue.until_rows(0)
    assert STILL not in web.page("/q/t")


def test_when_no_row_is_a_message_the_page_does_not_say_that_nothing_waits(tmp_path):
    with kept(RowsQueue(tmp_path)) as queue, web_alone(tmp_path) as web:
        txn = queue.ok("open_txn", {})["txn"]
        name = queue.add_to(txn, 1)
        file = queue.dir.journal / f"rows-{name}"
        whole = flip(file)
        queue.ok("commit_txn", {"txn": txn, "ids": [], "rows": [name]})
        wait_until(lambda: queue.ok("detail")["reason"])
        for path in ("/q/t", "/q/t?state=que"):
            shown = web.page(path)
            assert "1 of those waiting is a row still: a message is made of it" in shown
            assert "It is no message yet." in shown
            assert "No message yet" not in shown
            assert "No message is in this state" not in shown
        file.write_bytes(whole)
        queue.restart()
        queue.each_ran_once(1)


def test_the_page_of_a_transaction_counts_its_rows(queue, web):
    txn = queue.ok("open_txn", {})["txn"]
    path = f"/q/t/txn/{txn}"
    assert "None is prepared yet." in web.page(path)
    queue.add_to(txn, 2000)
    shown = web.page(path)
    assert "It is open, with 2,000 prepared messages." in shown
    assert "All of them are rows, of which messages are made once it is" in shown
    [msg_id] = queue.ok("prepare_txn", {"txn": txn, "messages": [{}]})
    shown = web.page(path)
    assert f"/q/t/{msg_id}" in shown
    assert "and 2,000 more: " in shown
    assert "being prepared</a>, or rows, of which messages are made later" in shown
    queue.ok("abort_txn", {"txn": txn})


@pytest.mark.slow
def test_what_acts_on_all_that_wait_is_told_to_wait_for_the_rows(tmp_path):
    with kept(RowsQueue(tmp_path)) as queue, web_alone(tmp_path) as web:
        queue.add(10, 15)
        queue.until_rows(15)
        path = "/q/t/bulk?state=que&action=hold"
        told = "15 rows have still to become messages, which RQ does now: ask again"
        assert told in web.page(path)
        queue.until_rows(0)
        assert "25 messages match" in web.page(path)
