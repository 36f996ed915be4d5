"""A bucket of tokens: never more starts than the rate allows, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from rq.queues.schedule.rate import Bucket, Rate, rate, rebuilt

TEN_A_SECOND = Rate(0.1, 3)


def starts(bucket, now, seconds, step=0.01):
    """Start whatever may; return when each did."""
    at = []
    for number in range(round(seconds / step)):
        moment = now + number * step
        while bucket.next(moment) <= moment:
            bucket.take(moment)
            at.append(moment)
    return at


def test_a_setting_tells_the_seconds_of_a_token():
    setting = {"number": 30, "per": "minute", "burst": 5}
    assert rate(setting) == Rate(2.0, 5)
    assert rate({}) is None


def test_a_full_bucket_gives_its_burst_and_then_one_at_a_time():
    bucket = Bucket(TEN_A_SECOND)
    at = starts(bucket, 1e9, 1.0)
    assert len(at) == 3 + 9
    assert at[:3] == [1e9] * 3
    assert abs(bucket.next(at[-1]) - (1e9 + 1.0)) < 0.02


def test_the_moment_of_the_next_start_is_told():
    bucket = Bucket(Rate(1200.0, 1))
    bucket.take(1e9)
    assert bucket.next(1e9) == 1e9 + 1200
    assert bucket.next(1e9 + 1200) == 1e9 + 1200


@given(st.lists(st.tuples(st.floats(-500, 500), st.integers(0, 9)), max_size=30))
def test_a_jump_of_the_clock_grants_at_most_one_burst(jumps):
    bucket, now = Bucket(TEN_A_SECOND), 1e9
    for jump, tries in jumps:
        now += jump
        granted = 0
        for _ in range(tries):
            if bucket.next(now) <= now:
                bucket.take(now)
                granted += 1
        assert granted <= 3
        assert bucket.next(now) - now <= 0.1 + 1e-6  # and none waits for long


@given(
    st.lists(st.sampled_from((0.0, 0.0, 0.0, 0.3, 2.0)), min_size=1, max_size=60),
    st.floats(0, 3),
    st.floats(0.1, 1.0),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_restart_grants_nothing(gaps, pause, each, burst, whole):
    """What is rebuilt of a part of the past never starts a message before the bucket
    that has seen all of it."""
    wanted = Rate(each, burst)
    bucket, now, at = Bucket(wanted), 1e9, []
    for gap in gaps:
        now = max(now + gap, bucket.next(now + gap))
        bucket.take(now)
        at.append(now)
    now += pause
    since = None if whole else now - wanted.looks_back
    after = rebuilt(wanted, since, [t for t in at if since is None or t >= since], now)
    for _ in range(burst + 1):
        before, later = bucket.next(now), after.next(now)
        assert later >= before - 1e-5
        if whole:
            assert abs(later - before) < 1e-5
        bucket.take(before)
        after.take(later)


def test_starts_that_the_clock_has_put_into_the_future_count_as_now():
    bucket = rebuilt(TEN_A_SECOND, None, [2e9] * 50, 1e9)
    assert 1e9 < bucket.next(1e9) <= 1e9 + 0.11


def test_another_rate_goes_on_with_the_tokens_that_there_are():
    bucket = Bucket(TEN_A_SECOND)
    bucket.take(1e9)
    slow = bucket.other(Rate(60.0, 2), 1e9)
    assert len(starts(slow, 1e9, 1.0)) == 2
    assert len(starts(slow.other(TEN_A_SECOND, 1e9), 1e9, 0.05)) == 0
