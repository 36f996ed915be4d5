"""The counters of the hour go on after a restart, as far as they are of this hour."""

import json

import pytest

from rq.queues.owner.rates import KEPT, STEP, Rates

NOW, WALL = 5_000_000.0, 1_800_000_000.0


def counted():
    made = Rates()
    made.count("done", NOW - 2 * STEP, 4)
    made.count("err", NOW, 3)
    return made


def restored(away=0.0, mono=7.0, **changes):
    """Return the counters of a process that starts so many seconds later; its
    monotonic clock begins anew, as after a start of the machine."""
    saved = json.loads(json.dumps(counted().saved(NOW, WALL, 3)))
    made = Rates()
    made.restored({**saved, **changes}, mono, WALL + away)
    return made.to_json(mono, 1)


def test_they_go_on_where_they_were():
    shown = restored()
    assert (shown["done"][-3:], shown["err"][-1]) == ([1, 0, 0], 1)
    assert shown["depth"][-1] == 1
    assert all(len(shown[one]) == KEPT for one in ("done", "err", "depth", "accepted"))


def test_what_is_leased_is_kept_as_what_waits_is():
    made = Rates()
    made.count("accepted", NOW - 2 * STEP, 4, 2)
    shown = made.to_json(NOW, 1, 5)
    assert (shown["depth"][-3:], shown["leased"][-3:]) == ([4, 4, 1], [2, 2, 5])


def test_an_hour_is_taken_up_that_an_older_rq_has_saved():
    saved = dict(counted().saved(NOW, WALL, 3))
    del saved["leased"]
    made = Rates()
    made.restored(saved, NOW, WALL)
    assert made.to_json(NOW, 3)["done"][-3:] == [1, 0, 0]


def test_what_was_missed_is_empty():
    shown = restored(away=10 * STEP)
    assert shown["done"][-13:] == [1, 0, 0, *[0] * 10]
    assert shown["err"][-11] == 1


@pytest.mark.parametrize("away", [KEPT * STEP, 1e9])
def test_what_is_no_longer_of_this_hour_is_forgotten(away):
    shown = restored(away=away)
    assert sum(shown["done"]) == sum(shown["err"]) == 0


def test_a_clock_that_was_put_back_keeps_the_past_in_the_past():
    shown = restored(away=-1e6)
    assert (shown["done"][-3:], shown["err"][-1]) == ([1, 0, 0], 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"at": None},
        {"step": 1},
        {"done": [1, 2]},
        {"err": "x" * KEPT},
        {"depth": [-1] * KEPT},
        {"accepted": [{}] * KEPT},
        {"at": 1e300},
    ],
)
def test_rubbish_is_not_taken_up(changes):
    shown = restored(**changes)
    assert sum(shown["done"]) == 0


def test_what_does_not_change_need_not_be_saved():
    assert not Rates().changed
    made = counted()
    assert made.changed
    made.saved(NOW, WALL, 3)
    assert not made.changed
    made.to_json(NOW + STEP, 2)
    assert not made.changed
