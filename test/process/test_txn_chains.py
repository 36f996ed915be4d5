"""Chains of transactions: more messages than one holds, all or nothing at every crash."""

import shutil

import pytest
from harness.extent import rotated
from harness.kills import site_at
from harness.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path):
    with site_at(tmp_path / "root") as site:
        yield site


@pytest.fixture
def queue(site):
    queue = site.queue(num_workers=2).start(TEST_TICK="0.2", TEST_MOST="3")
    queue.pause()
    return queue


def opened(queue, **asked):
    return queue.ok("open_txn", asked)["txn"]


def prepare(queue, txn, number):
    wanted = [{"param1": ""} for _ in range(number)]
    return queue.ok("prepare_txn", {"txn": txn, "messages": wanted})


def standing(queue, txn):
    return queue.ok("show_txn", {"txn": txn})["state"]


def refused(queue, command, **asked):
    word, text = queue.ask(command, asked)
    assert word == "fail"
    return text


class Chain:
    """Three messages in the head, and two in each of two others, one of which is left
    out there."""

    def __init__(self, queue):
        self.queue = queue
        self.head = opened(queue, key="k")
        self.first = prepare(queue, self.head, 3)
        self.others = [opened(queue, of=self.head) for _ in range(2)]
        self.ids = [prepare(queue, txn, 3) for txn in self.others]
        for txn, ids in zip(self.others, self.ids, strict=True):
            asked = {"txn": txn, "ids": ids[:2]}
            assert queue.ok("commit_txn", asked)["state"] == "ready"
        self.chosen = [*self.first, *self.ids[0][:2], *self.ids[1][:2]]
        self.asked = {"txn": self.head, "ids": self.first, "chain": self.others}

    def commit(self):
        assert self.queue.ok("commit_txn", self.asked)["state"] == "committed"

    def committed(self):
        """All that was chosen is there, and nothing else."""
        self.queue.promised += self.chosen
        wait_until(lambda: self.queue.ask("num_messages")["prep"] == 0, 60)
        assert self.queue.ask("num_messages")["que"] == 7
        assert {standing(self.queue, txn) for txn in self.others} == {"committed"}
        self.queue.resume()
        for msg_id in self.chosen:
            self.queue.until(msg_id, "done", 60)
        assert len(self.queue.site.ran("start")) == 7
        self.queue.prove()

    def aborted(self):
        wait_until(lambda: self.queue.ask("num_messages")["prep"] == 0, 60)
        assert self.queue.ask("num_messages")["que"] == 0
        assert {standing(self.queue, txn) for txn in self.others} == {"aborted"}
        self.queue.prove()


def test_a_chain_is_accepted_as_a_whole_and_may_be_said_again(queue):
    chain = Chain(queue)
    assert queue.ask("num_messages")["que"] == 0
    strange = opened(queue, of=chain.head)
    late = prepare(queue, strange, 2)
    every = queue.ok("list_txns")  # all are aborted when their head is
    assert len({txn["until"] for txn in every}) == 1
    assert len(every) == 4
    for _ in range(2):
        chain.commit()
    text = refused(queue, "commit_txn", **{**chain.asked, "chain": chain.others[:1]})
    assert text.endswith("is committed, with other transactions than these")
    for txn, ids in zip(chain.others, chain.ids, strict=True):
        asked = {"txn": txn, "ids": ids[:2]}
        assert queue.ok("commit_txn", asked)["state"] == "committed"
    # One that was not named is discarded with all that it holds.
    assert standing(queue, strange) == "aborted"
    assert refused(queue, "prepare_txn", txn=strange, messages=[{}])
    wait_until(lambda: queue.places(late[0]) == [], 60)
    chain.committed()


def test_an_abort_of_the_head_discards_all(queue):
    chain = Chain(queue)
    queue.ok("abort_txn", {"txn": chain.head})
    chain.aborted()


def test_a_chain_whose_time_is_over_is_aborted_as_a_whole(queue):
    head = opened(queue, ttl=1.0)
    other = opened(queue, of=head, ttl=1.0)
    ids = prepare(queue, other, 2)
    queue.ok("commit_txn", {"txn": other, "ids": ids})
    wait_until(lambda: standing(queue, head) == "aborted", 60)
    wait_until(lambda: standing(queue, other) == "aborted", 60)
    assert queue.ask("num_messages")["prep"] == 0
    queue.prove()


def test_what_cannot_be_in_a_chain_is_refused(queue):
    chain = Chain(queue)
    alone, filled = opened(queue), opened(queue, of=chain.head)
    word = chain.others[0]
    assert "open it with `of`" in refused(
        queue, "commit_txn", **{**chain.asked, "chain": [alone]}
    )
    assert "is not ready" in refused(
        queue, "commit_txn", **{**chain.asked, "chain": [*chain.others, filled]}
    )
    for asked, text in (
        ({"of": "nothing"}, "no transaction nothing"),
        ({"of": word}, f"is of {chain.head}"),
        ({"of": chain.head, "key": "x"}, "has no key"),
        ({"of": 7}, "no transaction 7"),
    ):
        assert text in refused(queue, "open_txn", **asked)
    assert "is ready: nothing can be added" in refused(
        queue, "prepare_txn", txn=word, messages=[{}]
    )
    assert "is ready, with other messages" in refused(
        queue, "commit_txn", txn=word, ids=chain.ids[0]
    )
    assert "not a list" in refused(queue, "commit_txn", **{**chain.asked, "chain": "x"})
    assert "it has no chain" in refused(
        queue, "commit_txn", txn=filled, ids=[], chain=[word]
    )
    chain.commit()
    chain.committed()


# ---- kill -9

NONE = ["journal:before-write#1"]
ALL = [
    "journal:written#1",
    "journal:after-sync#1",
    "journal:before-write#2",
    "journal:written#2",
    "journal:after-sync#2",
    "journal:before-write#3",
    "journal:after-sync#3",
]


@pytest.mark.parametrize("point", [*rotated(NONE), *rotated(ALL, 2)])
def test_a_commit_of_a_chain_that_is_killed_is_whole_or_has_not_been(queue, point):
    chain = Chain(queue)
    queue.crash(point, lambda: queue.ask("commit_txn", chain.asked))
    queue.start(TEST_MOST="3")
    if point in NONE:
        assert standing(queue, chain.head) == "open"
        assert {standing(queue, txn) for txn in chain.others} == {"ready"}
        assert queue.ask("num_messages")["que"] == 0
    else:
        assert standing(queue, chain.head) == "committed"
        assert queue.ask("num_messages")["que"] == 7
    chain.commit()
    queue.restart()
    chain.committed()


@pytest.mark.parametrize("point", ["journal:written", "journal:after-sync"])
def test_an_abort_of_a_chain_that_is_killed_is_finished(queue, point):
    chain = Chain(queue)
    queue.crash(point, lambda: queue.ask("abort_txn", {"txn": chain.head}))
    queue.start(TEST_MOST="3")
    chain.aborted()


@pytest.mark.parametrize("point", ["txn:manifest-written", "journal:written"])
def test_what_was_chosen_and_not_answered_may_be_said_again(queue, point):
    head = opened(queue)
    other = opened(queue, of=head)
    ids = prepare(queue, other, 2)
    asked = {"txn": other, "ids": ids}
    assert queue.crash(point, lambda: queue.ask("commit_txn", asked)) is None
    queue.start()
    assert queue.ok("commit_txn", asked)["state"] == "ready"
    queue.ok("commit_txn", {"txn": head, "ids": [], "chain": [other]})
    queue.promised += ids
    assert queue.ask("num_messages")["que"] == 2
    queue.prove()


def test_a_chain_that_is_ready_outlives_checkpoints_and_stops(site):
    small = {"TEST_MOST": "3", "TEST_CHECKPOINT_SECONDS": "0.2"}
    queue = site.queue(num_workers=2).start(**small)
    queue.pause()
    chain = Chain(queue)
    before = queue.ok("detail")["checkpoint_seq"]
    wait_until(lambda: queue.ok("detail")["checkpoint_seq"] > before, 60)
    queue.restart()
    assert {standing(queue, txn) for txn in chain.others} == {"ready"}
    chain.commit()
    chain.committed()


# ---- what comes between


def test_one_that_is_committed_with_its_head_cannot_be_aborted(queue):
    """The decision is answered though the other cannot follow yet, and stands."""
    chain = Chain(queue)
    late = chain.others[1]
    manifest = queue.dir.journal / f"txn-{late}"
    away = manifest.with_name("away")
    manifest.rename(away)
    chain.commit()
    assert standing(queue, late) == "ready"
    assert refused(queue, "abort_txn", txn=late).endswith("is committed already")
    again = {"txn": late, "ids": chain.ids[1][:2]}
    assert queue.ok("commit_txn", again)["state"] == "ready"
    away.rename(manifest)
    wait_until(lambda: standing(queue, late) == "committed", 60)
    chain.committed()


def test_what_is_chosen_takes_no_attachments_any_more(queue, tmp_path):
    chain = Chain(queue)
    file = tmp_path / "file"
    file.write_text("x")
    chosen = chain.ids[0][0]
    asked = {"msg_id": chosen, "pathname": str(file), "name": "f"}
    assert "nothing can be attached" in refused(queue, "attach_message", **asked)
    chain.commit()
    chain.committed()


def test_an_abort_that_a_crash_forgets_leaves_all_that_was_chosen(queue):
    chain = Chain(queue)
    abort = {"txn": chain.head}
    assert (
        queue.crash("journal:before-write", lambda: queue.ask("abort_txn", abort))
        is None
    )
    queue.start(TEST_MOST="3")
    assert {standing(queue, txn) for txn in chain.others} == {"ready"}
    chain.commit()
    chain.committed()


@pytest.mark.parametrize("killed", [False, True])
def test_a_message_removed_by_hand_does_not_keep_the_others(queue, killed):
    """Removed where it was prepared, while the queue was stopped."""
    chain = Chain(queue)
    assert queue.stop() == 0
    lost = chain.ids[1][0]
    shutil.rmtree(queue.dir.path / "prep" / lost)
    queue.start(TEST_TICK="0.2", TEST_MOST="3")
    if killed:
        queue.crash("journal:written#1", lambda: queue.ask("commit_txn", chain.asked))
        queue.start(TEST_TICK="0.2", TEST_MOST="3")
    chain.commit()
    chain.chosen.remove(lost)
    wait_until(lambda: queue.ask("num_messages")["que"] == 6, 60)
    queue.promised += chain.chosen
    queue.restart()
    queue.resume()
    for msg_id in chain.chosen:
        queue.until(msg_id, "done", 60)
