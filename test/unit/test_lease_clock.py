"""When leases are over: by a clock that leaves out the time in which nobody was heard."""

import tracemalloc

import pytest
from harness.spool import Clock

from rq.errors import BadInput
from rq.queues.attempts.lease import CONFIRM, Lease, digest, new_token, parse_token
from rq.queues.attempts.leases import AGAIN, Leases
from rq.spool import Held

MSG = "20270115.0800.00.000.1800000000000"


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def leases(clock):
    return Leases(clock)


def lease(leases, name="a", seconds=60.0, started=True, by="b"):
    now = leases.now()
    one = Lease(
        msg_id=name,
        held=Held(
            attempt=1,
            token=name,
            by=by,
            seconds=seconds,
            since=0.0,
            renewed=0.0,
            started=started,
        ),
        seconds=seconds,
        until=now + seconds,
        heard=now,
        wait_us=0,
        message=None,
        noted=now,
    )
    leases.add(one)
    return one


def test_what_cannot_end_for_now_keeps_no_other_from_its_end(leases, clock):
    stuck, other = lease(leases, "a"), lease(leases, "b", seconds=61)
    clock.now += 61
    assert leases.over(1) == [stuck]
    assert leases.over(1) == [other]
    assert leases.over(1) == []
    clock.now += AGAIN
    assert leases.over(9) == [stuck, other]


def test_a_lease_is_over_when_its_seconds_have_passed(leases, clock):
    one = lease(leases)
    clock.now += 59.9
    assert leases.over(9) == []
    clock.now += 0.1
    assert leases.over(9) == [one]
    clock.now += AGAIN
    assert leases.over(9) == [one]  # until it is forgotten
    leases.forget(one)
    assert leases.over(9) == []
    assert len(leases) == 0


def test_a_renewal_counts_from_when_it_comes(leases, clock):
    one = lease(leases)
    clock.now += 50
    leases.hear(one, 60.0)
    clock.now += 59
    assert leases.over(9) == []
    clock.now += 1
    assert leases.over(9) == [one]


def test_a_renewal_can_make_a_lease_shorter(leases, clock):
    one = lease(leases, seconds=3600.0)
    leases.hear(one, 5.0)
    clock.now += 5
    assert leases.over(9) == [one]


def test_what_nobody_confirms_is_over_sooner(leases, clock):
    one, two = lease(leases, started=False), lease(leases, "b", started=False)
    leases.hear(two)
    clock.now += CONFIRM
    assert leases.over(9) == [one]
    leases.forget(one)
    clock.now += 60 - CONFIRM
    assert leases.over(9) == [two]


def test_time_that_is_left_out_ends_no_lease(leases, clock):
    one = lease(leases)
    clock.now += 500
    leases.leave_out(500)
    clock.now += 59
    assert leases.over(9) == []
    clock.now += 1
    assert leases.over(9) == [one]


def test_the_oldest_are_over_first_and_never_more_than_are_asked_for(leases, clock):
    many = [lease(leases, f"{number:03}", 10.0 + number) for number in range(100)]
    clock.now += 1000
    assert leases.over(30) == many[:30]
    for one in many[:30]:
        leases.forget(one)
    assert leases.over(100) == many[30:]


def test_a_hundred_thousand_renewals_cost_no_second_place_in_the_order(leases, clock):
    one = lease(leases)
    for _ in range(1000):
        clock.now += 1
        leases.hear(one, 60.0)
        leases.over(9)
    assert len(leases._order) == 1


def test_it_is_known_who_holds_how_many(leases):
    one = lease(leases, by="x")
    lease(leases, "b", by="x")
    assert leases.number_of("x") == 2
    leases.forget(one)
    assert (leases.number_of("x"), leases.number_of("y")) == (1, 0)


# ---- tokens


def test_a_token_names_its_attempt_and_nobody_can_guess_it():
    token = new_token(MSG, 3)
    assert parse_token(token) == (MSG, 3)
    assert token != new_token(MSG, 3)
    assert len(digest(token)) == 32
    assert digest(token) not in token


@pytest.mark.parametrize(
    "token",
    [
        None,
        5,
        "",
        MSG,
        f"{MSG}~1~abc",
        f"{MSG}~0~{'a' * 32}",
        f"{MSG}~1~{'A' * 32}",
        f"{MSG}~1~{'a' * 32}\n",
        f"../../etc~1~{'a' * 32}",
        f"1.2~1~{'a' * 32}",
        f"{MSG}~99999999999999~{'a' * 32}",
    ],
)
def test_what_is_no_token_is_refused(token):
    with pytest.raises(BadInput, match="token"):
        parse_token(token)


def test_leases_that_have_ended_cost_no_memory_for_as_long_as_they_were_granted(
    leases, clock
):
    """A day is granted, the work takes a minute."""
    tracemalloc.start()
    try:
        for number in range(20_000):
            lease(leases, f"message {number}", seconds=86_400.0)
            clock.now += 15
            leases.over(9)
            if number >= 4:
                leases.forget(leases.of(f"message {number - 4}"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000, f"{len(leases)} leases take {held} bytes"


def test_a_long_lease_is_over_when_all_its_seconds_have_passed(leases, clock):
    one = lease(leases, seconds=86_400.0)
    for _ in range(863):
        clock.now += 100
        assert leases.over(9) == []
    clock.now += 99
    assert leases.over(9) == []
    clock.now += 1
    assert leases.over(9) == [one]


def test_who_confirms_a_lease_is_written_down_once_while_it_is_out(leases):
    one, two = lease(leases, started=False), lease(leases, "b", started=False)
    for each in (one, two, one):
        leases.hear(each)
    leases.forget(two)
    assert leases.begun() == [one.held]
    leases.hear(one)
    assert leases.begun() == []
