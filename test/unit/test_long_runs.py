"""Which attempts run far longer than others did."""

import pytest

from rq.queues.control.queue_view import long_runs

USUAL = {"attempts": 50, "p50": 10.0, "p95": 100.0}


def row(msg_id, since, **more):
    return {"msg_id": msg_id, "since": since, **more}


def ids(rows, usual=USUAL, times=4.0, now=1000.0):
    return [run["msg_id"] for run in long_runs(rows, usual, times, now)]


def test_the_longest_comes_first_and_what_is_usual_is_left_out():
    rows = [row("short", 700.0), row("long", 500.0), row("longer", 0.0)]
    assert ids(rows) == ["longer", "long"]
    (first, _) = long_runs(rows, USUAL, 4.0, 1000.0)
    assert (first["ran"], first["times"]) == (1000.0, 10.0)


@pytest.mark.parametrize(
    ("rows", "usual", "times"),
    [
        ([row("a", 0.0)], USUAL, 0.0),  # it is turned off
        ([row("a", 0.0)], None, 4.0),
        ([row("a", 0.0)], {**USUAL, "attempts": 19}, 4.0),  # too few tell nothing
        ([row("a", 945.0)], {**USUAL, "p95": 0.01}, 4.0),  # less than a minute
        ([row("a", 0.0, batch="b")], USUAL, 4.0),
    ],
)
def test_what_is_not_told(rows, usual, times):
    assert ids(rows, usual, times) == []
