"""Every call that a queue makes for transactions fails once: all or none is there.

    RQ_FAULTS_EVERY=1 ./test/run_tests.sh faults -k every_call_txn

takes every call; else a sample.
"""

from __future__ import annotations

import errno

import pytest
from harness.failing_calls import Story, each_may_fail, many_may_fail, sampled
from harness.waiting import wait_until

pytestmark = pytest.mark.process

LATER = 4e9
SAMPLE = sampled(10)


class Mark:
    """The transactions of a life, and what clients were told of them."""

    def __init__(self, life):
        self.life = life
        self.queue = life.queue

    def opened(self, key):
        answer = self.life.ask("open_txn", key=key)
        return answer["txn"] if answer else None

    def prepared(self, txn, number, **fields):
        wanted = [{"max_count": 9, **fields} for _ in range(number)]
        return self.life.ask("prepare_txn", txn=txn, messages=wanted) or []

    def attached(self, ids):
        """Attach a letter to each; return those that have one now."""
        letter = str(self.queue.site.root.path / "letter")
        asked = [{"msg_id": one, "pathname": letter} for one in ids]
        return [
            one["msg_id"] for one in asked if self.life.ask("attach_message", **one)
        ]

    def committed(self, txn, ids, others):
        """Commit some. Asked again until it is known: they are there, the others not."""
        if self.life.ask("commit_txn", txn=txn, ids=ids):
            self.life.promised += ids
        self.life.later.append(lambda: self._known(txn, ids, others))

    def _known(self, txn, ids, others):
        before = [bool(self.queue.places(one)) for one in ids]
        standing = self.queue.ok("show_txn", {"txn": txn})["state"]
        assert standing == "committed" or not set(ids) & set(self.life.promised)
        if standing == "open":
            in_prep = [self.queue.places(one) == ["prep"] for one in ids]
            assert all(in_prep), (before, in_prep)
        assert self.queue.ok("commit_txn", {"txn": txn, "ids": ids})["messages"] == len(
            ids
        )
        self.life.promised += [one for one in ids if one not in self.life.promised]
        self.none_left(others)

    def handed_in(self, txn):
        """Hand in two rows; return the name of their file, if there was an answer."""
        rows = [{"max_count": 9}] * 2
        answer = self.life.ask("add_rows", txn=txn, messages=rows)
        return [answer["rows"]] if answer else []

    def rows_committed(self, txn, files, number):
        """Commit rows. Asked again until it is known: each is a message once."""
        asked = {"txn": txn, "ids": [], "rows": files}
        self.life.ask("commit_txn", **asked)

        def known():
            told = self.queue.ok("commit_txn", asked)
            assert told["messages"] == number
            wait_until(lambda: self.queue.ok("detail")["rows"] == 0, 30)
            made = [one["row"] for one in self.queue.events() if "row" in one]
            assert len(made) == number
            assert len({tuple(one) for one in made}) == number
            rows = self.queue.dir.journal.glob("*rows-*")
            wait_until(lambda: not list(rows), 30)

        self.life.later.append(known)

    def aborted(self, txn, ids):
        self.life.ask("abort_txn", txn=txn)

        def known():
            assert self.queue.ok("abort_txn", {"txn": txn})["state"] == "aborted"
            self.none_left(ids)

        self.life.later.append(known)

    def none_left(self, ids):
        wait_until(lambda: all(self.queue.places(one) == [] for one in ids), 30)


def live(life):
    told = Mark(life)
    if txn := told.opened("first"):
        run_now = told.prepared(txn, 4)
        wait_long = told.prepared(txn, 1, due=LATER)
        whole = told.attached(run_now[:2])
        ids = [*whole, *run_now[2:3], *wait_long]
        told.committed(txn, ids, [one for one in run_now if one not in ids])
        life.later.append(lambda: still_due(life, wait_long))
    if txn := told.opened("second"):
        told.aborted(txn, told.prepared(txn, 3))
    if txn := told.opened("third"):
        told.committed(txn, told.prepared(txn, 2), [])
    if txn := told.opened("rows"):
        files = [*told.handed_in(txn), *told.handed_in(txn)]
        told.rows_committed(txn, files, 2 * len(files))
    life.submit()
    life.rest()


def still_due(life, ids):
    for one in ids:
        assert life.queue.show(one)["due"] == LATER
        assert life.queue.state(one) == "que"


# Of more than two messages the ids go into a file of their own.
STORY = Story(live, env={"TEST_INLINE": "2", "TEST_TICK": "0.2"})


def test_each_call_may_fail_once_and_a_transaction_is_whole(library, calls, tmp_path):
    wrong = each_may_fail(STORY, calls, tmp_path, library, SAMPLE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_many_calls_in_a_row_may_fail(library, calls, tmp_path, code):
    many_may_fail(STORY, calls, tmp_path / "root", library, code)
