"""Nothing grows old within an hour of a jump of the clock."""

from rq.queues.housekeeping import AWAY, ClockTrust

NOW, HOUR = 1_800_000_000.0, 3600.0


def test_a_run_that_follows_soon_believes_at_once():
    trust = ClockTrust(NOW, NOW + AWAY, 5.0, HOUR)
    assert trust.holds(NOW + AWAY, 5.0)
    assert trust.seen == NOW + AWAY


def test_a_start_far_ahead_of_the_last_run_is_believed_after_an_hour():
    trust = ClockTrust(NOW, NOW + 40 * AWAY, 5.0, HOUR)
    assert not trust.holds(NOW + 40 * AWAY, 5.0 + HOUR - 1)
    assert trust.seen == NOW  # so the next start does not believe it either
    assert trust.holds(NOW + 40 * AWAY + HOUR, 5.0 + HOUR)


def test_a_start_behind_the_last_run_makes_nothing_older():
    trust = ClockTrust(NOW, NOW - 400 * AWAY, 5.0, HOUR)
    assert trust.holds(NOW - 400 * AWAY, 5.0)
    assert trust.seen == NOW - 400 * AWAY


def test_a_jump_while_it_runs_is_believed_after_an_hour():
    trust = ClockTrust(NOW, NOW, 5.0, HOUR)
    trust.jumped(6.0)
    assert not trust.holds(NOW + 40 * AWAY, 6.0 + HOUR - 1)
    assert trust.seen == NOW
    assert trust.holds(NOW + 40 * AWAY, 6.0 + HOUR)
