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


def test_each_event_counts_in_its_step_and_what_waits_is_as_it_was_last():
    made = Rates()
    for what, at, depth, leased in (
        ("accepted", NOW, 1, 0),
        ("accepted", NOW, 2, 1),
        ("done", NOW + STEP, 1, 1),
        ("done", NOW + STEP, 0, 2),
        ("done", NOW + STEP, 0, 0),
        ("err", NOW + 3 * STEP, 0, 3),
    ):
        made.count(what, at, depth, leased)
    shown = made.to_json(NOW + 4 * STEP, 7)
    assert shown["step"] == STEP
    assert shown["accepted"] == [*[0] * (KEPT - 5), 2, 0, 0, 0, 0]
    assert shown["done"] == [*[0] * (KEPT - 5), 0, 3, 0, 0, 0]
    assert shown["err"] == [*[0] * (KEPT - 5), 0, 0, 0, 1, 0]
    assert shown["depth"] == [*[0] * (KEPT - 5), 2, 0, 0, 0, 7]
    assert shown["leased"] == [*[0] * (KEPT - 5), 1, 0, 0, 3, 0]


def test_an_hour_later_nothing_of_it_is_left_and_a_clock_put_back_counts_on():
    made = counted()
    made.count("done", NOW - 5 * STEP, 3)
    assert made.to_json(NOW, 3)["done"][-3:] == [1, 0, 1]
    shown = made.to_json(NOW + (KEPT - 1) * STEP, 3)
    assert (shown["err"][0], sum(shown["done"])) == (1, 1)
    shown = made.to_json(NOW + KEPT * STEP, 3)
    assert sum(shown["done"]) == sum(shown["err"]) == 0
    assert len(shown["done"]) == KEPT


def test_an_hour_that_was_saved_a_step_before_it_is_over_is_taken_up():
    shown = restored(away=(KEPT - 1) * STEP)
    assert (shown["err"][0], sum(shown["done"])) == (1, 0)


def test_a_zero_is_a_number_that_was_counted():
    made = Rates()
    made.restored(Rates().saved(NOW, WALL, 0), NOW, WALL)
    made.count("done", NOW, 0)
    assert made.to_json(NOW, 0)["done"][-1] == 1
