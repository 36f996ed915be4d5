"""The timing wheel of a broker: what is due is given in time, and in its order."""

from hypothesis import given
from hypothesis import strategies as st

from rq.broker.state.deadlines import Deadline, Deadlines

EXACT = 0.0101  # seconds: 10 ms, and what is lost in rounding
AHEAD = st.sampled_from([-1.0, 0.0, 0.004, 0.013, 0.9, 7.0, 300.0, 86_400.0, 2.0**33])
STEPS = st.one_of(
    st.tuples(st.just("add"), AHEAD, st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 99)),
    st.tuples(st.just("move"), st.integers(0, 99), AHEAD),
    st.tuples(st.just("pass"), st.sampled_from([0.001, 0.01, 0.5, 30.0, 90_000.0])),
)


@given(st.lists(STEPS, max_size=60), st.integers(1, 50))
def test_deadlines_come_in_time_whatever_happens_to_others(steps, most):
    wheel, now, live = Deadlines(), 1000.0, {}
    for number, (verb, *values) in enumerate(steps):
        if verb == "add":
            ahead, tells_now = values
            live[number] = Deadline(number, now + ahead)
            wheel.add(live[number], now if tells_now else 0.0)
        elif verb == "pass":
            now += values[0]
            given_ = _all_due(wheel, now, most)
            assert all(live[each.what].at <= now for each in given_)
            for each in given_:
                del live[each.what]
            assert all(deadline.at > now - EXACT for deadline in live.values())
        elif live:
            what = list(live)[values[0] % len(live)]
            if verb == "cancel":
                wheel.cancel(live.pop(what))
            else:
                wheel.move(live[what], now + values[1], now)
        first = min((deadline.at for deadline in live.values()), default=None)
        upcoming = wheel.next()
        assert (upcoming is None) == (first is None)
        assert first is None or upcoming <= first + EXACT


def _all_due(wheel, now, most):
    due = []
    while (upcoming := wheel.next()) is not None and upcoming <= now:
        due += wheel.due(now, most)
    return due


def test_what_is_cancelled_leaves_nothing_behind():
    wheel, now = Deadlines(), 1000.0
    for number in range(20_000):
        now += 0.01
        deadline = Deadline(number, now + 86_400 + number % 1000)
        wheel.add(deadline, now)
        wheel.cancel(deadline)
    assert len(wheel) < 1000
    assert wheel.next() is None
    assert len(wheel) == 0


def test_what_is_due_together_comes_in_its_order():
    wheel = Deadlines()
    for at in (5.003, 5.001, 5.002):
        wheel.add(Deadline(at, at), 1.0)
    assert [each.what for each in wheel.due(6.0, 10)] == [5.001, 5.002, 5.003]
