"""Transactions of a running queue: all or none is accepted, at every point of a crash."""

import json
import shutil

import pytest
from harness.cli import rq
from harness.extent import rotated
from harness.kills import site_at
from harness.queues import ask_at_once, short
from harness.waiting import wait_until

from rq.rpc import client

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        yield site


@pytest.fixture
def queue(site):
    return site.queue(num_workers=2).start(TEST_TICK="0.2")


def opened(queue, **asked):
    return queue.ok("open_txn", asked)["txn"]


def prepare(queue, txn, number=1, **fields):
    wanted = [{"param1": "", **fields} for _ in range(number)]
    return queue.ok("prepare_txn", {"txn": txn, "messages": wanted})


def commit(queue, txn, ids):
    answer = queue.ok("commit_txn", {"txn": txn, "ids": ids})
    queue.promised += ids
    return answer


def standing(queue, txn):
    return queue.ok("show_txn", {"txn": txn})["state"]


def refused(queue, command, **asked):
    word, text = queue.ask(command, asked)
    assert word == "fail"
    return text


def all_done(queue, ids):
    for msg_id in ids:
        queue.until(msg_id, "done", 60)


def none_left(queue, ids):
    wait_until(lambda: all(queue.places(one) == [] for one in ids), 60)


def test_what_is_committed_runs_and_nothing_else_does(queue):
    txn = opened(queue)
    ids = prepare(queue, txn, 5)
    assert [queue.state(one) for one in ids] == ["prep"] * 5
    assert commit(queue, txn, ids[:3])["messages"] == 3
    all_done(queue, ids[:3])
    none_left(queue, ids[3:])
    assert {one[1] for one in queue.site.ran("start")} == set(ids[:3])
    queue.prove()


def test_the_same_commit_answers_the_same_and_all_else_is_refused(queue):
    txn = opened(queue)
    ids = prepare(queue, txn, 3)
    first = commit(queue, txn, ids[:2])
    all_done(queue, ids[:2])  # what runs in a crash would run again
    for _ in range(2):
        for asked in (ids[:2], ids[1::-1]):
            assert queue.ok("commit_txn", {"txn": txn, "ids": asked}) == first
        text = refused(queue, "commit_txn", txn=txn, ids=ids)
        assert text.endswith("is committed, with other messages than these")
        text = refused(queue, "prepare_txn", txn=txn, messages=[{}])
        assert text.endswith("is committed: nothing can be added to it")
        assert "committed already" in refused(queue, "abort_txn", txn=txn)
        queue.restart()
    assert len(queue.site.ran("start")) == 2
    queue.prove()


@pytest.mark.parametrize("number", [1, 3])
def test_equal_commits_in_one_turn_answer_the_same(queue, number):
    txn = opened(queue)
    ids = prepare(queue, txn, number)
    asked = ("commit_txn", {"txn": txn, "ids": ids})
    replies = ask_at_once(queue.dir.socket, queue.process.pid, asked, asked, asked)
    queue.promised += ids
    assert [one[0] for one in replies] == ["ok"] * 3, replies
    assert replies[0] == replies[1] == replies[2]
    all_done(queue, ids)
    assert len(queue.site.ran("start")) == number
    queue.prove()


@pytest.mark.parametrize(
    ("command", "more", "text"),
    [
        ("prepare_txn", {"messages": [{}]}, "nothing can be added to it"),
        ("abort_txn", {}, "committed already"),
        ("commit_txn", {"ids": []}, "committed, with other messages than these"),
    ],
)
def test_what_comes_while_a_commit_waits_for_the_disk_hears_of_it(
    queue, command, more, text
):
    txn = opened(queue)
    ids = prepare(queue, txn)
    first, other = ask_at_once(
        queue.dir.socket,
        queue.process.pid,
        ("commit_txn", {"txn": txn, "ids": ids}),
        (command, {"txn": txn, **more}),
    )
    if first[0] == "ok":  # else the other one was read first: it has its own tests
        queue.promised += ids
        assert other[0] == "fail"
        assert text in other[1]
    assert "ask again" not in str(first) + str(other)
    queue.prove()


@pytest.mark.parametrize("verb", rotated(["commit_txn", "abort_txn"]))
def test_a_decision_waits_for_what_is_being_prepared(queue, verb):
    """Many messages are prepared a few at a time; none is added after the decision."""
    txn = opened(queue)
    ids = prepare(queue, txn)
    with client.Connection(queue.dir.socket, timeout=60) as line:
        line.send("prepare_txn", {"txn": txn, "messages": [{}] * 5000})
        wait_until(lambda: queue.ok("show_txn", {"txn": txn})["messages"] > 1)
        queue.ok(verb, {"txn": txn, **({"ids": ids} if verb == "commit_txn" else {})})
        word, more = line.receive()
    assert (word, len(more)) == ("ok", 5000)
    if verb == "commit_txn":
        queue.promised += ids
        all_done(queue, ids)
    wait_until(lambda: queue.ask("num_messages")["prep"] == 0, 60)
    assert queue.ask("num_messages")["que"] == 0
    queue.prove()


def test_an_abort_discards_all_and_may_be_said_again(queue):
    txn = opened(queue, key="job 1")
    ids = prepare(queue, txn, 3)
    for _ in range(2):
        assert queue.ok("abort_txn", {"txn": txn})["state"] == "aborted"
        queue.restart()
    none_left(queue, ids)
    assert "is aborted: open another" in refused(queue, "commit_txn", txn=txn, ids=ids)
    assert opened(queue, key="job 1") != txn
    queue.prove()


def test_a_key_gives_the_same_transaction_and_its_state(queue):
    txn = opened(queue, key="job 1")
    assert opened(queue, key="job 1") == txn != opened(queue, key="job 2")
    ids = prepare(queue, txn, 1)
    queue.restart()
    again = queue.ok("open_txn", {"key": "job 1"})
    assert (again["txn"], again["state"], again["messages"]) == (txn, "open", 1)
    commit(queue, txn, ids)
    queue.restart()
    assert queue.ok("open_txn", {"key": "job 1"})["state"] == "committed"
    queue.prove()


@pytest.mark.parametrize("key", [7, 0, 1.5, True, ["a"], {"a": 1}])
def test_a_key_that_is_not_a_string_is_refused(queue, key):
    assert refused(queue, "open_txn", key=key).startswith("key is not a string: ")
    assert queue.ok("list_txns") == []


def test_one_bad_message_of_a_request_prepares_none(queue):
    txn = opened(queue)
    wanted = [{"param1": "x"}, {"due": "never"}]
    text = refused(queue, "prepare_txn", txn=txn, messages=wanted)
    assert text.startswith("messages[1]: due is not epoch seconds")
    assert queue.ok("show_txn", {"txn": txn})["messages"] == 0
    queue.prove()


def test_a_message_of_a_transaction_is_neither_committed_nor_deleted_alone(queue):
    txn = opened(queue)
    [msg_id] = prepare(queue, txn)
    for command in ("commit_message", "delete_message"):
        text = refused(queue, command, msg_id=msg_id)
        assert text == f"transaction {txn} holds message {msg_id}: commit or abort that"
    assert queue.state(msg_id) == "prep"
    queue.prove()


def test_a_stranger_is_not_committed_and_stops_the_others(queue):
    txn = opened(queue)
    ids = prepare(queue, txn, 2)
    other = queue.prepare()
    text = refused(queue, "commit_txn", txn=txn, ids=[*ids, other])
    assert f"holds no message {other}" in text
    assert [queue.state(one) for one in [*ids, other]] == ["prep"] * 3
    assert refused(queue, "show_txn", txn=other).startswith("no transaction")
    queue.prove()


@pytest.mark.parametrize("end", rotated(["kill", "stop"]))
def test_a_transaction_that_is_left_alone_is_aborted(site, end):
    queue = site.queue().start(TEST_TICK="3600")  # until the next start nobody looks
    txn = opened(queue, ttl=1)
    ids = prepare(queue, txn, 2)
    kept = opened(queue)
    getattr(queue, end)()
    queue.start(TEST_TICK="0.2")
    wait_until(lambda: standing(queue, txn) == "aborted", 60)
    none_left(queue, ids)
    assert [one["txn"] for one in queue.ok("list_txns")] == [kept]
    text = refused(queue, "prepare_txn", txn=txn, messages=[{}])
    assert text.endswith("is aborted: nothing can be added to it")
    queue.prove()


@pytest.mark.parametrize("restarted", [False, True])
def test_attachments_go_with_their_message(queue, tmp_path, restarted):
    txn = opened(queue)
    ids = prepare(queue, txn, 3)
    for msg_id, text in zip(ids, ("one\n", "two\n"), strict=False):
        (tmp_path / "letter").write_text(text)
        asked = {"msg_id": msg_id, "pathname": str(tmp_path / "letter")}
        queue.ok("attach_message", asked)
    asked = {"msg_id": ids[1], "attachment_name": "letter"}
    queue.ok("delete_attach_message", asked)
    if restarted:
        queue.restart()
    commit(queue, txn, ids)
    all_done(queue, ids)
    letter = queue.dir.message("done", ids[0]) / "attach" / "letter"
    wait_until(letter.exists, 60)  # its folder follows
    assert letter.read_text() == "one\n"
    assert json.loads((letter.parent.parent / "msg").read_bytes())["attachments"]
    assert "attachments" not in queue.show(ids[1])
    queue.prove()


def test_an_attachment_that_a_crash_has_torn_stops_the_commit(queue, tmp_path):
    (tmp_path / "letter").write_text("dear all\n")
    txn = opened(queue)
    ids = prepare(queue, txn, 2)
    queue.ok("attach_message", {"msg_id": ids[0], "pathname": str(tmp_path / "letter")})
    queue.kill()
    letter = queue.dir.path / "prep" / ids[0] / "attach" / "letter"
    letter.chmod(0o600)
    letter.write_text("dear")
    queue.start()
    text = refused(queue, "commit_txn", txn=txn, ids=ids)
    assert text == "attachment letter is not whole; attach it again"
    assert [queue.state(one) for one in ids] == ["prep"] * 2
    queue.prove()


def test_attachments_that_a_power_cut_took_with_their_folder_stop_the_commit(
    queue, tmp_path
):
    (tmp_path / "letter").write_text("dear all\n")
    txn = opened(queue)
    ids = prepare(queue, txn, 2)
    queue.ok("attach_message", {"msg_id": ids[0], "pathname": str(tmp_path / "letter")})
    queue.kill()
    shutil.rmtree(queue.dir.path / "prep" / ids[0])
    queue.start()
    text = refused(queue, "commit_txn", txn=txn, ids=ids)
    assert text == "attachment letter is not whole; attach it again"
    queue.ok("attach_message", {"msg_id": ids[0], "pathname": str(tmp_path / "letter")})
    commit(queue, txn, ids)
    all_done(queue, ids)
    letter = queue.dir.message("done", ids[0]) / "attach" / "letter"
    wait_until(letter.exists, 60)  # its folder follows
    assert letter.read_text() == "dear all\n"
    queue.prove()


def test_an_operator_lists_what_is_open_and_ends_it(queue):
    root = queue.site.root.path
    txn = opened(queue, key="a job")
    ids = prepare(queue, txn, 2)
    assert f"{txn}" in rq("txn", "ls", "t", root=root).stdout
    until = queue.ok("show_txn", {"txn": txn})["until"]
    shown = queue.show(ids[0])
    assert shown["removed_at"] == until
    assert txn in shown["story"]["why"]
    [shown] = json.loads(rq("txn", "ls", "t", "--json", root=root).stdout)
    assert (shown["txn"], shown["messages"], shown["key"]) == (txn, 2, "a job")
    ended = rq("txn", "abort", "t", txn, root=root)
    assert (ended.returncode, ended.stdout) == (
        0,
        f"{txn} aborted: none of its messages will run\n",
    )
    none_left(queue, ids)
    wrong = rq("txn", "abort", "t", "nothing", root=root)
    assert wrong.returncode == 3
    assert wrong.stderr.startswith("rq: t: no transaction nothing: ")
    assert rq("txn", "ls", "t", root=root).stdout == ""
    queue.prove()


# ---- kill -9

BEFORE = ("journal:before-write",)
AFTER = ("journal:written", "journal:before-sync", "journal:after-sync")


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_commit_that_is_killed_is_whole_or_has_not_been(queue, point):
    queue.pause()
    txn = opened(queue)
    ids = prepare(queue, txn, 6)
    asked = {"txn": txn, "ids": ids[:4]}
    assert queue.crash(point, lambda: queue.ask("commit_txn", asked)) is None
    queue.start()
    that = "committed" if point in AFTER else "open"
    assert standing(queue, txn) == that
    there = [bool(queue.places(one)) for one in ids]
    assert queue.ask("num_messages")["que"] == (4 if point in AFTER else 0)
    assert any(there) or point in AFTER
    commit(queue, txn, ids[:4])
    assert queue.ask("num_messages")["que"] == 4
    queue.resume()
    all_done(queue, ids[:4])
    none_left(queue, ids[4:])
    assert len(queue.site.ran("start")) == 4
    queue.prove()


@pytest.mark.parametrize("point", ["move:before-rename", "move:after-rename"])
def test_folders_that_a_crash_left_behind_follow_the_decision(queue, point):
    queue.pause()
    txn = opened(queue)
    ids = prepare(queue, txn, 4)
    queue.stop()  # until then no folder is made of them
    queue.start()
    assert [queue.places(one) for one in ids] == [["prep"]] * 4
    asked = {"txn": txn, "ids": ids[:2]}
    queue.crash(point, lambda: queue.ask("commit_txn", asked))
    queue.start()
    assert queue.ask("num_messages")["prep"] == 0
    queue.promised += ids[:2]
    queue.resume()
    all_done(queue, ids[:2])
    none_left(queue, ids[2:])
    queue.prove()


@pytest.mark.parametrize("point", ["journal:before-write", "journal:written"])
@pytest.mark.parametrize("command", ["open_txn", "prepare_txn", "abort_txn"])
def test_what_was_not_answered_can_be_asked_again(queue, command, point):
    asked = {"key": "k"}
    if command != "open_txn":
        asked = {"txn": opened(queue, key="k")}
    ids = prepare(queue, asked["txn"], 2) if command == "abort_txn" else []
    if command == "prepare_txn":
        asked["messages"] = [{"param1": ""}]
    assert queue.crash(point, lambda: queue.ask(command, asked)) is None
    queue.start()
    answer = queue.ok(command, asked)
    txn = opened(queue, key="k") if command == "abort_txn" else asked.get("txn")
    txn = txn or answer["txn"]
    mine = prepare(queue, txn, 2)
    commit(queue, txn, mine)
    all_done(queue, mine)
    none_left(queue, ids)
    assert queue.ask("num_messages")["prep"] == 0
    queue.prove()


@pytest.mark.parametrize(
    ("point", "that"),
    [("txn:manifest-written", "open"), ("journal:written", "committed")],
)
def test_ids_beyond_a_line_of_the_journal_are_committed_as_a_whole(site, point, that):
    queue = site.queue().start(TEST_INLINE="3")
    queue.pause()
    txn = opened(queue)
    ids = prepare(queue, txn, 5)
    asked = {"txn": txn, "ids": ids[:4]}
    assert queue.crash(point, lambda: queue.ask("commit_txn", asked)) is None
    queue.start(TEST_INLINE="3")
    assert standing(queue, txn) == that
    assert queue.ask("num_messages")["que"] == (4 if that == "committed" else 0)
    commit(queue, txn, ids[:4])
    queue.restart()
    found = queue.ask("num_messages")
    assert (found["que"], found["prep"]) == (4, 0)
    queue.prove()


def test_a_manifest_is_removed_when_a_checkpoint_covers_it(site):
    queue = site.queue().start(TEST_INLINE="3", TEST_CHECKPOINT_SECONDS="0.2")
    txn = opened(queue)
    commit(queue, txn, prepare(queue, txn, 5))
    wait_until(lambda: not list(queue.dir.journal.glob("txn-*")), 60)
    queue.restart()
    assert standing(queue, txn) == "committed"
    queue.prove()


def test_a_checkpoint_and_a_new_segment_do_not_lose_it(site):
    queue = site.queue().start(TEST_CHECKPOINT_SECONDS="0.2")
    queue.pause()
    txn = opened(queue)
    ids = prepare(queue, txn, 2, due=0)
    before = queue.ok("detail")["seq"]
    queue.submit()
    queue.ok("seal")
    wait_until(lambda: queue.ok("detail")["checkpoint_seq"] >= before, 60)
    queue.restart()
    assert standing(queue, txn) == "open"
    commit(queue, txn, ids)
    queue.restart()
    queue.resume()
    all_done(queue, ids)
    queue.prove()


def test_messages_keep_their_due_over_a_crash(queue):
    txn = opened(queue)
    ids = prepare(queue, txn, 1, due=4e9)
    commit(queue, txn, ids)
    queue.restart()
    assert queue.show(ids[0])["due"] == 4e9
    assert short(ids[0]) == ids[0]
    queue.prove()
