"""What monitors measure of a queue: counters, histograms, and how long attempts run."""

import pytest

from rq.replies.queue import BUCKETS
from rq.spool.figures import Durations, Figures, Histogram
from rq.web import metrics
from rq.words.states import Event, State

HOUR = 3600.0


def line(event, source, target, **more):
    return {"ev": event, "was": source, "state": target, "ts": 10**15, **more}


def test_attempts_and_ends_are_counted_apart():
    figures = Figures()
    run = {"wait_us": 20_000, "run_us": 2_000_000}
    figures.take(line(Event.COMMIT, State.NOWHERE, State.QUE))
    figures.take(line(Event.CLAIM, State.QUE, State.RUN))
    figures.take(line(Event.RETRY, State.RUN, State.QUE, cause="retry", **run))
    figures.take(line(Event.FINISH, State.RUN, State.DONE, cause="done", **run))
    figures.take(line(Event.FINISH, State.QUE, State.DONE, cause="duplicate"))
    figures.take(line(Event.DISCARD, State.DONE, State.GONE))
    figures.take(line(Event.DISMISS, State.ERR, State.DISMISSED))
    assert figures.accepted == 1
    assert figures.attempts == {"retry": 1, "done": 1}
    assert figures.ended == {("done", "done"): 1, ("done", "duplicate"): 1}
    assert sum(figures.run.counts) == sum(figures.wait.counts) == 2
    assert figures.run.sum == pytest.approx(4.0)


def test_a_value_is_in_the_bucket_whose_bound_it_does_not_pass():
    histogram = Histogram()
    for value in (0.01, 0.011, 21600.0, 21601.0):
        histogram.add(value)
    assert (histogram.counts[0], histogram.counts[1]) == (1, 1)
    assert histogram.counts[-2:] == [1, 1]


def test_a_histogram_is_written_as_prometheus_adds_it_up():
    numbers = [1, 2, *[0] * (len(BUCKETS) - 1), 7.5]
    lines = metrics._histogram("h", 'queue="q"', numbers).splitlines()
    assert lines[0] == 'h_bucket{queue="q",le="0.01"} 1'
    assert lines[1] == 'h_bucket{queue="q",le="0.05"} 3'
    assert lines[-3:] == [
        'h_bucket{queue="q",le="+Inf"} 3',
        'h_sum{queue="q"} 7.5',
        'h_count{queue="q"} 3',
    ]


def test_quantiles_are_those_of_the_last_day_within_a_quarter():
    durations = Durations()
    durations.add(1e6, 0.0)  # more than a day ago
    for number in range(100):
        durations.add(1.0 + number, 30 * HOUR)
    total, (half, most) = durations.quantiles((0.5, 0.95), 30 * HOUR)
    assert total == 100
    assert 50 <= half <= 50 * 1.3
    assert 95 <= most <= 95 * 1.3


def test_quantiles_outlive_the_process_and_what_is_no_saving_is_ignored():
    durations, later = Durations(), Durations()
    for number in range(10):
        durations.add(number, HOUR * number)
    later.restored(durations.saved())
    now = 10 * HOUR
    assert later.quantiles((0.5,), now) == durations.quantiles((0.5,), now)
    for damaged in (None, 7, [["x", []]], [[1]], {"a": 1}):
        Durations().restored(damaged)


def test_of_nothing_there_is_no_quantile():
    assert Durations().quantiles((0.5, 0.95), 0.0) == (0, [0.0, 0.0])


def test_counters_go_on_from_what_was_left_or_begin_at_0_if_that_is_damaged():
    buckets = [0.0] * (len(BUCKETS) + 2)
    whole = {
        "accepted": 7,
        "attempts": {"done": 3},
        "ended": [["done", "done", 3]],
        "wait": buckets,
        "run": [1, *buckets[:-2], 0.5],
    }
    figures = Figures()
    figures.go_on_from(whole)
    assert (figures.accepted, figures.attempts) == (7, {"done": 3})
    assert figures.ended == {("done", "done"): 3}
    assert (figures.run.counts[0], figures.run.sum) == (1, 0.5)
    damaged = [{}, {**whole, "wait": buckets[1:]}, {**whole, "ended": [["done", 3]]}]
    for before in (*damaged, {**whole, "attempts": []}, {**whole, "accepted": "many"}):
        figures = Figures()
        figures.go_on_from(before)
        figures.take(line(Event.COMMIT, State.NOWHERE, State.QUE))
        figures.run.add(1e9)
        assert (figures.accepted, figures.attempts, figures.ended) == (1, {}, {})
