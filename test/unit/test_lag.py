"""Folders that do not agree with the journal yet: which are made when, and what they weigh."""

import random

import pytest

from rq.spool import lag
from rq.spool.entry import Counts, Entry
from rq.spool.lag import Lag
from rq.words.states import State


class Folders:
    """What makes folders: those that a test has not broken."""

    def __init__(self):
        self.broken = {}
        self.settled = []

    def settle(self, msg_id, entry, spare):
        if msg_id in self.broken:
            raise self.broken[msg_id]
        self.settled.append((msg_id, spare))
        return entry.state not in (State.DONE, State.ERR)


class Nothing:
    """No folder that nobody wants any more."""

    def __bool__(self):
        return False

    def try_again(self):
        pass


@pytest.fixture
def folders():
    return Folders()


@pytest.fixture
def lagging(folders):
    return Lag({}, Counts(), folders, Nothing())


def _entry(state=State.PREP, size=10, since=0.0):
    entry = Entry(state, None, 0.0, 1, 0, 0, since)
    entry.body = b"x" * size
    return entry


def _add(lagging, *ids, **facts):
    for msg_id in ids:
        entry = lagging._entries[msg_id] = _entry(**facts)
        lagging.add(msg_id, entry)


def test_what_is_put_off_neither_counts_nor_weighs_until_it_is_wanted(lagging, folders):
    _add(lagging, "a", "b", "c")
    lagging.put_off("b")
    lagging.put_off("b")
    assert (lagging.number, lagging.size) == (2, 20)
    assert not lagging.settle_some(60.0)
    assert [each for each, _ in folders.settled] == ["a", "c"]
    assert (lagging.number, lagging.size, len(lagging.unsettled)) == (0, 0, 1)
    lagging.settle("b")
    assert [each for each, _ in folders.settled] == ["a", "c", "b"]
    assert (lagging.number, lagging.size, lagging.unsettled) == (0, 0, {})


def test_a_message_that_is_decided_is_put_off_no_longer(lagging, folders):
    _add(lagging, "a", "b", "c")
    for msg_id in "abc":
        lagging.put_off(msg_id)
    lagging.add("b", lagging.unsettled["b"])
    assert (lagging.number, lagging.size) == (1, 10)
    lagging.add_all(["c", "d"], [lagging.unsettled["c"], _entry(size=5)])
    assert (lagging.number, lagging.size) == (3, 25)
    lagging.settle_some(60.0)
    assert [each for each, _ in folders.settled] == ["b", "c", "d"]


def test_a_checkpoint_waits_for_all_that_lag_and_for_nothing_later(lagging):
    _add(lagging, "a", "b")
    lagging.put_off("b")
    lagging.begin_barrier()
    _add(lagging, "c")
    assert (lagging.barrier, lagging.number) == ({"a", "b"}, 3)
    lagging.settle("a")
    assert lagging.barrier == {"b"}
    lagging.settle_all()
    assert lagging.barrier == set()


@pytest.mark.parametrize(("most", "size"), [(2, 1000), (1000, 20)])
def test_when_memory_is_short_those_that_were_put_off_first_are_made(
    lagging, folders, monkeypatch, most, size
):
    monkeypatch.setattr(lag, "MOST_PUT_OFF", most)
    monkeypatch.setattr(lag, "PUT_OFF_BYTES", size)
    monkeypatch.setattr(lag, "LOOKS", 1)
    _add(lagging, "a", "b", "c")
    for msg_id, number in (("a", 2), ("b", 1), ("c", 1)):
        lagging.put_off(msg_id)
        assert lagging.number == number
    lagging.settle_some(60.0)
    assert [each for each, _ in folders.settled] == ["a"]


def test_a_folder_that_cannot_be_made_rests_and_the_others_are_made(lagging, folders):
    folders.broken = {"a": OSError(28, "No space left on device")}
    _add(lagging, "a", "b", since=5.0)
    assert lagging.since() == 5.0
    assert not lagging.settle_some(60.0), "none is left that can be settled at once"
    assert [each for each, _ in folders.settled] == ["b"]
    assert lagging.stuck == "No space left on device (folder of a)"
    assert lagging.why_stuck("a") == "No space left on device"
    assert lagging.why_stuck("b") is None
    assert lagging.since() is None, "it pauses"
    assert (lagging.number, lagging.size) == (1, 10)
    with pytest.raises(OSError, match="No space"):
        lagging.settle_all()
    folders.broken = {}
    lagging.settle_all()
    assert (lagging.stuck, lagging.unsettled) == (None, {})


def test_it_is_told_how_many_are_stuck_and_what_fails_within_holds_up_nobody(
    lagging, folders, caplog
):
    folders.broken = {"a": OSError(13, "Permission denied"), "b": KeyError("x")}
    _add(lagging, "a", "b", "c")
    lagging.settle_some(60.0)
    assert [each for each, _ in folders.settled] == ["c"]
    assert lagging.stuck == "Permission denied (folder of a), and 1 more"
    assert lagging.why_stuck("b") == "RQ failed over it: KeyError('x')"
    assert "RQ failed over the folder of b" in caplog.text


def test_a_folder_in_which_threads_work_is_left_alone(lagging, folders):
    _add(lagging, "a", "b")
    lagging.unsettled["a"].busy = 1
    assert not lagging.settle_some(60.0)
    assert [each for each, _ in folders.settled] == ["b"]
    assert lagging.rests == 1
    lagging.unsettled["a"].busy = 0
    lagging.settle_some(60.0)
    assert (lagging.rests, lagging.number) == (0, 0)


def test_a_message_that_has_ended_is_forgotten_and_one_that_waits_is_not(lagging):
    _add(lagging, "waits", state=State.QUE)
    _add(lagging, "ended", state=State.DONE)
    lagging._counts.moved(State.GONE, State.DONE)
    lagging.settle_all()
    assert list(lagging._entries) == ["waits"]
    assert lagging._counts.of(State.DONE) == 0, "its folder was lost"


def test_what_is_kept_spare_of_a_message_goes_to_its_folder_once(lagging, folders):
    _add(lagging, "a")
    lagging.keep_spare("a", "the message")
    lagging.settle("a")
    lagging.settle("a")
    _add(lagging, "a")
    lagging.settle("a")
    assert folders.settled == [("a", "the message"), ("a", None)]


def test_what_lags_weighs_what_is_to_be_written_however_it_comes_and_goes(lagging):
    dice = random.Random(5)
    numbers = iter(range(10_000))
    for _ in range(3000):
        known = sorted(lagging.unsettled)
        match dice.randrange(4):
            case 0 | 1:
                _add(lagging, f"m{next(numbers)}", size=dice.randrange(100))
            case 2 if known:
                lagging.put_off(dice.choice(known))
            case 3 if known:
                lagging.settle(dice.choice(known))
        counted = [
            len(entry.body)
            for msg_id, entry in lagging.unsettled.items()
            if msg_id not in lagging._put_off
        ]
        assert (lagging.number, lagging.size) == (len(counted), sum(counted))
