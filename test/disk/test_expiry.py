"""What has outlived its limits, and its removal by one line."""

import os

import pytest
from harness.spool import NOW, Clock, Owner

from rq.layout import folder
from rq.spool import check, folders
from rq.spool.disk_usage import DiskUsage, weigh
from rq.spool.expiry import Limits, Owned, Search
from rq.words.states import Event, Role, State

DAY = 86400.0


class Yard(Owner):
    """A queue with messages that have ended, each a day after the one before."""

    def __init__(self, path):
        super().__init__(path, Clock(NOW))
        self.open()

    def end_some(self, number, event=Event.FINISH, apart=DAY):
        ids = []
        for _ in range(number):
            msg_id = self.submit()
            self.spool.claim(msg_id, 0)
            self.end(msg_id, event)
            self.apply()
            state = State.ERR if event is Event.FAIL else State.DONE
            status = self.queue.message(state, msg_id) / "status"
            os.utime(status, (self.clock.now, self.clock.now))
            ids.append(msg_id)
            self.clock.now += apart
        return ids

    def select(self, state=State.DONE, **limits):
        return self.search(state).batch(Limits(**limits), self.owned(state))

    def search(self, state=State.DONE):
        return Search(DiskUsage(self.queue), state)

    def owned(self, state=State.DONE, **more):
        return Owned(total=self.spool.counts.of(state), **more)

    def names(self, state=State.DONE):
        return folders.list_state(self.queue, state)


@pytest.fixture
def yard(tmp_path):
    yard = Yard(tmp_path)
    yield yard
    if yard.is_open:
        yard.stop()
    assert check.check(yard.queue) == []


def test_what_ended_before_a_moment_is_old(yard):
    ids = yard.end_some(4)
    assert yard.select(before=NOW + 1.5 * DAY).ids == ids[:2]
    assert yard.select(before=NOW).ids == []


def test_age_is_counted_from_the_end_not_from_the_beginning(yard):
    [early] = yard.end_some(1)
    late = NOW + 9 * DAY
    os.utime(yard.queue.message(State.DONE, early) / "status", (late, late))
    assert yard.select(before=NOW + 5 * DAY).ids == []


def test_the_newest_are_kept_by_number(yard):
    ids = yard.end_some(5)
    assert yard.select(keep=2).ids == ids[:3]
    assert yard.select(keep=5).ids == []


def test_the_newest_are_kept_by_their_bytes(yard):
    ids = yard.end_some(4)
    one = weigh(yard.queue, folder(State.DONE, ids[0]))
    assert yard.select(size=2 * one + one // 2).ids == ids[:2]
    assert yard.select(size=100 * one).ids == []
    assert yard.select(size=0).ids == ids


def test_neither_holes_nor_links_nor_depth_make_other_messages_go(yard, tmp_path):
    """A script may make a folder look as heavy, or as deep, as it likes."""
    [msg_id] = yard.end_some(1)
    place = yard.queue.message(State.DONE, msg_id)
    before = weigh(yard.queue, folder(State.DONE, msg_id))
    with (place / "sparse").open("wb") as file:
        file.truncate(10**12)
    (tmp_path / "big").write_bytes(bytes(100_000))
    (place / "link").symlink_to(tmp_path)
    os.mkfifo(place / "fifo")
    at = place
    for _ in range(200):
        at = at / "d"
        at.mkdir()
    after = weigh(yard.queue, folder(State.DONE, msg_id))
    assert after < before + 100_000


def test_any_limit_is_enough_to_go(yard):
    ids = yard.end_some(5)
    assert yard.select(before=NOW + 0.5 * DAY, keep=3).ids == ids[:2]


def test_a_batch_ends_and_says_that_there_is_more(yard):
    ids = yard.end_some(5)
    limits, search = Limits(before=NOW + 9 * DAY), yard.search()
    found = search.batch(limits, yard.owned(), most=3)
    assert (found.ids, found.more) == (ids[:3], True)
    rest = search.batch(limits, yard.owned(), most=3)
    assert (rest.ids, rest.more) == (ids[3:], False)


def test_those_that_still_owe_something_are_left_out(yard):
    ids = yard.end_some(3)
    limits = Limits(before=NOW + 9 * DAY)
    found = yard.search().batch(limits, yard.owned(held={ids[1]}))
    assert found.ids == [ids[0], ids[2]]


def test_who_stays_though_too_many_are_there_makes_no_younger_one_go(yard):
    ids = yard.end_some(6)
    search = yard.search()
    limits, owing = Limits(keep=3), {ids[0]}
    found = search.batch(limits, yard.owned(held=owing), most=1)
    assert (found.ids, found.more) == ([ids[1]], True)
    yard.spool.expire(State.DONE, found.ids)
    found = search.batch(limits, yard.owned(held=owing), most=1)
    assert (found.ids, found.more) == ([ids[2]], False)


@pytest.mark.parametrize("there", [True, False])
def test_those_on_their_way_out_take_nobody_with_them(yard, there):
    """They may be gone before the walk comes by, or not."""
    ids = yard.end_some(5)
    yard.spool.expire(State.DONE, ids[:2])
    if not there:
        yard.apply()
    owned = yard.owned(going=frozenset(ids[:2]))
    assert yard.search().batch(Limits(keep=3), owned).ids == []
    assert yard.search().batch(Limits(keep=2), owned).ids == [ids[2]]


def test_one_line_removes_many_and_their_directories_follow(yard):
    ids = yard.end_some(5)
    seq = yard.spool.journal.seq
    assert yard.spool.expire(State.DONE, ids[:4]) == ids[:4]
    assert yard.spool.journal.seq == seq + 1
    yard.apply()
    assert yard.names() == ids[4:]
    assert yard.spool.counts.of(State.DONE) == 1
    empty = yard.select(before=NOW + 9 * DAY).empty
    yard.spool.remove_empty(empty)
    # The clock of the test is ahead: by the real one none of these is old.
    assert empty == []


def test_directories_that_hold_nothing_are_found_the_inner_first(yard):
    for path in ("20200102/03/04", "20200102/03/05", "20200103/00/00"):
        (yard.queue.path / "done" / path).mkdir(parents=True)
    yard.end_some(1)
    found = yard.select(before=NOW + DAY)
    yard.spool.remove_empty(found.empty)
    assert len(os.listdir(yard.queue.path / "done")) == 1
    assert len(found.ids) == 1


def test_what_has_moved_on_since_it_was_listed_stays(yard):
    ids = yard.end_some(2, Event.FAIL)
    for msg_id in ids:
        yard.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
    yard.apply()
    again = yard.spool.read(ids[0])
    facts = {"cause": "operator", "text": "", "outcome": "requeue"}
    yard.spool.fire(
        ids[0], Event.REQUEUE, Role.CREATOR, message=again, facts=facts, spare=again
    )
    assert yard.spool.expire(State.DISMISSED, [*ids, ids[1] + "9"]) == [ids[1]]
    yard.apply()
    assert yard.spool.find(ids[0]) is State.QUE


def test_what_has_ended_since_it_was_listed_keeps_files_that_another_queue_gets(yard):
    """With no limit but a number, or when asked for, what ends just now is listed, too."""
    [before] = yard.end_some(1)
    msg_id = yard.submit()
    yard.spool.claim(msg_id, 0)
    copy = {"dest": "b", "message": {"dest": "b"}, "files": True}
    yard.end(msg_id, out=[copy])
    yard.apply()
    assert yard.spool.expire(State.DONE, [before, msg_id]) == [before]
    [of] = yard.spool.owed
    yard.spool.sent(*of)
    assert yard.spool.expire(State.DONE, [msg_id]) == [msg_id]


def test_an_error_that_nobody_has_seen_is_never_removed_by_age(yard):
    ids = yard.end_some(1, Event.FAIL)
    with pytest.raises(Exception, match="a message in err cannot expire"):
        yard.spool.expire(State.ERR, ids)


@pytest.mark.parametrize("applied", [0, 2, 5])
def test_after_a_crash_what_was_expired_does_not_come_back(yard, applied):
    ids = yard.end_some(5)
    yard.checkpoint()
    yard.spool.expire(State.DONE, ids[:4])
    yard.spool.commit()
    for msg_id in ids[:applied]:
        yard.spool.settle(msg_id)
    yard.again()
    yard.apply()
    assert yard.names() == ids[4:]
    assert yard.spool.counts.of(State.DONE) == 1
